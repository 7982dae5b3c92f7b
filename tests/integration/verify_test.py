"""`leeway verify` finds what does not follow; a damaged last record is refused by name."""

import json
import os
import random
import shutil
import signal
import sqlite3
import struct
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

        def set_script(change):
            """Changes the saved state of the run, as text: phase is its first field."""
            def damage(directory):
                with sqlite3.connect(os.path.join(directory, "run.db")) as db:
                    [(script,)] = db.execute("SELECT value FROM run WHERE key = 'script'")
                    db.execute("UPDATE run SET value = ? WHERE key = 'script'", (change(bytearray(script)),))
            return damage

        def next_phase(script):
            self.assertEqual(script[0], 8)  # field 1, a number: the phase
            script[1] += 1
            return script

        def flip_last(script):
            script[-1] ^= 1
            return script

        for damage, words in [
            (set_script(next_phase), ["'run.script' is not as the server wrote it"]),
            (set_script(flip_last), ["'run.script'"]),
            (self.sql("UPDATE run SET value = replace(value, 'size: 3', 'size: 4') WHERE key = 'config'"),
             ["'run.config'"]),
            (self.sql("UPDATE clients SET examples = examples + 1 WHERE position = 2"), ["'clients'"]),
            (self.sql("UPDATE epochs SET first_round = 2"), ["'epochs'"]),
            (self.sql("UPDATE run SET value = 'RUNNING' WHERE key = 'state'"), ["'run.state'"]),
            (self.sql("DELETE FROM events"), ["'events'"]),
            (lambda d: os.remove(os.path.join(d, "head")), ["head is missing"]),
            (self.sql(f"UPDATE rounds SET record = record || x'00' WHERE round = {last}"),
             ["does not match its checksum"]),
            (self.sql("UPDATE rounds SET accepted = x'00000000' WHERE round = 9"),
             ["round 9", "checksum"]),
            (self.sql(f"DELETE FROM rounds WHERE round = {last}"), ["was committed"]),
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

    def test_a_flipped_bit_anywhere_in_the_database_is_found(self):
        choose = random.Random(7)
        with sqlite3.connect(self.path("run", "run.db")) as db:
            cells = []
            for table in ("run", "clients", "epochs", "rounds", "measures", "events", "models", "names"):
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
                keys = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]]
                for row in db.execute(f"SELECT * FROM {table}"):
                    where = [(k, row[columns.index(k)]) for k in keys]
                    cells += [(table, c, v, where) for c, v in zip(columns, row) if v not in (None, "", b"")]

        def flipped(value):
            if isinstance(value, int):
                return value ^ (1 << choose.randrange(31))
            if isinstance(value, float):
                bits = bytearray(struct.pack("<d", value))
                bits[choose.randrange(6)] ^= 1 << choose.randrange(8)
                return struct.unpack("<d", bits)[0]
            text = isinstance(value, str)
            bits = bytearray(value.encode() if text else value)
            bits[choose.randrange(len(bits))] ^= 1 << choose.randrange(7)
            return bits.decode() if text else bytes(bits)

        for _ in range(100):
            table, column, value, where = choose.choice(cells)
            def damage(directory):
                with sqlite3.connect(os.path.join(directory, "run.db")) as db:
                    found = db.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE " + " AND ".join(
                        f"{k} IS ?" for k, _ in where), (flipped(value), *[v for _, v in where]))
                    self.assertEqual(found.rowcount, 1)
            code, text = self.verify(damage)
            self.assertEqual(code, 1, f"{table}.{column} {value!r}: {text}")

    def test_a_log_that_was_deleted_is_noticed(self):
        server, address = self.start_server(self.config, 5, "cut", failpoint="commit.after_commit:12")
        client = self.start("leeway-client", "--server", address,
                            *[os.path.join(self.data, f"client_00{i}") for i in range(5)])
        self.assertEqual(server.wait(TIMEOUT), -signal.SIGKILL)
        client.kill()
        os.remove(self.path("cut", "run.db-wal"))
        # Killed before the head of round 12 was written: it names round 11.
        for program in (["leeway", "verify", self.path("cut")],
                        ["leeway-server", "--config", self.config, "--state", self.path("cut"), "--clients", 5]):
            code, text = self.run_program(*program, check=False)
            self.assertEqual(code, 1, text)
            self.assertIn("round 11 was committed", text)
            self.assertIn("run.db-wal was deleted or cut", text)

    def test_a_seal_with_a_key(self):
        key = self.write("key", "a long secret that nobody else knows\n")
        other = self.write("other", "another secret\n")
        os.chmod(other, 0o600)
        flags = ["--config", self.config, "--state", self.path("keyed"), "--clients", 5, "--listen", "127.0.0.1:0"]
        os.chmod(key, 0o644)
        code, text = self.run_program("leeway-server", *flags, "--chain-key", key, check=False)
        self.assertEqual(code, 2, text)
        self.assertIn(f"chmod 600 {key}", text)
        os.chmod(key, 0o600)
        server, address = self.start_server(self.config, 5, "keyed", "--chain-key", key)
        self.run_program("leeway-client", "--server", address,
                         *[os.path.join(self.data, f"client_00{i}") for i in range(5)])
        self.assertEqual(server.wait(TIMEOUT), 0)
        self.run_program("leeway", "verify", self.path("keyed"), "--chain-key", key)
        for keys in ([], ["--chain-key", other]):
            code, text = self.run_program("leeway", "verify", self.path("keyed"), *keys, check=False)
            self.assertEqual(code, 1, text)
            self.assertIn("--chain-key", text)

    def test_a_server_refuses_a_damaged_last_record(self):
        self.sql("UPDATE rounds SET record = substr(record, 1, 20) "
                 "WHERE round = (SELECT max(round) FROM rounds)")(self.path("run"))
        code, text = self.run_program("leeway-server", "--config", self.config, "--state",
                                      self.path("run"), "--clients", 5, check=False)
        self.assertEqual(code, 1, text)
        self.assertIn("'rounds' is not as the server wrote it", text)

    def test_a_torn_log_is_recovered_from(self):
        """The write-ahead log is cut in its last commit, as a crash may leave it: the run goes on from the
        last whole one, to the same bits. It is cut further: that rounds are gone is noticed, and
        once somebody has accepted it, by removing the head, the run goes on as well."""
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
            if cut < 0.9:
                code, text = self.federate(config, self.data, name, check=False, processes=2)
                self.assertEqual(code, 1, text)
                self.assertIn("was committed", text)
                os.remove(self.path(name, "head"))
            code, text = self.federate(config, self.data, name, processes=2)
            self.assertEqual([r["model_sha256"] for r in self.show(name)["rounds"]], expected)
            self.run_program("leeway", "verify", self.path(name))


if __name__ == "__main__":
    unittest.main()
