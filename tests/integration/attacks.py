#!/usr/bin/python3
"""Attacks on a real server beside an honest run. `attacks.py [KIND ...]` prints one line for each: rounds per second
before, during and after it, how soon the run was back at half its speed, the server's memory, and whether it ended
with the same bits as without an attack. All kinds if none is named; `--proxy` puts HAProxy with docs/deploy/haproxy.cfg
in front. Everything stays on loopback, and every attack ends after its time. Exits with 1 if the bits differ, the
server has ended or its memory has grown by more than --memory.

  spin        nothing but a process that takes a processor, as every attacker here does: compare with it
  idle        connections that say nothing, more than the server has files
  knock       connections that are closed at once, as many as fit into the time
  strangers   TLS handshakes without a certificate
  dashboard   connections to the dashboard that say nothing
  reset       HTTP/2 streams that are begun and reset at once, with an observer's certificate
  calls       the same beside a call that stays open, with a client's certificate
  continuation  HTTP/2 headers that never end, with an observer's certificate
  observe     60 calls that ask for all records and read none, with an observer's certificate"""

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
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HAPROXY = os.path.join(HERE, "..", "..", "docs", "deploy", "haproxy.cfg")
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


def spin(_, end):
    count = 0
    while time.monotonic() < end:
        count += 1
    return count


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


def resets(first_stream):
    block = headers()
    for first in range(first_stream, 1 << 30, 200):
        yield b"".join(frame(1, 4, stream, block) + frame(3, 0, stream, struct.pack(">I", 8))
                       for stream in range(first, first + 200, 2)), 100


# An Observe call: its headers, and a message of no bytes in the last frame of the stream.
def observation(stream):
    return frame(1, 4, stream, headers()) + frame(0, 1, stream, b"\0" * 5)


def reset(target, end):
    return flood(target, end, lambda: resets(1))


def calls(target, end):
    def pieces():
        yield observation(1), 0
        yield from resets(3)

    return flood({**target, "certificate": target["client"] + ".crt", "key": target["client"] + ".key"}, end, pieces)


def continuation(target, end):
    def pieces():
        yield frame(1, 0, 1, headers()), 0
        more = frame(9, 0, 1, b"\0" + b"\5x-abc" + b"\x7f\x81\x7e" + b"y" * (127 + 1 + 126 * 128)) * 4
        while True:
            yield more, 4

    return flood(target, end, pieces)


def observe(target, end):
    with http2(target) as connection:
        for stream in range(1, 121, 2):
            connection.sendall(observation(stream))
        # Nothing is read.
        time.sleep(max(0, end - time.monotonic()))
    return 60


ATTACKS = {"spin": spin, "idle": idle, "knock": knock, "strangers": strangers, "dashboard": dashboard, "reset": reset,
           "calls": calls, "continuation": continuation, "observe": observe}


def perform(kind, target, seconds, results):
    results.put(ATTACKS[kind](target, time.monotonic() + seconds))


# ---------------------------------------------------------------- the honest run beside it

class HonestRun:
    """A server with certificates and a dashboard, and its clients; with `proxy`, HAProxy between them."""

    def __init__(self, binaries, folder, name, rounds, files=1024, proxy=False):
        self.binaries = binaries
        self.folder = folder
        self.pki = os.path.join(folder, "pki")
        self.state = os.path.join(folder, name)
        self.processes = []
        data = os.path.join(folder, "data")
        if not os.path.exists(data):
            self.prepare(data)
        config = self.state + ".textproto"
        with open(config, "w") as f:
            f.write(CONFIG.replace("ROUNDS", str(rounds)))
        address_file = self.state + ".address"
        listen = f"unix:{self.state}.sock" if proxy else "127.0.0.1:0"
        tls = ["--behind-proxy", f"{self.pki}/ca.crt"] if proxy else self.tls("server")
        self.server = self.start("server", "prlimit", f"--nofile={files}:{files}", f"{binaries}/leeway-server",
                                 "--config", config, "--state", self.state, "--clients", CLIENTS, "--listen", listen,
                                 "--address-file", address_file, "--dashboard", "127.0.0.1:0", *tls)
        while not os.path.exists(address_file):
            assert self.server.poll() is None, "the server ended at its start"
            time.sleep(0.01)
        with open(address_file) as f:
            address, url = f.read().split()
        if proxy:
            address = self.start_proxy(address)
        self.target = {"address": address, "dashboard": url.split("/")[2], "ca": os.path.join(self.pki, "ca.crt"),
                       "certificate": os.path.join(self.pki, "observer.crt"),
                       "key": os.path.join(self.pki, "observer.key"),
                       "client": os.path.join(self.pki, "unused")}
        self.clients = [self.start(f"client{i}", f"{binaries}/leeway-client", "--server", address, "--give-up", TIMEOUT,
                                   *self.tls(f"client_00{i}"), os.path.join(data, f"client_00{i}"))
                        for i in range(CLIENTS)]

    def start(self, name, *command):
        with open(f"{self.state}.{name}.log", "w") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def prepare(self, data):
        self.leeway("data", "synthetic", "--out", data, "--clients", CLIENTS, "--samples", 50, "--dimension", 30)
        self.leeway("certs", "init", self.pki)
        self.leeway("certs", "server", self.pki)
        self.leeway("certs", "client", self.pki, "--observer")
        for name in [*(f"client_00{i}" for i in range(CLIENTS)), "unused"]:
            self.leeway("certs", "client", self.pki, name)
        with open(f"{self.pki}/server.pem", "w") as pem:
            for part in ("server.crt", "server.key"):
                with open(f"{self.pki}/{part}") as f:
                    pem.write(f.read())

    def start_proxy(self, address):
        """HAProxy as documented, on a free port of loopback; returns its address."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with open(HAPROXY) as f:
            text = f.read()
        for documented, here in ((":4760", f"127.0.0.1:{port}"), ("/etc/leeway/tls", self.pki),
                                 ("unix@/run/leeway/study.sock", "unix@" + address.removeprefix("unix:"))):
            assert documented in text, documented
            text = text.replace(documented, here)
        with open(self.state + ".cfg", "w") as f:
            f.write(text)
        proxy = self.start("proxy", shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", self.state + ".cfg")
        while True:
            assert proxy.poll() is None, f"HAProxy ended at its start; see {self.state}.proxy.log"
            with contextlib.suppress(OSError), connect(f"127.0.0.1:{port}"):
                return f"127.0.0.1:{port}"
            time.sleep(0.01)

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

    def recovery(self, rate, seconds):
        """Seconds until half a second has gone by at this rate or faster; None if that is not within the time."""
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            began = time.monotonic() - start
            if self.rate(0.5) >= rate:
                return began
        return None

    def memory(self, key):
        """In MB; 0 when the server has ended."""
        with contextlib.suppress(OSError, StopIteration), open(f"/proc/{self.server.pid}/status") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith(key + ":"))
        return 0

    def log(self, name="server"):
        with open(f"{self.state}.{name}.log") as f:
            return f.read()

    def await_rounds(self):
        while self.round() == 0 and self.server.poll() is None:
            time.sleep(0.01)

    def finish(self):
        """Waits for the end; returns the last model's name."""
        for process in [*self.clients, self.server]:
            code = process.wait(TIMEOUT)
            assert code == 0, f"{process.args} ended with {code}: {self.log()[-2000:]}"
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/run.db?mode=ro", uri=True)) as db:
            return db.execute("SELECT model_sha256 FROM rounds ORDER BY round DESC LIMIT 1").fetchone()[0]

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def honest(*arguments, **options):
    run = HonestRun(*arguments, **options)
    try:
        yield run
    finally:
        run.kill()


def measure(binaries, folder, kind, seconds, rounds, expected, proxy=False):
    """The figures of a run beside an attack."""
    with honest(binaries, folder, "attacked-" + kind, rounds, proxy=proxy) as run:
        run.await_rounds()
        figures = {"before": run.rate(seconds / 3), "memory_before": run.memory("VmRSS")}
        results = multiprocessing.Queue()
        attacker = multiprocessing.Process(target=perform, args=(kind, run.target, seconds, results))
        attacker.start()
        figures["during"] = run.rate(seconds)
        figures["attempts"] = results.get(timeout=TIMEOUT)
        attacker.join()
        figures["recovery"] = run.recovery(figures["before"] / 2, 4 * seconds)
        figures["after"] = run.rate(seconds / 3)
        figures["memory_peak"] = run.memory("VmHWM")
        figures["memory_after"] = run.memory("VmRSS")
        # A run that was over before its attack was has not shown what happens after it.
        figures["whole"] = run.server.poll() is None
        figures["same_bits"] = run.finish() == expected
        figures["cut_off"] = run.log().count("warning flood")
        return figures


def rounds_for(binaries, folder, seconds, proxy):
    """As many as an honest run takes in about this time."""
    with honest(binaries, folder, "speed", 1 << 30, proxy=proxy) as run:
        run.await_rounds()
        return max(200, int(run.rate(3) * seconds))


def alone(binaries, folder, rounds, proxy=False):
    """The bits of a run that nobody attacks."""
    with honest(binaries, folder, "alone", rounds, proxy=proxy) as run:
        return run.finish()


def describe(kind, figures):
    number = lambda x, form: "-" if x is None or (x == 0 and not figures["whole"]) else format(x, form)
    return (f"{kind:<13}{figures['attempts']:>11,}{figures['before']:>9.0f}{figures['during']:>9.0f}"
            f"{figures['during'] / max(figures['before'], 1e-9):>7.2f}{number(figures['after'], '.0f'):>8}"
            f"{number(figures['recovery'], '.1f'):>10}{figures['memory_before']:>9.0f}"
            f"{number(figures['memory_peak'], '.0f'):>7}{number(figures['memory_after'], '.0f'):>7}"
            f"{figures['cut_off']:>9}{'yes' if figures['same_bits'] else 'NO':>6}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(ATTACKS))
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--seconds", type=float, default=9)
    parser.add_argument("--rounds", type=int, help="of the honest run; as many as the time takes if not given")
    parser.add_argument("--memory", type=float, default=256, help="MB by which the server may grow")
    parser.add_argument("--proxy", action="store_true", help="HAProxy in front")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        if kind not in ATTACKS:
            parser.error(f"there is no attack '{kind}'; give some of {', '.join(ATTACKS)}")
    folder = tempfile.mkdtemp(prefix="leeway-attack-")
    failed = False
    try:
        rounds = arguments.rounds or rounds_for(arguments.bin, folder, 3 * arguments.seconds, arguments.proxy)
        expected = alone(arguments.bin, folder, rounds, arguments.proxy)
        print(f"{rounds} rounds; a run without an attack ends with the model {expected[:8]}\n"
              f"{'':13}{'':>11}{'rounds per second':>33}{'back at':>10}{'memory, MB':>23}{'log lines':>9}{'same':>6}\n"
              f"{'attack':13}{'attempts':>11}{'before':>9}{'during':>9}{'ratio':>7}{'after':>8}{'half, s':>10}"
              f"{'before':>9}{'peak':>7}{'after':>7}{'flood':>9}{'bits':>6}", flush=True)
        for kind in arguments.kinds or ATTACKS:
            figures = measure(arguments.bin, folder, kind, arguments.seconds, rounds, expected, arguments.proxy)
            print(describe(kind, figures), flush=True)
            failed = (failed or not figures["same_bits"]
                      or figures["memory_peak"] > figures["memory_before"] + arguments.memory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
