"""How far a run is, in one line of a terminal or a notebook."""

from __future__ import annotations

import sqlite3
import sys
from typing import Any, Dict, List, Optional, Tuple

from leeway._errors import Error
from leeway._read import read

WIDTH = 24


class ProgressBar:
    """Reads the database of a run that goes on, and writes over its last line."""

    def __init__(self, directory: str):
        self._directory = directory
        self._phases: List[Dict[str, Any]] = []
        self._shown = ""

    def show(self) -> None:
        row = self._last_round()
        if row is None:
            return
        if not self._phases:
            try:
                self._phases = read(self._directory).summary["config"]["phases"]
            except (Error, TypeError):
                return  # not begun, or just now
        text = line(self._phases, *row)
        if text != self._shown:
            sys.stdout.write("\r" + text.ljust(len(self._shown)))
            sys.stdout.flush()
        self._shown = text

    def _last_round(self) -> Optional[Tuple[int, int, int, Optional[float]]]:
        """Number of the last round, its phase, training rounds of that phase, and its loss."""
        try:
            with sqlite3.connect(f"file:{self._directory}/run.db?mode=ro", uri=True) as db:
                row = db.execute("SELECT round, phase, loss FROM rounds ORDER BY round DESC LIMIT 1").fetchone()
                if row is None:
                    return None
                trained = db.execute("SELECT count(*) FROM rounds WHERE phase = ? AND kind = 'TRAIN_ROUND'",
                                     (row[1],)).fetchone()[0]
        except sqlite3.Error:
            return None
        return row[0], row[1], trained, row[2]


def line(phases: List[Dict[str, Any]], round_: int, phase: int, trained: int, loss: Optional[float]) -> str:
    """Such as `phase 2 of 3, train [######      ] 8/16, round 12, loss 0.53`."""
    kind, settings = next(iter(phases[phase].items()))
    parts = [f"phase {phase + 1} of {len(phases)}, {kind}"]
    total = settings.get("rounds", 0) if kind == "train" else 0
    if total:
        done = WIDTH * trained // total
        parts[0] += f" [{'#' * done}{' ' * (WIDTH - done)}] {trained}/{total}"
    parts.append(f"round {round_}")
    if loss is not None:
        parts.append(f"loss {loss:.6g}")
    return ", ".join(parts)
