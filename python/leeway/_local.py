"""One client's work on one order: local steps, and every sum that follows from loss and gradient.

The arithmetic is that of Leeway's own clients (client/local_update.cc). It works on numpy arrays and
on torch tensors alike: an Objective says which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Protocol, Sequence, Tuple

import numpy as np

from leeway._errors import Error
from leeway._random import BATCH_ORDER, Batches, Stream, name_of

# Flat vectors: numpy arrays or torch tensors.
Flat = Any


class Objective(Protocol):
    """The loss of one client on its own data, as a function of the flat model."""

    examples: int
    test_examples: int

    def vector(self, values: np.ndarray) -> Flat:
        """The same as the objective computes with it; nobody writes to it."""

    def array(self, vector: Flat) -> np.ndarray:
        """The same, as numpy."""

    def minus(self, w: Flat, u: Flat) -> Flat:
        """w - u, good until the next call."""

    def add(self, factor: float, gradient: Flat, u: Flat) -> None:
        """u += factor * gradient."""

    def begin(self) -> None:
        """An order begins."""

    def evaluate(self, w: Flat, rows: Optional[np.ndarray], step: bool) -> Tuple[float, Flat]:
        """Mean loss over `rows` (None: all) and its gradient; `step`: on the way of local steps. The gradient of rows is
        good until the next call, and for `add` alone."""

    def loss(self, w: Flat) -> float:
        """Mean loss over all rows."""

    def after_step(self, w: Flat, u: Flat) -> None:
        """Puts what moves without a gradient (running statistics) into the displacement."""

    def only_trained(self, vector: Flat) -> None:
        """Sets what is not trained by gradients to 0."""

    def test(self, w: Flat) -> Tuple[int, float, int]:
        """Examples, summed loss and correct answers of the test part."""

    def smoothness(self) -> Optional[float]:
        """A bound of the Hessian's eigenvalues at every model, if one is known."""


@dataclass(frozen=True)
class Sum:
    """One value that an order asks for."""

    key: str
    name: str
    steps: int
    shape: str


KNOWN = {"loss", "gradient", "displacement", "drift", "test_examples", "test_loss", "test_correct",
         "iterate_bias_squared", "pseudo_gradient_variance", "hessian", "smoothness", "convexity"}
EXACT_DIMENSION = 256  # spectra by Hessians up to here, else by Lanczos
CURVED_STEP = 2e-3  # of differences, where rounding and curvature leave equally little


def answer(objective: Objective, model: np.ndarray, order: Dict[str, Any]) -> Tuple[Dict[str, float], List[Any]]:
    """Numbers by key, and the vectors in the order of the sums."""
    sums = [Sum(s["key"], s["name"], s["steps"], s["shape"]) for s in order["sums"]]
    for s in sums:
        if s.name.startswith("metric/"):
            raise Error(f"the round asks for the metric '{s.name[7:]}', which leeway.join and leeway.torch.join do not report: "
                        "leave it out of train.metrics, or take part with leeway.Client")
        if s.name not in KNOWN:
            raise Error(f"the order asks for '{s.name}', which this version of the package does not know; "
                        "install the server's version")
    return _Task(objective, model, order, sums).run()


class _Path:
    """A local model on its way, as displacement from the start."""

    def __init__(self, batches: Optional[Batches], start: Flat):
        self.batches = batches  # None: all examples
        self.u: Flat = None if batches is None else start * 0  # before the first full-batch step there is none


class _Task:
    def __init__(self, objective: Objective, model: np.ndarray, order: Dict[str, Any], sums: Sequence[Sum]):
        self.objective = objective
        self.w = objective.vector(model)
        self.sums = sums
        self.rule = order["rule"]
        self.repeats = order["repeats"]
        self.random = order["random"]
        self.names = {s.name for s in sums}
        self.numbers: Dict[str, float] = {}
        self.vectors: Dict[str, Any] = {}
        self.eta = self.rule["step_size"]

    def run(self) -> Tuple[Dict[str, float], List[Any]]:
        if not np.isfinite(self.objective.array(self.w)).all():
            raise Error("the model to start from is not finite: restart from an earlier one with a lower step_size")
        self.objective.begin()
        self._train()
        self._test()
        self._curvature()
        for key, value in self.numbers.items():
            if not math.isfinite(value):
                raise Error(f"{key} is {value} with step_size {self.eta}: lower step_size, or scale the data")
        arrays = []
        for s in self.sums:
            if s.shape != "number":
                arrays.append(self.objective.array(self.vectors[s.key]))
                if not np.isfinite(arrays[-1]).all():
                    raise Error(f"{s.key} is not finite with step_size {self.eta}: lower step_size, or scale the data")
        return {s.key: float(self.numbers[s.key]) for s in self.sums if s.shape == "number"}, arrays

    # Training part.

    def _train(self) -> None:
        moves = bool(self.names & {"displacement", "drift"})
        if not moves and not self.names & {"loss", "gradient"}:
            return
        examples = self.objective.examples
        batch = self.rule["batch_size"]
        full = batch == 0 or batch >= examples
        batch = examples if full else batch
        others = [] if full or "pseudo_gradient_variance" not in self.names else self._other_paths(batch)
        if full and moves or self.names & {"gradient", "drift"} or others:
            loss, gradient = self.objective.evaluate(self.w, None, False)
        else:
            loss, gradient = (self.objective.loss(self.w) if "loss" in self.names else 0.0), None
        self.numbers["loss"] = loss
        self.vectors["gradient"] = gradient
        if moves:
            self._move(full, batch, gradient, others)

    def _other_paths(self, batch: int) -> List[_Path]:
        """Gradient descent, then repeats - 1 stochastic paths with streams of their own."""
        stream = Stream(self.random)
        paths = [_Path(None, self.w)]
        for r in range(1, self.repeats):
            own = Stream(name_of(stream.next64(), r, 0, BATCH_ORDER))
            paths.append(_Path(Batches(self.objective.examples, batch, own), self.w))
        return paths

    def _move(self, full: bool, batch: int, gradient: Flat, others: List[_Path]) -> None:
        steps = self.rule["steps"] or self.rule["epochs"] * -(-self.objective.examples // batch)
        if steps == 0:
            raise Error("rule.steps and rule.epochs are 0: give one of them to move at all")
        drifts = {(s.steps or steps): s for s in self.sums if s.name == "drift"}
        if max(drifts, default=0) > steps:
            raise Error(f"the order asks for drift after {max(drifts)} steps, but this client takes {steps}")
        last = steps if "displacement" in self.names else max(drifts)
        first = _Path(None if full else Batches(self.objective.examples, batch, Stream(self.random)), self.w)
        full_step = None if gradient is None else self.eta * gradient
        for h in range(1, last + 1):
            self._step(first, h, full_step)
            for path in others:
                self._step(path, h, full_step)
            if h in drifts:
                self._drift(drifts[h], h, full_step, first.u)
                self._spread(drifts[h], h, first, others)
        self.vectors["displacement"] = first.u

    def _step(self, path: _Path, h: int, full_step: Flat) -> None:
        """u^(h) = u^(h-1) + eta * gradient at w - u^(h-1)."""
        if path.batches is None and h == 1:
            path.u = full_step * 1  # a copy: the drift needs the step itself
        else:
            rows = None if path.batches is None else path.batches.next()
            _, gradient = self.objective.evaluate(self.objective.minus(self.w, path.u), rows, True)
            self.objective.add(self.eta, gradient, path.u)
        self.objective.after_step(self.w, path.u)

    def _drift(self, wanted: Sum, h: int, full_step: Flat, u: Flat) -> None:
        drift = (full_step - u / h) / self.eta
        self.objective.only_trained(drift)
        self.vectors[wanted.key] = drift

    def _spread(self, wanted: Sum, h: int, first: _Path, others: List[_Path]) -> None:
        """Iterate bias and variance of the pseudo-gradient, from the stochastic paths."""
        suffix = f"@{wanted.steps}" if wanted.steps else ""
        self.numbers["iterate_bias_squared" + suffix] = 0.0
        self.numbers["pseudo_gradient_variance" + suffix] = 0.0
        if not others:
            return
        descent = self.objective.array(others[0].u).astype(np.float64)
        ahead = [self.objective.array(p.u).astype(np.float64) - descent for p in (first, *others[1:])]
        paths = len(ahead)
        mean = sum(ahead) / paths
        variance = sum(float(np.sum((a - mean) ** 2)) for a in ahead) / (paths - 1)
        length = (self.eta * h) ** 2
        self.numbers["iterate_bias_squared" + suffix] = (float(np.sum(mean ** 2)) - variance / paths) / length
        self.numbers["pseudo_gradient_variance" + suffix] = variance / length

    # Test part.

    def _test(self) -> None:
        if self.names & {"test_examples", "test_loss", "test_correct"}:
            examples, loss, correct = self.objective.test(self.w)
            self.numbers.update(test_examples=examples, test_loss=loss, test_correct=correct)

    # Curvature, by differences of full-batch gradients.

    def _gradient(self, w: np.ndarray) -> np.ndarray:
        return self.objective.array(self.objective.evaluate(self.objective.vector(w), None, False)[1])

    def _curvature(self) -> None:
        if not self.names & {"hessian", "smoothness", "convexity"}:
            return
        w = self.objective.array(self.w)
        if w.dtype != np.float64:
            raise Error("curvature is measured for models in float64 only")
        bound = self.objective.smoothness()
        if "smoothness" in self.names and bound is not None:
            self.numbers["smoothness"] = bound
            if not self.names & {"hessian", "convexity"}:
                return
        affine = self._affine(w)

        def across(v: np.ndarray, h: float) -> np.ndarray:
            return self._gradient(w + h * v) - self._gradient(w - h * v)

        def product(v: np.ndarray) -> np.ndarray:
            h = (1.0 if affine else CURVED_STEP) / max(float(np.linalg.norm(v)), 1e-300)
            if affine:
                return across(v, h) / (2 * h)
            return (8 * across(v, h) - across(v, 2 * h)) / (12 * h)  # the error falls with h^4

        if w.size <= EXACT_DIMENSION:
            hessian = np.stack([product(e) for e in np.eye(w.size)], axis=1)
            hessian = 0.5 * (hessian + hessian.T)
            self.vectors["hessian"] = self.objective.vector(hessian.ravel())
            values = np.linalg.eigvalsh(hessian)
        else:
            values = _lanczos(product, w.size)
        self.numbers.setdefault("smoothness", float(values[-1]))
        self.numbers["convexity"] = float(values[0])

    def _affine(self, w: np.ndarray) -> bool:
        """Of gradients that are, differences over whole steps leave nothing but rounding."""
        v = np.where(np.arange(w.size) % 2 == 0, 1.0, -1.0) / math.sqrt(w.size)
        start, one, two = (self._gradient(w + k * v) for k in (0.0, 1.0, 2.0))
        bend = np.linalg.norm(two - 2 * one + start)
        return bool(bend <= 1e-12 * (np.linalg.norm(two) + np.linalg.norm(start)))


def _lanczos(product: Any, size: int, iterations: int = 40) -> np.ndarray:
    """Eigenvalues of the Krylov space of a vector; its ends are those of the matrix."""
    v = np.random.default_rng(0).normal(size=size)
    basis = [v / np.linalg.norm(v)]
    diagonal: List[float] = []
    beside: List[float] = []
    while len(diagonal) < min(iterations, size):
        next_ = product(basis[-1])
        diagonal.append(float(basis[-1] @ next_))
        for _ in range(2):
            for b in basis:
                next_ = next_ - (b @ next_) * b
        norm = float(np.linalg.norm(next_))
        if norm < 1e-12 * abs(diagonal[0]):
            break
        beside.append(norm)
        basis.append(next_ / norm)
    k = len(diagonal)
    return np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside[:k - 1], 1) + np.diag(beside[:k - 1], -1))
