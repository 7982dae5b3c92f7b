"""Ranks of an MPI job: the server sees one process, and the bits are those of one process."""

import os
import shutil
import signal
import subprocess
import time
import unittest

from leeway_case import BIN, TIMEOUT, LeewayCase

CONFIG = """
seed: 1
model { linear_regression { intercept: false } }
weighting: EXAMPLES
cohort { size: 10 }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.004 steps: [1, 10] clients: 15 groups: 5 } }
phases { train { rounds: 6 local { step_size: 0.004 epochs: 2 batch_size: 16 }
                 server { rate: 1 momentum: 0.5 } } }
"""
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


@unittest.skipIf(shutil.which("mpirun") is None or not os.path.exists(os.path.join(BIN, "leeway-client-mpi")),
                 "Open MPI was not installed when this was built (libopenmpi-dev, openmpi-bin)")
class MpiTest(LeewayCase):
    def start_ranks(self, ranks, *arguments, log="ranks.log"):
        with open(self.path(log), "w") as out:
            job = subprocess.Popen(
                ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none",
                 os.path.join(BIN, "leeway-client"), "--mpi", "--threads", "1",
                 *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=ENVIRONMENT)
        self.children.append(job)
        return job

    def figures(self, out):
        shown = self.show(out)
        return ([r["model_sha256"] for r in shown["rounds"]],
                [[s["average_drift_squared"] for s in p["steps"]] for p in shown["probes"]])

    def test_ranks_leave_no_trace(self):
        data = self.synthetic(clients=20, samples=50, dimension=8, seed=1)
        config = self.write("c.textproto", CONFIG)
        self.federate(config, data, "one", processes=1)
        expected = self.figures("one")
        self.assertEqual(len(set(expected[0])), 6)
        for ranks in (1, 2, 3, 7):
            self.federate(config, data, f"ranks{ranks}", mpi=ranks)
            self.assertEqual(self.figures(f"ranks{ranks}"), expected, f"{ranks} ranks")
        self.assertIn("7 ranks, idle share", self.log("ranks7/logs/client_000.log"))

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
        text = CONFIG.replace("rounds: 6", "rounds: 400")
        config = self.write("c.textproto", text)
        self.federate(config, data, "one", processes=1)
        directories = sorted(os.path.join(data, name) for name in os.listdir(data)
                             if name.startswith("client"))
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
        directories = [os.path.join(data, f"client_{i}") for i in range(2)]
        if not os.path.exists(directories[0]):
            directories = sorted(os.path.join(data, n) for n in os.listdir(data)
                                 if n.startswith("client"))
        job = self.start_ranks(3, "--server", "127.0.0.1:1", *directories, log="many.log")
        self.assertNotEqual(job.wait(TIMEOUT), 0)
        self.assertIn("at most as many ranks as there are clients", self.log("many.log"))
        job = self.start_ranks(2, "--server", "127.0.0.1:1", directories[0],
                               self.path("missing"), log="missing.log")
        self.assertNotEqual(job.wait(TIMEOUT), 0)
        self.assertIn("missing", self.log("missing.log"))


if __name__ == "__main__":
    unittest.main()
