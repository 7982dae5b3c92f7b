"""Files for deployment, as far as they can be checked without the machines they are for."""

import os
import re
import unittest

import yaml

from leeway_case import SOURCE, LeewayCase


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
