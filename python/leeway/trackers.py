"""Experiment trackers: a run's records, round by round, as metrics.

    leeway.simulate(config, join, clients=10, trackers=[leeway.trackers.TensorBoard("boards/mine")])   # as it goes on
    leeway.trackers.follow("runs/mine", leeway.trackers.MLflow())         # a run of `leeway run` or leeway-server
    leeway.trackers.log(leeway.read("runs/mine"), leeway.trackers.MLflow())   # afterwards

Whatever has log(step, metrics) is a tracker: step is the number of the round in the run, metrics has the numbers of its record by
name; those of a probe are named "probe/NAME@H".
"""

from __future__ import annotations

import importlib
import os
import re
import time
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple, Union

from leeway._errors import Error
from leeway._read import Run

LEFT_OUT = {"round", "round_in_run", "round_in_phase", "phase", "opened", "h"}  # they number, and measure nothing


class Tracker(Protocol):
    """Whatever takes numbers by name and step."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one round."""


def log(run: Run, tracker: Tracker) -> None:
    """Gives a tracker every round of a run that has numbers: training, evaluations, probes."""
    for step, metrics in _numbers(run.summary):
        tracker.log(step, metrics)


def follow(directory: Union[str, os.PathLike], tracker: Tracker, seconds: float = 1.0) -> Run:
    """Gives a tracker the rounds of a run as they are committed, until the run is over; looks every `seconds`."""
    follower = Follower(os.fspath(directory), tracker)
    while True:
        follower.poll()
        if follower.run is not None and follower.run.status in ("done", "failed"):
            return follower.run
        time.sleep(seconds)


class Follower:
    """A tracker at a run that goes on. Each poll gives it the rounds that are new."""

    def __init__(self, directory: str, tracker: Tracker):
        self.run: Optional[Run] = None  # as last read
        self._directory = directory
        self._tracker = tracker
        self._done = 0  # number of the last round that was given
        self._rest_until = 0.0

    def poll(self, last: bool = False) -> None:
        begun = time.monotonic()
        if begun < self._rest_until and not last:
            return
        try:
            self.run = Run(self._directory)
        except Error:
            if last:
                raise
            return  # the run has not begun
        done = self._done
        for step, metrics in _numbers(self.run.summary):
            if step > done:
                self._tracker.log(step, metrics)
                self._done = max(self._done, step)
        # To read all of a long run again and again must not take more than a tenth of the time.
        self._rest_until = time.monotonic() + 9 * (time.monotonic() - begun)


def _numbers(summary: Mapping[str, Any]) -> List[Tuple[int, Dict[str, float]]]:
    """(number in the run, numbers by name) of all rounds that have some, in order."""
    rounds = [(row["round_in_run"], _plain(row)) for row in summary.get("rounds", [])]
    rounds += [(row["round"], _plain(row)) for row in summary.get("evaluations", [])]
    for probe in summary.get("probes", []):
        metrics = _plain(probe, "probe/")
        for step in probe["steps"]:
            metrics.update(_plain(step, "probe/", f"@{step['h']}"))
        rounds.append((probe["round"], metrics))
    return sorted(rounds, key=lambda one: one[0])


def _plain(row: Mapping[str, Any], before: str = "", after: str = "") -> Dict[str, float]:
    return {f"{before}{k}{after}": v for k, v in row.items()
            if isinstance(v, (int, float)) and not isinstance(v, bool) and k not in LEFT_OUT}


class MLflow:
    """To MLflow's active run."""

    def __init__(self) -> None:
        self._mlflow = _package("MLflow", "mlflow")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # It refuses names with other characters than these.
        self._mlflow.log_metrics({re.sub(r"[^\w./ -]", "_", name): value for name, value in metrics.items()}, step=step)


class WeightsAndBiases:
    """To a run of Weights & Biases; default: the active one."""

    def __init__(self, run: Any = None) -> None:
        self._run = run or _package("Weights & Biases", "wandb").run
        if self._run is None:
            raise Error("Weights & Biases has no active run; call wandb.init() first, or give a run")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # Its pages sort and filter by names of these characters alone; a slash makes a section.
        self._run.log({re.sub(r"[^\w/]", "_", name): value for name, value in metrics.items()}, step=step)


class TensorBoard:
    """To a directory that TensorBoard reads."""

    def __init__(self, directory: Optional[str] = None) -> None:
        self._writer = _package("TensorBoard", "torch.utils.tensorboard").SummaryWriter(directory)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


def _package(tracker: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Error(f"{tracker} needs the package {name}: install it ({error})") from None
