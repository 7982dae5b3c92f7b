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
model { linear_regression { intercept: false } }
cohort { size: 5 }
phases { optimum { tolerance: 1e-9 } }
phases { train { rounds: 150 local { step_size: 0.01 epochs: 1 batch_size: 8 }
                 server { momentum: 0.5 } } }
"""
KILLS = int(os.environ.get("LEEWAY_KILLS", "6"))
if KILLS > 6:
    CONFIG = """
seed: 11
model { linear_regression { intercept: false } }
phases { train { rounds: 100 local { step_size: 0.001 steps: 900000 }
                 server { momentum: 0.5 } } }
"""


class ResumeTest(LeewayCase):
    def test_a_killed_server_ends_with_the_same_bits(self):
        self.kill_server(CONFIG, KILLS)

    def test_so_does_one_that_wrote_its_last_rounds_together(self):
        self.kill_server("durability: RELAXED " + CONFIG, min(KILLS, 6))

    def kill_server(self, text, wanted):
        data = self.synthetic(clients=8, samples=40, dimension=5)
        config = self.write("c.textproto", text)
        self.federate(config, data, "calm", processes=8)
        expected = self.show("calm")

        server, address = self.start_server(config, 8)
        clients = [self.start("leeway-client", "--server", address, "--give-up", TIMEOUT,
                              os.path.join(data, f"client_00{i}"),
                              failpoint=None if i else "client.after_work:75:stop")
                   for i in range(8)]
        moments = random.Random(1)
        kills = 0
        while kills < wanted:
            self.await_text(f"server{kills}.log" if kills else "server.log", "listening on")
            time.sleep(moments.uniform(0, 0.4))
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

    def other_run_on_the_same_port(self, first_clients, stop):
        """Clients wait for a server that comes back with another seed and l2, as another run."""
        data = self.synthetic(clients=2, samples=40, dimension=5)
        config = "seed: %d model { linear_regression { l2: %s intercept: false } } phases { train { rounds: 5 " \
                 "local { step_size: 0.01 epochs: 1 batch_size: 8 } } }"
        old = self.write("old.textproto", config % (1, "0.5"))
        new = self.write("new.textproto", config % (2, "0.01"))
        self.federate(new, data, "calm", processes=2)
        server, address = self.start_server(old, 2, "old", failpoint=stop)
        start = lambda i: self.start("leeway-client", "--server", address, "--give-up", TIMEOUT,
                                     os.path.join(data, f"client_00{i}"))
        clients = [start(i) for i in range(first_clients)]
        if stop:
            self.await_stopped(server)
        else:
            self.await_text("server.log", "client_000")
        server.send_signal(signal.SIGKILL)
        server.wait(TIMEOUT)
        server = self.start("leeway-server", "--config", new, "--state", self.path("new"),
                            "--clients", 2, "--listen", address, log="new.log")
        clients += [start(i) for i in range(first_clients, 2)]
        for process in [server, *clients]:
            self.assertEqual(process.wait(TIMEOUT), 0)
        self.assertEqual([r["model_sha256"] for r in self.show("new")["rounds"]],
                         [r["model_sha256"] for r in self.show("calm")["rounds"]])

    def test_a_client_that_waited_takes_up_the_settings_of_another_run(self):
        self.other_run_on_the_same_port(first_clients=1, stop=None)

    def test_nothing_of_an_old_run_reaches_the_next(self):
        # Both clients have reported in round 1 and hold its model.
        self.other_run_on_the_same_port(first_clients=2, stop="round.after_open:2:stop")


if __name__ == "__main__":
    unittest.main()
