"""Files for deployment, as far as they can be checked without the machines they are for."""

import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

import yaml

from docs_test import blocks
from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase


def dropped(written, read, path=""):
    """Fields of `written` that are not in `read`."""
    if isinstance(written, dict):
        return [x for k, v in written.items()
                for x in (dropped(v, read[k], f"{path}.{k}") if k in read else [f"{path}.{k}"])]
    if isinstance(written, list):
        return [x for i, v in enumerate(written) for x in dropped(v, read[i], f"{path}[{i}]")]
    return [] if str(written) == str(read) else [f"{path}: {written} became {read}"]


class DeployTest(LeewayCase):
    def manifests(self):
        with open(f"{SOURCE}/docs/deploy/kubernetes.yaml") as f:
            return list(yaml.safe_load_all(f))

    def flags_of(self, program):
        _, text = self.run_program(program, "--help")
        return set(re.findall(r"--[a-z-]+", text))

    def test_manifests_hang_together(self):
        things = {(m["kind"], m["metadata"]["name"]): m for m in self.manifests()}
        self.assertEqual([k for k, _ in things], ["Namespace", "ConfigMap", "Service", "StatefulSet",
                                                 "Job", "NetworkPolicy"])
        for (kind, _), thing in things.items():
            if kind != "Namespace":
                self.assertEqual(thing["metadata"]["namespace"], "leeway")
        server = things["StatefulSet", "server"]["spec"]
        labels = server["template"]["metadata"]["labels"]
        self.assertEqual(server["selector"]["matchLabels"], labels)
        self.assertEqual(things["Service", "leeway"]["spec"]["selector"], labels)
        self.assertEqual(server["serviceName"], "leeway")
        job = things["Job", "clients"]["spec"]
        self.assertEqual(job["completions"], job["parallelism"])
        self.assertIn(f"--clients {job['completions']} ",
                      server["template"]["spec"]["containers"][0]["args"][0])
        for spec in (server["template"]["spec"], job["template"]["spec"]):
            claims = [c["metadata"]["name"] for c in server.get("volumeClaimTemplates", [])]
            volumes = [v["name"] for v in spec["volumes"]] + claims
            for container in spec["containers"]:
                for mount in container["volumeMounts"]:
                    self.assertIn(mount["name"], volumes)

    def kubectl(self, *words, cwd=None):
        done = subprocess.run(["kubectl", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=cwd or self.folder, env=dict(os.environ, KUBECONFIG="/dev/null"), timeout=TIMEOUT)
        return done.stdout, done.stderr

    @unittest.skipIf(shutil.which("kubectl") is None, "kubectl is not installed")
    def test_kubectl_reads_the_manifests(self):
        """Its own types, without a cluster: a wrong type is an error, an unknown field is dropped."""
        file = f"{SOURCE}/docs/deploy/kubernetes.yaml"
        text, errors = self.kubectl("set", "env", "--local", "-f", file, "A=B", "-o", "json")
        self.assertNotIn("unable to decode", errors)  # it does complain of those that have no pod
        decoder, read, at = json.JSONDecoder(), {}, 0
        while text[at:].strip():
            at += len(text[at:]) - len(text[at:].lstrip())
            thing, at = decoder.raw_decode(text, at)
            read[thing["kind"]] = thing
        written = {m["kind"]: m for m in self.manifests()}
        self.assertEqual(set(read), {"StatefulSet", "Job"})
        for kind, thing in read.items():
            self.assertEqual(dropped(written[kind], thing), [], kind)
        # Those without a pod are few enough to be told by hand.
        self.assertEqual(set(written["Namespace"]), {"apiVersion", "kind", "metadata"})
        self.assertEqual(set(written["ConfigMap"]), {"apiVersion", "kind", "metadata", "data"})
        self.assertEqual(set(written["Service"]["spec"]), {"clusterIP", "selector", "ports"})
        self.assertEqual(set(written["NetworkPolicy"]["spec"]), {"podSelector", "policyTypes", "egress"})

    @unittest.skipIf(shutil.which("kubectl") is None, "kubectl is not installed")
    def test_secrets_are_made_as_the_page_says(self):
        page = blocks("docs/deploy.md")
        subprocess.run(["bash", "-ec", page[0][2]], cwd=self.folder, check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, PATH=f"{BIN}:/usr/bin:/bin"))
        body = next(b for mark, text, b in page if text.startswith("tests/integration/deploy_test.py"))
        made = {}
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            self.assertEqual(words[0], "kubectl")
            if "create" in words:
                text, errors = self.kubectl(*words[1:], "--dry-run=client", "-o", "json")
                self.assertEqual(errors, "")
                thing = json.loads(text)
                made[thing["kind"], thing["metadata"]["name"]] = thing
        server = made["Secret", "server-tls"]["data"]
        self.assertEqual(set(server), {"ca.crt", "tls.crt", "tls.key"})
        clients = made["Secret", "client-tls"]["data"]
        self.assertEqual(set(clients), {"ca.crt", "client_0.crt", "client_0.key"})
        # They are the files that the manifests' commands name.
        commands = str(self.manifests())
        for name in ("/run/tls/tls.crt", "/run/tls/tls.key", "/run/tls/ca.crt", "/run/tls/client_$JOB_COMPLETION_INDEX.crt"):
            self.assertIn(name, commands)

    def test_manifests_and_units_use_options_that_exist(self):
        names = [f"docs/deploy/{name}" for name in os.listdir(f"{SOURCE}/docs/deploy")]
        text = ""
        for name in [*names, "docker/compose.yml"]:
            with open(os.path.join(SOURCE, name)) as f:
                text += f.read().replace("\\\n", " ")
        for program in ("leeway-server", "leeway-client"):
            known = self.flags_of(program)
            used = set()
            for call in re.findall(program + r" (--.*?)(?:&&|\n\n|ports:|volumes:|Restart|LoadCred)", text, re.S):
                used |= set(re.findall(r"--[a-z-]+", call))
            self.assertTrue(used)
            self.assertLessEqual(used, known)

    def test_the_configs_in_them_are_in_order(self):
        config = next(m for m in self.manifests() if m["kind"] == "ConfigMap")["data"]["run.textproto"]
        self.run_program("leeway", "run", "--check", self.write("run.textproto", config))
        self.run_program("leeway", "run", "--check", f"{SOURCE}/docker/demo.textproto")

    def test_compose_files_keep_to_what_v1_and_v2_both_know(self):
        """Keys that are in the Compose Specification and that docker-compose 1.29 understands."""
        common = {"image", "build", "restart", "depends_on", "user", "volumes", "entrypoint", "command",
                  "ports", "healthcheck", "networks"}
        for name in ("compose.yml", "compose.networks.yml"):
            with open(f"{SOURCE}/docker/{name}") as f:
                compose = yaml.safe_load(f)
            top = {k for k in compose if not k.startswith("x-")}
            self.assertLessEqual(top, {"services", "networks", "volumes"})
            built = []
            for service, keys in compose["services"].items():
                self.assertLessEqual(set(keys), common, service)
                self.assertLessEqual({c["condition"] for c in keys.get("depends_on", {}).values()},
                                     {"service_started", "service_healthy", "service_completed_successfully"})
                self.assertLessEqual(set(keys.get("healthcheck", {})), {"test", "interval", "timeout", "retries"})
                built += [service] if "build" in keys else []
            # One service builds what all run, and all others wait for it: nobody looks for it in a registry.
            if name == "compose.yml":
                self.assertEqual(built, ["not-run-before"])
                before = {s: set(k.get("depends_on", {})) for s, k in compose["services"].items()}
                for service in before:
                    first = service
                    while before[first]:
                        first = sorted(before[first])[0]
                    self.assertEqual(first, "not-run-before")

    @unittest.skipIf(shutil.which("docker-compose") is None, "docker-compose is not installed")
    def test_docker_compose_reads_them(self):
        both = ["-f", f"{SOURCE}/docker/compose.yml", "-f", f"{SOURCE}/docker/compose.networks.yml"]
        for files in (both[:2], both):
            done = subprocess.run(["docker-compose", *files, "config", "-q"], text=True, timeout=TIMEOUT,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder)
            self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_image_has_what_a_build_needs(self):
        with open(f"{SOURCE}/run") as f:
            needed = set(re.search(r'build_packages="(.*?)"', f.read(), re.S)[1].split())
        needed -= {"libgtest-dev", "libgmock-dev", "libbenchmark-dev"}  # for tests and benchmarks
        with open(f"{SOURCE}/docker/Dockerfile") as f:
            build_stage = f.read().split("WORKDIR")[0]
        self.assertEqual(needed - set(build_stage.split()), set())

    def test_compose_gives_each_client_only_its_own(self):
        with open(f"{SOURCE}/docker/compose.yml") as f:
            compose = yaml.safe_load(f)
        clients = {n: s for n, s in compose["services"].items() if n.startswith("client-")}
        self.assertGreaterEqual(len(clients), 5)
        for name, service in clients.items():
            number = name.split("-")[1]
            self.assertEqual(service["volumes"], [f"data-{number}:/data/client_{number}:ro",
                                                  f"certificate-{number}:/tls:ro"])
        for name, service in compose["services"].items():
            if name != "certificates":
                self.assertNotIn("authority", str(service.get("volumes")))


if __name__ == "__main__":
    unittest.main()
