"""Links that go down, between real network namespaces: the run goes on with the same bits, or without
the client behind the link. LEEWAY_LINK_SECONDS=30 keeps the link down for so long;
LEEWAY_SLOW=1 also waits until a link that stays down is found out by keepalive (80 s)."""

import os
import shutil
import signal
import subprocess
import time
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 41
model { linear_regression { intercept: false } }
phases { train { rounds: 10 local { step_size: 0.01 steps: 3 } } }
"""
SECONDS = float(os.environ.get("LEEWAY_LINK_SECONDS", "3"))
SLOW = os.environ.get("LEEWAY_SLOW") == "1"
TOOLS = ("unshare", "nsenter", "ip")


class Namespace:
    """A network namespace without a name: it ends with the process that holds it, and that one with us."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        own = os.readlink("/proc/self/ns/net")
        while self.holder.poll() is None and os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
            time.sleep(0.01)

    @property
    def enter(self):
        return ["nsenter", "--target", str(self.holder.pid), "--net"]

    def ip(self, *arguments):
        return subprocess.run([*self.enter, "ip", *arguments], stderr=subprocess.DEVNULL).returncode == 0

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()


class LinkTest(LeewayCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not all(shutil.which(tool) for tool in TOOLS):
            self.skipTest("network namespaces need root, util-linux and iproute2")
        self.data = self.synthetic(clients=4, samples=20, dimension=5)
        self.server_side = self.namespace()

    def namespace(self):
        space = Namespace()
        self.addCleanup(space.close)
        if not space.ip("link", "set", "lo", "up"):
            self.skipTest("this machine does not let us make network namespaces")
        return space

    def link(self, number):
        """A namespace that sees the server at 10.77.NUMBER.1, over its own link v NUMBER."""
        space, name = self.namespace(), f"v{number}"
        if not self.server_side.ip("link", "add", name, "type", "veth", "peer", "name", name,
                                   "netns", str(space.holder.pid)):
            self.skipTest("this machine has no veth links")
        for host, side in ((1, self.server_side), (2, space)):
            self.assertTrue(side.ip("addr", "add", f"10.77.{number}.{host}/24", "dev", name))
            self.assertTrue(side.ip("link", "set", name, "up"))
        return space

    def serve(self, config):
        address_file = self.path("address")
        server = self.start("leeway-server", "--config", config, "--state", self.path("run"),
                            "--clients", 4, "--listen", "0.0.0.0:0", "--insecure-anywhere",
                            "--address-file", address_file, log="server.log",
                            prefix=self.server_side.enter)
        return server, self.await_file(address_file, server).rsplit(":", 1)[1]

    def client(self, space, number, port, index, failpoint=None):
        return self.start("leeway-client", "--server", f"10.77.{number}.1:{port}",
                          "--insecure-anywhere", "--give-up", TIMEOUT,
                          os.path.join(self.data, f"client_00{index}"), log=f"client{index}.log",
                          prefix=space.enter, failpoint=failpoint)

    def test_a_link_goes_down_and_comes_back(self):
        config = self.write("c.textproto", CONFIG)
        self.federate(config, self.data, "calm", processes=4)
        outside = self.link(1)
        server, port = self.serve(config)
        # In the middle of the fifth round one client stands still with its report.
        clients = [self.client(outside, 1, port, i, None if i else "client.before_send:5:stop")
                   for i in range(4)]
        self.await_stopped(clients[0])
        self.assertTrue(outside.ip("link", "set", "v1", "down"))
        clients[0].send_signal(signal.SIGCONT)
        time.sleep(SECONDS)  # it sends into nothing
        self.assertIsNone(server.poll())
        self.assertTrue(outside.ip("link", "set", "v1", "up"))
        began = time.monotonic()
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        print(f"after {SECONDS:g} s without a link the run was done in {time.monotonic() - began:.1f} s")
        self.assertEqual([r["model_sha256"] for r in self.show()["rounds"]],
                         [r["model_sha256"] for r in self.show("calm")["rounds"]])
        self.run_program("leeway", "verify", self.path("run"))

    def lose_a_client(self, rounds, cohort):
        """Three clients, and a fourth whose link goes down for good before its second report."""
        config = self.write("c.textproto", CONFIG.replace("rounds: 10", f"rounds: {rounds}") + cohort)
        near, far = self.link(1), self.link(2)
        server, port = self.serve(config)
        for i in range(3):
            self.client(near, 1, port, i)
        lost = self.client(far, 2, port, 3, "client.before_send:2:stop")
        self.await_stopped(lost)
        self.assertTrue(far.ip("link", "set", "v2", "down"))
        lost.send_signal(signal.SIGCONT)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.run_program("leeway", "verify", self.path("run"))
        return self.show()["rounds"]

    def test_a_link_that_stays_down_costs_a_round_its_deadline(self):
        rounds = self.lose_a_client(2, "cohort { minimum_reports: 3 deadline_seconds: 10 }")
        self.assertEqual([(r["reports"], r["attempts"]) for r in rounds], [(4, 1), (3, 1)])

    @unittest.skipUnless(SLOW, "LEEWAY_SLOW=1 waits for keepalive")
    def test_a_client_behind_a_link_that_stays_down_is_replaced(self):
        """Once keepalive has ended its stream."""
        rounds = self.lose_a_client(
            10, "cohort { size: 3 deadline_seconds: 600 replace_after_seconds: 0.1 }")
        self.assertEqual([r["reports"] for r in rounds], [3] * 10)
        self.assertGreater(sum(r["replaced"] for r in rounds), 0)
        print(f"found out and replaced: the longest round took {max(r['seconds'] for r in rounds):.1f} s")


if __name__ == "__main__":
    unittest.main()
