#!/usr/bin/python3
"""Leeway's speed and memory beside the machine's limits, all taken in one run: prints one table,
writes it as JSON, and compares it with the table recorded in docs/performance.md.

    bench/table.py --bin build/bin [--quick] [--only WORD] [--json FILE]
"""

import argparse
import json
import os
import subprocess
import sys

import load

RECORDED = os.path.join(os.path.dirname(__file__), "..", "docs", "performance.md")
COLUMNS = ["case", "measured", "limit in the same run", "ratio", "server peak MB", "goal"]


class Table:
    """Rows are printed as they come, and kept."""

    def __init__(self):
        self.rows = []
        self.recorded = {}
        with open(RECORDED) as f:
            for line in f:
                cells = [c.strip() for c in line.strip().strip("|").split("|")]
                if len(cells) == len(COLUMNS):
                    self.recorded[cells[0]] = cells
        print("| " + " | ".join(COLUMNS) + " |")
        print("|" + "---|" * len(COLUMNS), flush=True)

    def add(self, case, value, unit, limit=None, limit_unit="", ratio=None, memory=None, goal=""):
        row = {"case": case, "value": value, "unit": unit, "limit": limit, "limit_unit": limit_unit,
               "ratio": ratio, "server_peak_mb": memory, "goal": goal}
        self.rows.append(row)
        cells = [case, f"{short(value)} {unit}", f"{short(limit)} {limit_unit}" if limit else "",
                 f"{ratio:.0%}" if ratio else "", f"{memory:.0f}" if memory else "", goal]
        print("| " + " | ".join(cells) + " |", flush=True)

    def compare(self):
        """Each row beside the recorded one: by its ratio where it has one, which holds on another
        machine, too."""
        print("\nAgainst the table in docs/performance.md (ratios where there are any):")
        for row in self.rows:
            before = self.recorded.get(row["case"])
            if before is None:
                print(f"  {row['case']}: not recorded")
                continue
            now, then = row["value"], number(before[1])
            if row["ratio"] and before[3]:
                now, then = row["ratio"], number(before[3]) / 100
            row["change"] = now / then - 1
            print(f"  {row['case']}: {row['change']:+.0%}"
                  + ("   <-- slower" if row["change"] < -0.2 else ""))


def power(n):
    """10^6, 2.5*10^7"""
    exponent = len(str(n)) - 1
    factor = n / 10**exponent
    return f"10^{exponent}" if factor == 1 else f"{factor:g}*10^{exponent}"


def short(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def number(text):
    return float(text.split()[0].replace(",", "").rstrip("%"))


def median(repeats, measure, key):
    """The run with the median of `key`."""
    return sorted((measure() for _ in range(repeats)), key=lambda r: r[key])[repeats // 2]


def google(binaries, program, *flags):
    """The results of a Google Benchmark program, by name."""
    text = subprocess.run([f"{binaries}/{program}", "--benchmark_format=json", *flags], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {r["name"]: r for r in json.loads(text)["benchmarks"]}


def wire(table, binaries, repeats, scale):
    # A limit is what the machine does at its best: other work may only slow it down.
    stream = {}
    for unix in (False, True):
        stream[unix] = max(load.bare(binaries, int(2048 * scale), unix)
                           for _ in range(2 * repeats))
        table.add(f"bare gRPC stream, 1 MiB messages{', unix socket' if unix else ''}",
                  stream[unix] / 1e9, "GB/s")
    # By TCP where nothing else is said; programs that `leeway run` starts use a unix socket.
    cases = []
    for d, processes, rounds, goal in (
            (10**3, 2, 3000, "2,000"), (10**3, 10, 1500, "800"), (10**3, 50, 400, "150"),
            (10**6, 2, 60, ""), (10**6, 10, 60, "20, 60 %, 120 MB"),
            (10**7, 2, 12, ""), (10**7, 10, 12, "2, 60 %, 400 MB"),
            (25 * 10**6, 10, 9, "0.8, 60 %, 800 MB")):
        cases += [(d, processes, rounds, "RELAXED", True, goal),
                  (d, processes, rounds, "RELAXED", False, goal)]
        if d <= 10**6:
            cases.append((d, processes, rounds, "FULL", True, ""))
    cases.append((10**6, 100, 8, "RELAXED", False, "memory as with 10"))
    for d, processes, rounds, durability, unix, goal in cases:
        r = median(repeats, lambda: load.load(binaries, d, processes, max(5, int(rounds * scale)),
                                              durability, unix), "rounds_per_second")
        big = d >= 10**6
        table.add(f"d = {power(d)}, {processes} processes{', unix socket' if unix else ''}, "
                  + durability, r["rounds_per_second"], "rounds/s",
                  stream[unix] / 1e9 if big else None, "GB/s",
                  r["bytes_per_second"] / stream[unix] if big else None, r["server_peak_mb"], goal)


def large(table, binaries, repeats, scale):
    """A model of 2.5 GB: 17 GB of memory, so only when asked for."""
    r = load.load(binaries, 625 * 10**6, 2, 3)
    table.add("d = 6.25*10^8 (2.5 GB, unchanged), 2 processes, RELAXED", r["rounds_per_second"],
              "rounds/s",
              memory=r["server_peak_mb"])


def paper(table, binaries, repeats, scale):
    def rounds(n):
        return max(30, int(n * scale))
    for processes, n, durability, goal in ((100, 300, "RELAXED", "70"), (100, 300, "FULL", "70"),
                                           (1, 3000, "FULL", "1,500"),
                                           (1, 3000, "RELAXED", "1,500")):
        r = median(repeats, lambda: load.paper(binaries, 100, processes, rounds(n),
                                               durability=durability), "rounds_per_second")
        table.add(f"paper's problem, H = 10, 100 clients in {processes} "
                  f"process{'es' if processes > 1 else ''}, {durability}", r["rounds_per_second"],
                  "rounds/s", memory=r["server_peak_mb"], goal=goal)
    each = 100 * r["rounds_per_second"]
    for clients, keep_mb, goal in ((10**5, 4096, "as with 100"), (10**6, 0, "")):
        r = load.paper(binaries, clients, 2, rounds(800), sample=1000, durability="RELAXED",
                       keep_mb=keep_mb)
        table.add(f"{power(clients)} clients on the fly, 1,000 a round, "
                  + ("kept" if keep_mb else "made anew"), 1000 * r["rounds_per_second"],
                  "clients/s", each, "clients/s", 1000 * r["rounds_per_second"] / each,
                  r["server_peak_mb"], goal)


def by_hand(table, binaries, repeats, scale):
    """Beside what one would write by hand in NumPy or PyTorch (alternatives.py), in turn."""
    def compare(case, unit, leeway, kind, flags=(), other="NumPy"):
        ours, theirs = [], []
        for _ in range(repeats):
            theirs.append(load.alternative(kind, *flags))
            if theirs[-1] is None:
                print(f"{case}: {other} is not installed", flush=True)
                return None, None
            ours.append(leeway())
        ours = sorted(ours, key=lambda r: r["rate"])[repeats // 2]
        theirs = sorted(theirs, key=lambda r: r["rate"])[repeats // 2]
        table.add(case, ours["rate"], unit, theirs["rate"], f"{unit}, {other}",
                  ours["rate"] / theirs["rate"], goal="150 %")
        return ours, theirs

    def paper_rate(clients, processes, rounds, factor=1, **options):
        r = load.paper(binaries, clients, processes, max(30, int(rounds * scale)),
                       durability="RELAXED", **options)
        return {"rate": factor * r["rounds_per_second"], **r}

    compare("by hand: paper's problem, 100 clients, loss and drift", "rounds/s",
            lambda: paper_rate(100, 1, 3000), "paper", other="batched NumPy")
    compare("by hand: 1,000 clients a round, generated", "clients/s",
            lambda: paper_rate(10**5, 2, 100, 1000, sample=1000, keep_mb=0), "generated",
            other="batched NumPy, 2 processes")
    ours, theirs = compare("by hand: 1,000 of 10^5 clients a round, kept", "clients/s",
                           lambda: paper_rate(10**5, 2, 800, 1000, sample=1000, keep_mb=4096),
                           "kept", other="batched NumPy, 2 processes")
    if ours:
        table.add("by hand: memory of 10^5 kept clients", ours["clients_peak_mb"], "MB",
                  theirs["bytes"] / 1e6, "MB, NumPy arrays",
                  theirs["bytes"] / 1e6 / ours["clients_peak_mb"])
    for kind, name in (("cnn", "CNN, cohort 10, batch 20"), ("lstm", "LSTM, cohort 10, batch 16")):
        for with_loss in (True, False):
            compare(f"by hand: {name}, {'with' if with_loss else 'without'} the loss before training",
                    "rounds/s",
                    lambda: {"rate": load.network(binaries, kind, max(2, int(4 * scale)), with_loss)},
                    kind, () if with_loss else ("--loss-off",), "PyTorch, 2 processes")


def folding(table, binaries, repeats, scale):
    results = google(binaries, "fold_bench", f"--benchmark_repetitions={max(repeats, 3)}",
                     "--benchmark_report_aggregates_only=true")
    for d in (10**6, 10**7):
        axpy = results[f"Axpy/d:{d}/real_time_median"]["bytes_per_second"]
        for threads in (1, 2):
            for clients in (10, 1000):
                name = f"Fold/d:{d}/threads:{threads}/clients:{clients}/real_time_median"
                fold = results[name]["bytes_per_second"]
                table.add(f"folding, d = {power(d)}, {clients} clients, {threads} "
                          f"thread{'s' if threads > 1 else ''}", fold / 1e9, "GB/s of float32",
                          axpy / 1e9, "GB/s, double axpy, 1 thread", fold / axpy,
                          goal="70 %" if threads == 1 else "")


def training(table, binaries, repeats, scale):
    results = google(binaries, "networks_bench", "--benchmark_min_time=0.3", "--benchmark_filter="
                     "CnnTraining/20|NextCharacter|NextWord|SoftmaxTraining/20|SoftmaxRegression")
    for name, r in results.items():
        table.add(name.removeprefix("BM_"), r["best_flops"] / 1e9, "GFLOP/s", r["limit"] / 1e9,
                  "GFLOP/s, 512 x 512 products", r["share"],
                  goal="60 %" if "Cnn" in name else "50 %")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--quick", action="store_true", help="once, and fewer rounds")
    parser.add_argument("--only", choices=["wire", "paper", "by_hand", "folding", "training", "large"],
                        help="one part of the table; large, a model of 2.5 GB, is none of the rest")
    parser.add_argument("--json", default="out/bench.json")
    options = parser.parse_args()
    parts = {"wire": wire, "paper": paper, "by_hand": by_hand, "folding": folding, "training": training}
    if options.only == "large":
        parts = {"large": large}
    table = Table()
    for name, part in parts.items():
        if options.only in (None, name):
            part(table, options.bin, 1 if options.quick else 3, 0.1 if options.quick else 1)
    table.compare()
    os.makedirs(os.path.dirname(options.json) or ".", exist_ok=True)
    with open(options.json, "w") as f:
        json.dump(table.rows, f, indent=1)
    print(f"\n{options.json}: the table as JSON")


if __name__ == "__main__":
    sys.exit(main())
