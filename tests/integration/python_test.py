"""Clients in Python, against Leeway's own: the same numbers; the same bits from any number of processes and whatever
is killed; and what is said when something is wrong."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

from browser import BROWSER, Browser
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


class LayersTest(PythonCase):
    def readme(self, language, words):
        """The block of README.md in this language that has these words."""
        with open(os.path.join(SOURCE, "README.md")) as f:
            return next(b for b in re.findall(rf"```{language}\n(.*?)```", f.read(), re.DOTALL) if words in b)

    def test_the_readmes_lines_in_a_clean_environment(self):
        """As a new user: installed without a network, the quickstart, and then a network of one's own joins a server."""
        shutil.copytree(os.path.join(SOURCE, "python"), self.path("python"))  # pip builds inside
        os.symlink(os.path.join(SOURCE, "examples"), self.path("examples"))
        os.makedirs(self.path("build"))
        os.symlink(BIN, self.path("build", "bin"))
        environment = {"PATH": "/usr/bin:/bin", "HOME": self.folder, "OMP_NUM_THREADS": "1"}
        begun = time.monotonic()
        done = subprocess.run(["sh", "-ec", self.readme("sh", "pip install")], cwd=self.folder, env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("the model is in", done.stdout)
        print(f"README's lines up to the quickstart's result: {time.monotonic() - begun:.1f} s", file=sys.stderr)
        python = self.path("venv", "bin", "python3")
        said = subprocess.run([python, "-c", "import leeway, os; print(leeway.__file__, os.path.exists(os.path.join("
                               "os.path.dirname(leeway.__file__), 'py.typed')))"], check=True, cwd="/", text=True,
                              stdout=subprocess.PIPE, env=environment).stdout
        self.assertIn(self.path("venv"), said)
        self.assertIn("True", said)
        self.write("my_code.py", "import torch\nclass MyNetwork(torch.nn.Linear):\n"
                   "    def __init__(self): super().__init__(2, 3)\n"
                   "my_dataset = torch.utils.data.TensorDataset(torch.randn(30, 2), torch.arange(30) % 3)\n")
        saving, joining = self.readme("python", "my_code").split("leeway.torch.join", 1)
        subprocess.run([python, "-c", saving], check=True, cwd=self.folder, env=environment)
        config = self.write("c.textproto", re.search(r"model \{ file: .*? \}", saving)[0] +
                            " phases { train { rounds: 3 local { step_size: 0.1 steps: 2 } } }")
        server, address = self.start_server(config, 1)
        subprocess.run([python, "-c", saving + "leeway.torch.join" + joining.replace("127.0.0.1:4760", address)], check=True,
                       cwd=self.folder, env=dict(environment, LEEWAY_BIN=BIN))
        self.finish(server)
        self.assertEqual(len(self.show()["rounds"]), 3)

    def test_the_wheel_carries_what_it_needs(self):
        os.symlink(BIN, self.path("bin"))
        subprocess.run([os.path.join(SOURCE, "packaging/wheel"), self.folder, self.path("wheels")], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", self.path("venv")], check=True)
        wheel = self.path("wheels", os.listdir(self.path("wheels"))[0])
        self.assertRegex(wheel, r"py3-none-manylinux_\d+_\d+_\w+\.whl$")
        python = self.path("venv", "bin", "python3")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
        environment = {"PATH": "/usr/bin:/bin"}
        found = subprocess.run([python, "-c", "import leeway._programs as p; print(p.find('leeway-client'))"], check=True,
                               cwd="/", text=True, stdout=subprocess.PIPE, env=environment).stdout.strip()
        self.assertTrue(found.startswith(self.path("venv")), found)
        libraries = subprocess.run(["ldd", found], check=True, text=True, stdout=subprocess.PIPE, env=environment).stdout
        self.assertRegex(libraries, rf"libgrpc\+\+\S* => {self.path('venv')}")
        done = subprocess.run([python, os.path.join(SOURCE, "examples/quickstart.py"), self.path("run")], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.show()["status"], "done")

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


class LossTest(PythonCase):
    SCRIPT = """
import leeway, numpy as np, sys
seen = set()
def gradient(w, batch):
    seen.add(len(batch[0]))
    return 0.5 * float(np.mean((w - batch[0]) ** 2)), np.mean(w - batch[0], axis=0)
leeway.join(sys.argv[1], gradient=gradient, data=(np.arange(20.0).reshape(10, 2),), name="a")
print("batches of", sorted(seen))
"""

    def run_with(self, out, more):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(2)}, self.path("m.safetensors"))
        config = self.write(f"{out}.textproto", 'model { file: "m.safetensors" } phases { train { rounds: 5 drift_off: true '
                            f"local {{ step_size: 0.1 epochs: 1 batch_size: 5 }} {more} }} }}")
        server, address = self.start_server(config, 1, out)
        client = self.python(self.write("loss.py", self.SCRIPT), address)
        self.finish(server)
        self.finish(client)
        return self.show(out), self.log(client.log_name)

    def test_a_loss_that_nobody_asks_for_costs_nothing(self):
        always, said = self.run_with("always", "")
        self.assertIn("batches of [5, 10]", said)
        never, said = self.run_with("never", "loss_off: true")
        self.assertIn("batches of [5]", said)
        now_and_then, _ = self.run_with("sometimes", "loss_every: 2")
        losses = [[r["loss"] for r in run["rounds"]] for run in (always, never, now_and_then)]
        self.assertTrue(all(loss > 0 for loss in losses[0]))
        self.assertEqual(losses[1], [None] * 5)
        self.assertEqual(losses[2], [losses[0][0], None, losses[0][2], None, losses[0][4]])
        # The model is the same to the bit, and a round without loss is no trouble to those who read the records.
        self.assertEqual(len({r["rounds"][-1]["model_sha256"] for r in (always, never, now_and_then)}), 1)
        for command in ("show", "report"):
            self.run_program("leeway", command, self.path("never"))
        self.assertNotIn("nan", self.run_program("leeway", "show", self.path("sometimes"))[1])

    def test_leeways_own_models_too(self):
        data = self.synthetic(clients=3, samples=30)
        ends = []
        for more in ("", "loss_off: true"):
            config = self.write("c.textproto", "model { linear_regression {} } phases { train { rounds: 4 drift_off: true "
                                f"local {{ step_size: 0.01 epochs: 1 batch_size: 7 }} {more} }} }}")
            _, said = self.federate(config, data, out=f"own{len(more)}")
            self.assertNotIn("nan", said)
            ends.append(self.show(f"own{len(more)}"))
        self.assertEqual(ends[0]["rounds"][-1]["model_sha256"], ends[1]["rounds"][-1]["model_sha256"])
        self.assertEqual([r["loss"] for r in ends[1]["rounds"]], [None] * 4)


class MetricsTest(PythonCase):
    SCRIPT = """
import leeway, numpy as np, sys
name, examples, value = sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
for task in leeway.Client(sys.argv[1], examples=examples, name=name):
    more = {} if sys.argv[5:] and task.round == 2 else {"auc": value * task.round}
    task.report(task.model, examples=examples, metrics={"loss": 1.0, **more})
"""

    def run_metrics(self, *more, config=""):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(2)}, self.path("m.safetensors"))
        path = self.write("c.textproto", 'model { file: "m.safetensors" } weighting: EXAMPLES\n' + config +
                          'phases { train { rounds: 3 local { step_size: 0.5 steps: 1 } drift_off: true metrics: "auc" } }')
        script = self.write("metrics.py", self.SCRIPT)
        server, address = self.start_server(path, 2)
        clients = [self.python(script, address, "a", 1, 0.5), self.python(script, address, "b", 3, -2.0, *more)]
        return server, clients

    def test_weighted_means_are_in_records_table_and_report(self):
        server, clients = self.run_metrics()
        self.finish(server)
        for client in clients:
            self.finish(client)
        means = [t * (0.5 - 3 * 2.0) / 4 for t in (1, 2, 3)]
        np.testing.assert_allclose([r["metric/auc"] for r in self.show()["rounds"]], means, rtol=1e-12)
        self.run_program("leeway", "report", self.path("run"))
        with open(self.path("run", "report", "rounds.csv")) as f:
            names, *rows = [line.rstrip("\n").split(",") for line in f]
        np.testing.assert_allclose([float(r[names.index("metric/auc")]) for r in rows], means, rtol=1e-12)
        with open(self.path("run", "report", "report.html")) as f:
            self.assertIn("Metric auc over rounds", f.read())
        self.assert_on_the_dashboard()

    def assert_on_the_dashboard(self):
        if BROWSER is None:
            return
        self.start("leeway", "dashboard", self.path("run"), "--listen", "0", log="dashboard.log")
        self.await_text("dashboard.log", "http://")
        browser = Browser()
        self.addCleanup(browser.close)
        browser.open(re.search(r"http://\S+", self.log("dashboard.log"))[0])
        browser.wait("document.getElementById('measures-text').textContent.includes('metric auc')")
        browser.evaluate("document.getElementById('measures-box').open = true")
        browser.wait("document.getElementById('measure-0-metric/auc').offsetHeight > 50")

    def test_one_that_leaves_it_out_loses_its_place_in_the_round(self):
        server, clients = self.run_metrics("leave out", config="cohort { minimum_reports: 1 attempts: 1 }\n")
        self.assertEqual(clients[1].wait(TIMEOUT), 1)  # an exception in its loop
        self.assertIn("the round asks for 'auc', and the report has none", self.log(clients[1].log_name))

    def test_leeways_own_models_refuse_it(self):
        data = self.synthetic(clients=2)
        config = self.write("own.textproto", "model { linear_regression {} } cohort { attempts: 1 }\n"
                            'phases { train { rounds: 1 local { step_size: 0.1 steps: 1 } metrics: "auc" } }')
        code, said = self.federate(config, data, check=False)
        self.assertEqual(code, 1, said)
        self.assertIn("the metric 'auc', which Leeway's own models do not report", said)


class ReadTest(PythonCase):
    def test_tables_trackers_and_a_model_that_says_where_it_is_from(self):
        script = self.write("read.py", """
import json, sys
sys.path.insert(0, sys.argv[1])
import leeway, leeway.trackers, numpy as np
from leeway.config import Config, LocalRule, Probe, ReleaseTest, Train
from numpy_client import linear
class Notes:
    steps = []
    def log(self, step, metrics): self.steps.append((step, metrics.get("loss"), metrics.get("probe/drift_bound@2")))
def join(server, names):
    rng = np.random.default_rng(len(names[0]))
    leeway.join(server, gradient=linear, data={n: (rng.normal(size=(9, 2)), rng.normal(size=9)) for n in names})
config = Config(seed=3, phases=[Train(rounds=4, local=LocalRule(step_size=0.1, steps=3)),
                                Probe(point="CURRENT", step_size=0.1, steps=[1, 2]),
                                ReleaseTest(step_size=0.1, steps=[2, 3], rounds=2)])
run = leeway.simulate(config, join, clients=["a", "bb"], processes=2, model={"w": np.zeros(2)}, out=sys.argv[2],
                      trackers=[Notes()])
run.save_model(sys.argv[2] + "/mine.safetensors")
assert list(run.clients().index) == ["a", "bb"] and set(run.clients().examples) == {9}, run.clients()
rounds = run.rounds()
cosine = rounds.pairwise_cosine
np.testing.assert_allclose(rounds.update_diversity, 2 / (1 + cosine))
assert len(run.drift()) == 2 and run.status == "done"
verdict, releases = run.verdict(), run.releases()
assert list(releases.index) == list(verdict.releases.index) == [2, 3]
np.testing.assert_allclose(releases.difference, releases.local_loss - releases.synchronised_loss)
np.testing.assert_array_equal(releases.difference, verdict.releases.difference)
assert verdict.verdict and str(verdict) == verdict.sentence, verdict
assert [s for s, *_ in Notes.steps][:5] == [1, 2, 3, 4, 5], Notes.steps
assert all(loss is not None for _, loss, _ in Notes.steps[:4]) and Notes.steps[4][2] > 0
""")
        child = self.python(script, CLIENTS, self.path("run"))
        self.finish(child)
        run = self.show()
        with open(self.path("run", "mine.safetensors"), "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        origin = header["__metadata__"]
        self.assertEqual((origin["run_id"], origin["round"], origin["model"]), (run["run_id"], "4", "final"))
        with open(run["final_model"], "rb") as f:
            self.assertEqual(origin["model_sha256"], hashlib.sha256(f.read()).hexdigest())
        self.assertRegex(origin["config_sha256"], "^[0-9a-f]{64}$")
        np.testing.assert_array_equal(read_safetensors(self.path("run", "mine.safetensors"))["w"],
                                      read_safetensors(run["final_model"])["w"])


class LoaderTest(PythonCase):
    """DataLoader with forked workers inside a client: nothing of gRPC lives in this process."""

    SCRIPT = """
import sys, torch, leeway, leeway.torch
way, workers, server = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 30
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(3, generator=g)
        return x, x.sum(0, keepdim=True)
model, loss = torch.nn.Linear(3, 1), torch.nn.functional.mse_loss
loader = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
if way == "join":
    leeway.torch.join(server, model, loss, Numbers(), name="a", loader=loader, chunk=7)
else:
    for task in leeway.Client(server, examples=30, name="a"):
        leeway.torch.load_into(model, task.model)
        first = None
        for x, y in torch.utils.data.DataLoader(Numbers(), 10, **loader):
            model.zero_grad()
            value = loss(model(x), y)
            first = value.item() if first is None else first
            value.backward()
            with torch.no_grad():
                for p in model.parameters(): p -= task.step_size * p.grad
        task.report(model, metrics={"loss": first})
"""

    def test_forked_workers_change_nothing(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"weight": np.zeros((1, 3), np.float32), "bias": np.zeros(1, np.float32)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\n'
                            "phases { train { rounds: 3 drift_off: true local { step_size: 0.1 steps: 3 } } }")
        script = self.write("loader.py", self.SCRIPT)
        for way in ("join", "loop"):
            bits = []
            for workers in (0, 2):
                out = f"{way}-{workers}"
                server, address = self.start_server(config, 1, out)
                client = self.python(script, way, workers, address)
                self.finish(server)
                self.finish(client)
                bits.append([r["model_sha256"] for r in self.show(out)["rounds"]])
            self.assertEqual(bits[0], bits[1])
            self.assertEqual(len(set(bits[0])), 3)


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
        self.assertRegex(self.log(child.log_name),
                         r"Error: the run has failed: .*client 'a': ValueError: column 3 is empty")
        self.assertRegex(self.log("server.log"), r"refused a: ValueError: column 3 is empty \(client\d+.py, line 3\)")

    def failing(self, text, words):
        """A run of one client, whose tasks fail: what it says reaches the user and the server's record."""
        out = f"failing-{len(self.children)}"
        server, address = self.start_server(self.path("bad.textproto"), 1, out)
        child = self.client("import leeway, leeway.torch, torch, sys, numpy as np\n"
                            "X, Y, m = torch.ones(3, 2), torch.ones(3, 1), torch.nn.Linear(2, 1)\n" + text, address)
        self.assertEqual(server.wait(TIMEOUT), 1, self.log("server.log"))
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertRegex(self.log(child.log_name).splitlines()[-1], "Error: .*" + words)
        self.assertRegex(self.log("server.log"), "refused a: .*" + words)

    def test_an_exception_in_a_loop_of_ones_own_is_in_the_record(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(2)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\ncohort { attempts: 1 }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } drift_off: true } }")
        server, address = self.start_server(config, 1)
        child = self.client("import leeway, sys\n"
                            "for task in leeway.Client(sys.argv[1], examples=3, name='a'):\n"
                            "    raise ValueError('column 3 is\\nempty')\n", address)
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("Traceback (most recent call last)", self.log(child.log_name))
        self.await_text("server.log", "refused a: ValueError: column 3 is empty")
        self.assertRegex(self.log("server.log"), r"refused a: ValueError: column 3 is empty \(client\d+.py, line 3\)")

    def test_one_that_a_simulation_runs_too(self):
        child = self.client("import leeway, numpy as np, sys\n"
                            "def join(server, names):\n"
                            "    for task in leeway.Client(server, examples=3, name=names[0]):\n"
                            "        if task.round == 2: raise ValueError('column 3 is\\nempty')\n"
                            "        task.report(task.model, metrics={'loss': 1})\n"
                            "leeway.simulate('cohort { attempts: 1 } phases { train { rounds: 2 drift_off: true "
                            "local { step_size: 0.1 steps: 1 } } }', join, clients=['a'], model={'w': np.zeros(2)}, "
                            "out=sys.argv[1])\n", self.path("run"))
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("ValueError: column 3 is empty", self.log(child.log_name))
        self.assertRegex(self.log("run/logs/server.log"), r"refused a: ValueError: column 3 is empty \(client\d+.py, line 4\)")
        self.assertIn("Traceback (most recent call last)", self.log("run/logs/python_0.log"))

    def test_tasks_that_cannot_be_done_say_why_on_both_sides(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"weight": np.zeros((1, 2), np.float32), "bias": np.zeros(1, np.float32)}, self.path("m.safetensors"))
        self.write("bad.textproto", 'model { file: "m.safetensors" }\ncohort { attempts: 1 }\n'
                   "phases { train { rounds: 2 local { step_size: 0.1 steps: 2 } } }")
        join = "leeway.torch.join(sys.argv[1], m, {}, (X, Y), name='a')\n"
        self.failing(join.format("lambda o, t: (o - t) ** 2"), r"the loss has shape \[3, 1\]; expected a scalar")
        self.failing(join.format("lambda o, t: (o - t).mean() * float('nan')"), "is nan")
        self.failing("for task in leeway.Client(sys.argv[1], examples=3, name='a'): task.report(m, metrics={'loss': 1})\n",
                     "drift_off: true")

    def test_what_is_wrong_before_a_run_begins(self):
        start = "import leeway.torch, torch, sys, numpy as np\nloss = torch.nn.functional.mse_loss\n"
        for text, words in (
                ("leeway.torch.join('x:1', torch.nn.Linear(2, 1).half(), loss, (torch.ones(3, 2), torch.ones(3, 1)))",
                 r"tensor 'weight' is torch.float16; .*model.float\(\)"),
                ("leeway.torch.save(torch.nn.Linear(2, 1).half(), 'm')", r"float16.*model.float\(\)"),
                ("leeway.torch.join('x:1', torch.nn.Linear(2, 1), loss, (torch.ones(0, 2), torch.ones(0, 1)), name='a')",
                 "data of client 'a' has no examples"),
                ("leeway.join('x:1', gradient=max, data=(np.ones((0, 2)),), name='a')", "data of client 'a' has no examples"),
                ("leeway.join('', gradient=max, data=(np.ones((3, 2)),))", "no server: give its address"),
                ("next(iter(leeway.Client('x:1', examples=0)))", "examples is 0; give the number"),
                ("leeway.simulate('phases { train { } }', print, clients=2, model=torch.nn.Linear(2, 1))",
                 r"phases\[0\].train.rounds is 0")):
            with self.subTest(text):
                child = self.client(start + text + "\n")
                self.finish(child, 1)
                self.assertRegex(self.log(child.log_name).splitlines()[-1], "^leeway._errors.Error: .*" + words)

    def test_a_shape_that_does_not_fit(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"weight": np.zeros((1, 9), np.float32), "bias": np.zeros(1, np.float32)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        _, address = self.start_server(config, 1)
        child = self.client("import leeway.torch, torch, sys\n"
                            "leeway.torch.join(sys.argv[1], torch.nn.Linear(2, 1), torch.nn.functional.mse_loss, "
                            "(torch.ones(3, 2), torch.ones(3, 1)), name='a')\n", address)
        self.finish(child, 1)
        self.assertIn("tensor 'weight' has shape [1, 9] in the run's model and [1, 2] in this one",
                      self.log(child.log_name))

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
        data = self.synthetic(clients=1)
        client = next(n for n in os.listdir(data) if n.startswith("client"))
        code, said = self.run_program("leeway-client", "--server", address, os.path.join(data, client), check=False)
        self.assertEqual(code, 1)
        self.assertIn("--worker", said)
        # Neither has taken the place of the one client that the run waits for.
        child = self.client("import leeway, numpy as np, sys\n"
                            "leeway.join(sys.argv[1], gradient=lambda w, b: (0.5 * float(w @ w), w), data=(np.ones((3, 2)),), "
                            "name='b')\n", address)
        self.finish(server)
        self.finish(child)
        self.assertEqual([c["id"] for c in self.show()["clients"]], ["b"])

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
