"""Base of the tests with clients in Python."""

import os
import subprocess
import sys

import numpy as np

from leeway_case import BIN, SOURCE, TIMEOUT, LeewayCase

CLIENTS = os.path.join(SOURCE, "tests/integration/python_clients")
ENVIRONMENT = dict(os.environ, PYTHONPATH=os.path.join(SOURCE, "python"), LEEWAY_BIN=BIN, OMP_NUM_THREADS="1",
                   OPENBLAS_NUM_THREADS="1")


class PythonCase(LeewayCase):
    def python(self, *arguments, log=None, env=None):
        """A Python client in the background."""
        log = log or f"python-{len(self.children)}.log"
        with open(self.path(log), "w") as out:
            child = subprocess.Popen([sys.executable, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, env=dict(ENVIRONMENT, **(env or {})))
        child.log_name = log
        self.children.append(child)
        return child

    def finish(self, child, code=0):
        self.assertEqual(child.wait(TIMEOUT), code, self.log(getattr(child, "log_name", "server.log")))

    def labelled(self, clients=12):
        """Three classes, whose share differs by client."""
        rng = np.random.default_rng(4)
        centres = rng.normal(size=(3, 4))
        for i in range(clients):
            folder = self.path("data", f"client_{i:02}")
            os.makedirs(folder)
            y = rng.choice(3, size=30, p=rng.dirichlet(np.ones(3)))
            np.save(os.path.join(folder, "train_x.npy"), centres[y] + rng.normal(size=(30, 4)))
            np.save(os.path.join(folder, "train_y.npy"), y)
        return self.path("data")

    def run_python(self, kind, config, data, processes=1, out="python"):
        """The same run with Python clients."""
        names = sorted(n for n in os.listdir(data) if n.startswith("client"))
        server, address = self.start_server(config, len(names), out)
        clients = [self.python(os.path.join(CLIENTS, "numpy_client.py"), kind, address, data, *names[i::processes])
                   for i in range(processes)]
        self.finish(server)
        for client in clients:
            self.finish(client)
        return self.show(out)
