"""What is said when something is wrong with a client in Python, to the user and in the server's record."""

import os
import sys
import unittest

import numpy as np

from leeway_case import SOURCE, TIMEOUT, read_safetensors
from python_case import PythonCase


class BadInputTest(PythonCase):
    def client(self, text, *arguments):
        return self.python(self.write(f"client{len(self.children)}.py", text), *arguments)

    def test_no_server_and_no_binary(self):
        text = ("import leeway, numpy as np, sys\n"
                "leeway.join(sys.argv[1], gradient=lambda w, b: (0.0, w), data=(np.ones((3, 2)), np.ones(3)), give_up=0.1)\n")
        child = self.client(text, "127.0.0.1:1")
        self.finish(child, 1)
        self.assertIn("leeway._errors.Error: no server at 127.0.0.1:1", self.log(child.log_name))
        child = self.python(self.write("c.py", text), "127.0.0.1:1", env={"LEEWAY_BIN": "/nowhere"})
        self.finish(child, 1)
        self.assertIn("there is no program /nowhere/leeway-client", self.log(child.log_name))

    def test_an_exception_reaches_the_user_and_the_record_in_one_line(self):
        config = self.write("c.textproto", "model { linear_regression { intercept: false } }\ncohort { attempts: 1 }\n"
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        server, address = self.start_server(config, 1)
        child = self.client("import leeway, numpy as np, sys\n"
                            "def f(w, batch):\n    raise ValueError('column 3 is\\nempty')\n"
                            "leeway.join(sys.argv[1], gradient=f, data=(np.ones((3, 2)), np.ones(3)), name='a')\n", address)
        self.assertEqual(server.wait(TIMEOUT), 1)
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("Traceback (most recent call last)", self.log(child.log_name))
        self.assertRegex(self.log(child.log_name),
                         r"Error: the run has failed: .*client 'a': ValueError: column 3 is empty")
        self.assertRegex(self.log("server.log"), r"refused a: ValueError: column 3 is empty \(client\d+.py, line 3\)")

    def test_one_that_hangs_loses_its_place_and_comes_back(self):
        """leeway-client cannot kill the Python that has started it: what it answers late is not taken for the next answer."""
        script = ("import leeway, numpy as np, os, sys, time\n"
                  "server, name, go = sys.argv[1:]\n"
                  "calls = 0\n"
                  "def gradient(w, batch):\n"
                  "    global calls\n"
                  "    calls += 1\n"
                  "    while name == 'bad' and calls == 2 and not os.path.exists(go): time.sleep(0.01)\n"
                  "    return 0.5 * float(w @ w), w - (1 if name == 'bad' else 3)\n"
                  "leeway.join(server, gradient=gradient, data=(np.ones((3, 2)),), name=name, worker_deadline=5)\n")
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(2)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" } cohort { minimum_reports: 1 }\n'
                            "phases { train { rounds: 5 local { step_size: 0.5 steps: 1 } drift_off: true } }")
        server, address = self.start_server(config, 2)
        clients = [self.client(script, address, name, self.path("go")) for name in ("good", "bad")]
        self.await_text("server.log", "refused bad: the worker did not answer within 5s")
        self.write("go", "")
        self.finish(server)
        for client in clients:
            self.finish(client)
        rounds = self.show()["rounds"]
        self.assertEqual([r["reports"] for r in rounds][:2], [2, 1])
        self.assertEqual(rounds[-1]["reports"], 2)
        # Half of the way to the mean target of those that reported.
        w = 0.0
        for r in rounds:
            w += 0.5 * ((2 if r["reports"] == 2 else 3) - w)
        np.testing.assert_allclose(read_safetensors(self.show()["final_model"])["w"], w, rtol=1e-9)

    def failing(self, text, words):
        """A run of one client, whose tasks fail: what it says reaches the user and the server's record."""
        out = f"failing-{len(self.children)}"
        server, address = self.start_server(self.path("bad.textproto"), 1, out)
        child = self.client("import leeway, leeway.torch, torch, sys, numpy as np\n"
                            "X, Y, m = torch.ones(3, 2), torch.ones(3, 1), torch.nn.Linear(2, 1)\n" + text, address)
        self.assertEqual(server.wait(TIMEOUT), 1, self.log("server.log"))
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertRegex(self.log(child.log_name).splitlines()[-1], "Error: .*" + words)
        self.assertRegex(self.log("server.log"), "refused a: .*" + words)

    def test_an_exception_in_a_loop_of_ones_own_is_in_the_record(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(2)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\ncohort { attempts: 1 }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } drift_off: true } }")
        server, address = self.start_server(config, 1)
        child = self.client("import leeway, sys\n"
                            "for task in leeway.Client(sys.argv[1], examples=3, name='a'):\n"
                            "    raise ValueError('column 3 is\\nempty')\n", address)
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("Traceback (most recent call last)", self.log(child.log_name))
        self.await_text("server.log", "refused a: ValueError: column 3 is empty")
        self.assertRegex(self.log("server.log"), r"refused a: ValueError: column 3 is empty \(client\d+.py, line 3\)")

    def test_one_that_a_simulation_runs_too(self):
        child = self.client("import leeway, numpy as np, sys\n"
                            "def join(server, names):\n"
                            "    for task in leeway.Client(server, examples=3, name=names[0]):\n"
                            "        if task.round == 2: raise ValueError('column 3 is\\nempty')\n"
                            "        task.report(task.model, metrics={'loss': 1})\n"
                            "leeway.simulate('cohort { attempts: 1 } phases { train { rounds: 2 drift_off: true "
                            "local { step_size: 0.1 steps: 1 } } }', join, clients=['a'], model={'w': np.zeros(2)}, "
                            "out=sys.argv[1])\n", self.path("run"))
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("ValueError: column 3 is empty", self.log(child.log_name))
        self.assertRegex(self.log("run/logs/server.log"), r"refused a: ValueError: column 3 is empty \(client\d+.py, line 4\)")
        self.assertIn("Traceback (most recent call last)", self.log("run/logs/python_0.log"))

    def test_tasks_that_cannot_be_done_say_why_on_both_sides(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"weight": np.zeros((1, 2), np.float32), "bias": np.zeros(1, np.float32)}, self.path("m.safetensors"))
        self.write("bad.textproto", 'model { file: "m.safetensors" }\ncohort { attempts: 1 }\n'
                   "phases { train { rounds: 2 local { step_size: 0.1 steps: 2 } } }")
        join = "leeway.torch.join(sys.argv[1], m, {}, (X, Y), name='a')\n"
        self.failing(join.format("lambda o, t: (o - t) ** 2"), r"the loss has shape \[3, 1\]; expected a scalar")
        self.failing(join.format("lambda o, t: (o - t).mean() * float('nan')"), "is nan")
        self.failing("for task in leeway.Client(sys.argv[1], examples=3, name='a'): task.report(m, metrics={'loss': 1})\n",
                     "drift_off: true")

    def test_what_is_wrong_before_a_run_begins(self):
        start = "import leeway.torch, torch, sys, numpy as np\nloss = torch.nn.functional.mse_loss\n"
        for text, words in (
                ("leeway.torch.join('x:1', torch.nn.Linear(2, 1).half(), loss, (torch.ones(3, 2), torch.ones(3, 1)))",
                 r"tensor 'weight' is torch.float16; .*model.float\(\)"),
                ("leeway.torch.save(torch.nn.Linear(2, 1).half(), 'm')", r"float16.*model.float\(\)"),
                ("leeway.torch.join('x:1', torch.nn.Linear(2, 1), loss, (torch.ones(0, 2), torch.ones(0, 1)), name='a')",
                 "data of client 'a' has no examples"),
                ("leeway.join('x:1', gradient=max, data=(np.ones((0, 2)),), name='a')", "data of client 'a' has no examples"),
                ("leeway.join('fl.example.org:4760', gradient=max, data=(np.ones((3, 2)),))", "--insecure-anywhere"),
                ("leeway.join('127.0.0.1:1', gradient=max, data=(np.ones((3, 2)),), tls_ca='none.crt')", "none.crt|--tls-cert"),
                ("leeway.join('127.0.0.1:1', gradient=max, data=(np.ones((3, 2)),), tls_caa='ca.crt')",
                 "there is no option tls_caa; there are .*tls_ca, tls_cert"),
                ("leeway.join('', gradient=max, data=(np.ones((3, 2)),))", "no server: give its address"),
                ("next(iter(leeway.Client('x:1', examples=0)))", "examples is 0; give the number"),
                ("leeway.simulate('phases { train { } }', print, clients=2, model=torch.nn.Linear(2, 1))",
                 r"phases\[0\].train.rounds is 0")):
            with self.subTest(text):
                child = self.client(start + text + "\n")
                self.finish(child, 1)
                self.assertRegex(self.log(child.log_name).splitlines()[-1], "^leeway._errors.Error: .*" + words)

    def test_the_options_are_those_of_leeway_client(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        from leeway._serve import OPTIONS
        said = self.run_program("leeway-client", "--help")[1]
        for name in OPTIONS:
            self.assertIn(f"--{name.replace('_', '-')} ", said)

    def test_a_shape_that_does_not_fit(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"weight": np.zeros((1, 9), np.float32), "bias": np.zeros(1, np.float32)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        _, address = self.start_server(config, 1)
        child = self.client("import leeway.torch, torch, sys\n"
                            "leeway.torch.join(sys.argv[1], torch.nn.Linear(2, 1), torch.nn.functional.mse_loss, "
                            "(torch.ones(3, 2), torch.ones(3, 1)), name='a')\n", address)
        self.finish(child, 1)
        self.assertIn("tensor 'weight' has shape [1, 9] in the run's model and [1, 2] in this one",
                      self.log(child.log_name))

    def test_a_model_that_does_not_fit(self):
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        import leeway
        leeway.save({"w": np.zeros(6, np.float32)}, self.path("m.safetensors"))
        config = self.write("c.textproto", 'model { file: "m.safetensors" }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        server, address = self.start_server(config, 1)
        child = self.client("import leeway.torch, torch, sys\n"
                            "m = torch.nn.Linear(2, 1)\n"
                            "leeway.torch.join(sys.argv[1], m, torch.nn.functional.mse_loss, "
                            "(torch.ones(3, 2), torch.ones(3, 1)), name='a')\n", address)
        self.assertEqual(child.wait(TIMEOUT), 1)
        self.assertIn("the run's model has a tensor 'w', this model has not", self.log(child.log_name))
        data = self.synthetic(clients=1)
        client = next(n for n in os.listdir(data) if n.startswith("client"))
        code, said = self.run_program("leeway-client", "--server", address, os.path.join(data, client), check=False)
        self.assertEqual(code, 1)
        self.assertIn("--worker", said)
        # Neither has taken the place of the one client that the run waits for.
        child = self.client("import leeway, numpy as np, sys\n"
                            "leeway.join(sys.argv[1], gradient=lambda w, b: (0.5 * float(w @ w), w), data=(np.ones((3, 2)),), "
                            "name='b')\n", address)
        self.finish(server)
        self.finish(child)
        self.assertEqual([c["id"] for c in self.show()["clients"]], ["b"])

    def test_a_model_file_that_is_missing_or_float16(self):
        config = self.write("c.textproto", 'model { file: "none.safetensors" }\n'
                            "phases { train { rounds: 2 local { step_size: 0.1 steps: 1 } } }")
        code, said = self.run_program("leeway-server", "--config", config, "--state", self.path("s"), "--clients", 1,
                                      check=False)
        self.assertNotEqual(code, 0)
        self.assertIn("none.safetensors", said)
        header = b'{"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}  '
        with open(self.path("none.safetensors"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + b"\0" * 4)
        code, said = self.run_program("leeway-server", "--config", config, "--state", self.path("s"), "--clients", 1,
                                      check=False)
        self.assertNotEqual(code, 0)
        self.assertIn('tensor "w" is F16', said)


if __name__ == "__main__":
    unittest.main()
