#!/usr/bin/python3
"""How one leeway-client with many hosted clients uses the cores: FedAvg with the CNN on random
images, the same run with 1 and with 2 threads, in turn. Prints the median time of a round, the
ratio, and how much CPU time the client and the server took of it."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

import numpy as np

CONFIG = """
seed: 1
model { cnn { classes: 62 } }
durability: RELAXED
phases { train { rounds: ROUNDS local { step_size: 0.01 epochs: 1 batch_size: 20 } drift_off: true } }
"""


def run(options, folder, clients, threads, number):
    state = os.path.join(folder, f"run{number}")
    address_file = state + ".address"
    server = subprocess.Popen(
        [os.path.join(options.bin, "leeway-server"), "--config", os.path.join(folder, "c.textproto"),
         "--state", state, "--clients", str(options.clients), "--listen", "127.0.0.1:0",
         "--address-file", address_file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(address_file) or not open(address_file).read().strip():
        if server.poll() is not None:
            raise SystemExit("hosted.py: leeway-server ended")
    client = subprocess.Popen(
        [os.path.join(options.bin, "leeway-client"), "--server", open(address_file).read().strip(),
         "--threads", str(threads), *clients])
    usage_before = os.times()
    client.wait()
    server.wait()
    usage = os.times()
    show = subprocess.run([os.path.join(options.bin, "leeway"), "show", state, "--json"], check=True,
                          stdout=subprocess.PIPE).stdout
    seconds = [r["seconds"] for r in json.loads(show)["rounds"]][1:]  # the first one maps the data
    cpu = usage.children_user + usage.children_system
    cpu -= usage_before.children_user + usage_before.children_system
    return statistics.median(seconds), cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--examples", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repetitions", type=int, default=2)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "c.textproto"), "w") as f:
            f.write(CONFIG.replace("ROUNDS", str(options.rounds)))
        clients = []
        for c in range(options.clients):
            clients.append(os.path.join(folder, "data", f"c{c:02}"))
            os.makedirs(clients[-1])
            x = rng.random((options.examples, 28, 28), dtype=np.float32)
            np.save(clients[-1] + "/train_x.npy", x)
            np.save(clients[-1] + "/train_y.npy", rng.integers(0, 62, options.examples))
        best = {}
        for number in range(2 * options.repetitions):
            threads = 1 + number % 2
            seconds, cpu = run(options, folder, clients, threads, number)
            print(f"{threads} thread{'s' if threads > 1 else ''}: {seconds:.3f} s a round, "
                  f"{cpu:.1f} s of CPU in all", flush=True)
            best[threads] = min(seconds, best.get(threads, seconds))
        print(f"2 threads are {best[1] / best[2]:.2f} times as fast as 1")


if __name__ == "__main__":
    main()
