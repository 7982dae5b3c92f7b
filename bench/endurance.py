#!/usr/bin/python3
"""Many clients, many processes, many rounds, and a quick restart, with real processes. Prints one
line per figure; exits 1 if a run fails."""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import numpy as np

TRAIN = """
seed: 1
model { linear_regression { intercept: false } }
durability: DURABILITY
phases { train { rounds: ROUNDS drift_off: true local { step_size: STEP steps: 2 } } }
"""


def config(folder, name, rounds, durability="FULL", step="0.001"):
    path = os.path.join(folder, name + ".textproto")
    with open(path, "w") as f:
        f.write(TRAIN.replace("ROUNDS", str(rounds)).replace("DURABILITY", durability)
                .replace("STEP", step))
    return path


def many(arguments, folder, clients, processes):
    data = os.path.join(folder, f"data{clients}")
    subprocess.run([f"{arguments.bin}/leeway", "data", "synthetic", "--out", data, "--clients",
                    str(clients), "--samples", "10", "--dimension", "10"], check=True,
                   stdout=subprocess.DEVNULL)
    out = os.path.join(folder, f"run{clients}")
    began = time.monotonic()
    subprocess.run([f"{arguments.bin}/leeway", "run", config(folder, f"c{clients}", 20), "--data",
                    data, "--out", out, "--processes", str(processes)], check=True,
                   stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    with sqlite3.connect(os.path.join(out, "run.db")) as db:
        reports = [r[0] for r in db.execute("SELECT reports FROM rounds")]
    assert reports == [clients] * 20, reports
    print(f"{clients} clients in {processes} processes, 20 rounds: {took:.1f} s")


def start(arguments, folder, name, config_file, clients, listen="127.0.0.1:0"):
    address = os.path.join(folder, name + ".address")
    if os.path.exists(address):
        os.remove(address)
    began = time.monotonic()
    server = subprocess.Popen(
        [f"{arguments.bin}/leeway-server", "--config", config_file, "--state",
         os.path.join(folder, name), "--clients", str(clients), "--listen", listen,
         "--address-file", address], stdout=subprocess.DEVNULL)
    while not os.path.exists(address):
        assert server.poll() is None
        time.sleep(0.002)
    took = time.monotonic() - began
    with open(address) as f:
        return server, f.read().strip(), took


def last_round(folder, name):
    try:
        with sqlite3.connect(f"file:{folder}/{name}/run.db?mode=ro", uri=True) as db:
            return db.execute("SELECT max(round) FROM rounds").fetchone()[0] or 0
    except sqlite3.OperationalError:
        return 0


def restart(arguments, folder):
    """kill -9 of a server with a model of a million parameters; until it serves again."""
    rng = np.random.default_rng(1)
    names = []
    for i in range(2):
        name = os.path.join(folder, f"big{i}")
        os.mkdir(name)
        np.save(name + "/train_x.npy", rng.standard_normal((2, 1_000_000)) * 1e-3)
        np.save(name + "/train_y.npy", rng.standard_normal(2))
        names.append(name)
    file = config(folder, "big", 100_000)
    server, address, _ = start(arguments, folder, "bigrun", file, 2)
    clients = [subprocess.Popen([f"{arguments.bin}/leeway-client", "--server", address, n],
                                stderr=subprocess.DEVNULL) for n in names]
    times = []
    for _ in range(5):
        reached = last_round(folder, "bigrun")
        while last_round(folder, "bigrun") < reached + 3:
            time.sleep(0.05)
        server.kill()
        server.wait()
        server, _, took = start(arguments, folder, "bigrun", file, 2, address)
        times.append(took)
    for process in [server, *clients]:
        process.kill()
        process.wait()
    print("restart to serving, 1,000,000 parameters: "
          f"{', '.join(f'{1e3 * t:.0f}' for t in times)} ms")


def soak(arguments, folder):
    data = os.path.join(folder, "soak-data")
    subprocess.run([f"{arguments.bin}/leeway", "data", "synthetic", "--out", data, "--clients",
                    "8", "--samples", "20", "--dimension", "2000"], check=True,
                   stdout=subprocess.DEVNULL)
    # 2,000 features: the largest curvature is large, the step small.
    file = config(folder, "soak", arguments.rounds, step="0.000001")
    server, address, _ = start(arguments, folder, "soak", file, 8)
    names = sorted(n for n in os.listdir(data) if n.startswith("client_"))
    clients = [subprocess.Popen([f"{arguments.bin}/leeway-client", "--server", address,
                                 *[os.path.join(data, n) for n in names[i::4]]],
                                stderr=subprocess.DEVNULL) for i in range(4)]
    seen = []
    while server.poll() is None:
        done = last_round(folder, "soak")
        try:
            with open(f"/proc/{server.pid}/status") as f:
                memory = next(int(l.split()[1]) // 1024 for l in f if l.startswith("VmRSS:"))
            files = len(os.listdir(f"/proc/{server.pid}/fd"))
            seen.append((done, memory, files))
        except (OSError, StopIteration):
            break
        time.sleep(0.02)
    assert server.wait(60) == 0
    for client in clients:
        assert client.wait(60) == 0
    marks = []
    for share in (0.1, 0.25, 0.5, 0.75, 0.99):
        marks.append(next((s for s in seen if s[0] >= share * arguments.rounds), seen[-1]))
    print(f"{arguments.rounds} rounds: " + "; ".join(
        f"round {r}: {m} MB, {f} files" for r, m, f in marks))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--only", nargs="*", default=["hosted", "processes", "restart", "soak"])
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory(prefix="leeway-endurance-") as folder:
        if "hosted" in arguments.only:
            many(arguments, folder, 1000, 20)
        if "processes" in arguments.only:
            many(arguments, folder, 300, 300)
        if "restart" in arguments.only:
            restart(arguments, folder)
        if "soak" in arguments.only:
            soak(arguments, folder)


if __name__ == "__main__":
    main()
