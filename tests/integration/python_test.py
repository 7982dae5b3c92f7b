"""Clients in Python, against Leeway's own: the same numbers; the same bits from any number of processes and whatever
is killed."""

import os
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

from leeway_case import BIN, SOURCE, TIMEOUT, read_safetensors
from python_case import CLIENTS, ENVIRONMENT, PythonCase

PHASES = """
phases { optimum { tolerance: 1e-12 } }
phases { constants {} }
phases { probe { point: OPTIMUM step_size: 0.02 steps: [1, 4, 20] } }
phases { train { rounds: 6 local { step_size: 0.02 steps: 10 } probe { step_size: 0.02 steps: [1, 8] } probe_at: 3 } }
phases { train { rounds: 3 local { step_size: 0.02 epochs: 2 batch_size: 8 } } }
phases { probe { point: CURRENT step_size: 0.02 steps: [2, 6] batch_size: 8 repeats: 4 } }
phases { fixed_point { steps: [5, 20] step_size: 0.02 tolerance: 1e-12 } }
"""
LINEAR = "seed: 3\nmodel { linear_regression { intercept: false } }\nmax_update: 4096\n" + PHASES
SOFTMAX = "seed: 3\nmodel { softmax_regression { classes: 3 l2: 0.01 } }\n" + PHASES


class ExactTest(PythonCase):
    def near(self, a, b, what, least=0.0):
        self.assertLessEqual(abs(a - b), max(1e-10 * abs(b), least), f"{what}: {a} and {b}")

    def compare(self, python, own, constants=1e-10):
        """Everything that the issue of a verdict rests on, to 1e-10; constants to what is given."""
        w = [np.concatenate([t.ravel() for t in read_safetensors(r["optimum"]["model"]).values()])
             for r in (python, own)]
        self.assertLess(np.linalg.norm(w[0] - w[1]), 1e-10 * np.linalg.norm(w[1]))
        for field in ("smoothness", "convexity", "largest_client_smoothness", "smallest_client_convexity",
                      "mean_hessian_dissimilarity"):
            self.near(python["constants"][field], own["constants"][field], field, constants)
        self.assertEqual(len(python["probes"]), len(own["probes"]))
        for mine, theirs in zip(python["probes"], own["probes"]):
            self.near(mine["dissimilarity"], theirs["dissimilarity"], "dissimilarity")
            for a, b in zip(mine["steps"], theirs["steps"]):
                for field in ("average_drift_squared", "drift_bound", "unbiased_drift_squared"):
                    self.near(a[field], b[field], f"{field} after {b['h']}", 1e-24)
                for field in ("iterate_bias_squared", "pseudo_gradient_variance"):
                    self.assertEqual(a[field] is None, b[field] is None)
                    if b[field] is not None:
                        self.near(a[field], b[field], field, 1e-14)
        self.assertEqual(len(python["rounds"]), len(own["rounds"]))
        for mine, theirs in zip(python["rounds"], own["rounds"]):
            for field in ("loss", "average_drift_squared", "drift_bound"):
                self.near(mine[field], theirs[field], field)
        for mine, theirs in zip(python["fixed_points"], own["fixed_points"]):
            self.near(mine["loss_standard_error"], theirs["loss_standard_error"], "standard error")
            # A difference of two losses, each of which agrees to 1e-10.
            self.near(mine["loss_gap"], theirs["loss_gap"], "loss gap", 1e-10)

    def verdict(self, out):
        return self.run_program("leeway", "drift", self.path(out))[1].splitlines()[0]

    def test_linear_regression(self):
        data = self.synthetic(clients=12, samples=40, dimension=6)
        config = self.write("c.textproto", LINEAR)
        self.federate(config, data, out="own")
        self.compare(self.run_python("linear", config, data, 3), self.show("own"))
        # Nobody asks a worker for its targets: the share is of what is better than the initial model.
        first = lambda run: self.verdict(run).split(": where")[0]
        self.assertEqual(first("python"), first("own"))

    def test_an_intercept(self):
        """The same numbers with torch.nn.Linear, and its names and shapes in the model file."""
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway.torch
        import torch
        data = self.synthetic(clients=6, samples=40, dimension=5)
        for name in os.listdir(data):
            path = os.path.join(data, name, "train_y.npy")
            if os.path.exists(path):
                np.save(path, np.load(path) + 3)
        config = self.write("c.textproto", "seed: 3\nmodel { linear_regression {} }\nmax_update: 4096\n"
                            "phases { train { rounds: 6 local { step_size: 0.02 steps: 10 } } }\n")
        self.federate(config, data, out="own")
        self.run_python("torch_linear", config, data, 2)
        own, python = self.show("own"), self.show("python")
        for mine, theirs in zip(python["rounds"], own["rounds"]):
            for field in ("loss", "average_drift_squared", "drift_bound"):
                self.near(mine[field], theirs[field], field)
        model = leeway.torch.load_into(torch.nn.Linear(5, 1, dtype=torch.float64), own["final_model"])
        tensors = read_safetensors(own["final_model"])
        x = np.arange(5.0)
        self.assertAlmostEqual(model(torch.from_numpy(x)).item(), tensors["weight"][0] @ x + tensors["bias"][0])
        self.assertGreater(tensors["bias"][0], 0.1)

    def test_softmax_regression(self):
        data = self.labelled()
        config = self.write("c.textproto", SOFTMAX)
        self.federate(config, data, out="own")
        # Leeway's own Hessians are differences of gradients over 1e-4: correct to about 1e-9 where they are not affine.
        self.compare(self.run_python("softmax", config, data, 2), self.show("own"), constants=1e-8)
        self.assertEqual(self.verdict("python"), self.verdict("own"))

    def test_a_model_from_a_file_is_the_same_model(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        data = self.synthetic(clients=12, samples=40, dimension=6)
        os.mkdir(self.path("models"))
        leeway.save({"w": np.zeros(6)}, self.path("models", "zero.safetensors"))
        own = self.write("own.textproto", LINEAR)
        file = self.write("file.textproto", LINEAR.replace("linear_regression { intercept: false }", 'file: "models/zero.safetensors"'))
        self.federate(own, data, out="own")
        self.compare(self.run_python("linear", file, data, 2), self.show("own"))


class NetworksTest(PythonCase):
    """leeway.torch_models against the models that Leeway contains."""

    PHASES = """
phases { probe { point: INITIAL step_size: 0.05 steps: [1, 3, 6] } }
phases { train { rounds: 3 local { step_size: 0.05 epochs: 1 batch_size: 8 } } }
"""

    def images(self, rng):
        centres = rng.random(size=(5, 28, 28))
        y = rng.integers(0, 5, size=20)
        return (centres[y] + 0.3 * rng.random(size=(20, 28, 28))).astype(np.float32), y

    def tokens(self, rng):
        text = rng.integers(1, 9, size=(20, 8))
        text[rng.integers(0, 20, 5), 6:] = 0  # padding
        return text[:, :-1], text[:, 1:]

    def compare(self, kind, model, make_data):
        rng = np.random.default_rng(2)
        names = [f"client_{i:02}" for i in range(4)]
        for name in names:
            os.makedirs(self.path("data", name))
            for axis, values in zip("xy", make_data(rng)):
                np.save(self.path("data", name, f"train_{axis}.npy"), values)
        config = self.write("c.textproto", f"seed: 5\nmodel {{ {model} }}\n" + self.PHASES)
        self.federate(config, self.path("data"), out="own")
        server, address = self.start_server(config, 4, "python")
        client = self.python(os.path.join(CLIENTS, "network_client.py"), kind, address, self.path("data"), *names)
        self.finish(server)
        self.finish(client)
        own, python = self.show("own"), self.show("python")
        near = lambda a, b, least=0.0: self.assertLessEqual(abs(a - b), max(1e-4 * abs(b), least))
        for a, b in zip(python["probes"][0]["steps"], own["probes"][0]["steps"]):
            for field in ("average_drift_squared", "drift_bound"):
                near(a[field], b[field], 1e-12)  # floats, of values around 1
        near(python["probes"][0]["gradient_norm"], own["probes"][0]["gradient_norm"])
        for a, b in zip(python["rounds"], own["rounds"]):
            near(a["loss"], b["loss"])
            near(a["average_drift_squared"], b["average_drift_squared"])
            near(a["drift_bound"], b["drift_bound"])
        # The trained model of either run is one of the other's Module.
        for run in (own, python):
            tensors = read_safetensors(run["final_model"])
            self.assertEqual({n: t.shape for n, t in tensors.items()},
                             {n: t.shape for n, t in read_safetensors(own["final_model"]).items()})

    def test_the_papers_network(self):
        self.compare("cnn", "cnn { classes: 62 }", self.images)

    def test_the_perceptron(self):
        self.compare("mlp", "mlp { hidden: [10, 7] classes: 5 }", self.images)

    def test_the_language_model(self):
        self.compare("lstm", "lstm { vocabulary: 9 embedding: 4 hidden: [6, 5] projection: 3 }", self.tokens)


class SameBitsTest(PythonCase):
    CONFIG = """
seed: 7
model { linear_regression { intercept: false } }
cohort { size: 6 }
phases { train { rounds: 40 local { step_size: 0.01 epochs: 1 batch_size: 8 } } }
phases { probe { point: CURRENT step_size: 0.01 steps: [1, 5] clients: 8 } }
"""

    def final(self, out):
        return self.show(out)["rounds"][-1]["model_sha256"], self.show(out)["probes"][0]["steps"]

    def test_one_three_and_ten_processes(self):
        data = self.synthetic(clients=10, samples=30, dimension=5)
        config = self.write("c.textproto", self.CONFIG)
        self.run_python("linear", config, data, 1, "one")
        for processes, out in ((3, "three"), (10, "ten")):
            self.run_python("linear", config, data, processes, out)
            self.assertEqual(self.final(out), self.final("one"))

    def test_whatever_is_killed(self):
        """30 kills, each after the run has moved on: of Python, of leeway-client under Python, of Python under
        leeway-client, and of the server."""
        data = self.synthetic(clients=10, samples=30, dimension=5)
        config = self.write("c.textproto", self.CONFIG.replace("rounds: 40", "rounds: 400"))
        self.run_python("linear", config, data, 2, "calm")
        rng = np.random.default_rng(1)
        names = sorted(n for n in os.listdir(data) if n.startswith("client"))
        script = os.path.join(CLIENTS, "numpy_client.py")
        server, address = self.start_server(config, 10, "wild")
        port = address

        def start_python():
            return self.python(script, "linear", port, data, *names[:5])

        def start_client():
            command = " ".join([sys.executable, script, "linear", "-", data, *names[5:]])
            with open(self.path("hosted.log"), "a") as out:
                child = subprocess.Popen([os.path.join(BIN, "leeway-client"), "--server", port, "--worker", command],
                                         stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=ENVIRONMENT)
            self.children.append(child)
            return child

        python, client = start_python(), start_client()
        kills = 0
        while kills < 30 and server.poll() is None:
            # A kill counts when the run was under way at the time.
            before = self.rounds("wild")
            self.await_progress("wild", before, server)
            if server.poll() is not None:
                break
            victim = int(rng.integers(4))
            if victim == 0:
                python.kill()
                python.wait()
                python = start_python()
            elif victim == 1:
                self.kill_children(python.pid)
            elif victim == 2:
                self.kill_children(client.pid)
            else:
                server.kill()
                server.wait()
                server = self.start(
                    "leeway-server", "--config", config, "--state", self.path("wild"), "--clients", 10, "--listen", port,
                    "--address-file", self.path("wild.address"), log=f"server-{kills}.log")
            kills += 1
        self.finish(server)
        self.finish(python)
        self.assertEqual(client.wait(TIMEOUT), 0, self.log("hosted.log"))
        self.assertGreaterEqual(kills, 30)
        self.assertEqual(self.final("wild"), self.final("calm"))

    def rounds(self, out):
        import sqlite3
        try:
            with sqlite3.connect(f"file:{self.path(out)}/run.db?mode=ro", uri=True) as db:
                return db.execute("SELECT max(round) FROM rounds").fetchone()[0] or 0
        except sqlite3.OperationalError:
            return 0

    def await_progress(self, out, before, server):
        deadline = time.monotonic() + TIMEOUT
        while self.rounds(out) <= before and server.poll() is None:
            self.assertLess(time.monotonic(), deadline, "the run stands still")
            time.sleep(0.01)

    def kill_children(self, pid):
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as f:
                for child in f.read().split():
                    os.kill(int(child), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass


if __name__ == "__main__":
    unittest.main()
