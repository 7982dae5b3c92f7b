"""FedDyn beside an independent numpy program, on data where FedAvg stalls, and killed at every durable step."""

import unittest

import numpy as np

import scaffold_test
from oracle_test import gradient, load
from scaffold_test import DIMENSION, ETA, conflict

ALPHA = 0.5


def feddyn(clients, cohorts, steps, by_examples):
    """The model after one round for each cohort, by the update rules of Acar et al. 2021."""
    weight = [len(y) if by_examples else 1 for _, y in clients]
    w = np.zeros(DIMENSION)
    h = np.zeros(DIMENSION)
    own = [np.zeros(DIMENSION) for _ in clients]
    for cohort in cohorts:
        local = {}
        for i in cohort:
            x = w.copy()
            for _ in range(steps):
                x = x - ETA * (gradient(*clients[i], x) - own[i] + ALPHA * (x - w))
            own[i] = own[i] - ALPHA * (x - w)
            local[i] = x
        h = h - ALPHA * sum(weight[i] * (local[i] - w) for i in cohort) / sum(weight)
        w = sum(weight[i] * local[i] for i in cohort) / sum(weight[i] for i in cohort) - h / ALPHA
    return w


class FedDynTest(scaffold_test.LeewayCase):
    cohorts = scaffold_test.ScaffoldTest.cohorts
    compare = scaffold_test.ScaffoldTest.compare

    def check(self, name, more, by_examples=False):
        data = self.path("data")
        config = self.write(name + ".textproto", f"""
seed: 5 model {{ linear_regression {{ intercept: false }} }} {more}
phases {{ train {{ rounds: 30 local {{ step_size: {ETA} steps: 6 feddyn {{ alpha: {ALPHA} }} }} }} }}""")
        self.federate(config, data, name, processes=3)
        self.compare(feddyn(load(data), self.cohorts(name, 0), 6, by_examples), name)

    def test_agrees_with_numpy(self):
        conflict(self.path("data"))
        self.check("all", "")
        self.check("weighted", "weighting: EXAMPLES", True)
        self.check("sampled", "cohort { size: 3 }")
        self.check("sampled_weighted", "cohort { size: 3 } weighting: EXAMPLES", True)

    def test_converges_where_fedavg_stalls(self):
        data = conflict(self.path("data"))
        distance = {}
        for name, algorithm in (("fedavg", ""), ("feddyn", "feddyn { alpha: 10 }")):
            config = self.write(name + ".textproto", f"""
seed: 5 model {{ linear_regression {{ intercept: false }} }} phases {{ optimum {{}} }}
phases {{ train {{ rounds: 300 local {{ step_size: 0.008 steps: 20 {algorithm} }} }} }}""")
            self.federate(config, data, name, processes=2)
            distance[name] = self.show(name)["rounds"][-1]["distance_squared"]
        self.assertGreater(distance["fedavg"], 0.1)
        self.assertLess(distance["feddyn"], 1e-12)

    def test_a_wrong_strength_is_refused(self):
        config = self.write("c.textproto", """
model { linear_regression {} }
phases { train { rounds: 1 local { step_size: 0.1 steps: 2 feddyn { alpha: -1 } } } }""")
        code, text = self.run_program("leeway", "run", "--check", config, check=False)
        self.assertNotEqual(code, 0)
        self.assertIn("local.feddyn.alpha is -1; give a positive number, such as 0.1", text)


class FedDynDies(scaffold_test.ScaffoldDies):
    CONFIG = scaffold_test.ScaffoldDies.CONFIG.replace("scaffold {}", "feddyn { alpha: 0.5 }")


if __name__ == "__main__":
    unittest.main()
