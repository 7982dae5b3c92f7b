"""Experiment trackers: a run's records, round by round, as metrics.

    leeway.trackers.log(leeway.read("runs/mine"), leeway.trackers.MLflow())
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Protocol

from leeway._read import Run


class Tracker(Protocol):
    """Whatever takes numbers by name and step."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one round."""


def log(run: Run, tracker: Tracker) -> None:
    """Gives a tracker every training round and every evaluation of a run."""
    for kind in ("rounds", "evaluations"):
        for row in run.summary.get(kind, []):
            tracker.log(row["round"], {k: v for k, v in row.items() if isinstance(v, (int, float)) and
                                       not isinstance(v, bool) and k not in ("round", "opened")})


class MLflow:
    """To MLflow's active run."""

    def __init__(self) -> None:
        import mlflow
        self._mlflow = mlflow

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(metrics), step=step)


class WeightsAndBiases:
    """To a run of Weights & Biases; default: the active one."""

    def __init__(self, run: Any = None) -> None:
        import wandb
        self._run = run or wandb.run

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)


class TensorBoard:
    """To a directory that TensorBoard reads."""

    def __init__(self, directory: Optional[str] = None) -> None:
        from torch.utils.tensorboard import SummaryWriter
        self._writer = SummaryWriter(directory)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
