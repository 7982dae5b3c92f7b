"""Base of the integration tests: real binaries, real files, one temporary folder a test."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request

BIN = os.environ["LEEWAY_BIN"]
SOURCE = os.environ["LEEWAY_SOURCE"]
# Generous: a time-out is there to end a hung test, not to measure speed.
TIMEOUT = 300


class LeewayCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="leeway-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.children = []
        self.addCleanup(self.end_children)

    def end_children(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def run_program(self, program, *arguments, check=True, timeout=TIMEOUT, env=None):
        """Runs one of our programs to its end; returns (exit code, stdout + stderr)."""
        done = subprocess.run(
            [os.path.join(BIN, program), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            env=env,
        )
        if check:
            self.assertEqual(done.returncode, 0, done.stdout)
        return done.returncode, done.stdout

    def start(self, program, *arguments, prefix=(), log=None, failpoint=None):
        """Starts one of our programs in the background; `failpoint` as in common/failpoint.h."""
        with open(self.path(log or f"{program}-{len(self.children)}.log"), "w") as out:
            child = subprocess.Popen(
                [*prefix, os.path.join(BIN, program), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, LEEWAY_FAILPOINT=failpoint) if failpoint else None,
            )
        self.children.append(child)
        return child

    def await_stopped(self, child):
        """Waits until a process stands still at its failpoint."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            self.assertIsNone(child.poll(), "the process ended before its failpoint")
            with open(f"/proc/{child.pid}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "T":
                    return
            self.assertLess(time.monotonic(), deadline, "the process did not come to its failpoint")
            time.sleep(0.01)

    def synthetic(self, name="data", **options):
        directory = self.path(name)
        flags = [x for k, v in options.items() for x in ("--" + k.replace("_", "-"), v)]
        self.run_program("leeway", "data", "synthetic", "--out", directory, *flags)
        return directory

    def federate(self, config, data, out="run", check=True, **options):
        """`leeway run`; returns the exit code and what it printed."""
        flags = [x for k, v in options.items() for x in ("--" + k.replace("_", "-"), v)]
        return self.run_program(
            "leeway", "run", config, "--data", data, "--out", self.path(out), *flags, check=check
        )

    def show(self, out="run"):
        _, text = self.run_program("leeway", "show", self.path(out), "--json")
        return json.loads(text, object_pairs_hook=self.without_duplicates)

    def without_duplicates(self, pairs):
        """A JSON object; fails if it has a key twice, which json.loads alone does not see."""
        keys = [key for key, _ in pairs]
        self.assertEqual(len(keys), len(set(keys)), keys)
        return dict(pairs)

    def await_file(self, path, child=None):
        """Waits until a file exists; fails if `child` ends first."""
        deadline = time.monotonic() + TIMEOUT
        while not os.path.exists(path):
            if child is not None and child.poll() is not None:
                self.fail(f"process ended with {child.returncode} before {path} appeared")
            if time.monotonic() > deadline:
                self.fail(f"{path} did not appear")
            time.sleep(0.01)
        with open(path) as f:
            return f.read().strip()

    def await_text(self, log, text, count=1):
        """Waits until a log says something, `count` times."""
        deadline = time.monotonic() + TIMEOUT
        while self.log(log).count(text) < count:
            self.assertLess(time.monotonic(), deadline, f"{log} never said '{text}'")
            time.sleep(0.01)

    def start_server(self, config, clients, state="run", *more, failpoint=None, prefix=()):
        """A server on a free port; returns (process, address)."""
        address_file = self.path(state + ".address")
        if os.path.exists(address_file):
            os.remove(address_file)
        server = self.start(
            "leeway-server", "--config", config, "--state", self.path(state), "--clients", clients,
            "--listen", "127.0.0.1:0", "--address-file", address_file, *more, log="server.log",
            failpoint=failpoint, prefix=prefix,
        )
        return server, self.await_file(address_file, server)

    def log(self, name):
        with open(self.path(name)) as f:
            return f.read()


def metrics(url):
    """What the dashboard at `url` tells Prometheus now: {'name{labels}': value}."""
    with urllib.request.urlopen(url + "metrics", timeout=TIMEOUT) as answer:
        return samples(answer.read().decode())


def samples(text):
    """{'name{labels}': value} of Prometheus' text format."""
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def read_safetensors(path):
    """The tensors of a safetensors file, by an independent reader."""
    import numpy as np

    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        body = f.read()
    types = {"F32": np.float32, "F64": np.float64}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(body[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors
