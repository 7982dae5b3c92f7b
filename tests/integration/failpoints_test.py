"""A client killed at named moments, before and after its work and upload: nothing lost or doubled.
LEEWAY_REPEATS=10 kills at the first ten passes of each moment."""

import os
import signal
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 21
model { linear_regression {} }
cohort { size: 3 }
phases { optimum {} }
phases { train { rounds: 8 local { step_size: 0.01 steps: 3 } server { momentum: 0.5 } } }
"""
CLIENT = ["client.before_work", "client.after_work", "client.before_send", "client.after_send"]
REPEATS = int(os.environ.get("LEEWAY_REPEATS", "1"))


class FailpointsTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=4, samples=20, dimension=3)
        self.config = self.write("c.textproto", CONFIG)
        self.federate(self.config, self.data, "calm", processes=4)
        self.expected = [(r["round"], r["model_sha256"], r["reports"])
                         for r in self.show("calm")["rounds"]]

    def client(self, address, index, failpoint=None):
        if failpoint:
            os.environ["LEEWAY_FAILPOINT"] = failpoint
        try:
            return self.start("leeway-client", "--server", address, "--give-up", 10,
                              os.path.join(self.data, f"client_{index:03}"))
        finally:
            os.environ.pop("LEEWAY_FAILPOINT", None)

    def check(self, state):
        rounds = self.show(state)["rounds"]
        self.assertEqual([(r["round"], r["model_sha256"], r["reports"]) for r in rounds],
                         self.expected)
        self.run_program("leeway", "verify", self.path(state))

    def test_a_client_dies(self):
        for name in CLIENT:
            for repeat in range(REPEATS):
                with self.subTest(failpoint=name, repeat=repeat):
                    state = f"{name}-{repeat}"
                    server, address = self.start_server(self.config, 4, state)
                    clients = [self.client(address, i) for i in range(1, 4)]
                    dying = self.client(address, 0, f"{name}:{1 + repeat}")
                    self.assertEqual(dying.wait(TIMEOUT), -signal.SIGKILL)
                    clients.append(self.client(address, 0))
                    self.assertEqual(server.wait(TIMEOUT), 0)
                    for client in clients:
                        self.assertEqual(client.wait(TIMEOUT), 0)
                    self.check(state)


if __name__ == "__main__":
    unittest.main()
