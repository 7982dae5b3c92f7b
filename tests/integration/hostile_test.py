"""A hundred connections that send far more than they may: honest clients go on."""

import os
import subprocess
import unittest

from leeway_case import BIN, TIMEOUT, LeewayCase

CONFIG = """
seed: 1
model { linear_regression {} }
durability: RELAXED
cohort { deadline_seconds: 60 attempts: 1 }
phases { train { rounds: 4000 drift_off: true local { step_size: 0.001 steps: 5 } } }
"""


class HostileTest(LeewayCase):
    def test_honest_clients_outlast_an_attack(self):
        data = self.synthetic(clients=8, samples=20, dimension=30)
        config = self.write("c.textproto", CONFIG)
        server, address = self.start_server(config, 8)
        names = sorted(n for n in os.listdir(data) if n.startswith("client_"))
        clients = [self.start("leeway-client", "--server", address,
                              *[os.path.join(data, n) for n in names[i::4]], log=f"client{i}.log")
                   for i in range(4)]
        self.await_file(self.path("run", "run.db"), server)
        attack = subprocess.run([os.path.join(BIN, "hostile_client"), address, "100", "64"],
                                stdout=subprocess.PIPE, text=True, timeout=TIMEOUT)
        self.assertNotIn("status 0:", attack.stdout)  # every one was turned away
        for i, client in enumerate(clients):
            self.assertEqual(client.wait(TIMEOUT), 0, self.log(f"client{i}.log"))
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertEqual(self.show()["rounds"][-1]["reports"], 8)


if __name__ == "__main__":
    unittest.main()
