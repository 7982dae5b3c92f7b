"""Where Leeway's programs are."""

from __future__ import annotations

import os
import shutil

from leeway._errors import Error


def find(program: str) -> str:
    """Path of a program: in LEEWAY_BIN, beside the package, or on PATH."""
    named = os.environ.get("LEEWAY_BIN")
    if named:
        path = os.path.join(named, program)
        if not os.access(path, os.X_OK):
            raise Error(f"LEEWAY_BIN is {named}, but there is no program {path}; build it with ./run build")
        return path
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", program)
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(program)
    if found is None:
        raise Error(f"there is no program {program} on PATH; install Leeway, or set LEEWAY_BIN to the directory "
                    "of its programs (build/bin of a clone in which ./run build was run)")
    return found
