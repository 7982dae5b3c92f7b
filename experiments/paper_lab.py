"""Runs experiments with the real programs, and the paper's closed forms from the clients' data."""

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT = 300  # ends a hung run; no run takes a tenth of it


class Failed(Exception):
    """A program did not do its work."""


class Run:
    """A finished run: what `leeway show --json` and `leeway drift --json` say."""

    def __init__(self, lab, directory, data, command):
        self.lab, self.directory, self.data, self.command = lab, directory, data, command
        self.show = lab.leeway_json("show", directory)

    def verdict(self):
        return self.lab.leeway_json("drift", self.directory)

    def probe(self, index=0):
        return self.show["probes"][index]

    def drift(self):
        """h -> (rho squared, Jensen bound), over all full-batch probes at w*."""
        return {s["h"]: (s["average_drift_squared"], s["drift_bound"])
                for p in self.show["probes"] for s in p["steps"]
                if p["point"] == "optimum" and p["batch_size"] == 0}

    def trainings(self):
        """The training phases in order, each a list of rounds."""
        phases = []
        for record in self.show["rounds"]:
            if record["round"] == 1:
                phases.append([])
            phases[-1].append(record)
        return phases

    def model(self, name):
        return read_vector(os.path.join(self.directory, "models", name + ".safetensors"))


class Lab:
    """Makes data and runs in one folder, `jobs` at a time: more than cores, as runs wait a lot."""

    def __init__(self, binaries, folder, jobs=4):
        self.binaries, self.folder, self.jobs = binaries, folder, jobs
        self.runs = 0

    def leeway(self, *arguments):
        command = [os.path.join(self.binaries, "leeway"), *map(str, arguments)]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{' '.join(command)}: {error}") from error
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n"
                         + (done.stdout + done.stderr)[-2000:])
        return done.stdout

    def leeway_json(self, verb, directory):
        return json.loads(self.leeway(verb, directory, "--json"))

    def data(self, name, **options):
        """`leeway data synthetic`; an option that is True is a flag."""
        directory = os.path.join(self.folder, "data", name)
        flags = []
        for key, value in options.items():
            flags.append("--" + key.replace("_", "-"))
            if value is not True:
                flags.append(str(value))
        self.leeway("data", "synthetic", "--out", directory, *flags)
        return directory

    def run(self, experiment, name, data, **overrides):
        """`leeway run`. Overrides replace numbers in the config, such as seed=3."""
        config = os.path.join(HERE, experiment + ".textproto")
        if overrides:
            config = self.override(config, name, overrides)
        directory = os.path.join(self.folder, "runs", name)
        self.leeway("run", config, "--data", data, "--out", directory, "--processes", 1)
        self.runs += 1
        return Run(self, directory, data, f"leeway run experiments/{experiment}.textproto")

    def override(self, config, name, values):
        with open(config) as f:
            text = f.read()
        for key, value in values.items():
            text, count = re.subn(rf"\b{key}: \d+", f"{key}: {value}", text, count=1)
            if count != 1:
                raise Failed(f"{config} has no {key}")
        copy = os.path.join(self.folder, "configs", name + ".textproto")
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, "w") as f:
            f.write(text)
        return copy

    def parallel(self, work, items):
        """work(item) for every item, in order of the items."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(work, items))

    @staticmethod
    def remove(*directories):
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)


def read_vector(path):
    """The one float64 tensor of a safetensors file."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        body = f.read()
    (entry,) = [v for k, v in header.items() if k != "__metadata__"]
    begin, end = entry["data_offsets"]
    return np.frombuffer(body[begin:end], np.float64)


class Quadratics:
    """The clients' objectives 1/2 w'A_c w - b_c'w + const, from their data files."""

    def __init__(self, data):
        names = sorted(n for n in os.listdir(data) if os.path.isdir(os.path.join(data, n)))
        self.A, self.b = [], []
        for name in names:
            x = np.load(os.path.join(data, name, "train_x.npy"))
            y = np.load(os.path.join(data, name, "train_y.npy"))
            self.A.append(x.T @ x / len(y))
            self.b.append(x.T @ y / len(y))
        self.A, self.b = np.array(self.A), np.array(self.b)
        self.truth = np.load(os.path.join(data, "truth.npy"))
        self.mean_A = self.A.mean(0)
        self.optimum = np.linalg.solve(self.mean_A, self.b.mean(0))

    def gradients(self, w):
        return self.A @ w - self.b

    def dissimilarity(self, w):
        g = self.gradients(w)
        return np.mean(np.sum((g - g.mean(0)) ** 2, 1))

    def displacement(self, w, eta, steps):
        """The average of w - w_c^(H) over clients."""
        v = np.tile(w, (len(self.A), 1))
        for _ in range(steps):
            v = v - eta * (np.einsum("cij,cj->ci", self.A, v) - self.b)
        return w - v.mean(0)

    def drift(self, w, eta, steps):
        """rho at w."""
        return np.linalg.norm(self.gradients(w).mean(0)
                              - self.displacement(w, eta, steps) / (eta * steps))

    def contraction(self, eta, steps):
        """E_c (I - eta A_c)^H."""
        one = np.eye(self.A.shape[1])
        return np.mean([np.linalg.matrix_power(one - eta * a, steps) for a in self.A], 0)

    def fixed_point(self, eta, steps):
        """w_H - w* = -(I - E_c (I - eta A_c)^H)^-1 (displacement at w*)."""
        one = np.eye(self.A.shape[1])
        return self.optimum - np.linalg.solve(one - self.contraction(eta, steps),
                                              self.displacement(self.optimum, eta, steps))

    def loss_gap(self, w):
        e = w - self.optimum
        return 0.5 * e @ self.mean_A @ e


def slope(x, y):
    """Exponent of y ~ x^k, by least squares on logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
