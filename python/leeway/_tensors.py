"""Model files: safetensors whose values are all float32 or all float64."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from leeway._errors import Error

DTYPES: Dict[str, "np.dtype"] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
NAMES: Dict["np.dtype", str] = {np.dtype("float32"): "F32", np.dtype("float64"): "F64"}


@dataclass(frozen=True)
class Tensor:
    """Name and shape of one tensor of a model."""

    name: str
    shape: Tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def header(tensors: Sequence[Tensor], dtype: np.dtype, metadata: Optional[Mapping[str, str]] = None) -> bytes:
    """What stands before the values of a file with these tensors, one after the other."""
    entries: Dict[str, object] = {}
    if metadata:
        entries["__metadata__"] = dict(metadata)
    begin = 0
    for tensor in tensors:
        end = begin + tensor.size * dtype.itemsize
        entries[tensor.name] = {"dtype": NAMES[dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def save(tensors: Mapping[str, np.ndarray], path: Union[str, os.PathLike],
         metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes a model file: `tensors` by name, in their order, all float32 or all float64."""
    arrays = {name: np.asarray(value) for name, value in tensors.items()}
    if not arrays:
        raise Error("a model needs at least one tensor")
    first, dtype = next(((n, a.dtype) for n, a in arrays.items()))
    for name, array in arrays.items():
        if array.dtype not in NAMES:
            raise Error(f"tensor '{name}' is {array.dtype}; Leeway sums float32 and float64: convert it, "
                        "such as by .astype('float32')")
        if array.dtype != dtype:
            raise Error(f"tensor '{name}' is {array.dtype}, but '{first}' is {dtype}; convert all to one type")
        if array.size == 0:
            raise Error(f"tensor '{name}' has shape {list(array.shape)}: it has no values; leave it out")
    specs = [Tensor(name, array.shape) for name, array in arrays.items()]
    with open(path, "wb") as file:
        file.write(header(specs, dtype, metadata))
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_header(file) -> Tuple[List[Tensor], np.dtype, int]:
    """Tensors in the order of their values, their type, and where the values begin."""
    size = int.from_bytes(file.read(8), "little")
    entries = json.loads(file.read(size))
    entries.pop("__metadata__", None)
    ordered = sorted(entries.items(), key=lambda item: item[1]["data_offsets"][0])
    types = {entry["dtype"] for _, entry in ordered}
    if len(types) != 1 or not types <= set(DTYPES):
        raise Error(f"a model file holds {', '.join(sorted(types)) or 'nothing'}; expected all F32 or all F64")
    return [Tensor(n, tuple(e["shape"])) for n, e in ordered], DTYPES[types.pop()], 8 + size


def load(path: Union[str, os.PathLike]) -> Dict[str, np.ndarray]:
    """The tensors of a model file by name, in its order."""
    with open(path, "rb") as file:
        tensors, dtype, begin = read_header(file)
        file.seek(begin)
        values = np.frombuffer(file.read(), dtype)
    return split(values, tensors)


def split(values: np.ndarray, tensors: Sequence[Tensor]) -> Dict[str, np.ndarray]:
    """Views of a flat vector as tensors."""
    parts: Dict[str, np.ndarray] = {}
    begin = 0
    for tensor in tensors:
        parts[tensor.name] = values[begin:begin + tensor.size].reshape(tensor.shape)
        begin += tensor.size
    return parts
