"""leeway.torch against plain PyTorch loops."""

import unittest

import numpy as np

try:
    import torch
except ImportError:
    raise unittest.SkipTest("needs torch")

import leeway
import leeway.torch
from fake_client import FakeClient
from leeway._random import Batches, Stream

torch.set_num_threads(1)
torch.manual_seed(3)
X, Y = torch.randn(50, 4), torch.randint(0, 3, (50,))
cross_entropy = torch.nn.functional.cross_entropy


def mlp():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def flat(model):
    return np.concatenate([p.detach().numpy().ravel() for p in leeway.torch.federated(model).values()])


class Slow(torch.utils.data.Dataset):
    """A data set that is no tensor."""

    def __len__(self):
        return 50

    def __getitem__(self, i):
        return X[i], Y[i]


class TorchTest(unittest.TestCase):
    def client(self, model, data=None, dtype="F32", loss=cross_entropy, **more):
        options = dict(test=None, name="a", device=None, buffers="average", chunk=1000, loader=None, correct=None)
        options.update(more)
        tensors = {n: list(t.shape) for n, t in leeway.torch.federated(model, options["buffers"]).items()}
        self.start = flat(model) if options["buffers"] == "average" else None
        client = FakeClient(leeway.torch.TorchHost(model, loss, data or (X, Y), **options))
        self.addCleanup(client.close)
        client.hello()
        self.assertEqual(client.prepare(tensors, dtype)["type"], "ready")
        return client

    def sgd(self, rows_of, steps, eta):
        """Displacement of a plain loop."""
        model = mlp()
        start = flat(model)
        optimizer = torch.optim.SGD(model.parameters(), eta)
        for _ in range(steps):
            rows = rows_of()
            optimizer.zero_grad()
            cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
        return start - flat(model)

    def test_local_steps_are_those_of_a_plain_loop(self):
        for data in (None, Slow()):
            reply, vectors = self.client(mlp(), data).ask(
                "a", flat(mlp()), ["loss", "displacement"], {"step_size": 0.1, "steps": 7, "batch_size": 8})
            self.assertEqual(reply["type"], "answer", reply)
            batches = Batches(50, 8, Stream((1, 2, 3, 4)))
            np.testing.assert_allclose(vectors["displacement"], self.sgd(batches.next, 7, 0.1), atol=1e-6)
            self.assertAlmostEqual(reply["numbers"]["loss"], cross_entropy(mlp()(X), Y).item(), places=5)

    def test_full_batches_in_chunks_and_drift(self):
        for more in ({}, {"chunk": 17}, {"chunk": 17, "loader": {"num_workers": 2}, "data": Slow()}):
            reply, vectors = self.client(mlp(), **more).ask(
                "a", flat(mlp()), ["loss", "gradient", ("drift", 1), ("drift", 5)], {"step_size": 0.2, "steps": 5})
            self.assertEqual(reply["type"], "answer", reply)
            everything = lambda: np.arange(50)
            step = self.sgd(everything, 1, 0.2)
            np.testing.assert_allclose(vectors["gradient"], step / 0.2, atol=1e-6)
            self.assertFalse(vectors["drift@1"].any())
            np.testing.assert_allclose(vectors["drift@5"], step / 0.2 - self.sgd(everything, 5, 0.2) / 1.0, atol=1e-5)

    def test_running_statistics_are_averaged_and_integers_stay(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))
        self.assertIn("1.running_mean", leeway.torch.federated(model))
        self.assertNotIn("1.num_batches_tracked", leeway.torch.federated(model))
        reference = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))
        reference.load_state_dict(model.state_dict())
        w = flat(model)
        reply, vectors = self.client(model).ask("a", w, ["loss", "displacement", "drift"],
                                                {"step_size": 0.1, "steps": 3, "batch_size": 25})
        self.assertEqual(reply["type"], "answer", reply)
        batches = Batches(50, 25, Stream((1, 2, 3, 4)))
        optimizer = torch.optim.SGD(reference.parameters(), 0.1)
        for _ in range(3):
            rows = batches.next()
            optimizer.zero_grad()
            cross_entropy(reference(X[rows]), Y[rows]).backward()
            optimizer.step()
        np.testing.assert_allclose(vectors["displacement"], w - flat(reference), atol=1e-5)
        self.assertEqual(int(model[1].num_batches_tracked), 3)
        statistics = sum(t.numel() for n, t in leeway.torch.federated(model).items() if "running" in n)
        self.assertFalse(vectors["drift"][-statistics:].any())
        self.assertTrue(vectors["drift"][:-statistics].any())

    def test_buffers_may_stay_local(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))
        w = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
        client = self.client(model, buffers="local")
        client.ask("a", w, ["loss"])
        self.assertFalse(model[1].running_mean.any())  # measuring leaves them alone
        client.ask("a", w, ["displacement"], {"steps": 2, "batch_size": 25})
        client.ask("a", w, ["loss"])
        self.assertTrue(model[1].running_mean.any())

    def test_scalars_integers_and_empty_buffers_do_no_harm(self):
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 3)
                self.temperature = torch.nn.Parameter(torch.tensor(2.0))
                self.register_buffer("mean", torch.tensor(0.0))
                self.register_buffer("steps", torch.tensor(0))
                self.register_buffer("empty", torch.zeros(0))

            def forward(self, x):
                self.steps += 1
                self.mean += 1
                return self.linear(x) / self.temperature

        model = Scaled()
        self.assertEqual(list(leeway.torch.federated(model)), ["temperature", "linear.weight", "linear.bias", "mean"])
        w = flat(model)
        reply, vectors = self.client(model).ask("a", w, ["displacement", "drift"],
                                                {"step_size": 0.1, "steps": 2, "batch_size": 25})
        self.assertEqual(reply["type"], "answer", reply)
        self.assertNotEqual(vectors["displacement"][0], 0)
        self.assertEqual(vectors["displacement"][-1], -2)  # what two steps counted
        self.assertEqual(vectors["drift"][-1], 0)

    def test_sparse_gradients_and_parameters_that_take_no_part(self):
        class Words(torch.nn.Module):
            def __init__(self, sparse):
                super().__init__()
                torch.manual_seed(2)
                self.unused = torch.nn.Linear(2, 2)
                self.embedding = torch.nn.Embedding(9, 3, sparse=sparse)

            def forward(self, x):
                return self.embedding(x).sum(1)

        data = torch.arange(50).reshape(25, 2) % 9, torch.arange(25) % 3
        answers = []
        for sparse in (False, True):
            model = Words(sparse)
            w = flat(model)
            reply, vectors = self.client(model, data).ask("a", w, ["displacement", "gradient"],
                                                          {"step_size": 0.1, "steps": 4, "batch_size": 5})
            self.assertEqual(reply["type"], "answer", reply)
            answers.append(vectors)
        for key in ("displacement", "gradient"):
            np.testing.assert_allclose(answers[0][key], answers[1][key], atol=1e-7)
            self.assertFalse(answers[0][key][:6].any())
            self.assertTrue(answers[0][key][6:].any())

    def test_test_part(self):
        client = self.client(mlp(), test=(X[:20], Y[:20]), chunk=6)
        reply, _ = client.ask("a", flat(mlp()), ["test_examples", "test_loss", "test_correct"])
        output = mlp()(X[:20])
        self.assertEqual(reply["numbers"]["test_correct"], int((output.argmax(1) == Y[:20]).sum()))
        self.assertAlmostEqual(reply["numbers"]["test_loss"], 20 * cross_entropy(output, Y[:20]).item(), places=4)

    def refused(self, tensors, dtype="F32", model=None):
        host = leeway.torch.TorchHost(model or mlp(), cross_entropy, (X, Y), None, "a", None, "average", 10, None, None)
        client = FakeClient(host)
        self.addCleanup(client.close)
        client.hello()
        reply = client.prepare(tensors, dtype)
        self.assertEqual(reply["type"], "error")
        return reply["error"]

    def test_models_that_do_not_fit_are_named(self):
        right = {"0.weight": [5, 4], "0.bias": [5], "2.weight": [3, 5], "2.bias": [3]}
        self.assertIn("'0.weight' has shape [5, 9] in the run's model and [5, 4]",
                      self.refused({**right, "0.weight": [5, 9]}))
        self.assertIn("has a tensor 'head', this model has not", self.refused({**right, "head": [1]}))
        self.assertIn("has a tensor '2.bias', the run's model has not",
                      self.refused({n: s for n, s in right.items() if n != "2.bias"}))
        self.assertIn("model.double()", self.refused(right, "F64"))
        with self.assertRaisesRegex(leeway.Error, r"float16.*model.float\(\)"):
            leeway.torch.federated(mlp().half())

    def test_a_loss_that_is_no_scalar_and_empty_data_are_named(self):
        client = self.client(mlp(), loss=lambda o, t: cross_entropy(o, t, reduction="none"))
        reply, _ = client.ask("a", flat(mlp()), ["loss"])
        self.assertIn("the loss has shape [50]; expected a scalar", reply["error"])
        with self.assertRaisesRegex(leeway.Error, "no examples"):
            self.client(mlp(), (X[:0], Y[:0]))

    def test_a_saved_model_comes_back(self):
        import os
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.safetensors")
            leeway.torch.save(mlp(), path)
            other = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
            leeway.torch.load_into(other, path)
            self.assertTrue((flat(other) == flat(mlp())).all())
            self.assertEqual(list(leeway.load(path)), ["0.weight", "0.bias", "2.weight", "2.bias"])


if __name__ == "__main__":
    unittest.main()
