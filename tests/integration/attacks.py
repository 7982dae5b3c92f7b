#!/usr/bin/python3
"""Attacks on a real server beside an honest run, with figures: `attacks.py KIND [--seconds S]` prints rounds per
second before, during and after the attack, the server's memory and files, and whether the run ended with the same
bits as one without an attack. Everything stays on loopback, and every attack ends after its time.

  idle        connections that say nothing, more than the server has files
  knock       connections that are closed at once, as many as fit into the time
  strangers   TLS handshakes without a certificate
  dashboard   connections to the dashboard that say nothing
  reset       HTTP/2 streams that are begun and reset at once, with an observer's certificate
  continuation  HTTP/2 headers that never end, with an observer's certificate"""

import argparse
import contextlib
import multiprocessing
import os
import shutil
import socket
import sqlite3
import ssl
import struct
import subprocess
import tempfile
import time

CONFIG = """
seed: 7
model { linear_regression { intercept: false } }
durability: RELAXED
cohort { deadline_seconds: 600 }
phases { train { rounds: ROUNDS drift_off: true local { step_size: 0.001 steps: 5 } } }
"""
CLIENTS = 4
TIMEOUT = 600


# ---------------------------------------------------------------- attacks: each runs in a process of its own

def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def idle(target, end):
    """Holds connections that say nothing; those that were closed are opened again."""
    held = []
    count = 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            held.append(connect(target["address"]))
            count += 1
        if len(held) >= 3000:
            held.pop(0).close()
    return count


def knock(target, end):
    count = 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            connect(target["address"]).close()
            count += 1
    return count


def strangers(target, end):
    context = ssl.create_default_context(cafile=target["ca"])
    context.set_alpn_protocols(["h2"])
    count = 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            with connect(target["address"]) as plain, context.wrap_socket(
                    plain, server_hostname="localhost") as connection:
                count += 1
                connection.recv(1)  # the server's refusal
    return count


def dashboard(target, end):
    return idle({"address": target["dashboard"]}, end)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers():
    """An Observe call's headers in HPACK: literals that are not indexed."""
    pairs = [(":method", "POST"), (":scheme", "https"), (":path", "/leeway.v1.Federation/Observe"),
             (":authority", "localhost"), ("te", "trailers"), ("content-type", "application/grpc")]
    return b"".join(b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode() for k, v in pairs)


@contextlib.contextmanager
def http2(target):
    """A connection with the observer's certificate, past the preface."""
    context = ssl.create_default_context(cafile=target["ca"])
    context.load_cert_chain(target["certificate"], target["key"])
    context.set_alpn_protocols(["h2"])
    with connect(target["address"]) as plain, context.wrap_socket(
            plain, server_hostname="localhost") as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
        yield connection


def flood(target, end, pieces):
    """Sends pieces (bytes, how many attempts they are) as fast as they are taken, on a new connection
    whenever one is closed."""
    count = 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            with http2(target) as connection:
                for piece, attempts in pieces():
                    if time.monotonic() >= end:
                        break
                    connection.sendall(piece)
                    count += attempts
                    # What the server says must be read, or it stops reading from us.
                    connection.settimeout(0)
                    with contextlib.suppress(ssl.SSLWantReadError):
                        if not connection.recv(1 << 16):
                            break
                    connection.settimeout(10)
    return count


def reset(target, end):
    block = headers()

    def pieces():
        for first in range(1, 1 << 30, 200):
            yield b"".join(frame(1, 4, stream, block) + frame(3, 0, stream, struct.pack(">I", 8))
                           for stream in range(first, first + 200, 2)), 100

    return flood(target, end, pieces)


def continuation(target, end):
    def pieces():
        yield frame(1, 0, 1, headers()), 0
        more = frame(9, 0, 1, b"\0" + b"\5x-abc" + b"\x7f\x81\x7e" + b"y" * (127 + 1 + 126 * 128)) * 4
        while True:
            yield more, 4

    return flood(target, end, pieces)


ATTACKS = {"idle": idle, "knock": knock, "strangers": strangers, "dashboard": dashboard, "reset": reset,
           "continuation": continuation}


def perform(kind, target, seconds, results):
    results.put(ATTACKS[kind](target, time.monotonic() + seconds))


# ---------------------------------------------------------------- the honest run beside it

class HonestRun:
    """A server with certificates and a dashboard, and its clients."""

    def __init__(self, binaries, folder, name, rounds, files=1024):
        self.binaries = binaries
        self.pki = os.path.join(folder, "pki")
        self.state = os.path.join(folder, name)
        data = os.path.join(folder, "data")
        if not os.path.exists(data):
            self.leeway("data", "synthetic", "--out", data, "--clients", CLIENTS, "--samples", 50, "--dimension", 30)
            self.leeway("certs", "init", self.pki)
            self.leeway("certs", "server", self.pki)
            self.leeway("certs", "client", self.pki, "--observer")
            for i in range(CLIENTS):
                self.leeway("certs", "client", self.pki, f"client_00{i}")
        config = self.state + ".textproto"
        with open(config, "w") as f:
            f.write(CONFIG.replace("ROUNDS", str(rounds)))
        address_file = self.state + ".address"
        with open(self.state + ".log", "w") as log:
            self.server = subprocess.Popen(
                ["prlimit", f"--nofile={files}:{files}", f"{binaries}/leeway-server", "--config", config, "--state",
                 self.state, "--clients", str(CLIENTS), "--listen", "127.0.0.1:0", "--address-file", address_file,
                 "--dashboard", "127.0.0.1:0", *self.tls("server")], stdout=log, stderr=log)
        while not os.path.exists(address_file):
            assert self.server.poll() is None, "the server ended at its start"
            time.sleep(0.01)
        with open(address_file) as f:
            address, url = f.read().split()
        self.target = {"address": address, "dashboard": url.split("/")[2], "ca": os.path.join(self.pki, "ca.crt"),
                       "certificate": os.path.join(self.pki, "observer.crt"),
                       "key": os.path.join(self.pki, "observer.key")}
        self.clients = [
            subprocess.Popen([f"{binaries}/leeway-client", "--server", address, "--give-up", str(TIMEOUT),
                              *self.tls(f"client_00{i}"), os.path.join(data, f"client_00{i}")],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(CLIENTS)]

    def leeway(self, *arguments):
        subprocess.run([f"{self.binaries}/leeway", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    def tls(self, name):
        return ["--tls-ca", f"{self.pki}/ca.crt", "--tls-cert", f"{self.pki}/{name}.crt",
                "--tls-key", f"{self.pki}/{name}.key"]

    def round(self):
        """The last round that is in the records."""
        with contextlib.suppress(sqlite3.Error):
            with contextlib.closing(sqlite3.connect(f"file:{self.state}/run.db?mode=ro", uri=True)) as db:
                return db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0]
        return 0

    def rate(self, seconds):
        """Rounds per second, over that time or until the run is done."""
        first, start = self.round(), time.monotonic()
        while time.monotonic() < start + seconds and self.server.poll() is None:
            time.sleep(0.1)
        return (self.round() - first) / (time.monotonic() - start)

    def cpu(self):
        """Processor time that the server has taken, in seconds."""
        with open(f"/proc/{self.server.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, key):
        with open(f"/proc/{self.server.pid}/status") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith(key + ":"))

    def finish(self):
        """Waits for the end; returns the last model's name."""
        for process in [*self.clients, self.server]:
            assert process.wait(TIMEOUT) == 0, f"{process.args[0]} failed; see {self.state}.log"
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/run.db?mode=ro", uri=True)) as db:
            return db.execute("SELECT model_sha256 FROM rounds ORDER BY round DESC LIMIT 1").fetchone()[0]

    def kill(self):
        for process in [*self.clients, self.server]:
            if process.poll() is None:
                process.kill()
            process.wait()


def measure(binaries, folder, kind, seconds, rounds):
    """Runs with and without the attack; returns the figures."""
    alone = HonestRun(binaries, folder, "alone", rounds)
    try:
        expected = alone.finish()
    finally:
        alone.kill()
    run = HonestRun(binaries, folder, "attacked", rounds)
    try:
        while run.round() == 0 and run.server.poll() is None:
            time.sleep(0.01)
        figures = {"kind": kind, "before": run.rate(seconds / 3), "memory_before": run.memory("VmRSS")}
        rounds_before, cpu_before = run.round(), run.cpu()
        figures["cpu_ms_per_round_before"] = 1e3 * cpu_before / max(rounds_before, 1)
        results = multiprocessing.Queue()
        attacker = multiprocessing.Process(target=perform, args=(kind, run.target, seconds, results))
        attacker.start()
        figures["during"] = run.rate(seconds)
        figures["attempts"] = results.get(timeout=TIMEOUT)
        attacker.join()
        figures["ended_meanwhile"] = run.server.poll() is not None
        if not figures["ended_meanwhile"]:
            figures["files"] = len(os.listdir(f"/proc/{run.server.pid}/fd"))
            figures["memory_peak"] = run.memory("VmHWM")
            # What is left of the processor time when that of the rounds is taken off.
            for_rounds = (run.round() - rounds_before) * cpu_before / max(rounds_before, 1)
            figures["cpu_us_per_attempt"] = 1e6 * (run.cpu() - cpu_before - for_rounds) / max(figures["attempts"], 1)
            figures["after"] = run.rate(seconds / 3)
        figures["same_bits"] = run.finish() == expected
        return figures
    finally:
        run.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=ATTACKS)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=20000)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="leeway-attack-")
    try:
        figures = measure(arguments.bin, folder, arguments.kind, arguments.seconds, arguments.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in figures.items():
        print(f"{name}: {value:.1f}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    main()
