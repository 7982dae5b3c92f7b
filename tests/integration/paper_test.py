"""A fast part of `./run paper`: the driver runs, and every chart of the page has data."""

import os
import re
import subprocess
import sys
import unittest

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

DRIVER = os.path.join(SOURCE, "experiments", "paper.py")
ALL = ["figure1c", "theorem1", "sampling", "regimes", "conflict", "table1", "theorem2", "slopes"]


class PaperTest(LeewayCase):
    def paper(self, *arguments, binaries=BIN):
        done = subprocess.run(
            [sys.executable, DRIVER, "--bin", binaries, "--out", self.path("paper"), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=TIMEOUT)
        with open(self.path("paper", "index.html")) as f:
            return done.returncode, done.stdout, f.read()

    def test_every_chart_has_data(self):
        code, output, page = self.paper("--quick")
        self.assertEqual(code, 0, output)
        self.assertEqual(re.findall(r'<section id="(\w+)"', page), ALL)
        charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
        self.assertGreaterEqual(len(charts), len(ALL))
        for chart in charts:
            # Matplotlib draws each series as a path in a group line2d_N; ticks are shorter.
            paths = re.findall(r'<path d="([^"]*)"[^>]*clip-path', chart)
            self.assertTrue(any(path.count("L") >= 1 for path in paths), chart[:500])
            self.assertNotIn("nan", " ".join(paths))
        self.assertNotRegex(page, r'(src|href)="http')  # works offline

    def test_paper_data_is_harmless_and_conflict_is_told_apart(self):
        code, output, _ = self.paper("--quick", "--only", "figure1c", "conflict")
        self.assertEqual(code, 0, output)
        self.assertNotIn("DISAGREES", output)

    def test_programs_that_are_missing_fail_the_run(self):
        code, output, _ = self.paper("--quick", "--only", "regimes", binaries=self.path("nowhere"))
        self.assertEqual(code, 1, output)
        self.assertIn("FAILED", output)
        self.assertIn("not run: regimes", output)


if __name__ == "__main__":
    unittest.main()
