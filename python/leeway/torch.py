"""PyTorch models in a Leeway federation: Leeway owns the loop, so that every measure is exact.

    leeway.torch.save(model, "initial.safetensors")                     # for `model { file: ... }`
    leeway.torch.join(server, model, loss, dataset, name="clinic_07")   # on each client
    leeway.torch.load_into(model, "runs/mine/model.safetensors")        # the result
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch

from leeway import _local, _tensors
from leeway._errors import Error
from leeway._gradient import by_client
from leeway._serve import serve
from leeway._tensors import Tensor

Loss = Callable[[Any, Any], "torch.Tensor"]
FLOATS = {torch.float32: np.dtype("float32"), torch.float64: np.dtype("float64")}


def federated(model: torch.nn.Module, buffers: str = "average") -> Dict[str, torch.Tensor]:
    """What of a model is trained together, by name: parameters that need gradients and, with buffers='average',
    floating-point buffers such as running statistics. The rest stays as it is on every client."""
    if buffers not in ("average", "local"):
        raise Error(f"buffers is '{buffers}'; expected 'average' or 'local'")
    tensors: Dict[str, torch.Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if buffers == "average":
        saved = set(model.state_dict())
        tensors.update({name: b for name, b in model.named_buffers()
                        if b.is_floating_point() and b.numel() > 0 and name in saved})
    if not tensors:
        raise Error("the model has no parameters that need gradients")
    first, dtype = next((n, t.dtype) for n, t in tensors.items())
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise Error(f"tensor '{name}' is {tensor.dtype}; Leeway sums float32 and float64: call model.float()")
        if tensor.dtype != dtype:
            raise Error(f"tensor '{name}' is {tensor.dtype}, but '{first}' is {dtype}: call model.float() or "
                        "model.double()")
    return tensors


def save(model: torch.nn.Module, path: Union[str, os.PathLike], buffers: str = "average") -> None:
    """Writes the initial model of a run: `model { file: "initial.safetensors" }`."""
    tensors = federated(model, buffers)
    _tensors.save({name: t.detach().cpu().numpy() for name, t in tensors.items()}, path)


def load_into(model: torch.nn.Module, path: Union[str, os.PathLike, Mapping[str, np.ndarray]]) -> torch.nn.Module:
    """Puts the tensors of a model file, or of a dict of arrays, into a model."""
    values = path if isinstance(path, Mapping) else _tensors.load(path)
    own = model.state_dict()
    for name, value in values.items():
        if name not in own:
            raise Error(f"the model has no tensor '{name}'; it has {', '.join(own)}")
        if tuple(own[name].shape) != value.shape:
            raise Error(f"tensor '{name}' has shape {list(value.shape)} in the file and {list(own[name].shape)} in "
                        "the model")
        own[name].copy_(torch.from_numpy(np.array(value)))
    return model


def join(server: Optional[str], model: torch.nn.Module, loss: Loss, data: Any, test: Any = None, *,
         name: Optional[str] = None, device: Any = None, buffers: str = "average", chunk: int = 1000,
         loader: Optional[Mapping[str, Any]] = None, correct: Optional[Callable[[Any, Any], int]] = None,
         **options: Any) -> None:
    """Takes part in a run, and returns when it is over.

    model: any Module; its tensors must be those of the run's model file (leeway.torch.save).
    loss(output, target) -> scalar: the mean over the batch, such as torch.nn.functional.cross_entropy.
    data: a Dataset of pairs (input, target), or a dict of them by client name, to host several clients. test: the
    same for their test parts.
    device: where to compute, such as "cuda"; default: where the model is.
    buffers: 'average' trains floating-point buffers together, 'local' keeps them on each client.
    chunk: examples at a time when all are evaluated. It changes results only with layers that look at whole
    batches, such as BatchNorm.
    loader: options of DataLoader, such as {"num_workers": 2}.
    correct(output, target) -> number of correct answers on test data; default: by the largest output.
    options: those of leeway-client, such as tls_ca='ca.crt', tls_cert=..., tls_key=..., give_up=60.
    """
    serve(server, TorchHost(model, loss, data, test, name, device, buffers, chunk, loader, correct), options)


class TorchHost:
    """The clients of one process: they share the module, one at a time."""

    def __init__(self, model: torch.nn.Module, loss: Loss, data: Any, test: Any, name: Optional[str], device: Any,
                 buffers: str, chunk: int, loader: Optional[Mapping[str, Any]],
                 correct: Optional[Callable[[Any, Any], int]]):
        if device is not None:
            model.to(device)
        self._module = FlatModule(model, loss, buffers)
        self._objectives = {
            client: TorchObjective(self._module, _examples(own, f"data of client '{client}'", chunk, loader),
                                   None if tests is None else
                                   _examples(tests, f"test of client '{client}'", chunk, loader), correct)
            for client, (own, tests) in by_client(data, test, name).items()}
        if not self._objectives:
            raise Error("data has no clients")

    def clients(self) -> List[Dict[str, Any]]:
        return [{"name": name, "examples": o.examples, "test_examples": o.test_examples}
                for name, o in self._objectives.items()]

    def schema(self) -> Dict[str, Any]:
        return next(iter(self._objectives.values())).schema()

    def prepare(self, tensors: List[Tensor], dtype: np.dtype, message: Mapping[str, Any]) -> None:
        self._module.fit(tensors, dtype)

    def answer(self, order: Dict[str, Any], model: np.ndarray) -> Tuple[Dict[str, float], Sequence[np.ndarray]]:
        # Dropout and augmentation draw from here.
        torch.manual_seed(int(np.random.SeedSequence(order["random"]).generate_state(1, np.uint64)[0]) >> 1)
        return _local.answer(self._objectives[order["client"]], model, order)


class FlatModule:
    """A module whose federated tensors are views of one flat vector."""

    def __init__(self, model: torch.nn.Module, loss: Loss, buffers: str):
        self.model = model
        self.loss = loss
        self._tensors = federated(model, buffers)
        first = next(iter(self._tensors.values()))
        self.device, self.dtype = first.device, first.dtype
        # Buffers that are not federated belong to each client.
        self._kept = [b for n, b in model.named_buffers() if n not in self._tensors]
        self.initial_kept = self.kept()

    def fit(self, tensors: List[Tensor], dtype: np.dtype) -> None:
        """Lays the module's tensors out as the run's model has them, or says what does not fit."""
        own = self._tensors
        for tensor in tensors:
            if tensor.name not in own:
                raise Error(f"the run's model has a tensor '{tensor.name}', this model has not: it has "
                            f"{', '.join(own)}; write the run's model file with leeway.torch.save()")
            if tuple(own[tensor.name].shape) != tensor.shape:
                raise Error(f"tensor '{tensor.name}' has shape {list(tensor.shape)} in the run's model and "
                            f"{list(own[tensor.name].shape)} in this one")
        missing = set(own) - {t.name for t in tensors}
        if missing:
            raise Error(f"this model has a tensor '{sorted(missing)[0]}', the run's model has not; write the run's "
                        "model file with leeway.torch.save()")
        if FLOATS[self.dtype] != dtype:
            raise Error(f"the run's model is {dtype}, this one {self.dtype}: call model.float() or model.double(), or "
                        "write the run's model file anew")
        self._sizes = [t.size for t in tensors]
        self._laid_out = [own[t.name] for t in tensors]
        self.w = torch.zeros(sum(self._sizes), dtype=self.dtype, device=self.device)
        self.untrained: List[slice] = []  # places of buffers
        begin = 0
        for tensor, target in zip(tensors, self._laid_out):
            place = slice(begin, begin + tensor.size)
            target.data = self.w[place].view(tensor.shape)
            if not isinstance(target, torch.nn.Parameter):
                self.untrained.append(place)
            begin += tensor.size

    def backward(self, loss: torch.Tensor) -> None:
        """The gradient of this loss, and of no other. Without one from before, it is not copied either."""
        for tensor in self._laid_out:
            tensor.grad = None
        loss.backward()

    def add_gradient(self, factor: float, total: torch.Tensor) -> None:
        """total += factor * the gradient of the last backward()."""
        for part, tensor in zip(total.split(self._sizes), self._laid_out):
            if tensor.grad is not None:
                gradient = tensor.grad.to_dense() if tensor.grad.is_sparse else tensor.grad
                part.add_(gradient.reshape(-1), alpha=factor)

    def kept(self) -> List[torch.Tensor]:
        return [b.clone() for b in self._kept]

    def restore(self, kept: List[torch.Tensor]) -> None:
        for buffer, value in zip(self._kept, kept):
            buffer.copy_(value)

    def forward_loss(self, batch: Tuple[Any, Any]) -> Tuple[torch.Tensor, Any]:
        inputs, targets = (_to(part, self.device) for part in batch)
        output = self.model(inputs)
        value = self.loss(output, targets)
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise Error(f"the loss has shape {shape}; expected a scalar tensor: take the mean over the batch")
        return value, (output, targets)


class TorchObjective:
    """One client's loss by the shared module."""

    def __init__(self, module: FlatModule, data: "Examples", test: Optional["Examples"],
                 correct: Optional[Callable[[Any, Any], int]]):
        self._module = module
        self._data = data
        self._test = test
        self._correct = correct or _largest
        self._kept = module.initial_kept  # this client's own buffers
        self.examples: int = data.size
        self.test_examples: int = 0 if test is None else test.size

    def schema(self) -> Dict[str, Any]:
        return self._data.schema()

    def vector(self, values: np.ndarray) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that numpy would not write to it: nor do we
            return torch.from_numpy(values).to(device=self._module.device, dtype=self._module.dtype)

    def array(self, vector: torch.Tensor) -> np.ndarray:
        return vector.cpu().numpy()

    def minus(self, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return torch.sub(w, u, out=self._module.w)  # where the model reads it

    def add(self, factor: float, gradient: Union[torch.Tensor, FlatModule], u: torch.Tensor) -> None:
        if isinstance(gradient, FlatModule):
            gradient.add_gradient(factor, u)
        else:
            u.add_(gradient, alpha=factor)

    def begin(self) -> None:
        self._module.restore(self._kept)

    def evaluate(self, w: torch.Tensor, rows: Optional[np.ndarray],
                 step: bool) -> Tuple[float, Union[torch.Tensor, FlatModule]]:
        module = self._module
        if w is not module.w:
            module.w.copy_(w)
        module.model.train()
        if rows is not None:
            module.backward(module.forward_loss(self._data.batch(rows))[0])
            self._keep(step)
            return 0.0, module  # nobody asks for a batch's loss
        total, mean = torch.zeros_like(module.w), 0.0
        for share, batch in self._data.chunks():
            loss, _ = module.forward_loss(batch)
            module.backward(loss)
            module.add_gradient(share, total)
            mean += share * loss.item()
        self._keep(step)
        return mean, total

    def loss(self, w: torch.Tensor) -> float:
        self._module.w.copy_(w)
        self._module.model.train()
        with torch.no_grad():
            mean = sum(share * self._module.forward_loss(batch)[0].item() for share, batch in self._data.chunks())
        self._keep(False)
        return mean

    def _keep(self, step: bool) -> None:
        """Own buffers change on the way of local steps, and not where the model is only measured."""
        if step:
            self._kept = self._module.kept()
        else:
            self._module.restore(self._kept)

    def after_step(self, w: torch.Tensor, u: torch.Tensor) -> None:
        for place in self._module.untrained:
            u[place] = w[place] - self._module.w[place]

    def only_trained(self, vector: torch.Tensor) -> None:
        for place in self._module.untrained:
            vector[place] = 0

    def test(self, w: torch.Tensor) -> Tuple[int, float, int]:
        if self._test is None:
            return 0, 0.0, 0
        self._module.w.copy_(w)
        self._module.model.eval()
        total, right = 0.0, 0
        with torch.no_grad():
            for share, batch in self._test.chunks():
                loss, (output, targets) = self._module.forward_loss(batch)
                total += share * self.test_examples * loss.item()
                right += int(self._correct(output, targets))
        return self.test_examples, total, right

    def smoothness(self) -> Optional[float]:
        return None


class Examples:
    """Rows of a data set, as batches. Chunks of all of it are kept if they are tensors that lie in memory anyway."""

    def __init__(self, dataset: Any, chunk: int, loader: Mapping[str, Any]):
        self.size = len(dataset)
        self._dataset = dataset
        self._chunk = chunk
        self._loader = dict(loader)
        self._tensors = dataset.tensors if isinstance(dataset, torch.utils.data.TensorDataset) else None

    def schema(self) -> Dict[str, Any]:
        """Shape of one input, for the models that Leeway contains; nothing for data of other forms."""
        example = self._dataset[0]
        if not isinstance(example, (tuple, list)) or len(example) != 2 or not hasattr(example[0], "shape"):
            return {}
        return {"features": list(example[0].shape), "labels": not torch.as_tensor(example[1]).is_floating_point()}

    def batch(self, rows: np.ndarray) -> Any:
        if self._tensors is not None:
            index = torch.from_numpy(rows)
            return tuple(t[index] for t in self._tensors)
        collate = self._loader.get("collate_fn") or torch.utils.data.default_collate
        return collate([self._dataset[int(i)] for i in rows])

    def chunks(self) -> Any:
        """(share of all examples, batch) for batches that together are all, in order."""
        if self._tensors is not None:
            for begin in range(0, self.size, self._chunk):
                part = tuple(t[begin:begin + self._chunk] for t in self._tensors)
                yield len(part[0]) / self.size, part
            return
        done = 0
        for batch in torch.utils.data.DataLoader(self._dataset, self._chunk, shuffle=False, **self._loader):
            count = min(self._chunk, self.size - done)
            done += count
            yield count / self.size, batch


def _examples(dataset: Any, what: str, chunk: int, loader: Optional[Mapping[str, Any]]) -> Examples:
    if isinstance(dataset, (tuple, list)) and all(isinstance(d, torch.Tensor) for d in dataset):
        dataset = torch.utils.data.TensorDataset(*dataset)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Error(f"{what} is {type(dataset).__name__}; expected a Dataset with a length, or a pair of tensors")
    if len(dataset) == 0:
        raise Error(f"{what} has no examples; leave the client out, or give it some")
    return Examples(dataset, chunk, loader or {})


def _largest(output: Any, targets: Any) -> int:
    """Correct answers of a classifier; 0 where outputs are no scores of classes."""
    if not isinstance(output, torch.Tensor) or targets.is_floating_point() or output.dim() != targets.dim() + 1:
        return 0
    return int((output.argmax(1) == targets).sum())


def _to(part: Any, device: torch.device) -> Any:
    if isinstance(part, torch.Tensor):
        return part.to(device)
    if isinstance(part, (list, tuple)):
        return type(part)(_to(p, device) for p in part)
    if isinstance(part, dict):
        return {k: _to(v, device) for k, v in part.items()}
    return part
