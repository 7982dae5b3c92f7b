"""Logistic regression in NumPy, one function for all phases: training, optimum, fixed points, verdict.

python3 examples/numpy_regression.py [DIRECTORY]
"""

import sys

import numpy as np

import leeway
from leeway.config import FixedPoint, LocalRule, Optimum, Probe, Train

FEATURES = 5
L2 = 0.01
CONFIG = leeway.Config(seed=1, phases=[
    Optimum(tolerance=1e-10),
    Probe(point="OPTIMUM", step_size=0.5, steps=[1, 4, 16]),
    Train(rounds=20, local=LocalRule(step_size=0.5, steps=16)),
    FixedPoint(step_size=0.5, steps=[4, 16]),
])


def gradient(w, batch):
    """Mean loss and its gradient."""
    x, y = batch
    score = x @ w
    loss = np.mean(np.logaddexp(0, score) - y * score) + 0.5 * L2 * w @ w
    return loss, x.T @ (1 / (1 + np.exp(-score)) - y) / len(y) + L2 * w


def data_of(client):
    """Clients differ in what they measure (x) and, a little, in what follows from it (y)."""
    rng = np.random.default_rng(int(client.split("_")[1]))
    x = rng.normal(size=(80, FEATURES)) + 0.5 * rng.normal(size=FEATURES)
    truth = np.linspace(-1, 1, FEATURES) + 0.2 * rng.normal(size=FEATURES)
    return x, (rng.random(80) < 1 / (1 + np.exp(-x @ truth))).astype(float)


def join(server, clients):
    """What a client process does."""
    leeway.join(server, gradient=gradient, data={client: data_of(client) for client in clients})


if __name__ == "__main__":
    run = leeway.simulate(CONFIG, join, clients=12, model={"w": np.zeros(FEATURES)},
                          out=sys.argv[1] if len(sys.argv) > 1 else None)
    print(run.verdict())
    print(run.verdict().evidence.to_string())
    print("w =", run.model()["w"].round(3))
