"""SCAFFOLD beside an independent numpy program, on data where FedAvg stalls, and killed at every
durable step."""

import os
import signal
import sqlite3
import unittest

import numpy as np

import failpoints_test
from leeway_case import TIMEOUT, LeewayCase, read_safetensors
from oracle_test import gradient, load

ETA = 0.004
RATE = 0.7
CLIENTS = 7
DIMENSION = 4


def conflict(directory, copies=False):
    """Clients of different sizes, scales and minimisers; with `copies` each has one example, again
    and again, so that every batch has the gradient of all."""
    rng = np.random.default_rng(3)
    for i in range(CLIENTS):
        folder = os.path.join(directory, f"client_{i:03}")
        os.makedirs(folder)
        n = 5 + 4 * i
        x = rng.normal(size=(1 if copies else n, DIMENSION)) * np.exp(rng.normal(size=DIMENSION))
        y = x @ rng.normal(size=DIMENSION) + 0.1 * rng.normal(size=len(x))
        np.save(os.path.join(folder, "train_x.npy"), np.resize(x, (n, DIMENSION)))
        np.save(os.path.join(folder, "train_y.npy"), np.resize(y, n))
    return directory


def scaffold(clients, cohorts, steps, by_examples, w, rate=RATE):
    """The model after one round for each cohort (Karimireddy et al. 2019, option II)."""
    weight = [len(y) if by_examples else 1 for _, y in clients]
    c = np.zeros(DIMENSION)
    own = [np.zeros(DIMENSION) for _ in clients]
    for cohort in cohorts:
        change = {}
        moved = 0
        for i in cohort:
            local = w.copy()
            for _ in range(steps(i)):
                local = local - ETA * (gradient(*clients[i], local) - own[i] + c)
            change[i] = (w - local) / (steps(i) * ETA) - c
            moved = moved + weight[i] * (w - local)
        w = w - rate * moved / sum(weight[i] for i in cohort)
        for i in cohort:
            own[i] = own[i] + change[i]
        c = c + sum(weight[i] * change[i] for i in cohort) / sum(weight)
    return w


class ScaffoldTest(LeewayCase):
    def cohorts(self, out, phase):
        """Indices of the clients whose reports counted, by training round."""
        rounds = [r["round_in_run"] for r in self.show(out)["rounds"] if r["phase"] == phase]
        with sqlite3.connect(f"file:{self.path(out)}/run.db?mode=ro", uri=True) as db:
            blobs = [db.execute("SELECT accepted FROM rounds WHERE round = ?", (r,)).fetchone()[0]
                     for r in rounds]
        return [np.frombuffer(blob, "<u4") for blob in blobs]

    def compare(self, w, out):
        found = read_safetensors(self.show(out)["final_model"])["weight"]
        self.assertLess(np.linalg.norm(found - w) / np.linalg.norm(w), 1e-8)

    def check(self, more, local, steps, data, by_examples=False, rounds=15):
        self.runs = getattr(self, "runs", 0) + 1
        out = f"run{self.runs}"
        config = self.write(out + ".textproto", f"""
seed: 5 model {{ linear_regression {{ intercept: false }} }} {more}
phases {{ train {{ rounds: {rounds} local {{ step_size: {ETA} {local} scaffold {{}} }}
                  server {{ rate: {RATE} }} }} }}""")
        self.federate(config, data, out, processes=3)
        w = scaffold(load(data), self.cohorts(out, 0), steps, by_examples, np.zeros(DIMENSION))
        self.compare(w, out)
        self.run_program("leeway", "verify", self.path(out))

    def test_all_clients(self):
        data = conflict(self.path("data"))
        self.check("", "steps: 6", lambda i: 6, data)
        self.check("weighting: EXAMPLES", "steps: 6", lambda i: 6, data, True)

    def test_sampled_clients(self):
        data = conflict(self.path("data"))
        self.check("cohort { size: 3 }", "steps: 6", lambda i: 6, data, rounds=40)
        self.check("cohort { size: 3 } weighting: EXAMPLES", "steps: 6", lambda i: 6, data, True,
                   rounds=40)

    def test_batches(self):
        data = conflict(self.path("data"), copies=True)
        self.check("", "steps: 5 batch_size: 2", lambda i: 5, data)
        # Passes: clients take different numbers of steps.
        self.check("cohort { size: 4 }", "epochs: 2 batch_size: 4",
                   lambda i: 2 * -(-(5 + 4 * i) // 4), data)

    def test_every_phase_begins_with_new_control_variates(self):
        data = conflict(self.path("data"))
        train = f"""rounds: 8 probe {{ point: CURRENT step_size: {ETA} steps: 2 }}
                    probe_at: 4 local {{ step_size: {ETA} steps: 6 scaffold {{}} }}"""
        config = self.write("c.textproto", f"""
seed: 5 model {{ linear_regression {{ intercept: false }} }} cohort {{ size: 4 }}
phases {{ train {{ {train} }} }} phases {{ train {{ {train} start: CURRENT }} }}""")
        self.federate(config, data, processes=2)
        w = np.zeros(DIMENSION)
        for phase in (0, 1):
            w = scaffold(load(data), self.cohorts("run", phase), lambda i: 6, False, w, 1)
        self.compare(w, "run")

    def test_converges_where_fedavg_stalls(self):
        data = conflict(self.path("data"))
        distance = {}
        for name, algorithm in (("fedavg", ""), ("scaffold", "scaffold {}")):
            config = self.write(name + ".textproto", f"""
seed: 5 model {{ linear_regression {{ intercept: false }} }} phases {{ optimum {{}} }}
phases {{ train {{ rounds: 300 local {{ step_size: 0.008 steps: 20 {algorithm} }} }} }}""")
            self.federate(config, data, name, processes=2)
            rounds = self.show(name)["rounds"]
            distance[name] = rounds[-1]["distance_squared"]
        self.assertGreater(distance["fedavg"], 0.1)
        self.assertLess(distance["scaffold"], 1e-12)

    def test_a_client_without_its_state_fails_and_the_round_goes_on(self):
        data = conflict(self.path("data"))
        config = self.write("c.textproto", """
seed: 5 model { linear_regression { intercept: false } } cohort { minimum_reports: 1 }
phases { train { rounds: 6 local { step_size: 0.004 steps: 3 scaffold {} } } }""")
        server, address = self.start_server(config, 2)
        clients = [self.start("leeway-client", "--server", address, "--state", self.path("state"),
                              os.path.join(data, f"client_00{i}"),
                              failpoint=None if i else "client.before_work:4") for i in (0, 1)]
        self.assertEqual(clients[0].wait(TIMEOUT), -signal.SIGKILL)
        # Whether the round waits for it or not, it comes back before the run is over.
        self.await_text("server.log", " left ")
        last = self.start("leeway-client", "--server", address, "--state", self.path("other"),
                          os.path.join(data, "client_000"))
        for process in (server, clients[1], last):
            self.assertEqual(process.wait(TIMEOUT), 0)
        self.assertFalse(os.path.exists(self.path("other")))
        events = [e["text"] for e in self.show()["events"] if e["subject"] == "client_000"]
        self.assertTrue(any("--state directory that it had before" in text for text in events), events)


class ScaffoldDies(failpoints_test.FailpointsTest):
    CONFIG = """
seed: 21
model { linear_regression { intercept: false } }
cohort { size: 3 }
phases { train { rounds: 8 local { step_size: 0.01 steps: 3 scaffold {} }
                 server { momentum: 0.5 } } }
"""
    # Of the state's files, too.
    CLIENT = failpoints_test.CLIENT + ["file.before_rename", "file.before_sync"]

    def client(self, address, index, failpoint=None):
        return self.start("leeway-client", "--server", address, "--give-up", 60, "--state",
                          self.path("states"), os.path.join(self.data, f"client_{index:03}"), failpoint=failpoint)


if __name__ == "__main__":
    unittest.main()
