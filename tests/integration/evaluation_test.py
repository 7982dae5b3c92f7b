"""Accuracy on test data, by federated sums alone: pooled, as percentiles over clients, and on
the evaluator's central test set. All must agree with numpy on the same shards."""

import math
import os
import signal
import sqlite3
import unittest

import numpy as np

from leeway_case import TIMEOUT, LeewayCase, read_safetensors

FEATURES, CLASSES, CLIENTS = 4, 3, 9
PERCENTILES = [0, 10, 50, 90, 100]
ROUNDS = 8

CONFIG = f"""
seed: 5
model {{ softmax_regression {{ classes: {CLASSES} l2: 0.01 }} }}
cohort {{ size: 4 }}
phases {{ train {{ rounds: {ROUNDS} local {{ step_size: 0.3 steps: 3 }} evaluate_every: 4
                  probe {{ step_size: 0.3 steps: [1, 5] }} probe_at: [0, 4] }} }}
phases {{ evaluate {{ percentiles: {PERCENTILES} }} }}
"""


def answers(model, x, y):
    """Loss and correctness of each example."""
    logits = x @ model["weight"].T + model["bias"]
    logits -= logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(y)), y], logits.argmax(axis=1) == y


def percentile(values, percent):
    """The smallest value that at least this share of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(percent / 100 * len(ordered) - 1e-9)) - 1]


class EvaluationTest(LeewayCase):
    def make_data(self):
        """Clients of differing noise, one without a test part, and a central test set."""
        rng = np.random.default_rng(1)
        truth = rng.normal(size=(CLASSES, FEATURES))
        self.tests = []

        def part(folder, name, examples, noise):
            x = rng.normal(size=(examples, FEATURES))
            y = (x @ truth.T + noise * rng.normal(size=(examples, CLASSES))).argmax(axis=1)
            os.makedirs(folder, exist_ok=True)
            np.save(f"{folder}/{name}_x.npy", x)
            np.save(f"{folder}/{name}_y.npy", y.astype(np.int32))
            return x, y

        for c in range(CLIENTS):
            folder = self.path("data", f"c{c}")
            part(folder, "train", 30 + c, noise=c)
            if c != 3:
                self.tests.append(part(folder, "test", 11 + 2 * c, noise=c))
        self.central = part(self.path("data", "evaluator"), "test", 100, noise=0.5)
        return self.path("data")

    def check(self, result, run):
        model = read_safetensors(result["final_model"])
        self.assertEqual([e["round_in_phase"] for e in result["evaluations"]], [4, 8, 11])
        self.assertEqual([p["round_in_phase"] for p in result["probes"]], [0, 4])
        self.assertEqual([p["clients"] for p in result["probes"]], [CLIENTS, CLIENTS])
        self.assertEqual({r["reports"] for r in result["rounds"]}, {4})
        last = result["evaluations"][-1]
        self.assertEqual(last["reports"], CLIENTS)
        each = [answers(model, x, y) for x, y in self.tests]
        loss = np.concatenate([losses for losses, _ in each])
        right = np.concatenate([correct for _, correct in each])
        self.assertEqual(last["test_examples"], len(loss))
        self.assertAlmostEqual(last["test_loss"], loss.mean(), 10)
        self.assertAlmostEqual(last["accuracy"], right.mean(), 10)
        losses, correct = answers(model, *self.central)
        for evaluation in result["evaluations"]:
            self.assertEqual(evaluation["central_examples"], 100)
        self.assertAlmostEqual(last["central_loss"], losses.mean(), 10)
        self.assertAlmostEqual(last["central_accuracy"], correct.mean(), 10)
        self.assertEqual([p["percent"] for p in last["percentiles"]], PERCENTILES)
        for found in last["percentiles"]:
            expected = percentile([losses.mean() for losses, _ in each], found["percent"])
            self.assertAlmostEqual(found["loss"], expected, delta=1e-6 * expected)
            expected = percentile([correct.mean() for _, correct in each], found["percent"])
            self.assertAlmostEqual(found["accuracy"], expected, delta=1e-6)
        _, text = self.run_program("leeway", "show", self.path(run))
        self.assertIn("a central evaluator", text)
        self.assertIn(f"central test loss {losses.mean():.6g}", text)
        self.run_program("leeway", "report", self.path(run), "--out", self.path("page.html"))
        with open(self.path("page.html")) as page:
            self.assertIn("90 % of the clients: accuracy at most", page.read())

    def evaluations(self, out):
        """All but when they were made, and how long that took."""
        return [{k: v for k, v in e.items() if k not in ("opened", "seconds", "idle_share")}
                for e in self.show(out)["evaluations"]]

    def test_agrees_with_numpy(self):
        data = self.make_data()
        config = self.write("c.textproto", CONFIG)
        self.federate(config, data, "many")
        self.check(self.show("many"), "many")
        # All in one process: the same figures and the same bits.
        self.federate(config, data, "one", processes=1)
        self.assertEqual(self.evaluations("one"), self.evaluations("many"))
        self.assertEqual([r["model_sha256"] for r in self.show("one")["rounds"]],
                         [r["model_sha256"] for r in self.show("many")["rounds"]])

    def fine_tuned(self, model, c, steps, rate):
        """Full-batch gradient descent on the training part of client c."""
        x, y = (np.load(self.path("data", f"c{c}", f"train_{axis}.npy")) for axis in "xy")
        weight, bias = model["weight"].copy(), model["bias"].copy()
        for _ in range(steps):
            logits = x @ weight.T + bias
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(y)), y] -= 1
            gradient = p.T @ x / len(y) + 0.01 * weight, p.mean(axis=0) + 0.01 * bias
            weight, bias = weight - rate * gradient[0], bias - rate * gradient[1]
        return {"weight": weight, "bias": bias}

    def test_fine_tuning_and_comparisons_agree_with_numpy(self):
        data = self.make_data()
        base = CONFIG.rsplit("phases", 1)[0]
        first = self.write("first.textproto", base)
        self.federate(first, data, "first")
        personal = "phases { evaluate { percentiles: [10, 50] fine_tune { step_size: 0.5 steps: 6 } } }"
        second = self.write("second.textproto", base.replace("seed: 5", "seed: 6") + personal +
                            " phases { evaluate {} }")
        for name, baseline in (("itself", ""), ("other", "first/models/final.safetensors")):
            text = self.log("second.textproto") + (f'baseline: "{baseline}"\n' if baseline else "")
            self.federate(self.write(f"{name}.textproto", text), data, name)
            result = self.show(name)
            model = read_safetensors(result["final_model"])
            other = read_safetensors(self.path(baseline)) if baseline else model
            own = [self.fine_tuned(model, c, 6, 0.5) for c in range(CLIENTS) if c != 3]
            tuned, plain = result["evaluations"][-2:]
            losses = [answers(w, *part)[0].mean() for w, part in zip(own, self.tests)]
            rights = [answers(w, *part)[1].mean() for w, part in zip(own, self.tests)]
            sizes = [len(y) for _, y in self.tests]
            self.assertAlmostEqual(tuned["accuracy"], np.average(rights, weights=sizes), 10)
            for found in tuned["percentiles"]:
                expected = percentile(losses, found["percent"])
                self.assertAlmostEqual(found["loss"], expected, delta=1e-6 * expected)
                self.assertAlmostEqual(found["accuracy"], percentile(rights, found["percent"]), 6)
            d = np.array(losses) - [answers(other, *part)[0].mean() for part in self.tests]
            self.check_comparison(tuned["comparison"], d)
            if not baseline:
                self.assertNotIn("comparison", plain)
                continue
            d = [answers(model, *part)[0].mean() - answers(other, *part)[0].mean()
                 for part in self.tests]
            # Client 3 has no test part: its training part tells.
            x, y = (np.load(self.path("data", "c3", f"train_{axis}.npy")) for axis in "xy")
            penalty = [0.005 * sum((m[k] ** 2).sum() for k in m) for m in (model, other)]
            d.append(answers(model, x, y)[0].mean() + penalty[0] -
                     answers(other, x, y)[0].mean() - penalty[1])
            self.check_comparison(plain["comparison"], np.array(d))

    def check_comparison(self, found, d):
        self.assertEqual((found["clients"], found["winners"], found["losers"]),
                         (len(d), (d < 0).sum(), (d > 0).sum()))
        self.assertAlmostEqual(found["difference"], d.mean(), 10)
        self.assertAlmostEqual(found["standard_error"], d.std(ddof=1) / len(d) ** 0.5, 10)

    def test_the_evaluator_never_trains(self):
        """Whoever asks: the client itself refuses."""
        data = self.make_data()
        with_it = self.write("c.textproto", CONFIG)
        self.federate(with_it, data, "with")
        os.rename(self.path("data", "evaluator"), self.path("elsewhere"))
        self.federate(with_it, data, "without")
        self.assertEqual([r["model_sha256"] for r in self.show("with")["rounds"]],
                         [r["model_sha256"] for r in self.show("without")["rounds"]])
        for evaluation in self.show("without")["evaluations"]:
            self.assertEqual(evaluation["central_examples"], 0)
            self.assertIsNone(evaluation["central_accuracy"])

    def test_bad_central_test_sets_are_refused(self):
        data = self.make_data()
        os.remove(self.path("data", "evaluator", "test_y.npy"))
        code, text = self.run_program("leeway-client", "--server", "127.0.0.1:1", "--evaluator",
                                      os.path.join(data, "evaluator"), check=False)
        self.assertEqual(code, 2)
        self.assertIn("evaluator/test_y.npy: no such file", text)

    def test_a_killed_server_goes_on(self):
        """kill -9 after every commit, and an evaluator in a process of its own."""
        data = self.make_data()
        config = self.write("c.textproto", CONFIG)
        self.federate(config, data, "calm")
        commits = self.committed("calm")
        address_file = self.path("address")
        serve = lambda address, kills: self.start(
            "leeway-server", "--config", config, "--state", self.path("run"), "--clients", CLIENTS,
            "--listen", address, "--address-file", address_file, log=f"server{kills}.log",
            failpoint="commit.after_commit:1" if kills + 1 < commits else None)
        server = serve("127.0.0.1:0", 0)
        address = self.await_file(address_file, server)
        clients = [self.start("leeway-client", "--server", address, "--evaluator",
                              os.path.join(data, "evaluator"))]
        self.await_text("server0.log", "joined")
        clients.append(self.start("leeway-client", "--server", address,
                                  *[os.path.join(data, f"c{c}") for c in range(CLIENTS)]))
        for kills in range(1, commits):
            self.assertEqual(server.wait(TIMEOUT), -signal.SIGKILL)
            server = serve(address, kills)
        self.assertEqual(server.wait(TIMEOUT), 0)
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(self.evaluations("run"), self.evaluations("calm"))
        self.check(self.show("run"), "run")

    def committed(self, run):
        """Number of a run's commits."""
        with sqlite3.connect(f"file:{self.path(run, 'run.db')}?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM rounds").fetchone()[0]


if __name__ == "__main__":
    unittest.main()
