"""Local algorithms and server optimizers beside an independent numpy program."""

import os
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


NOVA = """
seed: 5
weighting: {weighting}
model {{ linear_regression {{ intercept: false l2: 0.1 }} }}
phases {{ train {{ rounds: {rounds} local {{ step_size: 0.01 epochs: 2 batch_size: 4 {local} }} }} }}
"""


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

    def unequal_clients(self):
        """Clients of 2 to 18 local steps. All examples of one are the same, so that every batch is."""
        rng = np.random.default_rng(3)
        clients = []
        for c in range(9):
            n = 4 * (c + 1) if c != 4 else 17  # one with a last batch of 1
            x, y = rng.normal(size=8), rng.normal(loc=c)
            clients.append((x, y, n))
            os.makedirs(self.path("unequal", f"c{c}"))
            np.save(self.path("unequal", f"c{c}", "train_x.npy"), np.tile(x, (n, 1)))
            np.save(self.path("unequal", f"c{c}", "train_y.npy"), np.full(n, y))
        return self.path("unequal"), clients

    def test_fednova(self):
        data, clients = self.unequal_clients()
        for weighting in ("UNIFORM", "EXAMPLES"):
            found = {}
            for local in ("", "fednova {}"):
                name = f"{weighting}{len(found)}"
                config = self.write(name + ".textproto", NOVA.format(
                    weighting=weighting, local=local, rounds=ROUNDS))
                self.federate(config, data, out=name, processes=2)
                found[local] = read_safetensors(self.show(name)["final_model"])["weight"]
            weight = np.array([n if weighting == "EXAMPLES" else 1 for _, _, n in clients], float)
            p = weight / weight.sum()
            tau = np.array([2 * -(-n // 4) for _, _, n in clients])
            w = np.zeros(8)
            for _ in range(ROUNDS):
                directions = []
                for (x, y, _), steps in zip(clients, tau):
                    local = w.copy()
                    for _ in range(steps):
                        local = local - 0.01 * ((x @ local - y) * x + 0.1 * local)
                    directions.append((w - local) / (0.01 * steps))
                w = w - (p @ tau) * 0.01 * (p @ np.array(directions))
            error = np.linalg.norm(found["fednova {}"] - w) / np.linalg.norm(w)
            self.assertLess(error, 1e-8)
            # Here it matters.
            self.assertGreater(np.linalg.norm(found[""] - w) / np.linalg.norm(w), 0.01)


if __name__ == "__main__":
    unittest.main()
