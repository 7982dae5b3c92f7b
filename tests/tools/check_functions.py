#!/usr/bin/env python3
"""No function of the programs is longer than 60 lines, from its name to its closing brace. Run from the
top of the tree, without arguments; prints each that is. Finds functions by counting braces, which is
enough for code that clang-format has laid out."""

import os
import re
import subprocess
import sys

FOLDERS = ("proto", "common", "records", "server", "client", "engines", "dashboard", "cli")
MOST_LINES = 60

# Comments, raw strings, strings and characters, whose braces do not count.
TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
PREPROCESSOR = re.compile(r"^#(?:[^\n]*\\\n)*[^\n]*", re.M)
# What comes before a brace that opens neither a function nor anything inside of one.
OUTER = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$")


def blank(match):
    """As many lines of nothing, so that line numbers stay. A digit apart is no character."""
    return re.sub(r"[^\n]", " ", match.group())


def functions(text):
    """(line, lines, head) of every function in a C++ file."""
    text = re.sub(r"(?<=\d)'(?=\d)", " ", text)
    text = PREPROCESSOR.sub(blank, TEXT.sub(blank, text))
    depth = 0  # inside a function; 0: outside of all
    begin = 0  # where the text that may be a function's head starts
    initializers = 0  # braces of a constructor's initializers, in a head
    for place, character in enumerate(text):
        head = text[begin:place]
        if depth:
            depth += {"{": 1, "}": -1}.get(character, 0)
            if not depth:
                body = text[start:place]
                yield text.count("\n", 0, start) + 1, body.count("\n") + 1, name
                begin = place + 1
        elif initializers:
            initializers += {"{": 1, "}": -1}.get(character, 0)
        elif character == "{" and "(" in head and not OUTER.search(head):
            if re.search(r"\)\s*(noexcept)?\s*:[^:]", head) and re.search(r"[\w>]\s*$", head):
                initializers = 1
                continue
            start = begin + len(head) - len(head.lstrip())
            name = re.sub(r"\s+", " ", head.split("(")[0]).split(" ")[-1]
            depth = 1
        elif character in "{};":
            begin = place + 1


def main():
    files = subprocess.run(["git", "ls-files", "*.cc", "*.h"], check=True, capture_output=True,
                           text=True).stdout.split()
    found = []
    for path in files:
        if path.split("/")[0] in FOLDERS and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                found += [f"{path}:{line}: {name} has {lines} lines; split it into functions of at most "
                          f"{MOST_LINES}" for line, lines, name in functions(f.read()) if lines > MOST_LINES]
    print("\n".join(found) or f"no function has more than {MOST_LINES} lines")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
