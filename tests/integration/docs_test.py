"""Every command block in README and docs is run as it stands, and what is generated is fresh.

A block that a test cannot run says so in the line above it, and is checked for syntax and for
commands and options that exist, as are the commands in running text:

    <!-- run by FILE, ... -->     FILE (a test or check of this project) runs it
    <!-- not run: REASON -->      nobody does here; NOT_RUN below counts them
"""

import glob
import os
import re
import shlex
import signal
import subprocess
import sys
import unittest

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

# How many blocks of each page are not run. Each is a place where the page may go stale unseen.
NOT_RUN = {"docs/clusters.md": 1, "docs/measures.md": 1, "docs/performance.md": 1, "docs/results.md": 1,
           "docs/scale.md": 1, "docs/security.md": 2}

MARK = re.compile(r"<!-- (run by|not run:) (.*?) -->")
PROGRAMS = ("leeway", "leeway-server", "leeway-client")


def pages():
    return ["README.md", "CONTRIBUTING.md",
            *sorted(os.path.relpath(p, SOURCE) for p in glob.glob(f"{SOURCE}/docs/*.md"))]


def read(page):
    with open(os.path.join(SOURCE, page)) as f:
        return f.read()


def blocks(page):
    """[(mark or None, its text, body)] of a page's fenced blocks that are commands."""
    found = re.findall(r"(?:(<!--.*?-->)\n)?```(\w*)\n(.*?)```\n", read(page), re.S)
    result = []
    for comment, language, body in found:
        if language == "sh":
            mark = MARK.fullmatch(comment)
            result.append((mark[1] if mark else None, mark[2] if mark else "", body))
    return result


def words_of(command):
    """The words of a simple command; a comment or what follows another command's start is left out."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = []
    try:
        for word in lexer:
            if word and all(c in "();<>|&" for c in word):
                break
            words.append(word)
    except ValueError:  # a quote that the text around it closes
        words = command.split()
    return words


def commands(text):
    """Those of a block that call a program of this project, each as its words."""
    text = re.sub(r"<<'?(\w+)'?\n.*?\n\1\n", "\n", text, flags=re.S).replace("\\\n", " ")
    result = []
    for line in text.splitlines():
        for part in re.split(r"&&|\|\||[;|]|\$\(", line):
            words = words_of(part)
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words.pop(0)
            if words and (words[0] in PROGRAMS or re.match(r"(\./run|\.ci/run|build/bin/|bench/\w+\.py)", words[0])):
                result.append(words)
    return result


def inline(page):
    """Commands in running text: code spans that begin with one."""
    prose = re.sub(r"```.*?```", "", read(page), flags=re.S)
    spans = [" ".join(s.split()) for s in re.findall(r"`([^`]+)`", prose)]
    return [words for span in spans for words in commands(span)]


class DocsTest(LeewayCase):
    helps = {}

    def test_command_blocks_run(self):
        for page in pages():
            mine = [body for mark, _, body in blocks(page) if mark is None]
            if not mine:
                continue
            with self.subTest(page):
                folder = self.path(os.path.basename(page))
                os.mkdir(folder)
                os.symlink(f"{SOURCE}/experiments", os.path.join(folder, "experiments"))
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

    def test_blocks_that_are_not_run_here_are_few_and_say_why(self):
        skipped = {}
        for page in pages():
            for mark, text, body in blocks(page):
                if mark == "run by":
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, text.split(",")[0])), f"{page}: {text}")
                elif mark == "not run:":
                    self.assertGreater(len(text), 10, page)
                    skipped[page] = skipped.get(page, 0) + 1
                done = subprocess.run(["bash", "-n"], input=body, text=True, stderr=subprocess.PIPE)
                self.assertEqual((done.returncode, done.stderr), (0, ""), f"{page}:\n{body}")
        self.assertEqual(skipped, NOT_RUN)

    def test_no_block_hides_from_these_tests(self):
        for page in pages():
            for language in re.findall(r"^```(\w*)\n(?:.*?\n)??```$", read(page), re.M | re.S):
                self.assertTrue(language, f"{page}: a fenced block without a language")
            # Blocks by indentation have no language, so nobody could tell which are commands.
            prose = re.sub(r"```.*?```", "", read(page), flags=re.S)
            self.assertIsNone(re.search(r"\n\n    \S.*", prose), page)

    def help_of(self, words):
        """(what `--help` of the command says, how many words name it)."""
        count = 1
        if words[0] == "leeway":
            while count < len(words) and re.fullmatch(r"[a-z]+", words[count]) and \
                    re.search(rf"^  {words[count]}\b", self.ask(words[:count]), re.M):
                count += 1
        return self.ask(words[:count]), count

    def ask(self, words):
        program = os.path.join(BIN, words[0]) if words[0] in PROGRAMS else os.path.join(SOURCE, words[0])
        key = tuple(words)
        if key not in self.helps:
            python = [sys.executable] if program.endswith(".py") else []
            done = subprocess.run([*python, program, *words[1:], "--help"], text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT)
            self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}")
            self.helps[key] = done.stdout
        return self.helps[key]

    def assert_known(self, words, page):
        if words[0] == ".ci/run":
            self.assertEqual(len(words), 1, page)
        elif words[0] == "./run":
            if len(words) > 1:
                self.assertRegex(self.ask(["./run"]), rf"(?m)^  \./run {words[1]}\b", page)
        elif words[0].startswith("build/bin/"):
            self.assertTrue(os.path.exists(os.path.join(BIN, words[0][len("build/bin/"):])), f"{page}: {words}")
        else:
            text, count = self.help_of(words)
            if words[0] == "leeway" and re.search(r"^Subcommands:", text, re.M) and len(words) > count:
                self.assertTrue(words[count].startswith("-"), f"{page}: {words} is not a command")
            known = set(re.findall(r"--?[a-z][a-z-]*", text))
            used = {w.split("=")[0] for w in words[count:] if re.match(r"--?[a-z]", w)}
            self.assertLessEqual(used, known, f"{page}: {' '.join(words)}")

    def test_commands_and_options_exist(self):
        seen = 0
        for page in pages():
            for words in [*inline(page), *(w for _, _, body in blocks(page) for w in commands(body))]:
                with self.subTest(f"{page}: {' '.join(words)}"):
                    self.assert_known(words, page)
                seen += 1
        self.assertGreater(seen, 60)

    def test_links_lead_somewhere(self):
        for page in pages():
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(page)):
                if "://" in target:
                    continue
                path = os.path.join(SOURCE, os.path.dirname(page), target)
                self.assertTrue(os.path.exists(path), f"{page} links to {target}")

    def test_configuration_reference_is_fresh(self):
        done = subprocess.run([sys.executable, f"{SOURCE}/docs/configuration.py", "--check"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
