"""Who pays for local steps, what each number of them reaches after some rounds, how far the trained model has come,
and models of the clients' own: all against numpy (and PyTorch, for the last layer of a network) on the same files."""

import json
import math
import os
import unittest

import numpy as np

from leeway_case import LeewayCase, read_safetensors

CLASSES, FEATURES, CLIENTS, L2 = 3, 3, 24, 0.05
WITHOUT_TEST = 5  # this client has no test part
MODEL = f"seed: 3 durability: RELAXED model {{ softmax_regression {{ classes: {CLASSES} l2: {L2} }} }}\n"
STUDY = MODEL + """
phases { optimum { tolerance: 1e-12 } }
phases { constants { point: OPTIMUM } }
phases { fixed_point { auto_step_size: true steps: [1, 10] tolerance: 1e-11 after_rounds: 6 OFF } }
phases { train { rounds: 6 local { auto_step_size: true steps: 10 } } }
"""


def extend(x):
    return np.column_stack([x, np.ones(len(x))])


def probabilities(w, x):
    z = x @ w.T
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def loss(w, x, y):
    """Mean cross-entropy with its penalty."""
    return -np.mean(np.log(probabilities(w, x)[np.arange(len(y)), y])) + L2 / 2 * np.sum(w * w)


def gradient(w, x, y):
    p = probabilities(w, x)
    p[np.arange(len(y)), y] -= 1
    return p.T @ x / len(y) + L2 * w


def accuracy(w, x, y):
    return np.mean((x @ w.T).argmax(axis=1) == y)


def deciles(values):
    """The k-th smallest of n, k = ceil(p n)."""
    ordered = sorted(values)
    return [ordered[math.ceil(k * len(ordered) / 10) - 1] for k in range(1, 10)]


class WhoPaysTest(LeewayCase):
    def data(self, conflict=1.5):
        """Clients whose truth goes with the scale of their inputs, so that local steps hurt."""
        rng = np.random.default_rng(8)
        truth = rng.normal(size=(CLASSES, FEATURES))
        self.train, self.test = [], []
        for c in range(CLIENTS):
            scale = rng.uniform(0.3, 3, size=FEATURES)
            own = truth + conflict * rng.normal(size=CLASSES)[:, None] * (scale - 1)
            os.makedirs(self.path("data", f"c{c:02d}"))
            for part, n in (("train", 20 + c), ("test", 17 + 2 * c)):
                x = rng.normal(size=(n, FEATURES)) * scale
                y = np.argmax(x @ own.T + rng.gumbel(size=(n, CLASSES)), axis=1).astype(np.int32)
                if part == "train":
                    self.train.append((extend(x), y))
                elif c == WITHOUT_TEST:
                    continue
                else:
                    self.test.append((extend(x), y))
                np.save(self.path("data", f"c{c:02d}", f"{part}_x.npy"), x)
                np.save(self.path("data", f"c{c:02d}", f"{part}_y.npy"), y)
        return self.path("data")

    def optimum(self):
        """By Newton's method."""
        w = np.zeros((CLASSES, FEATURES + 1))
        for _ in range(50):
            g = np.mean([gradient(w, *part) for part in self.train], axis=0)
            hessian = np.zeros((w.size, w.size))
            for x, _ in self.train:
                p = probabilities(w, x)
                blocks = np.einsum("ni,ij->nij", p, np.eye(CLASSES)) - np.einsum("ni,nj->nij", p, p)
                hessian += np.einsum("nij,nk,nl->ikjl", blocks, x, x).reshape(w.size, w.size) / len(x)
            hessian = hessian / CLIENTS + L2 * np.eye(w.size)
            w = w - np.linalg.solve(hessian, g.ravel()).reshape(w.shape)
        return w

    def rounds(self, w, eta, steps, rounds):
        """Plain FedAvg with full batches and all clients."""
        for _ in range(rounds):
            models = []
            for part in self.train:
                own = w
                for _ in range(steps):
                    own = own - eta * gradient(own, *part)
                models.append(own)
            w = np.mean(models, axis=0)
        return w

    def mean_loss(self, w):
        return np.mean([loss(w, *part) for part in self.train])

    def near(self, found, expected, range_of):
        self.assertEqual(len(found), 9)
        for one, other in zip(found, expected):
            self.assertLess(abs(one - other), 0.01 * range_of + 1e-12, (found, expected))

    def initial(self, out):
        tensors = read_safetensors(self.path(out, "models", "initial.safetensors"))
        return np.column_stack([tensors["weight"].reshape(CLASSES, -1), tensors["bias"]])

    def test_deciles_and_losses_agree_with_numpy(self):
        data = self.data()
        self.federate(self.write("c.textproto", STUDY.replace("OFF", "")), data, "run", processes=2)
        shown = self.show()
        verdict = json.loads(self.run_program("leeway", "drift", self.path("run"), "--json")[1])
        best = self.optimum()
        least = self.mean_loss(best)
        self.assertEqual([one["h"] for one in shown["who_pays"]], [1, 10])
        for evidence, point, who in zip(verdict["evidence"], shown["fixed_points"], shown["who_pays"]):
            h, eta = evidence["h"], evidence["step_size"]
            after = self.mean_loss(self.rounds(self.initial("run"), eta, h, 6))
            self.assertAlmostEqual(point["loss_after_rounds"], after, 9)
            self.assertAlmostEqual(evidence["lost_after_rounds"] * evidence["explained"], after - least, 8)
            self.assertEqual(evidence["who_pays"]["losers"], who["losers"])
            if h == 1:
                continue  # rests at w*: every difference is rounding
            rest = self.rounds(best, eta, h, 400)
            lost = [loss(rest, *part) - loss(best, *part) for part in self.train]
            self.assertEqual((who["clients"], who["losers"]), (CLIENTS, sum(d > 0 for d in lost)))
            expected = deciles(lost)
            self.near(who["loss_deciles"], expected, expected[8] - expected[0])
            change = [accuracy(rest, *part) - accuracy(best, *part) for part in self.test]
            self.assertEqual((who["test_clients"], who["accuracy_losers"]),
                             (CLIENTS - 1, sum(d < 0 for d in change)))
            self.near(who["accuracy_deciles"], deciles(change), 0.01)
        # The training is one of those paths.
        trained = verdict["trained"][0]
        self.assertEqual(trained["loss"], shown["fixed_points"][1]["loss_after_rounds"])
        self.assertAlmostEqual(trained["gap"], trained["loss"] - least, 9)
        text = self.run_program("leeway", "drift", self.path("run"))[1]
        self.assertIn(f"{who['losers']} of {CLIENTS} lose; {who['accuracy_losers']} of {CLIENTS - 1} lose accuracy", text)
        self.assertIn("after 6 rounds", text)
        self.assertTrue(all(len(line) <= 80 for line in text.split("\n\n", 1)[1].split("\n\n")[0].split("\n")), text)
        self.assertIn("After 6 rounds of training with H = 10", text)
        self.run_program("leeway", "report", self.path("run"), "--out", self.path("page.html"))
        with open(self.path("page.html")) as page:
            self.assertIn("no client's own figure was sent", page.read().replace("&#39;", "'"))
        self.run_program("leeway", "verify", self.path("run"))

    def test_a_contradiction_is_named(self):
        """Clients that agree, and a training that is stopped before it has come far."""
        data = self.data(conflict=0)
        text = STUDY.replace("OFF", "").replace("after_rounds: 6", "").replace("rounds: 6", "rounds: 1")
        self.federate(self.write("c.textproto", text), data, "run", processes=1)
        verdict = json.loads(self.run_program("leeway", "drift", self.path("run"), "--json")[1])
        self.assertEqual(verdict["verdict"], "harmless", verdict["sentence"])
        trained = verdict["trained"][0]
        self.assertGreater(trained["lost"], 0.03)
        self.assertTrue(trained["contradicts_verdict"])
        self.assertIn("contradicts the verdict that H = 10 is harmless: training has not settled", trained["text"])
        self.assertIn(trained["text"], self.run_program("leeway", "show", self.path("run"))[1])

    def test_counting_changes_no_other_bit(self):
        """Sampled clients, batches and random rounding after it are the same with and without."""
        data = self.data()
        later = """
cohort { size: 5 } encoding: INT8_WIRE
phases { train { rounds: 4 local { step_size: 0.05 steps: 4 batch_size: 7 }
                 release_at: [2] release { step_size: 0.05 steps: [3] rounds: 2 batch_size: 7 clients: 9 OFF } } }
phases { probe { point: CURRENT step_size: 0.05 steps: [5] batch_size: 6 clients: 8 } }
"""
        runs = []
        for name, off in (("with", ""), ("without", "who_pays_off: true")):
            text = (STUDY.replace("after_rounds: 6", "after_rounds: 6" if not off else "") + later).replace("OFF", off)
            self.federate(self.write(f"{name}.textproto", text), data, name, processes=2)
            self.run_program("leeway", "verify", self.path(name))
            runs.append(self.show(name))
        one, other = runs
        self.assertEqual(len(one["who_pays"]), 3)
        self.assertEqual(other["who_pays"], [])
        self.assertEqual(one["models"]["final"]["sha256"], other["models"]["final"]["sha256"])
        self.assertEqual(one["models"]["optimum"]["sha256"], other["models"]["optimum"]["sha256"])
        self.assertEqual([r["model_sha256"] for r in one["rounds"]], [r["model_sha256"] for r in other["rounds"]])
        self.assertEqual([p["model_sha256"] for p in one["fixed_points"]],
                         [p["model_sha256"] for p in other["fixed_points"]])
        self.assertEqual(one["releases"], other["releases"])
        self.assertEqual(one["probes"][0]["steps"], other["probes"][0]["steps"])

    def tuned(self, w, part, eta, steps, mu=0.0, moved=1.0):
        own = w
        for _ in range(steps):
            own = own - eta * moved * (gradient(own, *part) + mu * (own - w))
        return own

    def test_models_of_their_own_agree_with_numpy(self):
        data = self.data()
        rule = "step_size: 0.2 steps: 7"
        config = MODEL + f"""
phases {{ train {{ rounds: 5 local {{ step_size: 0.1 steps: 5 }} }} }}
phases {{ evaluate {{ fine_tune {{ {rule} fedprox {{ mu: 0.8 }} }} }} }}
phases {{ evaluate {{ fine_tune {{ step_size: 0.1 steps: 400 fedprox {{ mu: 0.8 }} }} }} }}
phases {{ evaluate {{ fine_tune {{ {rule} }} fine_tune_tensors: "bias" }} }}
phases {{ evaluate {{ fine_tune {{ {rule} fedprox {{ mu: 0.8 }} }} fine_tune_tensors: ["weight", "bias"] }} }}
"""
        self.federate(self.write("c.textproto", config), data, "run", processes=2)
        shown = self.show()
        tensors = read_safetensors(shown["final_model"])
        w = np.column_stack([tensors["weight"].reshape(CLASSES, -1), tensors["bias"]])
        bias = np.zeros_like(w)
        bias[:, -1] = 1
        parts = [part for c, part in enumerate(self.train) if c != WITHOUT_TEST]
        plain = [self.tuned(w, part, 0.2, 7, 0.8) for part in parts]
        for found, own in zip(shown["evaluations"],
                              (plain, [self.ditto(w, part, 0.8) for part in parts],
                               [self.tuned(w, part, 0.2, 7, moved=bias) for part in parts], plain)):
            losses = [loss(v, *part) - L2 / 2 * np.sum(v * v) for v, part in zip(own, self.test)]
            sizes = [len(y) for _, y in self.test]
            self.assertLess(abs(found["test_loss"] - np.average(losses, weights=sizes)), 1e-8)
            before = [loss(w, *part) - L2 / 2 * np.sum(w * w) for part in self.test]
            d = np.array(losses) - before
            self.assertEqual((found["comparison"]["winners"], found["comparison"]["losers"]),
                             ((d < 0).sum(), (d > 0).sum()))
            self.assertAlmostEqual(found["comparison"]["difference"], d.mean(), 8)

    def ditto(self, w, part, mu):
        """argmin F_c(v) + mu/2 |v - w|^2."""
        own = w
        for _ in range(400):
            own = own - 0.1 * (gradient(own, *part) + mu * (own - w))
        return own

    def test_unknown_tensors_are_named(self):
        data = self.data()
        config = MODEL + 'phases { evaluate { fine_tune { step_size: 1 steps: 1 } fine_tune_tensors: "head" } }'
        for check in ([], ["--check"]):
            code, text = self.run_program("leeway", "run", self.write("c.textproto", config), "--data", data,
                                          "--out", self.path("run"), *check, check=False)
            self.assertNotEqual(code, 0)
            self.assertIn("phases[0].evaluate.fine_tune_tensors has 'head', which is no tensor of the model; it has "
                          "weight, bias", text)

    def test_the_last_layer_of_a_network_agrees_with_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        data = self.data()
        config = f"""seed: 4 model {{ mlp {{ hidden: [6] classes: {CLASSES} }} }}
phases {{ train {{ rounds: 3 local {{ step_size: 0.1 steps: 5 }} }} }}
phases {{ evaluate {{ fine_tune {{ step_size: 0.2 steps: 9 }} fine_tune_tensors: ["dense2.weight", "dense2.bias"] }} }}
phases {{ evaluate {{ fine_tune {{ step_size: 0.2 steps: 9 fedprox {{ mu: 0.5 }} }} }} }}
"""
        self.federate(self.write("c.textproto", config), data, "run", processes=2)
        shown = self.show()
        model = {k: torch.tensor(v.copy()) for k, v in read_safetensors(shown["final_model"]).items()}

        def logits(tensors, x):
            x = torch.tensor(x[:, :-1], dtype=torch.float32)
            x = torch.relu(x @ tensors["dense1.weight"] + tensors["dense1.bias"])
            return x @ tensors["dense2.weight"] + tensors["dense2.bias"]

        for found, names, mu in zip(shown["evaluations"], (["dense2.weight", "dense2.bias"], list(model)), (0, 0.5)):
            total, examples = 0.0, 0
            tests = iter(self.test)
            for c, (x, y) in enumerate(self.train):
                if c == WITHOUT_TEST:
                    continue
                own = {k: v.clone() for k, v in model.items()}
                for k in names:
                    own[k].requires_grad_()
                optimizer = torch.optim.SGD([own[k] for k in names], lr=0.2)
                for _ in range(9):
                    optimizer.zero_grad()
                    value = torch.nn.functional.cross_entropy(logits(own, x), torch.tensor(y, dtype=torch.long))
                    value = value + mu / 2 * sum(((own[k] - model[k]) ** 2).sum() for k in names)
                    value.backward()
                    optimizer.step()
                x, y = next(tests)
                with torch.no_grad():
                    total += torch.nn.functional.cross_entropy(logits(own, x), torch.tensor(y, dtype=torch.long),
                                                               reduction="sum").item()
                examples += len(y)
            self.assertAlmostEqual(found["test_loss"], total / examples, delta=1e-4)


if __name__ == "__main__":
    unittest.main()
