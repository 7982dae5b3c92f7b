"""Short wire encodings: the same bits however clients are hosted, close to the exact run, with
the error in the records."""

import os
import unittest

import numpy as np

from leeway_case import LeewayCase

CONFIG = """
seed: 3
encoding: ENCODING
model { linear_regression { intercept: false } }
phases { optimum {} }
phases { train { START rounds: 60 local { step_size: 0.01 steps: 5 } } }
"""


class EncodingTest(LeewayCase):
    def run_with(self, encoding, processes, start=""):
        config = self.write(f"{encoding}.textproto",
                            CONFIG.replace("ENCODING", encoding).replace("START", start))
        out = f"{encoding}-{processes}"
        self.federate(config, self.data, out, processes=processes)
        return self.show(out)["rounds"]

    def test_short_encodings(self):
        self.data = self.synthetic(clients=12, samples=40, dimension=10)
        exact = self.run_with("EXACT", 1)
        self.assertEqual({r["encoding_error_squared"] for r in exact}, {0})
        for encoding, relative in (("BFLOAT16_WIRE", 2 ** -8), ("INT8_WIRE", 1 / 127)):
            apart = self.run_with(encoding, 12)
            together = self.run_with(encoding, 1)
            self.assertEqual([r["model_sha256"] for r in apart],
                             [r["model_sha256"] for r in together], encoding)
            self.assertNotEqual(apart[0]["model_sha256"], exact[0]["model_sha256"])
            errors = [r["encoding_error_squared"] for r in apart]
            self.assertTrue(all(e > 0 for e in errors), errors)
            # A coordinate is off by at most one step, relative to the largest.
            moved = exact[0]["distance_squared"]
            self.assertLess(errors[0], 10 * relative ** 2 * moved)
            self.assertAlmostEqual(apart[-1]["loss"], exact[-1]["loss"],
                                   delta=0.02 * exact[0]["loss"])

    def test_rounding_adds_to_the_drift_what_the_record_says(self):
        """Equal Hessians: at w* the average drift is zero, so all that is measured is rounding."""
        self.data = self.path("data")
        random = np.random.default_rng(1)
        x = random.normal(size=(40, 10))
        for c in range(12):
            os.makedirs(self.path("data", f"c{c:02}"))
            np.save(self.path("data", f"c{c:02}", "train_x.npy"), x)
            np.save(self.path("data", f"c{c:02}", "train_y.npy"), 10 * random.normal(size=40))
        for encoding in ("BFLOAT16_WIRE", "INT8_WIRE"):
            rounds = self.run_with(encoding, 1, "start: OPTIMUM")
            shares = [r["average_drift_squared"] / r["encoding_variance"] for r in rounds]
            # A squared norm of 10 coordinates, 60 times: 1 with a standard error of 0.06.
            self.assertLess(abs(np.mean(shares) - 1), 0.3, encoding)
            for r in rounds:
                self.assertAlmostEqual(r["unbiased_drift_squared"] / r["encoding_variance"],
                                       r["average_drift_squared"] / r["encoding_variance"] - 1)

    def test_a_norm_limit_needs_exact_values(self):
        self.data = self.synthetic(clients=2, samples=20, dimension=3)
        config = self.write("c.textproto", CONFIG.replace("ENCODING", "INT8_WIRE").replace("START", "")
                            + "limits { max_norm: 1 }")
        code, text = self.federate(config, self.data, "out", check=False)
        self.assertNotEqual(code, 0)
        self.assertIn("limits.max_norm", text)
        self.assertIn("EXACT", text)


if __name__ == "__main__":
    unittest.main()
