"""Ranks of an MPI job: the server sees one process, and the bits are those of one process."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase
from link_test import TOOLS, Namespace

CONFIG = """
seed: 1
model { linear_regression { intercept: false } }
weighting: EXAMPLES
cohort { size: 10 }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.004 steps: [1, 10] clients: 15 groups: 5 } }
phases { train { rounds: 6 local { step_size: 0.004 epochs: 2 batch_size: 16 }
                 server { rate: 1 momentum: 0.5 } } }
phases { evaluate { percentiles: [10, 90] } }
"""
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


@unittest.skipIf(shutil.which("mpirun") is None or not os.path.exists(os.path.join(BIN, "leeway-client-mpi")),
                 "Open MPI was not installed when this was built (libopenmpi-dev, openmpi-bin)")
class MpiTest(LeewayCase):
    def start_ranks(self, ranks, *arguments, log="ranks.log", prefix=(), mpirun=(), env=None):
        with open(self.path(log), "w") as out:
            job = subprocess.Popen(
                [*prefix, "mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *mpirun,
                 os.path.join(BIN, "leeway-client"), "--mpi", "--threads", "1",
                 *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env=dict(ENVIRONMENT, **(env or {})))
        self.children.append(job)
        return job

    def figures(self, out):
        shown = self.show(out)
        return ([r["model_sha256"] for r in shown["rounds"]],
                [[s["average_drift_squared"] for s in p["steps"]] for p in shown["probes"]],
                [(e["test_loss"], e["percentiles"]) for e in shown["evaluations"]])

    def directories(self, data):
        return sorted(os.path.join(data, name) for name in os.listdir(data)
                      if name.startswith("client"))

    def test_ranks_leave_no_trace(self):
        data = self.synthetic(clients=20, samples=50, dimension=8, seed=1)
        config = self.write("c.textproto", CONFIG)
        self.federate(config, data, "one", processes=1)
        expected = self.figures("one")
        self.assertEqual(len(set(expected[0])), 6)
        for ranks in (1, 2, 3, 7):
            self.federate(config, data, f"ranks{ranks}", mpi=ranks)
            self.assertEqual(self.figures(f"ranks{ranks}"), expected, f"{ranks} ranks")
        self.assertIn("7 ranks on 1 node, idle share", self.log("ranks7/logs/client_000.log"))
        shares = [r["idle_share"] for r in self.show("ranks7")["rounds"]]
        self.assertTrue(all(0 <= share < 1 for share in shares), shares)
        self.assertGreater(max(shares), 0)  # 10 clients on 7 ranks

    def test_a_hundred_processes_and_seven_ranks(self):
        data = self.synthetic(clients=100, samples=20, dimension=5, seed=1)
        config = self.write("c.textproto", CONFIG)
        for name, options in (("one", {"processes": 1}), ("hundred", {"processes": 100}),
                              ("ranks", {"mpi": 7})):
            self.federate(config, data, name, **options)
        self.assertEqual(self.figures("hundred"), self.figures("one"))
        self.assertEqual(self.figures("ranks"), self.figures("one"))

    def test_clients_move_to_ranks_that_have_nothing_to_do(self):
        """Four of twelve clients are drawn: seldom two for each of two ranks, and each takes long."""
        data = self.synthetic(clients=12, samples=3000, dimension=40, seed=1)
        config = self.write("c.textproto", """
            model { linear_regression { intercept: false } }
            cohort { size: 4 }
            phases { train { rounds: 8 local { step_size: 0.0001 epochs: 20 batch_size: 8 } } }
            """)
        self.federate(config, data, "one", processes=1)
        self.federate(config, data, "two", mpi=2)
        self.assertEqual(self.figures("two"), self.figures("one"))
        moved = self.log("two/logs/client_000.log").rsplit("clients moved ", 1)[1]
        self.assertGreater(int(moved.split()[0]), 0)

    def images(self):
        rng = np.random.default_rng(2)
        for name in ("client_00", "client_01", "client_10", "client_11"):
            os.makedirs(self.path("data", name))
            np.save(self.path("data", name, "train_x.npy"),
                    rng.random(size=(20, 28, 28)).astype(np.float32))
            np.save(self.path("data", name, "train_y.npy"), rng.integers(0, 5, size=20))

    def test_sums_of_large_models_go_in_blocks(self):
        """More than 2^18 integers, and not a multiple of a block."""
        self.images()
        config = self.write("c.textproto", """
            model { mlp { hidden: [400] classes: 5 } }
            phases { train { rounds: 3 local { step_size: 0.05 epochs: 1 batch_size: 8 } } }
            """)
        self.federate(config, self.path("data"), "one", processes=1)
        for ranks in (2, 4):
            self.federate(config, self.path("data"), f"ranks{ranks}", mpi=ranks)
            self.assertEqual(self.figures(f"ranks{ranks}"), self.figures("one"))

    def test_ranks_with_a_pytorch_model_of_their_own(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("PyTorch is not installed (python3-torch)")
        self.images()
        config = self.write("c.textproto", """
            model { mlp { hidden: [10, 7] classes: 5 } }
            phases { train { rounds: 3 local { step_size: 0.05 epochs: 1 batch_size: 8 } } }
            """)
        program = (f"{sys.executable} {SOURCE}/tests/integration/python_clients/network_client.py "
                   f"mlp none {self.path('data')}")
        env = {"PYTHONPATH": os.path.join(SOURCE, "python"), "OMP_NUM_THREADS": "1",
               "OPENBLAS_NUM_THREADS": "1"}
        rank = "$OMPI_COMM_WORLD_RANK"  # /bin/sh starts the worker
        for out, ranks, clients in (("one", 1, "client_00 client_01 client_10 client_11"),
                                    ("two", 2, f"client_0{rank} client_1{rank}")):
            server, address = self.start_server(config, 4, out)
            job = self.start_ranks(ranks, "--server", address, "--worker", f"{program} {clients}",
                                   log=out + ".log", env=env)
            self.assertEqual(job.wait(TIMEOUT), 0, self.log(out + ".log"))
            self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertEqual(self.figures("two"), self.figures("one"))

    def test_ranks_on_two_hosts(self):
        """Two network namespaces with names of their own; mpirun's remote shell enters the second."""
        if os.geteuid() != 0 or not all(shutil.which(tool) for tool in TOOLS):
            self.skipTest("network namespaces need root, util-linux and iproute2")
        hosts = [Namespace(), Namespace()]
        for host in hosts:
            self.addCleanup(host.close)
            if not host.ip("link", "set", "lo", "up"):
                self.skipTest("this machine does not let us make network namespaces")
        if not hosts[0].ip("link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns",
                           str(hosts[1].holder.pid)):
            self.skipTest("this machine has no veth links")
        for number, host in enumerate(hosts, 1):
            self.assertTrue(host.ip("addr", "add", f"10.78.0.{number}/24", "dev", "v0"))
            self.assertTrue(host.ip("link", "set", "v0", "up"))
        # Shared memory between ranks goes by the host's name.
        agent = self.write("agent", "#!/bin/sh\nshift\nexec " + " ".join(hosts[1].enter) +
                           " unshare --uts sh -c \"hostname second; $*\"\n")
        os.chmod(agent, 0o700)
        # A model of more than 4 KiB, which each host gets once.
        data = self.synthetic(clients=20, samples=30, dimension=600, seed=1)
        config = self.write("c.textproto", """
            model { linear_regression { intercept: false } }
            cohort { size: 10 }
            phases { probe { point: INITIAL step_size: 0.0001 steps: [1, 4] } }
            phases { train { rounds: 6 local { step_size: 0.0001 steps: 4 } } }
            """)
        self.federate(config, data, "one", processes=1)
        server = self.start(
            "leeway-server", "--config", config, "--state", self.path("two"), "--clients", 20,
            "--listen", "0.0.0.0:0", "--insecure-anywhere", "--address-file", self.path("address"),
            log="server.log", prefix=hosts[0].enter)
        port = self.await_file(self.path("address"), server).rsplit(":", 1)[1]
        job = self.start_ranks(
            4, "--server", f"10.78.0.1:{port}", "--insecure-anywhere", *self.directories(data),
            prefix=[*hosts[0].enter, "unshare", "--uts", "sh", "-c", "hostname first; exec \"$@\"", "sh"],
            mpirun=["--host", "10.78.0.1:2,10.78.0.2:2", "--mca", "plm_rsh_agent", agent,
                    "--mca", "btl_tcp_if_include", "10.78.0.0/24",
                    "--mca", "oob_tcp_if_include", "10.78.0.0/24", "--tag-output"])
        self.assertEqual(job.wait(TIMEOUT), 0, self.log("ranks.log"))
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertIn("4 ranks on 2 nodes", self.log("ranks.log"))
        self.assertEqual(self.figures("two"), self.figures("one"))

    def test_generated_clients_and_other_algorithms(self):
        made = self.path("made")
        self.run_program("leeway", "data", "synthetic", "--out", made, "--clients", 30,
                         "--dimension", 8, "--on-the-fly")
        config = self.write("c.textproto", """
            model { linear_regression { intercept: false } }
            cohort { size: 10 }
            phases { train { rounds: 8 local { step_size: 0.004 steps: 4 scaffold {} } } }
            """)
        self.federate(config, made, "one", processes=1)
        self.federate(config, made, "three", mpi=3)
        self.assertEqual(self.figures("three"), self.figures("one"))

    def test_a_killed_rank_ends_the_job_and_a_new_job_goes_on(self):
        data = self.synthetic(clients=20, samples=50, dimension=8, seed=1)
        text = CONFIG.replace("rounds: 6", "rounds: 150")
        config = self.write("c.textproto", text)
        self.federate(config, data, "one", processes=1)
        directories = self.directories(data)
        server, address = self.start_server(config, 20, "killed")
        kills = 0
        while server.poll() is None:
            job = self.start_ranks(3, "--server", address, *directories, log=f"ranks{kills}.log")
            if kills < 3:
                victim = self.a_rank_at_work(job, server)
                if victim is not None:
                    os.kill(victim, signal.SIGKILL)
                    kills += 1
            if job.wait(TIMEOUT) == 0:
                break  # the run is over
        self.assertEqual(server.wait(TIMEOUT), 0)
        self.assertGreater(kills, 0)
        self.assertEqual(self.figures("killed"), self.figures("one"))

    def a_rank_at_work(self, job, server):
        """The process of a rank other than the first, once the server has let the job in."""
        joined = self.log("server.log").count("joined")
        deadline = time.monotonic() + TIMEOUT
        while self.log("server.log").count("joined") == joined:
            if job.poll() is not None or server.poll() is not None:
                return None
            self.assertLess(time.monotonic(), deadline, self.log("server.log"))
            time.sleep(0.01)
        children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True)
        return int(children.stdout.split()[-1])

    def test_errors_name_the_rank_and_the_remedy(self):
        data = self.synthetic(clients=2, samples=10, dimension=3)
        directories = self.directories(data)
        job = self.start_ranks(3, "--server", "127.0.0.1:1", *directories, log="many.log")
        self.assertNotEqual(job.wait(TIMEOUT), 0)
        self.assertIn("at most as many ranks as there are clients", self.log("many.log"))
        job = self.start_ranks(2, "--server", "127.0.0.1:1", directories[0],
                               self.path("missing"), log="missing.log")
        self.assertNotEqual(job.wait(TIMEOUT), 0)
        self.assertIn("missing", self.log("missing.log"))


if __name__ == "__main__":
    unittest.main()
