"""Worker programs (docs/worker.md) with a real server: one in C against closed forms, and ones that misbehave."""

import os
import re
import subprocess
import sys
import unittest

import numpy as np

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase, read_safetensors

# One client; what it does for an order is put in.
SCRIPT = """
import json, os, socket, sys
s = socket.socket(fileno=int(os.environ["LEEWAY_WORKER_FD"]))
def say(**m): s.sendall(json.dumps(m).encode() + b"\\n")
for line in s.makefile("rb"):
    m = json.loads(line)
    if m["type"] == "hello": say(type="hello", version=1, clients=[{"name": sys.argv[1], "examples": 4}])
    elif m["type"] == "prepare": say(type="ready")
    elif m["type"] == "finished": break
    else:
        number, round = m["order"], m["round"]
        numbers = {k["key"]: 0.5 for k in m["sums"] if k["shape"] == "number"}
        vectors = [k["key"] for k in m["sums"] if k["shape"] == "vector"]
        size, value = 3, b"\\0" * 8
        DO
        header = json.dumps({k: {"dtype": "F64", "shape": [size], "data_offsets": [i * 8 * size, (i + 1) * 8 * size]}
                             for i, k in enumerate(vectors)}).encode()
        with open(m["answer_file"], "r+b") as f:
            f.write(len(header).to_bytes(8, "little") + header + value * size * len(vectors))
        say(type="answer", order=number, numbers=numbers)
"""


class WorkerTest(LeewayCase):
    def config(self, rounds, more=""):
        header = b'{"w":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}}'
        header += b" " * (-len(header) % 8)
        with open(self.path("zero.safetensors"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + b"\0" * 24)
        return self.write("c.textproto", 'model { file: "zero.safetensors" }\n' + more +
                          f"phases {{ train {{ rounds: {rounds} local {{ step_size: 0.5 steps: 2 }} }} }}")

    def worker(self, address, command, *more, log="worker.log"):
        return self.start("leeway-client", "--server", address, "--worker", command, *more, log=log)

    def test_a_worker_in_c(self):
        server, address = self.start_server(self.config(5), 2)
        clients = [self.worker(address, f"{BIN}/c_worker {name} {a}", log=f"{name}.log")
                   for name, a in (("a", 1), ("b", 3))]
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0, self.log("a.log") + self.log("b.log"))
        run = self.show()
        # F_c = |w - a_c|^2/2: a round shrinks w - 2 by (1 - eta)^2, and the drift is (w - 2)/4.
        for t, round in enumerate(run["rounds"]):
            w = 2 * (1 - 0.25 ** t)
            self.assertAlmostEqual(round["loss"], 1.5 * ((w - 1) ** 2 + (w - 3) ** 2) / 2, delta=1e-9)
            self.assertAlmostEqual(round["average_drift_squared"], 3 * ((w - 2) / 4) ** 2, delta=1e-9)
            self.assertAlmostEqual(round["drift_bound"], 3 * ((w - 1) ** 2 + (w - 3) ** 2) / 32, delta=1e-9)
        final = read_safetensors(run["final_model"])
        np.testing.assert_allclose(final["w"], 2 * (1 - 0.25 ** 5), rtol=1e-10)

    def test_the_one_in_c_is_short(self):
        with open(os.path.join(SOURCE, "tests/worker/worker.c")) as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.DOTALL)
        self.assertLessEqual(sum(bool(line.strip()) for line in text.splitlines()), 60)

    def test_the_last_word_of_one_that_hangs_up_at_once_is_in_the_record(self):
        """A worker that has started leeway-client itself, sends an error, and closes its socket in the same moment."""
        script = self.write("brief.py", """
import json, socket, subprocess, sys
ours, theirs = socket.socketpair()
client = subprocess.Popen([sys.argv[1], "--server", sys.argv[2], "--worker-fd", str(theirs.fileno())], pass_fds=[theirs.fileno()])
theirs.close()
def say(**m): ours.sendall(json.dumps(m).encode() + b"\\n")
with ours.makefile("rb") as lines:
    for line in lines:
        m = json.loads(line)
        if m["type"] == "hello": say(type="hello", version=1, clients=[{"name": "a", "examples": 4}])
        elif m["type"] == "prepare": say(type="ready")
        else: break
say(type="error", order=m["order"], error="out of paper")
ours.close()
sys.exit(client.wait())
""")
        server, address = self.start_server(self.config(2, "cohort { attempts: 1 }\n"), 1)
        code = subprocess.run([sys.executable, script, os.path.join(BIN, "leeway-client"), address], timeout=TIMEOUT,
                              stderr=subprocess.DEVNULL).returncode
        self.assertNotEqual(code, 0)
        self.await_text("server.log", "refused a: out of paper")

    def misbehave(self, what, *more):
        """Two clients, one of which does `what` in round 2; the other is its own process. Returns the server's log."""
        good = self.write("good.py", SCRIPT.replace("DO", "pass"))
        bad = self.write("bad.py", SCRIPT.replace("DO", f"if round == 2 and not os.path.exists({self.path('done')!r}):\n"
                                                  f"            open({self.path('done')!r}, 'w')\n            {what}"))
        config = self.config(4, "cohort { minimum_reports: 1 }\n")
        server, address = self.start_server(config, 2)
        clients = [self.worker(address, f"{sys.executable} {good} good"),
                   self.worker(address, f"{sys.executable} {bad} bad", *more, log="bad.log")]
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0, self.log("bad.log"))
        rounds = self.show()["rounds"]
        self.assertEqual([r["reports"] for r in rounds], [2, 1, 2, 2])
        return self.log("server.log")

    def test_nonsense_costs_a_place_in_the_round(self):
        self.assertRegex(self.misbehave("s.sendall(b'Segmentation fault\\n')"), "refused bad: .*not a JSON object")

    def test_another_shape_costs_a_place_in_the_round(self):
        self.assertRegex(self.misbehave("size = 4"), r'refused bad: .*does not have shape \[3\]')

    def test_nan_costs_a_place_in_the_round(self):
        self.assertRegex(self.misbehave("value = b'\\377' * 8"), "refused bad: .*not finite")

    def test_an_error_costs_a_place_in_the_round(self):
        self.assertRegex(self.misbehave("say(type='error', order=number, error='no disk'); continue"),
                         "refused bad: no disk")

    def test_a_hanging_one_costs_a_place_in_the_round(self):
        self.assertRegex(self.misbehave("s.recv(1)", "--worker-deadline", "0.5"),
                         "refused bad: the worker did not answer within 500ms")

    def test_one_that_dies_once_costs_nothing(self):
        good = self.write("good.py", SCRIPT.replace("DO", "pass"))
        bad = self.write("bad.py", SCRIPT.replace("DO", f"if round == 2 and not os.path.exists({self.path('done')!r}):\n"
                                                  f"            open({self.path('done')!r}, 'w')\n            os.abort()"))
        server, address = self.start_server(self.config(4), 2)
        clients = [self.worker(address, f"{sys.executable} {good} good"),
                   self.worker(address, f"{sys.executable} {bad} bad", log="bad.log")]
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0, self.log("bad.log"))
        self.assertEqual([r["attempts"] for r in self.show()["rounds"]], [1, 1, 1, 1])

    def test_one_that_cannot_start_ends_leeway_client(self):
        code, said = self.run_program("leeway-client", "--server", "127.0.0.1:1", "--worker", "exit 7", check=False)
        self.assertEqual(code, 2)
        self.assertIn("exited with code 7 before it said hello", said)
        code, said = self.run_program("leeway-client", "--server", "127.0.0.1:1", "--worker-fd", "99", check=False)
        self.assertEqual(code, 2)
        self.assertIn("--worker-fd 99", said)


if __name__ == "__main__":
    unittest.main()
