"""More connections than the server has file descriptors, that say nothing or only knock: honest clients
beside them get in, finish, and with the same bits."""

import os
import re
import socket
import unittest
import urllib.request

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 5
model { linear_regression { intercept: false } }
durability: RELAXED
cohort { deadline_seconds: 120 }
phases { train { rounds: 200 local { step_size: 0.01 steps: 2 } } }
"""
FILES = 1024
ATTACKERS = 1500


class ConnectionsTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=4, samples=20, dimension=10)
        self.config = self.write("c.textproto", CONFIG)
        self.federate(self.config, self.data, "alone", processes=4)

    def serve(self, *more):
        server, text = self.start_server(self.config, 4, "run", "--dashboard", "127.0.0.1:0", *more,
                                         prefix=["prlimit", f"--nofile=256:{FILES}"])
        address, url = text.split("\n")
        return server, address, url

    def connect(self, address, count, greeting=b""):
        """Opens connections that stay; some may have been closed by the other side."""
        host, port = address.rsplit(":", 1)
        for _ in range(count):
            connection = socket.create_connection((host, int(port)), timeout=TIMEOUT)
            self.addCleanup(connection.close)
            if greeting:
                try:
                    connection.sendall(greeting)
                except OSError:
                    pass

    def join(self, address, tls=None):
        flags = lambda i: tls(f"client_00{i}") if tls else []
        return [self.start("leeway-client", "--server", address, "--give-up", TIMEOUT, *flags(i),
                           os.path.join(self.data, f"client_00{i}")) for i in range(4)]

    def assert_same_bits(self, server, clients):
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertEqual(self.show("alone")["rounds"][-1]["model_sha256"],
                         self.show("run")["rounds"][-1]["model_sha256"])

    def test_the_limit_is_raised_and_said(self):
        server, _, _ = self.serve()
        with open(f"/proc/{server.pid}/limits") as f:
            self.assertRegex(f.read(), rf"Max open files\s+{FILES}\s+{FILES}")
        self.assertIn(f"({FILES} open files)", self.log("server.log"))

    def test_connections_without_a_certificate(self):
        pki = self.path("pki")
        self.run_program("leeway", "certs", "init", pki)
        self.run_program("leeway", "certs", "server", pki)
        for i in range(4):
            self.run_program("leeway", "certs", "client", pki, f"client_00{i}")
        flags = lambda name: ["--tls-ca", self.path("pki", "ca.crt"), "--tls-cert", self.path("pki", name + ".crt"),
                              "--tls-key", self.path("pki", name + ".key")]
        server, address, _ = self.serve(*flags("server"))
        self.connect(address, ATTACKERS)
        clients = self.join(address, flags)
        self.connect(address, ATTACKERS // 2)
        self.assert_same_bits(server, clients)

    def test_connections_to_a_port_without_tls(self):
        server, address, _ = self.serve()
        self.connect(address, ATTACKERS // 2)
        clients = self.join(address)
        # As far as HTTP/2's greeting, which gRPC answers.
        self.connect(address, ATTACKERS // 2, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        self.assert_same_bits(server, clients)

    def test_connections_to_the_dashboard(self):
        server, address, url = self.serve()
        self.connect(url.split("/")[2], ATTACKERS)
        self.connect(url.split("/")[2], ATTACKERS, b"GET /metrics HTTP/1.1\r\n")  # and never more
        with urllib.request.urlopen(url + "metrics", timeout=TIMEOUT) as answer:
            metrics = answer.read().decode()
        self.assertIn("leeway_", metrics)
        open_files = len(os.listdir(f"/proc/{server.pid}/fd"))
        print(f"files of the server with {2 * ATTACKERS} connections to its dashboard: {open_files}")
        self.assertLess(open_files, 256)
        self.assert_same_bits(server, self.join(address))

    def test_the_dashboard_answers_beside_silent_connections(self):
        _, _, url = self.serve()
        host, port = url.split("/")[2].split(":")
        # More than it has threads. It closes whoever is silent for 5 s: had /metrics to wait for that, the first
        # would be closed when the answer is here. A machine that stands still for 5 s gets another try.
        for _ in range(20):
            silent = [socket.create_connection((host, int(port)), timeout=TIMEOUT) for _ in range(40)]
            with urllib.request.urlopen(url + "metrics", timeout=TIMEOUT) as answer:
                answer.read()
            silent[0].setblocking(False)
            try:
                waits = silent[0].recv(1) != b""
            except BlockingIOError:
                waits = True
            for connection in silent:
                connection.close()
            if waits:
                return
        self.fail("/metrics waits until silent connections are closed")

    def test_what_was_closed_is_counted(self):
        _, address, url = self.serve()
        self.connect(address, ATTACKERS)
        # The last ones may still wait in the kernel's queue.
        closed = 0
        while closed < ATTACKERS - FILES // 2:
            with urllib.request.urlopen(url + "metrics", timeout=TIMEOUT) as answer:
                found = re.search(r'reason="connection_limit"\} (\d+)', answer.read().decode())
            closed = int(found[1]) if found else 0


if __name__ == "__main__":
    unittest.main()
