#!/usr/bin/python3
"""Writes docs/configuration.md, and the same as Python classes in python/leeway/config.py, from proto/run.proto.

docs/configuration.py            writes both
docs/configuration.py --check    exits with 1 if one of them is not what it would write
"""

import os
import re
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.join(ROOT, "proto", "run.proto")
PAGE = os.path.join(ROOT, "docs", "configuration.md")
MODULE = os.path.join(ROOT, "python", "leeway", "config.py")

HEAD = """# Configuration

*Made from the comments of proto/run.proto by docs/configuration.py; change it there.*

A run is described by one text file: `name: value` for numbers, words and texts, `name { ... }` for
groups, `[1, 2, 5]` for lists, `#` for comments. Fields that are left out have the default named
below. `leeway init --data DIR --out my.textproto` writes a commented file to start from, and
`leeway run --check my.textproto` checks one, with line and column of what is wrong.

"""


MODULE_HEAD = '''"""A run's config as Python objects; str() of one is the text that `leeway run` reads.

    Config(seed=1, model=LinearRegression(), phases=[Train(rounds=30, local=LocalRule(step_size=0.1, steps=10))])

Made from proto/run.proto by docs/configuration.py; change it there. docs/configuration.md explains every field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, Optional, Sequence, Union

from leeway._textproto import Message
'''


def parse(text):
    """[(kind, name, comment, [(field, type, comment)])] of messages and enums, in order."""
    things, stack, comment = [], [], []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        opened = re.match(r"(message|enum) (\w+) \{", line)
        field = re.match(r"(repeated |optional )?([\w.]+) (\w+) = (\d+);", line)
        value = re.match(r"(\w+) = (\d+);", line)
        if opened:
            outer = "".join(t[1] + "." for t in stack if t[0] != "oneof")
            things.append((opened[1], outer + opened[2], " ".join(comment), []))
            if not line.endswith("}"):
                stack.append(things[-1])
        elif line.startswith("oneof"):
            stack.append(("oneof", "", "", stack[-1][3]))
        elif line == "}" and stack:
            stack.pop()
        elif field and stack:
            stack[-1][3].append((field[3], ("list of " if field[1] == "repeated " else "") + field[2], " ".join(comment)))
        elif value and stack:
            stack[-1][3].append((value[1], "", " ".join(comment)))
        comment = []
    return things


def anchor(name):
    return name.lower().replace(".", "")


def reached(things):
    """What a RunConfig is made of, RunConfig first."""
    by_name = {t[1]: t for t in things}
    order, queue = [], ["RunConfig"]
    while queue:
        name = queue.pop(0)
        if name in order:
            continue
        order.append(name)
        queue += [n for n in (resolve(by_name, name, f[1]) for f in by_name[name][3]) if n]
    return [by_name[n] for n in order]


def resolve(by_name, inside, kind):
    """The message or enum that a field's type names."""
    kind = kind.replace("list of ", "")
    for name in (f"{inside}.{kind}", kind):
        if name in by_name:
            return name
    return None


NUMBERS = {"double": "number", "uint32": "whole number", "uint64": "whole number", "string": "text",
           "bool": "true or false"}


def page(things):
    by_name = {t[1]: t for t in things}
    lines = [HEAD]
    for kind, name, comment, fields in reached(things):
        lines.append(f"## {name}\n\n{comment}\n")
        if not fields:
            continue
        lines.append("| field | type | meaning |" if kind == "message" else "| value | meaning |")
        lines.append("|---|---|---|" if kind == "message" else "|---|---|")
        for field, type_, text in fields:
            text = text.replace("|", "\\|")
            if kind == "enum":
                lines.append(f"| `{field}` | {text} |")
                continue
            target = resolve(by_name, name, type_)
            plain = type_.replace("list of ", "")
            shown = f"[{target}](#{anchor(target)})" if target else NUMBERS[plain]
            lines.append(f"| `{field}` | {'list of ' if type_ != plain else ''}{shown} | {text} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


PYTHON = {"double": "float", "uint32": "int", "uint64": "int", "string": "str", "bool": "bool"}


def module(things):
    """The messages as dataclasses, each before those that hold it."""
    by_name = {t[1]: t for t in things}
    names = [t[1] for t in reached(things) if t[0] == "message"]
    written, texts = [], []

    def write(name):
        if name in written:
            return
        _, _, comment, fields = by_name[name]
        lines, kinds = [], []
        for field, type_, _ in fields:
            plain = type_.replace("list of ", "")
            target = resolve(by_name, name, type_)
            if target and by_name[target][0] == "enum":
                python, kind = "str", repr(tuple(f[0] for f in by_name[target][3]))
            elif target:
                write(target)
                python, kind = alternatives(by_name, target), class_name(target)
            else:
                python, kind = PYTHON[plain], repr(plain)
            hint = f"Sequence[{python}] = ()" if plain != type_ else f"Optional[{python}] = None"
            lines.append(f"    {field}: {hint}")
            kinds.append(f"        {field!r}: {kind},".replace("'", '"'))
        written.append(name)
        about = textwrap.fill(f'"""{comment}"""', 115, initial_indent="    ", subsequent_indent="    ")
        texts.append("\n".join(["", "", "@dataclass", f"class {class_name(name)}(Message):", about, "",
                                "    KINDS: ClassVar[Dict[str, Any]] = {", *kinds, "    }", "", *lines]))

    for name in names:
        write(name)
    return MODULE_HEAD + "\n".join(texts) + "\n\n\nConfig = RunConfig\n"


def alternatives(by_name, name):
    """A message, or whatever it may be made of, where it is a choice and nothing else: a Phase, a Model."""
    inner = [resolve(by_name, name, f[1]) for f in by_name[name][3]]
    if name not in ("Phase", "Model"):
        return class_name(name)
    return "Union[" + ", ".join([name, *(class_name(i) for i in inner if i and i != "ModelContents")]) + "]"


def class_name(name):
    return name.replace(".", "")


def main():
    with open(SOURCE) as f:
        things = parse(f.read())
    for path, text in ((PAGE, page(things)), (MODULE, module(things))):
        if sys.argv[1:] != ["--check"]:
            with open(path, "w") as f:
                f.write(text)
            continue
        with open(path) as f:
            if f.read() != text:
                sys.exit(f"{os.path.relpath(path, ROOT)} is stale; run docs/configuration.py")


if __name__ == "__main__":
    main()
