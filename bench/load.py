"""Runs of a real server with load clients that do not train, and of the paper's problem; used by
table.py."""

import json
import os
import shutil
import subprocess
import tempfile
import time

# d = features * classes + classes, a flat float32 model.
SHAPES = {10**3: (9, 100), 10**6: (999, 1000), 10**7: (9999, 1000), 25 * 10**6: (24999, 1000),
          625 * 10**6: (624999, 1000)}

CONFIG = """
model {{ mlp {{ classes: {classes} }} }}
durability: {durability}
phases {{ train {{ rounds: {rounds} drift_off: true loss_off: true local {{ step_size: 0.1 steps: 1 }} }} }}
"""

PAPER = """
seed: 1
model {{ linear_regression {{ intercept: false }} }}
durability: {durability}
cohort {{ size: {sample} }}
phases {{ train {{ rounds: {rounds} local {{ step_size: 0.005 steps: 10 }} }} }}
"""

NETWORK = """
seed: 1
model {{ {model} }}
durability: RELAXED
phases {{ train {{ rounds: {rounds} drift_off: true loss_off: {loss_off} {local} }} }}
"""
# The networks that alternatives.py trains, and how.
NETWORKS = {
    "cnn": ("cnn { classes: 62 }", "local { step_size: 0.01 epochs: 1 batch_size: 20 }"),
    "lstm": ("lstm { vocabulary: 90 embedding: 8 hidden: 256 hidden: 256 }",
             "local { step_size: 0.01 epochs: 1 batch_size: 16 }")}


def rounds_per_second(binaries, out, skip):
    """Over all but the first rounds, `skip` of their number; each with its commit."""
    text = subprocess.run([f"{binaries}/leeway", "show", out, "--json"], check=True,
                          capture_output=True, text=True).stdout
    opened = [r["opened"] for r in json.loads(text)["rounds"]]
    opened = opened[skip(len(opened)):]
    return (len(opened) - 1) / (opened[-1] - opened[0])


def wait_for(path, process):
    while not os.path.exists(path):
        if process.poll() is not None:
            raise RuntimeError(f"server ended with {process.returncode}")
        time.sleep(0.01)
    with open(path) as f:
        return f.read().strip()


def load(binaries, d, processes, rounds, durability="RELAXED", unix=False):
    """One run; returns rounds/s, bytes/s and the server's peak memory in MB."""
    features, classes = SHAPES[d]
    folder = tempfile.mkdtemp(prefix="leeway-load-")
    children = []
    try:
        with open(f"{folder}/c.textproto", "w") as f:
            f.write(CONFIG.format(classes=classes, rounds=rounds, durability=durability))
        listen = f"unix:{folder}/s" if unix else "127.0.0.1:0"
        server = subprocess.Popen(
            [f"{binaries}/leeway-server", "--config", f"{folder}/c.textproto", "--state",
             f"{folder}/run", "--clients", str(processes), "--listen", listen,
             "--address-file", f"{folder}/address"], stdout=subprocess.DEVNULL)
        address = wait_for(f"{folder}/address", server)
        for i in range(processes):
            children.append(subprocess.Popen(
                [f"{binaries}/load_client", address, f"c{i:04}", str(features)]))
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
        if server.returncode != 0:
            raise RuntimeError(f"server ended with {server.returncode}")
        rate = rounds_per_second(binaries, f"{folder}/run", lambda n: min(2, n // 3))
        return {"d": d, "processes": processes, "durability": durability,
                "rounds_per_second": rate, "bytes_per_second": rate * processes * 8 * d,
                "server_peak_mb": usage.ru_maxrss / 1024}
    finally:
        for child in children:
            child.kill()
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)


def paper(binaries, clients, processes, rounds, sample=0, durability="FULL", keep_mb=1024):
    """The paper's problem; returns rounds/s after a warm-up, and the processes' peak memory in MB.
    With sampling, clients are made on the fly, and the warm-up lasts until nearly all that can be
    kept have been made."""
    folder = tempfile.mkdtemp(prefix="leeway-load-")
    children = []
    try:
        with open(f"{folder}/c.textproto", "w") as f:
            f.write(PAPER.format(durability=durability, sample=sample, rounds=rounds))
        subprocess.run([f"{binaries}/leeway", "data", "synthetic", "--out", f"{folder}/data",
                        "--clients", str(clients)] + (["--on-the-fly"] if sample else []),
                       check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen(
            [f"{binaries}/leeway-server", "--config", f"{folder}/c.textproto", "--state",
             f"{folder}/run", "--clients", str(clients), "--listen", f"unix:{folder}/socket",
             "--address-file", f"{folder}/address"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        address = wait_for(f"{folder}/address", server)
        share = clients // processes
        for i in range(processes):
            if sample:
                data = [f"{folder}/data/synthetic.json:{i * share}-{(i + 1) * share - 1}"]
            else:
                names = sorted(n for n in os.listdir(f"{folder}/data") if n.startswith("client"))
                data = [f"{folder}/data/{n}" for n in names[i * share:(i + 1) * share]]
            children.append(subprocess.Popen(
                [f"{binaries}/leeway-client", "--server", address, "--keep-mb", str(keep_mb), *data],
                stderr=subprocess.DEVNULL))
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
        client_peak = 0
        for child in children:
            _, _, used = os.wait4(child.pid, 0)
            child.returncode = 0
            client_peak += used.ru_maxrss / 1024
        if server.returncode != 0:
            raise RuntimeError(f"server ended with {server.returncode}")
        rate = rounds_per_second(binaries, f"{folder}/run",
                                 lambda n: n * 3 // 4 if sample else min(20, n // 3))
        return {"rounds_per_second": rate,
                "server_peak_mb": usage.ru_maxrss / 1024, "clients_peak_mb": client_peak}
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
                child.wait()
        shutil.rmtree(folder, ignore_errors=True)


def network(binaries, kind, rounds, with_loss):
    """One process with the clients of alternatives.py; rounds/s without the first round."""
    import numpy as np

    import alternatives
    with tempfile.TemporaryDirectory(prefix="leeway-load-") as folder:
        model, local = NETWORKS[kind]
        with open(f"{folder}/c.textproto", "w") as f:
            f.write(NETWORK.format(model=model, local=local, rounds=rounds + 2,
                                   loss_off="false" if with_loss else "true"))
        clients = []
        for i, examples in enumerate(alternatives.examples_of(kind)):
            clients.append(f"{folder}/data/c{i}")
            os.makedirs(clients[-1])
            x, y = alternatives.arrays_of(kind, examples, i)
            np.save(f"{clients[-1]}/train_x.npy", x)
            np.save(f"{clients[-1]}/train_y.npy", y)
        server = subprocess.Popen(
            [f"{binaries}/leeway-server", "--config", f"{folder}/c.textproto", "--state", f"{folder}/run",
             "--clients", str(len(clients)), "--listen", f"unix:{folder}/socket", "--address-file",
             f"{folder}/address"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = wait_for(f"{folder}/address", server)
        subprocess.run([f"{binaries}/leeway-client", "--server", address, *clients], check=True,
                       stderr=subprocess.DEVNULL)
        if server.wait() != 0:
            raise RuntimeError(f"server ended with {server.returncode}")
        return rounds_per_second(binaries, f"{folder}/run", lambda n: 1)


def alternative(kind, *flags):
    """What alternatives.py prints: its rate, and bytes where it says so. None where what it needs is
    not installed."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "alternatives.py")
    done = subprocess.run(["/usr/bin/python3", program, kind, *flags], stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        return None
    done.check_returncode()
    lines = done.stdout.split("\n")
    found = {"rate": float(lines[-2])}
    for line in lines[:-2]:
        found[line.split()[0]] = float(line.split()[1])
    return found


def bare(binaries, megabytes, unix=False):
    """Bytes/s of one gRPC stream."""
    with tempfile.TemporaryDirectory(prefix="leeway-load-") as folder:
        return float(subprocess.run(
            [f"{binaries}/bare_stream", str(megabytes), "1024"] + ([f"{folder}/s"] if unix else []),
            check=True, capture_output=True, text=True).stdout)
