"""The floods of attacks.py, for a moment each: the run beside them ends with the same bits, the server's memory stays
bounded, and its log says who was cut off. `attacks.py` itself takes longer and prints speeds."""

import shutil
import tempfile
import time
import unittest

import attacks
from leeway_case import BIN

ROUNDS = 4000
SECONDS = 2
MEMORY = 256  # MB; without limits a reset flood takes 130 MB a second here


class AttacksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="leeway-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.expected = attacks.alone(BIN, cls.folder, ROUNDS)

    def attack(self, kind):
        with attacks.honest(BIN, self.folder, kind, ROUNDS) as run:
            run.await_rounds()
            before = run.memory("VmRSS")
            attempts = attacks.ATTACKS[kind](run.target, time.monotonic() + SECONDS)
            peak = run.memory("VmHWM")  # 0: the run is over, and its server gone
            self.assertLess(peak, before + MEMORY)
            self.assertEqual(run.finish(), self.expected)
            print(f"{kind}: {attempts} attempts, memory {before:.0f} MB before, {peak:.0f} MB at most")
            return attempts, run.log()

    def test_streams_that_are_reset(self):
        attempts, log = self.attack("reset")
        if attempts > 10000:
            self.assertIn("flood observer: began more calls in a second", log)

    def test_streams_that_are_reset_beside_a_call(self):
        attempts, log = self.attack("calls")
        if attempts > 10000:
            self.assertIn("flood unused: began more calls in a second", log)

    def test_headers_that_never_end(self):
        self.attack("continuation")

    def test_observers_that_do_not_read(self):
        self.attack("observe")


if __name__ == "__main__":
    unittest.main()
