"""What runs with clients in Python leave in the records: losses, metrics of one's own, tables."""

import hashlib
import json
import os
import re
import sys
import unittest

import numpy as np

from browser import BROWSER, Browser
from leeway_case import SOURCE, TIMEOUT, read_safetensors
from python_case import CLIENTS, PythonCase


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


if __name__ == "__main__":
    unittest.main()
