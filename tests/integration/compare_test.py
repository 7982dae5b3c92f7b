"""`leeway compare` over real runs: what it says is what each run's own `leeway show` and `leeway drift` say."""

import json
import os
import unittest

from drawn_charts import assert_charts_are_drawn
from leeway_case import LeewayCase

TRAIN = """seed: 3 model {{ linear_regression {{ intercept: false }} }}
phases {{ train {{ rounds: {rounds} local {{ step_size: 0.02 {rule} }} }} }} {more}"""


class CompareTest(LeewayCase):
    def train(self, name, data, rule="steps: 1", rounds=8, more=""):
        self.federate(self.write(name + ".textproto", TRAIN.format(rule=rule, rounds=rounds, more=more)), data,
                      out=name, processes=1)
        return self.path(name)

    def compare(self, *arguments, check=True):
        return self.run_program("leeway", "compare", *arguments, check=check)

    def test_runs_in_one_table_and_on_one_page(self):
        data = self.synthetic(clients=6, samples=30, dimension=4, conflict=0.5)
        release = "phases { release { step_size: 0.02 steps: [2, 10] } }"
        runs = [self.train("one", data), self.train("ten", data, "steps: 10", more=release),
                self.train("auto", data, "auto_steps { largest: 16 }", rounds=12),
                self.train("scaffold", data, "steps: 10 scaffold {}")]
        _, text = self.compare(*runs, "--json")
        found = json.loads(text)
        self.assertEqual(found["warnings"], [])
        self.assertIn("train.local.steps", found["differing_settings"])
        for run, row in zip(("one", "ten", "auto", "scaffold"), found["runs"]):
            shown = self.show(run)
            self.assertEqual(row["name"], run)
            self.assertEqual(row["run_id"], shown["run_id"])
            self.assertEqual(row["loss"], shown["final_loss"]["loss"])
            self.assertEqual(row["rounds"], len(shown["rounds"]))
            self.assertEqual(row["unbiased_drift_squared"], shown["rounds"][-1]["unbiased_drift_squared"])
            self.assertEqual(row["final_sha256"], shown["models"]["final"]["sha256"])
        one, ten, auto, scaffold = found["runs"]
        # A model of four float64 down, displacement and drift up, for 6 clients in 8 rounds.
        self.assertEqual(one["bytes"], 8 * 6 * 3 * 4 * 8)
        self.assertEqual(scaffold["bytes"], 8 * 6 * 5 * 4 * 8)  # a control variate each way
        self.assertEqual(auto["local_steps"].split(" to ")[0], "16")
        self.assertIsNone(one["verdict"])
        _, drift = self.run_program("leeway", "drift", self.path("ten"), "--json")
        self.assertEqual((ten["verdict"], ten["sentence"]),
                         (json.loads(drift)["verdict"], json.loads(drift)["sentence"]))
        page = self.path("page.html")
        _, text = self.compare(*runs, "--out", page)
        self.assertIn(f"Page: {page}", text)
        for row in found["runs"]:
            self.assertIn(f"{row['loss']:.6g}", text)
            self.assertIn(row["final_sha256"][:16], text)
        self.assertLessEqual(max(map(len, text.split("\n\n")[0].splitlines())), 100)
        with open(page) as f:
            self.assertEqual(f.read().count("<figure"), 5)
        assert_charts_are_drawn(self, page, 5)
        with open(self.path("page_files", "loss_over_rounds.csv")) as f:
            rows = [line.split(",") for line in f.read().splitlines()[1:]]
        last = {r[0]: float(r[2]) for r in rows}
        self.assertEqual(last, {row["name"]: row["loss"] for row in found["runs"]})

    def test_other_data_and_models_are_compared_with_a_warning(self):
        first = self.train("one", self.synthetic(clients=6, samples=30, dimension=4))
        other = self.synthetic("more", clients=5, samples=30, dimension=4)
        config = TRAIN.format(rule="steps: 2", rounds=4, more="").replace("intercept: false", "intercept: true")
        self.federate(self.write("b.textproto", config), other, out="b", processes=1)
        _, text = self.compare(first, self.path("b"))
        self.assertIn("Warning: one and b train different models", text)
        self.assertIn("Warning: one and b have different clients or data", text)

    def test_wrong_usage_names_the_run_and_the_remedy(self):
        run = self.train("one", self.synthetic(clients=3, samples=10, dimension=2), rounds=2)
        for arguments, words in (
                ((run,), ("two runs or more", "leeway show")),
                ((run, run + "/"), (f"{run}/ is the same run as {run}", "give each run once")),
                ((run, self.path("nowhere")), (self.path("nowhere"), "leeway run")),
                ((run, self.path("nowhere"), "--out", self.path("page")), ("--out", ".html"))):
            code, text = self.compare(*arguments, check=False)
            self.assertEqual(code, 2, text)
            for word in words:
                self.assertIn(word, text)
        self.assertFalse(os.path.exists(self.path("page_files")))


if __name__ == "__main__":
    unittest.main()
