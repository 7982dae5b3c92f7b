#!/usr/bin/python3
"""Writes docs/configuration.md from the comments of proto/run.proto.

docs/configuration.py            writes the page
docs/configuration.py --check    exits with 1 if the page is not what it would write
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.join(ROOT, "proto", "run.proto")
PAGE = os.path.join(ROOT, "docs", "configuration.md")

HEAD = """# Configuration

*Made from the comments of proto/run.proto by docs/configuration.py; change it there.*

A run is described by one text file: `name: value` for numbers, words and texts, `name { ... }` for
groups, `[1, 2, 5]` for lists, `#` for comments. Fields that are left out have the default named
below. `leeway init --data DIR --out my.textproto` writes a commented file to start from, and
`leeway run --check my.textproto` checks one, with line and column of what is wrong.

"""


def parse(text):
    """[(kind, name, comment, [(field, type, comment)])] of messages and enums, in order."""
    things, stack, comment = [], [], []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        opened = re.match(r"(message|enum) (\w+) \{", line)
        field = re.match(r"(repeated )?([\w.]+) (\w+) = (\d+);", line)
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
            stack[-1][3].append((field[3], ("list of " if field[1] else "") + field[2], " ".join(comment)))
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


def main():
    with open(SOURCE) as f:
        text = page(parse(f.read()))
    if sys.argv[1:] == ["--check"]:
        with open(PAGE) as f:
            if f.read() != text:
                sys.exit("docs/configuration.md is stale; run docs/configuration.py")
        return
    with open(PAGE, "w") as f:
        f.write(text)


if __name__ == "__main__":
    main()
