"""A fast part of `./run paper`: the driver runs, and a browser draws every chart with data."""

import os
import re
import subprocess
import sys
import unittest

from drawn_charts import assert_charts_are_drawn
from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

DRIVER = os.path.join(SOURCE, "experiments", "paper.py")
ALL = ["figure1c", "regimes", "slopes", "conflict", "theorem1", "theorem2", "corollary2", "table1",
       "sampling", "sampled_probe"]
# With the two seeds of --quick, these are too noisy for their tolerances.
NOISY = {"slopes", "corollary2", "sampled_probe"}


class PaperTest(LeewayCase):
    def paper(self, *arguments, binaries=BIN):
        done = subprocess.run(
            [sys.executable, DRIVER, "--bin", binaries, "--out", self.path("paper"), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=TIMEOUT)
        self.page = self.path("paper", "index.html")
        with open(self.page) as f:
            return done.returncode, done.stdout, f.read()

    def test_the_page(self):
        code, output, page = self.paper("--quick")
        self.assertEqual(code, 0, output)
        self.assertEqual(re.findall(r'<section id="(\w+)"', page), ALL)
        self.assertNotRegex(page, r'(src|href)="http')  # works offline
        self.assertGreaterEqual(page.count("<svg"), len(ALL))
        for section in re.split(r"\n(?=\w+ \.\.\.\n)", output):
            if section.split()[0] not in NOISY:
                self.assertNotIn("DISAGREES", section)
        assert_charts_are_drawn(self, self.page, page.count("<svg"))

    def test_programs_that_are_missing_fail_the_run(self):
        code, output, _ = self.paper("--quick", "--only", "regimes", binaries=self.path("nowhere"))
        self.assertEqual(code, 1, output)
        self.assertIn("FAILED", output)
        self.assertIn("not run: regimes", output)


if __name__ == "__main__":
    unittest.main()
