"""What one of ten clients can do to the model: 256 in every coordinate, without a limit, with the limit that runs have
by default, and with limits.median_multiple."""

import os
import sqlite3
import subprocess
import sys
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 3
model { linear_regression { intercept: false } }
phases { train { rounds: 60 drift_off: true local { step_size: 0.05 steps: 5 } } }
"""
LIMIT = "limits { median_multiple: 6 } "
NONE = "limits { median_multiple: 0 } "
POISONER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "poisoner.py")


class InfluenceTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=10, samples=50, dimension=5)

    def configure(self, more):
        return self.write("c.textproto", CONFIG + more)

    def attacked(self, out, more, poison):
        """The loss before the last round of a run whose client 9 is not honest."""
        server, address = self.start_server(self.configure(more), 10, out)
        folders = [os.path.join(self.data, f"client_{i:03}") for i in range(10)]
        for i in range(9):
            self.start("leeway-client", "--server", address, folders[i], log=f"{out}{i}.log")
        with open(self.path(f"{out}-poisoner.log"), "w") as log:
            child = subprocess.Popen([sys.executable, POISONER, "--server", address, "--alone", folders[9]],
                                     stdout=log, stderr=log, env={**os.environ, "LEEWAY_POISON": poison})
            self.children.append(child)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        return self.show(out)["rounds"][-1]["loss"]

    def events(self, out, kind):
        with sqlite3.connect(f"file:{self.path(out, 'run.db')}?mode=ro", uri=True) as db:
            return [r[0] for r in db.execute("SELECT text FROM events WHERE kind = ?", (kind,))]

    def test_one_of_ten_clients_does_not_own_the_model(self):
        self.federate(self.configure(""), self.data, "honest", processes=10)
        rounds = self.show("honest")["rounds"]
        first, honest = rounds[0]["loss"], rounds[-1]["loss"]
        open_ = self.attacked("open", NONE, "ignore")
        self.assertGreater(open_, 1000 * honest)
        self.assertEqual(self.events("open", "clipped"), [])
        for out, limit in (("default", ""), ("six", LIMIT)):
            # Its program ends when it is refused.
            ignored = self.attacked(out + "-ignored", limit + "cohort { minimum_reports: 9 return_seconds: 1 }", "ignore")
            obeyed = self.attacked(out + "-obeyed", limit, "obey")
            print(f"loss: {first:.4g} at the start, {honest:.4g} at an honest end, {open_:.4g} without a limit; with the "
                  f"limit ({out}) {ignored:.4g} (client ignores it), {obeyed:.4g} (client obeys it)")
            # Who ignores the limit is refused.
            self.assertLess(ignored, 2 * honest)
            self.assertTrue(any("beyond the limit" in text for text in self.events(out + "-ignored", "refused")))
            # Who obeys it has the influence of a few clients, in every round.
            self.assertLess(obeyed, open_ / 100)
            self.assertTrue(any("1 client(s) scaled their displacement down" in text
                                for text in self.events(out + "-obeyed", "clipped")))
            self.run_program("leeway", "verify", self.path(out + "-obeyed"))

    def test_honest_runs_keep_their_bits(self):
        runs = {"default": (10, ""), "merged": (3, ""), "six": (10, LIMIT), "six-merged": (3, LIMIT), "open": (10, NONE)}
        for out, (processes, more) in runs.items():
            self.federate(self.configure(more), self.data, out, processes=processes)
        rounds = {out: self.show(out)["rounds"] for out in runs}
        self.assertEqual(len({tuple(r["model_sha256"] for r in rounds[out]) for out in runs}), 1)
        for out in ("default", "six"):
            limits = [r["norm_limit"] for r in rounds[out]]
            self.assertEqual(limits[0], 0)
            self.assertTrue(all(limit > 0 for limit in limits[1:]))
            self.assertEqual(self.events(out, "clipped"), [])
        self.assertEqual([r["norm_limit"] for r in rounds["default"]], [r["norm_limit"] for r in rounds["merged"]])
        self.assertEqual([r["norm_limit"] for r in rounds["six"]], [r["norm_limit"] for r in rounds["six-merged"]])


if __name__ == "__main__":
    unittest.main()
