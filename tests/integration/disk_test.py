"""A full disk and a read-only disk: an error that names it, and a run that goes on afterwards."""

import json
import os
import subprocess
import time
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 17
model { linear_regression { intercept: false } }
phases { train { rounds: 60 local { step_size: 0.01 steps: 2 } } }
"""


class DiskTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.disk = self.path("disk")
        os.mkdir(self.disk)
        if self.mount("-t", "tmpfs", "-o", "size=160k", "tmpfs", self.disk) != 0:
            self.skipTest("mounting a file system needs root")
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk])
        self.data = self.synthetic(clients=2, samples=20, dimension=30)
        self.config = self.write("c.textproto", CONFIG)
        self.federate(self.config, self.data, "calm", processes=2)
        self.expected = [r["model_sha256"] for r in self.show("calm")["rounds"]]

    def mount(self, *arguments):
        return subprocess.run(["mount", *arguments], stderr=subprocess.DEVNULL).returncode

    def serve(self, state, log):
        """A server to its end, with its clients; returns its exit code."""
        address = self.path("address")
        if os.path.exists(address):
            os.remove(address)
        server = self.start("leeway-server", "--config", self.config, "--state", state,
                            "--clients", 2, "--listen", "127.0.0.1:0", "--address-file", address,
                            log=log)
        while server.poll() is None and not os.path.exists(address):
            time.sleep(0.01)
        clients = []
        if os.path.exists(address):
            with open(address) as f:
                where = f.read().strip()
            clients = [self.start("leeway-client", "--server", where, "--give-up", TIMEOUT,
                                  os.path.join(self.data, f"client_00{i}")) for i in range(2)]
        code = server.wait(TIMEOUT)
        for client in clients:
            if code != 0:  # they would wait for the next server
                client.kill()
            client.wait(TIMEOUT)
        return code

    def check(self, state):
        _, text = self.run_program("leeway", "show", state, "--json")
        self.assertEqual([r["model_sha256"] for r in json.loads(text)["rounds"]], self.expected)
        self.run_program("leeway", "verify", state)

    def test_a_full_disk(self):
        state = os.path.join(self.disk, "run")
        self.assertEqual(self.serve(state, "full.log"), 1)
        self.assertIn("full", self.log("full.log"))
        self.assertIn("free some space", self.log("full.log"))
        # With space again the same command goes on, or begins if nothing was committed.
        self.assertEqual(self.mount("-o", "remount,size=50m", self.disk), 0)
        self.assertEqual(self.serve(state, "again.log"), 0, self.log("again.log"))
        self.check(state)

    def test_a_full_disk_ends_a_run_whose_rounds_are_written_together(self):
        # More rounds than could be done in time if the run went on without its disk.
        endless = CONFIG.replace("60", "100000000") + "durability: RELAXED\n"
        self.config = self.write("endless.textproto", endless)
        state = os.path.join(self.disk, "run")
        self.assertEqual(self.serve(state, "full.log"), 1)
        self.assertIn("free some space", self.log("full.log"))
        self.assertEqual(self.mount("-o", "remount,size=50m", self.disk), 0)
        self.run_program("leeway", "verify", state)

    def test_a_read_only_disk(self):
        self.assertEqual(self.mount("-o", "remount,ro", self.disk), 0)
        self.assertEqual(self.serve(os.path.join(self.disk, "run"), "ro.log"), 1)
        self.assertIn("Read-only file system", self.log("ro.log"))
        self.assertEqual(self.mount("-o", "remount,rw,size=50m", self.disk), 0)
        state = os.path.join(self.disk, "run")
        self.assertEqual(self.serve(state, "rw.log"), 0, self.log("rw.log"))
        self.check(state)


if __name__ == "__main__":
    unittest.main()
