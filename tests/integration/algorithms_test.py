"""Local algorithms and server optimizers beside an independent numpy program."""

import unittest

import numpy as np

from leeway_case import LeewayCase, read_safetensors
from oracle_test import gradient, load

ETA = 0.004
STEPS = 7
ROUNDS = 12
RATE = 0.3

CONFIG = f"""
seed: 5
model {{{{ linear_regression {{{{ intercept: false }}}} }}}}
phases {{{{ train {{{{ rounds: {ROUNDS} local {{{{ step_size: {ETA} steps: {STEPS} {{local}} }}}}
                  server {{{{ rate: {RATE} {{server}} }}}} }}}} }}}}
"""


def displacement(x, y, w, mu):
    local = w.copy()
    for _ in range(STEPS):
        local = local - ETA * (gradient(x, y, local) + mu * (local - w))
    return w - local


def momentum(nesterov):
    m = 0

    def step(w, u):
        nonlocal m
        m = 0.6 * m + u
        return w - RATE * (u + 0.6 * m if nesterov else m)
    return step


def adaptive(kind, beta1=0.9, beta2=0.99, epsilon=1e-3):
    m = 0
    v = epsilon ** 2

    def step(w, u):
        nonlocal m, v
        m = beta1 * m + (1 - beta1) * u
        if kind == "adam":
            v = beta2 * v + (1 - beta2) * u * u
        elif kind == "adagrad":
            v = v + u * u
        else:
            v = v - (1 - beta2) * u * u * np.sign(v - u * u)
        return w - RATE * m / (np.sqrt(v) + epsilon)
    return step


class AlgorithmsTest(LeewayCase):
    def check(self, local, server, mu, step):
        if not hasattr(self, "data"):
            self.data = self.synthetic(clients=9, samples=30, dimension=8)
        self.runs = getattr(self, "runs", 0) + 1
        name = f"run{self.runs}"
        config = self.write(name + ".textproto", CONFIG.format(local=local, server=server))
        self.federate(config, self.data, out=name, processes=3)
        found = read_safetensors(self.show(name)["final_model"])["weight"]
        clients = load(self.data)
        w = np.zeros(8)
        for _ in range(ROUNDS):
            w = step(w, np.mean([displacement(x, y, w, mu) for x, y in clients], axis=0))
        self.assertLess(np.linalg.norm(found - w) / np.linalg.norm(w), 1e-8)

    def test_fedprox(self):
        self.check("fedprox { mu: 3 }", "", 3, lambda w, u: w - RATE * u)

    def test_momentum_of_both_kinds(self):
        self.check("", "momentum: 0.6", 0, momentum(False))
        self.check("", "momentum: 0.6 nesterov: true", 0, momentum(True))

    def test_adaptive_server_optimizers(self):
        self.check("", "adam {}", 0, adaptive("adam"))
        self.check("", "adam { beta1: 0.5 beta2: 0.7 epsilon: 0.1 }", 0,
                   adaptive("adam", 0.5, 0.7, 0.1))
        self.check("", "adagrad { epsilon: 0.05 }", 0, adaptive("adagrad", 0, epsilon=0.05))
        self.check("", "yogi {}", 0, adaptive("yogi"))
        self.check("fedprox { mu: 2 }", "yogi { beta1: 0.3 }", 2, adaptive("yogi", 0.3))


if __name__ == "__main__":
    unittest.main()
