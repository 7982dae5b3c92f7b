"""Bad input: a clear message with the remedy, a non-zero exit, and nothing lost."""

import os
import shutil
import socket
import unittest

import numpy as np

from leeway_case import TIMEOUT, LeewayCase

GOOD = """
seed: 1
model { linear_regression { intercept: false } }
phases { train { rounds: 5 local { step_size: 0.01 steps: 2 } } }
"""


class BadInputTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=4, samples=20, dimension=3)
        self.config = self.write("good.textproto", GOOD)

    def refused(self, code, *words):
        exit_code, text = code
        self.assertNotEqual(exit_code, 0, text)
        for word in words:
            self.assertIn(word, text)

    def test_wrong_configs(self):
        for text, words in [
            (GOOD + "colour: 3", ["colour", "line 5"]),
            (GOOD.replace("0.01", "-0.01"), ["step_size", "positive"]),
            (GOOD.replace("steps: 2", "steps: 0"), ["steps"]),
            (GOOD + "cohort { size: 9 }", ["cohort.size is 9", "only 4"]),
        ]:
            config = self.write("bad.textproto", text)
            self.refused(self.federate(config, self.data, check=False), *words)
        self.refused(self.federate(self.path("missing.textproto"), self.data, check=False),
                     "missing.textproto")
        # The same through the server alone.
        self.refused(self.run_program("leeway-server", "--config", config, "--state",
                                      self.path("s"), "--clients", 4, check=False),
                     "cohort.size is 9")

    def test_wrong_shards(self):
        x = np.load(os.path.join(self.data, "client_001", "train_x.npy"))
        y = np.load(os.path.join(self.data, "client_001", "train_y.npy"))

        def case(name, write, *words):
            folder = self.path(name)
            shutil.copytree(os.path.join(self.data, "client_001"), folder)
            write(folder)
            self.refused(self.run_program("leeway-client", "--server", "127.0.0.1:1", folder,
                                          check=False), *words)

        bad = x.copy()
        bad[7, 1] = np.nan
        case("nan", lambda d: np.save(d + "/train_x.npy", bad), "train_x.npy", "nan")
        case("dtype", lambda d: np.save(d + "/train_x.npy", x.astype(complex)), "train_x.npy")
        case("shape", lambda d: np.save(d + "/train_y.npy", y[:-3]), "train_y.npy")
        case("order", lambda d: np.save(d + "/train_x.npy", np.asfortranarray(x)), "train_x.npy")

        def cut(d):
            with open(d + "/train_x.npy", "r+b") as f:
                f.truncate(200)

        case("cut", cut, "train_x.npy")
        case("gone", lambda d: os.remove(d + "/train_y.npy"), "train_y.npy")
        self.refused(self.run_program("leeway-client", "--server", "127.0.0.1:1",
                                      self.path("no_such_client"), check=False), "no_such_client")

    def test_missing_directories(self):
        self.refused(self.federate(self.config, self.path("nothing"), check=False), "nothing")
        self.refused(self.run_program("leeway", "show", self.path("nothing"), check=False),
                     "nothing")

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.refused(self.run_program("leeway-server", "--config", self.config, "--state",
                                          self.path("s"), "--clients", 4, "--listen", address,
                                          check=False), address, "--listen")

    def test_server_out_of_reach(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.refused(self.run_program("leeway-client", "--server", address, "--give-up", 1,
                                      os.path.join(self.data, "client_000"), check=False),
                     address, "leeway-server")

    def test_wrong_flags(self):
        for program in ("leeway", "leeway-server", "leeway-client"):
            self.refused(self.run_program(program, "--no-such-flag", check=False))
            self.run_program(program, "--help")
            self.run_program(program, "--version")
        self.refused(self.run_program("leeway", "shwo", check=False), "show")

    def test_a_step_size_too_large_ends_the_run_with_the_remedy(self):
        config = self.write("big.textproto",
                            GOOD.replace("0.01", "50").replace("rounds: 5", "rounds: 400"))
        code = self.federate(config, self.data, check=False)
        self.refused(code, "step")
        self.assertEqual(self.show()["status"], "failed")

    def test_a_malformed_client_costs_only_itself_its_place(self):
        """A fifth process brings data of another dimension; the other four train to the end."""
        config = self.write("four.textproto", GOOD)
        server, address = self.start_server(config, 4)
        wide = self.synthetic("wide", clients=2, samples=20, dimension=7)
        honest = [self.start("leeway-client", "--server", address,
                             os.path.join(self.data, f"client_00{i}")) for i in range(3)]
        # With it four have joined: the data of most of them say what a client's must look like.
        os.rename(os.path.join(wide, "client_000"), os.path.join(wide, "wide"))
        self.await_text("server.log", " joined", count=3)
        code, text = self.run_program("leeway-client", "--server", address,
                                      os.path.join(wide, "wide"), check=False)
        self.assertNotEqual(code, 0)
        self.assertIn("shape", text)
        honest.append(self.start("leeway-client", "--server", address,
                                 os.path.join(self.data, "client_003")))
        for client in honest:
            self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0)
        self.assertEqual([r["reports"] for r in self.show()["rounds"]], [4] * 5)


if __name__ == "__main__":
    unittest.main()
