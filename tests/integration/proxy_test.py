"""HAProxy in front of a real server, with the configuration in docs/deploy: identities pass through it, floods do not."""

import base64
import os
import shutil
import subprocess
import tempfile
import time
import unittest

import attacks
from leeway_case import BIN, TIMEOUT, LeewayCase

try:
    import grpc
except ImportError:
    grpc = None

HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"
ROUNDS = 300


@unittest.skipUnless(os.path.exists(HAPROXY), "HAProxy is not installed")
class ProxyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="leeway-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def honest(self, name, rounds=ROUNDS, proxy=True):
        return attacks.honest(BIN, self.folder, name, rounds, proxy=proxy)

    def test_a_run_through_the_proxy_ends_with_the_same_bits(self):
        with self.honest("direct", proxy=False) as run:
            expected = run.finish()
        with self.honest("proxied") as run:
            self.assertEqual(run.finish(), expected)
            self.assertIn("(behind a proxy)", run.log())

    def test_floods_stop_at_the_proxy(self):
        with self.honest("alone", proxy=False) as run:
            expected = run.finish()
        for kind in ("reset", "continuation"):
            with self.honest(kind) as run:
                run.await_rounds()
                before = run.memory("VmRSS")
                attempts = attacks.ATTACKS[kind](run.target, time.monotonic() + 2)
                peak = run.memory("VmHWM")
                print(f"{kind}: {attempts} attempts, server's memory {before:.0f} MB before, {peak:.0f} MB at most")
                self.assertGreater(attempts, 0)
                if peak > 0:  # it has not ended yet
                    self.assertLess(peak, before + 100)
                self.assertEqual(run.finish(), expected)

    def test_the_proxy_tells_the_server_who_calls(self):
        with self.honest("run", rounds=1 << 30) as run:
            run.await_rounds()
            data = os.path.join(self.folder, "data")

            def join(certificate, client):
                return subprocess.run(
                    [os.path.join(BIN, "leeway-client"), "--server", run.target["address"], "--give-up", "30",
                     *run.tls(certificate), os.path.join(data, client)],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT).stdout

            self.assertIn("does not name client 'client_000'", join("unused", "client_000"))
            run.leeway("certs", "init", os.path.join(self.folder, "foreign"))
            run.leeway("certs", "client", os.path.join(self.folder, "foreign"), "client_000")
            shutil.copy(os.path.join(self.folder, "foreign", "client_000.crt"), os.path.join(run.pki, "f.crt"))
            shutil.copy(os.path.join(self.folder, "foreign", "client_000.key"), os.path.join(run.pki, "f.key"))
            self.assertNotIn("joined", join("f", "client_000"))

    @unittest.skipUnless(grpc, "grpcio is not installed")
    def test_what_the_header_must_be(self):
        with self.honest("run", rounds=1 << 30) as run:
            run.await_rounds()
            foreign = os.path.join(self.folder, "foreign")
            run.leeway("certs", "init", foreign)
            run.leeway("certs", "client", foreign, "--observer")

            def der(path):
                with open(path) as f:
                    return "".join(line.strip() for line in f if "-----" not in line)

            own = der(os.path.join(run.pki, "observer.crt"))
            with grpc.insecure_channel(f"unix:{run.state}.sock") as channel:
                observe = channel.unary_stream("/leeway.v1.Federation/Observe")

                def call(*certificates):
                    answers = observe(b"", metadata=[("x-leeway-certificate", c) for c in certificates],
                                      timeout=TIMEOUT)
                    try:
                        next(answers)
                        return grpc.StatusCode.OK
                    except grpc.RpcError as error:
                        return error.code()
                    finally:
                        answers.cancel()

                self.assertEqual(call(own), grpc.StatusCode.OK)
                for wrong in ((), (own, own), ("",), ("!",), (base64.b64encode(b"x" * 500).decode(),),
                              (der(os.path.join(foreign, "observer.crt")),)):
                    self.assertEqual(call(*wrong), grpc.StatusCode.UNAUTHENTICATED, wrong)


class FlagsTest(LeewayCase):
    def test_the_flags_that_go_together(self):
        config = self.write("c.textproto", attacks.CONFIG.replace("ROUNDS", "1"))
        self.run_program("leeway", "certs", "init", self.path("pki"))
        base = ["leeway-server", "--config", config, "--state", self.path("run"), "--clients", 4, "--behind-proxy",
                self.path("pki", "ca.crt")]
        code, text = self.run_program(*base, "--listen", "127.0.0.1:0", check=False)
        self.assertEqual(code, 2, text)
        self.assertIn("give unix:PATH", text)
        code, text = self.run_program(*base, "--listen", "unix:" + self.path("s"), "--tls-ca", "a", "--tls-cert", "b",
                                      "--tls-key", "c", check=False)
        self.assertNotEqual(code, 0)


if __name__ == "__main__":
    unittest.main()
