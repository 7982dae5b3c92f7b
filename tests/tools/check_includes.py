#!/usr/bin/env python3
"""Every #include of one folder in another follows the arrows of CONTRIBUTING.md. Run from the top of
the tree, without arguments; prints each include that does not."""

import os
import re
import subprocess
import sys

# What each folder may include besides itself.
ARROWS = {
    "proto": set(),
    "common": {"proto"},
    "records": {"proto", "common"},
    "server": {"proto", "common", "records"},
    "dashboard": {"proto", "common", "records"},
    "client": {"proto", "common"},
    "engines": {"proto", "common", "client"},
    "cli": {"proto", "common", "records", "dashboard", "client"},
}
# A program's main file puts the parts together.
PROGRAMS = {"server/main.cc": {"dashboard"}}
# Only these files of common speak gRPC.
GRPC = {"common": {"common/wire.h", "common/wire.cc", "common/credentials.h", "common/credentials.cc"},
        "records": set()}


def problems(path, text):
    folder = path.split("/")[0]
    allowed = ARROWS[folder] | PROGRAMS.get(path, set()) | {folder}
    for number, line in enumerate(text.splitlines(), 1):
        own = re.match(r'#include "(\w+)/', line)
        if own and own.group(1) in ARROWS and own.group(1) not in allowed:
            yield f"{path}:{number}: {folder} must not include {own.group(1)}: {line}"
        if re.match(r"#include <grpc", line) and path not in GRPC.get(folder, {path}):
            yield f"{path}:{number}: {folder} is without gRPC: {line}"


def main():
    files = subprocess.run(["git", "ls-files", "*.cc", "*.h"], check=True, capture_output=True,
                           text=True).stdout.split()
    found = []
    for path in files:
        if path.split("/")[0] in ARROWS and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                found += problems(path, f.read())
    print("\n".join(found) or "every include follows the arrows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
