#!/usr/bin/python3
"""What one would write by hand instead of using Leeway, as well as we can: federated averaging of the
paper's problem in batched NumPy, of networks in plain PyTorch. Each is a program of its own, which
prints the rounds per second (clients per second for generated clients):

    bench/alternatives.py paper|kept|generated|cnn|lstm [--loss-off] [--rounds N]

Nothing is sent, stored or checked. What is measured is what Leeway measures in the same case. Used by
table.py, in turn with Leeway; OpenBLAS makes NumPy and PyTorch several times as fast as Debian's
reference BLAS, so have libopenblas0-pthread installed.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # the programs use two processes where that helps

MISSING = 77  # exit code where NumPy or PyTorch is not installed

try:
    import numpy as np
except ImportError:
    sys.exit(MISSING)

DIMENSION, SAMPLES, STEPS, RATE = 30, 100, 10, 0.005
CLASSES, BATCH = 62, 20
SEQUENCE, VOCABULARY, TEXT_BATCH = 80, 90, 16


def fastest(ways, *arguments):
    """The fastest of several ways to compute the same."""
    def seconds(way):
        way(*arguments)
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            way(*arguments)
            times.append(time.perf_counter() - begun)
        return min(times)
    return min(ways, key=seconds)


# Products of each client's matrix with its vector: [c, d, d], [c, d] -> [c, d].
PRODUCTS = [lambda a, v: np.matmul(a, v[:, :, None])[:, :, 0],
            lambda a, v: np.einsum("cij,cj->ci", a, v),
            lambda a, v: (a * v[:, None, :]).sum(-1)]


class Quadratics:
    """Clients of linear regression as matrices, moments and minima."""

    def __init__(self, x, y):
        n = x.shape[1]
        transposed = x.transpose(0, 2, 1)
        self.a = np.matmul(transposed, x) / n
        self.b = np.matmul(transposed, y[:, :, None])[:, :, 0] / n
        self.minimum = np.linalg.solve(self.a, self.b[:, :, None])[:, :, 0]
        residuals = np.matmul(x, self.minimum[:, :, None])[:, :, 0] - y
        self.least = 0.5 * (residuals ** 2).mean(1)

    def subset(self, clients):
        part = object.__new__(Quadratics)
        part.a, part.b = self.a[clients], self.b[clients]
        part.minimum, part.least = self.minimum[clients], self.least[clients]
        return part

    def nbytes(self):
        return self.a.nbytes + self.b.nbytes + self.minimum.nbytes + self.least.nbytes

    def round(self, w, product):
        """The mean displacement, loss and drift, and the drift's bound."""
        count, d = self.b.shape
        # At the same w for all: one product. Its gradient gives the loss, too.
        gradient = (self.a.reshape(count * d, d) @ w).reshape(count, d) - self.b
        loss = (self.least + 0.5 * ((w - self.minimum) * gradient).sum(1)).mean()
        u = RATE * gradient
        for _ in range(STEPS - 1):
            u += RATE * (product(self.a, w - u) - self.b)
        drift = gradient - u / (RATE * STEPS)
        mean = drift.mean(0)
        return u.mean(0), loss, mean @ mean, (drift ** 2).sum(1).mean()


def draw(rng, truth):
    x = rng.random((SAMPLES, DIMENSION))
    x *= 5 * rng.random()
    return x, x @ truth + 0.3 * rng.standard_normal(SAMPLES)


# Ways to a client's own stream of random numbers.
STREAMS = [lambda c: np.random.Generator(np.random.PCG64([1, int(c)])),
           lambda c: np.random.Generator(np.random.SFC64([1, int(c)])),
           lambda c: np.random.Generator(np.random.Philox(key=int(c)))]


def make(clients, truth, stream):
    x = np.empty((len(clients), SAMPLES, DIMENSION))
    y = np.empty((len(clients), SAMPLES))
    for i, c in enumerate(clients):
        x[i], y[i] = draw(stream(c), truth)
    return Quadratics(x, y)


def paper(rounds):
    truth = np.random.default_rng(0).standard_normal(DIMENSION)
    clients = make(range(100), truth, STREAMS[0])
    w = np.zeros(DIMENSION)
    product = fastest(PRODUCTS, clients.a, clients.b)
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        for _ in range(rounds):
            w -= clients.round(w, product)[0]
        times.append(time.perf_counter() - begun)
    print(rounds / statistics.median(times))


def in_two(work, rounds, shape):
    """Rounds per second of two processes: work(process, w) gives a process's part of the step."""
    begin, end = multiprocessing.Barrier(2), multiprocessing.Barrier(2)
    shared = multiprocessing.RawArray("d", 2 * shape)
    parts = np.frombuffer(shared).reshape(2, shape)
    queue = multiprocessing.SimpleQueue()

    def loop(process):
        compute = work(process)
        w = np.zeros(shape)
        times = []
        for number in range(rounds + 1):  # the first one warms up
            begin.wait()
            begun = time.perf_counter()
            parts[process] = compute(w, number)
            end.wait()
            w -= parts.sum(0)
            times.append(time.perf_counter() - begun)
        if process == 0:
            queue.put(1 / statistics.median(times[1:]))

    processes = [multiprocessing.Process(target=loop, args=(i,)) for i in range(2)]
    for process in processes:
        process.start()
    rate = queue.get()
    for process in processes:
        process.join()
    return rate


def sampled(rounds, kept):
    """1,000 of 10^5 clients a round, kept as quadratics or generated for each round."""
    truth = np.random.default_rng(0).standard_normal(DIMENSION)
    population = 100_000

    def work(process):
        rng = np.random.default_rng(process)
        own = np.arange(process, population, 2)
        some = make(own[:500], truth, STREAMS[0])
        product = fastest(PRODUCTS, some.a, some.b)
        stream = fastest(STREAMS, 1) if kept else fastest(
            [lambda clients, s=s: make(clients, truth, s) for s in STREAMS], own[:50])
        if kept:  # copies of few are as large as many
            every = make(own[:5000], truth, stream)
            every = every.subset(np.arange(len(own)) % 5000)

        def compute(w, _):
            if kept:
                clients = every.subset(rng.choice(len(own), 500, replace=False))
            else:
                clients = stream(rng.choice(own, 500, replace=False))
            return clients.round(w, product)[0] / 2
        if kept and process == 0:
            print("bytes", 2 * every.nbytes(), flush=True)
        return compute

    print(1000 * in_two(work, rounds, DIMENSION))


def cnn_model(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def lstm_model(torch):
    nn = torch.nn

    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, 8)
            self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
            self.output = nn.Linear(256, VOCABULARY)

        def forward(self, x):
            return self.output(self.lstm(self.embedding(x))[0]).flatten(0, 1)

    return Text()


def examples_of(kind):
    """How many examples each client of a cohort has."""
    return [140 + 12 * i for i in range(10)] if kind == "cnn" else [24 + 4 * i for i in range(10)]


def arrays_of(kind, examples, seed):
    """Random inputs and targets; token 0, padding, does not occur."""
    rng = np.random.default_rng(seed)
    if kind == "cnn":
        return (rng.random((examples, 28, 28), dtype=np.float32),
                rng.integers(0, CLASSES, examples).astype(np.int32))
    return (rng.integers(1, VOCABULARY, (examples, SEQUENCE)).astype(np.int32),
            rng.integers(1, VOCABULARY, (examples, SEQUENCE)).astype(np.int32))


def network(kind, rounds, with_loss):
    """One epoch of stochastic gradient descent at each of 10 clients, in two processes that take the next
    client when they are done with one, the largest first."""
    try:
        import torch
    except ImportError:
        sys.exit(MISSING)
    torch.set_num_threads(1)
    batch = BATCH if kind == "cnn" else TEXT_BATCH
    taken = multiprocessing.Value("i", 0)
    cohort = sorted(examples_of(kind), reverse=True)
    total = sum(cohort)
    parameters = sum(p.numel() for p in (cnn_model if kind == "cnn" else lstm_model)(torch).parameters())

    def work(process):
        torch.manual_seed(1)
        model = (cnn_model if kind == "cnn" else lstm_model)(torch)
        lossy = torch.nn.functional.cross_entropy
        own = list(model.parameters())
        flat = torch.nn.utils.parameters_to_vector
        begun = flat(own).detach().clone()
        data = []
        for i, n in enumerate(cohort):
            x, y = arrays_of(kind, n, i)
            x = torch.from_numpy(x)
            data.append((x.unsqueeze(1) if kind == "cnn" else x.long(), torch.from_numpy(y).long()))

        def compute(w, number):
            step = torch.zeros_like(begun)
            start = begun - torch.from_numpy(w).float()
            while True:
                with taken.get_lock():
                    place = taken.value - 10 * number
                    if place >= 10:
                        break
                    taken.value += 1
                x, y = data[place]
                torch.nn.utils.vector_to_parameters(start.clone(), own)
                if with_loss:
                    with torch.no_grad():
                        sum(float(lossy(model(x[i:i + 256]), y[i:i + 256].flatten(), reduction="sum"))
                            for i in range(0, len(x), 256))
                order = torch.randperm(len(x))
                for i in range(0, len(x), batch):
                    rows = order[i:i + batch]
                    gradients = torch.autograd.grad(lossy(model(x[rows]), y[rows].flatten()), own)
                    with torch.no_grad():
                        torch._foreach_add_(own, gradients, alpha=-0.01)
                step += len(x) / total * (start - flat(own).detach())
            return step.numpy()
        return compute

    print(in_two(work, rounds, parameters))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["paper", "kept", "generated", "cnn", "lstm"])
    parser.add_argument("--loss-off", action="store_true", help="networks: train and measure nothing")
    parser.add_argument("--rounds", type=int, default=0)
    options = parser.parse_args()
    if options.kind == "paper":
        paper(options.rounds or 1000)
    elif options.kind in ("kept", "generated"):
        sampled(options.rounds or 20, options.kind == "kept")
    else:
        network(options.kind, options.rounds or 3, not options.loss_off)


if __name__ == "__main__":
    main()
