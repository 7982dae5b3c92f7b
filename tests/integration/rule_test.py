"""The verdict's rule, against numpy: the best constant answer, what w* owes to sampling, the share that is lost; and
that the units of the data change nothing."""

import json
import os
import unittest

import numpy as np

from leeway_case import LeewayCase, read_safetensors

STUDY = """durability: RELAXED phases { optimum { tolerance: 1e-12 } } phases { constants { point: OPTIMUM } }
    phases { probe { point: OPTIMUM auto_step_size: true steps: STEPS } }
    phases { fixed_point { auto_step_size: true steps: STEPS tolerance: 1e-11 } }"""


def regression_clients(seed, sizes, d, conflict, noise=0.5):
    """Clients whose optimum goes with the scale of their inputs: with conflict that does not average out."""
    rng = np.random.default_rng(seed)
    truth, data = rng.normal(size=d), []
    for n in sizes:
        scale = rng.uniform(0.4, 2.5, size=d)
        x = rng.normal(size=(n, d)) * scale
        data.append((x, x @ (truth + conflict * (scale - 1)) + 2 + noise * rng.normal(size=n)))
    return data


def weights(data, weighting):
    v = np.array([len(y) if weighting == "EXAMPLES" else 1.0 for _, y in data])
    return v / v.sum()


class Regression:
    """Linear regression with an intercept, in closed form."""

    def __init__(self, data, weighting="UNIFORM"):
        data = [(np.column_stack([x, np.ones(len(x))]), y) for x, y in data]
        self.data, self.p = data, weights(data, weighting)
        self.a = np.array([x.T @ x / len(y) for x, y in data])
        self.b = np.array([x.T @ y / len(y) for x, y in data])
        self.hessian = np.tensordot(self.p, self.a, 1)
        self.optimum = np.linalg.solve(self.hessian, self.p @ self.b)

    def loss(self, w):
        return self.p @ [np.mean((x @ w - y) ** 2) / 2 for x, y in self.data]

    def constant(self):
        mean = self.p @ [y.mean() for _, y in self.data]
        return (self.p @ [np.mean(y ** 2) for _, y in self.data] - mean ** 2) / 2

    def sampling_error(self):
        g = self.a @ self.optimum - self.b
        each = [q * q * v @ np.linalg.solve(self.hessian, v) for q, v in zip(self.p, g)]
        return sum(each) / 2 * len(g) / (len(g) - 1)

    def rest(self, eta, h):
        one = np.eye(len(self.optimum))
        powers = np.array([np.linalg.matrix_power(one - eta * m, h) for m in self.a])
        pull = sum(q * (one - m) @ np.linalg.solve(own, v) for q, m, own, v in zip(self.p, powers, self.a, self.b))
        return np.linalg.solve(one - np.tensordot(self.p, powers, 1), pull)


class RuleTest(LeewayCase):
    def save(self, data, name):
        directory = self.path(name)
        for c, (x, y) in enumerate(data):
            folder = os.path.join(directory, f"client_{c:03d}")
            os.makedirs(folder)
            np.save(os.path.join(folder, "train_x.npy"), x)
            np.save(os.path.join(folder, "train_y.npy"), y)
        return directory

    def study(self, data, model="linear_regression {}", steps=(2, 10), name="study", more=""):
        directory = self.save(data, name)
        config = self.write(name + ".textproto", f"seed: 1 model {{ {model} }} {more} "
                            + STUDY.replace("STEPS", str(list(steps))))
        self.federate(config, directory, out="run_" + name, processes=1)
        _, text = self.run_program("leeway", "drift", self.path("run_" + name), "--json")
        return json.loads(text)

    def near(self, measured, expected, tolerance=1e-8):
        self.assertLess(abs(measured - expected), tolerance * abs(expected), f"{measured}, expected {expected}")

    def test_regression(self):
        data = regression_clients(3, (12, 30, 17, 55, 20), 4, 0.4)
        for weighting in ("UNIFORM", "EXAMPLES"):
            truth = Regression(data, weighting)
            verdict = self.study(data, name=weighting, more=f"weighting: {weighting}")
            least = truth.loss(truth.optimum)
            for e in verdict["evidence"]:
                self.near(e["explained"], truth.constant() - least)
                self.near(e["sampling_error"], truth.sampling_error())
                gap = truth.loss(truth.rest(e["step_size"], e["h"])) - least
                self.near(e["lost"], gap / (truth.constant() - least), 1e-6)

    def softmax(self, data, classes, l2, w):
        """Of the mean cross-entropy with a penalty: each client's gradient, and its Hessian."""
        gradients, hessians = [], []
        for x, y in data:
            x = np.column_stack([x, np.ones(len(x))])
            logits = x @ w.T
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            gradients.append(((p - np.eye(classes)[y]).T @ x / len(y) + l2 * w).ravel())
            blocks = np.einsum("ni,ij->nij", p, np.eye(classes)) - np.einsum("ni,nj->nij", p, p)
            size = w.size
            hessians.append(np.einsum("nij,nk,nl->ikjl", blocks, x, x).reshape(size, size) / len(y)
                            + l2 * np.eye(size))
        return np.array(gradients), np.array(hessians)

    def classes(self, seed, clients, n, d, classes):
        rng = np.random.default_rng(seed)
        truth, data = rng.normal(size=(classes, d)), []
        for _ in range(clients):
            x = rng.normal(size=(n, d)) * rng.uniform(0.5, 1.5, size=d)
            data.append((x, np.argmax(x @ truth.T + rng.gumbel(size=(n, classes)), axis=1).astype(np.int32)))
        return data

    def cross_entropy(self, x, y, w):
        z = np.column_stack([x, np.ones(len(x))]) @ w.T
        return np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y])

    def softmax_error(self, data, classes, l2, out):
        """1/2 tr(A^-1 V) at the optimum that the run has found."""
        tensors = read_safetensors(self.show(out)["optimum"]["model"])
        w = np.column_stack([tensors["weight"].reshape(classes, -1), tensors["bias"]])
        g, hessians = self.softmax(data, classes, l2, w)
        self.least = np.mean([self.cross_entropy(x, y, w) for x, y in data]) + l2 / 2 * np.sum(w * w)
        each = [v @ np.linalg.solve(hessians.mean(0), v) for v in g]
        return np.mean(each) / (len(data) - 1) / 2

    def test_softmax(self):
        data = self.classes(4, 8, 40, 3, 3)
        verdict = self.study(data, "softmax_regression { classes: 3 l2: 0.01 }")
        expected = self.softmax_error(data, 3, 0.01, "run_study")
        labels = np.bincount(np.concatenate([y for _, y in data])) / 320
        for e, point in zip(verdict["evidence"], self.show("run_study")["fixed_points"]):
            self.near(e["sampling_error"], expected, 1e-6)
            self.near(e["lost"] * e["explained"], point["loss_gap"])
        self.near(e["explained"], -labels @ np.log(labels) - self.least)

    def test_a_large_model_is_estimated(self):
        """More than 256 parameters: random signs and a search instead of the Hessian, where something is lost."""
        data = self.classes(5, 12, 60, 31, 9)
        for i, (x, y) in enumerate(data):  # two kinds of clients that disagree
            if i % 2:
                data[i] = (x * 3, (8 - y).astype(np.int32))
        verdict = self.study(data, "softmax_regression { classes: 9 l2: 0.02 }", steps=(20,))
        e = verdict["evidence"][0]
        self.assertNotEqual(verdict["verdict"], "harmless", verdict["sentence"])
        self.assertGreater(e["lost"], 0.01)
        expected = self.softmax_error(data, 9, 0.02, "run_study")
        self.assertLess(abs(np.log(e["sampling_error"] / expected)), np.log(1.5), (e["sampling_error"], expected))

    def test_few_clients_are_enough(self):
        same = regression_clients(7, (200,) * 6, 3, 0)
        self.assertEqual(self.study(same, name="same")["verdict"], "harmless")
        different = regression_clients(8, (200,) * 6, 3, 1.5)
        self.assertEqual(self.study(different, steps=(10, 50), name="different")["verdict"], "conflict")

    def test_the_units_of_the_data_change_nothing(self):
        for conflict, expected in ((0, "harmless"), (1.5, "conflict")):
            data = regression_clients(9, (60,) * 12, 4, conflict)
            found = {}
            for scale in (1, 1e-4, 1e4, 1e6):
                scaled = [(x * scale, y) for x, y in data]
                verdict = self.study(scaled, "linear_regression { intercept: false }", steps=(10,),
                                     name=f"{conflict}_{scale}")
                self.assertEqual(verdict["verdict"], expected, f"times {scale}: {verdict['sentence']}")
                e = verdict["evidence"][0]
                found[scale] = (e["lost"], e["sampling_error"], e["average_drift_squared"] / scale ** 2)
            for scale, numbers in found.items():
                for one, other in zip(numbers, found[1]):
                    self.near(one, other, 1e-6)

    def test_what_the_sums_do_not_resolve_is_uncertain(self):
        """By hand, a max_update that has room for Hessians of 10^12 leaves no resolution for displacements of 10^-6."""
        data = [(x * 1e6, y) for x, y in regression_clients(9, (60,) * 12, 4, 1.5)]
        verdict = self.study(data, "linear_regression { intercept: false }", steps=(10,), more="max_update: 1e12")
        self.assertEqual(verdict["verdict"], "uncertain", verdict["sentence"])
        self.assertIn("leave out max_update", verdict["sentence"])


if __name__ == "__main__":
    unittest.main()
