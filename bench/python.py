#!/usr/bin/python3
"""What Python clients cost: bench/python.py --bin build/bin [--data DIR] [--rounds 5]

- a round of the FEMNIST CNN (10 clients, batch 20, 1 epoch) through Leeway, beside the same loop in plain PyTorch;
- a task of a model with 10^6 parameters, without what the user's function takes: the time between two calls of it;
- the start of a worker, besides importing torch.

What is compared is measured in turn, so that a slow minute of the machine is everybody's; of the ratios the median is printed, and
the smallest and the largest. Another program on the machine makes all of them larger: Leeway is three processes, the plain loop one.

--data: a directory of clients as `leeway data import` writes it; without it, random images of the sizes of FEMNIST's writers.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))

import numpy as np
import torch

import leeway
import leeway.torch
from leeway.torch_models import Cnn

CLIENTS, BATCH, RATE = 10, 20, 0.01
cross_entropy = torch.nn.functional.cross_entropy


def read_data(folder):
    """(images, labels) of ten clients."""
    if folder is None:
        rng = np.random.default_rng(0)
        sizes = rng.integers(80, 200, CLIENTS)
        return [(torch.rand(int(n), 28, 28), torch.randint(0, 62, (int(n),))) for n in sizes]
    names = sorted(n for n in os.listdir(folder) if os.path.exists(os.path.join(folder, n, "train_x.npy")))[:CLIENTS]
    data = []
    for name in names:
        x, y = (np.load(os.path.join(folder, name, f"train_{axis}.npy")) for axis in "xy")
        x = x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
        data.append((torch.from_numpy(x).reshape(-1, 28, 28), torch.from_numpy(y.astype(np.int64))))
    return data


def make_model():
    torch.manual_seed(0)
    return Cnn((28, 28), classes=62)


def plain_round(model, data, first_loss):
    """FedAvg by hand; returns its seconds."""
    begun = time.perf_counter()
    start = {n: t.clone() for n, t in model.state_dict().items()}
    total = {n: torch.zeros_like(t) for n, t in start.items()}
    for x, y in data:
        model.load_state_dict(start)
        if first_loss:
            with torch.no_grad():
                cross_entropy(model(x), y).item()
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        for n, t in model.state_dict().items():
            total[n] += t / len(data)
    model.load_state_dict(total)
    return time.perf_counter() - begun


def leeway_rounds(data, rounds, first_loss):
    """Seconds of each round, from one's opening to the next's, and CPU seconds of all processes for all of the run."""
    def join(server, names):
        leeway.torch.join(server, make_model(), cross_entropy, {n: data[int(n[-1])] for n in names})

    config = (f"seed: 1 phases {{ train {{ rounds: {rounds + 1} drift_off: true loss_off: {str(not first_loss).lower()} "
              f"local {{ step_size: {RATE} epochs: 1 batch_size: {BATCH} }} }} }}")
    with tempfile.TemporaryDirectory() as folder:
        before = children()
        done = leeway.simulate(config, join, clients=len(data), processes=1, model=make_model(), out=folder, progress=False)
        opened = [row["opened"] for row in done.summary["rounds"]]
        return [b - a for a, b in zip(opened, opened[1:])], children() - before


def children():
    """CPU seconds of the child processes so far."""
    times = os.times()
    return times.children_user + times.children_system


def femnist(data, rounds, repeats):
    torch.set_num_threads(1)
    model = make_model()
    plain_round(model, data, True)  # warm-up
    print(f"FEMNIST CNN, {len(data)} clients with {sum(len(y) for _, y in data)} examples, one process and one thread, a round:")
    for first_loss, what in ((False, "training alone (loss_off: true)"), (True, "with the loss before training")):
        plain, ours, cpu = [], [], []
        for _ in range(repeats):
            begun = time.process_time()
            plain.append(statistics.median(plain_round(model, data, first_loss) for _ in range(rounds)))
            plain_cpu = (time.process_time() - begun) / rounds
            _, start = leeway_rounds(data, 1, first_loss)  # two rounds, and what is not of rounds
            seconds, all_cpu = leeway_rounds(data, rounds + 1, first_loss)
            ours.append(statistics.median(seconds))
            cpu.append((all_cpu - start) / rounds / plain_cpu)
        print(f"  {what}: plain PyTorch {statistics.median(plain):.3f} s, Leeway {statistics.median(ours):.3f} s: "
              f"{spread(b / a for a, b in zip(plain, ours))} times; of CPU {spread(cpu)} times")


def spread(values):
    """Median (smallest to largest)."""
    values = sorted(values)
    return f"{statistics.median(values):.3f} ({values[0]:.3f} to {values[-1]:.3f})"


def task(tasks=20, rounds=10):
    """What lies between two calls of the user's function, in which nothing is computed: one task of 10^6 parameters."""
    constant = np.ones(10 ** 6, np.float32)
    calls = []

    def gradient(w, batch):
        calls.append([time.perf_counter()])
        calls[-1].append(time.perf_counter())
        return 1.0, constant

    def join(server, names):
        leeway.join(server, gradient=gradient, data={n: (np.ones((3, 1)),) for n in names})
        gaps = [1000 * (after[0] - before[1]) for before, after in zip(calls, calls[1:])]
        within = [gap for i, gap in enumerate(gaps, 1) if i % tasks != 0]  # not from one round to the next
        print("gaps", json.dumps(sorted(within)))

    config = f"seed: 1 phases {{ train {{ rounds: {rounds} drift_off: true local {{ step_size: 0.01 steps: 1 }} }} }}"
    with tempfile.TemporaryDirectory() as folder:
        before = children()
        leeway.simulate(config, join, clients=tasks, processes=1, model={"w": np.zeros(10 ** 6, np.float32)}, out=folder,
                        progress=False)
        cpu = children() - before
        with open(os.path.join(folder, "logs", "python_0.log")) as f:
            gaps = next(json.loads(line[5:]) for line in f if line.startswith("gaps "))
    print(f"a task of 10^6 parameters (float32): {statistics.median(gaps):.2f} ms (a tenth below {gaps[len(gaps) // 10]:.2f} ms), "
          f"{1000 * cpu / tasks / rounds:.2f} ms of CPU in all processes with their start")


def start_up(repeats):
    """From the start of the process to its hello, less a bare import of torch."""
    text = ("import leeway.torch, torch\n"
            "m = torch.nn.Linear(9, 2)\n"
            "leeway.torch.join(None, m, torch.nn.functional.cross_entropy, (torch.ones(3, 9), torch.ones(3).long()), name='a')")
    extra, bare = [], []
    for _ in range(repeats):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        bare.append(time.perf_counter() - begun)
        ours, theirs = socket.socketpair()
        begun = time.perf_counter()
        worker = subprocess.Popen([sys.executable, "-c", text], pass_fds=[theirs.fileno()],
                                  env=dict(os.environ, LEEWAY_WORKER_FD=str(theirs.fileno()), PYTHONPATH=sys.path[0]))
        theirs.close()
        ours.sendall(json.dumps({"type": "hello", "oldest": 1, "newest": 1, "program": "bench"}).encode() + b"\n")
        with ours.makefile("rb") as lines:
            assert json.loads(lines.readline())["type"] == "hello"
        extra.append(time.perf_counter() - begun - bare[-1])
        ours.close()
        worker.wait()
    print(f"a worker's start: {spread(extra)} s besides importing torch, which takes {statistics.median(bare):.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each")
    options = parser.parse_args()
    os.environ["LEEWAY_BIN"] = options.bin
    start_up(options.repeats)
    task()
    femnist(read_data(options.data), options.rounds, options.repeats)


if __name__ == "__main__":
    main()
