"""What leeway-client says of its life: one line for each thing that happens, as text or JSON, and a full pipe does not stop it."""

import json
import os
import re
import signal
import subprocess
import unittest

from leeway_case import BIN, TIMEOUT, LeewayCase

CONFIG = """
seed: 2
model { linear_regression { intercept: false } }
phases { train { rounds: ROUNDS drift_off: true local { step_size: 0.01 steps: 2 } } }
"""


class ClientLogTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=2, samples=20, dimension=3)

    def configure(self, rounds, more=""):
        return self.write("c.textproto", CONFIG.replace("ROUNDS", str(rounds)) + more)

    def client(self, address, *more, **options):
        return self.start("leeway-client", "--server", address, *more, log="client.log", **options)

    def folders(self, *indices):
        return [os.path.join(self.data, f"client_{i:03}") for i in indices]

    def lines(self):
        return [json.loads(line) for line in self.log("client.log").splitlines() if line.startswith("{")]

    def test_a_run_from_join_to_end(self):
        server, address = self.start_server(self.configure(3), 2)
        client = self.client(address, "--log-format", "json", "--log-level", "debug", *self.folders(0, 1))
        self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0)
        lines = self.lines()
        self.assertEqual([line["what"] for line in lines], ["joined", *["worked"] * 3, "finished"])
        run = self.show()["run_id"]
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(line["run"], run)
            self.assertEqual(line["client"], "client_000 and 1 more")
        self.assertEqual([line.get("round") for line in lines[1:4]], [1, 2, 3])
        self.assertEqual([line["level"] for line in lines], ["info", *["debug"] * 3, "info"])

    def test_a_server_that_dies_is_named_with_the_remedy(self):
        config = self.configure(10**6)
        server, address = self.start_server(config, 2)
        client = self.client(address, *self.folders(0, 1))
        self.await_text("client.log", " joined client_000 and 1 more: ")
        server.send_signal(signal.SIGKILL)
        server.wait()
        self.await_text("client.log", "reconnecting")
        self.assertRegex(self.log("client.log"),
                         r"warning run \w+ reconnecting client_000 and 1 more: .*; trying again for 1m "
                         r"\(--give-up\): see that leeway-server runs at " + re.escape(address))
        self.assertNotIn("worked", self.log("client.log"))  # its level is debug
        server = self.start("leeway-server", "--config", config, "--state", self.path("run"), "--clients", 2,
                            "--listen", address)
        self.await_text("client.log", "joined", count=2)
        client.send_signal(signal.SIGTERM)
        self.assertEqual(client.wait(TIMEOUT), 130)
        self.assertIn(" left: stopped before the end of the run", self.log("client.log"))

    def test_a_failing_client_and_a_failed_run(self):
        # Too many steps for their size: the model leaves what is accepted.
        config = self.write("c.textproto", CONFIG.replace("ROUNDS", "5").replace("0.01", "1e30")
                            + "cohort { attempts: 1 }")
        server, address = self.start_server(config, 2)
        client = self.client(address, *self.folders(0, 1))
        self.assertEqual(server.wait(TIMEOUT), 1)
        self.assertEqual(client.wait(TIMEOUT), 3)
        self.assertRegex(self.log("client.log"), r"warning run \w+ round 1 failed client_000: ")
        self.assertRegex(self.log("client.log"), r"error run \w+ finished .*: the run has failed: ")

    def test_a_full_pipe_does_not_stop_it(self):
        server, address = self.start_server(self.configure(5000, "durability: RELAXED"), 2)
        reader, writer = os.pipe()
        client = subprocess.Popen([os.path.join(BIN, "leeway-client"), "--server", address,
                                   "--log-level", "debug", *self.folders(0, 1)],
                                  stdin=subprocess.DEVNULL, stderr=writer)
        self.children.append(client)
        os.close(writer)
        self.assertEqual(client.wait(TIMEOUT), 0)  # nobody has read a byte
        os.close(reader)
        self.assertEqual(server.wait(TIMEOUT), 0)


if __name__ == "__main__":
    unittest.main()
