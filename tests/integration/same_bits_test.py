"""One process with a hundred clients, a hundred processes with one, or seven with uneven
shares: the final model has the same sha256."""

import json
import os
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: SEED
model { linear_regression { intercept: false } }
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

    def test_clients_made_on_the_fly_are_those_of_the_files(self):
        options = dict(clients=100, samples=50, dimension=8, seed=4, conflict=0.2)
        files = self.synthetic("files", **options)
        made = self.path("made")
        self.run_program("leeway", "data", "synthetic", "--out", made, "--on-the-fly",
                         *[x for k, v in options.items() for x in ("--" + k, v)])
        self.assertEqual(sorted(os.listdir(made)), ["synthetic.json", "truth.npy"])
        config = self.write("c.textproto",
                            CONFIG.replace("SEED", "4").replace("WEIGHTING", "EXAMPLES"))
        self.federate(config, files, "from_files", processes=5)
        self.federate(config, made, "from_seed", processes=3)
        # A third time, with nothing kept from one round to the next.
        server, address = self.start_server(config, 100, "anew")
        client = self.start("leeway-client", "--server", address, "--keep-mb", 0,
                            made + "/synthetic.json:0-99")
        self.assertEqual((server.wait(TIMEOUT), client.wait(TIMEOUT)), (0, 0))
        hashes = [[r["model_sha256"] for r in self.show(run)["rounds"]]
                  for run in ("from_files", "from_seed", "anew")]
        self.assertEqual(hashes[0], hashes[1])
        self.assertEqual(hashes[0], hashes[2])

    def test_a_wrong_range_or_recipe_is_named(self):
        made = self.path("made")
        self.run_program("leeway", "data", "synthetic", "--out", made, "--clients", 10,
                         "--on-the-fly")
        recipe = made + "/synthetic.json"
        for argument in (recipe + ":0-10", recipe + ":3-2", recipe + ":x", recipe + ":"):
            code, text = self.run_program("leeway-client", "--server", "127.0.0.1:1", argument,
                                          check=False)
            self.assertEqual(code, 2)
            self.assertIn("numbers from 0 to 9", text)
        with open(recipe) as f:
            good = json.load(f)
        for change, named in (({"samples": 0}, "--samples"), ({"samples": -1}, "'samples'"),
                              ({"noise_sd": "x"}, "'noise_sd'"), ({"more": 1}, "unknown field")):
            with open(recipe, "w") as f:
                json.dump({**good, **change}, f)
            code, text = self.run_program("leeway", "run", "--check", self.write(
                "c.textproto", "model { linear_regression { intercept: false } } phases { optimum {} }"),
                "--data", made, check=False)
            self.assertEqual(code, 2)
            self.assertIn(named, text)
            self.assertIn("synthetic.json", text)


if __name__ == "__main__":
    unittest.main()
