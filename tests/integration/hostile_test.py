"""A hundred connections that send far more than they may: honest clients go on. Thousands of reports
that are refused: nothing of them is kept. Observers that do not read: the server's memory stays as it is.
Streams of reflection: so do its threads."""

import contextlib
import os
import re
import socket
import sqlite3
import struct
import subprocess
import unittest

from leeway_case import BIN, TIMEOUT, LeewayCase, metrics

CONFIG = """
seed: 1
model { linear_regression { intercept: false } }
durability: RELAXED
cohort { deadline_seconds: 60 attempts: 1 }
phases { train { rounds: 4000 drift_off: true local { step_size: 0.001 steps: 5 } } }
"""


class HostileTest(LeewayCase):
    def attack(self, address, connections, mebibytes, reports=1):
        """How the server ended the reports: a count for each status."""
        done = subprocess.run([os.path.join(BIN, "hostile_client"), address, str(connections),
                               str(mebibytes), str(reports)],
                              stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True)
        return {int(a): int(b) for a, b in re.findall(r"status (\d+): (\d+)", done.stdout)}

    def test_refused_reports_leave_nothing_behind(self):
        data = self.synthetic(clients=2, samples=20, dimension=30)
        config = self.write("c.textproto", CONFIG.replace("rounds: 4000", "rounds: 5"))
        server, address = self.start_server(config, 2, "run", "--dashboard", "0")
        address, url = address.split("\n")
        refused = 3  # INVALID_ARGUMENT
        for _ in range(3):
            self.assertEqual(self.attack(address, 10, 1, 100), {refused: 1000})
        # A stream and what it has read are gone together, once the server has heard of its end.
        while (now := metrics(url))["leeway_upload_streams"] > 0:
            self.assertIsNone(server.poll(), self.log("server.log"))
        # None had a header that asks for memory.
        for what in ("staging", "small_reports"):
            self.assertEqual(now[f'leeway_held_most_blocks{{what="{what}"}}'], 0)
        print(f"after 3,000 refused reports of 1 MiB: {now['leeway_resident_bytes'] / 2**20:.0f} MiB")
        client = self.start("leeway-client", "--server", address,
                            *[os.path.join(data, f"client_00{i}") for i in range(2)])
        self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))

    def test_honest_clients_outlast_an_attack(self):
        data = self.synthetic(clients=8, samples=20, dimension=30)
        config = self.write("c.textproto", CONFIG)
        server, address = self.start_server(config, 8)
        names = sorted(n for n in os.listdir(data) if n.startswith("client_"))
        clients = [self.start("leeway-client", "--server", address,
                              *[os.path.join(data, n) for n in names[i::4]], log=f"client{i}.log")
                   for i in range(4)]
        self.await_file(self.path("run", "run.db"), server)
        outcomes = self.attack(address, 100, 64)
        self.assertEqual((sum(outcomes.values()), outcomes.get(0, 0)), (100, 0))  # all turned away
        for i, client in enumerate(clients):
            self.assertEqual(client.wait(TIMEOUT), 0, self.log(f"client{i}.log"))
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        self.assertEqual(self.show()["rounds"][-1]["reports"], 8)

    def open_streams(self, address, path, count, request=None, answered=False):
        """Opens streams on one connection, by hand, perhaps with a request, and leaves them so, without room
        for more than 64 KiB of answers; yields those that the server ends or, if asked, has begun to answer."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                  ("content-type", "application/grpc"), ("te", "trailers")]
        block = b"".join(b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode()
                         for k, v in fields)  # literals without indexing

        def frame(kind, flags, stream, body=b""):
            return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body

        data, settings, headers, end_stream, end_headers = 0, 4, 1, 1, 4
        body = b"" if request is None else b"\0" + struct.pack(">I", len(request)) + request
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0) + b"".join(
                frame(headers, end_headers, 1 + 2 * i, block) +
                (b"" if request is None else frame(data, end_stream, 1 + 2 * i, body)) for i in range(count)))
            reader = connection.makefile("rb")
            while head := reader.read(9):
                reader.read(int.from_bytes(head[:3], "big"))
                if head[3] == settings and not head[4]:
                    connection.sendall(frame(settings, 1, 0))
                elif head[3] == headers and (answered or head[4] & end_stream):
                    yield int.from_bytes(head[5:], "big")

    def test_reflection_takes_few_threads(self):
        data = self.synthetic(clients=1, samples=20, dimension=30)
        config = self.write("c.textproto", CONFIG.replace("rounds: 4000", "rounds: 5"))
        server, address = self.start_server(config, 1)

        def threads():
            with open(f"/proc/{server.pid}/status") as f:
                return int(re.search(r"Threads:\s+(\d+)", f.read())[1])

        before = threads()
        ended = self.open_streams(
            address, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", 100)
        for _ in range(90):  # those without a thread are turned away
            next(ended)
        print(f"threads: {before}, with 100 streams of reflection {threads()}")
        self.assertLess(threads(), before + 50)
        ended.close()
        client = self.start("leeway-client", "--server", address, os.path.join(data, "client_000"))
        self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))

    def resident(self, process):
        with open(f"/proc/{process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) / 1024

    def test_observers_that_do_not_read_cost_little(self):
        data = self.synthetic(clients=1, samples=20, dimension=30)
        config = self.write("c.textproto", CONFIG.replace("drift_off: true ", "").replace("60", "600"))
        server, address = self.start_server(config, 1)
        client = self.start("leeway-client", "--server", address, os.path.join(data, "client_000"))
        rounds = 0
        while rounds < 3000:  # a past of about 1 MB
            self.assertIsNone(server.poll())
            with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(
                    sqlite3.connect(f"file:{self.path('run', 'run.db')}?mode=ro", uri=True)) as db:
                rounds = db.execute("SELECT count(*) FROM rounds").fetchone()[0]
        client.kill()
        client.wait()
        before = self.resident(server)
        observers = self.open_streams(address, "/leeway.v1.Federation/Observe", 60, b"", True)
        for _ in range(60):
            next(observers)
        after = self.resident(server)
        print(f"{rounds} rounds: {before:.1f} MiB, with 60 observers that do not read {after:.1f} MiB")
        self.assertLess(after - before, 40)
        observers.close()
        client = self.start("leeway-client", "--server", address, os.path.join(data, "client_000"))
        self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))


if __name__ == "__main__":
    unittest.main()
