#!/usr/bin/python3
"""Rounds and bytes per second of a real server with real client processes that do not train,
beside the bare gRPC stream of the same run; the server's peak memory; and the paper's problem
with 100 training processes. Prints a markdown table; --json FILE keeps the numbers.

    bench/load.py --bin build/bin [--quick]
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time

# d = features * classes + classes, a flat float32 model.
SHAPES = {10**3: (9, 100), 10**6: (999, 1000), 10**7: (9999, 1000)}

CONFIG = """
model {{ mlp {{ classes: {classes} }} }}
durability: {durability}
phases {{ train {{ rounds: {rounds} drift_off: true local {{ step_size: 0.1 steps: 1 }} }} }}
"""

PAPER = """
seed: 1
model { linear_regression {} }
phases { train { rounds: 300 local { step_size: 0.005 steps: 10 } } }
"""


def show(binaries, out):
    text = subprocess.run([f"{binaries}/leeway", "show", out, "--json"], check=True,
                          capture_output=True, text=True).stdout
    return json.loads(text)


def wait_for(path, process):
    while not os.path.exists(path):
        if process.poll() is not None:
            raise RuntimeError(f"server ended with {process.returncode}")
        time.sleep(0.01)
    with open(path) as f:
        return f.read().strip()


def load(binaries, d, processes, rounds, durability="RELAXED", unix=False):
    """One run; returns rounds/s, bytes/s and the server's peak memory in MB."""
    features, classes = SHAPES[d]
    folder = tempfile.mkdtemp(prefix="leeway-load-")
    children = []
    try:
        with open(f"{folder}/c.textproto", "w") as f:
            f.write(CONFIG.format(classes=classes, rounds=rounds, durability=durability))
        listen = f"unix:{folder}/s" if unix else "127.0.0.1:0"
        server = subprocess.Popen(
            [f"{binaries}/leeway-server", "--config", f"{folder}/c.textproto", "--state",
             f"{folder}/run", "--clients", str(processes), "--listen", listen,
             "--address-file", f"{folder}/address"], stdout=subprocess.DEVNULL)
        address = wait_for(f"{folder}/address", server)
        for i in range(processes):
            children.append(subprocess.Popen(
                [f"{binaries}/load_client", address, f"c{i:04}", str(features)]))
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
        if server.returncode != 0:
            raise RuntimeError(f"server ended with {server.returncode}")
        records = show(binaries, f"{folder}/run")["rounds"]
        warm = records[min(2, len(records) // 3):]
        seconds = sum(r["seconds"] for r in warm)
        rate = len(warm) / seconds
        return {"d": d, "processes": processes, "durability": durability,
                "rounds_per_second": rate, "bytes_per_second": rate * processes * 8 * d,
                "server_peak_mb": usage.ru_maxrss / 1024}
    finally:
        for child in children:
            child.kill()
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)


def paper(binaries, processes):
    folder = tempfile.mkdtemp(prefix="leeway-load-")
    try:
        with open(f"{folder}/c.textproto", "w") as f:
            f.write(PAPER)
        subprocess.run([f"{binaries}/leeway", "data", "synthetic", "--out", f"{folder}/data"],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([f"{binaries}/leeway", "run", f"{folder}/c.textproto", "--data",
                        f"{folder}/data", "--out", f"{folder}/run", "--processes",
                        str(processes)], check=True, stdout=subprocess.DEVNULL)
        records = show(binaries, f"{folder}/run")["rounds"][20:]
        return len(records) / sum(r["seconds"] for r in records)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bare(binaries, megabytes):
    return float(subprocess.run([f"{binaries}/bare_stream", str(megabytes)], check=True,
                                capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; for a smoke test")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    binaries = arguments.bin
    scale = 0.1 if arguments.quick else 1
    streams = [bare(binaries, int(2048 * scale)) for _ in range(3)]
    stream = sorted(streams)[1]
    results = {"bare_stream_bytes_per_second": stream, "load": []}
    print(f"bare gRPC stream, 1 MiB messages, median of 3: {stream / 1e9:.2f} GB/s\n")
    print("| d | processes | durability | rounds/s | GB/s | of the bare stream | server peak MB |")
    print("|---|---|---|---|---|---|---|")
    cases = [(10**3, 2, 3000, "RELAXED"), (10**3, 2, 1000, "FULL"), (10**3, 10, 1500, "RELAXED"),
             (10**3, 10, 1000, "FULL"), (10**6, 2, 100, "RELAXED"), (10**6, 10, 50, "RELAXED"),
             (10**6, 10, 50, "FULL"), (10**7, 2, 15, "RELAXED"), (10**7, 10, 8, "RELAXED"),
             (10**6, 100, 10, "RELAXED")]
    for d, processes, rounds, durability in cases:
        r = load(binaries, d, processes, max(5, int(rounds * scale)), durability)
        results["load"].append(r)
        print(f"| {d:.0e} | {processes} | {durability} | {r['rounds_per_second']:.1f} | "
              f"{r['bytes_per_second'] / 1e9:.2f} | {r['bytes_per_second'] / stream:.0%} | "
              f"{r['server_peak_mb']:.0f} |", flush=True)
    ten = next(r for r in results["load"] if r["d"] == 10**6 and r["processes"] == 10)
    hundred = results["load"][-1]
    growth = hundred["server_peak_mb"] / ten["server_peak_mb"] - 1
    print(f"\nserver memory from 10 to 100 reporting clients (d = 1e6): {growth:+.1%}")
    results["memory_growth_10_to_100"] = growth
    for processes in (100, 1):
        rate = paper(binaries, processes)
        results[f"paper_rounds_per_second_{processes}"] = rate
        print(f"the paper's problem, H = 10, 100 clients in {processes} process(es), "
              f"durability FULL: {rate:.0f} rounds/s", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
