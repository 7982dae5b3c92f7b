"""Eight real client processes; each opens no data but its own."""

import os
import shutil
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 5
model { linear_regression { intercept: false } }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.01 steps: [1, 5] } }
phases { train { rounds: 10 local { step_size: 0.01 steps: 5 } } }
"""


class RealProcessesTest(LeewayCase):
    def test_local_runs_use_a_socket_file_where_its_path_fits(self):
        data = self.synthetic(clients=2, samples=20, dimension=3)
        config = self.write("c.textproto", CONFIG)
        models = set()
        for out, address in (("short", "unix:"), ("x" * 120, "127.0.0.1:")):
            self.federate(config, data, out)
            self.assertIn(f"listening on {address}", self.log(os.path.join(out, "logs", "server.log")))
            models.add(self.show(out)["rounds"][-1]["model_sha256"])
        self.assertEqual(len(models), 1)

    def test_eight_processes_read_only_their_own_data(self):
        tracer = shutil.which("strace")
        if tracer is None or not self.can_trace(tracer):
            self.skipTest("strace cannot trace here")
        data = self.synthetic(clients=8, samples=30, dimension=5)
        config = self.write("c.textproto", CONFIG)
        server, address = self.start_server(config, 8)
        clients = []
        names = sorted(n for n in os.listdir(data) if os.path.isdir(os.path.join(data, n)))
        for name in names:
            # In a build with AddressSanitizer: a traced process cannot look for leaks.
            prefix = [tracer, "-f", "-qq", "-E", "ASAN_OPTIONS=detect_leaks=0", "-e",
                      "trace=open,openat,openat2", "-o", self.path(name + ".trace")]
            clients.append(self.start("leeway-client", "--server", address,
                                      os.path.join(data, name), prefix=prefix))
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for name in names:
            opened = [line for line in self.log(name + ".trace").splitlines() if data in line]
            self.assertTrue(opened, "the client opened its own data")
            for line in opened:
                self.assertIn(os.path.join(data, name) + "/", line)
        result = self.show()
        self.assertEqual(result["status"], "done")
        self.assertEqual([r["reports"] for r in result["rounds"]], [8] * 10)
        self.assertEqual(result["probes"][0]["clients"], 8)
        self.assertTrue(os.path.exists(result["final_model"]))

    def test_forty_processes_come_by_one_unix_socket(self):
        data = self.synthetic(clients=40, samples=20, dimension=5)
        config = self.write("c.textproto", CONFIG)
        address = "unix:" + self.path("socket")
        server = self.start("leeway-server", "--config", config, "--state", self.path("run"), "--clients", 40,
                            "--listen", address, log="server.log")
        names = sorted(n for n in os.listdir(data) if os.path.isdir(os.path.join(data, n)))
        clients = [self.start("leeway-client", "--server", address, os.path.join(data, name), log=name + ".log")
                   for name in names]
        for client, name in zip(clients, names):
            self.assertEqual(client.wait(TIMEOUT), 0, self.log(name + ".log"))
            self.assertNotIn("calls under way", self.log(name + ".log"))
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertEqual({r["reports"] for r in self.show()["rounds"]}, {40})

    def test_a_server_that_cannot_start_lets_go_of_clients_that_have_joined(self):
        data = self.synthetic(clients=2, samples=20, dimension=5)
        config = self.write("c.textproto", CONFIG)
        # The server, which listens by now, waits at this pipe; then it cannot rename it.
        os.mkfifo(self.path("address.new"))
        os.mkdir(self.path("address"))
        server = self.start("leeway-server", "--config", config, "--state", self.path("run"), "--clients", 2,
                            "--listen", "unix:" + self.path("socket"), "--address-file", self.path("address"),
                            log="server.log")
        self.start("leeway-client", "--server", "unix:" + self.path("socket"), os.path.join(data, "client_000"))
        self.await_text("server.log", " joined ")
        with open(self.path("address.new")):
            self.assertEqual(server.wait(TIMEOUT), 1)
        self.assertIn("cannot write --address-file", self.log("server.log"))

    def can_trace(self, tracer):
        import subprocess

        return subprocess.run([tracer, "-qq", "true"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    unittest.main()
