"""The dashboard in a real browser, against real runs: what it shows is what `leeway show --json`
says, it survives its server, and a client's name is never more than text."""

import http.client
import json
import os
import signal
import socket
import unittest
import urllib.error
import urllib.request

from browser import BROWSER, Browser
from leeway_case import TIMEOUT, LeewayCase

CONFIG = """
name: "watched"
seed: 3
model { linear_regression { intercept: false } }
cohort { minimum_reports: 1 deadline_seconds: 120 }
phases { constants {} }
phases { optimum {} }
phases { probe { point: OPTIMUM auto_step_size: true steps: [1, 2, 5, 10] } }
phases { fixed_point { auto_step_size: true steps: [1, 2, 5, 10] } }
phases { train { rounds: 30 local { auto_step_size: true steps: 5 } } }
phases { evaluate {} }
"""

# Without a slash, because a client's name is its directory's.
HOSTILE = ["<script>alert(1)<script>", "<img src=x onerror=alert(1)>"]


def get(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        return answer.read().decode(), answer.headers


@unittest.skipIf(BROWSER is None, "chromium is not installed")
class DashboardTest(LeewayCase):
    def browse(self, url, **options):
        browser = Browser(**options)
        self.addCleanup(browser.close)
        browser.open(url)
        return browser

    def assert_quiet(self, browser, allowed=()):
        """No exception, no dialog, nothing that the security policy had to stop."""
        for message in browser.messages:
            text = json.dumps(message)
            if not any(word in text for word in allowed):
                self.fail(text)

    def start_watched(self, clients=6, config=CONFIG, state="run", failpoint=None):
        data = self.synthetic(name="data-" + state, clients=clients, samples=40, dimension=5)
        for i, name in enumerate(HOSTILE):
            os.rename(os.path.join(data, f"client_00{i}"), os.path.join(data, name))
        file = self.write("c.textproto", config)
        server, address = self.start_server(file, clients, state, "--dashboard", "127.0.0.1:0",
                                            failpoint=failpoint)
        address, url = address.split("\n")
        folders = sorted(f for f in os.listdir(data) if os.path.isdir(os.path.join(data, f)))
        return server, address, url, [os.path.join(data, f) for f in folders], file

    def join(self, address, folders):
        return [self.start("leeway-client", "--server", address, "--give-up", TIMEOUT, f) for f in folders]

    def column(self, browser, table, index):
        """Exact values of a table's column."""
        return browser.evaluate(
            f"[...document.querySelectorAll('#{table} tbody tr')].map((r) => "
            f"r.children[{index}].dataset.value === undefined ? null : Number(r.children[{index}].dataset.value))")

    def assert_same_values(self, browser, shown):
        """Every number on the page is the one that `leeway show --json` gives."""
        probe = shown["probes"][-1]["steps"]
        for index, name in enumerate(["h", "unbiased_drift_squared", "interval_low", "interval_high",
                                      "drift_bound", "classic_bound"]):
            self.assertEqual(self.column(browser, "drift-h-table", index), [s[name] for s in probe], name)
        rounds = shown["rounds"][-20:][::-1]
        for index, name in enumerate(["round", "local_steps", "loss", "unbiased_drift_squared", "drift_bound",
                                      "reports", "seconds"]):
            self.assertEqual(self.column(browser, "rounds-table", index), [r[name] for r in rounds], name)
        evaluations = shown["evaluations"]
        for index, name in enumerate(["trained_rounds", "test_loss", "accuracy"]):
            self.assertEqual(self.column(browser, "evaluations-table", index),
                             [e[name] for e in evaluations], name)
        final = shown["final_loss"]
        self.assertEqual(browser.evaluate("Number(document.getElementById('loss-now').dataset.value)"), final["loss"])
        self.assertIn(f"after {final['rounds']} rounds", browser.evaluate("document.getElementById('loss-now').textContent"))
        # The charts have the names of the report, and count the rounds that a model has behind it.
        self.assertEqual(browser.evaluate("Charts.seriesOf('drift-r').map((s) => s.label)"), ["ρ²", "Jensen bound"])
        loss = browser.evaluate("Charts.seriesOf('loss')[0].data.map((p) => [p.x, p.y])")
        self.assertEqual(loss, [[r["round"] - 1, r["loss"]] for r in shown["rounds"]] + [[final["rounds"], final["loss"]]])
        self.assertEqual(browser.evaluate("run.rounds"), shown["rounds"])
        self.assertEqual(browser.evaluate("run.fixed_points"), shown["fixed_points"])

    def assert_other_measures(self, browser):
        """What has no chart of its own is drawn when the box is opened, with what it is."""
        for name in ("loss standard error", "‖w − w*‖²"):
            self.assertIn(name, browser.evaluate("document.getElementById('measures-text').textContent"))
        browser.evaluate("document.getElementById('measures-box').open = true")
        browser.wait("document.getElementById('measure-0-distance_squared').offsetHeight > 50")
        self.assertIn("without an optimum before",
                      browser.evaluate("document.getElementById('measure-0-distance_squared-section').innerText"))

    def test_a_live_run_in_the_browser(self):
        server, address, url, folders, _ = self.start_watched()
        browser = self.browse(url)
        browser.wait("document.getElementById('progress-text').textContent === '0 of 6 clients have joined.'")
        # What is not there yet is said; no bare axes, no heads of empty tables.
        for name, words in [("drift-h-none", "No probe yet."), ("drift-r-none", "No training round yet."),
                            ("clients-text", "No client has joined yet."), ("events-text", "Nothing has happened yet.")]:
            self.assertEqual(browser.evaluate(f"document.getElementById('{name}').innerText"), words)
        self.assertEqual(browser.evaluate("[...document.querySelectorAll('.chart, #clients, #events')]"
                                          ".filter((e) => e.offsetParent !== null).length"), 0)
        some = self.join(address, folders[:5])
        browser.wait("document.getElementById('progress-text').textContent === '5 of 6 clients have joined.'")
        some += self.join(address, folders[5:])
        browser.wait("document.getElementById('state').textContent === 'done'")
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for client in some:
            self.assertEqual(client.wait(TIMEOUT), 0)
        # The server is gone; the page keeps all it was told.
        browser.wait("document.getElementById('connection').textContent === 'the server has ended'")
        self.assert_same_values(browser, self.show())
        _, text = self.run_program("leeway", "drift", self.path("run"), "--json")
        verdict = json.loads(text)
        self.assertEqual(browser.evaluate("document.getElementById('verdict').textContent"),
                         verdict["sentence"])
        self.assertEqual(self.column(browser, "evidence", 1), [e["gap"] for e in verdict["evidence"]])
        self.assert_other_measures(browser)
        # A name is text, wherever it is shown.
        for name in HOSTILE:
            self.assertIn(name, browser.evaluate("document.getElementById('clients').innerText"))
        self.assertEqual(browser.evaluate("document.images.length"), 0)
        self.assertEqual(browser.evaluate("document.scripts.length"), 3)
        self.assert_quiet(browser)

    def test_a_page_survives_its_server(self):
        # One client stands still before its 110th report, and no round ends without it: the
        # middle of the run lasts as long as we need it.
        config = CONFIG.replace("rounds: 30", "rounds: 200")
        config = config.replace("minimum_reports: 1 deadline_seconds: 120", "minimum_reports: 6 deadline_seconds: 1200")
        server, address, url, folders, file = self.start_watched(config=config)
        browser = self.browse(url)
        held = self.start("leeway-client", "--server", address, "--give-up", TIMEOUT, folders[0],
                          failpoint="client.before_send:110:stop")
        clients = [held, *self.join(address, folders[1:])]
        self.await_stopped(held)
        browser.wait("run.rounds.length > 20")
        server.send_signal(signal.SIGKILL)
        server.wait(TIMEOUT)
        browser.wait("document.getElementById('connection').textContent.startsWith('connection lost')")
        before = browser.evaluate("run.rounds.length")
        server = self.start("leeway-server", "--config", file, "--state", self.path("run"), "--clients", 6,
                            "--listen", address, "--dashboard", url.split("/")[2], log="server2.log")
        # It goes on where it was, without loading the page or the past again.
        browser.wait("document.getElementById('connection').textContent === 'live'")
        held.send_signal(signal.SIGCONT)
        browser.wait("document.getElementById('state').textContent === 'done'")
        self.assertGreater(browser.evaluate("run.rounds.length"), before)
        for client in clients:
            self.assertEqual(client.wait(TIMEOUT), 0)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server2.log"))
        self.assert_same_values(browser, self.show())
        self.assert_quiet(browser, allowed=["net::ERR_"])

    def test_a_client_that_is_away_says_since_when_and_why(self):
        config = CONFIG.replace("rounds: 30", "rounds: 100000")
        _, address, url, folders, _ = self.start_watched(config=config)
        browser = self.browse(url)
        clients = self.join(address, folders)
        browser.wait("run.rounds.length > 5")
        clients[4].kill()
        browser.wait("document.querySelector('#clients td.trouble').closest('tr').innerText.includes('ended')")
        row = browser.evaluate("document.querySelector('#clients td.trouble').closest('tr').innerText")
        name = os.path.basename(folders[4])
        self.assertIn(name, row)
        self.assertRegex(row, r"away since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
        self.assertIn("connection", row)
        self.assert_quiet(browser)

    def test_a_finished_run_on_phone_and_in_the_dark(self):
        server, address, _, folders, _ = self.start_watched()
        clients = self.join(address, folders)
        self.assertEqual(server.wait(TIMEOUT), 0, self.log("server.log"))
        for client in clients:
            client.wait(TIMEOUT)
        self.start("leeway", "dashboard", self.path("run"), "--listen", "0", log="dashboard.log")
        url = self.await_url("dashboard.log")
        # The same bytes as the command's.
        _, shown = self.run_program("leeway", "show", self.path("run"), "--json")
        self.assertEqual(get(url + "api/run")[0], shown)
        phone = self.browse(url, width=360, height=740, dark=True)
        phone.wait("document.getElementById('state').textContent === 'done'")
        self.assert_same_values(phone, json.loads(shown))
        self.assert_other_measures(phone)
        # Nothing is wider than the screen, and dark is dark.
        self.assertEqual(phone.evaluate("document.documentElement.scrollWidth"), 360)
        self.assertEqual(phone.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(18, 22, 28)")
        # An event's text is whole, and so is every chart.
        self.assertEqual(phone.evaluate(
            "[...document.querySelectorAll('#events td, canvas')].filter((e) => e.offsetParent !== null && "
            "(e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1)).length"), 0)
        # Axes are switched between linear and logarithmic.
        before = phone.evaluate("document.getElementById('loss-log').checked")
        phone.evaluate("document.getElementById('loss-log').click()")
        self.assertEqual(phone.evaluate("document.getElementById('loss-log').checked"), not before)
        self.assertEqual(phone.evaluate("Charts.scaleOf('loss')"), "linear" if before else "logarithmic")
        # By keyboard alone: every stop is visible, and the tables are among them.
        stops = phone.evaluate(
            "[...document.querySelectorAll('a, select, summary, [tabindex=\"0\"]')].map((e) => "
            "{ e.focus(); return document.activeElement === e || e.closest('details:not([open])') !== null; })")
        self.assertGreater(len(stops), 6)
        self.assertTrue(all(stops))
        self.assert_quiet(phone)

    def await_url(self, log):
        with open(self.path(log)) as f:
            while True:
                for word in f.read().split():
                    if word.startswith("http://"):
                        return word
                if self.children[-1].poll() is not None:
                    self.fail(self.log(log))
                f.seek(0)

    def test_only_our_own_files_and_only_for_us(self):
        _, _, url, _, _ = self.start_watched()
        for path in ("", "app.js", "style.css", "chart.min.js", "api/run"):
            _, headers = get(url + path)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        for host in ("evil.example", "127.0.0.1.evil.example:80", "127.evil.example"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                get(url, host)
            self.assertEqual(refused.exception.code, 421, host)
            refused.exception.close()
        connection = http.client.HTTPConnection(url.split("/")[2], timeout=TIMEOUT)
        for method in ("POST", "PUT", "DELETE"):
            connection.request(method, "/api/run", body="{}")
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, 405)
        connection.close()

    def test_what_cannot_be_shown_is_said(self):
        code, text = self.run_program("leeway", "dashboard", self.path("nothing"), check=False)
        self.assertEqual(code, 2)
        self.assertIn("holds no run", text)
        _, _, url, _, _ = self.start_watched()
        taken = url.split("/")[2]
        code, text = self.run_program("leeway", "dashboard", self.path("run"), "--listen", taken, check=False)
        self.assertEqual(code, 1)
        self.assertIn(f"cannot listen on {taken}", text)
        file = self.write("d.textproto", CONFIG)
        for listen, code, words in [(taken, 1, "cannot listen on"), ("nowhere", 2, "HOST:PORT"),
                                    ("127.0.0.1:99999", 2, "HOST:PORT")]:
            got, text = self.run_program("leeway-server", "--config", file, "--state", self.path("other"),
                                         "--clients", 2, "--listen", "127.0.0.1:0", "--dashboard", listen,
                                         check=False)
            self.assertEqual(got, code, text)
            self.assertIn(words, text)


class DashboardRequestsTest(LeewayCase):
    """Requests that no browser sends."""

    def setUp(self):
        super().setUp()
        file = self.write("c.textproto", CONFIG)
        _, address = self.start_server(file, 2, "run", "--dashboard", "127.0.0.1:0")
        self.url = address.split("\n")[1]
        host, port = self.url.split("/")[2].split(":")
        self.address = (host, int(port))

    def connect(self, text):
        connection = socket.create_connection(self.address, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.sendall(text.encode())
        return connection

    def taken(self, connection, piece, mebibytes=64):
        """How many MiB of an endless request were taken, what lies in the sockets' buffers included."""
        for sent in range(mebibytes):
            try:
                connection.sendall(piece * (2**20 // len(piece)))
            except OSError:
                return sent
        return mebibytes

    def test_a_body_is_not_read(self):
        head = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        # The answer comes before the body, and then the connection ends.
        with self.connect(head).makefile("rb") as answer:
            text = answer.read().decode()
        self.assertIn(" 405 ", text.splitlines()[0])
        self.assertIn("GET, HEAD", text)
        piece = b"400\r\n" + b"x" * 1024 + b"\r\n"
        self.assertLess(self.taken(self.connect(head), piece), 32)
        get(self.url)

    def test_a_request_without_end_is_cut_off(self):
        for head in ("GET /", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "):
            self.assertLess(self.taken(self.connect(head), b"x" * 1024), 32, head)
        get(self.url)

    def test_many_watchers_leave_room_for_the_page(self):
        answers = []
        for _ in range(40):
            watcher = self.connect("GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answers.append(watcher.recv(12))
        self.assertEqual(answers.count(b"HTTP/1.1 200"), 24)
        self.assertEqual(answers.count(b"HTTP/1.1 503"), 16)
        self.assertIn("<html", get(self.url)[0])

    def test_connections_that_say_nothing_do_not_stay(self):
        silent = [self.connect("GET") for _ in range(40)]
        self.assertIn("<html", get(self.url)[0])
        for connection in silent:
            self.assertNotIn(b" 200 ", connection.recv(100))


if __name__ == "__main__":
    unittest.main()
