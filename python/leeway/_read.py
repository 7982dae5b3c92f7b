"""leeway.read: a run's records as Python objects."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, List, Optional, Union

import numpy as np

from leeway import _programs
from leeway._errors import Error
from leeway._tensors import load


def read(run: Union[str, os.PathLike]) -> "Run":
    """A run by its directory: the --out of `leeway run`, the --state of a server, or of leeway.simulate."""
    return Run(os.fspath(run))


class Run:
    """A run, finished or under way: what `leeway show --json` says, as tables."""

    def __init__(self, directory: str):
        self.directory = directory
        self.summary: Dict[str, Any] = _ask("show", directory)
        self.status: str = self.summary["status"]

    def rounds(self) -> Any:
        """Training rounds: a pandas table with one row each."""
        return _table(self.summary.get("rounds", []), index="round")

    def drift(self) -> Any:
        """Probes: one row for each point and number of local steps."""
        rows = []
        for probe in self.summary.get("probes", []):
            shared = {k: v for k, v in probe.items() if not isinstance(v, (list, dict))}
            rows += [{**shared, **step} for step in probe["steps"]]
        return _table(rows)

    def evaluations(self) -> Any:
        """Evaluations: one row each."""
        return _table(self.summary.get("evaluations", []))

    def verdict(self) -> "Verdict":
        """Does heterogeneity hurt, and up to how many local steps?"""
        return Verdict(_ask("drift", self.directory))

    def model(self, name: str = "final") -> Dict[str, np.ndarray]:
        """A model of the run by tensor name: 'final', 'initial' or 'optimum'."""
        path = os.path.join(self.directory, "models", f"{name}.safetensors")
        if not os.path.exists(path):
            raise Error(f"the run has no model '{name}': there is no {path}")
        return load(path)

    def load_into(self, model: Any, name: str = "final") -> Any:
        """Puts a model of the run into a torch Module."""
        from leeway.torch import load_into
        return load_into(model, self.model(name))

    def __repr__(self) -> str:
        return f"<leeway.Run {self.directory}: {self.status}, {len(self.summary.get('rounds', []))} training rounds>"


class Verdict:
    """What `leeway drift` says: `verdict`, `sentence`, `evidence` by number of local steps."""

    def __init__(self, answer: Dict[str, Any]):
        self.verdict: str = answer["verdict"]
        self.sentence: str = answer["sentence"]
        self.largest_harmless_h: Optional[int] = answer.get("largest_harmless_h")
        self.warnings: List[str] = answer.get("warnings", [])
        self._evidence = answer.get("evidence", [])

    @property
    def evidence(self) -> Any:
        """A pandas table with one row for each number of local steps."""
        return _table(self._evidence, index="h")

    def __str__(self) -> str:
        return self.sentence


def _ask(command: str, directory: str) -> Dict[str, Any]:
    done = subprocess.run([_programs.find("leeway"), command, directory, "--json"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Error(done.stderr.strip() or f"leeway {command} {directory} failed")
    return json.loads(done.stdout)


def _table(rows: List[Dict[str, Any]], index: Optional[str] = None) -> Any:
    try:
        import pandas
    except ImportError:
        raise Error("tables need pandas: install it, or read run.summary, which is plain Python") from None
    table = pandas.DataFrame([{k: v for k, v in row.items() if not isinstance(v, (list, dict))} for row in rows])
    return table.set_index(index) if index and len(table) else table
