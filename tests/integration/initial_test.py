"""initial { file: ... }: a run that starts from the model of another."""

import os
import unittest

from leeway_case import LeewayCase, read_safetensors

CONFIG = """
seed: 2
model { linear_regression { intercept: false } }
phases { train { rounds: ROUNDS drift_off: true local { step_size: 0.01 steps: 2 } } }
"""


class InitialTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=3, samples=20, dimension=3)

    def configure(self, rounds, more="", name="c.textproto"):
        return self.write(name, CONFIG.replace("ROUNDS", str(rounds)) + more)

    def test_training_goes_on_from_the_file(self):
        """Full-batch gradient descent has no memory but the model: 4 + 6 rounds are 10."""
        self.federate(self.configure(10), self.data, "whole")
        self.federate(self.configure(4), self.data, "first")
        start = 'initial { file: "first/models/final.safetensors" }'  # relative to the config
        second = self.configure(6, start, "second.textproto")
        self.run_program("leeway", "run", "--check", second, "--data", self.data)
        self.federate(second, self.data, "second")
        whole, rest = self.show("whole")["rounds"], self.show("second")["rounds"]
        self.assertEqual([r["model_sha256"] for r in rest], [r["model_sha256"] for r in whole[4:]])
        # The same contents under another name are the same run; others are not.
        os.rename(self.path("first"), self.path("moved"))
        again = self.configure(6, start.replace("first", "moved"), "second.textproto")
        self.assertIn("already complete", self.federate(again, self.data, "second")[1])
        other = self.configure(6, start.replace("first/models/final", "whole/models/final"), "second.textproto")
        code, text = self.federate(other, self.data, "second", check=False)
        self.assertEqual(code, 2)
        self.assertRegex(text, r"initial.sha256 is \"\w{64}\" there and \"\w{64}\" here")

    def test_a_file_that_does_not_fit_is_named_with_its_tensor(self):
        self.federate(self.configure(1), self.data, "first")
        self.assertEqual([v.shape for v in read_safetensors(self.path("first/models/final.safetensors")).values()],
                         [(3,)])
        wide = self.synthetic("wide", clients=2, samples=20, dimension=5)
        config = self.configure(1, 'initial { file: "first/models/final.safetensors" }')
        for arguments in (("--check",), ("--out", self.path("wide-run"))):
            done, text = self.run_program("leeway", "run", config, "--data", wide, *arguments, check=False)
            self.assertEqual(done, 2, text)
            self.assertRegex(text, r'tensor "\w+" has shape \[3\], the model\'s has \[5\]')
        config = self.configure(1, 'initial { file: "missing.safetensors" }')
        code, text = self.federate(config, self.data, "none", check=False)
        self.assertEqual(code, 2)
        self.assertIn("initial.file: cannot read", text)


if __name__ == "__main__":
    unittest.main()
