"""The verdict, its evidence and the report of real runs; and what is said when there is none."""

import csv
import json
import os
import unittest

import numpy as np

from drawn_charts import assert_charts_are_drawn
from leeway_case import LeewayCase
from oracle_test import load

START = "seed: 1 model { linear_regression { intercept: false } } durability: RELAXED "
MEASURE = START + "phases { constants {} } phases { optimum { tolerance: 1e-12 } } "
STEPS = [2, 10, 50]


class DriftTest(LeewayCase):
    def drift(self, out="run"):
        _, text = self.run_program("leeway", "drift", self.path(out), "--json")
        return json.loads(text)

    def refused(self, result, *words):
        code, text = result
        self.assertNotEqual(code, 0, text)
        for word in words:
            self.assertIn(word, text)

    def test_the_fixed_point_is_the_closed_form_and_below_the_floor(self):
        data = self.synthetic(clients=20, samples=200, dimension=6, condition=10, conflict=0.5)
        phases = "".join(f"phases {{ probe {{ point: OPTIMUM steps: [{h}] }} }} "
                         f"phases {{ fixed_point {{ steps: [{h}] tolerance: 1e-11 }} }} "
                         for h in STEPS)
        self.federate(self.write("c.textproto", MEASURE + phases), data, processes=1)
        clients = load(data)
        a = np.array([x.T @ x / len(y) for x, y in clients])
        b = np.array([x.T @ y / len(y) for x, y in clients])
        optimum = np.linalg.solve(a.mean(0), b.mean(0))
        smallest = min(np.linalg.eigvalsh(m)[0] for m in a)
        one = np.eye(6)
        evidence = self.drift()["evidence"]
        self.assertEqual([e["h"] for e in evidence], STEPS)
        for e in evidence:
            powers = np.array([np.linalg.matrix_power(one - e["step_size"] * m, e["h"]) for m in a])
            # Every client contracts towards its own optimum.
            own = np.array([np.linalg.solve(m, v) for m, v in zip(a, b)])
            pull = np.mean([(one - p) @ w for p, w in zip(powers, own)], axis=0)
            rest = np.linalg.solve(one - powers.mean(0), pull)
            error = rest - optimum
            self.assertAlmostEqual(e["distance_squared"] / (error @ error), 1, delta=1e-6)
            self.assertAlmostEqual(e["gap"] / (0.5 * error @ a.mean(0) @ error), 1, delta=1e-6)
            rho = a.mean(0) @ optimum - b.mean(0) - (optimum - powers.mean(0) @ optimum - pull) / (
                e["step_size"] * e["h"])
            self.assertAlmostEqual(e["average_drift_squared"] / (rho @ rho), 1, delta=1e-6)
            # Constants are rounded to the safe side.
            floor = 20 * (rho @ rho) / smallest ** 2
            self.assertGreaterEqual(e["floor"], floor * (1 - 1e-9))
            self.assertLess(e["floor"], floor * 1.01)
            self.assertLess(e["distance_squared"], e["floor"])

    def truth(self, data, eta, h):
        """The share that is lost of what the model explains, in closed form."""
        clients = load(data)
        a = np.array([x.T @ x / len(y) for x, y in clients])
        b = np.array([x.T @ y / len(y) for x, y in clients])
        optimum = np.linalg.solve(a.mean(0), b.mean(0))
        losses = [np.mean((x @ optimum - y) ** 2) / 2 for x, y in clients]
        one = np.eye(len(optimum))
        powers = [np.linalg.matrix_power(one - eta * m, h) for m in a]
        pull = np.mean([(one - p) @ np.linalg.solve(m, v) for p, m, v in zip(powers, a, b)], 0)
        error = np.linalg.solve(one - np.mean(powers, 0), pull) - optimum
        targets = np.array([y for _, y in clients])
        return 0.5 * error @ a.mean(0) @ error / (targets.var() / 2 - np.mean(losses))

    def test_no_unit_of_the_data_makes_a_wrong_verdict(self):
        data = self.synthetic(clients=20, samples=40, dimension=6, conflict=0.2)
        for scale in (1, 1e-2, 1e-4, 1e-5, 1e3):
            scaled = self.path(f"scaled_{scale}")
            for client in os.listdir(data):
                if not os.path.isdir(os.path.join(data, client)):
                    continue
                os.makedirs(os.path.join(scaled, client))
                for part in ("train_x.npy", "train_y.npy"):
                    np.save(os.path.join(scaled, client, part),
                            scale * np.load(os.path.join(data, client, part)))
            config = self.write("c.textproto", START + """
                phases { optimum {} } phases { constants { point: OPTIMUM } }
                phases { fixed_point { steps: [1, 10, 100] } }""")
            out = f"run_{scale}"
            self.federate(config, scaled, out=out, processes=1)
            verdict = self.drift(out)
            for e in verdict["evidence"]:
                lost = self.truth(scaled, e["step_size"], e["h"])
                if e["verdict"] == "harmless":
                    self.assertLess(lost, 0.01, f"scale {scale}, H = {e['h']}")
                if e["verdict"] == "conflict":
                    self.assertAlmostEqual(e["lost"] / lost, 1, delta=0.1)
            if scale >= 1e-2:
                self.assertEqual(verdict["verdict"], "conflict", verdict["sentence"])

    def test_a_search_for_the_optimum_that_was_cut_short_proves_nothing(self):
        data = self.synthetic(conflict=0.3, seed=7)
        for rounds, expected, words in ((3, "uncertain", "raise optimum.max_rounds"),
                                        (500, "conflict", "conflict from H = 10")):
            config = self.write("c.textproto", START + f"""
                phases {{ optimum {{ max_rounds: {rounds} }} }}
                phases {{ constants {{ point: OPTIMUM }} }}
                phases {{ fixed_point {{ steps: [10] }} }}""")
            self.federate(config, data, out=f"run_{rounds}", processes=1)
            verdict = self.drift(f"run_{rounds}")
            self.assertEqual(verdict["verdict"], expected, verdict["sentence"])
            self.assertIn(words, verdict["sentence"])

    def test_a_failed_run_is_not_harmless_where_it_has_no_result(self):
        data = self.synthetic(clients=12, samples=40, dimension=4)
        clients = load(data)
        a = np.array([x.T @ x / len(y) for x, y in clients])
        b = np.array([x.T @ y / len(y) for x, y in clients])
        optimum = np.linalg.solve(a.mean(0), b.mean(0))
        eta = 1 / max(np.linalg.eigvalsh(m)[-1] for m in a)

        def longest(h):  # of the clients' displacements in h steps from w*
            return max(np.linalg.norm((np.eye(4) - np.linalg.matrix_power(np.eye(4) - eta * m, h))
                                      @ (optimum - np.linalg.solve(m, v))) for m, v in zip(a, b))
        limit = (longest(2) * longest(1000)) ** 0.5
        self.assertGreater(longest(1000), 1.5 * longest(2))
        config = self.write("c.textproto", MEASURE + f"""
            cohort {{ attempts: 1 }} limits {{ max_norm: {limit} }}
            phases {{ fixed_point {{ step_size: {eta} steps: [1, 2, 1000] }} }}""")
        self.refused(self.federate(config, data, check=False, processes=1), "max_norm")
        verdict = self.drift()
        self.assertEqual([e["verdict"] for e in verdict["evidence"]], ["harmless", "harmless"])
        self.assertEqual(verdict["verdict"], "uncertain")
        self.assertEqual(verdict["largest_harmless_h"], 2)
        self.assertIn("not enough evidence at H = 1000: the run failed", verdict["sentence"])
        self.assertIn("Up to H = 2 it does not hurt.", verdict["sentence"])

    def test_every_chart_of_a_report_is_drawn(self):
        data = self.synthetic(clients=20, samples=40, dimension=4)
        config = self.write("c.textproto", MEASURE + """
            phases { probe { point: OPTIMUM steps: [1, 2, 10, 50] } }
            phases { probe { point: OPTIMUM steps: [2, 10, 50] clients: 10 } }
            phases { fixed_point { steps: [1, 2, 10, 50] } }
            phases { train { rounds: 20 local { steps: 10 } server { rate: 0.125 } } }""")
        self.federate(config, data, processes=1)
        self.run_program("leeway", "report", self.path("run"))
        folder = self.path("run", "report")
        charts = [name for name in os.listdir(folder) if name.endswith(".svg")]
        self.assertGreaterEqual(len(charts), 6)
        for name in charts:
            with open(os.path.join(folder, name[:-3] + "csv")) as f:
                self.assertGreater(len(f.readlines()), 1, name)
        self.assertIn("loss_standard_error_over_rounds.svg", charts)
        # The table of rounds has the names and values of the JSON.
        with open(os.path.join(folder, "rounds.csv")) as f:
            table = list(csv.DictReader(f))
        rounds = self.show()["rounds"]
        self.assertEqual(len(table), 20)
        for row, one in zip(table, rounds):
            self.assertEqual(list(row), list(one))
            for name, value in one.items():
                got = row[name] if isinstance(value, str) else float(row[name]) if row[name] else None
                self.assertEqual(got, value, name)
        assert_charts_are_drawn(self, os.path.join(folder, "report.html"), len(charts))

    def test_a_run_without_an_optimum(self):
        data = self.synthetic(clients=4, samples=20, dimension=3)
        for phase in ("probe { point: OPTIMUM step_size: 0.01 steps: [2] }",
                      "fixed_point { step_size: 0.01 steps: [2] }",
                      "train { start: OPTIMUM rounds: 2 local { step_size: 0.01 steps: 2 } }"):
            config = self.write("c.textproto", START + f"phases {{ {phase} }}")
            self.refused(self.federate(config, data, check=False), "phases[0]", "optimum {}")
        config = self.write("c.textproto", START
                            + "phases { train { rounds: 2 local { step_size: 0.01 steps: 2 } } }")
        self.federate(config, data, processes=1)
        self.refused(self.run_program("leeway", "drift", self.path("run"), check=False),
                     "no verdict", "neither the optimum", "optimum {}", "fixed_point")
        self.run_program("leeway", "report", self.path("run"))  # what there is can be shown

    def test_probes_at_a_round_that_does_not_exist(self):
        data = self.synthetic(clients=4, samples=20, dimension=3)
        config = self.write("c.textproto", START + """
            phases { train { rounds: 5 local { step_size: 0.01 steps: 2 }
                             probe { point: CURRENT step_size: 0.01 steps: [2] }
                             probe_at: [0, 5, 6] } }""")
        self.refused(self.federate(config, data, check=False), "probe_at", "6", "after 5 rounds",
                     "raise rounds")

    def test_one_client_has_nobody_to_disagree_with(self):
        data = self.synthetic(clients=1, samples=20, dimension=3)
        config = self.write("c.textproto", MEASURE
                            + "phases { probe { point: OPTIMUM steps: [2, 10] } } "
                              "phases { fixed_point { steps: [2, 10] } }")
        _, text = self.federate(config, data)
        self.assertIn("A single client cannot disagree with itself", text)
        verdict = self.drift()
        self.assertEqual(verdict["verdict"], "uncertain")
        self.assertIsNone(verdict["largest_harmless_h"])
        self.run_program("leeway", "report", self.path("run"))

    def test_steps_above_two_over_L_diverge_and_the_records_so_far_are_kept(self):
        data = self.synthetic(clients=12, samples=40, dimension=4)
        curvature = max(np.linalg.eigvalsh(x.T @ x / len(y))[-1] for x, y in load(data))
        eta = 2.5 / curvature
        # With room in max_update for the model to grow over some rounds. One attempt: else the run goes on without them.
        config = self.write("c.textproto", "max_update: 1e6 limits { median_multiple: 0 } cohort { attempts: 1 } " + MEASURE
                            + f"phases {{ train {{ rounds: 2000 local {{ step_size: {eta} "
                              "steps: 10 } } }")
        self.refused(self.federate(config, data, check=False, processes=1),
                     "above 2/L", "diverge", "lower it to at most 1/L")
        shown = self.show()
        self.assertEqual(shown["status"], "failed")
        self.assertLess(shown["optimum"]["gradient_norm"], 1e-10)
        losses = [r["loss"] for r in shown["rounds"]]
        self.assertGreater(len(losses), 1)
        self.assertGreater(losses[-1], losses[0])
        self.run_program("leeway", "report", self.path("run"))
        with open(self.path("run", "report", "report.html")) as f:
            self.assertIn("above 2/L", f.read())


if __name__ == "__main__":
    unittest.main()
