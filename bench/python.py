#!/usr/bin/python3
"""What Python clients cost: bench/python.py --bin build/bin [--data DIR] [--rounds 5]

- a round of the FEMNIST CNN (10 clients, batch 20, 1 epoch) through Leeway, beside the same loop in plain PyTorch, in one run;
- a task of a model with 10^6 parameters, without what the user's function takes;
- the start of a worker, besides importing torch.

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
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "python", "tests")]

import numpy as np
import torch

import leeway
import leeway.torch
from leeway._gradient import GradientHost
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
    """Seconds of each round, from one's opening to the next's, and CPU seconds of a round of all processes together."""
    def join(server, names):
        torch.set_num_threads(1)
        leeway.torch.join(server, make_model(), cross_entropy, {n: data[int(n[-1])] for n in names})

    def run(rounds):
        config = (f"seed: 1 phases {{ train {{ rounds: {rounds} drift_off: true loss_off: {str(not first_loss).lower()} "
                  f"local {{ step_size: {RATE} epochs: 1 batch_size: {BATCH} }} }} }}")
        before = children()
        with tempfile.TemporaryDirectory() as folder:
            done = leeway.simulate(config, join, clients=len(data), processes=1, model=make_model(), out=folder, progress=False)
            opened = [row["opened"] for row in done.summary["rounds"]]
        return [b - a for a, b in zip(opened, opened[1:])], children() - before

    _, start = run(1)  # what is not of the rounds
    seconds, cpu = run(rounds + 1)
    return seconds, (cpu - start) / rounds


def children():
    """CPU seconds of the child processes so far."""
    times = os.times()
    return times.children_user + times.children_system


def femnist(data, rounds):
    torch.set_num_threads(1)
    model = make_model()
    plain_round(model, data, True)  # warm-up
    ways = [(name, loss) for loss in (False, True) for name in ("plain", "Leeway")]
    seconds, cpu = {way: [] for way in ways}, {way: [] for way in ways}
    for _ in range(3):  # in turn, so that a slow minute of the machine is everybody's
        for way in ways:
            if way[0] == "plain":
                begun = time.process_time()
                seconds[way] += [plain_round(model, data, way[1]) for _ in range(rounds)]
                cpu[way].append((time.process_time() - begun) / rounds)
            else:
                one, one_cpu = leeway_rounds(data, rounds, way[1])
                seconds[way] += one
                cpu[way].append(one_cpu)
    print(f"FEMNIST CNN, {len(data)} clients with {sum(len(y) for _, y in data)} examples, one process, a round:")
    for loss, what in ((False, "training alone (loss_off)"), (True, "with the loss before training")):
        for kind, values in (("", seconds), (" of CPU", cpu)):
            plain, ours = (statistics.median(values[name, loss]) for name in ("plain", "Leeway"))
            print(f"  {what}: plain PyTorch {plain:.3f} s{kind}, Leeway {ours:.3f} s: {ours / plain:.3f} times")


def task():
    """A task of 10^6 parameters, whose gradient costs nothing."""
    from fake_client import FakeClient
    constant = np.ones(10 ** 6, np.float32)
    host = GradientHost(lambda w, batch: (1.0, constant), (np.ones((3, 1)),), None, "a", None, None)
    client = FakeClient(host)
    client.hello()
    client.prepare({"w": [10 ** 6]}, "F32")
    seconds, cpu = [], []
    original = client.send

    def timed(message):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        reply = original(message)
        seconds.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - begun_cpu)
        return reply

    client.send = timed
    for _ in range(30):
        reply, _ = client.ask("a", constant, ["loss", "displacement"])
        assert reply["type"] == "answer", reply
    client.close()
    print(f"a task of 10^6 parameters (float32): {1000 * statistics.median(seconds):.2f} ms from order to answer, "
          f"{1000 * statistics.median(cpu):.2f} ms of CPU")


def start_up():
    """From the start of the process to its hello, less a bare import of torch."""
    text = ("import leeway.torch, torch\n"
            "m = torch.nn.Linear(9, 2)\n"
            "leeway.torch.join(None, m, torch.nn.functional.cross_entropy, (torch.ones(3, 9), torch.ones(3).long()), name='a')")
    whole, bare = [], []
    for _ in range(3):
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
        whole.append(time.perf_counter() - begun)
        ours.close()
        worker.wait()
    print(f"a worker's start: {statistics.median(whole):.2f} s, of which torch {statistics.median(bare):.2f} s: "
          f"{statistics.median(whole) - statistics.median(bare):.2f} s of our own")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["LEEWAY_BIN"] = options.bin
    start_up()
    task()
    femnist(read_data(options.data), options.rounds)


if __name__ == "__main__":
    main()
