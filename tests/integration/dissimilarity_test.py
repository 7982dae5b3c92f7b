"""How the clients' Hessians differ in the mean square, against Hessians of numpy and PyTorch: exact for small convex
models, by products with Hessians for large ones, networks and worker programs."""

import os
import unittest

import numpy as np

from leeway_case import TIMEOUT, LeewayCase, read_safetensors

# A worker (docs/worker.md) that knows losses and gradients alone, in float32: F_c(w) = sum_i s_i (w_i - 1)^2 / 2.
WORKER = """
import array, json, os, socket, sys
name, s = sys.argv[1], [float(x) for x in sys.argv[2:]]
d = len(s)
connection = socket.socket(fileno=int(os.environ["LEEWAY_WORKER_FD"]))
def say(**m): connection.sendall(json.dumps(m).encode() + b"\\n")
for line in connection.makefile("rb"):
    m = json.loads(line)
    if m["type"] == "hello": say(type="hello", version=1, clients=[{"name": name, "examples": 4}])
    elif m["type"] == "prepare": say(type="ready")
    elif m["type"] == "finished": break
    else:
        with open(m["model"]["file"], "rb") as f:
            f.read(int.from_bytes(f.read(8), "little"))
            w = array.array("f", f.read(4 * d))
        answers = {"loss": sum(c * (x - 1) ** 2 for c, x in zip(s, w)) / 2}
        if any(k["name"] == "gradient" for k in m["sums"]):
            header = json.dumps({"gradient": {"dtype": "F32", "shape": [d], "data_offsets": [0, 4 * d]}}).encode()
            with open(m["answer_file"], "r+b") as f:
                f.truncate(0)
                f.write(len(header).to_bytes(8, "little") + header)
                f.write(array.array("f", [c * (x - 1) for c, x in zip(s, w)]).tobytes())
        say(type="answer", order=m["order"], numbers={k["key"]: answers[k["name"]] for k in m["sums"]
                                                      if k["shape"] == "number"})
"""


def mean_dissimilarity(hessians, p):
    """The root of the largest eigenvalue of sum p_c (H_c - H)^2."""
    mean = np.tensordot(p, hessians, 1)
    return np.sqrt(np.linalg.eigvalsh(sum(q * (h - mean) @ (h - mean) for q, h in zip(p, hessians)))[-1])


class DissimilarityTest(LeewayCase):
    def save(self, clients):
        for i, (x, y) in enumerate(clients):
            folder = self.path("data", f"client_{i}")
            os.makedirs(folder)
            np.save(os.path.join(folder, "train_x.npy"), x)
            np.save(os.path.join(folder, "train_y.npy"), y)
        return self.path("data")

    def constants(self, config, data):
        self.federate(self.write("c.textproto", config), data)
        return self.show()["constants"]

    def test_linear_regression_of_both_sizes(self):
        for d, iterations in ((20, 0), (270, 60)):
            rng = np.random.default_rng(d)
            clients = []
            for c in range(5):
                x = rng.normal(size=(20 + 10 * c, d)) * rng.uniform(0.3, 2, size=d)
                clients.append((x, x @ rng.normal(size=d)))
            sizes = np.array([len(y) for _, y in clients])
            hessians = np.array([x.T @ x / len(y) for x, y in clients])
            with self.subTest(d=d):
                self.setUp()
                found = self.constants(f"model {{ linear_regression {{ intercept: false }} }} weighting: EXAMPLES "
                                       f"phases {{ constants {{ dissimilarity_iterations: {iterations} }} }}", self.save(clients))
                expected = mean_dissimilarity(hessians, sizes / sizes.sum())
                self.assertLess(abs(found["mean_hessian_dissimilarity"] / expected - 1), 1e-6)
                self.assertEqual(found["exact"], d == 20)

    def test_softmax_regression_of_both_sizes(self):
        for d, iterations in ((4, 0), (90, 60)):
            rng = np.random.default_rng(d)
            classes, l2 = 3, 0.1
            clients = [(rng.normal(size=(30, d)) * rng.uniform(0.3, 2, size=d), rng.integers(classes, size=30).astype(np.int32))
                       for _ in range(4)]
            # At w = 0, where all classes are as likely.
            shares = np.eye(classes) / classes - np.ones((classes, classes)) / classes ** 2
            hessians = []
            for x, _ in clients:
                x = np.column_stack([x, np.ones(len(x))])
                hessians.append(np.kron(shares, x.T @ x / len(x)) + l2 * np.eye(classes * (d + 1)))
            with self.subTest(d=d):
                self.setUp()
                found = self.constants(f"model {{ softmax_regression {{ classes: 3 l2: {l2} }} }} "
                                       f"phases {{ constants {{ dissimilarity_iterations: {iterations} }} }}", self.save(clients))
                expected = mean_dissimilarity(np.array(hessians), np.full(4, 0.25))
                self.assertLess(abs(found["mean_hessian_dissimilarity"] / expected - 1), 1e-6)
                self.assertEqual(found["exact"], d == 4)

    def test_a_network_against_pytorch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("needs PyTorch")
        rng = np.random.default_rng(5)
        clients = [((rng.normal(size=(40, 4)) * rng.uniform(0.5, 2)).astype(np.float32), rng.integers(3, size=40).astype(np.int32))
                   for _ in range(4)]
        found = self.constants("seed: 3 model { mlp { hidden: [6] classes: 3 } } "
                               "phases { constants { iterations: 51 dissimilarity_iterations: 30 } }", self.save(clients))
        tensors = read_safetensors(self.path("run", "models", "final.safetensors"))  # nothing has trained
        shapes = [tensors[name].shape for name in tensors]
        w = torch.cat([torch.from_numpy(np.array(t, np.float64)).ravel() for t in tensors.values()])

        def loss(flat, x, y):
            parts = [p.reshape(s) for p, s in zip(torch.split(flat, [int(np.prod(s)) for s in shapes]), shapes)]
            hidden = torch.relu(x @ parts[0] + parts[1])
            return torch.nn.functional.cross_entropy(hidden @ parts[2] + parts[3], y)

        hessians = []
        for x, y in clients:
            x, y = torch.from_numpy(x.astype(np.float64)), torch.from_numpy(y.astype(np.int64))
            hessians.append(torch.autograd.functional.hessian(lambda flat: loss(flat, x, y), w).numpy())
        expected = mean_dissimilarity(np.array(hessians), np.full(4, 0.25))
        values = np.linalg.eigvalsh(np.mean(hessians, 0))
        self.assertLess(abs(found["mean_hessian_dissimilarity"] / expected - 1), 1e-5)
        self.assertLess(abs(found["smoothness"] / values[-1] - 1), 1e-5)
        self.assertLess(abs(found["convexity"] - values[0]), 1e-5 * values[-1])
        for unknown in ("largest_client_smoothness", "smallest_client_convexity", "hessian_dissimilarity"):
            self.assertIsNone(found[unknown])
        self.assertNotIn("nan", self.run_program("leeway", "show", self.path("run"))[1])
        _, page = self.run_program("leeway", "report", self.path("run"))
        with open(page.strip()) as f:
            self.assertIn("β₂ = ", f.read())

    def test_worker_programs_are_asked_for_gradients_alone(self):
        scales = np.array([[1, 4, 2], [3, 1, 2], [2, 1, 2.0]])
        header = b'{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'
        with open(self.path("w.safetensors"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + np.array([0.5, -1, 2], np.float32).tobytes())
        _, text = self.run_program("leeway", "run", "--check", self.write("auto.textproto", """model { file: "w.safetensors" }
            phases { constants {} } phases { train { rounds: 1 local { auto_step_size: true steps: 2 } } }"""), check=False)
        self.assertIn("phases[1] leaves the step size open (automatic), which needs a model in float64", text)
        self.write("worker.py", WORKER)
        server, address = self.start_server(
            self.write("c.textproto", 'model { file: "w.safetensors" } phases { constants {} }'), 3)
        for i, s in enumerate(scales):
            self.start("leeway-client", "--server", address, "--worker",
                       f"/usr/bin/env python3 {self.path('worker.py')} c{i} " + " ".join(map(str, s)))
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        found = self.show()["constants"]
        expected = mean_dissimilarity(np.array([np.diag(s) for s in scales]), np.full(3, 1 / 3))
        self.assertLess(abs(found["mean_hessian_dissimilarity"] / expected - 1), 1e-3)
        self.assertLess(abs(found["smoothness"] / scales.mean(0).max() - 1), 1e-3)


if __name__ == "__main__":
    unittest.main()
