"""An independent numpy program computes w*, every drift measure and the FedAvg iterates from
the .npy shards, and must agree with what the run recorded."""

import os
import unittest

import numpy as np

from leeway_case import LeewayCase, read_safetensors

STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
ETA = 0.004
LOCAL_STEPS = 10
ROUNDS = 25

CONFIG = f"""
seed: 3
model {{ linear_regression {{ intercept: false }} }}
phases {{ optimum {{ tolerance: 1e-12 }} }}
phases {{ probe {{ point: OPTIMUM step_size: {ETA} steps: {STEPS} }} }}
phases {{ train {{ rounds: {ROUNDS} local {{ step_size: {ETA} steps: {LOCAL_STEPS} }}
                  server {{ rate: RATE }} }} }}
"""


def load(directory):
    clients = []
    for name in sorted(os.listdir(directory)):
        folder = os.path.join(directory, name)
        if os.path.isdir(folder):
            clients.append((np.load(os.path.join(folder, "train_x.npy")),
                            np.load(os.path.join(folder, "train_y.npy"))))
    return clients


def parameters(path):
    """The model as one vector: the weights and, if there is one, the intercept."""
    tensors = read_safetensors(path)
    return np.concatenate([tensors["weight"].ravel(), tensors.get("bias", [])])


def gradient(x, y, w):
    return x.T @ (x @ w - y) / len(y)


def loss(x, y, w):
    return 0.5 * np.mean((x @ w - y) ** 2)


def trajectory(x, y, w, eta, steps):
    """Displacements w - w^(h) for h = 1 .. steps."""
    local = w.copy()
    out = []
    for _ in range(steps):
        local = local - eta * gradient(x, y, local)
        out.append(w - local)
    return out


class OracleTest(LeewayCase):
    def check(self, clients_kwargs, rate=1.0, name="data", **run_options):
        directory = self.synthetic(name, **clients_kwargs)
        config = self.write("c.textproto", CONFIG.replace("RATE", str(rate)))
        self.federate(config, directory, out="run_" + name, **run_options)
        self.check_run(self.show("run_" + name), load(directory), rate)

    def check_run(self, result, clients, rate):
        self.assertEqual(result["status"], "done")
        # w* by the normal equations.
        a = sum(x.T @ x / len(y) for x, y in clients) / len(clients)
        b = sum(x.T @ y / len(y) for x, y in clients) / len(clients)
        optimum = np.linalg.solve(a, b)
        found = parameters(result["optimum"]["model"])
        self.assertLess(np.linalg.norm(found - optimum) / np.linalg.norm(optimum), 1e-8)

        self.check_probe(result["probes"][0], clients, found)
        self.check_training(result, clients, rate)

    def near(self, measured, expected):
        self.assertLess(abs(measured - expected), max(1e-6 * abs(expected), 1e-18))

    def check_probe(self, probe, clients, w):
        gradients = [gradient(x, y, w) for x, y in clients]
        mean = np.mean(gradients, axis=0)
        dissimilarity = np.mean([np.sum((g - mean) ** 2) for g in gradients])
        self.near(probe["dissimilarity"], dissimilarity)
        self.assertEqual(probe["clients"], len(clients))
        paths = [trajectory(x, y, w, ETA, max(STEPS)) for x, y in clients]
        self.assertEqual([s["h"] for s in probe["steps"]], STEPS)
        for step in probe["steps"]:
            h = step["h"]
            biases = [g - p[h - 1] / (ETA * h) for g, p in zip(gradients, paths)]
            self.near(step["average_drift_squared"], np.sum(np.mean(biases, axis=0) ** 2))
            self.near(step["drift_bound"], np.mean([np.sum(v * v) for v in biases]))
            self.assertEqual(step["unbiased_drift_squared"], step["average_drift_squared"])

    def check_training(self, result, clients, rate):
        w = np.zeros(clients[0][0].shape[1])
        self.assertEqual(len(result["rounds"]), ROUNDS)
        for record in result["rounds"]:
            self.near(record["loss"], np.mean([loss(x, y, w) for x, y in clients]))
            moves = [trajectory(x, y, w, ETA, LOCAL_STEPS)[-1] for x, y in clients]
            biases = [gradient(x, y, w) - m / (ETA * LOCAL_STEPS)
                      for (x, y), m in zip(clients, moves)]
            self.near(record["average_drift_squared"], np.sum(np.mean(biases, axis=0) ** 2))
            self.near(record["drift_bound"], np.mean([np.sum(v * v) for v in biases]))
            w = w - rate * np.mean(moves, axis=0)
        final = parameters(result["final_model"])
        self.assertLess(np.linalg.norm(final - w) / np.linalg.norm(w), 1e-10)

    def check_agreement(self, weighting):
        """Diversity, consensus error and cosines of clients whose numbers of examples differ."""
        random = np.random.default_rng(5)
        directory = self.path(weighting)
        for c, examples in enumerate((12, 30, 7, 55, 20)):
            folder = os.path.join(directory, f"client_{c}")
            os.makedirs(folder)
            x = random.normal(size=(examples, 4))
            np.save(os.path.join(folder, "train_x.npy"), x)
            np.save(os.path.join(folder, "train_y.npy"), x @ random.normal(size=4))
        config = self.write("c.textproto", f"""
            model {{ linear_regression {{ intercept: false }} }} weighting: {weighting}
            phases {{ probe {{ point: INITIAL step_size: 0.1 steps: [3] }} }}
            phases {{ train {{ rounds: 4 local {{ step_size: 0.1 steps: 6 }} }} }}""")
        self.federate(config, directory, out="run_" + weighting, processes=2)
        result = self.show("run_" + weighting)
        clients = load(directory)
        counts = [len(y) if weighting == "EXAMPLES" else 1 for _, y in clients]
        p = np.array(counts) / np.sum(counts)
        w = np.zeros(4)
        gradients = np.array([gradient(x, y, w) for x, y in clients])
        self.near(result["probes"][0]["gradient_diversity"],
                  p @ np.sum(gradients ** 2, axis=1) / np.sum((p @ gradients) ** 2))
        self.assertEqual(len(result["rounds"]), 4)
        for record in result["rounds"]:
            ends = np.array([w - trajectory(x, y, w, 0.1, 6)[-1] for x, y in clients])
            self.near(record["consensus_error"], p @ np.sum((ends - p @ ends) ** 2, axis=1))
            if weighting == "EXAMPLES":
                self.assertIsNone(record["pairwise_cosine"])
            else:
                products = (w - ends) @ (w - ends).T
                between = products[~np.eye(len(clients), dtype=bool)]
                self.near(record["pairwise_cosine"], between.mean() / np.diag(products).mean())
            w = p @ ends

    def test_an_intercept(self):
        """Linear regression has one unless it is switched off: a column of ones, here in numpy. Also
        the constants, a fixed point and the test loss."""
        random = np.random.default_rng(8)
        directory, tests = self.path("offset"), []
        for c, examples in enumerate((12, 30, 7, 55, 20)):
            folder = os.path.join(directory, f"client_{c}")
            os.makedirs(folder)
            for part in ("train", "test"):
                x = random.normal(size=(examples, 4)) + [0, 2, 0, -1]
                y = x @ random.normal(size=4) + 40 + random.normal(size=examples)
                np.save(os.path.join(folder, part + "_x.npy"), x)
                np.save(os.path.join(folder, part + "_y.npy"), y)
            tests.append((np.c_[x, np.ones(examples)], y))
        config = self.write("c.textproto", CONFIG.replace("intercept: false", "").replace("RATE", "1") + f"""
            phases {{ constants {{}} }} phases {{ evaluate {{ point: OPTIMUM }} }}
            phases {{ fixed_point {{ steps: [{LOCAL_STEPS}] step_size: {ETA} tolerance: 1e-11 }} }}""")
        self.federate(config, directory, out="run", processes=2)
        result = self.show("run")
        clients = [(np.c_[x, np.ones(len(y))], y) for x, y in load(directory)]
        self.check_run(result, clients, 1)
        tensors = read_safetensors(result["optimum"]["model"])
        self.assertEqual({name: t.shape for name, t in tensors.items()}, {"weight": (1, 4), "bias": (1,)})
        hessians = [x.T @ x / len(y) for x, y in clients]
        self.near(result["constants"]["smoothness"], np.linalg.eigvalsh(np.mean(hessians, axis=0))[-1])
        self.near(result["constants"]["convexity"], np.linalg.eigvalsh(np.mean(hessians, axis=0))[0])
        w = parameters(result["optimum"]["model"])
        examples = sum(len(y) for _, y in tests)
        self.near(result["evaluations"][0]["test_loss"], sum(len(y) * loss(x, y, w) for x, y in tests) / examples)
        # FedAvg's fixed point: the average over clients of (1 - (1 - eta A)^H)(w - w_c) is 0.
        shrink = [np.eye(5) - np.linalg.matrix_power(np.eye(5) - ETA * a, LOCAL_STEPS) for a in hessians]
        own = [np.linalg.lstsq(x, y, rcond=None)[0] for x, y in clients]
        rest = np.linalg.solve(np.sum(shrink, axis=0), np.sum([s @ o for s, o in zip(shrink, own)], axis=0))
        gap = np.mean([loss(x, y, rest) - loss(x, y, w) for x, y in clients])
        self.assertLess(abs(result["fixed_points"][0]["loss_gap"] - gap), 1e-6 * gap)

    def test_how_far_clients_agree(self):
        for weighting in ("UNIFORM", "EXAMPLES"):
            with self.subTest(weighting=weighting):
                self.check_agreement(weighting)

    def test_the_papers_problem(self):
        self.check({}, processes=4)

    def test_every_noise_level(self):
        for noise in (0.1, 0.6, 1):  # the paper's 0.3 is above
            with self.subTest(noise=noise):
                self.check({"noise_sd": noise}, name=f"noise_{noise}", processes=1)

    def test_another_shape_and_server_rate(self):
        self.check({"clients": 7, "samples": 40, "dimension": 12, "noise_sd": 2, "seed": 9},
                   rate=0.5, processes=7)


if __name__ == "__main__":
    unittest.main()
