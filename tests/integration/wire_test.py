"""Clients that speak docs/wire-format.md alone (tests/wire_client.py) train with a C++ server to the
same bits as leeway-client does.

numpy and Eigen add in another order, so the data are such that no order matters. SPARSE: an example
has one feature, a feature one example of a client; all factors are powers of two. Then a coordinate
of a gradient, x (x w - y) / n, has one rounding however it is computed, at any w. DENSE: small whole
numbers and powers of two, and with a large max_update units of sums so coarse (2^-29) that the two
local steps of a round have no rounding at all. Losses, which are sums of squares, are compared to a
rounding; they move no model."""

import hashlib
import os
import subprocess
import sys
import unittest

import numpy as np

from leeway_case import SOURCE, TIMEOUT, LeewayCase, read_safetensors

WIRE_CLIENT = os.path.join(SOURCE, "tests", "wire_client.py")
CLIENTS = [f"c{i}" for i in range(6)]

SPARSE = """
seed: 4
model { linear_regression { intercept: false } }
weighting: WEIGHTING
cohort { size: 4 }
phases { constants {} }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.25 steps: [1, 3, 4] } }
phases { probe { point: INITIAL step_size: 0.5 steps: [2] clients: 4 groups: 2 } }
phases { fixed_point { step_size: 0.25 steps: [4] } }
phases { train { rounds: 8 local { step_size: 0.25 steps: 4 } server { momentum: 0.5 }
                 evaluate_every: 4 } }
phases { evaluate { percentiles: [50] } }
"""

DENSE = """
seed: 4
model { linear_regression { l2: 0.5 intercept: false } }
weighting: WEIGHTING
max_update: 1073741824
phases { train { rounds: 5 local { step_size: 0.25 epochs: 2 } } }
"""


def sha256_of(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


class WireTest(LeewayCase):
    def save(self, name, **arrays):
        os.makedirs(self.path("data", name))
        for key, value in arrays.items():
            np.save(self.path("data", name, key + ".npy"), value)

    def sparse_data(self):
        random = np.random.default_rng(1)
        for i, name in enumerate(CLIENTS):
            n = 4 << i % 2  # those beyond 4 have no feature at all
            x = np.zeros((n, 4))
            x[np.arange(4), random.permutation(4)] = random.choice([-1, 1], 4) * 2.0 ** random.integers(-1, 2, 4)
            y = random.integers(-5, 6, n) * 1.0
            tests = {} if i == 0 else {"test_x": x[:i] * 2, "test_y": y[:i] + 1}
            self.save(name, train_x=x, train_y=y, **tests)

    def dense_data(self):
        random = np.random.default_rng(2)
        for i, name in enumerate(CLIENTS[:4]):
            n = [2, 4, 2, 8][i]  # their sum, too, is a power of two
            self.save(name, train_x=random.integers(-1, 2, (n, 3)) * 1.0,
                      train_y=random.integers(-3, 4, n) * 1.0)

    def wire_client(self, address, *arguments):
        with open(self.path(f"wire-{len(self.children)}.log"), "w") as out:
            child = subprocess.Popen(
                [sys.executable, WIRE_CLIENT, "--server", address, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.children.append(child)
        return child

    def train(self, config, out, processes):
        """A run with these processes: a program and the names of its clients each."""
        count = sum(len(names) for _, names in processes)
        server, address = self.start_server(config, count, out)
        clients = []
        for program, names in processes:
            folders = [self.path("data", name) for name in names]
            if program == "leeway-client":
                clients.append(self.start(program, "--server", address, *folders))
            else:
                clients.append(self.wire_client(address, *program.split()[1:], *folders))
        self.assertEqual(server.wait(TIMEOUT), 0, self.logs())
        self.assertEqual({client.wait(TIMEOUT) for client in clients}, {0}, self.logs())
        return self.show(out)

    def logs(self):
        return "\n".join(self.log(n) for n in sorted(os.listdir(self.folder)) if n.endswith(".log"))

    def assert_same_bits(self, one, other, runs):
        """All models, and what is computed from vectors, are the same; losses to a rounding."""
        for name in ("optimum.safetensors", "final.safetensors"):
            files = [self.path(run, "models", name) for run in runs]
            if os.path.exists(files[0]):
                self.assertEqual(*map(sha256_of, files), name)
        self.assertEqual(len(one["rounds"]), len(other["rounds"]))
        for a, b in zip(one["rounds"], other["rounds"]):
            self.assertEqual(a["model_sha256"], b["model_sha256"], a["round"])
            for key in ("average_drift_squared", "drift_bound"):
                self.assertEqual(a[key], b[key], a["round"])
            np.testing.assert_allclose(b["loss"], a["loss"], rtol=1e-12)
        for a, b in zip(one["probes"], other["probes"]):
            self.assertEqual(a["steps"], b["steps"])
            self.assertEqual(a["dissimilarity"], b["dissimilarity"])
        # Found by bisection over thresholds, until it is this close.
        for key, value in (one["constants"] or {}).items():
            np.testing.assert_allclose(other["constants"][key], value, rtol=1e-6)
        for a, b in zip(one["evaluations"], other["evaluations"]):
            self.assertEqual(a["test_examples"], b["test_examples"])
            np.testing.assert_allclose(b["test_loss"], a["test_loss"], rtol=1e-12)
            self.assertEqual(len(a["percentiles"]), len(b["percentiles"]))
            for p, q in zip(a["percentiles"], b["percentiles"]):
                np.testing.assert_allclose(q["loss"], p["loss"], rtol=1e-3)

    def test_the_same_bits_alone_and_mixed(self):
        a, b, c, d, e, f = CLIENTS
        self.sparse_data()
        for weighting in ("UNIFORM", "EXAMPLES"):
            config = self.write("c.textproto", SPARSE.replace("WEIGHTING", weighting))
            name = weighting.lower()
            expected = self.train(config, name, [("leeway-client", CLIENTS)])
            for out, processes in (
                    ("python", [("wire", [a]), ("wire --alone", [b, c]), ("wire", [d, e, f])]),
                    ("mixed", [("wire", [b, f]), ("leeway-client", [c]), ("wire", [a]),
                               ("leeway-client", [d, e])])):
                found = self.train(config, name + out, processes)
                self.assert_same_bits(expected, found, [name, name + out])

    def test_the_same_bits_with_dense_data(self):
        self.dense_data()
        a, b, c, d = CLIENTS[:4]
        for weighting in ("UNIFORM", "EXAMPLES"):
            config = self.write("c.textproto", DENSE.replace("WEIGHTING", weighting))
            name = weighting.lower()
            expected = self.train(config, name, [("leeway-client", [a, b, c, d])])
            found = self.train(config, name + "python", [("wire", [a]), ("wire", [b, c, d])])
            self.assert_same_bits(expected, found, [name, name + "python"])

    def test_a_large_model_is_fetched_and_reported_in_parts(self):
        """200,000 parameters: 1.6 MB, beyond what rides in an order or in one part."""
        for i, name in enumerate(CLIENTS[:4]):
            x = np.zeros((2, 200_000))
            x[0, 100 * i:100 * i + 8], x[1, -8:] = 1, (-1) ** i
            self.save(name, train_x=x, train_y=np.array([i + 1.0, -2.0]))
        config = self.write("c.textproto", """
model { linear_regression { intercept: false } }
max_update: 1073741824
phases { train { rounds: 3 local { step_size: 0.0625 steps: 2 } } }
""")
        expected = self.train(config, "cc", [("leeway-client", CLIENTS[:4])])
        found = self.train(config, "python", [("wire", CLIENTS[:1]), ("wire", CLIENTS[1:4])])
        self.assert_same_bits(expected, found, ["cc", "python"])

    def test_any_data_to_rounding(self):
        """Where the order of additions counts: the same numbers but for roundings; and a limit on
        the norm, which clips displacements and leaves drift alone. With an intercept."""
        random = np.random.default_rng(3)
        for name in CLIENTS:
            x = random.normal(size=(20, 5))
            self.save(name, train_x=x, train_y=x @ random.normal(size=5) + random.normal(size=20))
        config = self.write("c.textproto", """
seed: 9
model { linear_regression { l2: 0.125 } }
limits { max_norm: 0.05 norm_policy: CLIP }
phases { constants {} }
phases { optimum { tolerance: 1e-10 } }
phases { probe { point: OPTIMUM step_size: 0.05 steps: [1, 3, 10] } }
phases { train { rounds: 10 local { steps: 7 } } }
""")
        expected = self.train(config, "cc", [("leeway-client", CLIENTS)])
        found = self.train(config, "python", [("wire --alone", CLIENTS[:2]), ("wire", CLIENTS[2:])])
        for name in ("optimum", "final"):
            models = [np.concatenate([*map(np.ravel, read_safetensors(
                self.path(run, "models", name + ".safetensors")).values())]) for run in ("cc", "python")]
            np.testing.assert_allclose(models[1], models[0], rtol=1e-7)
            # Ten rounds of 0.05: the limit kept the model from getting anywhere near.
            self.assertEqual(np.linalg.norm(models[1]) > 0.51, name == "optimum")
        for key, value in expected["constants"].items():
            np.testing.assert_allclose(found["constants"][key], value, rtol=1e-6)
        for a, b in zip(expected["rounds"], found["rounds"]):
            for key in ("loss", "average_drift_squared", "drift_bound"):
                np.testing.assert_allclose(b[key], a[key], rtol=1e-6)
        for a, b in zip(expected["probes"][0]["steps"][1:], found["probes"][0]["steps"][1:]):
            for key in ("average_drift_squared", "drift_bound"):
                np.testing.assert_allclose(b[key], a[key], rtol=1e-6)

    def test_an_old_peer_is_refused_with_both_ranges(self):
        self.dense_data()
        config = self.write("c.textproto", DENSE.replace("WEIGHTING", "UNIFORM"))
        _, address = self.start_server(config, 1)
        client = self.wire_client(address, "--versions", 1, 2, self.path("data", CLIENTS[0]))
        self.assertEqual(client.wait(TIMEOUT), 1)
        self.assertEqual(self.log("wire-1.log"), "FAILED_PRECONDITION: this process speaks version 1 to 2 "
                         "of the protocol, the server 3; install a newer Leeway on the process's side\n")
        # One that speaks older and newer versions, too, takes part.
        client = self.wire_client(address, "--versions", 2, 9, self.path("data", CLIENTS[0]))
        self.assertEqual(client.wait(TIMEOUT), 0, self.logs())

    def test_what_a_client_cannot_do_is_said(self):
        self.dense_data()
        config = self.write("c.textproto", """
model { linear_regression { intercept: false } }
cohort { attempts: 1 }
phases { train { rounds: 1 local { step_size: 0.25 epochs: 1 batch_size: 1 } } }
""")
        server, address = self.start_server(config, 2)
        self.wire_client(address, *(self.path("data", name) for name in CLIENTS[:2]))
        self.assertNotEqual(server.wait(TIMEOUT), 0)
        for name in CLIENTS[:2]:
            self.assertIn(f"refused {name}: batch_size, encoding: this client knows 0 and EXACT only",
                          self.log("server.log"))


if __name__ == "__main__":
    unittest.main()
