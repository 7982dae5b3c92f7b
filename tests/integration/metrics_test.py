"""/metrics: read by Prometheus itself, and true to the run's records."""

import json
import math
import os
import re
import shutil
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import yaml

from leeway_case import SOURCE, TIMEOUT, LeewayCase, samples

CONFIG = """
seed: 3
model { linear_regression { intercept: false } }
phases { optimum {} }
phases { probe { point: OPTIMUM step_size: 0.01 steps: [1, 5] } }
phases { train { rounds: 25 local { step_size: 0.01 steps: 5 } } }
"""


def get(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return answer.read().decode()


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

    def train_until_stopped(self, address, clients, orders=80):
        """A client process that stands still at one of its orders: so does the run."""
        client = self.start("leeway-client", "--server", address, *clients,
                            failpoint=f"client.before_send:{orders}:stop")
        self.await_stopped(client)

    def test_counts_are_those_of_the_records(self):
        server, address, url, clients = self.start_run(rounds=100)
        text = get(url)
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.train_until_stopped(address, clients)
        now = samples(get(url))
        self.assertEqual(now["leeway_clients_joined"], 4)
        self.assertEqual(now['leeway_run_state{state="running"}'], 1)
        self.assertGreater(now["leeway_resident_bytes"], 1e6)
        server.terminate()
        self.assertEqual(server.wait(TIMEOUT), 3)
        shown = self.show()
        rounds = int(now['leeway_rounds_total{kind="train"}'])
        self.assertGreater(rounds, 20)
        self.assertEqual(len(shown["rounds"]), rounds)
        self.assertEqual(now['leeway_reports_total{kind="probe"}'], 4)
        self.assertTrue(same(now["leeway_loss"], shown["rounds"][-1]["loss"]))
        probe = shown["probes"][0]["steps"][-1]
        for name in ("average_drift_squared", "drift_bound"):
            self.assertTrue(same(now[f'leeway_{name}{{kind="probe"}}'], probe[name]), name)
        self.assertGreaterEqual(now["leeway_commit_seconds_count"], rounds)
        self.assertGreater(now['leeway_bytes_total{what="reports"}'], 0)

    def start_everything(self):
        """A run that does not end and has all there is to show: two classes, a test part, a refusal."""
        rng = np.random.default_rng(5)
        folders = [self.path("data", f"c{i}") for i in range(4)]
        for folder in folders:
            os.makedirs(folder)
            for part in ("train", "test"):
                x = rng.normal(size=(20, 3))
                np.save(f"{folder}/{part}_x.npy", x)
                np.save(f"{folder}/{part}_y.npy", (x[:, 0] > 0).astype(np.int64))
        config = self.write("all.textproto", """
model { softmax_regression { classes: 2 } }
phases { evaluate {} }
phases { probe { point: INITIAL step_size: 0.01 steps: [1, 5] } }
phases { train { rounds: 10000000 local { step_size: 0.01 steps: 5 } } }
cohort { closed: true }
""")
        _, address = self.start_server(config, 4, "run", "--dashboard", "0")
        address, url = address.split("\n")
        self.start("leeway-client", "--server", address, *folders)
        self.await_sample(url + "metrics", 'leeway_rounds_total{kind="train"}', 10)
        late = self.path("data", "late")
        shutil.copytree(folders[0], late)
        code, text = self.run_program("leeway-client", "--server", address, late, check=False)
        self.assertEqual(code, 1, text)
        return url + "metrics"

    def expressions(self):
        """Of the Grafana dashboard, and of the alert rules."""
        with open(f"{SOURCE}/docs/metrics/grafana.json") as f:
            panels = json.load(f)["panels"]
        drawn = [t["expr"].replace("$instance", ".*") for p in panels for t in p["targets"]]
        with open(f"{SOURCE}/docs/metrics/leeway.rules.yml") as f:
            rules = yaml.safe_load(f)["groups"][0]["rules"]
        return drawn, [r["expr"] for r in rules]

    def test_rules_and_dashboard_name_what_is_there(self):
        done = subprocess.run(["promtool", "check", "rules", f"{SOURCE}/docs/metrics/leeway.rules.yml"],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        there = samples(get(self.start_everything()))
        names = {name.split("{")[0] for name in there}
        drawn, rules = self.expressions()
        named = set(re.findall(r"leeway_[a-z_]+", " ".join(drawn + rules)))
        self.assertLessEqual(named, names)
        self.assertGreater(len(named), 12)
        for name, value in re.findall(r'(\w+)="([a-z_]+)"', " ".join(rules)):
            self.assertTrue(any(f'{name}="{value}"' in sample for sample in there), f"{name}={value}")
        with open(f"{SOURCE}/docs/operations.md") as f:
            table = set(re.findall(r"`(leeway_[a-z_]+)", f.read()))
        self.assertEqual(table, {re.sub("_(bucket|sum|count)$", "", n) for n in names if n.startswith("leeway_")})

    def test_prometheus_scrapes_it_and_knows_every_expression(self):
        target = urllib.parse.urlparse(self.start_everything()).netloc
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
        api = f"http://{found[1]}/api/v1/"

        def ask(expression):
            try:
                return json.loads(get(api + "query?query=" + urllib.parse.quote(expression)))
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 503:  # it is still starting
                        self.fail(f"{expression}: {error.read().decode()}")
                return {"data": {"result": []}}

        drawn, rules = self.expressions()
        deadline = time.monotonic() + TIMEOUT
        for expression in drawn:  # each has something to draw, after two scrapes
            while not ask(expression)["data"]["result"]:
                self.assertLess(time.monotonic(), deadline, expression)
                self.assertIsNone(prometheus.poll(), self.log("prometheus.log"))
                time.sleep(0.1)
        for expression in rules:
            self.assertEqual(ask(expression)["status"], "success", expression)
        self.assertEqual(ask('leeway_run_state{state="failed"} == 1')["data"]["result"], [])
        seen = None
        while seen != [("up", "")]:  # a single scrape may be late
            self.assertLess(time.monotonic(), deadline, seen)
            targets = json.loads(get(api + "targets"))["data"]["activeTargets"]
            seen = [(t["health"], t["lastError"]) for t in targets]


if __name__ == "__main__":
    unittest.main()
