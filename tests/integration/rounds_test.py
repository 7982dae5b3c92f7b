"""Rounds that end: deadlines, spares, replacement, retries, with real processes that die."""

import os
import signal
import sqlite3
import threading
import time
import unittest

from leeway_case import TIMEOUT, BIN, LeewayCase

CONFIG = """
seed: 9
model { linear_regression {} }
phases { train { rounds: ROUNDS local { step_size: 0.01 steps: 2 } } }
"""


class RoundsTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=10, samples=20, dimension=3)

    def configure(self, rounds, more):
        return self.write("c.textproto", CONFIG.replace("ROUNDS", str(rounds)) + more)

    def client(self, address, index, log=None, **options):
        return self.start("leeway-client", "--server", address, "--give-up", 30,
                          os.path.join(self.data, f"client_{index:03}"),
                          log=log or f"client{index}.log", **options)

    def rounds(self):
        return self.show()["rounds"]

    def events(self, kind):
        with sqlite3.connect(f"file:{self.path('run', 'run.db')}?mode=ro", uri=True) as db:
            return [r[0] for r in db.execute("SELECT text FROM events WHERE kind = ?", (kind,))]

    def await_round(self, round_number, server):
        """Waits until a round is committed."""
        path = self.path("run", "run.db")
        while server.poll() is None:
            try:
                with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as db:
                    row = db.execute("SELECT max(round) FROM rounds").fetchone()
                if row[0] is not None and row[0] >= round_number:
                    return
            except sqlite3.OperationalError:
                pass  # not there yet
            time.sleep(0.02)

    def test_half_the_clients_vanish_and_no_round_is_late(self):
        deadline = 1.0
        config = self.configure(8, f"cohort {{ minimum_reports: 4 deadline_seconds: {deadline} }}")
        server, address = self.start_server(config, 10)
        clients = [self.client(address, i) for i in range(10)]
        self.await_round(1, server)
        for client in clients[5:]:
            client.send_signal(signal.SIGKILL)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        rounds = self.rounds()
        self.assertEqual(len(rounds), 8)
        self.assertEqual(rounds[-1]["reports"], 5)
        for r in rounds:
            self.assertLessEqual(r["seconds"], deadline + 1)

    def test_thirty_percent_fail_in_every_round(self):
        """Three of ten clients die after their work, in every round, and come back."""
        count = int(os.environ.get("LEEWAY_FAILING_ROUNDS", "15"))
        config = self.configure(count, "cohort { minimum_reports: 7 deadline_seconds: 0.4 }")
        server, address = self.start_server(config, 10)
        for i in range(3, 10):
            self.client(address, i)
        dying = dict(os.environ, LEEWAY_FAILPOINT="client.before_send:1")

        def keep_dying(index):
            import subprocess
            while server.poll() is None:
                subprocess.run([os.path.join(BIN, "leeway-client"), "--server", address,
                                "--give-up", "2", os.path.join(self.data, f"client_{index:03}")],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=dying)

        threads = [threading.Thread(target=keep_dying, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        code = server.wait(TIMEOUT)
        for thread in threads:
            thread.join()
        self.assertEqual(code, 0, self.log("server.log"))
        rounds = self.rounds()
        self.assertEqual(len(rounds), count)
        for r in rounds:
            self.assertEqual((r["sampled"], r["reports"]), (10, 7))
        print(f"{count} rounds with 3 of 10 clients dying in each, longest "
              f"{max(r['seconds'] for r in rounds):.3f} s (deadline 0.4 s)")

    def test_a_client_that_disconnects_is_replaced(self):
        config = self.configure(
            30, "cohort { size: 5 deadline_seconds: 60 replace_after_seconds: 0.05 }")
        server, address = self.start_server(config, 10)
        clients = [self.client(address, i) for i in range(10)]
        self.await_round(1, server)
        for client in clients[:3]:
            client.send_signal(signal.SIGKILL)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        rounds = self.rounds()
        self.assertEqual([r["reports"] for r in rounds], [5] * 30)
        self.assertGreater(sum(r["replaced"] for r in rounds), 0)
        self.assertTrue(self.events("replaced"))
        self.run_program("leeway", "verify", self.path("run"))

    def test_spares_end_a_round_without_the_slow(self):
        config = self.configure(6, "cohort { size: 6 spare: 4 deadline_seconds: 60 }")
        server, address = self.start_server(config, 10)
        clients = [self.client(address, i) for i in range(10)]
        self.await_round(1, server)
        for client in clients[:3]:
            client.send_signal(signal.SIGSTOP)  # alive, and never answers
        try:
            self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        finally:
            for client in clients[:3]:
                client.send_signal(signal.SIGCONT)
        for r in self.rounds():
            self.assertEqual((r["sampled"], r["reports"]), (10, 6))

    def test_too_few_reports_are_tried_again_and_then_fail_by_name(self):
        config = self.configure(50, "cohort { minimum_reports: 9 deadline_seconds: 0.3 attempts: 2 }")
        server, address = self.start_server(config, 10)
        clients = [self.client(address, i) for i in range(10)]
        self.await_round(1, server)
        for client in clients[:2]:
            client.send_signal(signal.SIGKILL)
        self.assertEqual(server.wait(TIMEOUT), 1)
        self.assertIn("did not get enough reports in 2 attempts", self.log("server.log"))
        self.assertTrue(any("trying again" in text for text in self.events("retry")))
        self.assertEqual(self.show()["status"], "failed")

    def test_a_stopped_client_that_goes_on_is_not_lost(self):
        """SIGSTOP for a while: its stream lives, so the round waits; the bits stay the same."""
        config = self.configure(5, "cohort { deadline_seconds: 60 replace_after_seconds: 0.1 }")
        self.federate(config, self.data, "calm", processes=10)
        server, address = self.start_server(config, 10)
        clients = [self.client(address, i) for i in range(10)]
        self.await_round(1, server)
        clients[4].send_signal(signal.SIGSTOP)
        timer = threading.Timer(1.0, clients[4].send_signal, [signal.SIGCONT])
        timer.start()
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        timer.join()
        self.assertEqual([r["model_sha256"] for r in self.rounds()],
                         [r["model_sha256"] for r in self.show("calm")["rounds"]])

    def test_clipped_updates_train_on_and_long_ones_are_refused(self):
        limits = "limits { max_norm: 1e-3 norm_policy: CLIP }"
        config = self.configure(5, limits)
        self.federate(config, self.data, "single", processes=10)
        self.federate(config, self.data, "hosted", processes=3)
        self.assertEqual(self.show("single")["rounds"][-1]["model_sha256"],
                         self.show("hosted")["rounds"][-1]["model_sha256"])
        config = self.configure(5, "limits { max_norm: 1e-3 }")
        code, text = self.federate(config, self.data, "refused", check=False, processes=3)
        self.assertEqual(code, 1, text)
        self.assertIn("limits.max_norm", text)


if __name__ == "__main__":
    unittest.main()
