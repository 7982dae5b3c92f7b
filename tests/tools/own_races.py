#!/usr/bin/python3
"""Reads ThreadSanitizer's reports and keeps those that are ours.

Debian's gRPC, protobuf and Abseil are not built with the sanitizer, which therefore does not see
their locks and reports what these order. A report is ours if the innermost frame of both accesses,
the standard library's aside, is in Leeway's own source.

    own_races.py LOG...     prints our reports; exit code 1 if there are any
"""

import re
import sys

FRAME = re.compile(r"^\s+#\d+ (.*)$")
STANDARD = re.compile(r"/usr/include/c\+\+/|libsanitizer|libstdc\+\+|libtsan|\blibc\.so")
OWN = re.compile(r"(^|[ /])(server|client|common|cli|dashboard|tests|bench)/[\w/]+\.(cc|h):\d+")


def innermost(stack):
    for frame in stack:
        if not STANDARD.search(frame):
            return frame
    return ""


def ours(report):
    """True if both accesses (or, where there is no second, the only one) are ours."""
    stacks, current = [], []
    for line in report.splitlines()[1:]:
        frame = FRAME.match(line)
        if frame:
            current.append(frame.group(1))
        elif line.strip():
            current = []
            stacks.append(current)
    # A data race has two stacks before any that says where memory or threads are from.
    wanted = 2 if "data race" in report.splitlines()[0] else 1
    return all(OWN.search(innermost(stack)) for stack in stacks[:wanted])


def main():
    found, total = 0, 0
    for name in sys.argv[1:]:
        with open(name, errors="replace") as f:
            parts = re.split(r"^={18}$", f.read(), flags=re.M)
        for report in parts:
            if "WARNING: ThreadSanitizer" not in report:
                continue
            total += 1
            report = report[report.index("WARNING"):]
            if ours(report):
                found += 1
                print(report)
    print(f"{found} of {total} reports are in our own code")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
