"""Every program of examples/ in a small form, and the notebook."""

import difflib
import json
import os
import re
import subprocess
import sys
import unittest

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

EXAMPLES = os.path.join(SOURCE, "examples")
ENVIRONMENT = dict(os.environ, PYTHONPATH=os.path.join(SOURCE, "python"), LEEWAY_BIN=BIN, OMP_NUM_THREADS="1",
                   OPENBLAS_NUM_THREADS="1")


def code_lines(name):
    """Lines of an example without blanks and comments."""
    with open(os.path.join(EXAMPLES, name)) as f:
        return [line.rstrip() for line in f if line.strip() and not line.strip().startswith("#")]


class ExamplesTest(LeewayCase):
    def example(self, name, *arguments):
        done = subprocess.run([sys.executable, os.path.join(EXAMPLES, name), *map(str, arguments)], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT,
                              env=ENVIRONMENT, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_all_are_tested(self):
        with open(__file__) as f:
            text = f.read()
        for name in os.listdir(EXAMPLES):
            if name.endswith(".py"):
                self.assertIn(f'"{name}"', text)

    def test_the_quickstart(self):
        self.example("quickstart.py", self.path("quick"))
        run = self.show("quick")
        self.assertEqual(run["status"], "done")
        self.assertEqual(run["probes"][0]["steps"][0]["average_drift_squared"], 0)
        self.assertGreater(run["evaluations"][-1]["accuracy"], 0.9)
        self.assertLessEqual(len(code_lines("quickstart.py")), 60)

    def test_adding_leeway_to_a_script_takes_ten_lines(self):
        plain, federated = ([line for line in code_lines(name) if not line.startswith('"""')]
                            for name in ("train.py", "train_federated.py"))
        added = [line for line in difflib.ndiff(plain, federated) if line.startswith("+ ")]
        self.assertLessEqual(len(added), 10, added)
        alone, together = (float(re.search(r"accuracy ([\d.]+)", self.example(name))[1])
                           for name in ("train.py", "train_federated.py"))
        self.assertGreaterEqual(together, alone)  # from four times the data

    def test_numpy(self):
        said = self.example("numpy_regression.py", self.path("numpy"))
        self.assertIn("Heterogeneity does not hurt here up to H = 16", said)
        self.assertEqual(self.show("numpy")["status"], "done")

    def test_flower(self):
        self.example("flower_client.py", self.path("flower"))
        run = self.show("flower")
        self.assertLess(run["rounds"][-1]["loss"], 0.03)  # from 2.5
        self.assertGreater(run["rounds"][0]["average_drift_squared"], 0)
        self.assertEqual(run["evaluations"][0]["test_examples"], 40)

    def test_a_residual_network_with_either_normalisation(self):
        for norm in ("group", "batch"):
            self.example("resnet_fashion.py", "--norm", norm, "--clients", 3, "--rounds", 2, "--examples", 300, "--width", 4,
                         "--out", self.path(norm))
            run = self.show(norm)
            self.assertEqual(run["status"], "done")
            self.assertLess(run["rounds"][1]["loss"], run["rounds"][0]["loss"])
            self.assertEqual(run["probes"][0]["steps"][0]["average_drift_squared"], 0)

    def test_a_transformer_the_diloco_way(self):
        text = self.write("text.txt", "Shall I compare thee to a summer's day? Thou art more lovely and more temperate. " * 40)
        self.example("transformer_diloco.py", text, "--clients", 2, "--rounds", 3, "--steps", 50, "--width", 16,
                     "--out", self.path("diloco"))
        rounds = self.show("diloco")["rounds"]
        self.assertEqual([r["local_steps"] for r in rounds], [50] * 3)
        self.assertLess(rounds[2]["loss"], rounds[0]["loss"])
        for one in rounds:
            self.assertGreater(one["consensus_error"], 0)
            self.assertLessEqual(abs(one["pairwise_cosine"]), 1)
            self.assertIsNone(one["average_drift_squared"])


class NotebookTest(LeewayCase):
    def test_the_notebook_runs_from_top_to_bottom(self):
        import nbclient
        import nbformat
        path = os.path.join(SOURCE, "docs/notebooks/pytorch.ipynb")
        with open(path) as f:
            raw = json.load(f)
        self.assertTrue(all(not cell.get("outputs") for cell in raw["cells"]), "clear the outputs before you commit")
        notebook = nbformat.read(path, as_version=4)
        os.environ.update({k: ENVIRONMENT[k] for k in ("PYTHONPATH", "LEEWAY_BIN", "OMP_NUM_THREADS")})
        os.environ["IPYTHONDIR"] = self.path("ipython")
        os.environ["JUPYTER_RUNTIME_DIR"] = self.path("runtime")
        nbclient.NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3",
                                resources={"metadata": {"path": self.folder}}).execute()
        outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
        text = " ".join(out.get("text", "") + str(out.get("data", {}).get("text/plain", "")) for out in outputs)
        self.assertIn("phase 4 of 4, fixed_point", text)  # the bar of its simulation
        self.assertRegex(text, "Heterogeneity")
        self.assertEqual(sum("image/png" in out.get("data", {}) for out in outputs), 2)


if __name__ == "__main__":
    unittest.main()
