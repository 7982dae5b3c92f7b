"""leeway-client's side of docs/worker.md, to test a host without a server."""

import json
import os
import socket
import tempfile
import threading

import numpy as np

from leeway._serve import Session
from leeway._tensors import Tensor, header, load


class FakeClient:
    """Asks a host over a real socket; `ask` returns the reply and the vectors by key."""

    def __init__(self, host):
        self.ours, theirs = socket.socketpair()
        self.lines = self.ours.makefile("rb")
        self.folder = tempfile.TemporaryDirectory()
        self.outcome = None
        self.thread = threading.Thread(target=self._serve, args=(theirs, host), daemon=True)
        self.thread.start()
        self.number = 0

    def _serve(self, connection, host):
        try:
            self.outcome = Session(connection, host).serve()
        except Exception as error:
            self.outcome = error

    def close(self):
        self.lines.close()
        self.ours.close()
        self.thread.join()
        self.folder.cleanup()

    def send(self, message):
        line = message if isinstance(message, str) else json.dumps(message)
        self.ours.sendall(line.encode() + b"\n")
        return json.loads(self.lines.readline())

    def hello(self):
        return self.send({"type": "hello", "oldest": 1, "newest": 1, "program": "test"})

    def prepare(self, tensors, dtype="F64"):
        self.tensors = [Tensor(n, tuple(s)) for n, s in tensors.items()]
        self.dtype = np.dtype("float64" if dtype == "F64" else "float32")
        return self.send({"type": "prepare", "seed": "1", "model": {}, "dtype": dtype,
                          "tensors": [{"name": n, "shape": list(s)} for n, s in tensors.items()]})

    def ask(self, client, w, sums, rule=None, repeats=0, random=(1, 2, 3, 4), sha256=None):
        """sums: (name, steps) pairs or names."""
        self.number += 1
        model = os.path.join(self.folder.name, "model")
        answer = os.path.join(self.folder.name, "answer")
        with open(model, "wb") as f:
            f.write(header(self.tensors, self.dtype))
            f.write(np.asarray(w, self.dtype).tobytes())
        if not os.path.exists(answer):
            open(answer, "wb").close()
        shapes = {"displacement": "vector", "gradient": "vector", "drift": "vector", "hessian": "matrix"}
        asked = []
        for s in sums:
            name, steps = s if isinstance(s, tuple) else (s, 0)
            asked.append({"key": name + (f"@{steps}" if steps else ""), "name": name, "steps": steps,
                          "shape": shapes.get(name, "number")})
        reply = self.send({
            "type": "order", "order": self.number, "run": "r", "round": 1, "attempt": 1, "client": client,
            "rule": {"step_size": 0.1, "steps": 1, "epochs": 0, "batch_size": 0, **(rule or {})}, "repeats": repeats,
            "random": list(random), "model": {"file": model, "sha256": sha256 or str(self.number)}, "sums": asked,
            "answer_file": answer})
        vectors = {}
        if reply["type"] == "answer" and any(s["shape"] != "number" for s in asked):
            vectors = load(answer)
        return reply, vectors
