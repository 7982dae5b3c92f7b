"""One process with a hundred clients, a hundred processes with one, or seven with uneven
shares: the final model has the same sha256."""

import unittest

from leeway_case import LeewayCase

CONFIG = """
seed: SEED
model { linear_regression {} }
weighting: WEIGHTING
cohort { size: 40 }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.004 steps: [1, 10] clients: 60 } }
phases { train { rounds: 6 local { step_size: 0.004 epochs: 2 batch_size: 16 }
                 server { rate: 1 momentum: 0.5 } } }
"""


class SameBitsTest(LeewayCase):
    def test_the_split_into_processes_leaves_no_trace(self):
        for seed, weighting in [(1, "UNIFORM"), (2, "EXAMPLES"), (3, "UNIFORM")]:
            data = self.synthetic(f"data{seed}", clients=100, samples=50, dimension=8, seed=seed)
            text = CONFIG.replace("SEED", str(seed)).replace("WEIGHTING", weighting)
            config = self.write(f"{seed}.textproto", text)
            results = []
            for processes in (100, 1, 7):
                out = f"run{seed}_{processes}"
                self.federate(config, data, out, processes=processes)
                results.append(self.show(out))
            hashes = [[r["model_sha256"] for r in result["rounds"]] for result in results]
            self.assertEqual(hashes[0], hashes[1], f"seed {seed}")
            self.assertEqual(hashes[0], hashes[2], f"seed {seed}")
            self.assertEqual(len(set(hashes[0])), 6)  # every round moved the model
            drifts = [[s["average_drift_squared"] for s in r["probes"][0]["steps"]]
                      for r in results]
            self.assertEqual(drifts[0], drifts[1])
            self.assertEqual(drifts[0], drifts[2])


if __name__ == "__main__":
    unittest.main()
