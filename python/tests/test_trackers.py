"""Trackers, with stand-ins for their packages and for the program `leeway`."""

import json
import os
import re
import stat
import sys
import tempfile
import types
import unittest
from unittest import mock

import leeway
from leeway import trackers
from leeway._progress import line


def summary(rounds, status="running"):
    return {"status": status, "rounds": [{"round": r, "round_in_run": r + 1, "phase": 1, "kind": "train_round",
                                          "loss": 1 / r, "accuracy": None, "metric/auc": 0.5} for r in range(1, rounds + 1)],
            "evaluations": [{"round": rounds + 2, "test_loss": 0.25, "percentiles": []}],
            "probes": [{"round": 1, "gradient_norm": 2.0, "steps": [{"h": 4, "drift_bound": 0.125}]}]}


class Notes:
    def __init__(self):
        self.lines = []

    def log(self, step, metrics):
        self.lines.append((step, dict(metrics)))


class TrackersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        path = os.path.join(self.folder, "leeway")
        with open(path, "w") as f:
            f.write(f"#!{sys.executable}\nprint(open({os.path.join(self.folder, 'answer')!r}).read())\n")
        os.chmod(path, stat.S_IRWXU)
        environment = mock.patch.dict(os.environ, LEEWAY_BIN=self.folder)
        environment.start()
        self.addCleanup(environment.stop)

    def answer(self, value):
        with open(os.path.join(self.folder, "answer"), "w") as f:
            json.dump(value, f)

    def test_every_round_with_numbers_is_given_once_in_order(self):
        self.answer(summary(2, "done"))
        notes = Notes()
        trackers.log(leeway.read("runs/mine"), notes)
        self.assertEqual(notes.lines, [
            (1, {"probe/gradient_norm": 2.0, "probe/drift_bound@4": 0.125}), (2, {"loss": 1.0, "metric/auc": 0.5}),
            (3, {"loss": 0.5, "metric/auc": 0.5}), (4, {"test_loss": 0.25})])

    def test_a_run_that_goes_on_is_followed(self):
        notes = Notes()
        follower = trackers.Follower("runs/mine", notes)
        for rounds in (1, 1, 3):
            with self.subTest(rounds=rounds):
                one = summary(rounds)
                one["evaluations"] = []
                self.answer(one)
                follower.poll(last=True)
        self.assertEqual([step for step, _ in notes.lines], [1, 2, 3, 4])
        self.answer(summary(3, "done"))
        self.assertEqual(trackers.follow("runs/mine", Notes()).status, "done")

    def test_mlflow(self):
        calls = []

        # mlflow.log_metrics, and what it says to names that it does not take.
        def log_metrics(metrics, step=None, synchronous=None, run_id=None, timestamp=None):
            for name, value in metrics.items():
                if not re.fullmatch(r"[/\w.\- ]*", name) or not isinstance(value, (int, float)):
                    raise ValueError(f"Invalid metric name: '{name}'")
            calls.append((step, metrics))

        module = types.ModuleType("mlflow")
        module.log_metrics = log_metrics
        with mock.patch.dict(sys.modules, mlflow=module):
            trackers.MLflow().log(3, {"loss": 0.5, "metric/a-b.c": 1, "probe/drift_bound@4": 0.25})
        self.assertEqual(calls, [(3, {"loss": 0.5, "metric/a-b.c": 1, "probe/drift_bound_4": 0.25})])

    def test_weights_and_biases(self):
        calls = []

        class Run:  # wandb.Run.log: steps do not go back
            last = 0

            def log(self, data, step=None, commit=None, sync=None):
                assert step >= self.last
                self.last = step
                calls.append((step, data))

        module = types.ModuleType("wandb")
        module.run = Run()
        with mock.patch.dict(sys.modules, wandb=module):
            self.answer(summary(2, "done"))
            trackers.log(leeway.read("runs/mine"), trackers.WeightsAndBiases())
            module.run = None
            with self.assertRaisesRegex(leeway.Error, r"wandb\.init\(\)"):
                trackers.WeightsAndBiases()
        self.assertEqual(calls[:2], [(1, {"probe/gradient_norm": 2.0, "probe/drift_bound_4": 0.125}),
                                     (2, {"loss": 1.0, "metric/auc": 0.5})])

    def test_tensorboard(self):
        calls = []

        class SummaryWriter:
            def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
                calls.append(log_dir)

            def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
                calls.append((tag, scalar_value, global_step))

            def flush(self):
                calls.append("flush")

        module = types.ModuleType("torch.utils.tensorboard")
        module.SummaryWriter = SummaryWriter
        packages = {"torch": types.ModuleType("torch"), "torch.utils": types.ModuleType("torch.utils"),
                    "torch.utils.tensorboard": module}
        with mock.patch.dict(sys.modules, packages):
            trackers.TensorBoard("boards").log(3, {"loss": 0.5})
        self.assertEqual(calls, ["boards", ("loss", 0.5, 3), "flush"])

    def test_a_missing_package_is_named(self):
        with mock.patch.dict(sys.modules, mlflow=None):
            with self.assertRaisesRegex(leeway.Error, "MLflow needs the package mlflow"):
                trackers.MLflow()


class ProgressTest(unittest.TestCase):
    def test_the_line_of_a_phase(self):
        phases = [{"probe": {"steps": [1]}}, {"train": {"rounds": 8}}]
        self.assertEqual(line(phases, 1, 0, 0, None), "phase 1 of 2, probe, round 1")
        self.assertEqual(line(phases, 3, 1, 2, 0.5), f"phase 2 of 2, train [{'#' * 6}{' ' * 18}] 2/8, round 3, loss 0.5")


if __name__ == "__main__":
    unittest.main()
