"""leeway.join's host against formulas written out here."""

import unittest

import numpy as np

from fake_client import FakeClient
from leeway._errors import Error
from leeway._gradient import GradientHost
from leeway._random import Batches, Stream, name_of

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(40, 3)), RNG.normal(size=40)


def gradient(w, batch):
    x, y = batch
    r = x @ w - y
    return 0.5 * np.mean(r ** 2), x.T @ r / len(y)


def host(f=gradient, data=(X, Y), test=None, **more):
    options = dict(name="a", evaluate=None, smoothness=None)
    options.update(more)
    return GradientHost(f, data, test, options["name"], options["evaluate"], options["smoothness"])


class GradientTest(unittest.TestCase):
    def client(self, *args, **more):
        client = FakeClient(host(*args, **more))
        self.addCleanup(client.close)
        client.hello()
        self.assertEqual(client.prepare({"weight": [3]})["type"], "ready")
        return client

    def test_hello_names_clients_examples_and_shape(self):
        client = FakeClient(host(data={"a": (X, Y), "b": (X[:7], Y[:7])}, test={"b": (X[:2], Y[:2])}, name=None))
        self.addCleanup(client.close)
        self.assertEqual(client.hello(), {
            "type": "hello", "version": 1, "features": [3], "labels": False,
            "clients": [{"name": "a", "examples": 40, "test_examples": 0},
                        {"name": "b", "examples": 7, "test_examples": 2}]})

    def test_full_batch_drift_follows_the_definition_and_is_zero_after_one_step(self):
        w, eta = np.array([0.3, -1.0, 2.0]), 0.1
        reply, vectors = self.client().ask("a", w, ["loss", "gradient", ("drift", 1), ("drift", 4), "displacement"],
                                           {"step_size": eta, "steps": 4})
        local = w.copy()
        for _ in range(4):
            local = local - eta * gradient(local, (X, Y))[1]
        g = gradient(w, (X, Y))[1]
        self.assertAlmostEqual(reply["numbers"]["loss"], gradient(w, (X, Y))[0], delta=1e-15)
        np.testing.assert_allclose(vectors["gradient"], g, rtol=1e-14)
        np.testing.assert_allclose(vectors["displacement"], w - local, rtol=1e-12)
        np.testing.assert_allclose(vectors["drift@4"], g - (w - local) / (eta * 4), rtol=1e-10)
        self.assertFalse(vectors["drift@1"].any())

    def test_a_model_is_read_once_and_handed_on_without_a_copy(self):
        places = []

        def where(w, batch):
            places.append((w.__array_interface__["data"][0], w.flags.writeable))
            return gradient(w, batch)

        client = FakeClient(host(where, data={"a": (X, Y), "b": (X, Y)}, name=None))
        self.addCleanup(client.close)
        client.hello()
        client.prepare({"weight": [3]})
        for name in ("a", "b"):
            client.ask(name, np.ones(3), ["gradient"], sha256="the same")
        client.ask("a", np.zeros(3), ["gradient"], sha256="another")
        self.assertEqual(places[0], places[1])
        self.assertNotEqual(places[0][0], places[2][0])
        self.assertFalse(any(writeable for _, writeable in places))

    def test_batches_are_permutations_and_the_same_every_time(self):
        client = self.client()
        rule = {"steps": 0, "epochs": 2, "batch_size": 16}
        first = client.ask("a", np.zeros(3), ["displacement"], rule)[1]["displacement"]
        again = client.ask("a", np.zeros(3), ["displacement"], rule)[1]["displacement"]
        other = client.ask("a", np.zeros(3), ["displacement"], rule, random=(1, 2, 3, 5))[1]["displacement"]
        self.assertTrue((first == again).all())
        self.assertFalse((first == other).all())
        batches = Batches(40, 16, Stream((1, 2, 3, 4)))
        local = np.zeros(3)
        for expected in (16, 16, 8) * 2:
            rows = batches.next()
            self.assertEqual(len(rows), expected)
            local = local - 0.1 * gradient(local, (X[rows], Y[rows]))[1]
        np.testing.assert_allclose(first, -local, rtol=1e-12)

    def test_philox_is_the_published_one(self):
        # Random123's vectors for Philox4x32-10.
        stream = Stream((0, 0, 0, 0))
        self.assertEqual([stream.next64(), stream.next64()], [0xe169c58d6627e8d5, 0x9b00dbd8bc57ac4c])

    def test_curvature_of_a_quadratic_is_that_of_its_matrix(self):
        reply, vectors = self.client().ask("a", np.ones(3), ["hessian", "smoothness", "convexity"])
        hessian = X.T @ X / len(Y)
        np.testing.assert_allclose(vectors["hessian"], hessian, rtol=1e-12)
        values = np.linalg.eigvalsh(hessian)
        self.assertAlmostEqual(reply["numbers"]["smoothness"], values[-1], delta=1e-12)
        self.assertAlmostEqual(reply["numbers"]["convexity"], values[0], delta=1e-12)

    def test_iterate_bias_and_variance_by_repeats(self):
        rule = {"step_size": 0.05, "steps": 3, "batch_size": 10}
        reply, _ = self.client().ask("a", np.ones(3), ["loss", ("drift", 3), ("iterate_bias_squared", 3),
                                                       ("pseudo_gradient_variance", 3)], rule, repeats=5)
        stream = Stream((1, 2, 3, 4))
        paths = [Stream((1, 2, 3, 4))] + [Stream(name_of(stream.next64(), r, 0, 2)) for r in range(1, 5)]
        ends = []
        for own in paths:
            batches, local = Batches(40, 10, own), np.ones(3)
            for _ in range(3):
                rows = batches.next()
                local = local - 0.05 * gradient(local, (X[rows], Y[rows]))[1]
            ends.append((1 - local) / 0.15)
        variance = np.sum(np.var(ends, axis=0, ddof=1))
        self.assertAlmostEqual(reply["numbers"]["pseudo_gradient_variance@3"], variance, delta=1e-12)

    def test_test_part(self):
        client = self.client(test=(X[:5], Y[:5]), evaluate=lambda w, b: (gradient(w, b)[0], 3))
        reply, _ = client.ask("a", np.ones(3), ["test_examples", "test_loss", "test_correct"])
        self.assertEqual(reply["numbers"]["test_examples"], 5)
        self.assertEqual(reply["numbers"]["test_correct"], 3)
        self.assertAlmostEqual(reply["numbers"]["test_loss"], 5 * gradient(np.ones(3), (X[:5], Y[:5]))[0], delta=1e-12)

    def error(self, f, sums=("loss", "gradient"), w=np.zeros(3), **rule):
        reply, _ = self.client(f).ask("a", w, sums, rule)
        self.assertEqual(reply["type"], "error", reply)
        self.assertNotIn("\n", reply["error"])
        return reply["error"]

    def test_bad_functions_are_named(self):
        self.assertIn("shape [40]; expected one number", self.error(lambda w, b: (b[1], w)))
        self.assertIn("has shape [2], but the tensor has [3]", self.error(lambda w, b: (1.0, w[:2])))
        self.assertIn("the loss is nan", self.error(lambda w, b: (float("nan"), w)))
        self.assertIn("expected a pair", self.error(lambda w, b: 1.0))
        self.assertIn("gradient is not finite", self.error(lambda w, b: (1.0, w * np.nan)))
        self.assertIn("lower step_size",
                      self.error(gradient, ["displacement"], np.ones(3), step_size=1e300, steps=4))

    def test_an_exception_is_one_line_with_its_place(self):
        def broken(w, batch):
            raise KeyError("no such\ncolumn")
        message = self.error(broken)
        self.assertIn("KeyError", message)
        self.assertIn("test_gradient.py, line", message)

    def test_an_unknown_sum_is_refused(self):
        self.assertIn("the metric 'auc'", self.error(gradient, ["metric/auc"]))
        self.assertIn("asks for 'skewness'", self.error(gradient, ["skewness"]))

    def test_bad_data_is_refused(self):
        for data, words in (((X[:0], Y[:0]), "no examples"), ((X, Y[:3]), "equally many rows"), ({}, "no clients")):
            with self.assertRaisesRegex(Error, words):
                host(data=data, name=None)


if __name__ == "__main__":
    unittest.main()
