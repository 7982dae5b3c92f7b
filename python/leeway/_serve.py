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
OPTIONS = ("give_up", "insecure_anywhere", "log_format", "log_level", "mpi", "tls_ca", "tls_cert", "tls_key", "worker_deadline",
           "worker_start_seconds")  # of leeway-client that users may give
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
        self._dtype: np.dtype = np.dtype("float64")
        self._files: Dict[str, IO[bytes]] = {}
        self._model = np.empty(0)
        self._model_sha256 = ""
        self.orders = 0
        self.finished = False
        self.last_failure = ""  # of the last order, if it failed

    def serve(self) -> bool:
        """Answers orders until the run is over (True) or the other side has gone (False)."""
        order = self.next_order()
        while order is not None:
            try:
                numbers, vectors = self._host.answer(order, self.model(order))
                self.reply(order, numbers, vectors)
            except Exception as error:
                self.fail(order, error)
            order = self.next_order()
        return self.finished

    def next_order(self) -> Optional[Dict[str, Any]]:
        """The next order; None when there are no more."""
        try:
            for line in self._lines:
                message = json.loads(line)
                kind = message.get("type")
                if kind == "order":
                    self.orders += 1
                    return message
                if kind == "finished":
                    self.finished = True
                    if message.get("error"):
                        raise Error(message["error"])
                    break
                if kind == "hello":
                    self._hello(message)
                elif kind == "prepare":
                    self._prepare(message)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except BaseException:
            self.close()
            raise
        self.close()
        return None

    def reply(self, order: Dict[str, Any], numbers: Mapping[str, float], vectors: Sequence[np.ndarray]) -> None:
        """This client's answer."""
        self.last_failure = ""
        self._write(order, vectors)
        self._send(type="answer", order=order["order"], numbers=numbers)

    def fail(self, order: Dict[str, Any], error: BaseException) -> None:
        """This client cannot do this order; the traceback is for the user, one line for the server."""
        if isinstance(error, Error):
            print(f"leeway: client '{order['client']}', round {order['round']}: {error}", file=sys.stderr)
        else:
            traceback.print_exception(type(error), error, error.__traceback__)
        self.give_up(order, error)

    def give_up(self, order: Dict[str, Any], error: BaseException) -> None:
        """The same without a word to the user, who has been told."""
        self.last_failure = one_line(error)
        self._send(type="error", order=order["order"], error=self.last_failure)

    def close(self) -> None:
        self._forget()
        self._lines.close()
        self._connection.close()

    def _send(self, **message: Any) -> None:
        try:
            self._connection.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")
        except OSError:
            pass  # the other side has gone: the next read finds the end

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

    def model(self, order: Dict[str, Any]) -> np.ndarray:
        """The flat model that the order starts from; not to be written to."""
        ref = order["model"]
        if ref["sha256"] != self._model_sha256:
            file = self._open(ref["file"])
            file.seek(0)
            begin = 8 + int.from_bytes(file.read(8), "little")
            values = np.empty(sum(t.size for t in self._tensors), self._dtype)
            file.seek(begin)
            file.readinto(values.data.cast("B"))  # type: ignore[attr-defined]
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
            file.write(np.ascontiguousarray(vector, self._dtype).data.cast("B"))

    def _open(self, path: str) -> IO[bytes]:
        if path not in self._files:
            self._files[path] = open(path, "r+b", buffering=0)
        return self._files[path]

    def _forget(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
        self._model_sha256 = ""


class Attachment:
    """Sessions one after the other, until the run is over. Under `leeway-client --worker` there is one, with
    whoever started this process; else we start a leeway-client of our own, again if it is killed."""

    def __init__(self, server: Optional[str], host: Host, options: Mapping[str, Any]):
        self._host = host
        inherited = os.environ.get(VARIABLE)
        self._command: List[str] = []
        if inherited is not None:
            self.session = Session(socket.socket(fileno=int(inherited)), host)
            return
        if not server:
            raise Error("no server: give its address, such as '127.0.0.1:4760'")
        self._command = [_programs.find("leeway-client"), "--server", server, *_flags(options)]
        self._deaths = 0
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen([*self._command, "--worker-fd", str(theirs.fileno())],
                                           pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self.session = Session(ours, self._host)

    def next_order(self) -> Optional[Dict[str, Any]]:
        """The next order, whoever brings it; None when the run is over."""
        while True:
            try:
                order = self.session.next_order()
            except BaseException:
                self.close()
                raise
            if order is not None:
                return order
            if not self._again():
                return None

    def _again(self) -> bool:
        """After the end of a session: is there another one?"""
        if not self._command:
            return False
        code = _end(self._child)
        if self.session.finished:
            if self.session.last_failure:
                raise Error(f"the run is over, and the last task here failed: {self.session.last_failure}")
            return False
        self._deaths = 1 if self.session.orders else self._deaths + 1
        if code >= 0 or -code in (signal.SIGINT, signal.SIGTERM) or self._deaths > RESTARTS:
            how = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
            raise Error(f"leeway-client {how}; see what it wrote above")
        print(f"leeway: leeway-client was killed by signal {-code}; starting it again", file=sys.stderr)
        self._start()
        return True

    def close(self) -> None:
        """Leaves the run."""
        self.session.close()
        if self._command:
            _end(self._child)


def serve(server: Optional[str], host: Host, options: Mapping[str, Any]) -> None:
    """Takes part in a run until it is over. An error if the last thing that was asked could not be done."""
    attachment = Attachment(server, host, options)
    try:
        while True:
            order = attachment.next_order()
            if order is None:
                return
            session = attachment.session
            try:
                numbers, vectors = host.answer(order, session.model(order))
                session.reply(order, numbers, vectors)
            except Exception as error:
                session.fail(order, error)
    finally:
        attachment.close()


def _end(child: subprocess.Popen, grace: Optional[float] = 15) -> int:
    try:
        return child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _flags(options: Mapping[str, Any]) -> List[str]:
    flags: List[str] = []
    for name, value in options.items():
        if name not in OPTIONS:
            raise Error(f"there is no option {name}; there are {', '.join(OPTIONS)}")
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags
