"""What `leeway remedies`, `leeway study` and `leeway run --control` find on data whose answer is known."""

import json
import os
import signal
import subprocess
import unittest

import numpy as np

from leeway_case import BIN, TIMEOUT, LeewayCase, read_safetensors

CONVEX = """
seed: 3
model { linear_regression { intercept: false } }
phases { optimum {} }
phases { constants {} }
phases { fixed_point { auto_step_size: true steps: [1, 20] } }
phases { train { rounds: 80 local { auto_step_size: true steps: 20 } } }
"""

EPOCHS = """
seed: 3
model { softmax_regression { classes: 3 l2: 0.01 } }
phases { train { rounds: 20 local { step_size: 0.3 epochs: 2 batch_size: 5 } } }
"""


class RemediesTest(LeewayCase):
    def remedies(self, out, data, *more, check=True):
        done = subprocess.run(
            [os.path.join(BIN, "leeway"), "remedies", self.path(out), "--data", data, *more],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def conflict(self):
        data = self.synthetic(clients=12, samples=40, dimension=6, conflict=0.5)
        self.federate(self.write("c.textproto", CONVEX), data, "run", processes=2)
        return data

    def loss(self, data, model):
        losses = []
        for name in sorted(os.listdir(data)):
            if os.path.isdir(f"{data}/{name}"):
                x, y = np.load(f"{data}/{name}/train_x.npy"), np.load(f"{data}/{name}/train_y.npy")
                losses.append(0.5 * np.mean((x @ model - y) ** 2))
        return np.array(losses)

    def test_scaffold_lowers_the_loss_where_clients_conflict(self):
        data = self.conflict()
        code, text = self.run_program("leeway", "drift", self.path("run"))
        self.assertIn(f"leeway remedies {self.path('run')} --data DATA", text)
        found = json.loads(self.remedies("run", data, "--try", "scaffold,few_steps,fednova", "--json").stdout)
        rows = {row["name"]: row for row in found["tried"]}
        self.assertEqual(list(rows), ["fedavg", "scaffold", "few_steps", "fednova"])
        base = read_safetensors(self.path("run", "remedies", "fedavg", "models", "final.safetensors"))["weight"]
        # The same training again, to the same model.
        again = read_safetensors(self.show("run")["final_model"])["weight"]
        self.assertLess(np.linalg.norm(base - again), 1e-9 * np.linalg.norm(base))
        for name, row in rows.items():
            model = read_safetensors(self.path("run", "remedies", name, "models", "final.safetensors"))["weight"]
            own = self.loss(data, model)
            self.assertAlmostEqual(row["loss"], own.mean(), 8)
            if name != "fedavg":
                d = own - self.loss(data, base)
                paired = row["against_fedavg"]
                self.assertEqual((paired["winners"], paired["losers"]), ((d < 0).sum(), (d > 0).sum()))
                self.assertAlmostEqual(paired["difference"], d.mean(), 8)
        self.assertEqual({row["rounds"] for row in rows.values()}, {80})
        self.assertEqual(rows["scaffold"]["bytes"], 2 * rows["fedavg"]["bytes"])
        self.assertLess(rows["scaffold"]["loss"], rows["fedavg"]["loss"])
        # All clients take the same number of steps: FedNova is FedAvg.
        self.assertAlmostEqual(rows["fednova"]["loss"], rows["fedavg"]["loss"], 10)
        # The mean loss falls, but for most of these clients it rises: that is no plain recommendation, and is said.
        losers = rows["scaffold"]["against_fedavg"]["losers"]
        self.assertGreater(losers, 6)
        self.assertIsNone(found["recommended"])
        self.assertEqual(found["lowers_the_mean"], "scaffold")
        self.assertIn(f"SCAFFOLD (local {{ scaffold {{}} }}) lowers the mean loss over clients by "
                      f"{-rows['scaffold']['against_fedavg']['difference']:.3g}", found["sentence"])
        self.assertIn(f"but {losers} of 12 clients lose by it", found["sentence"])
        text = self.remedies("run", data, "--try", "scaffold").stdout
        self.assertRegex(text, r"scaffold +\S+ +- +- +- +\d+/\d+ +80 ")

    def test_a_stopped_command_goes_on(self):
        data = self.conflict()
        child = subprocess.Popen(
            [os.path.join(BIN, "leeway"), "remedies", self.path("run"), "--data", data, "--try", "scaffold,fedprox"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.children.append(child)
        self.await_file(self.path("run", "remedies", "scaffold", "server.address"), child)
        child.send_signal(signal.SIGINT)
        text, _ = child.communicate(timeout=TIMEOUT)
        self.assertEqual(child.returncode, 130, text)
        first = self.show("run/remedies/fedavg")
        self.assertEqual(first["status"], "done")
        done = self.remedies("run", data, "--try", "scaffold,fedprox")
        self.assertIn("fedprox", done.stdout)
        self.assertEqual(self.show("run/remedies/fedavg")["run_id"], first["run_id"])

    def labels(self):
        """Six clients of different sizes; what a label means differs between two halves of them."""
        rng = np.random.default_rng(4)
        truth = rng.normal(size=(2, 3, 4)) * 3
        for c in range(6):
            os.makedirs(self.path("labels", f"c{c}"))
            for part, n in (("train", 10 + 15 * c), ("test", 30)):
                x = rng.normal(size=(n, 4))
                y = (x @ truth[c % 2].T).argmax(axis=1).astype(np.int32)
                np.save(self.path("labels", f"c{c}", f"{part}_x.npy"), x)
                np.save(self.path("labels", f"c{c}", f"{part}_y.npy"), y)
        return self.path("labels")

    def test_fine_tuning_helps_where_labels_mean_different_things(self):
        data = self.labels()
        self.federate(self.write("c.textproto", EPOCHS), data, "run", processes=2)
        found = json.loads(self.remedies("run", data, "--json").stdout)
        rows = {row["name"]: row for row in found["tried"]}
        self.assertEqual(list(rows), ["fedavg", "scaffold", "fedprox", "fednova", "few_steps", "adam", "fine_tune",
                                      "ditto"])
        self.assertIn(found["recommended"], ("fine_tune", "ditto"))
        for name in ("fine_tune", "ditto"):
            self.assertGreater(rows[name]["accuracy"], rows["fedavg"]["accuracy"])
            self.assertEqual((rows[name]["rounds"], rows[name]["bytes"]),
                             (rows["fedavg"]["rounds"], rows["fedavg"]["bytes"]))
            self.assertEqual(rows[name]["against_fedavg"]["clients"], 6)
        self.assertIsNotNone(rows["fedavg"]["worst_decile_accuracy"])

    def test_all_that_can_be_tried_with_a_network(self):
        data = self.labels()
        config = """seed: 3 model { mlp { hidden: [8] classes: 3 } }
phases { train { rounds: 6 local { step_size: 0.2 steps: 8 } } }"""
        self.federate(self.write("c.textproto", config), data, "run", processes=2)
        found = json.loads(self.remedies("run", data, "--try", "all", "--json").stdout)
        rows = {row["name"]: row for row in found["tried"]}
        self.assertEqual(list(rows), ["fedavg", "scaffold", "fedprox", "fednova", "few_steps", "adam", "adagrad", "yogi",
                                      "nesterov", "fine_tune", "fine_tune_head", "ditto"])
        for row in rows.values():
            self.assertIsNone(row["failure"], row)
            self.assertEqual(row["rounds"], 6)
            self.assertIsNotNone(row["worst_decile_accuracy"])
        with open(self.path("run", "remedies", "fine_tune_head", "config.textproto")) as f:
            self.assertRegex(f.read(), r'fine_tune_tensors: "dense2.weight"\s+fine_tune_tensors: "dense2.bias"')
        self.assertNotEqual(rows["fine_tune_head"]["test_loss"], rows["fine_tune"]["test_loss"])
        # The same runs, as a table that fits 80 columns.
        text = self.remedies("run", data, "--try", "fine_tune_head,ditto").stdout
        self.assertTrue(all(len(line) <= 80 for line in text.split("\n\n")[0].split("\n")), text)

    def test_wrong_usage_names_the_remedy(self):
        data = self.conflict()
        other = self.synthetic("other", clients=3, samples=5, dimension=6)
        for more, expected in (
            (("--try", "scafold"), "did you mean scaffold?"),
            (("--try", "fine_tune"), "no client has one"),
            (("--try", "ditto"), "--try ditto: what fine-tuning gains shows on test parts only"),
            (("--try", "scaffold", "--data", other), "was run with"),
        ):
            done = self.remedies("run", data if "--data" not in more else more[-1], *more[:2], check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)


class StudyTest(LeewayCase):
    def test_one_command_from_data_to_the_answer(self):
        data = self.synthetic(clients=12, samples=40, dimension=6, conflict=0.5)
        out = self.path("study")
        _, text = self.run_program("leeway", "study", data, "--out", out, "--processes", 2)
        _, verdict = self.run_program("leeway", "drift", out)
        self.assertIn(verdict.split("\n")[0], text)
        with open(os.path.join(out, "config.textproto")) as f:
            self.assertIn(f.read(), text)
        self.assertIn(f"leeway remedies {out} --data {data}", text)
        self.assertTrue(os.path.exists(os.path.join(out, "report", "report.html")))
        self.assertIn("cost: ", text)
        # Again: what is there stays, and the answer is the same.
        run = self.show("study")["run_id"]
        self.run_program("leeway", "study", data, "--out", out, "--processes", 2)
        self.assertEqual(self.show("study")["run_id"], run)
        code, text = self.run_program("leeway", "study", data, "--out", out, "--model", "linear", check=False)
        self.assertEqual(code, 0, text)
        other = self.synthetic("other", clients=3, samples=20, dimension=6)
        code, text = self.run_program("leeway", "study", other, "--out", out, check=False)
        self.assertEqual(code, 2)
        self.assertIn("another study's config", text)


class ControlTest(LeewayCase):
    def test_shuffling_takes_the_conflict_away(self):
        data = self.synthetic(clients=12, samples=40, dimension=6, conflict=0.5)
        config = self.write("c.textproto", CONVEX)
        _, text = self.run_program("leeway", "run", config, "--data", data, "--out", self.path("run"),
                                   "--processes", 2, "--control")
        self.assertIn("The conflict is between the clients", text)
        sizes = lambda root: {name: np.load(f"{root}/{name}/train_x.npy").shape
                              for name in os.listdir(root) if os.path.isdir(f"{root}/{name}")}
        shuffled = self.path("run", "control", "data")
        self.assertEqual(sizes(data), sizes(shuffled))
        both = [np.concatenate([np.load(f"{root}/{name}/train_y.npy") for name in sorted(sizes(root))])
                for root in (data, shuffled)]
        self.assertFalse(np.array_equal(*both))
        np.testing.assert_array_equal(*(np.sort(y) for y in both))

    def test_data_that_cannot_be_shuffled(self):
        data = self.path("million")
        self.run_program("leeway", "data", "synthetic", "--out", data, "--clients", 12, "--samples", 20,
                         "--dimension", 4, "--on-the-fly")
        code, text = self.run_program("leeway", "run", self.write("c.textproto", CONVEX), "--data", data,
                                      "--out", self.path("run"), "--control", check=False)
        self.assertEqual(code, 2)
        self.assertIn("made on the fly", text)


if __name__ == "__main__":
    unittest.main()
