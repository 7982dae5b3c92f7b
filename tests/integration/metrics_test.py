"""/metrics: read by Prometheus itself, and true to the run's records."""

import json
import math
import os
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from leeway_case import SOURCE, TIMEOUT, LeewayCase

CONFIG = """
seed: 3
model { linear_regression {} }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.01 steps: [1, 5] } }
phases { train { rounds: 25 local { step_size: 0.01 steps: 5 } } }
"""


def get(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return answer.read().decode()


def samples(text):
    """{'name{labels}': value} of the text format."""
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def same(a, b):
    """prometheus-cpp writes 16 digits, one fewer than a double may need."""
    return math.isclose(a, b, rel_tol=1e-14)


class MetricsTest(LeewayCase):
    def setUp(self):
        super().setUp()
        if shutil.which("promtool") is None:
            self.skipTest("prometheus is not installed")

    def start_run(self, rounds=25):
        data = self.synthetic(clients=4, samples=30, dimension=5)
        config = self.write("c.textproto", CONFIG.replace("rounds: 25", f"rounds: {rounds}"))
        server, address = self.start_server(config, 4, "run", "--dashboard", "0")
        address, url = address.split("\n")
        clients = [os.path.join(data, f"client_00{i}") for i in range(4)]
        return server, address, url + "metrics", clients

    def await_sample(self, url, name, least):
        while True:
            now = samples(get(url))
            if now.get(name, 0) >= least:
                return now

    def test_counts_are_those_of_the_records(self):
        server, address, url, clients = self.start_run(rounds=100000)
        text = get(url)
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        started = [self.start("leeway-client", "--server", address, *clients)]
        now = self.await_sample(url, 'leeway_rounds_total{kind="train"}', 50)
        self.assertEqual(now["leeway_clients_joined"], 4)
        self.assertEqual(now['leeway_run_state{state="running"}'], 1)
        self.assertGreater(now["leeway_resident_bytes"], 1e6)
        server.terminate()
        self.assertEqual(server.wait(TIMEOUT), 3)
        shown = self.show()
        # What was scraped is a moment of the run that the records still tell.
        rounds = int(now['leeway_rounds_total{kind="train"}'])
        self.assertGreaterEqual(len(shown["rounds"]), rounds)
        self.assertEqual(now['leeway_reports_total{kind="probe"}'], 4)
        losses = [r["loss"] for r in shown["rounds"][rounds - 2:rounds + 2]]
        self.assertTrue(any(same(now["leeway_loss"], loss) for loss in losses), losses)
        probe = shown["probes"][0]["steps"][-1]
        for name in ("average_drift_squared", "drift_bound"):
            self.assertTrue(same(now[f'leeway_{name}{{kind="probe"}}'], probe[name]), name)
        self.assertGreaterEqual(now["leeway_commit_seconds_count"], rounds)
        self.assertGreater(now['leeway_bytes_total{what="reports"}'], 0)
        started[0].kill()

    def test_prometheus_scrapes_it(self):
        server, address, url, clients = self.start_run(rounds=100000)
        self.start("leeway-client", "--server", address, *clients)
        self.await_sample(url, 'leeway_rounds_total{kind="train"}', 10)
        target = urllib.parse.urlparse(url).netloc
        file = self.write("prometheus.yml", f"""
global: {{scrape_interval: 1s}}
rule_files: ["{SOURCE}/docs/metrics/leeway.rules.yml"]
scrape_configs:
  - job_name: leeway
    static_configs: [{{targets: ["{target}"]}}]
""")
        with open(self.path("prometheus.log"), "w") as log:
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={self.path('tsdb')}",
                 "--web.listen-address=127.0.0.1:0"], stdout=log, stderr=subprocess.STDOUT)
        self.children.append(prometheus)
        found = None
        while not found:
            self.assertIsNone(prometheus.poll(), self.log("prometheus.log"))
            found = re.search(r"Listening on.*address=(127\.0\.0\.1:\d+)", self.log("prometheus.log"))
        base = f"http://{found[1]}/api/v1/query?query="
        value = 0
        while value < 10:
            try:
                answer = json.loads(get(base + urllib.parse.quote('leeway_rounds_total{kind="train"}')))
            except urllib.error.HTTPError:  # it is still starting
                continue
            value = max([float(r["value"][1]) for r in answer["data"]["result"]], default=0)
        targets = json.loads(get(f"http://{found[1]}/api/v1/targets"))["data"]["activeTargets"]
        self.assertEqual([(t["health"], t["lastError"]) for t in targets], [("up", "")])

    def test_rules_and_dashboard_name_what_is_there(self):
        done = subprocess.run(["promtool", "check", "rules", f"{SOURCE}/docs/metrics/leeway.rules.yml"],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        _, _, url, _ = self.start_run()
        there = set(re.findall(r"^# TYPE (\S+)", get(url), re.M))
        with open(f"{SOURCE}/docs/metrics/grafana.json") as f:
            dashboard = json.load(f)
        with open(f"{SOURCE}/docs/metrics/leeway.rules.yml") as f:
            text = f.read() + json.dumps(dashboard["panels"])
        named = {re.sub("_bucket$", "", n) for n in re.findall(r"leeway_[a-z_]+", text)}
        # Families without a sample yet are not listed; these appear with the first one.
        later = {"leeway_rounds_total", "leeway_reports_total", "leeway_refusals_total", "leeway_loss",
                 "leeway_accuracy", "leeway_average_drift_squared", "leeway_drift_bound"}
        self.assertLessEqual(named, there | later)
        self.assertGreater(len(named), 8)


if __name__ == "__main__":
    unittest.main()
