#!/usr/bin/python3
"""Hostile load against a real server that trains meanwhile: its memory, and what it costs the
honest. Prints one line per figure."""

import argparse
import os
import socket
import sqlite3
import statistics
import subprocess
import tempfile
import time

CONFIG = """
seed: 1
model { linear_regression { intercept: false } }
durability: RELAXED
phases { train { rounds: ROUNDS drift_off: true local { step_size: 0.001 steps: 5 } } }
"""


def rss(pid, key="VmRSS"):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
    return 0


class Run:
    def __init__(self, arguments, folder, name, rounds, processes=4):
        self.state = os.path.join(folder, name)
        config = os.path.join(folder, name + ".textproto")
        with open(config, "w") as f:
            f.write(CONFIG.replace("ROUNDS", str(rounds)))
        data = os.path.join(folder, "data")
        if not os.path.exists(data):
            subprocess.run([f"{arguments.bin}/leeway", "data", "synthetic", "--out", data,
                            "--clients", "8", "--samples", "50", "--dimension", "30"], check=True,
                           stdout=subprocess.DEVNULL)
        address = os.path.join(folder, name + ".address")
        self.server = subprocess.Popen(
            [f"{arguments.bin}/leeway-server", "--config", config, "--state", self.state,
             "--clients", "8", "--listen", "127.0.0.1:0", "--address-file", address],
            stdout=subprocess.DEVNULL)
        while not os.path.exists(address):
            time.sleep(0.01)
        with open(address) as f:
            self.address = f.read().strip()
        names = sorted(n for n in os.listdir(data) if n.startswith("client_"))
        self.clients = [
            subprocess.Popen([f"{arguments.bin}/leeway-client", "--server", self.address,
                              *[os.path.join(data, n) for n in names[i::processes]]],
                             stderr=subprocess.DEVNULL) for i in range(processes)]

    def wait(self):
        code = self.server.wait(600)
        for client in self.clients:
            client.wait(60)
        assert code == 0, code
        with sqlite3.connect(os.path.join(self.state, "run.db")) as db:
            return [r[0] for r in db.execute("SELECT seconds FROM rounds ORDER BY round")]

    def kill(self):
        for process in [self.server, *self.clients]:
            process.kill()
            process.wait()


def uploads(arguments, folder):
    run = Run(arguments, folder, "uploads", 1_000_000)
    time.sleep(2)
    before = rss(run.server.pid)
    hostile = subprocess.Popen([f"{arguments.bin}/hostile_client", run.address,
                                str(arguments.connections), str(arguments.mebibytes)],
                               stdout=subprocess.PIPE, text=True)
    hostile_output = hostile.communicate(timeout=900)[0].replace("\n", "; ")
    peak = rss(run.server.pid, "VmHWM")
    with sqlite3.connect(f"file:{run.state}/run.db?mode=ro", uri=True) as db:
        first = db.execute("SELECT max(round) FROM rounds").fetchone()[0]
        time.sleep(1)
        second = db.execute("SELECT max(round) FROM rounds").fetchone()[0]
    run.kill()
    print(f"{arguments.connections} connections sending {arguments.mebibytes} MiB each: "
          f"{hostile_output}RSS {before:.0f} MB before, peak {peak:.0f} MB; honest rounds in the "
          f"second after: {second - first}")


def idle(arguments, folder):
    medians = {"without": [], "with": []}
    for repeat in range(arguments.repeats):
        for kind in medians:
            run = Run(arguments, folder, f"idle-{kind}-{repeat}", 400)
            sockets = []
            if kind == "with":
                host, port = run.address.rsplit(":", 1)
                sockets = [socket.create_connection((host, int(port)))
                           for _ in range(arguments.sockets)]
            seconds = run.wait()
            medians[kind].append(statistics.median(seconds[50:]))
            for s in sockets:
                s.close()
    without, with_sockets = (statistics.median(medians[k]) for k in ("without", "with"))
    print(f"{arguments.sockets} idle sockets: round {1e3 * without:.3f} ms without, "
          f"{1e3 * with_sockets:.3f} ms with ({100 * (with_sockets / without - 1):+.1f} %)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--sockets", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["uploads", "idle"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leeway-hostile-") as folder:
        if arguments.only != "idle":
            uploads(arguments, folder)
        if arguments.only != "uploads":
            idle(arguments, folder)


if __name__ == "__main__":
    main()
