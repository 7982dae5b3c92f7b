"""Rounds that end: deadlines, spares, replacement, retries, with real processes that die."""

import os
import signal
import sqlite3
import threading
import time
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 9
model { linear_regression { intercept: false } }
phases { train { rounds: ROUNDS local { step_size: 0.01 steps: 2 } } }
"""


class RoundsTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=10, samples=20, dimension=3)

    def configure(self, rounds, more):
        return self.write("c.textproto", CONFIG.replace("ROUNDS", str(rounds)) + more)

    def client(self, address, index, give_up=30, failpoint=None):
        return self.start("leeway-client", "--server", address, "--give-up", give_up,
                          os.path.join(self.data, f"client_{index:03}"),
                          log=f"client{index}.log", failpoint=failpoint)

    def rounds(self):
        return self.show()["rounds"]

    def events(self, kind):
        with sqlite3.connect(f"file:{self.path('run', 'run.db')}?mode=ro", uri=True) as db:
            return [r[0] for r in db.execute("SELECT text FROM events WHERE kind = ?", (kind,))]

    def clients(self, address, some, failpoint):
        """All ten clients, `some` of them with a failpoint."""
        return [self.client(address, i, failpoint=failpoint if i in some else None)
                for i in range(10)]

    def test_half_the_clients_vanish_and_no_round_is_late(self):
        deadline = 2.0
        config = self.configure(4, f"cohort {{ minimum_reports: 1 deadline_seconds: {deadline} }}")
        server, address = self.start_server(config, 10)
        self.clients(address, range(5), "client.before_send:2")
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        rounds = self.rounds()
        self.assertEqual(len(rounds), 4)
        self.assertLessEqual(rounds[-1]["reports"], 5)
        longest = max(r["seconds"] for r in rounds)
        self.assertGreaterEqual(longest, deadline)
        print(f"half of the clients vanish: longest round {longest:.3f} s (deadline {deadline} s)")

    def test_a_killed_client_does_not_cost_every_round_its_deadline(self):
        """One deadline alone is longer than this test may take."""
        deadline = 10 * TIMEOUT
        config = self.configure(60, "cohort { minimum_reports: 6 return_seconds: 1 "
                                    f"deadline_seconds: {deadline} }}")
        server, address = self.start_server(config, 10)
        killed = self.clients(address, [0], "client.before_send:3")[0]
        self.assertEqual(killed.wait(TIMEOUT), -signal.SIGKILL)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        rounds = self.rounds()
        self.assertEqual([r["reports"] for r in rounds[:2]], [10, 10])
        self.assertEqual([r["reports"] for r in rounds[2:]], [9] * 58)
        print(f"1 of 10 killed: slowest round {max(r['seconds'] for r in rounds):.3f} s, the 50 "
              f"after it {sum(r['seconds'] for r in rounds[10:]):.3f} s (deadline {deadline} s)")

    def test_a_failed_run_goes_on_to_the_same_bits(self):
        patient = "cohort { attempts: 1 deadline_seconds: 600 }"
        self.federate(self.configure(6, patient), self.data, "calm", processes=10)
        config = self.configure(6, "cohort { attempts: 1 deadline_seconds: 2 }")
        server, address = self.start_server(config, 10)
        self.clients(address, [0], "client.before_send:4")
        self.assertEqual(server.wait(TIMEOUT), 1, self.log("server.log"))
        self.assertIn("missing: client_000", self.log("server.log"))
        self.assertEqual(self.show()["status"], "failed")
        server, address = self.start_server(self.configure(6, patient), 10)
        self.clients(address, [], "")
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertEqual([r["model_sha256"] for r in self.rounds()],
                         [r["model_sha256"] for r in self.show("calm")["rounds"]])
        self.assertIn("goes on with round 4", self.events("resumed")[0])
        self.assertEqual(self.events("changed"), ["the configuration was changed: "
                                                  "cohort.deadline_seconds from 2 to 600"])
        self.run_program("leeway", "verify", self.path("run"))

    def test_gathering_ends_and_says_how_many_are_missing(self):
        config = self.configure(1, "cohort { gather_seconds: 3 }")
        server, address = self.start_server(config, 10)
        self.client(address, 4)
        self.assertEqual(server.wait(TIMEOUT), 1)
        self.assertRegex(self.log("server.log"),
                         r"(9|10) of 10 clients are missing after 3 s \(cohort.gather_seconds\)")

    def test_thirty_percent_fail_in_every_round(self):
        """Three of ten clients die after their work, in every round, and come back."""
        count = int(os.environ.get("LEEWAY_FAILING_ROUNDS", "15"))
        deadline = 0.4
        config = self.configure(
            count, f"cohort {{ minimum_reports: 1 deadline_seconds: {deadline} attempts: 100 }}")
        server, address = self.start_server(config, 10)
        for i in range(3, 10):
            self.client(address, i)
        deaths = [0, 0, 0]

        def keep_dying(index):
            while server.poll() is None:
                client = self.client(address, index, give_up=2, failpoint="client.before_send:1")
                deaths[index] += client.wait(TIMEOUT) == -signal.SIGKILL

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
            self.assertEqual(r["sampled"], 10)
            self.assertLessEqual(r["reports"], 7)
        self.assertGreater(min(deaths), 0)
        print(f"{count} rounds, 3 of 10 clients died {sum(deaths)} times, reports "
              f"{min(r['reports'] for r in rounds)} to {max(r['reports'] for r in rounds)}, longest "
              f"round {max(r['seconds'] for r in rounds):.3f} s (deadline {deadline} s)")

    def test_a_client_that_disconnects_is_replaced(self):
        config = self.configure(
            30, "cohort { size: 5 deadline_seconds: 600 replace_after_seconds: 0.05 }")
        server, address = self.start_server(config, 10)
        self.clients(address, range(3), "client.before_send:2")
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        rounds = self.rounds()
        self.assertEqual([r["reports"] for r in rounds], [5] * 30)
        self.assertGreater(sum(r["replaced"] for r in rounds), 0)
        self.assertTrue(self.events("replaced"))
        self.run_program("leeway", "verify", self.path("run"))

    def test_spares_end_a_round_without_the_slow(self):
        config = self.configure(6, "cohort { size: 6 spare: 4 deadline_seconds: 600 }")
        server, address = self.start_server(config, 10)
        # Alive, and three never answer. The others begin when these stand still: a slow process
        # might not see an order before the run is over.
        clients = self.clients(address, range(10), "client.before_work:1:stop")
        for client in clients:
            self.await_stopped(client)
        for client in clients[3:]:
            client.send_signal(signal.SIGCONT)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for r in self.rounds():
            self.assertEqual((r["sampled"], r["reports"]), (10, 6))

    def test_too_few_reports_are_tried_again_and_then_fail_by_name(self):
        config = self.configure(50, "cohort { minimum_reports: 9 deadline_seconds: 0.3 attempts: 2 }")
        server, address = self.start_server(config, 10)
        self.clients(address, range(2), "client.before_send:2")
        self.assertEqual(server.wait(TIMEOUT), 1)
        self.assertIn("did not get enough reports in 2 attempts", self.log("server.log"))
        self.assertTrue(any("trying again" in text for text in self.events("retry")))
        self.assertEqual(self.show()["status"], "failed")

    def test_a_stopped_client_that_goes_on_is_not_lost(self):
        """Its stream lives, so the round waits; the bits stay the same."""
        config = self.configure(5, "cohort { deadline_seconds: 600 replace_after_seconds: 0.1 }")
        self.federate(config, self.data, "calm", processes=10)
        server, address = self.start_server(config, 10)
        stopped = self.clients(address, [4], "client.before_send:2:stop")[4]
        self.await_stopped(stopped)
        time.sleep(0.5)  # long enough for a replacement, were it taken for dead
        self.assertIsNone(server.poll())
        stopped.send_signal(signal.SIGCONT)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertEqual([r["model_sha256"] for r in self.rounds()],
                         [r["model_sha256"] for r in self.show("calm")["rounds"]])
        self.assertEqual(self.events("replaced"), [])

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
