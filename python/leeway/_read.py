"""leeway.read: a run's records as Python objects."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from typing import Any, Dict, List, Optional, Union

import numpy as np

from leeway import _programs
from leeway._errors import Error
from leeway._tensors import load, save


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
        """Training rounds: a pandas table with one row each. `update_diversity` is sum p_c |u_c|^2 / |mean u|^2 of the
        clients' displacements u_c, where it is known: 1 if all clients moved alike."""
        return _table([{**row, **_diversity(row)} for row in self.summary.get("rounds", [])], index="round")

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

    def releases(self) -> Any:
        """Release tests: one row for each and number of local steps."""
        return _table(self.summary.get("releases", []), index="h")

    def who_pays(self) -> Any:
        """Who pays for local steps: one row for each number of them. Columns loss_10 ... loss_90 are percentiles over clients
        of the loss with local steps less that without, accuracy_10 ... accuracy_90 the same of the accuracy."""
        rows = []
        for one in self.summary.get("who_pays", []):
            row = {k: v for k, v in one.items() if not isinstance(v, list)}
            for name in ("loss", "accuracy"):
                for i, value in enumerate(one.get(f"{name}_deciles", [])):
                    row[f"{name}_{10 * (i + 1)}"] = value
            rows.append(row)
        return _table(rows, index="h")

    def clients(self) -> Any:
        """Clients: one row each, with the numbers of their examples."""
        return _table(self.summary.get("clients", []), index="id")

    def verdict(self) -> "Verdict":
        """Does heterogeneity hurt, and up to how many local steps?"""
        return Verdict(_ask("drift", self.directory))

    def model(self, name: str = "final") -> Dict[str, np.ndarray]:
        """A model of the run by tensor name: 'final', 'initial' or 'optimum'."""
        return load(self._path(name))

    def _path(self, name: str) -> str:
        path = os.path.join(self.directory, "models", f"{name}.safetensors")
        if not os.path.exists(path):
            raise Error(f"the run has no model '{name}': there is no {path}")
        return path

    def save_model(self, path: Union[str, os.PathLike], name: str = "final") -> None:
        """Writes a model of the run to a file of its own, with where it comes from in the file's metadata: run_id, round
        (of a model that training ended with), config_sha256 and model_sha256. docs/models.md says why the run's own
        files do not have it."""
        model = self.model(name)
        sha256 = self.summary["models"][name]["sha256"]
        config = json.dumps(self.summary["config"], sort_keys=True, separators=(",", ":"))
        metadata = {"run_id": str(self.summary["run_id"]), "model": name, "model_sha256": sha256,
                    "config_sha256": hashlib.sha256(config.encode()).hexdigest()}
        rounds = [row["round_in_run"] for row in self.summary["rounds"] if row["model_sha256"] == sha256]
        if rounds or name == "initial":
            metadata["round"] = str(0 if name == "initial" else rounds[-1])
        save(model, path, metadata)

    def load_into(self, model: Any, name: str = "final") -> Any:
        """Puts a model of the run into a torch Module."""
        from leeway.torch import load_into
        return load_into(model, self.model(name))

    def __repr__(self) -> str:
        return f"<leeway.Run {self.directory}: {self.status}, {len(self.summary.get('rounds', []))} training rounds>"


class Verdict:
    """What `leeway drift` says: `verdict`, `sentence`, and what it rests on by number of local steps: `evidence` of fixed
    points and probes, and `releases`, of release tests. Beside it: `who_pays`, a sentence (None if that was not counted),
    and `trained`, how far each training has come."""

    def __init__(self, answer: Dict[str, Any]):
        self.verdict: str = answer["verdict"]
        self.sentence: str = answer["sentence"]
        self.largest_harmless_h: Optional[int] = answer.get("largest_harmless_h")
        self.who_pays: Optional[str] = answer.get("who_pays")
        self.trained: List[Dict[str, Any]] = answer.get("trained", [])
        self.warnings: List[str] = answer.get("warnings", [])
        self._evidence = answer.get("evidence", [])
        self._releases = answer.get("releases", [])

    @property
    def evidence(self) -> Any:
        """A pandas table with one row for each number of local steps."""
        return _table(self._evidence, index="h")

    @property
    def releases(self) -> Any:
        """A pandas table with one row for each release test and number of local steps."""
        return _table(self._releases, index="h")

    def __str__(self) -> str:
        return self.sentence


def _diversity(row: Dict[str, Any]) -> Dict[str, float]:
    """From the mean cosine between two of S clients: S / (1 + (S - 1) cosine)."""
    cosine, clients = row.get("pairwise_cosine"), row.get("reports", 0)
    if cosine is None or 1 + (clients - 1) * cosine <= 0:
        return {}
    return {"update_diversity": clients / (1 + (clients - 1) * cosine)}


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
