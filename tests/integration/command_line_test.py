"""The command line as people and shells meet it."""

import contextlib
import os
import pty
import re
import signal
import sqlite3
import subprocess
import time
import unittest

import numpy as np

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
        config = self.write("c.textproto", "model { linear_regression { intercept: false } }\nphases {\n"
                                           "  train { rounds: 0 local { steps: 1 step_size: 1 } } }\n")
        code, text = self.run_program("leeway", "run", "--check", config, check=False)
        self.assertEqual(code, 2)
        self.assertIn("c.textproto: line 3, column", text)
        self.assertIn("phases[0].train.rounds is 0", text)
        code, text = self.run_program("leeway", "run", config, "--data", self.folder, check=False)
        self.assertEqual(code, 2)
        self.assertIn("--out", text)

    def images(self, name="images", clients=3):
        rng = np.random.default_rng(5)
        for c in range(clients):
            os.makedirs(self.path(name, f"c{c}"))
            for part in ("train", "test"):
                np.save(self.path(name, f"c{c}", part + "_x.npy"),
                        rng.random((12, 8, 8), np.float32))
                np.save(self.path(name, f"c{c}", part + "_y.npy"), np.arange(12) % 3)
        return self.path(name)

    def test_init_for_networks_writes_configs_that_run(self):
        images = self.images()
        tokens = self.path("tokens")
        for c in range(3):
            os.makedirs(os.path.join(tokens, f"c{c}"))
            x = (np.arange(60).reshape(6, 10) * (c + 3) % 7 + 1).astype(np.int32)
            np.save(os.path.join(tokens, f"c{c}", "train_x.npy"), x)
            np.save(os.path.join(tokens, f"c{c}", "train_y.npy"), np.roll(x, -1, 1))
        for model, data in [("mlp", images), ("cnn", images), ("lstm", tokens)]:
            config = self.path(model + ".textproto")
            _, text = self.run_program("leeway", "init", "--data", data, "--out", config, "--model",
                                       model)
            self.assertRegex(text, "cost: (273|284 to 294) rounds")  # 100 of training, 172 of the release test, evaluations
            _, text = self.run_program("leeway", "run", "--check", config, "--data", data)
            self.assertIn("fits it", text)
            with open(config) as f:
                short = self.write(model + "2.textproto",
                                   f.read().replace("rounds: 100", "rounds: 2").replace("evaluate_every: 10", "evaluate_every: 1")
                                   .replace("release {", "release { rounds: 1 repeats: 1"))
            self.federate(short, data, out=model)
            self.assertEqual(self.show(model)["status"], "done")
            # The release test answers, and nothing asks for phases a network cannot have.
            _, text = self.run_program("leeway", "drift", self.path(model))
            self.assertIn("at H = 10", text)
            self.assertIn("Release test", text)
            self.assertNotIn("add `", text)
            self.run_program("leeway", "report", self.path(model), "--out",
                             self.path(model + ".html"))
            self.assertNotIn("add `phases", self.log(model + ".html"))
            _, text = self.run_program("leeway", "show", self.path(model))
            self.assertNotIn("add `phases", text)
        for model, data, words in [("lstm", images, "--model softmax"), ("cnn", tokens, "one target"),
                                   ("linear", tokens, "--model lstm"), ("xgboost", images, "mlp"),
                                   ("cnn", self.synthetic(clients=2, samples=9, dimension=3),
                                    "labels")]:
            code, text = self.run_program("leeway", "init", "--data", data, "--out", self.path("no"),
                                          "--model", model, check=False)
            self.assertEqual(code, 2)
            self.assertIn(words, text)
            self.assertFalse(os.path.exists(self.path("no")))

    def test_a_network_gets_all_that_it_cannot_have_in_one_error(self):
        config = self.write("c.textproto", """model { cnn { classes: 3 } }
phases { optimum {} }
phases { constants { point: OPTIMUM } }
phases { probe { point: OPTIMUM steps: [1, 2] } }
phases { train { rounds: 1 local { steps: 1 } } }
""")
        code, text = self.run_program("leeway", "run", "--check", config, check=False)
        self.assertEqual(code, 2)
        for word in ["line 2, column 10: phases[0].optimum does not go with model.cnn",
                     "leave out phases[0].optimum;",
                     "CURRENT or INITIAL for phases[1].constants.point, phases[2].probe.point",
                     "such as 0.1, for phases[2].probe.step_size, phases[3].train.local.step_size",
                     "leeway init --model cnn"]:
            self.assertIn(word, text)

    def test_check_finds_what_the_run_would_find(self):
        data = self.images()
        train = "phases { train { rounds: 1 local { step_size: 0.1 steps: 1 } } }"
        real = self.synthetic(clients=3, samples=20, dimension=3)
        for model, folder, more, words in [
            ("softmax_regression { classes: 2 }", data, "", ["c0", "label in row 2"]),
            ("softmax_regression { classes: 3 }", real, "", ["client_000", "train_y.npy"]),
            ("cnn { classes: 3 }", real, "", ["not integers"]),
            ("lstm { vocabulary: 9 embedding: 2 hidden: [3] }", data, "", ["train_x.npy", "shape"]),
            ("linear_regression { intercept: false }", real, "phases { evaluate {} }",
             ["phases[1].evaluate needs test data", "--test-fraction"]),
            ("linear_regression { intercept: false }", real,
             "phases { train { rounds: 2 evaluate_every: 1 local { step_size: 0.1 steps: 1 } } }",
             ["phases[1].train.evaluate_every needs test data"]),
        ]:
            config = self.write("c.textproto", f"model {{ {model} }}\n{train}\n{more}\n")
            code, text = self.run_program("leeway", "run", "--check", config, "--data", folder,
                                          check=False)
            self.assertEqual(code, 2, text)
            for word in words:
                self.assertIn(word, text)
            self.assertNotIn("is in order", text)
        config = self.write("c.textproto", "model { softmax_regression { classes: 3 } }\n" + train +
                            "phases { evaluate {} }")
        self.run_program("leeway", "run", "--check", config, "--data", data)

    def test_mistyped_fields_and_values_get_a_suggestion(self):
        good = "model { linear_regression { intercept: false } }\nphases { train { rounds: 1 local { step_size: 1 steps: 1 } } }\n"
        for text, words in [
            (good + "wieghting: EXAMPLES", ['no field "wieghting" in RunConfig',
                                            "did you mean weighting?", "it has name, seed, model"]),
            (good + "weighting: EXMPLES", ['line 3', 'there is no weighting "EXMPLES"',
                                           "did you mean EXAMPLES?", "use one of UNIFORM, EXAMPLES"]),
            (good + "phases { probe { point: NOW } }", ["use one of INITIAL, OPTIMUM, CURRENT"]),
            (good.replace("rounds", "roundz"), ['no field "roundz" in Train', "did you mean rounds?"]),
        ]:
            config = self.write("c.textproto", text)
            code, said = self.run_program("leeway", "run", "--check", config, check=False)
            self.assertEqual(code, 2)
            for word in words:
                self.assertIn(word, said)

    def test_the_estimate_holds(self):
        data = self.synthetic(clients=4, samples=20, dimension=3)
        config = self.write("c.textproto", """
model { linear_regression { intercept: false } }
phases { optimum { max_rounds: 3 tolerance: 1e-300 } }
phases { constants {} }
phases { probe { point: OPTIMUM steps: [1, 2] } }
phases { fixed_point { steps: [1, 2] max_rounds: 4 tolerance: 1e-300 } }
phases { train { rounds: 5 local { steps: 3 } probe { steps: [1] } probe_at: [0, 5] evaluate_every: 2 } }
""")
        for c in range(4):
            folder = os.path.join(data, f"client_00{c}")
            for axis in "xy":
                np.save(os.path.join(folder, f"test_{axis}.npy"),
                        np.load(os.path.join(folder, f"train_{axis}.npy")))
        _, text = self.run_program("leeway", "run", "--check", config, "--data", data)
        ranges = [(int(a), int(b or a)) for a, b in
                  re.findall(r"phase \d+: .*\((\d+)(?: to (\d+))? rounds?\)$", text, re.M)]
        self.assertEqual(len(ranges), 5, text)
        self.assertEqual(ranges[4], (10, 10))  # the last measures the final loss
        self.assertIn("a training round: 24 bytes to each client, 48 bytes back", text)
        total = re.search(r"^cost: (\d+) to (\d+) rounds, (?:about|less than) .* of computing on \d+ core", text, re.M)
        self.assertEqual([int(x) for x in total.groups()], [sum(r) for r in zip(*ranges)])
        _, text = self.federate(config, data)
        self.assertRegex(text, r"starting .*, \d+ to \d+ rounds, (about|less than) .* of computing on \d+ cores?, logs in")
        with contextlib.closing(sqlite3.connect(self.path("run", "run.db"))) as db:
            phases = [phase for phase, in db.execute("SELECT phase FROM rounds")]
        for phase, (least, most) in enumerate(ranges):
            count = phases.count(phase)
            self.assertTrue(least <= count <= most, (phase, count, least, most))

    def test_a_step_size_that_is_too_large_is_called_that(self):
        data = self.synthetic(clients=4, samples=20, dimension=1)
        xs = [np.load(os.path.join(data, f"client_00{c}", "train_x.npy")) for c in range(4)]
        train = "model { linear_regression { intercept: false } }\nphases { train { rounds: %d " \
                "local { step_size: %r steps: %d } } }\n"
        config = self.write("far.textproto", train % (5, 100.0, 9))
        code, text = self.federate(config, data, out="far", check=False)
        self.assertEqual(code, 1)
        self.assertIn("the step size 100 is too large", text)
        safe = float(re.search(r"the largest that is safe is 1/L = ([\d.e-]+)", text).group(1))
        self.assertTrue(any(abs(safe * np.mean(x ** 2) - 1) < 1e-3 for x in xs), (safe, text))
        self.assertNotIn("scale", text)
        # A little above 2/L the loss rises slowly, and nothing is refused.
        eta = 2.1 / np.mean([np.mean(x ** 2) for x in xs])
        config = self.write("rise.textproto", train % (6, float(eta), 1))
        _, text = self.federate(config, data, out="rise")
        self.assertIn("Warning: training made the loss worse", text)
        self.assertIn("Warning: training made the loss worse", self.run_program("leeway", "show", self.path("rise"))[1])
        config = self.write("fall.textproto", train % (6, float(eta / 4), 1))
        self.assertNotIn("Warning", self.federate(config, data, out="fall")[1])

    def test_unscaled_columns_are_named_at_init_and_check(self):
        rng = np.random.default_rng(3)
        for c in range(3):
            os.makedirs(self.path("people", f"c{c}"))
            x = np.stack([rng.normal(50, 10, 40), rng.integers(0, 2, 40)], 1)
            np.save(self.path("people", f"c{c}", "train_x.npy"), x)
            np.save(self.path("people", f"c{c}", "train_y.npy"), rng.integers(0, 2, 40))
        config = self.path("c.textproto")
        for words in (["init", "--data", self.path("people"), "--out", config],
                      ["run", "--check", config, "--data", self.path("people")]):
            _, text = self.run_program("leeway", *words)
            self.assertIn("Note: unscaled columns: column 0 (typical size 5", text)
            self.assertIn("--scale standard", text)

    def test_ctrl_c_leaves_nothing_half_written(self):
        self.write("a.csv", "x,y\n1,0\n2,1\n")
        self.write("b.csv", "x,y\n1,0\n2,1\n")
        before = sorted(os.listdir(self.folder))
        for signal_, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
            with open(self.path("log"), "w") as log:
                parent = subprocess.Popen(
                    [os.path.join(BIN, "leeway"), "data", "import", "csv", self.path("a.csv"),
                     self.path("b.csv"), "--label", "y", "--out", self.path("out")],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    # A shell's background jobs ignore SIGINT, and so would this one's children.
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                    env=dict(os.environ, LEEWAY_FAILPOINT="import.appended:1:stop"))
            self.children.append(parent)
            deadline = time.monotonic() + TIMEOUT
            while True:  # until the child stands still, half way
                self.assertIsNone(parent.poll(), self.log("log"))
                self.assertLess(time.monotonic(), deadline)
                with open(f"/proc/{parent.pid}/task/{parent.pid}/children") as f:
                    children = f.read().split()
                states = []
                for child in children:
                    with open(f"/proc/{child}/stat") as f:
                        states.append(f.read().rsplit(")", 1)[1].split()[0])
                if states == ["T"]:
                    break
                time.sleep(0.01)
            self.assertTrue([n for n in os.listdir(self.folder) if n.startswith("out.partial-")])
            parent.send_signal(signal_)
            self.assertEqual(parent.wait(TIMEOUT), code)
            self.assertIn("stopped; nothing was written", self.log("log"))
            os.remove(self.path("log"))
            self.assertEqual(sorted(os.listdir(self.folder)), before)

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
