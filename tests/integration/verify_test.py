"""`leeway verify` finds what does not follow; a damaged last record is refused by name."""

import json
import os
import shutil
import signal
import sqlite3
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 4
model { linear_regression { intercept: false } }
cohort { size: 3 }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.01 steps: [1, 4] } }
phases { train { rounds: 6 local { step_size: 0.01 steps: 3 } } }
phases { train { rounds: 3 start: CURRENT local { step_size: 0.01 steps: 1 } } }
phases { train { rounds: 2 start: OPTIMUM local { step_size: 0.01 steps: 1 } } }
"""


class VerifyTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=5, samples=20, dimension=3)
        self.config = self.write("c.textproto", CONFIG)
        self.federate(self.config, self.data, processes=2)

    def verify(self, damage):
        """Damages a copy of the run; what verify says."""
        shutil.rmtree(self.path("copy"), ignore_errors=True)
        shutil.copytree(self.path("run"), self.path("copy"))
        damage(self.path("copy"))
        return self.run_program("leeway", "verify", self.path("copy"), check=False)

    def sql(self, *statements):
        def damage(directory):
            with sqlite3.connect(os.path.join(directory, "run.db")) as db:
                for statement in statements:
                    db.execute(statement)
        return damage

    def test_a_good_run_follows(self):
        code, text = self.verify(lambda d: None)
        self.assertEqual(code, 0, text)
        self.assertIn("everything follows", text)
        _, text = self.run_program("leeway", "verify", self.path("copy"), "--json")
        counts = json.loads(text)
        self.assertEqual(counts["problems"], [])
        self.assertGreater(counts["rounds"], 0)
        os.remove(self.path("copy", "models", "optimum.safetensors"))
        code, text = self.run_program("leeway", "verify", self.path("copy"), "--json", check=False)
        self.assertEqual(code, 1)
        self.assertIn("optimum.safetensors", json.loads(text)["problems"][0])

    def test_what_does_not_follow_is_named(self):
        last = "(SELECT max(round) FROM rounds)"
        def flip(directory):
            path = os.path.join(directory, "models", "final.safetensors")
            with open(path, "r+b") as f:
                f.seek(-1, os.SEEK_END)
                byte = f.read(1)[0]
                f.seek(-1, os.SEEK_END)
                f.write(bytes([byte ^ 1]))

        for damage, words in [
            (self.sql(f"UPDATE rounds SET record = record || x'00' WHERE round = {last}"),
             ["does not match its checksum"]),
            (self.sql("UPDATE rounds SET accepted = x'00000000' WHERE round = 9"),
             ["round 9", "checksum"]),
            (self.sql(f"DELETE FROM rounds WHERE round = {last}"), ["last record is of round"]),
            (self.sql("DELETE FROM rounds WHERE round = 5"), ["round 6", "checksum"]),
            (self.sql("UPDATE clients SET id = 'zzz' WHERE position = 0"), ["roster"]),
            (self.sql("UPDATE names SET sha256 = (SELECT sha256 FROM names WHERE name = 'initial')"
                      " WHERE name = 'final'"), ["final"]),
            (flip, ["final.safetensors", "sha256"]),
            (lambda d: os.remove(os.path.join(d, "models", "optimum.safetensors")),
             ["optimum.safetensors"]),
        ]:
            code, text = self.verify(damage)
            self.assertEqual(code, 1, text)
            for word in words:
                self.assertIn(word, text)
        code, text = self.run_program("leeway", "verify", self.path("nothing"), check=False)
        self.assertEqual(code, 2, text)

    def test_a_server_refuses_a_damaged_last_record(self):
        self.sql("UPDATE rounds SET record = substr(record, 1, 20) "
                 "WHERE round = (SELECT max(round) FROM rounds)")(self.path("run"))
        code, text = self.run_program("leeway-server", "--config", self.config, "--state",
                                      self.path("run"), "--clients", 5, check=False)
        self.assertEqual(code, 1, text)
        self.assertIn("does not match its checksum", text)

    def test_a_torn_log_is_recovered_from(self):
        """The write-ahead log is cut anywhere, as a crash may leave it: the run goes on from the
        last whole commit, to the same bits."""
        expected = [r["model_sha256"] for r in self.show()["rounds"]]
        config = self.write("c.textproto", CONFIG)
        for cut in (0.3, 0.6, 0.95):
            name = f"torn{cut}"
            server, address = self.start_server(config, 5, name, failpoint="commit.after_commit:12")
            client = self.start("leeway-client", "--server", address,
                                *[os.path.join(self.data, f"client_00{i}") for i in range(5)])
            self.assertEqual(server.wait(TIMEOUT), -signal.SIGKILL)
            client.kill()
            wal = self.path(name, "run.db-wal")
            os.truncate(wal, int(os.path.getsize(wal) * cut))
            code, text = self.federate(config, self.data, name, processes=2)
            self.assertEqual([r["model_sha256"] for r in self.show(name)["rounds"]], expected)
            self.run_program("leeway", "verify", self.path(name))


if __name__ == "__main__":
    unittest.main()
