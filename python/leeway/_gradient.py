"""leeway.join: clients whose model is one function (w, batch) -> (loss, gradient)."""

from __future__ import annotations

import math
import numbers
import socket
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from leeway import _local
from leeway._errors import Error
from leeway._serve import serve
from leeway._tensors import Tensor, split

Batch = Tuple[np.ndarray, ...]
Model = Union[np.ndarray, Dict[str, np.ndarray]]
Gradient = Callable[[Model, Batch], Tuple[float, Any]]
Evaluate = Callable[[Model, Batch], Tuple[float, int]]


def join(server: Optional[str], *, gradient: Gradient, data: Any, test: Any = None, name: Optional[str] = None,
         evaluate: Optional[Evaluate] = None, smoothness: Optional[Callable[[Batch], float]] = None,
         **options: Any) -> None:
    """Takes part in a run, and returns when it is over.

    gradient(w, batch) -> (loss, gradient): the mean loss over the batch at w and its gradient. w is an array if the
    run's model has one tensor, else a dict of arrays by name, not to be written to; the gradient has the same form. A
    batch is what `data` is, with some of its rows.
    data: a tuple of arrays with one row per example, such as (x, y); or a dict of such tuples by client name, to host
    several clients. test: the same for their test parts.
    evaluate(w, batch) -> (mean loss, number of correct answers) on test data; default: the loss of `gradient`, and 0.
    smoothness(data): a bound of the Hessian's eigenvalues at every model, where one is known.
    options: those of leeway-client, such as tls_ca='ca.crt', tls_cert=..., tls_key=..., give_up=60.
    """
    host = GradientHost(gradient, data, test, name, evaluate, smoothness)
    serve(server, host, options)


def by_client(data: Any, test: Any, name: Optional[str]) -> Dict[str, Tuple[Any, Any]]:
    """(data, test) by client name."""
    if isinstance(data, Mapping):
        if name is not None:
            raise Error("data is a dict, whose keys are the clients' names; leave name out")
        extra = set(test or {}) - set(data)
        if extra:
            raise Error(f"test has the client '{sorted(extra)[0]}', which data has not")
        return {str(n): (d, (test or {}).get(n)) for n, d in data.items()}
    return {name or socket.gethostname(): (data, test)}


def rows_of(data: Any, what: str) -> Batch:
    """Checked arrays with equally many rows."""
    arrays = tuple(np.asarray(a) for a in (data if isinstance(data, (tuple, list)) else (data,)))
    lengths = {len(a) if a.ndim else -1 for a in arrays}
    if not arrays or len(lengths) != 1 or -1 in lengths:
        raise Error(f"{what} must be arrays with one row per example and equally many rows, "
                    f"but has shapes {', '.join(str(list(a.shape)) for a in arrays)}")
    if lengths == {0}:
        raise Error(f"{what} has no examples; leave the client out, or give it some")
    return arrays


class GradientHost:
    """The clients of one process."""

    def __init__(self, gradient: Gradient, data: Any, test: Any, name: Optional[str],
                 evaluate: Optional[Evaluate], smoothness: Optional[Callable[[Batch], float]]):
        if not callable(gradient):
            raise Error("gradient must be a function (w, batch) -> (loss, gradient)")
        self._objectives = {
            client: GradientObjective(gradient, rows_of(own, f"data of client '{client}'"),
                                      None if tests is None else rows_of(tests, f"test of client '{client}'"),
                                      evaluate, smoothness)
            for client, (own, tests) in by_client(data, test, name).items()}
        if not self._objectives:
            raise Error("data has no clients")

    def clients(self) -> List[Dict[str, Any]]:
        return [{"name": name, "examples": o.examples, "test_examples": o.test_examples}
                for name, o in self._objectives.items()]

    def schema(self) -> Dict[str, Any]:
        data = next(iter(self._objectives.values())).data
        labels = len(data) > 1 and np.issubdtype(data[-1].dtype, np.integer)
        return {"features": list(data[0].shape[1:]), "labels": bool(labels)}

    def prepare(self, tensors: List[Tensor], dtype: np.dtype, message: Mapping[str, Any]) -> None:
        for objective in self._objectives.values():
            objective.tensors, objective.dtype = tensors, dtype

    def answer(self, order: Dict[str, Any], model: np.ndarray) -> Tuple[Dict[str, float], Sequence[np.ndarray]]:
        return _local.answer(self._objectives[order["client"]], model, order)


class GradientObjective:
    """One client's loss by the user's function."""

    def __init__(self, gradient: Gradient, data: Batch, test: Optional[Batch], evaluate: Optional[Evaluate],
                 smoothness: Optional[Callable[[Batch], float]]):
        self._gradient = gradient
        self._evaluate = evaluate
        self._smoothness = smoothness
        self.data = data
        self._test = test
        self.tensors: List[Tensor] = []
        self.dtype = np.dtype("float64")
        self.examples = len(data[0])
        self.test_examples = 0 if test is None else len(test[0])

    def vector(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, self.dtype)

    def array(self, vector: np.ndarray) -> np.ndarray:
        return vector

    def minus(self, w: np.ndarray, u: np.ndarray) -> np.ndarray:
        return w - u

    def add(self, factor: float, gradient: np.ndarray, u: np.ndarray) -> None:
        u += factor * gradient

    def begin(self) -> None:
        pass

    def evaluate(self, w: np.ndarray, rows: Optional[np.ndarray], step: bool) -> Tuple[float, np.ndarray]:
        batch = self.data if rows is None else tuple(a[rows] for a in self.data)
        result = self._gradient(self._form(w), batch)
        if not isinstance(result, tuple) or len(result) != 2:
            raise Error(f"gradient returned {type(result).__name__}; expected a pair (loss, gradient)")
        return _scalar(result[0], "the loss"), self._flat(result[1])

    def loss(self, w: np.ndarray) -> float:
        return self.evaluate(w, None, False)[0]

    def after_step(self, w: np.ndarray, u: np.ndarray) -> None:
        pass

    def only_trained(self, vector: np.ndarray) -> None:
        pass

    def test(self, w: np.ndarray) -> Tuple[int, float, int]:
        if self._test is None:
            return 0, 0.0, 0
        if self._evaluate is None:
            loss, correct = self._gradient(self._form(w), self._test)[0], 0
        else:
            loss, correct = self._evaluate(self._form(w), self._test)
        return self.test_examples, _scalar(loss, "the test loss") * self.test_examples, int(correct)

    def smoothness(self) -> Optional[float]:
        return None if self._smoothness is None else _scalar(self._smoothness(self.data), "smoothness")

    def _form(self, w: np.ndarray) -> Model:
        parts = split(w, self.tensors)
        return parts if len(parts) > 1 else parts[self.tensors[0].name]

    def _flat(self, gradient: Any) -> np.ndarray:
        if len(self.tensors) == 1 and not isinstance(gradient, Mapping):
            gradient = {self.tensors[0].name: gradient}
        if not isinstance(gradient, Mapping):
            raise Error(f"gradient is {type(gradient).__name__}; the model has {len(self.tensors)} tensors, so it must "
                        f"be a dict of arrays: {', '.join(t.name for t in self.tensors)}")
        flat = np.empty(sum(t.size for t in self.tensors), self.dtype)
        for name, part in split(flat, self.tensors).items():
            value = np.asarray(gradient[name]) if name in gradient else None
            if value is None or value.shape != part.shape:
                raise Error(f"the gradient of '{name}' " + ("is missing" if value is None else
                            f"has shape {list(value.shape)}, but the tensor has {list(part.shape)}"))
            part[...] = value
        return flat


def _scalar(value: Any, what: str) -> float:
    array = np.asarray(value)
    if array.shape != () or not isinstance(array.item(), numbers.Real):
        raise Error(f"{what} has shape {list(array.shape)}; expected one number: take the mean over the batch")
    number = float(array)
    if not math.isfinite(number):
        raise Error(f"{what} is {number}: lower step_size, or scale the data")
    return number
