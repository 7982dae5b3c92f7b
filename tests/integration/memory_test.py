"""The server's memory follows the model, not the number of clients: what it has allocated for 10 and
for 100 client processes that report a model of 10^6 parameters, by its own count."""

import os
import re
import sys
import unittest

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase, metrics

sys.path.insert(0, os.path.join(SOURCE, "bench"))
import load  # noqa: E402

DIMENSION = 10**6
PAYLOAD = 4 * DIMENSION  # float32
MESSAGE = 2**20
ROUNDS = 5


def sanitized():
    with open(os.path.join(BIN, "leeway-server"), "rb") as f:
        program = f.read()
    return b"__asan_init" in program or b"__tsan_init" in program


class MemoryTest(LeewayCase):
    def held(self, clients):
        """With so many client processes: /metrics after some rounds, the round that is open after that,
        and the server's peak in bytes."""
        features, classes = load.SHAPES[DIMENSION]
        config = self.write("c.textproto", load.CONFIG.format(
            classes=classes, rounds=10**6, durability="RELAXED"))
        server, address = self.start_server(config, clients, "run", "--dashboard", "0")
        address, url = address.split("\n")
        for i in range(clients):
            self.start("load_client", address, f"c{i:04}", features, log=f"client{i}.log")
        while (now := metrics(url)).get('leeway_rounds_total{kind="train"}', 0) < ROUNDS:
            self.assertIsNone(server.poll(), self.log("server.log"))
        with open(f"/proc/{server.pid}/status") as f:
            peak = int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) * 1024
        later = metrics(url)["leeway_round"]
        server.terminate()
        self.assertEqual(server.wait(TIMEOUT), 3)
        return now, later, peak

    def check(self, clients):
        now, later, peak = self.held(clients)
        most = {what: (now[f'leeway_held_most_blocks{{what="{what}"}}'],
                       now[f'leeway_held_most_bytes{{what="{what}"}}'])
                for what in ("staging", "small_reports", "models")}
        print(f"{clients} clients: {most}, peak {peak / 2**20:.0f} MiB")
        # Staging: three buffers of the payload's size, however many clients report.
        self.assertGreaterEqual(most["staging"], (1, PAYLOAD))
        self.assertLessEqual(most["staging"][0], 3)
        self.assertLessEqual(most["staging"][1], 3 * PAYLOAD)
        # Large reports do not come in one message, so nothing is held for such.
        self.assertEqual(most["small_reports"], (0, 0))
        # Clients share the models: there is one for each round, and the next.
        self.assertLessEqual(most["models"][0], later + 1)
        return peak

    def test_ten_clients(self):
        self.check(10)

    def test_a_hundred_clients(self):
        peak = self.check(100)
        if sanitized():
            return  # it keeps freed memory
        # Beside models, sums and staging (12 payloads are more than it takes) and the program (64 MiB),
        # gRPC has at most a message and a window of each connection. Growing windows take 900 MB.
        self.assertLess(peak, 12 * PAYLOAD + 64 * 2**20 + 100 * (MESSAGE + 2**18))


if __name__ == "__main__":
    unittest.main()
