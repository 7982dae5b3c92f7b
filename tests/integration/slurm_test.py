"""docs/deploy/leeway.sbatch under a real Slurm: slurmctld, slurmd and munged of this test's own."""

import glob
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

CONFIG = """
seed: 1
model { linear_regression { intercept: false } }
cohort { size: 8 }
phases { train { rounds: 400 local { step_size: 0.004 steps: 4 } } }
"""
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "squeue", "mpirun")
SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/daemon
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/daemon.pid
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
MinJobAge=3600
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Why this cannot run here; empty if it can."""
    absent = [p for p in PROGRAMS if shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin") is None]
    if absent:
        return f"{', '.join(absent)} not installed (slurm-wlm, munge, openmpi-bin)"
    if not os.path.exists(os.path.join(BIN, "leeway-client-mpi")):
        return "Open MPI was not installed when this was built"
    if os.geteuid() != 0:
        return "slurmd needs root"
    return ""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@unittest.skipIf(missing(), missing())
class SlurmTest(LeewayCase):
    def setUp(self):
        super().setUp()
        for name in ("controller", "daemon", "munge"):
            os.mkdir(self.path(name))
        with open(self.path("munge/key"), "wb") as key:
            key.write(os.urandom(128))
        os.chmod(self.path("munge/key"), 0o400)
        controller, daemon = free_ports(2)
        conf = self.write("slurm.conf", SLURM.format(
            host=socket.gethostname().split(".")[0], folder=self.folder, controller=controller,
            daemon=daemon))
        self.write("cgroup.conf", "CgroupAutomount=no\n")
        self.env = dict(os.environ, SLURM_CONF=conf,
                        PATH=f"{BIN}:{os.environ['PATH']}:/usr/sbin:/usr/bin")
        munge = [f"--{n}={self.path('munge', n.split('-')[0])}"
                 for n in ("key-file", "socket", "pid-file", "log-file", "seed-file")]
        self.daemon("munged", "--foreground", "--force", *munge)
        self.await_success("munge", "-S", self.path("munge/socket"), "-n")
        self.daemon("slurmctld", "-D", "-i")
        self.await_success("scontrol", "ping", says="UP")
        self.daemon("slurmd", "-D")
        self.await_success("sinfo", "--noheader", "--format=%T", says="idle")
        self.addCleanup(self.cancel_all)

    def daemon(self, program, *arguments):
        with open(self.path(program + ".log"), "w") as out:
            self.children.append(subprocess.Popen(
                [shutil.which(program, path=self.env["PATH"]), *arguments], env=self.env,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT))

    def run_slurm(self, *words):
        return subprocess.run(words, env=self.env, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT)

    def await_success(self, *words, says=""):
        deadline = time.monotonic() + TIMEOUT
        while True:
            done = self.run_slurm(*words)
            if done.returncode == 0 and says in done.stdout:
                return
            self.assertNotIn("inval", done.stdout)
            logs = "\n".join(self.log(os.path.basename(n))
                             for n in glob.glob(self.path("*.log")))
            self.assertLess(time.monotonic(), deadline, f"{words}: {done.stdout}\n{logs}")
            time.sleep(0.2)

    def cancel_all(self):
        """Ends all jobs, so that no step outlives the daemons."""
        self.run_slurm("scancel", "--full", "--user=root")
        deadline = time.monotonic() + TIMEOUT
        while self.run_slurm("squeue", "--noheader", "--states=RUNNING,COMPLETING").stdout.strip():
            if time.monotonic() > deadline:
                return
            time.sleep(0.2)

    def submit(self, out, *data):
        done = self.run_slurm(
            "sbatch", "--parsable", "--ntasks=3", f"--output={self.path(out + '.job')}",
            f"{SOURCE}/docs/deploy/leeway.sbatch", self.path("c.textproto"), self.path(out), "12",
            *data)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def field(self, job, name):
        shown = self.run_slurm("scontrol", "show", "--oneliner", "job", job).stdout.split()
        return next(w.split("=", 1)[1] for w in shown if w.startswith(name + "="))

    def await_state(self, job, *states):
        deadline = time.monotonic() + TIMEOUT
        while self.field(job, "JobState") not in states:
            self.assertLess(time.monotonic(), deadline, self.diagnosis(job))
            time.sleep(0.1)
        return self.field(job, "JobState")

    def diagnosis(self, job):
        files = [n for n in glob.glob(self.path("*/*.log")) + glob.glob(self.path("*.job"))]
        return "\n".join([self.run_slurm("scontrol", "show", "job", job).stdout,
                          *(f"{n}:\n{self.log(n)[-3000:]}" for n in files)])

    def ranks_at_work(self, out, job):
        """Processes of the clients' step, once the server has let them in."""
        log = self.path(out, "server.log")
        deadline = time.monotonic() + TIMEOUT
        before = self.log(log).count("joined") if os.path.exists(log) else 0
        while not os.path.exists(log) or self.log(log).count("joined") == before:
            self.assertLess(time.monotonic(), deadline, self.diagnosis(job))
            time.sleep(0.02)
        found = []
        for name in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(name, "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue  # it has ended
            # A rank, not the srun that has started it: its first word is the program.
            if b"leeway-client" in os.path.basename(words[0]) and \
                    self.path(out, "states").encode() in words:
                found.append(int(name.split("/")[2]))
        return found

    def models(self, out):
        return [r["model_sha256"] for r in self.show(out)["rounds"]]

    def test_a_job_has_the_bits_of_a_plain_run_whatever_is_killed(self):
        data = self.synthetic(clients=12, samples=40, dimension=6, seed=1)
        config = self.write("c.textproto", CONFIG)
        self.federate(config, data, "plain", processes=1)
        expected = self.models("plain")
        directories = sorted(glob.glob(os.path.join(data, "client*")))

        job = self.submit("undisturbed", *directories)
        self.assertEqual(self.await_state(job, "COMPLETED", "FAILED"), "COMPLETED",
                         self.diagnosis(job))
        self.assertEqual(self.models("undisturbed"), expected)
        self.assertIn("3 ranks on 1 node, idle share", self.log("undisturbed/clients.log"))

        job = self.submit("killed", *directories)
        ranks = self.ranks_at_work("killed", job)
        self.assertEqual(len(ranks), 3, self.diagnosis(job))
        os.kill(ranks[-1], signal.SIGKILL)
        self.assertEqual(self.await_state(job, "COMPLETED", "FAILED"), "COMPLETED",
                         self.diagnosis(job))
        self.assertIn("the clients' step ended (attempt 1 of 10)", self.log("killed.job"))
        self.assertEqual(self.models("killed"), expected)

        job = self.submit("requeued", *directories)
        self.ranks_at_work("requeued", job)
        done = self.run_slurm("scontrol", "requeue", job)
        self.assertEqual(done.returncode, 0, done.stdout)
        # Slurm puts off its second start by minutes, unless asked.
        self.await_state(job, "PENDING")
        self.run_slurm("scontrol", "update", f"JobId={job}", "StartTime=now")
        self.assertEqual(self.await_state(job, "COMPLETED", "FAILED"), "COMPLETED",
                         self.diagnosis(job))
        self.assertEqual(self.field(job, "Restarts"), "1")
        self.assertEqual(self.models("requeued"), expected)


if __name__ == "__main__":
    unittest.main()
