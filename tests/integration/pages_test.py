"""One definition, one name, one number: `leeway show`, its JSON, `leeway drift`, the report and the
dashboard's feed say the same of one run."""

import html
import http.client
import json
import os
import re
import signal
import unittest

import numpy as np

from leeway_case import TIMEOUT, LeewayCase, read_safetensors

CLIENTS, ROUNDS, CLASSES = 12, 30, 2

# A cohort smaller than the federation: ρ² and its value with the bias of sampling differ.
CONFIG = f"""
name: "one run"
seed: 4
model {{ softmax_regression {{ classes: {CLASSES} l2: 0.01 }} }}
cohort {{ size: 6 }}
phases {{ optimum {{}} }}
phases {{ constants {{ point: OPTIMUM }} }}
phases {{ probe {{ point: OPTIMUM auto_step_size: true steps: [1, 2, 5, 10] clients: 8 }} }}
phases {{ fixed_point {{ auto_step_size: true steps: [1, 2, 5, 10] }} }}
phases {{ train {{ rounds: {ROUNDS} local {{ auto_step_size: true steps: 5 }} evaluate_every: 10 }} }}
phases {{ evaluate {{ percentiles: [10, 50, 90] }} }}
"""

BOUND = "Jensen bound"


def plain(page):
    """The text of an HTML page, with single spaces."""
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page)))


def digits(value, count):
    return f"{value:.{count}g}"


class PagesTest(LeewayCase):
    def make_data(self):
        rng = np.random.default_rng(2)
        truth = rng.normal(size=(CLASSES, 4))
        self.tests = []
        for c in range(CLIENTS):
            folder = self.path("data", f"c{c:02d}")
            os.makedirs(folder)
            for part, n in (("train", 40), ("test", 15 + c)):
                if part == "test" and c in (2, 7):
                    continue  # two clients have no test part
                x = rng.normal(size=(n, 4)) * (1 + c / 6)
                y = (x @ truth.T + rng.gumbel(size=(n, CLASSES))).argmax(axis=1)
                np.save(f"{folder}/{part}_x.npy", x)
                np.save(f"{folder}/{part}_y.npy", y.astype(np.int32))
                if part == "test":
                    self.tests.append((x, y))

    def feed(self, run):
        """The first message that the dashboard sends to a page."""
        self.start("leeway", "dashboard", self.path(run), "--listen", "0", log="dashboard.log")
        url = None
        while url is None:
            if self.children[-1].poll() is not None:
                self.fail(self.log("dashboard.log"))
            found = re.search(r"http://([0-9.:]+)/", self.log("dashboard.log"))
            url = found and found.group(1)
        connection = http.client.HTTPConnection(url, timeout=TIMEOUT)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        line = b""
        while not line.startswith(b"data:"):
            line = answer.readline()
        connection.close()
        return json.loads(line[5:])

    def outputs(self, run):
        _, text = self.run_program("leeway", "show", self.path(run))
        _, drift = self.run_program("leeway", "drift", self.path(run))
        _, page = self.run_program("leeway", "report", self.path(run))
        with open(page.strip()) as f:
            return text, drift, plain(f.read()), self.show(run), self.feed(run)

    def test_all_pages_say_the_same(self):
        self.make_data()
        self.run_program("leeway", "run", self.write("c.textproto", CONFIG), "--data", self.path("data"),
                         "--out", self.path("run"), "--processes", 2)
        text, drift, page, shown, feed = self.outputs("run")
        titles = {m["name"]: m["title"] for m in feed["measures"]}

        # The numbers of the feed are those of the JSON, all of them.
        for key in ("rounds", "probes", "evaluations", "fixed_points", "final_loss", "optimum", "status"):
            self.assertEqual(feed["run"][key], shown[key], key)

        # ρ² is the value without the bias of sampling, everywhere; its bound has one name.
        self.assertEqual(titles["unbiased_drift_squared"], "ρ²")
        self.assertEqual(titles["drift_bound"], BOUND)
        probe, last = shown["probes"][0]["steps"][-1], shown["rounds"][-1]
        for value in (probe, last):
            self.assertNotEqual(value["unbiased_drift_squared"], value["average_drift_squared"])
            self.assertIn(digits(value["unbiased_drift_squared"], 4), text)
            self.assertNotIn(digits(value["average_drift_squared"], 4), text)
        self.assertIn(digits(probe["unbiased_drift_squared"], 4), drift)
        for output in (text, drift, page):
            self.assertIn("ρ²", output)
        for output in (text, page):
            self.assertIn(BOUND, output)
        with open(self.path("run", "report", "drift_over_rounds.csv")) as f:
            rows = [line.split(",") for line in f.read().splitlines()[1:]]
        rho = {float(r[1]): float(r[2]) for r in rows if r[0] == "ρ²"}
        # Axes count the rounds that the model has behind it, from 0.
        self.assertEqual(rho, {r["round"] - 1: r["unbiased_drift_squared"] for r in shown["rounds"]})

        # The final model's training loss, against its file; "after" means after.
        model = read_safetensors(shown["final_model"])
        final = shown["final_loss"]
        self.assertEqual(final["rounds"], ROUNDS)
        self.assertLess(abs(final["loss"] - self.training_loss(model)), 4 * final["loss_standard_error"])
        words = f"{digits(final['loss'], 6)} after {ROUNDS} rounds"
        self.assertIn(words, text)
        self.assertIn(words, page)
        with open(self.path("run", "report", "loss_over_rounds.csv")) as f:
            rows = [line.split(",") for line in f.read().splitlines()[1:]]
        losses = {float(r[1]): float(r[2]) for r in rows if r[0] == "training loss"}
        self.assertEqual(losses.pop(ROUNDS), final["loss"])
        self.assertEqual(losses, {r["round"] - 1: r["loss"] for r in shown["rounds"]})
        self.check_accuracy(model, text, page, shown)

    def training_loss(self, model):
        losses = []
        for name in os.listdir(self.path("data")):
            x, y = (np.load(self.path("data", name, f"train_{v}.npy")) for v in "xy")
            logits = x @ model["weight"].T + model["bias"]
            logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
            losses.append(-logits[np.arange(len(y)), y].mean())
        return np.mean(losses) + 0.01 / 2 * sum((model[k] ** 2).sum() for k in ("weight", "bias"))

    def check_accuracy(self, model, text, page, shown):
        """Accuracy, the most frequent class and AUC of those clients that have test data."""
        last = shown["evaluations"][-1]
        x, y = (np.concatenate(parts) for parts in zip(*self.tests))
        score = (x @ model["weight"].T + model["bias"]) @ [-1, 1]
        positive, negative = score[y == 1], score[y == 0]
        pairs = (positive[:, None] > negative[None, :]).mean()
        self.assertEqual(last["test_clients"], CLIENTS - 2)
        self.assertEqual(last["test_examples"], len(y))
        self.assertAlmostEqual(last["accuracy"], ((score > 0) == y).mean(), 12)
        self.assertAlmostEqual(last["majority_accuracy"], max((y == 0).mean(), (y == 1).mean()), 12)
        self.assertAlmostEqual(last["auc"], pairs, 2)
        self.assertEqual([e["trained_rounds"] for e in shown["evaluations"]], [10, 20, 30, 30])
        words = [f"accuracy {digits(100 * last['accuracy'], 4)} %",
                 f"(most frequent class: {digits(100 * last['majority_accuracy'], 4)} %)",
                 f"AUC {digits(last['auc'], 4)}", f"on {len(y)} examples of {CLIENTS - 2} of {CLIENTS} clients"]
        for output in (text, page):
            for word in words:
                self.assertIn(word, output)
        self.assertIn("Accuracy over training rounds", page)
        with open(self.path("run", "report", "accuracy_over_rounds.csv")) as f:
            rows = [line.split(",") for line in f.read().splitlines()[1:]]
        self.assertEqual([float(r[1]) for r in rows], [10, 20, 30, 30])
        self.assertEqual([float(r[2]) for r in rows], [100 * e["accuracy"] for e in shown["evaluations"]])

    def test_tables_fit_a_terminal(self):
        self.make_data()
        self.run_program("leeway", "run", self.write("c.textproto", CONFIG), "--data", self.path("data"),
                         "--out", self.path("run"), "--processes", 2)
        text, drift, _, _, _ = self.outputs("run")
        for line in (text + drift).splitlines():
            if re.match(r"^ +\S+  +\S+  ", line):  # a row of a table, or its heads
                self.assertLessEqual(len(line), 80, line)

    def test_a_stopped_run_is_not_running(self):
        self.make_data()
        config = self.write("c.textproto", CONFIG.replace(f"rounds: {ROUNDS}", "rounds: 1000000"))
        server, address = self.start_server(config, CLIENTS, "run")
        folders = [self.path("data", name) for name in sorted(os.listdir(self.path("data")))]
        client = self.start("leeway-client", "--server", address, *folders)
        while not self.show("run")["rounds"]:
            self.assertIsNone(server.poll(), self.log("server.log"))
        self.assertEqual(self.show("run")["status"], "running")
        server.send_signal(signal.SIGKILL)
        server.wait(TIMEOUT)
        client.kill()
        text, _, page, shown, feed = self.outputs("run")
        self.assertEqual(shown["status"], "stopped")
        self.assertEqual(feed["progress"]["state"], "stopped")
        self.assertIn("one run: stopped after", text)
        self.assertIn("goes on where it stopped", text)
        self.assertIn("This run is not finished (stopped,", page)
        self.assertNotIn("running", text + page)


if __name__ == "__main__":
    unittest.main()
