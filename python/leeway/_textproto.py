"""Messages of a config as Python objects, which print as the text that `leeway run` reads."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any, ClassVar, Dict, Iterator, Tuple

from leeway._errors import Error


class Message:
    """Base of the dataclasses of leeway.config. A field that is None, or a list without elements, is left out."""

    # What each field holds: "double", "uint32", "uint64", "bool", "string", a tuple of an enum's values, or a class.
    KINDS: ClassVar[Dict[str, Any]] = {}

    def __str__(self) -> str:
        return "\n".join(self._lines(""))

    def _lines(self, indent: str) -> Iterator[str]:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is None:
                continue
            where = f"{type(self).__name__}.{field.name}"
            for one in value if isinstance(value, (list, tuple)) else (value,):
                kind = self.KINDS[field.name]
                if isinstance(kind, type):
                    yield f"{indent}{field.name} {{"
                    yield from _wrapped(where, one, kind)._lines(indent + "  ")
                    yield indent + "}"
                else:
                    yield f"{indent}{field.name}: {_text(where, one, kind)}"


def _wrapped(where: str, value: Any, kind: type) -> Message:
    """The value as a `kind`: where that is a choice, such as Phase, its alternatives may be given as they are."""
    if isinstance(value, kind):
        return value  # type: ignore[return-value]
    names = [name for name, own in kind.KINDS.items() if own is type(value)]  # type: ignore[attr-defined]
    if len(names) != 1:
        raise Error(f"{where} is {type(value).__name__}; expected {kind.__name__}")
    return kind(**{names[0]: value})  # type: ignore[no-any-return]


def _text(where: str, value: Any, kind: Any) -> str:
    if isinstance(kind, tuple):
        if value not in kind:
            raise Error(f"{where} is {value!r}; expected one of {', '.join(kind)}")
        return str(value)
    if kind == "string":
        if not isinstance(value, str):
            raise Error(f"{where} is {value!r}; expected a text")
        return _quoted(value)
    if kind == "bool":
        if not isinstance(value, bool):
            raise Error(f"{where} is {value!r}; expected True or False")
        return "true" if value else "false"
    whole = kind in ("uint32", "uint64")
    if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real) or whole and value < 0:
        raise Error(f"{where} is {value!r}; expected a {'whole ' if whole else ''}number")
    return str(int(value)) if whole else repr(float(value))


def _quoted(text: str) -> str:
    """In double quotes, with what is not plain ASCII as octal bytes."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in text.encode())
    return '"' + "".join(plain) + '"'


__all__: Tuple[str, ...] = ("Message",)
