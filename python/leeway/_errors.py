"""What goes wrong, as sentences."""

from __future__ import annotations

import os
import traceback


class Error(RuntimeError):
    """Something that the user can put right; the message says how."""


def one_line(error: BaseException) -> str:
    """An exception in one line, with the place in the user's code that it came from."""
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, Error):
        return text
    own = os.path.dirname(os.path.abspath(__file__))
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if os.path.dirname(os.path.abspath(f.filename)) != own]
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"
