"""A network that delays, stalls, resets and cuts connections: the run ends with the same bits."""

import itertools
import os
import random
import socket
import struct
import threading
import time
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 31
model { linear_regression { intercept: false } }
cohort { size: 4 deadline_seconds: 600 }
phases { train { rounds: 25 local { step_size: 0.01 steps: 3 } } }
"""


class Proxy:
    """Passes bytes between clients and a server; `fault(connection number, bytes so far)` may
    answer "stall", "reset" or a number of seconds to wait."""

    def __init__(self, target, fault):
        self.target = target
        self.fault = fault
        self.faults = 0
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.closing = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.closing:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            host, port = self.target.rsplit(":", 1)
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:
                client.close()
                continue
            self.connections += 1
            number = self.connections
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=(*pair, number), daemon=True).start()

    def pump(self, source, sink, number):
        passed = 0
        try:
            while data := source.recv(4096):
                fault = self.fault(number, passed + len(data))
                if fault == "reset":
                    self.faults += 1
                    # Linger 0: the peer sees a reset, not an end.
                    for s in (source, sink):
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                if fault:
                    self.faults += 1
                    time.sleep(fault)
                sink.sendall(data)
                passed += len(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RD)  # wakes the thread of the other direction
            except OSError:
                pass
            s.close()

    def close(self):
        self.closing = True
        self.listener.close()


class NetworkTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=6, samples=20, dimension=40)
        self.config = self.write("c.textproto", CONFIG)
        self.federate(self.config, self.data, "calm", processes=3)
        self.expected = [r["model_sha256"] for r in self.show("calm")["rounds"]]

    def through(self, name, fault):
        server, address = self.start_server(self.config, 6, name)
        proxy = Proxy(address, fault)
        self.addCleanup(proxy.close)
        clients = [self.start("leeway-client", "--server", proxy.address,
                              *[os.path.join(self.data, f"client_00{i}") for i in pair],
                              log=f"{name}-{pair[0]}.log")
                   for pair in ((0, 1), (2, 3), (4, 5))]
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for client in clients:
            client.kill()  # one that the end did not reach would look for its server a while
        self.assertEqual([r["model_sha256"] for r in self.show(name)["rounds"]], self.expected)
        self.run_program("leeway", "verify", self.path(name))
        self.assertGreater(proxy.faults, 0)

    def test_delays(self):
        chance = random.Random(1)
        self.through("delays", lambda number, passed: chance.random() < 0.2 and 0.05)

    def test_a_stall(self):
        """One connection stands still for seconds, in the middle of a report."""
        stalled = set()

        def fault(number, passed):
            if number == 2 and passed > 6000 and number not in stalled:
                stalled.add(number)
                return 3.0
            return None

        self.through("stall", fault)

    def test_resets(self):
        passed_on = itertools.count(1)
        self.through("resets", lambda number, passed:
                     "reset" if next(passed_on) % 40 == 0 else None)

    def test_cuts_at_byte(self):
        """The first connections are cut after 1, 2, 4, ... bytes."""
        self.through("cuts", lambda number, passed:
                     "reset" if number <= 14 and passed >= 2 ** number else None)


if __name__ == "__main__":
    unittest.main()
