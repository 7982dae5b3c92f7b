"""kill -9 of the server at random moments: the run goes on, and ends with the same bits.
LEEWAY_KILLS=200 kills it that often, over 100 rounds that take long enough for it. However fast the
rounds are, the run cannot end before the last kill: one client stops late in it, and goes on then."""

import os
import random
import signal
import time
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 11
model { linear_regression {} }
cohort { size: 5 }
phases { optimum { tolerance: 1e-9 } }
phases { train { rounds: 150 local { step_size: 0.01 epochs: 1 batch_size: 8 }
                 server { momentum: 0.5 } } }
"""
KILLS = int(os.environ.get("LEEWAY_KILLS", "6"))
if KILLS > 6:
    CONFIG = """
seed: 11
model { linear_regression {} }
phases { train { rounds: 100 local { step_size: 0.001 steps: 900000 }
                 server { momentum: 0.5 } } }
"""


class ResumeTest(LeewayCase):
    def test_a_killed_server_ends_with_the_same_bits(self):
        data = self.synthetic(clients=8, samples=40, dimension=5)
        config = self.write("c.textproto", CONFIG)
        self.federate(config, data, "calm", processes=8)
        expected = self.show("calm")

        server, address = self.start_server(config, 8)
        clients = [self.start("leeway-client", "--server", address, "--give-up", TIMEOUT,
                              os.path.join(data, f"client_00{i}"),
                              failpoint=None if i else "client.after_work:75:stop")
                   for i in range(8)]
        moments = random.Random(1)
        kills = 0
        while kills < KILLS:
            time.sleep(moments.uniform(0.02, 0.4))
            server.send_signal(signal.SIGKILL)
            self.assertEqual(server.wait(TIMEOUT), -signal.SIGKILL)
            kills += 1
            server = self.start("leeway-server", "--config", config, "--state", self.path("run"),
                                "--clients", 8, "--listen", address, log=f"server{kills}.log")
        self.await_stopped(clients[0])
        clients[0].send_signal(signal.SIGCONT)
        self.assertEqual(server.wait(TIMEOUT), 0)
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0)
        result = self.show()
        self.assertEqual(result["status"], "done")
        self.assertEqual([r["model_sha256"] for r in result["rounds"]],
                         [r["model_sha256"] for r in expected["rounds"]])
        self.run_program("leeway", "verify", self.path("run"))
        print(f"{kills} kills over {len(result['rounds'])} rounds: the same "
              f"{result['rounds'][-1]['model_sha256']}")


if __name__ == "__main__":
    unittest.main()
