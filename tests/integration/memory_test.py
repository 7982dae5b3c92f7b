"""The server's memory does not grow with its clients: a model of 10^6 parameters, with 10 and with
100 reporting client processes."""

import os
import sys
import unittest

from leeway_case import BIN

sys.path.insert(0, os.path.join(os.environ["LEEWAY_SOURCE"], "bench"))
import load  # noqa: E402


def sanitized():
    with open(os.path.join(BIN, "leeway-server"), "rb") as f:
        program = f.read()
    return b"__asan_init" in program or b"__tsan_init" in program


class MemoryTest(unittest.TestCase):
    @unittest.skipIf(sanitized(), "a sanitizer keeps freed memory")
    def test_as_much_for_100_clients_as_for_10(self):
        few, many = (load.load(BIN, 10**6, clients, rounds)["server_peak_mb"]
                     for clients, rounds in ((10, 30), (100, 6)))
        print(f"{few:.0f} MB with 10 clients, {many:.0f} MB with 100")
        self.assertLess(many, 1.1 * few)


if __name__ == "__main__":
    unittest.main()
