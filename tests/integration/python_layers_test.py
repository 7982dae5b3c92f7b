"""The ways to take part in Python, as a new user meets them: the lines of README and docs/python.md, simulations, loops of one's
own, DataLoader's workers."""

import os
import re
import shutil
import subprocess
import sys
import time
import unittest

import numpy as np

from leeway_case import BIN, SOURCE, TIMEOUT, read_safetensors
from python_case import CLIENTS, ENVIRONMENT, PythonCase


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
        environment = {"PATH": "/usr/bin:/bin", "HOME": self.folder, "OMP_NUM_THREADS": "1", "PIP_NO_INDEX": "1"}  # no network
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

    def snippet(self, words):
        """The block of docs/python.md that has these words."""
        with open(os.path.join(SOURCE, "docs/python.md")) as f:
            return next(b for b in re.findall(r"```python\n(.*?)```", f.read(), re.DOTALL) if words in b)

    def run_snippet(self, words, before, address=None):
        text = before + self.snippet(words)
        if address is not None:
            text = re.sub(r",\s*tls_ca=.*(?=\)\n)", "", text)  # the test's server is on this machine
            text = re.sub(r'"[\w.]+:4760"', repr(address), text)
        done = subprocess.run([sys.executable, self.write("snippet.py", text)], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, env=ENVIRONMENT, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def served(self, config):
        return self.start_server(self.write("c.textproto", config), 1, f"run-{len(self.children)}")

    def test_the_pages_snippets_that_join(self):
        network = ("import torch\nclass MyNetwork(torch.nn.Linear):\n    def __init__(self): super().__init__(2, 3)\n"
                   "my_dataset = torch.utils.data.TensorDataset(torch.randn(30, 2), torch.arange(30) % 3)\n")
        self.run_snippet("MyNetwork()", network + "import leeway.torch\nleeway.torch.join = lambda *a, **k: None\n")  # writes the file
        rounds = "phases { train { rounds: 2 local { step_size: 0.1 epochs: 1 batch_size: 5 } %s } }"
        server, address = self.served('model { file: "initial.safetensors" }' + rounds % "")
        self.run_snippet("MyNetwork()", network, address)
        self.finish(server)
        server, address = self.served("model { linear_regression { intercept: false } }" + rounds % "")
        self.run_snippet("def gradient", "import leeway, numpy as np\nx, y = np.random.rand(9, 6), np.random.rand(9)\n", address)
        self.finish(server)
        server, address = self.served('model { file: "initial.safetensors" }' + rounds % 'drift_off: true metrics: "perplexity"')
        self.run_snippet("leeway.Client", network + "import leeway\nmodel, data = MyNetwork(), my_dataset\n"
                         "def train(model, data, epochs): return 1.0\ndef perplexity(model, data): return 2.0\n", address)
        self.finish(server)
        self.assertEqual(self.show(f"run-{len(self.children) - 1}")["rounds"][1]["metric/perplexity"], 2)

    def test_the_pages_snippets_of_a_simulation(self):
        join = """import leeway, numpy as np, sys, torch, types
def join(server, names):
    rng = np.random.default_rng(1)
    leeway.join(server, gradient=lambda w, b: (0.5 * np.mean((b[0] @ w - b[1]) ** 2), b[0].T @ (b[0] @ w - b[1]) / len(b[1])),
                data={n: (rng.normal(size=(9, 2)), rng.normal(size=9)) for n in names})
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
model = Module()
config = "phases { train { rounds: 2 local { step_size: 0.1 steps: 3 } } } phases { release { step_size: 0.1 steps: 3 rounds: 2 } }"
"""
        self.run_snippet("leeway.simulate(config, join, clients=100, model=model", join)
        self.assertIn("step_size: 0.1", self.run_snippet("LocalRule, Probe", ""))
        stand_ins = """
leeway.save({"w": np.zeros(2)}, "m.safetensors")
config = "model { file: '" + __file__.replace("snippet.py", "m.safetensors") + "' } " + config
logged = []
mlflow, boards = types.ModuleType("mlflow"), types.ModuleType("torch.utils.tensorboard")
mlflow.log_metrics = lambda metrics, step=None: logged.append(step)
class SummaryWriter:
    def __init__(self, log_dir=None): pass
    def add_scalar(self, tag, scalar_value, global_step=None): logged.append(global_step)
    def flush(self): pass
boards.SummaryWriter = SummaryWriter
sys.modules.update({"mlflow": mlflow, "torch.utils.tensorboard": boards})
import atexit
atexit.register(lambda: print("logged", sorted(set(logged))))
"""
        self.assertIn("logged [1, 2", self.run_snippet("trackers=[", join + stand_ins))

    def test_own_and_python_clients_in_one_run(self):
        """docs/models.md: both at the same time, with the numbers of Leeway's own alone."""
        data = self.synthetic(clients=4, samples=30, dimension=5)
        names = sorted(n for n in os.listdir(data) if n.startswith("client"))
        config = self.write("c.textproto", "seed: 3\nmodel { linear_regression { intercept: false } }\n"
                            "phases { train { rounds: 4 local { step_size: 0.02 epochs: 1 batch_size: 7 } } }\n")
        self.federate(config, data, out="own")
        server, address = self.start_server(config, 4, "both")
        python = self.python(os.path.join(CLIENTS, "numpy_client.py"), "linear", address, data, *names[:2])
        client = self.start("leeway-client", "--server", address, *(os.path.join(data, n) for n in names[2:]), log="own.log")
        self.finish(server)
        self.finish(python)
        self.assertEqual(client.wait(TIMEOUT), 0, self.log("own.log"))
        for mine, theirs in zip(self.show("both")["rounds"], self.show("own")["rounds"]):
            for field in ("loss", "average_drift_squared", "drift_bound"):
                np.testing.assert_allclose(mine[field], theirs[field], rtol=1e-10)

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


    def test_a_simulation_after_the_parent_has_computed_with_several_threads(self):
        """OpenMP's threads do not survive a fork: a client that waited for them would wait forever."""
        child = self.python(self.write("threads.py", """
import leeway, leeway.torch, torch, sys
torch.set_num_threads(4)
x, y = torch.randn(300, 200), torch.randint(0, 3, (300,))
model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Tanh(), torch.nn.Linear(200, 3))
torch.nn.functional.cross_entropy(model(x), y).backward()
def join(server, names):
    print("threads:", torch.get_num_threads())
    leeway.torch.join(server, model, torch.nn.functional.cross_entropy, {n: (x, y) for n in names})
leeway.simulate("phases { train { rounds: 1 local { step_size: 0.1 steps: 2 } } }", join, clients=2, processes=2, model=model,
                out=sys.argv[1])
"""), self.path("run"))
        self.finish(child)
        self.assertEqual(self.show()["status"], "done")
        for i in range(2):
            self.assertIn("threads: 1\n", self.log(f"run/logs/python_{i}.log"))


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


if __name__ == "__main__":
    unittest.main()
