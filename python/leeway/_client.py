"""leeway.Client: the user's own training loop, with whatever optimizer."""

from __future__ import annotations

import atexit
import functools
import math
import socket
import sys
import threading
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type

import numpy as np

from leeway._errors import Error
from leeway._serve import Attachment
from leeway._tensors import Tensor, split

METRIC = "metric/"  # before the names that the config lists as metrics
LARGEST = 1e30  # of numbers that are summed
NEEDS_STEPS = {"drift", "gradient", "hessian", "smoothness", "convexity", "iterate_bias_squared",
               "pseudo_gradient_variance"}


class Task:
    """What one round asks of a client: start from `model`, train, report."""

    def __init__(self, order: Dict[str, Any], model: np.ndarray, tensors: Sequence[Tensor], examples: int):
        self._examples = examples
        self._order = order
        self._tensors = tensors
        self._start = model
        self.client: str = order["client"]
        self.round: int = order["round"]
        self.steps: int = order["rule"]["steps"]
        self.epochs: int = order["rule"]["epochs"]
        self.step_size: float = order["rule"]["step_size"]
        self.batch_size: int = order["rule"]["batch_size"]
        self._names = {s["name"] for s in order["sums"]}
        self.answer: Optional[Tuple[Dict[str, float], List[np.ndarray]]] = None
        self.failure: Optional[Error] = None  # of the last report

    @property
    def model(self) -> Dict[str, np.ndarray]:
        """A copy of the model to start from: arrays by name."""
        return split(self._start.copy(), self._tensors)

    @property
    def trains(self) -> bool:
        """False: only the test part is asked for."""
        return "displacement" in self._names

    @property
    def random(self) -> np.random.Generator:
        """Seeded by run, round and client: with it, the run can be repeated to the bit."""
        return np.random.default_rng(self._order["random"])

    def report(self, model: Any = None, examples: Optional[int] = None,
               metrics: Optional[Mapping[str, float]] = None) -> None:
        """The model after local training (a dict of arrays or tensors by name, or a torch Module), and metrics:
        `loss`, the mean training loss at the model of the task; `test_loss` (mean), `test_correct` and
        `test_examples` where the task asks for a test; and every name that the config lists as `metrics`.
        examples: a check; clients are weighted by the number with which they joined."""
        try:
            self.answer = self._answer(model, examples, metrics)
        except Error as error:
            self.failure = error
            raise

    def _answer(self, model: Any, examples: Optional[int],
                metrics: Optional[Mapping[str, float]]) -> Tuple[Dict[str, float], List[np.ndarray]]:
        if examples is not None and examples != self._examples:
            raise Error(f"the report is of {examples} examples, but this client joined with {self._examples}, by which it "
                        f"is weighted in every round; join with examples={examples}")
        own = {k: float(v) for k, v in (metrics or {}).items()}
        values = dict(own)
        values.setdefault("test_examples", 0.0)
        values.setdefault("test_correct", 0.0)
        values["test_loss"] = values.get("test_loss", 0.0) * values["test_examples"]
        values.update({METRIC + k: v for k, v in own.items()})
        numbers = {}
        for s in self._order["sums"]:
            if s["shape"] != "number":
                continue
            value = values.get(s["name"], math.nan)
            if not math.isfinite(value) or abs(value) > LARGEST:
                name = s["name"][len(METRIC):] if s["name"].startswith(METRIC) else s["name"]
                raise Error(f"the round asks for '{name}', and the report has " +
                            (f"{value}" if s["name"] in values else "none") +
                            f"; give a finite number: task.report(model, metrics={{'{name}': ...}})")
            numbers[s["key"]] = value
        vectors = [self._displacement(model) for s in self._order["sums"] if s["name"] == "displacement"]
        return numbers, vectors

    def _displacement(self, model: Any) -> np.ndarray:
        if model is None:
            raise Error("the round asks for a trained model; give it: task.report(model, ...)")
        if hasattr(model, "state_dict"):
            model = model.state_dict()
        trained = np.empty_like(self._start)
        for name, part in split(trained, self._tensors).items():
            if name not in model:
                raise Error(f"the reported model has no tensor '{name}'; it has {', '.join(model)}")
            value = model[name]
            array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
            if array.shape != part.shape:
                raise Error(f"tensor '{name}' of the reported model has shape {list(array.shape)}, the run's model "
                            f"has {list(part.shape)}")
            part[...] = array
        if not np.isfinite(trained).all():
            raise Error("the reported model has a value that is not finite: lower the learning rate")
        return self._start - trained


class Client:
    """Rounds to take part in, one after the other, until the run is over.

        for task in leeway.Client(server, examples=len(data), name="clinic_07"):
            ...train from task.model...
            task.report(model, metrics={"loss": first_loss})

    This gives the measures that follow from displacements: diversity, cosine, consensus error. Drift needs exact local
    steps, which leeway.join and leeway.torch.join take: train with `drift_off: true` here.
    """

    def __init__(self, server: Optional[str], *, examples: int, test_examples: int = 0, name: Optional[str] = None,
                 **options: Any):
        if examples < 1:
            raise Error(f"examples is {examples}; give the number of training examples, at least 1")
        self._server = server
        self._options = options
        self._clients: List[Dict[str, Any]] = [{"name": name or socket.gethostname(), "examples": examples,
                          "test_examples": test_examples}]
        self._tensors: List[Tensor] = []

    # What a session asks of a host.

    def clients(self) -> List[Dict[str, Any]]:
        return self._clients

    def schema(self) -> Dict[str, Any]:
        return {}

    def prepare(self, tensors: List[Tensor], dtype: np.dtype, message: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def answer(self, order: Dict[str, Any], model: np.ndarray) -> Tuple[Dict[str, float], Sequence[np.ndarray]]:
        raise NotImplementedError("the loop answers")

    def __iter__(self) -> Iterator[Task]:
        attachment = Attachment(self._server, self, self._options)
        try:
            _install_hook()
            while True:
                order = attachment.next_order()
                if order is None:
                    return
                session = attachment.session
                needs = sorted({s["name"] for s in order["sums"]} & NEEDS_STEPS)
                if needs:
                    session.fail(order, Error(
                        f"the round asks for {needs[0]}, which a training loop of your own cannot report: set drift_off: "
                        "true in the train phase, or take part with leeway.join or leeway.torch.join"))
                    continue
                task = Task(order, session.model(order), self._tensors, self._clients[0]["examples"])
                try:
                    yield task
                except GeneratorExit:  # the loop was left
                    _leave_soon(_OpenTask(attachment, order, task))
                    raise
                if task.answer is None:
                    session.fail(order, Error("the loop went on without task.report()"))
                else:
                    session.reply(order, *task.answer)
        except GeneratorExit:
            raise  # whoever has the open task closes the attachment
        except BaseException:
            attachment.close()
            raise


class _OpenTask:
    """A task whose loop was left, perhaps by an exception."""

    def __init__(self, attachment: Attachment, order: Dict[str, Any], task: Task):
        self._attachment, self._order, self._task = attachment, order, task
        self._once = threading.Lock()

    @property
    def answered(self) -> bool:
        return self._task.answer is not None

    def leave(self, why: BaseException) -> None:
        """Its report, or why there is none, goes out, and this client leaves the run."""
        if not self._once.acquire(blocking=False):
            return
        if self._task.answer is None:
            self._attachment.session.give_up(self._order, self._task.failure or why)
        else:
            self._attachment.session.reply(self._order, *self._task.answer)
        self._attachment.close()


_open_tasks: List[_OpenTask] = []
UNKNOWN = Error("the training loop was left in the middle of a task; see what the client wrote")
GRACE_SECONDS = 1.0  # for an exception to come up


def _leave_soon(task: _OpenTask) -> None:
    """A loop's iterator is closed before anybody sees the exception that has ended the loop. Whoever does,
    sys.excepthook or leeway.simulate, comes to leave_open_tasks a moment later."""
    _open_tasks.append(task)
    if task.answered:
        return task.leave(UNKNOWN)
    timer = threading.Timer(GRACE_SECONDS, task.leave, (UNKNOWN,))
    timer.daemon = True
    timer.start()


def leave_open_tasks(why: BaseException) -> None:
    """This process ends by an exception, or ends."""
    while _open_tasks:
        _open_tasks.pop().leave(why)


@functools.lru_cache(maxsize=None)  # once
def _install_hook() -> None:
    before = sys.excepthook

    def hook(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        before(kind, error, trace)
        leave_open_tasks(error)

    sys.excepthook = hook
    atexit.register(leave_open_tasks, UNKNOWN)
