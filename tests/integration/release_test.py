"""The release test: its numbers against numpy, its verdicts against fixed points in closed form, a
network that is held back by its clients and one that is not, and the same bits after a restart."""

import json
import os
import signal
import unittest

import numpy as np

from leeway_case import TIMEOUT, LeewayCase
from oracle_test import load

START = "seed: 1 model { linear_regression { intercept: false } } durability: RELAXED "

# A worker (docs/worker.md) that knows nothing of release tests: F_c(w) = s |w - a|^2 / 2 in three dimensions.
WORKER = """
import array, json, os, socket, sys
name, s, a = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
connection = socket.socket(fileno=int(os.environ["LEEWAY_WORKER_FD"]))
def say(**m): connection.sendall(json.dumps(m).encode() + b"\\n")
for line in connection.makefile("rb"):
    m = json.loads(line)
    if m["type"] == "hello": say(type="hello", version=1, clients=[{"name": name, "examples": 4}])
    elif m["type"] == "prepare": say(type="ready")
    elif m["type"] == "finished": break
    else:
        with open(m["model"]["file"], "rb") as f:
            f.read(int.from_bytes(f.read(8), "little"))
            w = array.array("d", f.read(24))
        rule = m["rule"]
        shrunk = 1 - (1 - rule["step_size"] * s) ** rule["steps"]
        answers = {"loss": s * sum((x - a) ** 2 for x in w) / 2}
        if any(k["name"] == "displacement" for k in m["sums"]):
            header = json.dumps({"displacement": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}).encode()
            with open(m["answer_file"], "r+b") as f:
                f.write(len(header).to_bytes(8, "little") + header)
                f.write(array.array("d", [shrunk * (x - a) for x in w]).tobytes())
        say(type="answer", order=m["order"], numbers={k["key"]: answers[k["name"]] for k in m["sums"]
                                                      if k["shape"] == "number"})
"""


class Quadratics:
    """Linear regression over clients, by numpy alone."""

    def __init__(self, clients, weights=None):
        self.clients = clients
        self.a = np.array([x.T @ x / len(y) for x, y in clients])
        self.b = np.array([x.T @ y / len(y) for x, y in clients])
        self.p = np.full(len(clients), 1 / len(clients)) if weights is None else weights / np.sum(weights)

    def losses(self, w):
        return np.array([np.mean((x @ w - y) ** 2) / 2 for x, y in self.clients])

    def loss(self, w):
        return self.p @ self.losses(w)

    def rounds(self, w, eta, h, count):
        """`count` rounds of FedAvg with h full-batch steps."""
        for _ in range(count):
            ends = []
            for a, b in zip(self.a, self.b):
                local = w.copy()
                for _ in range(h):
                    local = local - eta * (a @ local - b)
                ends.append(local)
            w = self.p @ np.array(ends)
        return w

    def constant(self):
        square = self.p @ [np.mean(y ** 2) for _, y in self.clients]
        mean = self.p @ [np.mean(y) for _, y in self.clients]
        return (square - mean ** 2) / 2

    def standard_error(self, values):
        mean = self.p @ values
        n = len(values)
        return np.sqrt(n / (n - 1) * np.sum(self.p ** 2 * (values - mean) ** 2))

    def test(self, w, eta, h, rounds):
        """What a release test at w finds."""
        local = self.rounds(w, eta, h, rounds)
        together = self.rounds(w, eta, 1, rounds * h)
        differences = self.losses(local) - self.losses(together)
        difference = self.p @ differences
        return {
            "start_loss": self.loss(w),
            "local_loss": self.loss(local),
            "synchronised_loss": self.loss(together),
            "difference": difference,
            "standard_error": self.standard_error(differences),
            "difference_in_standard_errors": difference / self.standard_error(self.losses(together)),
            "efficiency": (self.loss(w) - self.loss(local)) / (self.loss(w) - self.loss(together)),
            "constant_loss": self.constant(),
            "lost": difference / (self.constant() - self.loss(together)),
            "losers": int(np.sum(differences > 0)),
        }


class ReleaseTest(LeewayCase):
    def verdict(self, out="run"):
        _, text = self.run_program("leeway", "drift", self.path(out), "--json")
        return json.loads(text)

    def save(self, clients, name="data"):
        for i, (x, y) in enumerate(clients):
            folder = self.path(name, f"client_{i:03d}")
            os.makedirs(folder)
            np.save(os.path.join(folder, "train_x.npy"), x)
            np.save(os.path.join(folder, "train_y.npy"), y)
        return self.path(name)

    def check(self, found, truth):
        for name, value in truth.items():
            if name == "losers":
                self.assertEqual(found[name], value)
            else:
                scale = max(abs(value), 1e-6 * truth["local_loss"])
                self.assertAlmostEqual(found[name] / scale, value / scale, delta=1e-6, msg=name)

    def test_its_numbers_are_those_of_numpy(self):
        data = self.synthetic(clients=12, samples=60, dimension=5, conflict=0.3)
        problem = Quadratics(load(data))
        eta = 0.02
        self.federate(self.write("c.textproto", START + f"""
            phases {{ train {{ rounds: 30 local {{ step_size: {eta} steps: 10 }} drift_off: true }} }}
            phases {{ release {{ step_size: {eta} steps: [1, 10, 40] rounds: 4 }} }}"""), data, processes=2)
        w = problem.rounds(np.zeros(5), eta, 10, 30)
        shown = self.show()
        self.assertEqual([r["h"] for r in shown["releases"]], [1, 10, 40])
        for release in shown["releases"]:
            truth = problem.test(w, eta, release["h"], 4)
            if release["h"] == 1:
                self.assertEqual(release["difference"], 0)  # the branches are the same
                continue
            self.check(release, truth)
            self.assertEqual((release["clients"], release["rounds"]), (12, 4))
            # Student's t for 11 degrees of freedom.
            half = 2.2009851600830 * truth["standard_error"]
            self.assertAlmostEqual((release["interval_high"] - release["difference"]) / half, 1, delta=1e-6)
            self.assertAlmostEqual((release["difference"] - release["interval_low"]) / half, 1, delta=1e-6)
        # The model is the one that was trained.
        self.assertEqual(len(shown["rounds"]), 30)
        self.assertEqual(shown["models"]["final"]["sha256"], shown["rounds"][-1]["model_sha256"])

    def test_weights_by_examples_and_tests_while_training(self):
        rng = np.random.default_rng(5)
        clients = []
        for n in (15, 40, 25, 60, 30):
            x = rng.normal(size=(n, 4)) * rng.uniform(0.5, 2)
            clients.append((x, x @ rng.normal(size=4) + rng.normal(size=n)))
        data = self.save(clients)
        eta = 0.05
        self.federate(self.write("c.textproto", START + f"""weighting: EXAMPLES
            phases {{ train {{ rounds: 6 local {{ step_size: {eta} steps: 5 }} drift_off: true
                release {{ step_size: {eta} steps: [5, 8] rounds: 2 }} release_at: [0, 2, 6] }} }}"""),
                      data, processes=2)
        problem = Quadratics(clients, np.array([len(y) for _, y in clients]))
        releases = self.show()["releases"]
        self.assertEqual([r["when"] for r in releases[::2]],
                         [f"after {n} rounds of phase 1" for n in (0, 2, 6)])
        for i, release in enumerate(releases):
            w = problem.rounds(np.zeros(4), eta, 5, (0, 2, 6)[i // 2])
            self.check(release, problem.test(w, eta, (5, 8)[i % 2], 2))

    def test_a_sample_of_clients_takes_every_step(self):
        data = self.synthetic(clients=12, samples=30, dimension=4, conflict=0.3)
        clients = load(data)
        self.federate(self.write("c.textproto", START + """
            phases { release { step_size: 0.02 steps: [5] rounds: 3 clients: 3 } }"""), data, processes=2)
        (release,) = self.show()["releases"]
        self.assertEqual(release["clients"], 3)
        # The cohort is not said; exactly one gives these numbers.
        from itertools import combinations
        same = []
        for chosen in combinations(range(12), 3):
            problem = Quadratics([clients[i] for i in chosen])
            if abs(problem.loss(np.zeros(4)) / release["start_loss"] - 1) < 1e-9:
                same.append(problem)
        self.assertEqual(len(same), 1)
        self.check(release, same[0].test(np.zeros(4), 0.02, 5, 3))

    def rule(self, problem, eta, h):
        """The verdict of docs/measures.md, 8, from the fixed point in closed form, and the gap."""
        one = np.eye(problem.a.shape[1])
        mean = np.tensordot(problem.p, problem.a, 1)
        best = np.linalg.solve(mean, problem.p @ problem.b)
        powers = np.array([np.linalg.matrix_power(one - eta * a, h) for a in problem.a])
        pull = np.mean([(one - q) @ np.linalg.solve(a, b)
                        for q, a, b in zip(powers, problem.a, problem.b)], 0)
        rest = np.linalg.solve(one - powers.mean(0), pull)
        gap = problem.loss(rest) - problem.loss(best)
        g = problem.a @ best - problem.b
        n = len(g)
        guard = np.trace(np.linalg.solve(mean, g.T @ g / n / (n - 1))) / 2
        lost = gap / (problem.constant() - problem.loss(best))
        if lost < 0.01 or gap < guard:
            return "harmless", gap, guard
        return ("conflict" if lost > 0.03 else "uncertain"), gap, guard

    def test_it_agrees_with_the_fixed_point(self):
        said = set()
        for seed, conflict in enumerate((True, False, True, False)):
            rng = np.random.default_rng(seed)
            clients = []
            for c in range(15):
                scale = np.where(np.arange(6) % 3 == c % 3, 2.5, 0.6)
                w = np.ones(6) + (conflict and 0.8) * (np.arange(6) % 3 == c % 3)
                x = rng.normal(size=(50, 6)) * scale
                clients.append((x, x @ w + 0.5 * rng.normal(size=50)))
            data = self.save(clients, f"data{seed}")
            problem = Quadratics(clients)
            eta = 1 / max(np.linalg.eigvalsh(a)[-1] for a in problem.a)
            h = 30
            out = f"run{seed}"
            self.federate(self.write("c.textproto", START + f"""
                phases {{ train {{ rounds: 60 local {{ step_size: {eta} steps: {h} }} drift_off: true }} }}
                phases {{ release {{ step_size: {eta} steps: [{h}] }} }}"""), data, out=out, processes=1)
            verdict = self.verdict(out)
            expected, gap, guard = self.rule(problem, eta, h)
            self.assertEqual(verdict["verdict"], expected, verdict["sentence"])
            self.assertEqual(verdict["largest_harmless_h"], h if expected == "harmless" else None)
            said.add(expected)
            (release,) = verdict["releases"]
            if gap > guard:
                self.assertAlmostEqual(release["difference"] / gap, 1, delta=0.2)
        self.assertEqual(said, {"harmless", "conflict"})

    def test_at_the_start_of_training_it_is_too_early(self):
        data = self.synthetic(clients=10, samples=60, dimension=5, conflict=0.3)
        self.federate(self.write("c.textproto", START + """
            phases { release { step_size: 0.01 steps: [10] } }"""), data, processes=1)
        verdict = self.verdict()
        self.assertEqual(verdict["verdict"], "uncertain")
        self.assertIn("train longer", verdict["sentence"])

    def mlp(self, name, shuffled):
        """Clients that weigh the two inputs differently and answer differently; or the same examples, mixed."""
        rng = np.random.default_rng(3)
        xs, ys = [], []
        for c in range(6):
            x = rng.normal(size=(200, 2)) * ((3, 0.5) if c % 2 else (0.5, 3))
            w = (1, -1.5) if c % 2 else (-1.5, 1)
            xs.append(x)
            ys.append((x @ w + 0.5 * rng.normal(size=200) > 0).astype(np.int32))
        if shuffled:
            order = rng.permutation(1200)
            xs = np.split(np.concatenate(xs)[order], 6)
            ys = np.split(np.concatenate(ys)[order], 6)
        return self.save([(x.astype(np.float32), y) for x, y in zip(xs, ys)], name)

    def test_a_network_gets_a_verdict_and_one_step_lowers_its_loss(self):
        config = self.write("c.textproto", """seed: 2 model { mlp { hidden: [8] classes: 2 } }
            durability: RELAXED max_update: 64
            phases { train { rounds: 30 local { step_size: 0.3 steps: 40 } drift_off: true } }
            phases { release { step_size: 0.3 steps: [40] } }
            phases { train { start: CURRENT rounds: 200 local { step_size: 0.3 steps: 1 } drift_off: true } }""")
        self.federate(config, self.mlp("conflict", False), out="conflict", processes=1)
        verdict = self.verdict("conflict")
        self.assertEqual(verdict["verdict"], "conflict", verdict)
        self.assertIn("of 6 clients lose", verdict["sentence"])
        rounds = self.show("conflict")["rounds"]
        plateau, released = rounds[29]["loss"], rounds[-1]["loss"]
        (release,) = verdict["releases"]
        self.assertLess(released, plateau - 0.5 * release["difference"])
        self.federate(config, self.mlp("control", True), out="control", processes=1)
        verdict = self.verdict("control")
        self.assertEqual(verdict["verdict"], "harmless", verdict)
        self.assertEqual(verdict["largest_harmless_h"], 40)

    def test_batches_are_repeated_and_their_noise_is_told(self):
        data = self.synthetic(clients=6, samples=40, dimension=4, conflict=0.3)
        self.federate(self.write("c.textproto", START + """
            phases { release { step_size: 0.02 steps: [4] rounds: 2 batch_size: 8 } }"""), data, processes=2)
        (release,) = self.show()["releases"]
        self.assertEqual(release["repeats"], 3)
        self.assertGreater(release["batch_error"], 0)
        half = release["interval_high"] - release["difference"]
        self.assertGreater(half, 4.302 * release["batch_error"])  # Student's t for 2 degrees of freedom

    def test_both_branches_take_the_same_batches(self):
        """So with H = 1 they are one and the same path."""
        data = self.synthetic(clients=6, samples=30, dimension=4, conflict=0.5)
        self.federate(self.write("c.textproto", """seed: 3 model { linear_regression { intercept: false } }
            phases { train { rounds: 3 local { step_size: 0.02 steps: 2 batch_size: 7 } } }
            phases { release { step_size: 0.02 steps: [1, 6] rounds: 5 batch_size: 7 repeats: 2 } }"""), data, processes=2)
        one, six = self.show()["releases"]
        self.assertEqual((one["difference"], one["batch_error"], one["losers"]), (0, 0, 0))
        self.assertNotEqual(six["difference"], 0)
        self.assertGreater(six["batch_error"], 0)

    def test_without_evidence_a_network_is_told_what_to_add(self):
        data = self.mlp("data", False)
        self.federate(self.write("c.textproto", """model { mlp { classes: 2 } }
            phases { train { rounds: 2 local { step_size: 0.1 steps: 2 } } }
            phases { probe { point: CURRENT step_size: 0.1 steps: [1, 5] } }"""), data, processes=1)
        code, text = self.run_program("leeway", "drift", self.path("run"), check=False)
        self.assertEqual(code, 2)
        self.assertIn("add a release phase", text)
        _, text = self.run_program("leeway", "show", self.path("run"))
        self.assertIn("not enough evidence", text)
        self.assertNotIn("cancel", text)

    def test_report_and_show_have_the_test(self):
        data = self.synthetic(clients=6, samples=40, dimension=4, conflict=0.3)
        self.federate(self.write("c.textproto", START + """
            phases { train { rounds: 100 local { step_size: 0.02 steps: 20 } } }
            phases { release { step_size: 0.02 steps: [1, 20] } }"""), data, processes=1)
        _, text = self.run_program("leeway", "show", self.path("run"))
        self.assertIn("Release test (phase 2): 5 rounds of H local steps of 0.02", text)
        self.run_program("leeway", "report", self.path("run"), "--out", self.path("report.html"))
        with open(self.path("report.html")) as f:
            page = f.read()
        self.assertIn("clients that lose", page)
        self.assertIn(self.verdict()["sentence"].split(":")[0], page)

    def test_a_killed_server_ends_with_the_same_bits(self):
        data = self.synthetic(clients=3, samples=30, dimension=4, conflict=0.3)
        config = self.write("c.textproto", """seed: 4 model { linear_regression { intercept: false } }
            phases { train { rounds: 3 local { step_size: 0.02 steps: 4 } server { momentum: 0.5 }
                release { step_size: 0.02 steps: [2, 4] rounds: 2 batch_size: 7 repeats: 2 } release_at: [1, 3] } }
            phases { release { step_size: 0.02 steps: [3] rounds: 2 } }""")
        self.federate(config, data, "calm", processes=3)
        expected = self.show("calm")
        server, address = self.start_server(config, 3, failpoint="round.after_open:12:stop")
        clients = [self.start("leeway-client", "--server", address, "--give-up", TIMEOUT,
                              os.path.join(data, f"client_00{i}")) for i in range(3)]
        for number, rounds in enumerate((12, 12, 12, None)):
            if rounds is not None:
                self.await_stopped(server)
                server.send_signal(signal.SIGKILL)
                self.assertEqual(server.wait(TIMEOUT), -signal.SIGKILL)
                more = "round.after_open:12:stop" if number < 2 else None
                server = self.start("leeway-server", "--config", config, "--state", self.path("run"),
                                    "--clients", 3, "--listen", address, log=f"server{number}.log",
                                    failpoint=more)
        self.assertEqual(server.wait(TIMEOUT), 0)
        for client in clients:
            client.wait(TIMEOUT)
        found = self.show()
        self.assertEqual(found["releases"], expected["releases"])
        self.assertEqual(len(found["releases"]), 5)
        self.assertEqual(found["models"]["final"]["sha256"], expected["models"]["final"]["sha256"])

    def test_a_worker_program_needs_to_know_nothing_of_it(self):
        header = b'{"w":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}}'
        header += b" " * (-len(header) % 8)
        with open(self.path("zero.safetensors"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + b"\0" * 24)
        config = self.write("c.textproto", """model { file: "zero.safetensors" }
            phases { train { rounds: 40 local { step_size: 0.5 steps: 6 } drift_off: true } }
            phases { release { step_size: 0.5 steps: [6] rounds: 3 } }""")
        server, address = self.start_server(config, 2)
        worker = self.write("worker.py", WORKER)
        clients = [self.start("leeway-client", "--server", address, "--worker", f"/usr/bin/python3 {worker} {args}",
                              log=f"{args[0]}.log") for args in ("a 1.5 0", "b 0.1 4")]
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0, self.log("a.log") + self.log("b.log"))
        s, a = np.array([1.5, 0.1]), np.array([0, 4.0])

        def rounds(w, h, count):
            for _ in range(count):
                w = np.mean(a + (1 - 0.5 * s) ** h * (w - a))
            return w

        loss = lambda w: 1.5 * s * (w - a) ** 2
        start = rounds(0.0, 6, 40)
        differences = loss(rounds(start, 6, 3)) - loss(rounds(start, 1, 18))
        (release,) = self.show()["releases"]
        self.assertAlmostEqual(release["difference"] / np.mean(differences), 1, delta=1e-6)
        self.assertEqual(release["losers"], np.sum(differences > 0))
        # Nobody knows the targets: the initial model is the yardstick.
        self.assertAlmostEqual(release["constant_loss"], np.mean(loss(0.0)), delta=1e-9)

    def test_what_cannot_be_is_refused(self):
        data = self.synthetic(clients=3, samples=20, dimension=2)
        for phase, words in (
            ("release { step_size: 0.1 }", "release.steps is empty"),
            ("release { steps: [2] }", "no constants phase comes before it"),
            ("release { step_size: 0.1 steps: [2] repeats: 2 }", "release.repeats needs batch_size"),
            ("release { step_size: 0.1 steps: [2] clients: 4 }", "release.clients is 4, but only 3"),
            ("release { step_size: 0.1 steps: [2] point: OPTIMUM }", "no optimum phase comes before it"),
            ("train { rounds: 2 local { step_size: 0.1 steps: 1 } release_at: [1] }", "without release"),
            ("train { rounds: 2 local { step_size: 0.1 steps: 1 } release { step_size: 1 steps: [1] } "
             "release_at: [3] }", "release_at has 3, but the phase ends after 2 rounds"),
        ):
            code, text = self.federate(self.write("c.textproto", START + f"phases {{ {phase} }}"), data,
                                       check=False)
            self.assertNotEqual(code, 0)
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
