"""The command line as people and shells meet it."""

import os
import pty
import re
import subprocess
import unittest

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

PROGRAMS = ("leeway", "leeway-server", "leeway-client")


class CommandLineTest(LeewayCase):
    def commands(self, *path):
        """All commands of `leeway`, each as its words."""
        _, text = self.run_program("leeway", *path, "--help")
        found = re.search(r"^Subcommands:\n(.*?)\n\n", text + "\n\n", re.S | re.M)
        names = re.findall(r"^  (\w+)", found[1], re.M) if found else []
        return [list(path)] + [c for name in names for c in self.commands(*path, name)]

    def test_every_help_has_an_example_and_every_program_a_version(self):
        for program in PROGRAMS:
            _, text = self.run_program(program, "--version")
            self.assertRegex(text, rf"^{program} \d+\.\d+\.\d+( \(AVX-512\))?\n$")
        for words in [["leeway", *c] for c in self.commands()] + [[p] for p in PROGRAMS[1:]]:
            _, text = self.run_program(words[0], *words[1:], "--help")
            self.assertIn("Example", text, words)
            self.assertIn("Usage: " + " ".join(words), text)
        for program in PROGRAMS:
            _, text = self.run_program(program, "--help")
            self.assertIn("Exit code", text)

    def test_mistyped_words_get_a_suggestion(self):
        for words, meant in [(["shwo"], "leeway show"), (["dashbord"], "leeway dashboard"),
                             (["data", "sinthetic"], "leeway data synthetic"),
                             (["run", "c.textproto", "--chekc"], "--check"),
                             (["dashboard", "x", "--lisen", "1"], "--listen")]:
            code, text = self.run_program("leeway", *words, check=False)
            self.assertEqual(code, 2)
            self.assertIn(f"did you mean `{meant}`?", text)
        for program, words, meant in [("leeway-server", ["--confg", "c"], "--config"),
                                      ("leeway-client", ["--sever", "x"], "--server")]:
            code, text = self.run_program(program, *words, check=False)
            self.assertEqual(code, 2)
            self.assertIn(f"did you mean `{meant}`?", text)

    def test_init_writes_a_config_that_runs(self):
        data = self.synthetic(clients=4, samples=20, dimension=3)
        config = self.path("c.textproto")
        self.run_program("leeway", "init", "--data", data, "--out", config)
        _, text = self.run_program("leeway", "run", "--check", config, "--data", data)
        self.assertIn("fits it: 4 clients, 80 training examples; the model has 3 parameters", text)
        self.federate(config, data)
        self.assertEqual(self.show()["status"], "done")
        code, text = self.run_program("leeway", "init", "--data", data, "--out", config, check=False)
        self.assertEqual(code, 2)
        self.assertIn("is there already", text)

    def test_check_tells_line_and_column_and_starts_nothing(self):
        config = self.write("c.textproto", "model { linear_regression {} }\nphases {\n"
                                           "  train { rounds: 0 local { steps: 1 step_size: 1 } } }\n")
        code, text = self.run_program("leeway", "run", "--check", config, check=False)
        self.assertEqual(code, 2)
        self.assertIn("c.textproto: line 3, column", text)
        self.assertIn("phases[0].train.rounds is 0", text)
        code, text = self.run_program("leeway", "run", config, "--data", self.folder, check=False)
        self.assertEqual(code, 2)
        self.assertIn("--out", text)

    def on_terminal(self, *words, **variables):
        """What `leeway` writes to a terminal of its own."""
        ours, theirs = pty.openpty()
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
        child = subprocess.Popen([os.path.join(BIN, "leeway"), *words], stdin=theirs, stdout=theirs,
                                 stderr=theirs, env=dict(env, **variables))
        self.children.append(child)
        os.close(theirs)
        written = b""
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # EIO: nobody holds the other end any more
                break
            if not data:
                break
            written += data
        os.close(ours)
        self.assertEqual(child.wait(TIMEOUT), 0, written)
        return written.decode()

    def test_colours_only_on_terminals_that_want_them(self):
        data = self.synthetic(clients=4, samples=20, dimension=3)
        config = self.path("c.textproto")
        self.run_program("leeway", "init", "--data", data, "--out", config)
        coloured = re.compile(r"\x1b\[[0-9;]*m")
        run = lambda name, **v: self.on_terminal("run", config, "--data", data, "--out", self.path(name), **v)
        self.assertRegex(run("colours", TERM="xterm"), coloured)
        for name, variables in [("none", {"TERM": "xterm", "NO_COLOR": "1"}), ("dumb", {"TERM": "dumb"}),
                                ("unknown", {})]:
            self.assertNotRegex(run(name, **variables), coloured, name)
        # A dumb terminal moves no cursor either, and a pipe or file is no terminal.
        self.assertNotIn("\x1b", run("still", TERM="dumb"))
        _, text = self.run_program("leeway", "run", config, "--data", data, "--out", self.path("pipe"),
                                   env=dict(os.environ, TERM="xterm"))
        self.assertNotIn("\x1b", text)
        for words in (["drift"], ["show"], ["show", "--json"]):
            text = self.on_terminal(*words, self.path("pipe"), TERM="xterm", NO_COLOR="1")
            self.assertNotIn("\x1b", text, words)

    def complete(self, *words):
        """What bash offers after these words."""
        script = (f"source {SOURCE}/packaging/completion.bash; COMP_WORDS=(\"$@\"); "
                  "COMP_CWORD=$(($# - 1)); _leeway; printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", script, "bash", *words], text=True,
                              stdout=subprocess.PIPE, env=dict(os.environ, PATH=f"{BIN}:/usr/bin:/bin"))
        return done.stdout.split()

    def test_completion_knows_what_the_programs_know(self):
        self.assertEqual(self.complete("leeway", "da"), ["data", "dashboard"])
        self.assertIn("synthetic", self.complete("leeway", "data", ""))
        self.assertEqual(self.complete("leeway", "run", "--che"), ["--check"])
        self.assertEqual(self.complete("leeway", "run", "c.textproto", "--dash"), ["--dashboard"])
        self.assertEqual(self.complete("leeway-server", "--dash"), ["--dashboard"])
        self.assertEqual(self.complete("leeway-client", "--give"), ["--give-up"])

    def test_man_pages_name_every_command(self):
        with open(f"{SOURCE}/packaging/leeway.1") as f:
            page = f.read()
        for command in self.commands():
            if len(command) == 1:
                self.assertIn(f".B {command[0]}\n", page)


if __name__ == "__main__":
    unittest.main()
