"""The session in tests/vectors, which the C++ side reads, too."""

import json
import os
import unittest

import numpy as np

from fake_client import FakeClient
from leeway._gradient import GradientHost
from leeway._tensors import load

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/vectors/worker-session.json")


def gradient(w, batch):
    x, y = batch
    r = x @ w - y
    return 0.5 * np.mean(r ** 2), x.T @ r / len(y)


class VectorsTest(unittest.TestCase):
    def test_the_session_is_answered_as_written(self):
        with open(PATH) as file:
            session = json.load(file)
        data = (np.array(session["x"]), np.array(session["y"]))
        client = FakeClient(GradientHost(gradient, data, None, "clinic_07", None, None))
        self.addCleanup(client.close)
        self.assertEqual(client.send(session["hello"]), session["hello_reply"])
        self.assertEqual(client.send(session["prepare"]), session["prepare_reply"])
        order = session["order"]
        order["model"]["file"] = os.path.join(client.folder.name, "model")
        order["answer_file"] = os.path.join(client.folder.name, "answer")
        expected = os.path.join(client.folder.name, "expected")
        for path, text in ((order["model"]["file"], session["model_file"]), (order["answer_file"], ""),
                           (expected, session["answer_file"])):
            with open(path, "wb") as file:
                file.write(bytes.fromhex(text))
        reply = client.send(order)
        self.assertAlmostEqual(reply["numbers"].pop("loss"), session["order_reply"]["numbers"].pop("loss"), delta=1e-14)
        self.assertEqual(reply, session["order_reply"])
        written, right = load(order["answer_file"]), load(expected)
        self.assertEqual(list(written), list(right))
        for key in right:
            np.testing.assert_allclose(written[key], right[key], rtol=1e-13)


if __name__ == "__main__":
    unittest.main()
