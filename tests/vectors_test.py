"""The byte-level vectors of docs/wire-format.md, read and written by the independent client's
functions and by numpy; tests/common/vectors_test.cc does the same in C++."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import xxhash

import wire_client
from wire_client import pb

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")


def load(name):
    with open(os.path.join(FOLDER, name + ".json")) as f:
        return json.load(f)


def task_of(case):
    task = pb.Task(groups=case["groups"])
    for asked in case["sums"]:
        fields = dict(asked, shape=pb.SumShape.Value(asked["shape"]))
        task.sums.add(**fields)
    return task


def answers_of(case):
    """(weight, flat values, group) of every client."""
    return [(c["weight"], [np.ravel(x).astype(float) for x in c["values"]], c["group"])
            for c in case["clients"]]


def write_payload(encoding, vectors):
    if encoding in ("FLOAT64", "FLOAT32"):
        return b"".join(np.array(v, "<f8" if encoding == "FLOAT64" else "<f4").tobytes() for v in vectors)
    if encoding == "BFLOAT16":
        return b"".join((np.array(v, "<f4").view("<u4") >> 16).astype("<u2").tobytes() for v in vectors)
    out = b""
    for vector in vectors:
        for at in range(0, len(vector), 256):
            block = np.array(vector[at:at + 256])
            scale = np.float32(np.abs(block).max() / 127)
            out += scale.tobytes() + (block / float(scale)).astype(np.int8).tobytes()
    return out


def read_payload(encoding, payload, dimension):
    if encoding in ("FLOAT64", "FLOAT32"):
        values = np.frombuffer(payload, "<f8" if encoding == "FLOAT64" else "<f4").astype(float)
    elif encoding == "BFLOAT16":
        values = (np.frombuffer(payload, "<u2").astype("<u4") << 16).view("<f4").astype(float)
    else:
        values, left = [], payload
        while left:
            size = min(256, dimension - len(values) % dimension)
            scale = float(np.frombuffer(left[:4], "<f4")[0])
            values.extend(scale * np.frombuffer(left[4:4 + size], np.int8).astype(float))
            left = left[4 + size:]
    return np.reshape(values, (-1, dimension)).tolist()


class VectorsTest(unittest.TestCase):
    def assert_hash(self, case, data):
        self.assertEqual(f"{xxhash.xxh3_64_intdigest(data):016x}", case["payload_hash"])

    def test_the_files_are_those_that_the_generator_writes(self):
        with tempfile.TemporaryDirectory() as made:
            subprocess.run([sys.executable, os.path.join(FOLDER, "make.py"), made], check=True)
            names = sorted(os.listdir(made))
            self.assertEqual(names, sorted(n for n in os.listdir(FOLDER) if n.endswith(".json")
                                           and not n.startswith("worker-")))
            for name in names:
                with open(os.path.join(made, name)) as a, open(os.path.join(FOLDER, name)) as b:
                    self.assertEqual(a.read(), b.read(), f"{name}: run tests/vectors/make.py")

    def test_the_client_stays_small(self):
        """It shows that the page suffices and the format is simple."""
        with open(wire_client.__file__) as f:
            self.assertLessEqual(len(f.readlines()), 200)

    def test_hashes(self):
        for case in load("hashes"):
            self.assert_hash(case, bytes.fromhex(case["payload"]))

    def test_models(self):
        for case in load("models"):
            values = wire_client.read_model(bytes.fromhex(case["file"]))
            self.assertEqual(values.tolist(), case["values"])

    def test_payloads(self):
        for case in load("payloads"):
            with self.subTest(case["name"]):
                payload = bytes.fromhex(case["payload"])
                self.assert_hash(case, payload)
                self.assertEqual(write_payload(case["encoding"], case["vectors"]), payload)
                if case["vectors"]:
                    decoded = read_payload(case["encoding"], payload, len(case["vectors"][0]))
                    # repr tells 0 from -0.
                    self.assertEqual(repr(decoded), repr(case["vectors"]))

    def test_tallies(self):
        for case in [*load("tallies"), load("example")["tally"]]:
            with self.subTest(case["name"]):
                payload = bytes.fromhex(case["payload"])
                self.assert_hash(case, payload)
                written = wire_client.tally(task_of(case), answers_of(case))
                self.assertEqual(written.ravel().tolist(), case["integers"])
                self.assertEqual(written.tobytes(), payload)
                self.check_decoded(case, np.frombuffer(payload, "<i8").reshape(case["groups"], -1))

    def check_decoded(self, case, groups):
        """A reader's sums are those of the file, and near those of the clients' values."""
        for group, row in enumerate(groups.tolist()):
            members = [a for a in answers_of(case) if a[2] == group]
            self.assertEqual(row[:2], [len(members), sum(v for v, _, _ in members)])
            at = 2
            for numbers in (True, False):
                for i, asked in enumerate(case["sums"]):
                    if (asked["shape"] == "NUMBER") != numbers:
                        continue
                    size = 8 if numbers else np.size(case["clients"][0]["values"][i])
                    read, at = row[at:at + size], at + size
                    unit = Fraction(2) ** -128 if numbers else Fraction(asked["unit"])
                    found = ([sum(limb << 32 * k for k, limb in enumerate(read)) * unit] if numbers
                             else [x * unit for x in read])
                    self.assertEqual([float(x) for x in found],
                                     np.ravel(case["totals"][group][asked["name"]]).tolist())
                    for j, value in enumerate(found):
                        terms = [v * Fraction(values[i][j]) for v, values, _ in members]
                        # One rounding of a product to 53 bits and one to the unit, for each client.
                        bound = sum(unit + abs(t) * Fraction(2) ** -53 for t in terms)
                        self.assertLessEqual(abs(value - sum(terms)), bound)
            self.assertEqual(at, len(row))

    def test_the_worked_example(self):
        case = load("example")
        payload = bytes.fromhex(case["alone"]["payload"])
        self.assert_hash(case["alone"], payload)
        self.assertEqual(write_payload("FLOAT64", [case["displacement"]]), payload)
        (client,) = case["tally"]["clients"]
        self.assertEqual(client, {"weight": case["examples"], "group": 0,
                                  "values": [case["displacement"], case["loss"], case["loss"] ** 2]})

    def test_parts(self):
        for case in load("parts"):
            with self.subTest(case["name"]):
                message, payload = bytes.fromhex(case["part"]), bytes.fromhex(case["payload"])
                fields = dict(case["header"])
                fields["encoding"] = pb.Encoding.Value(fields["encoding"] or "ENCODING_UNSPECIFIED")
                read = pb.Part.FromString(message)
                self.assertEqual(read.data, payload)
                self.assertEqual(read.header, pb.ReportHeader(
                    **fields, payload_size=len(payload), payload_hash=int(case["payload_hash"], 16)))
                order = SimpleNamespace(run_id=fields.pop("run_id"), round=fields.pop("round"),
                                        attempt=fields.pop("attempt"),
                                        model=SimpleNamespace(sha256=fields.pop("base_sha256")))
                (written,) = wire_client.report(order, fields.pop("failures"), payload, **fields)
                self.assertEqual(written.SerializeToString(deterministic=True), message)


if __name__ == "__main__":
    unittest.main()
