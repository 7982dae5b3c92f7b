"""Clients in Python, against Leeway's own: the same numbers; the same bits from any number of processes and whatever
is killed; and what is said when something is wrong."""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase, read_safetensors

CLIENTS = os.path.join(SOURCE, "tests/integration/python_clients")
ENVIRONMENT = dict(os.environ, PYTHONPATH=os.path.join(SOURCE, "python"), LEEWAY_BIN=BIN, OMP_NUM_THREADS="1",
                   OPENBLAS_NUM_THREADS="1")

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


class PythonCase(LeewayCase):
    def python(self, *arguments, log=None, env=None):
        """A Python client in the background."""
        log = log or f"python-{len(self.children)}.log"
        with open(self.path(log), "w") as out:
            child = subprocess.Popen([sys.executable, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, env=dict(ENVIRONMENT, **(env or {})))
        child.log_name = log
        self.children.append(child)
        return child

    def finish(self, child, code=0):
        self.assertEqual(child.wait(TIMEOUT), code, self.log(getattr(child, "log_name", "server.log")))

    def labelled(self, clients=12):
        """Three classes, whose share differs by client."""
        rng = np.random.default_rng(4)
        centres = rng.normal(size=(3, 4))
        for i in range(clients):
            folder = self.path("data", f"client_{i:02}")
            os.makedirs(folder)
            y = rng.choice(3, size=30, p=rng.dirichlet(np.ones(3)))
            np.save(os.path.join(folder, "train_x.npy"), centres[y] + rng.normal(size=(30, 4)))
            np.save(os.path.join(folder, "train_y.npy"), y)
        return self.path("data")

    def run_python(self, kind, config, data, processes=1, out="python"):
        """The same run with Python clients."""
        names = sorted(n for n in os.listdir(data) if n.startswith("client"))
        server, address = self.start_server(config, len(names), out)
        clients = [self.python(os.path.join(CLIENTS, "numpy_client.py"), kind, address, data, *names[i::processes])
                   for i in range(processes)]
        self.finish(server)
        for client in clients:
            self.finish(client)
        return self.show(out)


class ExactTest(PythonCase):
    def near(self, a, b, what, least=0.0):
        self.assertLessEqual(abs(a - b), max(1e-10 * abs(b), least), f"{what}: {a} and {b}")

    def compare(self, python, own):
        """Everything that the issue of a verdict rests on, to 1e-10."""
        w = [np.concatenate([t.ravel() for t in read_safetensors(r["optimum"]["model"]).values()])
             for r in (python, own)]
        self.assertLess(np.linalg.norm(w[0] - w[1]), 1e-10 * np.linalg.norm(w[1]))
        for field in ("smoothness", "convexity", "largest_client_smoothness", "smallest_client_convexity"):
            self.near(python["constants"][field], own["constants"][field], field, 1e-10)
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
        self.assertEqual(self.verdict("python"), self.verdict("own"))

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
        config = self.write("c.textproto", SOFTMAX.replace("phases { constants {} }", ""))
        self.federate(config, data, out="own")
        own = self.show("own")
        python = self.run_python("softmax", config, data, 2)
        own["constants"] = python["constants"] = dict.fromkeys(
            ("smoothness", "convexity", "largest_client_smoothness", "smallest_client_convexity"), 0.0)
        self.compare(python, own)

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


class CnnTest(PythonCase):
    CONFIG = """
seed: 5
model { cnn { classes: 5 filters: [4, 8] hidden: 16 } }
phases { probe { point: INITIAL step_size: 0.05 steps: [1, 3, 6] } }
phases { train { rounds: 3 local { step_size: 0.05 epochs: 1 batch_size: 8 } } }
"""

    def test_the_network_in_pytorch(self):
        rng = np.random.default_rng(2)
        centres = rng.random(size=(5, 12, 12))
        names = [f"client_{i:02}" for i in range(4)]
        for name in names:
            os.makedirs(self.path("data", name))
            y = rng.integers(0, 5, size=20)
            np.save(self.path("data", name, "train_x.npy"),
                    (centres[y] + 0.3 * rng.random(size=(20, 12, 12))).astype(np.float32))
            np.save(self.path("data", name, "train_y.npy"), y)
        config = self.write("c.textproto", self.CONFIG)
        self.federate(config, self.path("data"), out="own")
        server, address = self.start_server(config, 4, "python")
        client = self.python(os.path.join(CLIENTS, "cnn_client.py"), address, self.path("data"), *names)
        self.finish(server)
        self.finish(client)
        own, python = self.show("own"), self.show("python")
        for a, b in zip(python["probes"][0]["steps"], own["probes"][0]["steps"]):
            for field in ("average_drift_squared", "drift_bound"):
                self.assertLessEqual(abs(a[field] - b[field]), 1e-4 * b[field], field)
        self.assertLessEqual(abs(python["probes"][0]["gradient_norm"] - own["probes"][0]["gradient_norm"]),
                             1e-4 * own["probes"][0]["gradient_norm"])
        for a, b in zip(python["rounds"], own["rounds"]):
            self.assertLessEqual(abs(a["loss"] - b["loss"]), 1e-4 * b["loss"])
            self.assertLessEqual(abs(a["average_drift_squared"] - b["average_drift_squared"]),
                                 1e-3 * b["average_drift_squared"])


class LayersTest(PythonCase):
    def test_the_package_installs_without_a_network(self):
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", self.path("venv")], check=True)
        shutil.copytree(os.path.join(SOURCE, "python"), self.path("python"))  # pip builds inside
        python = self.path("venv", "bin", "python3")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "./python"],
                       check=True, cwd=self.folder)
        said = subprocess.run([python, "-c", "import leeway, os; print(leeway.__file__, os.path.exists(os.path.join("
                               "os.path.dirname(leeway.__file__), 'py.typed')))"], check=True, cwd="/", text=True,
                              stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}).stdout
        self.assertIn(self.path("venv"), said)
        self.assertIn("True", said)

    def test_the_quickstart(self):
        child = self.python(os.path.join(SOURCE, "examples/quickstart.py"), self.path("quick"))
        self.finish(child)
        run = self.show("quick")
        self.assertEqual(run["status"], "done")
        self.assertEqual(run["probes"][0]["steps"][0]["average_drift_squared"], 0)
        self.assertGreater(run["evaluations"][-1]["accuracy"], 0.9)
        with open(os.path.join(SOURCE, "examples/quickstart.py")) as f:
            lines = [line for line in f if line.strip() and not line.strip().startswith("#")]
        self.assertLessEqual(len(lines), 60)

    def test_a_training_loop_of_ones_own(self):
        script = self.write("own.py", """
import leeway, numpy as np, sys
name, target = sys.argv[2], float(sys.argv[3])
for task in leeway.Client(sys.argv[1], examples=3, name=name):
    w = task.model["w"]
    loss = 0.5 * np.sum((w - target) ** 2)
    for _ in range(task.steps):
        w -= task.step_size * (w - target)
    task.report({"w": w}, metrics={"loss": loss})
""")
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(2)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\n'
                            "phases { train { rounds: 3 local { step_size: 0.5 steps: 1 } drift_off: true } }")
        server, address = self.start_server(config, 2)
        clients = [self.python(script, address, name, target) for name, target in (("a", 1), ("b", 3))]
        self.finish(server)
        for client in clients:
            self.finish(client)
        # A round halves the distance to the mean of the targets.
        run = self.show()
        np.testing.assert_allclose(read_safetensors(run["final_model"])["w"], 2 * (1 - 0.5 ** 3), rtol=1e-10)
        self.assertAlmostEqual(run["rounds"][0]["loss"], (1 + 9) / 2, places=9)


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


class BadInputTest(PythonCase):
    def client(self, text, *arguments):
        return self.python(self.write(f"client{len(self.children)}.py", text), *arguments)

    def test_no_server_and_no_binary(self):
        text = ("import leeway, numpy as np, sys\n"
                "leeway.join(sys.argv[1], gradient=lambda w, b: (0.0, w), data=(np.ones((3, 2)), np.ones(3)), give_up=0.1)\n")
        child = self.client(text, "127.0.0.1:1")
        self.finish(child, 1)
        self.assertIn("leeway._errors.Error: no server at 127.0.0.1:1", self.log(child.log_name))
        child = self.python(self.write("c.py", text), "127.0.0.1:1", env={"LEEWAY_BIN": "/nowhere"})
        self.finish(child, 1)
        self.assertIn("there is no program /nowhere/leeway-client", self.log(child.log_name))

    def test_an_exception_reaches_the_user_and_the_record_in_one_line(self):
        config = self.write("c.textproto", "model { linear_regression { intercept: false } }\ncohort { attempts: 1 }\n"
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        server, address = self.start_server(config, 1)
        child = self.client("import leeway, numpy as np, sys\n"
                            "def f(w, batch):\n    raise ValueError('column 3 is\\nempty')\n"
                            "leeway.join(sys.argv[1], gradient=f, data=(np.ones((3, 2)), np.ones(3)), name='a')\n", address)
        self.assertEqual(server.wait(TIMEOUT), 1)
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("Traceback (most recent call last)", self.log(child.log_name))
        self.assertIn("Error: the run is over, and the last task here failed: ValueError: column 3 is empty",
                      self.log(child.log_name))
        self.assertRegex(self.log("server.log"), r"refused a: ValueError: column 3 is empty \(client\d+.py, line 3\)")

    def test_a_model_that_does_not_fit(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(6, np.float32)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        server, address = self.start_server(config, 1)
        child = self.client("import leeway.torch, torch, sys\n"
                            "m = torch.nn.Linear(2, 1)\n"
                            "leeway.torch.join(sys.argv[1], m, torch.nn.functional.mse_loss, "
                            "(torch.ones(3, 2), torch.ones(3, 1)), name='a')\n", address)
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("the run's model has a tensor 'w', this model has not", self.log(child.log_name))
        _, address = self.start_server(config, 1, "other")  # the first has its one client
        data = self.synthetic(clients=1)
        client = next(n for n in os.listdir(data) if n.startswith("client"))
        code, said = self.run_program("leeway-client", "--server", address, os.path.join(data, client), check=False)
        self.assertEqual(code, 1)
        self.assertIn("--worker", said)

    def test_a_model_file_that_is_missing_or_float16(self):
        config = self.write("c.textproto", 'model { file: "none.safetensors" }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        code, said = self.run_program("leeway-server", "--config", config, "--state", self.path("s"), "--clients", 1,
                                      check=False)
        self.assertNotEqual(code, 0)
        self.assertIn("none.safetensors", said)
        header = b'{"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}  '
        with open(self.path("none.safetensors"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + b"\0" * 4)
        code, said = self.run_program("leeway-server", "--config", config, "--state", self.path("s"), "--clients", 1,
                                      check=False)
        self.assertNotEqual(code, 0)
        self.assertIn('tensor "w" is F16', said)


if __name__ == "__main__":
    unittest.main()
