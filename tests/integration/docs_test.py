"""Every command block in README and docs is run as it stands, and what is generated is fresh."""

import glob
import os
import re
import signal
import subprocess
import sys
import unittest

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

# Pages whose indented blocks are others' formulas and figures; each names its own command.
OTHERS = {"measures.md", "results.md", "reliability.md", "performance.md", "design.md", "security.md"}


def pages():
    docs = [p for p in sorted(glob.glob(f"{SOURCE}/docs/*.md")) if os.path.basename(p) not in OTHERS]
    return [f"{SOURCE}/README.md", *docs]


def blocks(page):
    """[(who else runs it or None, text)] of a page's fenced blocks that are commands."""
    with open(page) as f:
        text = f.read()
    found = re.findall(r"(?:<!-- run by (.*?) -->\n)?```(\w*)\n(.*?)```\n", text, re.S)
    return [(other or None, body) for other, language, body in found if language == "sh"]


class DocsTest(LeewayCase):
    def test_command_blocks_run(self):
        for page in pages():
            mine = [body for other, body in blocks(page) if other is None]
            if not mine:
                continue
            with self.subTest(os.path.basename(page)):
                folder = self.path(os.path.basename(page))
                os.mkdir(folder)
                env = dict(os.environ, PATH=f"{BIN}:/usr/bin:/bin:/usr/sbin:/sbin", LEEWAY_SOURCE=SOURCE)
                with open(os.path.join(folder, "output"), "w") as out:
                    shell = subprocess.Popen(["bash", "-euo", "pipefail", "-c", "\n".join(mine)],
                                             cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                             stderr=subprocess.STDOUT, start_new_session=True)
                try:
                    shell.wait(TIMEOUT)
                finally:
                    try:
                        os.killpg(shell.pid, signal.SIGKILL)  # what a failed block left running
                    except ProcessLookupError:
                        pass
                self.assertEqual(shell.returncode, 0, self.log(os.path.join(folder, "output")))

    def test_blocks_run_elsewhere_name_who_runs_them(self):
        for page in pages():
            for other, body in blocks(page):
                if other is None:
                    continue
                runner = other.split(",")[0]
                self.assertTrue(os.path.exists(os.path.join(SOURCE, runner)), f"{page}: {runner}")

    def test_links_lead_somewhere(self):
        for page in pages():
            with open(page) as f:
                for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", f.read()):
                    if "://" in target:
                        continue
                    path = os.path.join(os.path.dirname(page), target)
                    self.assertTrue(os.path.exists(path), f"{page} links to {target}")

    def test_configuration_reference_is_fresh(self):
        done = subprocess.run([sys.executable, f"{SOURCE}/docs/configuration.py", "--check"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
