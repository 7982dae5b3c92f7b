"""auto_steps beside an independent numpy program, and beside every fixed number of local steps."""

import unittest

import numpy as np

from leeway_case import LeewayCase, read_safetensors
from oracle_test import gradient, load, loss

LARGEST = 32
ROUNDS = 700
SIZES = dict(clients=20, samples=40, dimension=6)

CONFIG = """
seed: 2
model { linear_regression { intercept: false } }
MORE
phases { train { rounds: ROUNDS local { step_size: ETA LOCAL } drift_off: true } }
"""


class Problem:
    """Quadratic clients; the mean displacement after h steps is affine in w."""

    def __init__(self, clients):
        self.clients = clients
        hessians = [x.T @ x / len(y) for x, y in clients]
        self.eta = 1 / max(np.linalg.eigvalsh(a)[-1] for a in hessians)
        self.optimum = np.linalg.solve(sum(hessians),
                                       sum(x.T @ y / len(y) for x, y in clients))
        self.best = self.loss(self.optimum)

    def loss(self, w):
        return np.mean([loss(x, y, w) for x, y in self.clients])

    def gradient(self, w):
        return np.mean([gradient(x, y, w) for x, y in self.clients], axis=0)

    def move(self, w, steps):
        ends = []
        for x, y in self.clients:
            a = x.T @ x / len(y)
            own = np.linalg.lstsq(a, x.T @ y / len(y), rcond=None)[0]
            shrink = np.linalg.matrix_power(np.eye(len(w)) - self.eta * a, steps)
            ends.append(own + shrink @ (w - own))
        return np.mean(ends, axis=0)

    def gap(self, w):
        return (self.loss(w) - self.best) / (self.loss(np.zeros(len(w))) - self.best)


def follow_rule(problem, rounds):
    """The rule of docs/measures.md: the number of steps of each round, and the model at the end."""
    w = np.zeros(len(problem.optimum))
    steps = LARGEST
    chosen = []
    before = None
    for _ in range(rounds):
        chosen.append(steps)
        now = problem.loss(w)
        guaranteed = problem.eta / 2 * np.sum(problem.gradient(w) ** 2)
        w = problem.move(w, steps)
        if before is not None and steps > 1 and before[0] - now < before[1]:
            steps //= 2
            before = None
        else:
            before = (now, guaranteed)
    return chosen, w


class AutoStepsTest(LeewayCase):
    def config(self, name, local, eta, more="", rounds=ROUNDS):
        return self.write(name, CONFIG.replace("MORE", more).replace("ROUNDS", str(rounds))
                          .replace("ETA", repr(eta)).replace("LOCAL", local))

    def training(self, out):
        return [r for r in self.show(out)["rounds"] if r["kind"] == "train_round"]

    def test_the_rule_is_that_of_numpy_and_never_settles_above_the_optimum(self):
        data = self.synthetic(conflict=0.3, **SIZES)
        problem = Problem(load(data))
        config = self.config("auto.textproto", f"auto_steps {{ largest: {LARGEST} }}", problem.eta)
        self.federate(config, data, out="auto", processes=2)
        rounds = self.training("auto")
        found = read_safetensors(self.show("auto")["final_model"])["weight"]
        chosen, w = follow_rule(problem, ROUNDS)
        self.assertEqual([r["local_steps"] for r in rounds], chosen)
        self.assertEqual((chosen[0], chosen[-1]), (LARGEST, 1))
        self.assertLess(np.linalg.norm(found - w) / np.linalg.norm(w), 1e-8)

        # At every target no fixed number of steps is much faster, and those that are fast settle.
        targets = [1e-1, 1e-2, 1e-3]
        gaps = [(r["loss"] - problem.best) / (rounds[0]["loss"] - problem.best) for r in rounds]
        ours = [next(i for i, g in enumerate(gaps) if g <= t) for t in targets]
        for steps in (1, 4, 32):
            w = np.zeros(len(problem.optimum))
            reached = [None] * len(targets)
            for i in range(ROUNDS):
                gap = problem.gap(w)
                for k, target in enumerate(targets):
                    if reached[k] is None and gap <= target:
                        reached[k] = i
                w = problem.move(w, steps)
            for k, r in enumerate(reached):
                if r is not None:
                    self.assertLessEqual(ours[k], 1.25 * r + 1, (steps, targets[k]))
        self.assertIsNone(reached[-1], "32 steps settle above the last target")

    def test_a_sampled_cohort_with_batches_gives_the_same_bits_from_any_processes(self):
        data = self.synthetic(conflict=1.0, **SIZES)
        config = self.config("sampled.textproto",
                             "batch_size: 10 auto_steps { largest: 16 }", 0.01,
                             more="cohort { clients: 20 size: 6 }", rounds=200)
        self.federate(config, data, out="whole", processes=2)
        whole = self.training("whole")
        self.assertLess(whole[-1]["local_steps"], 16)
        self.federate(config, data, out="one", processes=1)
        self.assertEqual(self.training("one")[-1]["model_sha256"], whole[-1]["model_sha256"])
        self.assertEqual([r["local_steps"] for r in self.training("one")],
                         [r["local_steps"] for r in whole])

    def test_what_does_not_go_together_is_refused(self):
        data = self.synthetic(**SIZES)
        for local, server, wrong in (
                ("steps: 3 auto_steps {}", "", "exactly one of steps"),
                ("auto_steps {}", "server { momentum: 0.5 }", "needs plain averaging")):
            text = CONFIG.replace("MORE", "").replace("ROUNDS", "3").replace("ETA", "0.01")
            text = text.replace("LOCAL", local).replace("drift_off", server + " drift_off")
            code, said = self.federate(self.write("bad.textproto", text), data, out="bad", check=False)
            self.assertEqual(code, 2)
            self.assertIn(wrong, said)


if __name__ == "__main__":
    unittest.main()
