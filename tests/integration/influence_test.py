"""What one of ten clients can do to the model: 256 in every coordinate, with and without limits.median_multiple."""

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
        self.federate(self.configure(LIMIT), self.data, "honest", processes=10)
        honest = self.show("honest")["rounds"][-1]["loss"]
        open_ = self.attacked("open", "", "ignore")
        # Its program ends when it is refused.
        ignored = self.attacked("ignored", LIMIT + "cohort { minimum_reports: 9 return_seconds: 1 }", "ignore")
        obeyed = self.attacked("obeyed", LIMIT, "obey")
        print(f"loss: honest {honest:.4g}, without a limit {open_:.4g}, with the limit "
              f"{ignored:.4g} (client ignores it), {obeyed:.4g} (client obeys it)")
        self.assertGreater(open_, 1000 * honest)
        self.assertEqual(self.events("open", "clipped"), [])
        # Who ignores the limit is refused.
        self.assertLess(ignored, 2 * honest)
        self.assertTrue(any("beyond the limit" in text for text in self.events("ignored", "refused")))
        # Who obeys it has the influence of a few clients, in every round.
        self.assertLess(obeyed, open_ / 100)
        self.assertTrue(any("1 client(s) scaled their displacement down" in text
                            for text in self.events("obeyed", "clipped")))
        self.run_program("leeway", "verify", self.path("obeyed"))

    def test_honest_runs_keep_their_bits(self):
        for out, processes, more in (("limited", 10, LIMIT), ("merged", 3, LIMIT),
                                     ("open", 10, "")):
            self.federate(self.configure(more), self.data, out, processes=processes)
        hashes = {tuple(r["model_sha256"] for r in self.show(out)["rounds"])
                  for out in ("limited", "merged", "open")}
        self.assertEqual(len(hashes), 1)
        limits = [r["norm_limit"] for r in self.show("limited")["rounds"]]
        self.assertEqual(limits[0], 0)
        self.assertTrue(all(limit > 0 for limit in limits[1:]))
        self.assertEqual(limits, [r["norm_limit"] for r in self.show("merged")["rounds"]])
        self.assertEqual(self.events("limited", "clipped"), [])


if __name__ == "__main__":
    unittest.main()
