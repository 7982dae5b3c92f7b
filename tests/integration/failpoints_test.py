"""Killed at named moments, before and after each durable step: nothing lost, nothing doubled.
LEEWAY_REPEATS=10 kills at the first ten passes of each moment."""

import os
import signal
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 21
model { linear_regression { intercept: false } }
cohort { size: 3 }
phases { optimum {} }
phases { train { rounds: 8 local { step_size: 0.01 steps: 3 } server { momentum: 0.5 } } }
"""
SERVER = ["begin.before_commit", "begin.after_commit", "file.before_sync", "file.before_rename",
          "file.before_directory_sync", "commit.before_files", "commit.before_transaction",
          "commit.in_transaction", "commit.before_commit", "commit.after_commit",
          "round.before_open", "round.after_open", "finish.before_commit", "finish.after_commit"]
CLIENT = ["client.before_work", "client.after_work", "client.before_send", "client.after_send"]
# These come once in a run, or a few times.
PASSES = {"begin": 1, "finish": 1, "file": 3}
REPEATS = int(os.environ.get("LEEWAY_REPEATS", "1"))


class FailpointsTest(LeewayCase):
    CONFIG = CONFIG
    CLIENT = CLIENT

    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=4, samples=20, dimension=3)
        self.config = self.write("c.textproto", self.CONFIG)
        self.federate(self.config, self.data, "calm", processes=4)
        self.expected = [(r["round"], r["model_sha256"], r["reports"])
                         for r in self.show("calm")["rounds"]]

    def serve(self, state, address, failpoint):
        return self.start("leeway-server", "--config", self.config, "--state", self.path(state),
                          "--clients", 4, "--listen", address, "--address-file",
                          self.path(state + ".address"), log=f"{state}-{bool(failpoint)}.log",
                          failpoint=failpoint)

    def client(self, address, index, failpoint=None):
        return self.start("leeway-client", "--server", address, "--give-up", 60,
                          os.path.join(self.data, f"client_{index:03}"), failpoint=failpoint)

    def check(self, state):
        rounds = self.show(state)["rounds"]
        self.assertEqual([(r["round"], r["model_sha256"], r["reports"]) for r in rounds],
                         self.expected)
        self.run_program("leeway", "verify", self.path(state))

    def count(self, name, repeat):
        return 1 + repeat % PASSES.get(name.split(".")[0], 10)

    def test_the_server_dies(self):
        for name in SERVER:
            for repeat in range(REPEATS):
                with self.subTest(failpoint=name, repeat=repeat):
                    state = f"{name}-{repeat}"
                    server = self.serve(state, "127.0.0.1:0", f"{name}:{self.count(name, repeat)}")
                    address = self.await_file(self.path(state + ".address"), server)
                    clients = [self.client(address, i) for i in range(4)]
                    self.assertEqual(server.wait(TIMEOUT), -signal.SIGKILL)
                    server = self.serve(state, address, None)
                    self.assertEqual(server.wait(TIMEOUT), 0)
                    for client in clients:
                        client.wait(TIMEOUT)
                    self.check(state)

    def test_a_client_dies(self):
        for name in self.CLIENT:
            for repeat in range(REPEATS):
                with self.subTest(failpoint=name, repeat=repeat):
                    state = f"{name}-{repeat}"
                    server, address = self.start_server(self.config, 4, state)
                    clients = [self.client(address, i) for i in range(1, 4)]
                    dying = self.client(address, 0, f"{name}:{self.count(name, repeat)}")
                    self.assertEqual(dying.wait(TIMEOUT), -signal.SIGKILL)
                    # A second process with the same client is turned away while the first lives.
                    self.await_text("server.log", " left ")
                    clients.append(self.client(address, 0))
                    self.assertEqual(server.wait(TIMEOUT), 0)
                    for client in clients:
                        self.assertEqual(client.wait(TIMEOUT), 0)
                    self.check(state)


if __name__ == "__main__":
    unittest.main()
