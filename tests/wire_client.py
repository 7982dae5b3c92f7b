#!/usr/bin/env python3
"""An independent client for linear regression, written from docs/wire-format.md and proto/ alone, to
prove that the page suffices. Each folder (train_x.npy, train_y.npy and perhaps test_x.npy, test_y.npy)
is a client. One reports for itself; several report as a tally, or each for itself with --alone."""

import argparse
import fractions
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import grpc
import numpy as np
import xxhash

MIB = 1 << 20
# Numbers that follow from another of the report, which leaves them out.
SOURCES = {name + "_squared": name for name in ("loss", "drift", "gradient", "displacement", "newton_decrement")}
SOURCES |= {"weight": "", "weighted_drift_squared": "drift", "displacement_above": "displacement"}
SOURCES |= dict.fromkeys(("weighted_loss", "weighted_loss_squared"), "loss")

with tempfile.TemporaryDirectory() as generated:
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    subprocess.run(["protoc", "-I", root, "--python_out", generated, "proto/run.proto", "proto/record.proto",
                    "proto/federation.proto"], check=True)
    sys.path.insert(0, generated)
    from proto import federation_pb2 as pb, run_pb2 as run_pb


def read_model(file):
    """All values of a safetensors file, in the order of their offsets."""
    begin = 8 + int.from_bytes(file[:8], "little")
    tensors = [t for name, t in json.loads(file[8:begin]).items() if name != "__metadata__"]
    tensors.sort(key=lambda t: t["data_offsets"])
    return np.frombuffer(file[begin:begin + tensors[-1]["data_offsets"][1]], "<f8")


def squared_norm(x):
    """With the page's order of additions."""
    lanes = np.zeros(8)
    for row in np.pad(x * x, (0, -len(x) % 8)).reshape(-1, 8):
        lanes += row
    a, b, c, d = lanes[:4] + lanes[4:]
    return (a + c) + (b + d)


class Client:
    """One client's data, and its value of every sum that it knows."""

    def __init__(self, folder):
        load = lambda name: np.load(os.path.join(folder, name + ".npy")).astype(float)
        self.id = os.path.basename(os.path.normpath(folder))
        self.x, self.y = load("train_x"), load("train_y")
        has_tests = os.path.exists(os.path.join(folder, "test_x.npy"))
        self.test_x, self.test_y = map(load, ("test_x", "test_y")) if has_tests else (self.x[:0], self.y[:0])

    def gradient(self, w, l2):
        return self.x.T @ (self.x @ w - self.y) / len(self.y) + l2 * w

    def answer(self, task, w, l2, others=()):
        """Its weight, and its values in the order of the task's sums."""
        v = len(self.y) if task.weighting == run_pb.EXAMPLES else 1
        if task.rule.batch_size or task.encoding != run_pb.EXACT:
            raise ValueError("batch_size, encoding: this client knows 0 and EXACT only")
        eta, moves = task.rule.step_size, [np.zeros_like(w)]  # displacements after 0, 1, ... steps
        for _ in range(task.rule.steps or task.rule.epochs):
            moves.append(moves[-1] + eta * self.gradient(w - moves[-1], l2))
        gradient = self.gradient(w, l2)
        loss_at = lambda at: np.mean((self.x @ at - self.y) ** 2) / 2 + l2 / 2 * (at @ at)
        tests, test_loss = len(self.test_y), np.sum((self.test_x @ w - self.test_y) ** 2) / 2
        curvatures = lambda: np.linalg.eigvalsh(hessian())
        hessian = lambda: self.x.T @ self.x / len(self.y) + l2 * np.eye(len(w))
        steps = lambda s: s.steps or len(moves) - 1
        matrix = lambda field: np.frombuffer(field, "<f8").reshape(len(w), -1).T
        def displacement(s):
            norm = np.linalg.norm(moves[steps(s)])
            scale = task.max_norm / norm if 0 < task.max_norm < norm else 1
            if scale < 1 and not task.clip:
                raise ValueError(f"displacement: its norm is {norm}, the limit {task.max_norm}; step less")
            return moves[steps(s)] * scale
        known = {
            "displacement": displacement, "drift": lambda s: (eta * gradient - moves[steps(s)] / steps(s)) / eta,
            "gradient": lambda s: gradient, "hessian": lambda s: hessian(), "loss": lambda s: loss_at(w), "": lambda s: 1.0,
            "test_examples": lambda s: tests, "test_loss": lambda s: test_loss, "test_correct": lambda s: 0,
            "smoothness_above": lambda s: curvatures()[-1] > s.threshold, "convexity_above": lambda s: curvatures()[0] > s.threshold,
            "hessian_distance_above": lambda s: np.linalg.norm(hessian() - matrix(task.reference_hessian), 2) > s.threshold,
            "squared_hessian_distance": lambda s: np.linalg.matrix_power(hessian() - matrix(task.reference_hessian), 2),
            "accuracy_above": lambda s: tests > 0 and 0 > s.threshold, "loss_difference_above":
                lambda s: (loss_at(read_model(others[0].model.inline)) - loss_at(w) > s.threshold) / v,
            "newton_decrement": lambda s: v * gradient @ matrix(task.inverse_hessian) @ gradient, "target": lambda s: self.y.mean(),
            "largest_gradient_squared": lambda s: abs(gradient).max(), "squared_target": lambda s: np.mean(self.y ** 2),
            "largest_hessian_squared": lambda s: abs(hessian()).max(), "test_loss_above": lambda s: tests > 0 and test_loss / tests > s.threshold,
        }
        values = []
        for s in task.sums:
            source = SOURCES.get(s.name, s.name)
            if source not in known:
                raise ValueError(f"sum '{s.name}' is not one that this client knows; leave it out")
            x = np.ravel(known[source](s), "F").astype(float)  # a matrix by columns
            x = np.array([squared_norm(x)]) if s.name.endswith("_squared") else x
            x = v * x if s.name.startswith("weight") or s.name == "newton_decrement_squared" else x
            x = np.array([(squared_norm(x) ** 0.5 > s.threshold) / v]) if s.name == "displacement_above" else x
            if not np.all(((s.smallest if s.shape == pb.NUMBER else -s.largest) <= x) & (x <= s.largest)):  # NaN neither
                raise ValueError(f"{s.name} {x} is beyond {s.largest}, or below the smallest; raise max_update")
            values.append(x)
        return v, values


def limbs(x):
    """A number, cut off below 2^-128, as eight limbs of 32 bits with its sign."""
    units = int(fractions.Fraction(float(x)) * 2**128)
    return [(abs(units) >> 32 * k) % 2**32 * (1 if units > 0 else -1) for k in range(8)]


def tally(task, answers):
    """The integers of (weight, values, group) of several clients."""
    out = None
    for v, values, group in answers:
        pairs = list(zip(task.sums, values))
        numbers = [limb for s, x in pairs if s.shape == pb.NUMBER for limb in limbs(v * x[0])]
        vectors = [np.rint(v * x / s.unit).astype(np.int64) for s, x in pairs if s.shape != pb.NUMBER]
        row = np.concatenate([np.array([1, v, *numbers], np.int64), *vectors])
        out = np.zeros((task.groups, len(row)), "<i8") if out is None else out
        out[group] += row
    return out


def report(order, failures, payload=b"", **fields):
    """The parts of one report."""
    header = pb.ReportHeader(run_id=order.run_id, round=order.round, attempt=order.attempt,
                             base_sha256=order.model.sha256, failures=failures, **fields,
                             payload_size=len(payload), payload_hash=xxhash.xxh3_64_intdigest(payload))
    pieces = [payload[at:at + MIB] for at in range(0, len(payload), MIB)]
    first = pieces.pop() if len(pieces) == 1 else b""
    return [pb.Part(header=header, data=first), *(pb.Part(data=piece) for piece in pieces)]


def reports(order, w, l2, clients, alone):
    """All reports that answer an order."""
    done, failures, sums = [], [], order.task.sums
    asked = {(name, s.steps) for s in sums for name in ("", s.name)}
    for index, group in zip(order.clients, order.groups or [0] * len(order.clients)):
        try:
            done.append((clients[index].id, *clients[index].answer(order.task, w, l2, order.others), group))
        except ValueError as error:
            failures.append(pb.ClientFailure(client=clients[index].id, message=str(error)))
    if len(done) > 1 and not alone:
        payload = tally(order.task, [d[1:] for d in done]).tobytes()
        return [report(order, failures, payload, clients=[d[0] for d in done], encoding=pb.TALLY)]
    out = [report(order, failures)] if failures else []
    for name, v, values, group in done:
        numbers = [x[0] for s, x in zip(sums, values)
                   if s.shape == pb.NUMBER and (SOURCES.get(s.name), s.steps) not in asked]
        payload = b"".join(x.astype("<f8").tobytes() for s, x in zip(sums, values) if s.shape != pb.NUMBER)
        out.append(report(order, [], payload, clients=[name], encoding=pb.FLOAT64, numbers=numbers,
                          weight=v, group=group))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--versions", nargs=2, type=int, default=(3, 3))
    parser.add_argument("folders", nargs="+")
    given = parser.parse_args()
    clients = list(map(Client, given.folders))
    channel = grpc.insecure_channel(given.server, [("grpc.max_receive_message_length", 16 * MIB)])
    method = lambda kind, name, sent, received: getattr(channel, kind)(
        "/leeway.v1.Federation/" + name, sent.SerializeToString, received.FromString)
    join = method("unary_stream", "Join", pb.JoinRequest, pb.Order)
    fetch = method("unary_stream", "Fetch", pb.FetchRequest, pb.Chunk)
    submit = method("stream_stream", "Submit", pb.Part, pb.Receipt)
    request = pb.JoinRequest(
        oldest_version=given.versions[0], newest_version=given.versions[1], host="wire_client.py",
        instance=int.from_bytes(os.urandom(8), "little"), schema={"feature_shape": clients[0].x.shape[1:]},
        clients=[dict(id=c.id, examples=len(c.y), test_examples=len(c.test_y)) for c in clients])
    for order in join(request, wait_for_ready=True):
        if order.HasField("welcome"):
            l2 = order.welcome.model.linear_regression.l2
            for one in clients if order.welcome.model.linear_regression.intercept else []:  # an input that is always 1
                one.x, one.test_x = (np.c_[x, np.ones(len(x))] for x in (one.x, one.test_x))
        if (sha256 := order.model.sha256) == "":
            continue  # the first and the last
        file = order.model.inline or b"".join(c.data for c in fetch(pb.FetchRequest(sha256=sha256)))
        assert hashlib.sha256(file).hexdigest() == sha256, "the model came with other bytes"
        for parts in reports(order, read_model(file), l2, clients, given.alone):
            list(submit(iter(parts)))
    if not order.finished:
        sys.exit("the server closed the session before the run was over")


if __name__ == "__main__":
    try:
        main()
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
