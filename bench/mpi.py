#!/usr/bin/env python3
"""What the ranks of an MPI job cost and gain (docs/clusters.md, docs/scale.md): bench/mpi.py --bin build/bin

Prints, each in turn with what it is compared with, medians of --repeats:
  weak       twice the clients on 2 ranks beside 1 rank, one thread each: how many times the clients a second
  collective sums and broadcasts over 2 ranks beside bare MPI_Reduce and MPI_Bcast of the same bytes
  registered seconds of a round and memory of a rank, for registered and sampled clients
A busy machine shows less than 2 cores can do: the load is printed beside the figures.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy as np

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
SYNTHETIC = """
model {{ linear_regression {{ intercept: false }} }}
phases {{ train {{ rounds: {rounds} local {{ step_size: 0.0001 epochs: 10 batch_size: 16 }} drift_off: true }} }}
"""
CNN = """
model {{ cnn {{ classes: 62 }} }}
phases {{ train {{ rounds: {rounds} local {{ step_size: 0.05 epochs: 1 batch_size: 20 }} drift_off: true }} }}
"""
SAMPLED = """
model {{ linear_regression {{ intercept: false }} }}
cohort {{ size: {sampled} }}
phases {{ train {{ rounds: {rounds} local {{ step_size: 0.004 steps: 10 }} }} }}
"""


def memory(pid):
    """Most memory that a process has had, in MB; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        return 0


class Bench:
    def __init__(self, bin, folder):
        self.bin, self.folder, self.runs = os.path.abspath(bin), folder, 0

    def program(self, name, *arguments):
        done = subprocess.run([os.path.join(self.bin, name), *map(str, arguments)], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise SystemExit(f"{name} failed:\n{done.stdout}")
        return done.stdout

    def run(self, config, data, clients, ranks):
        """One run; returns (median seconds of its rounds, MB of its largest rank, idle share)."""
        self.runs += 1
        out = os.path.join(self.folder, f"run{self.runs}")
        os.mkdir(out)
        path, address, log = (os.path.join(out, name) for name in ("c.textproto", "address", "log"))
        with open(path, "w") as f:
            f.write(config)
        with open(log, "w") as f:
            server = subprocess.Popen(
                [f"{self.bin}/leeway-server", "--config", path, "--state", out, "--clients", str(clients),
                 "--listen", f"unix:{out}/socket", "--address-file", address], stdout=f, stderr=f)
            while not os.path.exists(address):
                if server.poll() is not None:
                    raise SystemExit(open(log).read())
                time.sleep(0.01)
            job = subprocess.Popen(
                ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe",
                 f"{self.bin}/leeway-client", "--mpi", "--threads", "1", "--server",
                 open(address).readline().strip(), *data], stdout=f, stderr=f, env=ENVIRONMENT,
                stdin=subprocess.DEVNULL)
            most = 0
            while job.poll() is None:
                children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True)
                most = max([most, *(memory(pid) for pid in children.stdout.split())])
                time.sleep(0.1)
        if job.returncode != 0 or server.wait() != 0:
            raise SystemExit(open(log).read())
        rounds = json.loads(self.program("leeway", "show", out, "--json"))["rounds"][1:]  # the first makes clients
        shutil.rmtree(out)
        return (statistics.median(r["seconds"] for r in rounds), most,
                statistics.median(r["idle_share"] for r in rounds))

    def images(self, clients):
        rng, data = np.random.default_rng(1), []
        for i in range(clients):
            data.append(os.path.join(self.folder, "images", f"client_{i:02}"))
            os.makedirs(data[-1])
            np.save(os.path.join(data[-1], "train_x.npy"), rng.random(size=(60, 28, 28)).astype(np.float32))
            np.save(os.path.join(data[-1], "train_y.npy"), rng.integers(0, 62, size=60))
        return data

    def weak(self, repeats):
        self.program("leeway", "data", "synthetic", "--out", f"{self.folder}/synthetic", "--clients", 32, "--samples",
                     1000, "--dimension", 60)
        synthetic = sorted(os.path.join(self.folder, "synthetic", n)
                           for n in os.listdir(f"{self.folder}/synthetic") if n.startswith("client"))
        for name, config, data in (("synthetic", SYNTHETIC.format(rounds=8), synthetic),
                                   ("CNN", CNN.format(rounds=4), self.images(8))):
            half, ratios, idle = len(data) // 2, [], []
            for _ in range(repeats):
                one, _, _ = self.run(config, data[:half], half, 1)
                two, _, share = self.run(config, data, len(data), 2)
                ratios.append(2 * one / two)
                idle.append(share)
            print(f"weak scaling, {name}: 2 ranks do {statistics.median(ratios):.2f} times 1 rank's clients a second "
                  f"({', '.join(f'{r:.2f}' for r in ratios)}), idle share {statistics.median(idle):.3f}", flush=True)

    def collective(self):
        done = subprocess.run(["mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", f"{self.bin}/mpi_bench"],
                              env=ENVIRONMENT, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE)
        if done.returncode != 0:
            raise SystemExit("mpi_bench failed")
        print(done.stdout, end="", flush=True)

    def registered(self, sizes, samples):
        for registered in sizes:
            data = f"{self.folder}/made{registered}"
            self.program("leeway", "data", "synthetic", "--out", data, "--clients", registered, "--dimension", 30,
                         "--on-the-fly")
            for sampled in samples:
                seconds, most, _ = self.run(SAMPLED.format(sampled=sampled, rounds=6),
                                            [f"{data}/synthetic.json:0-{registered - 1}"], registered, 2)
                print(f"{registered:8} registered, {sampled:6} sampled: {1e3 * seconds:8.1f} ms a round, "
                      f"{1e6 * seconds / sampled:6.1f} us a client, {most:5.0f} MB in the larger rank", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="directory of Leeway's programs and of mpi_bench")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["weak", "collective", "registered"])
    parser.add_argument("--registered", type=int, nargs="*", default=[100000, 1000000])
    parser.add_argument("--sampled", type=int, nargs="*", default=[1000, 10000])
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="leeway-bench-") as folder:
        bench = Bench(options.bin, folder)
        if options.only in (None, "collective"):
            bench.collective()
        if options.only in (None, "weak"):
            bench.weak(options.repeats)
        if options.only in (None, "registered"):
            bench.registered(options.registered, options.sampled)


if __name__ == "__main__":
    main()
