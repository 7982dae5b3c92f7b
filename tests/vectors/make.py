#!/usr/bin/env python3
"""Makes the byte-level vectors of docs/wire-format.md, next to this file or in the folder given.

From struct, whole numbers and fractions only, so that neither Leeway's programs nor
tests/wire_client.py decide what is right. Each file is a list of cases; bytes are hexadecimal."""

import hashlib
import json
import os
import struct
import sys
from fractions import Fraction

import xxhash


def hashed(data):
    return {"payload": data.hex(), "payload_hash": f"{xxhash.xxh3_64_intdigest(data):016x}"}


# Payloads of one client.


def float64(values):
    return struct.pack(f"<{len(values)}d", *values)


def float32(values):
    return struct.pack(f"<{len(values)}f", *values)


def bfloat16(values):
    """Values that bfloat16 has: the upper halves of their float32."""
    words = [struct.pack("<f", x) for x in values]
    assert all(word[:2] == b"\0\0" for word in words)
    return b"".join(word[2:] for word in words)


def int8(blocks):
    return b"".join(struct.pack(f"<f{len(steps)}b", scale, *steps) for scale, steps in blocks)


def payload_cases():
    exact = [[0.1, -0.25, 1e300, -5e-324], [-0.0, 1 / 3, 2.0**53 + 2, -1.0]]
    single = [[struct.unpack("<f", struct.pack("<f", x))[0] for x in v]
              for v in ([0.1, -3.5, 1e-40], [3e38, -0.0, 1 / 3])]
    half = [[1.0, -3.140625, 2.0**-126], [-0.0, 2.0**100, 255.0]]
    # 258 values are a block of 256 and one of 2. A scale is the largest of its block / 127.
    long_steps = [(37 * i) % 255 - 127 for i in range(256)]
    long_blocks = [(2.0**-10, long_steps), (0.375, [127, -1])]
    two_vectors = [[(0.5, [127, -3, 0])], [(2.0**-20, [1, 64, -127])]]
    values = lambda blocks: [scale * step for scale, steps in blocks for step in steps]
    cases = [
        ("float64, two vectors", "FLOAT64", exact, b"".join(map(float64, exact))),
        ("float64, a matrix of two parameters by columns", "FLOAT64", [[1.0, 3.0], [3.0, -2.5]],
         float64([1.0, 3.0, 3.0, -2.5])),
        ("no vectors: an empty payload", "FLOAT64", [], b""),
        ("float32, two vectors", "FLOAT32", single, b"".join(map(float32, single))),
        ("bfloat16, two vectors", "BFLOAT16", half, b"".join(map(bfloat16, half))),
        ("int8, a vector of two blocks", "INT8", [values(long_blocks)], int8(long_blocks)),
        ("int8, two vectors: a block of its own each", "INT8", [values(b) for b in two_vectors],
         b"".join(map(int8, two_vectors))),
    ]
    return [{"name": name, "encoding": encoding, "vectors": vectors, **hashed(data)}
            for name, encoding, vectors, data in cases]


# Tallies.


def limbs(x):
    units = int(Fraction(x) * 2**128)  # int cuts off towards zero
    sign = -1 if units < 0 else 1
    out = [sign * (abs(units) >> (32 * k) & 0xFFFFFFFF) for k in range(8)]
    assert sum(limb << (32 * k) for k, limb in enumerate(out)) == units
    return out


def number(name, steps=0):
    return {"name": name, "shape": "NUMBER", "steps": steps, "smallest": -1e30, "largest": 1e30}


def vector(name, unit, largest, steps=0, shape="VECTOR"):
    return {"name": name, "shape": shape, "steps": steps, "unit": unit, "largest": largest}


def coordinate(v, x, unit):
    """round() of a fraction takes halves to even."""
    return round(Fraction(float(v) * x) / Fraction(unit))


def integers_of(sums, client):
    """What one client adds to its group."""
    v = client["weight"]
    out = [1, v]
    for asked, value in zip(sums, client["values"]):
        if asked["shape"] == "NUMBER":
            out += limbs(float(v) * value)
    for asked, value in zip(sums, client["values"]):
        if asked["shape"] != "NUMBER":
            columns = value if asked["shape"] == "MATRIX" else [value]
            out += [coordinate(v, x, asked["unit"]) for column in columns for x in column]
    return out


def totals(sums, like, row):
    """What a reader finds in the integers of a group: each sum, rounded to a float64."""
    numbers, vectors = row[2:], row[2:]
    for asked in sums:
        vectors = vectors[8:] if asked["shape"] == "NUMBER" else vectors
    out = {}
    for asked, value in zip(sums, like["values"]):
        if asked["shape"] == "NUMBER":
            limbs_of, numbers = numbers[:8], numbers[8:]
            out[asked["name"]] = float(sum(limb * Fraction(2)**(32 * k - 128)
                                           for k, limb in enumerate(limbs_of)))
        else:
            size = sum(map(len, value)) if asked["shape"] == "MATRIX" else len(value)
            out[asked["name"]] = [float(x * Fraction(asked["unit"])) for x in vectors[:size]]
            vectors = vectors[size:]
    return out


def tally_case(name, sums, clients, groups=1):
    """A client's `values` follow the sums; a matrix is a list of columns."""
    rows = [[0] * len(integers_of(sums, clients[0])) for _ in range(groups)]
    for client in clients:
        row = rows[client["group"]]
        rows[client["group"]] = [a + b for a, b in zip(row, integers_of(sums, client))]
    integers = [x for row in rows for x in row]
    return {"name": name, "groups": groups, "sums": sums, "clients": clients, "integers": integers,
            "totals": [totals(sums, clients[0], row) for row in rows],
            **hashed(struct.pack(f"<{len(integers)}q", *integers))}


def client(weight, values, group=0):
    return {"weight": weight, "group": group, "values": values}


def tally_cases():
    return [
        tally_case("one client; a number in three limbs, a negative one, one below 2^-128",
                   [number("loss"), number("drift_squared", 2), number("test_loss"),
                    vector("drift", 2.0**-30, 1024.0, steps=2)],
                   [client(1, [4096 / 3, -4096 / 3, 1.5 * 2.0**-128, [0.1, -0.1]])]),
        tally_case("products are rounded once, halves go to even",
                   [number("loss"), vector("displacement", 2.0**-4, 256.0)],
                   [client(5, [0.1, [0.03125, 0.09375, -0.03125, 0.1]]),
                    client(3, [0.1, [-0.03125, 1 / 3, 255.9999, 0.0]])]),
        tally_case("three clients in two groups, by weight; limbs of both signs are not carried",
                   [number("loss"), number("weight"), vector("gradient", 2.0**-20, 2.0**20)],
                   [client(3, [1e20, 3.0, [1.5, -2.25]], 1),
                    client(4, [-1.0, 4.0, [-1000000.0, 2.0**-21]], 0),
                    client(7, [-(2.0**-90) - 2.0**-120, 7.0, [0.7, 0.0]], 1)], 2),
        tally_case("a group that nobody is in",
                   [number("test_loss"), vector("displacement", 2.0**-40, 256.0)],
                   [client(1, [2.0**32, [1.0, -1.0]], 2)], 3),
        tally_case("a matrix, and a vector behind it",
                   [vector("hessian", 2.0**-10, 2.0**20, shape="MATRIX"), number("loss"),
                    vector("gradient", 2.0**-12, 2.0**20)],
                   [client(2, [[[1.0, 0.5], [0.25, -3.0]], 0.5, [1.0, 2.0]]),
                    client(2, [[[2.0, 0.5], [0.5, 1 / 3]], 0.25, [-1.0, 4.0]])]),
        tally_case("numbers alone", [number("smoothness_above"), number("convexity_above")],
                   [client(6, [1.0, 0.0]), client(2, [1.0, 1.0])]),
    ]


# The worked example.


def example():
    sums = [vector("displacement", 2.0**-40, 256.0), number("loss"), number("loss_squared")]
    together = tally_case("as a tally", sums, [client(3, [[0.5, -0.25], 2.0, 4.0])])
    assert together["integers"] == [1, 3, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0,
                                    1649267441664, -824633720832]
    return {"sums": sums, "weighting": "EXAMPLES", "client": "a", "examples": 3,
            "displacement": [0.5, -0.25], "loss": 2.0, "numbers": [2.0],
            "alone": {"encoding": "FLOAT64", **hashed(float64([0.5, -0.25]))}, "tally": together}


# Messages of protocol buffers, written by hand: fields in the order of their numbers.


def varint(x):
    out = b""
    while x > 127:
        out += bytes([x & 127 | 128])
        x >>= 7
    return out + bytes([x])


def whole(tag, x):
    return varint(tag << 3) + varint(x) if x else b""


def delimited(tag, data):
    return varint(tag << 3 | 2) + varint(len(data)) + data


def part(header, data):
    """Field numbers as in proto/federation.proto; zeros and empty fields are left out."""
    h = header
    out = delimited(1, h["run_id"].encode()) + whole(2, h["round"]) + whole(3, h["attempt"])
    out += b"".join(delimited(4, name.encode()) for name in h["clients"])
    out += delimited(5, h["base_sha256"].encode())
    out += whole(6, {"": 0, "FLOAT64": 2, "TALLY": 3}[h["encoding"]])
    out += delimited(7, float64(h["numbers"])) if h["numbers"] else b""
    out += whole(8, h["weight"]) + whole(9, h["group"]) + whole(10, len(data))
    out += varint(11 << 3 | 1) + struct.pack("<Q", xxhash.xxh3_64_intdigest(data))
    for failure in h["failures"]:
        out += delimited(12, delimited(1, failure["client"].encode()) +
                         delimited(2, failure["message"].encode()))
    out += whole(13, int(h["without_receipt"]))
    return delimited(1, out) + (delimited(2, data) if data else b"")


def part_cases():
    base = {"run_id": "3f2a", "round": 300, "attempt": 2, "clients": [], "encoding": "",
            "base_sha256": hashlib.sha256(b"").hexdigest(), "numbers": [], "weight": 0, "group": 0,
            "failures": [], "without_receipt": False}
    told = example()
    alone = dict(base, clients=["a"], encoding="FLOAT64", numbers=[2.0], weight=3, group=1)
    together = dict(base, clients=["a", "Zürich"], encoding="TALLY", without_receipt=True)
    failed = dict(base, failures=[{"client": "b", "message": "sum 'median' is not known; leave it out"}])
    cases = [("one client", alone, bytes.fromhex(told["alone"]["payload"])),
             ("a tally, without receipt", together, bytes.fromhex(tally_cases()[1]["payload"])),
             ("a failure alone", failed, b"")]
    return [{"name": name, "header": header, **hashed(data), "part": part(header, data).hex()}
            for name, header, data in cases]


# Hashes and models.


def hash_cases():
    """XXH3 has other rules from 4, 9, 17, 129, 241 and 1025 bytes on."""
    sizes = [0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 3000]
    return [{"size": size, **hashed(bytes((i * i + 7 * i) % 251 for i in range(size)))} for size in sizes]


def model_cases():
    values = float64([1.0, -2.5, 0.1, 7.0, 0.0, -1.0])
    header = json.dumps({"b": {"dtype": "F64", "shape": [2], "data_offsets": [32, 48]},
                         "a": {"dtype": "F64", "shape": [2, 2], "data_offsets": [0, 32]},
                         "__metadata__": {"format": "pt"}}).encode()
    file = struct.pack("<Q", len(header)) + header + values
    return [{"name": "two tensors, their header not in the order of the values", "file": file.hex(),
             "sha256": hashlib.sha256(file).hexdigest(), "values": [1.0, -2.5, 0.1, 7.0, 0.0, -1.0]}]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for name, content in {"example": example(), "payloads": payload_cases(), "tallies": tally_cases(),
                          "parts": part_cases(), "hashes": hash_cases(), "models": model_cases()}.items():
        lines = ([json.dumps(case) for case in content] if isinstance(content, list) else
                 [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()])
        begin, end = "[]" if isinstance(content, list) else "{}"
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write(begin + "\n" + ",\n".join(lines) + "\n" + end + "\n")


if __name__ == "__main__":
    main()
