"""The worker's side of docs/worker.md: answers leeway-client over a socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from typing import Any, Dict, IO, List, Mapping, Optional, Protocol, Sequence, Tuple

import numpy as np

from leeway import _programs
from leeway._errors import Error, one_line
from leeway._tensors import DTYPES, Tensor, header

VERSION = 1
VARIABLE = "LEEWAY_WORKER_FD"
RESTARTS = 5  # of a leeway-client that was killed, without an order in between


class Host(Protocol):
    """The clients that a process hosts."""

    def clients(self) -> List[Dict[str, Any]]:
        """name, examples, test_examples of each."""

    def schema(self) -> Dict[str, Any]:
        """features and labels, if they are known."""

    def prepare(self, tensors: List[Tensor], dtype: np.dtype, message: Mapping[str, Any]) -> None:
        """A run begins; raises Error if its model does not fit."""

    def answer(self, order: Dict[str, Any], model: np.ndarray) -> Tuple[Dict[str, float], Sequence[np.ndarray]]:
        """Numbers by key, and the vectors in the order of the sums."""


class Session:
    """One leeway-client at the other end of a socket."""

    def __init__(self, connection: socket.socket, host: Host):
        self._lines: IO[bytes] = connection.makefile("rb")
        self._connection = connection
        self._host = host
        self._tensors: List[Tensor] = []
        self._dtype = np.dtype("float64")
        self._files: Dict[str, IO[bytes]] = {}
        self._model = np.empty(0)
        self._model_sha256 = ""
        self.orders = 0

    def serve(self) -> bool:
        """Until the run is over (True) or the other side has gone (False)."""
        try:
            for line in self._lines:
                message = json.loads(line)
                kind = message.get("type")
                if kind == "finished":
                    if message.get("error"):
                        raise Error(message["error"])
                    return True
                if kind == "hello":
                    self._hello(message)
                elif kind == "prepare":
                    self._prepare(message)
                elif kind == "order":
                    self._order(message)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._forget()
            self._lines.close()
            self._connection.close()
        return False

    def _send(self, **message: Any) -> None:
        self._connection.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

    def _hello(self, message: Dict[str, Any]) -> None:
        if not message["oldest"] <= VERSION <= message["newest"]:
            raise Error(f"{message.get('program')} speaks versions {message['oldest']} to {message['newest']} of the "
                        f"worker protocol, this package {VERSION}; install both from one version of Leeway")
        self._send(type="hello", version=VERSION, clients=self._host.clients(), **self._host.schema())

    def _prepare(self, message: Dict[str, Any]) -> None:
        self._forget()
        self._tensors = [Tensor(t["name"], tuple(t["shape"])) for t in message["tensors"]]
        self._dtype = DTYPES[message["dtype"]]
        try:
            self._host.prepare(self._tensors, self._dtype, message)
        except Exception as error:
            if not isinstance(error, Error):
                traceback.print_exc()
            self._send(type="error", error=one_line(error))
            raise
        self._send(type="ready")

    def _order(self, order: Dict[str, Any]) -> None:
        self.orders += 1
        number = order["order"]
        try:
            numbers, vectors = self._host.answer(order, self._read_model(order["model"]))
            self._write(order, vectors)
        except Exception as error:
            if isinstance(error, Error):
                print(f"leeway: client '{order['client']}', round {order['round']}: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            self._send(type="error", order=number, error=one_line(error))
            return
        self._send(type="answer", order=number, numbers=numbers)

    def _read_model(self, ref: Dict[str, str]) -> np.ndarray:
        if ref["sha256"] != self._model_sha256:
            file = self._open(ref["file"])
            file.seek(0)
            begin = 8 + int.from_bytes(file.read(8), "little")
            values = np.empty(sum(t.size for t in self._tensors), self._dtype)
            file.seek(begin)
            file.readinto(memoryview(values).cast("B"))  # type: ignore[attr-defined]
            values.flags.writeable = False
            self._model, self._model_sha256 = values, ref["sha256"]
        return self._model

    def _write(self, order: Dict[str, Any], vectors: Sequence[np.ndarray]) -> None:
        asked = [s for s in order["sums"] if s["shape"] != "number"]
        if not asked:
            return
        size = self._model.size
        shapes = {"vector": (size,), "matrix": (size, size)}
        file = self._open(order["answer_file"])
        file.seek(0)
        file.write(header([Tensor(s["key"], shapes[s["shape"]]) for s in asked], self._dtype))
        for vector in vectors:
            file.write(memoryview(np.ascontiguousarray(vector, self._dtype)).cast("B"))

    def _open(self, path: str) -> IO[bytes]:
        if path not in self._files:
            self._files[path] = open(path, "r+b", buffering=0)
        return self._files[path]

    def _forget(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
        self._model_sha256 = ""


def serve(server: Optional[str], host: Host, options: Mapping[str, Any]) -> None:
    """Takes part in a run until it is over. Under `leeway-client --worker` that is who we answer;
    else starts a leeway-client of our own, again if it is killed."""
    inherited = os.environ.get(VARIABLE)
    if inherited is not None:
        Session(socket.socket(fileno=int(inherited)), host).serve()
        return
    if not server:
        raise Error("no server: give its address, such as '127.0.0.1:4760'")
    deaths = 0
    while True:
        ours, theirs = socket.socketpair()
        with theirs:
            child = subprocess.Popen(
                [_programs.find("leeway-client"), "--server", server, "--worker-fd", str(theirs.fileno()),
                 *_flags(options)],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        session = Session(ours, host)
        try:
            finished = session.serve()
        except BaseException:
            _end(child)
            raise
        code = _end(child, None)
        if finished:
            return
        deaths = 1 if session.orders else deaths + 1
        if code >= 0 or -code in (signal.SIGINT, signal.SIGTERM) or deaths > RESTARTS:
            how = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
            raise Error(f"leeway-client {how}; see what it wrote above")
        print(f"leeway: leeway-client was killed by signal {-code}; starting it again", file=sys.stderr)


def _end(child: subprocess.Popen, grace: Optional[float] = 5) -> int:
    try:
        return child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _flags(options: Mapping[str, Any]) -> List[str]:
    flags: List[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags
