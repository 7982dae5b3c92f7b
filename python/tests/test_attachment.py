"""Client, Flower and how a leeway-client is kept, with a stand-in for leeway-client."""

import abc
import json
import os
import stat
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import leeway
import leeway.flower
from leeway._serve import Attachment
from leeway._tensors import Tensor, header, load

# Sends what the plan says, one step after the other, and writes down what comes back.
STAND_IN = """#!{python}
import json, os, signal, socket, sys
folder = os.path.dirname(os.path.abspath(__file__))
s = socket.socket(fileno=int(sys.argv[sys.argv.index("--worker-fd") + 1]))
lines = s.makefile("rb")
with open(folder + "/arguments", "a") as f: f.write(json.dumps(sys.argv[1:]) + "\\n")
with open(folder + "/plan") as f: plan = json.load(f)
for step in plan:
    if step == "die once":
        if not os.path.exists(folder + "/died"):
            open(folder + "/died", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        continue
    if step == "die": os.kill(os.getpid(), signal.SIGKILL)
    if step == "exit": sys.exit(3)
    s.sendall(json.dumps(step).encode() + b"\\n")
    if step["type"] != "finished":
        with open(folder + "/replies", "ab") as f: f.write(lines.readline())
"""

HELLO = {"type": "hello", "oldest": 1, "newest": 1, "program": "stand-in"}
PREPARE = {"type": "prepare", "seed": "1", "model": {}, "dtype": "F64", "tensors": [{"name": "w", "shape": [2]}]}
FINISHED = {"type": "finished"}


class NumPyClient(abc.ABC):
    """Stands in for flwr.client.NumPyClient: the same methods, with the same parameters and what they return by default."""

    def get_properties(self, config):
        return {}

    def get_parameters(self, config):
        return []

    def fit(self, parameters, config):
        return [], 0, {}

    def evaluate(self, parameters, config):
        return 0.0, 0, {}

    def to_client(self):
        return wrapped(self)


class Client(abc.ABC):
    """Stands in for flwr.client.Client, whose methods take messages."""

    def get_parameters(self, ins):
        raise AssertionError("a message of Flower's")

    def fit(self, ins):
        raise AssertionError("a message of Flower's")

    def evaluate(self, ins):
        raise AssertionError("a message of Flower's")

    def to_client(self):
        return self


def wrapped(numpy_client):
    """As Flower wraps a NumPyClient: a class made for it, derived from Client."""
    def constructor(self, numpy_client):
        self.numpy_client = numpy_client

    return type("NumPyClientWrapper", (Client,), {"__init__": constructor})(numpy_client=numpy_client)


class AttachmentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        path = os.path.join(self.folder, "leeway-client")
        with open(path, "w") as f:
            f.write(STAND_IN.format(python=sys.executable))
        os.chmod(path, stat.S_IRWXU)
        with open(self.path("model"), "wb") as f:
            f.write(header([Tensor("w", (2,))], np.dtype("float64")) + np.array([1.0, -2.0]).tobytes())
        open(self.path("answer"), "w").close()
        environment = mock.patch.dict(os.environ, LEEWAY_BIN=self.folder)
        environment.start()
        self.addCleanup(environment.stop)

    def path(self, name):
        return os.path.join(self.folder, name)

    def plan(self, *steps):
        with open(self.path("plan"), "w") as f:
            json.dump(steps, f)

    def replies(self):
        with open(self.path("replies")) as f:
            return [json.loads(line) for line in f]

    def order(self, number, *sums, **rule):
        shapes = {"displacement": "vector", "drift": "vector", "gradient": "vector"}
        return {"type": "order", "order": number, "run": "r", "round": number, "attempt": 1, "client": "a",
                "rule": {"step_size": 0.5, "steps": 2, "epochs": 0, "batch_size": 0, **rule}, "repeats": 0,
                "random": [1, 2, 3, 4], "model": {"file": self.path("model"), "sha256": "x"},
                "sums": [{"key": s, "name": s, "steps": 0, "shape": shapes.get(s, "number")} for s in sums],
                "answer_file": self.path("answer")}

    def client(self):
        return leeway.Client("host:1", examples=5, name="a", tls_ca="ca.crt", insecure_anywhere=True, give_up=None)

    def test_a_loop_of_ones_own(self):
        self.plan(HELLO, PREPARE, self.order(1, "loss", "displacement"), self.order(2, "loss", "displacement"), FINISHED)
        rounds = []
        for task in self.client():
            rounds.append((task.round, task.steps, task.trains, task.model["w"].tolist()))
            task.report({"w": task.model["w"] + 1}, metrics={"loss": 0.5})
        self.assertEqual(rounds, [(1, 2, True, [1.0, -2.0]), (2, 2, True, [1.0, -2.0])])
        self.assertEqual(self.replies()[2:], [{"type": "answer", "order": n, "numbers": {"loss": 0.5}} for n in (1, 2)])
        self.assertEqual(load(self.path("answer"))["displacement"].tolist(), [-1.0, -1.0])
        with open(self.path("arguments")) as f:
            self.assertEqual(json.loads(f.readline())[:5],
                             ["--server", "host:1", "--tls-ca", "ca.crt", "--insecure-anywhere"])

    def test_a_loop_of_ones_own_cannot_report_drift_and_says_why(self):
        self.plan(HELLO, PREPARE, self.order(1, "loss", "drift"), FINISHED)
        with self.assertRaisesRegex(leeway.Error, "the last task here failed"):
            self.assertEqual([task for task in self.client()], [])
        self.assertIn("drift_off: true", self.replies()[2]["error"])

    def test_bad_reports_are_named(self):
        self.plan(HELLO, PREPARE, self.order(1, "loss", "displacement"), FINISHED)
        tasks = iter(self.client())
        for task in (next(tasks),):
            for model, metrics, words in (({"w": np.zeros(2)}, {}, "asks for 'loss'"),
                                          ({"v": np.zeros(2)}, {"loss": 1}, "no tensor 'w'"),
                                          ({"w": np.zeros(3)}, {"loss": 1}, r"has shape \[3\]"),
                                          ({"w": np.array([1, np.nan])}, {"loss": 1}, "not finite"),
                                          (None, {"loss": 1}, "trained model")):
                with self.assertRaisesRegex(leeway.Error, words):
                    task.report(model, metrics=metrics)
        with self.assertRaisesRegex(leeway.Error, "without task.report"):
            next(tasks)
        self.assertIn("without task.report", self.replies()[2]["error"])

    def test_metrics_of_ones_own(self):
        self.plan(HELLO, PREPARE, self.order(1, "displacement", "metric/auc", "metric/loss"), FINISHED)
        for task in self.client():
            for metrics, words in (({"loss": 1}, "asks for 'auc', and the report has none"),
                                   ({"auc": np.nan, "loss": 1}, "the report has nan; give a finite number"),
                                   ({"auc": 1e31, "loss": 1}, "the report has 1e\\+31")):
                with self.assertRaisesRegex(leeway.Error, words):
                    task.report(task.model, metrics=metrics)
            with self.assertRaisesRegex(leeway.Error, "report is of 6 examples, but this client joined with 5"):
                task.report(task.model, examples=6)
            task.report(task.model, examples=5, metrics={"auc": np.float32(0.5), "loss": 2, "more": 3})
        self.assertEqual(self.replies()[2]["numbers"], {"metric/auc": 0.5, "metric/loss": 2.0})

    def test_a_client_that_was_killed_is_started_again(self):
        self.plan(HELLO, PREPARE, "die once", self.order(1, "loss", "displacement"), FINISHED)
        rounds = 0
        for task in self.client():
            task.report(task.model, metrics={"loss": 0})
            rounds += 1
        self.assertEqual(rounds, 1)
        self.assertEqual([r["type"] for r in self.replies()], ["hello", "ready", "hello", "ready", "answer"])

    def test_one_that_gives_up_or_always_dies_is_an_error(self):
        self.plan(HELLO, "exit")
        with self.assertRaisesRegex(leeway.Error, "exited with code 3"):
            list(self.client())
        self.plan(HELLO, "die")
        with self.assertRaisesRegex(leeway.Error, "killed by signal 9"):
            list(self.client())
        self.plan(HELLO, {"type": "finished", "error": "no server at host:1; start it"})
        with self.assertRaisesRegex(leeway.Error, "no server at host:1; start it"):
            list(self.client())

    def test_a_flower_client(self):
        class Quadratic(NumPyClient):  # F = |w|^2/2
            def get_parameters(self, config):
                return [np.array([1.0, -2.0])]

            def fit(self, parameters, config):
                w = parameters[0]
                for _ in range(config["local_steps"]):
                    w = w - config["learning_rate"] * w
                return [w], 7, {"loss": 0.5 * float(parameters[0] @ parameters[0])}

        self.plan(HELLO, PREPARE, self.order(1, "loss", "displacement", "drift", "metric/loss"), FINISHED)
        leeway.flower.start_client(server_address="host:1", client=Quadratic(), name="a")
        self.assertEqual(self.replies()[0]["clients"][0]["examples"], 7)
        self.assertEqual(self.replies()[2]["numbers"], {"loss": 2.5, "metric/loss": 2.5})
        vectors = load(self.path("answer"))
        np.testing.assert_allclose(vectors["displacement"], np.array([1, -2]) * 0.75)
        np.testing.assert_allclose(vectors["drift"], np.array([1, -2]) * 0.25)

    def test_flowers_client_functions(self):
        """client_fn(context), and client_fn(cid) of earlier versions; a client that leaves the initial model to the server."""
        class Fits(NumPyClient):
            def __init__(self, partition):
                self.partition = partition

            def fit(self, parameters, config):
                assert isinstance(config["server_round"], int)
                return [parameters[0] - self.partition], 7, {}

            def evaluate(self, parameters, config):
                return 0.5, 10, {"accuracy": 0.8}

        def by_context(context):
            return Fits(context.node_config["partition-id"] * context.run_config["scale"]).to_client()

        def by_id(cid: str):
            return Fits(int(cid) * 2).to_client()

        sums = ("loss", "displacement", "test_examples", "test_loss", "test_correct")
        for client_fn in (by_context, by_id):
            self.plan(HELLO, PREPARE, self.order(1, *sums), FINISHED)
            leeway.flower.start_client(server_address="host:1", client_fn=client_fn, name="a", examples=7, test_examples=10,
                                       node_config={"partition-id": 2, "num-partitions": 4}, run_config={"scale": 2})
            self.assertEqual(self.replies()[-1]["numbers"],
                             {"loss": 0.5, "test_examples": 10, "test_loss": 5.0, "test_correct": 8})
            np.testing.assert_array_equal(load(self.path("answer"))["displacement"], [4, 4])
        for arguments, words in (({"client_fn": by_id}, "examples=len"), ({}, "either client"),
                                 ({"client_fn": lambda: None, "examples": 7}, "one parameter"),
                                 ({"client": object()}, "has no fit")):
            with self.assertRaisesRegex(leeway.Error, words):
                leeway.flower.start_client(server_address="host:1", **arguments)
        with self.assertRaisesRegex(leeway.Error, "leeway.save"):
            leeway.flower.save(Fits(0), self.path("initial"))

    def test_what_else_flowers_start_client_takes(self):
        """A script keeps its call: what it says of Flower's own transport is passed on, left out, or named."""
        class Fits(NumPyClient):
            def fit(self, parameters, config):
                return parameters, 7, {"loss": 1.0}

        self.plan(HELLO, PREPARE, self.order(1, "loss", "displacement"), FINISHED)
        for start in (leeway.flower.start_client, leeway.flower.start_numpy_client):
            start(server_address="host:1", client=Fits(), examples=7, name="a", insecure=True, max_wait_time=90,
                  grpc_max_message_length=536870912, transport="grpc-rere", max_retries=None, root_certificates=None)
            with open(self.path("arguments")) as f:
                self.assertEqual(json.loads(f.readlines()[-1])[:5],
                                 ["--server", "host:1", "--give-up", "90", "--insecure-anywhere"])
        with self.assertRaisesRegex(leeway.Error, "tls_ca='ca.crt'"):
            leeway.flower.start_client(server_address="host:1", client=Fits(), examples=7, root_certificates=b"PEM")

    def test_flowers_context(self):
        """Fields as flwr.app.Context has them; its state is a dict of records, also by their kinds."""
        seen = []

        def client_fn(context):
            context.state["mine"] = 3
            context.state.config_records["more"] = 4
            seen.append((context.run_id, context.node_id, context.node_config["partition-id"], context.run_config,
                         context.series_id, "mine" in context.state, context.state.array_records["more"], context.state.metric_records["mine"]))
            return NumPyClient().to_client()

        with self.assertRaisesRegex(leeway.Error, "examples=len"):
            leeway.flower.start_client(server_address="host:1", client_fn=client_fn, node_config={"partition-id": 3})
        self.assertEqual(seen, [(0, 0, 3, {}, 0, True, 4, 3)])

    def test_a_loss_of_no_examples_is_none(self):
        """NumPyClient.evaluate answers 0.0 of 0 examples where a client does not override it."""
        class Fits(NumPyClient):
            def fit(self, parameters, config):
                return parameters, 7, {}

        self.plan(HELLO, PREPARE, self.order(1, "loss", "displacement"), FINISHED)
        with self.assertRaisesRegex(leeway.Error, "the last task here failed"):
            leeway.flower.start_client(server_address="host:1", client=Fits(), examples=7, name="a")
        self.assertIn("evaluate() had no examples", self.replies()[2]["error"])

    def test_what_fit_returns_is_checked(self):
        class Fits(NumPyClient):
            def __init__(self, *returned):
                self.returned = returned

            def fit(self, parameters, config):
                return self.returned

        for returned, words in ((([np.zeros(2)], 7), r"fit returned 2 values; expected \(arrays, examples, metrics\)"),
                                (([np.zeros(2), np.zeros(2)], 7, {}), "fit returned 2 arrays, the run's model has 1 tensors"),
                                (([np.zeros(3)], 7, {}), r"shape \[3\] for tensor 'w', which has \[2\]"),
                                (([np.array([1, np.nan])], 7, {}), "not finite")):
            self.plan(HELLO, PREPARE, self.order(1, "displacement"), FINISHED)
            with self.assertRaises(leeway.Error):
                leeway.flower.start_client(server_address="host:1", client=Fits(*returned), examples=7, name="a")
            self.assertRegex(self.replies()[-1]["error"], words)

    def test_a_missing_program_is_named(self):
        with mock.patch.dict(os.environ, LEEWAY_BIN="/nowhere"):
            with self.assertRaisesRegex(leeway.Error, "no program /nowhere/leeway-client"):
                Attachment("host:1", None, {})


if __name__ == "__main__":
    unittest.main()
