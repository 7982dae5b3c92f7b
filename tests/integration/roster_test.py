"""Clients that come late, leave and return while a run is under way, with real processes."""

import json
import os
import shutil
import signal
import unittest
import urllib.request

import numpy as np

from leeway_case import TIMEOUT, LeewayCase

MODEL = "seed: 4 model { linear_regression { intercept: false } } "
TRAIN = "phases { train { rounds: ROUNDS local { step_size: 0.01 steps: 3 batch_size: 5 } } } "


class RosterTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=5, samples=20, dimension=3)

    def configure(self, text, rounds=100):
        return self.write("c.textproto", MODEL + text.replace("ROUNDS", str(rounds)))

    def client(self, address, index, failpoint=None, data=None, log=None):
        return self.start("leeway-client", "--server", address, "--give-up", 60,
                          os.path.join(data or self.data, f"client_{index:03}"),
                          log=log or f"client{index}.log", failpoint=failpoint)

    def serve(self, config, clients, state="run", listen="127.0.0.1:0", more=()):
        address_file = self.path(state + ".address")
        if os.path.exists(address_file):
            os.remove(address_file)
        server = self.start("leeway-server", "--config", config, "--state", self.path(state),
                            "--clients", clients, "--listen", listen, "--address-file",
                            address_file, *more, log=f"server{len(self.children)}.log")
        return server, self.await_file(address_file, server), f"server{len(self.children) - 1}.log"

    def await_state(self, url, client, state):
        """Waits until the page at `url` is told that a client is in this state."""
        with urllib.request.urlopen(url + "events", timeout=TIMEOUT) as news:
            for line in news:
                if line.startswith(b"data: "):
                    told = json.loads(line[len(b"data: "):])
                    if (client, state) in [(c["id"], c["state"]) for c in told.get("clients", [])]:
                        return told["progress"]
        self.fail(f"{client} was never {state}")

    def resume(self, child):
        child.send_signal(signal.SIGCONT)

    def final(self, out):
        return self.show(out)["models"]["final"]["sha256"]

    def test_late_left_and_returned_and_again_with_the_same_bits(self):
        """Client 3 comes in round 50, in which the server is killed; client 1 leaves in round 60 and
        returns in round 80. All of it again from the recorded epochs: the same model."""
        # Nobody is missing for 10 s but the one who leaves: its round is tried again without it.
        config = self.configure(
            TRAIN + "cohort { absent_after_seconds: 0.2 deadline_seconds: 10 attempts: 100 }")
        server, address, log = self.serve(config, 3)
        slow = [self.client(address, 0, "client.before_work:50:stop")]
        leaver = self.client(address, 1)
        slow.append(self.client(address, 2, "client.before_work:60:stop"))

        self.await_stopped(slow[0])  # round 50 is open
        slow.append(self.client(address, 3, "client.before_work:30:stop"))
        waits = "1 client waits and takes part from the next training round on"
        self.await_text(log, waits)
        server.kill()
        server.wait()
        server, _, log = self.serve(config, 3, listen=address)
        self.await_text(log, waits)
        self.resume(slow[0])

        self.await_stopped(slow[1])
        leaver.kill()
        leaver.wait()
        self.resume(slow[1])
        self.await_text(log, "'client_001' leaves")

        self.await_stopped(slow[2])
        self.client(address, 1, log="returned.log")
        self.await_text(log, waits, count=2)
        self.resume(slow[2])
        self.assertEqual(server.wait(TIMEOUT), 0, self.log(log))

        run = self.show()
        rounds = run["rounds"]
        self.assertEqual([(r["epoch"], r["population"]) for r in rounds[:51]],
                         [(1, 3)] * 50 + [(2, 4)])
        self.assertEqual(rounds[50]["reports"], 4)
        came = {name: e["first_round"] for e in run["epochs"] for name in e["entered"]}
        self.assertEqual(came["client_003"], 51)
        left = {name: e["first_round"] for e in run["epochs"] for name in e["left"]}
        back = {name: e["first_round"] for e in run["epochs"] for name in e["returned"]}
        self.assertLess(51, left["client_001"])
        self.assertLess(left["client_001"], back["client_001"])
        self.assertEqual(rounds[left["client_001"] - 1]["population"], 3)
        self.assertEqual(rounds[-1]["population"], 4)
        self.assertEqual([c["id"] for c in run["clients"]],
                         ["client_000", "client_001", "client_002", "client_003"])
        kinds = [e["text"] for e in run["events"] if e["kind"] == "epoch"]
        self.assertEqual(len(kinds), len(run["epochs"]) - 1)
        _, text = self.run_program("leeway", "show", self.path("run"))
        self.assertIn("epoch 2 from round 51 on, 4 clients: 'client_003' enters", text)
        self.run_program("leeway", "verify", self.path("run"))

        four = self.first(4)  # those who took part
        self.federate(config, four, "again", epochs_from=self.path("run"))
        self.run_program("leeway", "verify", self.path("again"))
        self.assertEqual(self.show("again")["epochs"], run["epochs"])
        self.assertEqual(self.final("again"), self.final("run"))
        # And who took part does matter.
        self.federate(config, four, "other")
        self.assertNotEqual(self.final("other"), self.final("run"))

    def test_a_server_that_dies_as_an_epoch_begins(self):
        config = self.configure(TRAIN, rounds=8)
        for i, name in enumerate(("epoch.before_transaction", "epoch.before_commit",
                                  "epoch.after_commit")):
            with self.subTest(failpoint=name):
                state = f"run{i}"
                server, address = self.start_server(config, 2, state, failpoint=name)
                slow = self.client(address, 0, "client.before_work:3:stop")
                self.client(address, 1)
                self.await_stopped(slow)
                self.client(address, 2)
                self.await_text("server.log", "1 client waits")
                self.resume(slow)
                self.assertEqual(server.wait(TIMEOUT), -signal.SIGKILL)
                server, _, log = self.serve(config, 2, state, listen=address)
                self.assertEqual(server.wait(TIMEOUT), 0, self.log(log))
                run = self.show(state)
                self.assertEqual(run["rounds"][2]["epoch"], 1)
                self.run_program("leeway", "verify", self.path(state))
                self.federate(config, self.first(len(run["clients"])), f"again{i}", epochs_from=self.path(state))
                self.assertEqual(self.final(f"again{i}"), self.final(state))
                if name == "epoch.after_commit":
                    self.assertEqual([r["population"] for r in run["rounds"]], [2] * 3 + [3] * 5)

    def test_measuring_phases_hold_their_clients(self):
        config = self.configure("phases { optimum {} } phases { probe { point: OPTIMUM "
                                "step_size: 0.01 steps: [1, 4] } } " + TRAIN, rounds=5)
        server, address, log = self.serve(config, 3, more=("--dashboard", "127.0.0.1:0"))
        address, url = address.split("\n")
        slow = self.client(address, 0, "client.before_work:2:stop")
        for i in (1, 2):
            self.client(address, i)
        self.await_stopped(slow)
        self.client(address, 3)
        self.await_text(log, "phase 1 (optimum) needs the same clients to its end")
        progress = self.await_state(url, "client_003", "waiting")
        self.assertEqual([progress[k] for k in ("epoch", "population", "waiting")], [1, 3, 1])
        self.resume(slow)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log(log))
        run = self.show()
        self.assertEqual([p["population"] for p in run["probes"]], [3])
        self.assertEqual([r["population"] for r in run["rounds"]], [4] * 5)
        self.assertEqual([e["kind"] for e in run["events"] if e["kind"] in ("waiting", "epoch")],
                         ["waiting", "epoch"])
        self.run_program("leeway", "report", self.path("run"))
        with open(self.path("run", "report", "report.html")) as f:
            self.assertIn("4 clients: &#39;client_003&#39; enters", f.read().replace("'", "&#39;"))
        _, text = self.run_program("leeway", "show", self.path("run"))
        self.assertIn("clients came or left between the measurements: w* about the 3 clients of "
                      "epoch 1", text)
        self.run_program("leeway", "verify", self.path("run"))

    def test_an_algorithm_with_client_states_holds_its_clients(self):
        config = self.configure("phases { train { rounds: ROUNDS local { step_size: 0.01 steps: 3 "
                                "scaffold {} } } } ", rounds=6)
        self.federate(config, self.first(3), "calm", processes=3)
        server, address, log = self.serve(config, 3)
        slow = self.client(address, 0, "client.before_work:2:stop")
        for i in (1, 2, 3):
            if i == 3:
                self.await_stopped(slow)
            self.client(address, i)
        self.await_text(log, "phase 1 (train) needs the same clients to its end")
        self.resume(slow)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log(log))
        self.assertEqual([r["population"] for r in self.show()["rounds"]], [3] * 6)
        self.assertEqual(self.final("run"), self.final("calm"))

    def first(self, count):
        """A directory with the first few clients."""
        path = self.path(f"first_{count}")
        if os.path.exists(path):
            return path
        os.makedirs(path)
        for i in range(count):
            shutil.copytree(os.path.join(self.data, f"client_{i:03}"),
                            os.path.join(path, f"client_{i:03}"))
        return path

    def test_a_closed_run_refuses_who_comes_late(self):
        config = self.configure(TRAIN + "cohort { closed: true }", rounds=5)
        server, address, log = self.serve(config, 2)
        slow = self.client(address, 0, "client.before_work:2:stop")
        self.client(address, 1)
        self.await_stopped(slow)
        self.assertEqual(self.client(address, 2).wait(TIMEOUT), 1)
        self.assertIn("'client_002' is not one of the 2 clients this run started with, and "
                      "cohort.closed is set", self.log("client2.log"))
        self.resume(slow)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log(log))

    def test_a_wrong_first_client_locks_nobody_out(self):
        odd = self.synthetic("odd", clients=1, samples=20, dimension=7)
        config = self.configure(TRAIN, rounds=5)
        server, address, log = self.serve(config, 3)
        shutil.move(os.path.join(odd, "client_000"), os.path.join(odd, "wrong"))
        wrong = self.start("leeway-client", "--server", address, os.path.join(odd, "wrong"),
                           log="wrong.log")
        self.await_text(log, "wrong")
        for i in range(3):
            self.client(address, i)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log(log))
        self.assertEqual(wrong.wait(TIMEOUT), 1)
        for text in (self.log("wrong.log"), self.log(log)):
            self.assertIn("data of 'wrong' has the shape {feature_shape: 7}, most of the run's "
                          "clients have {feature_shape: 3}", text)
        self.assertEqual(len(self.show()["clients"]), 3)

    def test_data_that_changed_under_a_name_are_noticed(self):
        config = self.configure(TRAIN, rounds=20)
        data = self.first(2)
        self.federate(config, data, "calm", processes=2)
        server, address, log = self.serve(config, 2)
        slow = self.client(address, 0, "client.before_work:5:stop", data=data)
        other = self.client(address, 1, data=data)
        self.await_stopped(slow)
        other.kill()
        other.wait()
        path = os.path.join(data, "client_001", "train_y.npy")
        before = np.load(path)
        np.save(path, before + 1)
        changed = self.client(address, 1, data=data, log="changed.log")
        self.assertEqual(changed.wait(TIMEOUT), 1)
        self.assertIn("client 'client_001' has other data than it joined this run with (digest ",
                      self.log("changed.log"))
        self.assertIn("has other data than it joined this run with", self.log(log))
        np.save(path, before)
        self.client(address, 1, data=data)
        self.resume(slow)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log(log))
        self.assertEqual(self.final("run"), self.final("calm"))
        self.assertTrue([e for e in self.show()["events"]
                         if e["kind"] == "refused" and "other data" in e["text"]])


if __name__ == "__main__":
    unittest.main()
