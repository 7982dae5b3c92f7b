#!/usr/bin/python3
"""`./run paper`: every figure and table of the paper that needs no image or text data.

Runs each experiment with the real server and client processes, compares with what the paper
claims, and writes one self-contained page. Ends with 1 if an experiment cannot be run; a
disagreement with the paper is a result, shown on the page and in the summary.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

from paper_drift import conflict, figure1c, regimes, sampled_probe, sampling, slopes
from paper_lab import Failed, Lab
from paper_page import page
from paper_theory import corollary2, table1, theorem1, theorem2

EXPERIMENTS = (figure1c, regimes, slopes, conflict, theorem1, theorem2, corollary2, table1, sampling,
               sampled_probe)

MEMORY = "/dev/shm"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", required=True, help="folder of leeway, leeway-server, leeway-client")
    parser.add_argument("--out", required=True, help="folder for index.html; made anew")
    parser.add_argument("--only", nargs="*", default=[], choices=[e.__name__ for e in EXPERIMENTS])
    parser.add_argument("--quick", action="store_true", help="fewer seeds and sizes, for tests")
    parser.add_argument("--keep", action="store_true", help="keep the data and runs")
    options = parser.parse_args()
    work = work_folder(options)
    try:
        return run_all(options, Lab(os.path.abspath(options.bin), work))
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)


def work_folder(options):
    """Where data and runs go: many small files, so in memory if there is room."""
    os.makedirs(options.out, exist_ok=True)
    if options.keep:
        work = os.path.abspath(os.path.join(options.out, "work"))
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        return work
    roomy = os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > 2 ** 30
    return tempfile.mkdtemp(prefix="leeway-paper-", dir=MEMORY if roomy else os.path.abspath(options.out))


def run_all(options, lab):
    sections, failed, began = [], [], time.monotonic()
    for experiment in EXPERIMENTS:
        if options.only and experiment.__name__ not in options.only:
            continue
        print(f"{experiment.__name__} ...", flush=True)
        start = time.monotonic()
        try:
            section = experiment(lab, options.quick)
        except (Failed, KeyError, IndexError, ValueError) as error:
            failed.append(experiment.__name__)
            print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
            continue
        section.seconds = time.monotonic() - start
        sections.append(section)
        for what, measured, agrees in section.checks:
            shown = measured if isinstance(measured, str) else f"{measured:.4g}"
            print(f"  {'agrees   ' if agrees else 'DISAGREES'} {what}: {shown}")
        print(f"  {section.seconds:.1f} s", flush=True)
    checks = [c for s in sections for c in s.checks]
    summary = (f"{sum(c[2] for c in checks)} of {len(checks)} checks agree, {lab.runs} runs, "
               f"{time.monotonic() - began:.0f} s")
    if failed:
        summary += "; not run: " + ", ".join(failed)
    path = os.path.join(options.out, "index.html")
    with open(path, "w") as f:
        f.write(page(sections, summary))
    with open(os.path.join(options.out, "checks.md"), "w") as f:
        f.write(checks_table(sections))
    print(f"{summary}\n{path}")
    return 1 if failed else 0


def checks_table(sections):
    """The first table of docs/paper.md."""
    lines = ["| result | check | measured |", "|---|---|---|"]
    for section in sections:
        for i, (what, measured, _) in enumerate(section.checks):
            shown = measured if isinstance(measured, str) else f"{measured:.4g}"
            lines.append(f"| {section.title if i == 0 else ''} | {what} | {shown} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
