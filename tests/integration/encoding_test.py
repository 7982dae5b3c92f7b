"""Short wire encodings: the same bits however clients are hosted, close to the exact run, with
the error in the records."""

import unittest

from leeway_case import LeewayCase

CONFIG = """
seed: 3
encoding: ENCODING
model { linear_regression {} }
phases { optimum {} }
phases { train { rounds: 60 local { step_size: 0.01 steps: 5 } } }
"""


class EncodingTest(LeewayCase):
    def run_with(self, encoding, processes):
        config = self.write(f"{encoding}.textproto", CONFIG.replace("ENCODING", encoding))
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

    def test_a_norm_limit_needs_exact_values(self):
        self.data = self.synthetic(clients=2, samples=20, dimension=3)
        config = self.write("c.textproto", CONFIG.replace("ENCODING", "INT8_WIRE") +
                            "limits { max_norm: 1 }")
        code, text = self.federate(config, self.data, "out", check=False)
        self.assertNotEqual(code, 0)
        self.assertIn("limits.max_norm", text)
        self.assertIn("EXACT", text)


if __name__ == "__main__":
    unittest.main()
