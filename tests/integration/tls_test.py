"""Only enrolled clients take part: mutual TLS with the real binaries."""

import json
import os
import shutil
import stat
import subprocess
import time
import unittest

from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
seed: 3
model { linear_regression { intercept: false } }
phases { train { rounds: 4 local { step_size: 0.01 steps: 2 } } }
"""


class TlsTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(clients=3, samples=20, dimension=3)
        self.config = self.write("c.textproto", CONFIG)
        self.certs("init", self.path("pki"))
        self.certs("server", self.path("pki"))

    def certs(self, command, directory, *more, **options):
        return self.run_program("leeway", "certs", command, directory, *more, **options)

    def flags(self, name, pki="pki", ca=None):
        return ["--tls-ca", self.path(ca or pki, "ca.crt"),
                "--tls-cert", self.path(pki, name + ".crt"),
                "--tls-key", self.path(pki, name + ".key")]

    def serve(self, clients=3):
        return self.start_server(self.config, clients, "run", *self.flags("server"),
                                 "--revoked", self.path("pki", "revoked.crl"))

    def client(self, address, name, *folders, give_up=60, **options):
        return self.run_program("leeway-client", "--server", address, "--give-up", give_up,
                                *self.flags(name, **options),
                                *[os.path.join(self.data, f) for f in folders], check=False)

    def s_client(self, address, *more):
        """OpenSSL's own client: the bytes that the server sent over TLS, and how it went.
        gRPC greets whom it lets in, and closes the connection without a word otherwise."""
        done = subprocess.run(["openssl", "s_client", "-quiet", "-connect", address, "-alpn", "h2",
                               "-CAfile", self.path("pki", "ca.crt"), *more], input=b"x\n" * 20,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT)
        return done.stdout, done.stderr.decode(errors="replace")

    def assert_no_handshake(self, address, *more):
        greeting, text = self.s_client(address, *more)
        self.assertEqual(greeting, b"", text)

    def test_leeway_run_with_tls_gives_the_same_bits(self):
        self.federate(self.config, self.data, "plain", processes=3)
        _, text = self.run_program("leeway", "run", self.config, "--data", self.data, "--out",
                                   self.path("tls"), "--processes", 2, "--tls")
        self.assertIn("mutual TLS", self.log("tls/logs/server.log"))
        self.assertEqual(self.show("plain")["rounds"][-1]["model_sha256"],
                         self.show("tls")["rounds"][-1]["model_sha256"])
        for folder, _, names in os.walk(self.path("tls", "certs")):
            for name in names:
                mode = stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)
                self.assertEqual(mode, 0o600 if name.endswith(".key") else 0o644, name)

    def test_who_may_take_part(self):
        pki = self.path("pki")
        self.certs("client", pki, "client_000", "--examples", 20)
        self.certs("client", pki, "client_001", "client_002", "--name", "pair")
        self.certs("client", pki, "client_000", "--examples", 19, "--name", "small")
        self.certs("client", pki, "client_000", "--name", "lost")
        self.certs("revoke", pki, "lost")
        self.certs("init", self.path("foreign"))
        self.certs("client", self.path("foreign"), "client_000")
        server, address = self.serve()

        # Refused by the server, by name, at once.
        for name, folder, words in [
            ("pair", "client_000", ["pair", "does not name client 'client_000'"]),
            ("small", "client_000", ["20 examples", "allows 19"]),
            ("lost", "client_000", ["'lost' has been revoked"]),
        ]:
            code, text = self.client(address, name, folder)
            self.assertEqual(code, 1, text)
            for word in words:
                self.assertIn(word, text)
        # No handshake: another authority, no certificate, an expired one, an older protocol.
        shutil.copy(self.path("pki", "ca.crt"), self.path("foreign", "theirs.crt"))
        code, text = self.client(address, "client_000", "client_000", pki="foreign", ca="pki")
        self.assertEqual(code, 2, text)
        self.assertIn("not made by the authority", text)
        self.assert_no_handshake(address, "-cert", self.path("foreign", "client_000.crt"),
                                 "-key", self.path("foreign", "client_000.key"))
        self.assert_no_handshake(address)
        self.assert_no_handshake(address, *self.expired())
        own = ["-cert", self.path("pki", "client_000.crt"),
               "-key", self.path("pki", "client_000.key")]
        self.assert_no_handshake(address, "-tls1_2", *own)
        greeting, text = self.s_client(address, "-tls1_3", *own)
        self.assertNotEqual(greeting, b"", text)
        # A client that does not trust the server does not talk to it.
        code, text = self.client(address, "client_000", "client_000", pki="foreign", give_up=1)
        self.assertEqual(code, 1, text)
        self.assertIn("of one authority", text)
        # Without TLS nobody answers either.
        code, text = self.run_program("leeway-client", "--server", address, "--give-up", 1,
                                      os.path.join(self.data, "client_000"), check=False)
        self.assertEqual(code, 1, text)

        # The enrolled succeed right after.
        enrolled = [
            self.start("leeway-client", "--server", address, *self.flags("client_000"),
                       os.path.join(self.data, "client_000")),
            self.start("leeway-client", "--server", address, *self.flags("pair"),
                       os.path.join(self.data, "client_001"),
                       os.path.join(self.data, "client_002")),
        ]
        for client in enrolled:
            self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0)
        self.assertEqual([r["reports"] for r in self.show()["rounds"]], [3] * 4)
        self.assertNotIn("PRIVATE KEY", self.log("server.log"))

    def expired(self):
        """A certificate of our authority that ended yesterday, made by OpenSSL."""
        pki = self.path("pki")
        run = lambda *a: subprocess.run(["openssl", *a], check=True, cwd=pki,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", "old.key", "-out", "old.csr", "-subj", "/CN=old")
        open(os.path.join(pki, "index.txt"), "w").close()
        with open(os.path.join(pki, "ca.conf"), "w") as f:
            f.write("[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\npolicy=p\n"
                    "rand_serial=yes\n[p]\ncommonName=supplied\n")
        run("ca", "-batch", "-config", "ca.conf", "-cert", "ca.crt", "-keyfile", "ca.key", "-md",
            "sha256", "-in", "old.csr", "-out", "old.crt", "-startdate", "20200101000000Z",
            "-enddate", "20200102000000Z")
        return ["-cert", self.path("pki", "old.crt"), "-key", self.path("pki", "old.key")]

    def test_a_certificate_revoked_during_the_run_is_refused_from_then_on(self):
        pki = self.path("pki")
        for i in range(3):
            self.certs("client", pki, f"client_00{i}")
        self.write("c.textproto", CONFIG.replace("rounds: 4", "rounds: 100000") +
                   "cohort { minimum_reports: 1 deadline_seconds: 2 }")
        server, address = self.serve()
        clients = [self.start("leeway-client", "--server", address, *self.flags(f"client_00{i}"),
                              os.path.join(self.data, f"client_00{i}"), log=f"client{i}.log")
                   for i in range(3)]
        self.await_text("server.log", "joined")
        self.certs("revoke", pki, "client_001")
        self.assertEqual(clients[1].wait(TIMEOUT), 1)
        self.assertIn("'client_001' has been revoked", self.log("client1.log"))
        self.assertIsNone(server.poll())
        self.assertIsNone(clients[0].poll())

    def test_a_client_that_waits_is_cut_off_when_it_is_revoked(self):
        pki = self.path("pki")
        self.certs("client", pki, "client_000")
        self.certs("client", pki, "client_001", "--name", "other")
        server, address = self.serve()
        client = self.start("leeway-client", "--server", address, *self.flags("client_000"),
                            os.path.join(self.data, "client_000"), log="client.log")
        self.await_text("server.log", " joined ")
        # A list that cannot be read stops newcomers, by name, and nobody who is connected.
        os.rename(self.path("pki", "revoked.crl"), self.path("pki", "away.crl"))
        self.write("pki/revoked.crl", "not a list\n")
        text = self.refused_newcomer(address)
        self.assertIn(self.path("pki", "revoked.crl"), text)
        self.assertIn("is not a revocation list", text)
        self.assertIsNone(client.poll())
        os.rename(self.path("pki", "away.crl"), self.path("pki", "revoked.crl"))
        # It has no order to answer: the server ends its stream.
        self.certs("revoke", pki, "client_000")
        self.assertEqual(client.wait(TIMEOUT), 1)
        self.assertIn("'client_000' has been revoked", self.log("client.log"))
        self.await_text("server.log", " left client_000 (pid ")

    def refused_newcomer(self, address):
        """What a client says that is not let in. The server reads its list at most once a second: until
        then the client joins, and another is tried."""
        while True:
            joined = self.log("server.log").count(" joined ")
            client = self.start("leeway-client", "--server", address, "--give-up", 2, *self.flags("other"),
                                os.path.join(self.data, "client_001"), log="newcomer.log")
            while client.poll() is None and self.log("server.log").count(" joined ") == joined:
                time.sleep(0.01)
            if client.poll() is not None:
                self.assertEqual(client.poll(), 1)
                return self.log("newcomer.log")
            client.kill()
            client.wait()
            self.await_text("server.log", " left client_001 ", self.log("server.log").count(" joined ") - 1)

    def test_who_was_not_let_in_is_in_the_log_and_the_events(self):
        pki = self.path("pki")
        for i in range(3):
            self.certs("client", pki, f"client_00{i}")
        self.certs("client", pki, "client_000", "--name", "lost")
        self.certs("revoke", pki, "lost")
        self.certs("client", pki, "client_009", "--name", "stranger")
        server, address = self.start_server(self.config, 3, "run", *self.flags("server"), "--revoked",
                                            self.path("pki", "revoked.crl"), "--log-format", "json")
        for name in ("lost", "stranger"):
            self.assertEqual(self.client(address, name, "client_000")[0], 1)
        first = self.start("leeway-client", "--server", address, *self.flags("client_000"),
                           os.path.join(self.data, "client_000"))
        self.await_text("server.log", '"joined"')
        code, text = self.client(address, "client_000", "client_000")  # a second process of that name
        self.assertEqual(code, 1, text)
        others = [self.start("leeway-client", "--server", address, *self.flags(f"client_00{i}"),
                             os.path.join(self.data, f"client_00{i}")) for i in (1, 2)]
        for client in (first, *others):
            self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0)
        lines = [json.loads(line) for line in self.log("server.log").splitlines()]
        for line in lines:
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT[\d:.]+Z$")
            self.assertIn(line["level"], ("info", "warning", "error"))
        events = self.show()["events"]
        for words in ("'lost' has been revoked", "does not name client 'client_000'", "client 'client_000'"):
            refused = [l for l in lines if l["what"] == "refused" and words in l["text"]]
            self.assertTrue(refused, f"{words}: {lines}")
            self.assertEqual(refused[0]["level"], "warning")
            self.assertTrue([e for e in events if words in e["text"]], events)
        self.assertEqual([l["text"] for l in lines if l["what"] == "phase"], ["1 of 1 begins: train"])
        self.assertEqual(lines[-1]["what"], "done")
        # What a run leaves is for its owner alone.
        for folder, _, names in os.walk(self.path("run")):
            self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700, folder)
            for name in names:
                self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o600, name)

    def test_a_key_that_everybody_can_read_is_refused(self):
        key = self.path("pki", "server.key")
        os.chmod(key, 0o644)
        code, text = self.run_program("leeway-server", "--config", self.config, "--state", self.path("s"),
                                      "--clients", 3, *self.flags("server"), check=False)
        self.assertEqual(code, 2, text)
        self.assertIn(f"chmod 600 {key}", text)

    def test_files_that_cannot_be_used_are_named(self):
        pki = self.path("pki")
        self.certs("client", pki, "client_000")
        good = self.flags("client_000")
        other = dict(zip(("--tls-ca", "--tls-cert", "--tls-key"), self.flags("server")[1::2]))
        os.mkdir(self.path("folder"))
        os.symlink("circle", self.path("circle"))
        self.write("empty", "")
        self.write("text", "not a certificate\n")
        cut = self.write("cut", self.log("pki/client_000.crt")[:200])
        cases = [(flag, self.path(name), words) for flag in good[::2] for name, words in
                 [("missing", "No such file"), ("folder", "directory"), ("empty", "it is empty"),
                  ("circle", "symbolic links"), ("text", "PEM")]]
        cases += [("--tls-cert", cut, "PEM"), ("--tls-key", other["--tls-key"], "is not the private key of")]
        if os.getuid() != 0:  # root reads everything
            os.chmod(self.write("secret", "x"), 0)
            cases.append(("--tls-key", self.path("secret"), "Permission denied"))
        callers = [("leeway-server", "--config", self.config, "--state", self.path("s"), "--clients", 3,
                    "--listen", "127.0.0.1:0"),
                   ("leeway-client", "--server", "127.0.0.1:9", os.path.join(self.data, "client_000")),
                   ("leeway", "health", "127.0.0.1:9")]
        for flag, file, words in cases:
            flags = list(good)
            flags[flags.index(flag) + 1] = file
            for caller in callers:
                with self.subTest(f"{caller[0]} {flag} {file}"):
                    code, text = self.run_program(*caller, *flags, check=False)
                    self.assertIn(code, (1, 2), text)
                    self.assertIn(file, text)
                    self.assertIn(words, text)
                    self.assertEqual(len(text.splitlines()), 1, text)
        for caller in callers:
            code, text = self.run_program(*caller, *good[:4], check=False)
            self.assertIn(code, (1, 2), text)
            self.assertIn("--tls-key", text)
        code, text = self.run_program(*callers[0], *self.flags("server"), "--revoked", self.path("missing"), check=False)
        self.assertIn(code, (1, 2), text)
        self.assertIn(self.path("missing"), text)

    def test_without_tls_only_this_machine(self):
        common = ["--config", self.config, "--state", self.path("s"), "--clients", 3]
        code, text = self.run_program("leeway-server", *common, "--listen", "0.0.0.0:0",
                                      check=False)
        self.assertEqual(code, 2)
        self.assertIn("--insecure-anywhere", text)
        # Names that begin like this machine's addresses, and lists of addresses, are others'.
        for address in ("192.0.2.1:1", "127.evil.example:1", "127.0.0.1.evil.example:1",
                        "ipv4:127.0.0.1:1,192.0.2.1:1"):
            code, text = self.run_program("leeway-client", "--server", address, "--give-up", 1,
                                          os.path.join(self.data, "client_000"), check=False)
            self.assertEqual(code, 2, address)
            self.assertIn("--insecure-anywhere", text)
        for address in ("127.1.2.3:1", "ipv4:127.0.0.1:1", "[::1]:1", "localhost:1"):
            code, text = self.run_program("leeway-client", "--server", address, "--give-up", 0,
                                          os.path.join(self.data, "client_000"), check=False)
            self.assertEqual(code, 1, address)
            self.assertIn("no server at", text)

    def test_the_list_shows_state_and_expiry(self):
        pki = self.path("pki")
        self.certs("client", pki, "client_000", "--examples", 20, "--days", 30)
        self.certs("client", pki, "--any", "--name", "cluster")
        self.certs("revoke", pki, "cluster")
        _, text = self.certs("list", pki)
        self.assertRegex(text, r"client_000 +client +valid +20\d\d-\d\d-\d\d .*at most 20 examples")
        self.assertRegex(text, r"cluster +client +revoked .* any client")
        self.assertRegex(text, r"server +server +valid .* localhost 127.0.0.1 ::1")
        _, text = self.certs("list", pki, "--json")
        listed = {c["name"]: c for c in json.loads(text)}
        self.assertEqual({n: (c["kind"], c["state"]) for n, c in listed.items()},
                         {"server": ("server", "valid"), "client_000": ("client", "valid"),
                          "cluster": ("client", "revoked")})
        self.assertEqual(listed["client_000"]["clients"], [{"client": "client_000", "examples": 20}])
        self.assertEqual(listed["cluster"]["clients"], [{"client": None, "examples": 1000000}])
        self.assertEqual(listed["server"]["hosts"], ["localhost", "127.0.0.1", "::1"])
        code, text = self.certs("revoke", pki, "nobody", check=False)
        self.assertEqual(code, 2)
        self.assertIn("nobody", text)
        code, text = self.certs("server", pki, check=False)
        self.assertEqual(code, 2)
        self.assertIn("--renew", text)


if __name__ == "__main__":
    unittest.main()
