"""leeway.simulate: a whole federation on this machine, with the client code of a real one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, List, Mapping, Optional, Sequence, Union

import numpy as np

from leeway import _programs, _tensors
from leeway._client import leave_open_tasks
from leeway._errors import Error
from leeway._progress import ProgressBar
from leeway._read import Run
from leeway._textproto import Message
from leeway.trackers import Follower, Tracker

Join = Callable[[str, List[str]], None]
POLL_SECONDS = 0.1
SERVER_END_SECONDS = 6


def simulate(config: Union[str, os.PathLike, Message], join: Join, *, clients: Union[int, Sequence[str]],
             processes: Optional[int] = None, out: Union[str, os.PathLike, None] = None, model: Any = None,
             progress: Optional[bool] = None, trackers: Sequence[Tracker] = ()) -> Run:
    """Runs a server and real client processes on this machine until the run is over, and returns it.

    config: a leeway.Config, the text of one, or the path of a file.
    join(server, names): what a client process does; it calls leeway.join, leeway.torch.join or another way to take part
    for the clients of these names. It runs in a process of its own, forked from this one.
    clients: their names, or how many.  processes: how many share them; default: one per core. In each, PyTorch computes with
    one thread.
    out: directory of the run; default: a new one. A run that is in it and was interrupted goes on.
    model: the initial model, a torch Module or a dict of arrays, for a config that names none.
    progress: show it on the terminal or in the notebook; default: if there is one.
    trackers: get the numbers of every round while the run goes on (leeway.trackers).
    """
    names = [f"client_{i:0{len(str(clients - 1))}}" for i in range(clients)] if isinstance(clients, int) else list(clients)
    if not names:
        raise Error("clients is empty; give their names, or how many there are")
    folder = os.path.abspath(os.fspath(out) if out is not None else tempfile.mkdtemp(prefix="leeway-"))
    os.makedirs(os.path.join(folder, "logs"), exist_ok=True)
    path = _config_path(config, folder, model)
    count = min(processes or os.cpu_count() or 1, len(names))
    with _Federation(folder, path, len(names)) as federation:
        federation.start_clients(join, [names[i::count] for i in range(count)])
        federation.follow(_has_screen() if progress is None else progress, [Follower(folder, t) for t in trackers])
    return Run(folder)


class _Federation:
    def __init__(self, folder: str, config: str, clients: int):
        self._folder = folder
        self._address_file = os.path.join(folder, "server.address")
        if os.path.exists(self._address_file):
            os.remove(self._address_file)
        self._log = os.path.join(folder, "logs", "server.log")
        listen = f"unix:{folder}/server.sock" if len(folder) < 80 else "127.0.0.1:0"
        with open(self._log, "w") as log:
            self._server = subprocess.Popen(
                [_programs.find("leeway-server"), "--config", config, "--state", folder, "--clients", str(clients),
                 "--listen", listen, "--address-file", self._address_file, "--exit-with-stdin"],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
        self._clients: List[Any] = []

    def __enter__(self) -> "_Federation":
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self._clients:
            if process.is_alive():
                process.terminate()
            process.join()
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def start_clients(self, join: Join, shares: List[List[str]]) -> None:
        while not os.path.exists(self._address_file):
            if self._server.poll() is not None:
                raise Error(f"leeway-server did not start: {_last_line(self._log)}")
            time.sleep(POLL_SECONDS / 10)
        with open(self._address_file) as file:
            address = file.readline().strip()
        # Fork, so that functions of a notebook work as they stand.
        context = multiprocessing.get_context("fork")
        for i, share in enumerate(shares):
            log = os.path.join(self._folder, "logs", f"python_{i}.log")
            process = context.Process(target=_client, args=(join, address, share, log, len(shares)))
            process.start()
            self._clients.append(process)

    def follow(self, progress: bool, followers: Sequence[Follower] = ()) -> None:
        bar = ProgressBar(self._folder) if progress else None
        while self._server.poll() is None:
            for i, process in enumerate(self._clients):
                process.join(0)
                if process.exitcode not in (None, 0) and not self._server_ends():
                    log = os.path.join(self._folder, "logs", f"python_{i}.log")
                    raise Error(f"a client process ended with {process.exitcode}: {_last_line(log)} (all of it: {log})")
            if bar is not None:
                bar.show()
            for follower in followers:
                follower.poll()
            try:
                self._server.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        if bar is not None:
            bar.show()
            print(file=sys.stdout)
        for follower in followers:
            follower.poll(last=True)
        if self._server.returncode != 0:
            raise Error(f"the run failed: {_last_line(self._log)} (all of it: {self._log})")
        for process in self._clients:
            process.join()

    def _server_ends(self) -> bool:
        """Has the server ended, or does it now? A run that fails ends its clients a moment earlier."""
        try:
            self._server.wait(SERVER_END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True


def _client(join: Join, address: str, names: List[str], log: str, processes: int) -> None:
    """In the forked process: what it writes goes to its log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    _share_the_cores(processes)
    try:
        join(address, names)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        leave_open_tasks(error)
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _share_the_cores(processes: int) -> None:
    """What is imported in the forked process computes with its share of the cores; PyTorch that was imported before with one
    thread, as in DataLoader's workers: those of the parent are not there after a fork, and OpenMP would wait for them."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _config_path(config: Union[str, os.PathLike, Message], folder: str, model: Any) -> str:
    text = str(config) if isinstance(config, Message) else os.fspath(config)
    if "{" not in text and model is None:
        return text
    if "{" not in text:
        with open(text) as file:
            text = file.read()
    if model is not None:
        path = os.path.join(folder, "initial.safetensors")
        if isinstance(model, Mapping):
            _tensors.save({k: np.asarray(v) for k, v in model.items()}, path)
        else:
            from leeway.torch import save
            save(model, path)
        text = 'model { file: "initial.safetensors" }\n' + text
    path = os.path.join(folder, "config.textproto")
    with open(path, "w") as file:
        file.write(text)
    return path


def _has_screen() -> bool:
    return sys.stdout.isatty() or "ipykernel" in sys.modules


def _last_line(path: str) -> str:
    try:
        with open(path) as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        lines = []
    return lines[-1] if lines else "it wrote nothing"
