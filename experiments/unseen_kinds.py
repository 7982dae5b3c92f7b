"""The two ways to a verdict on kinds of problems that neither was chosen on: FedAvg's fixed point beside w* (convex
models), and the release test, which needs no w*. 40 problems of five kinds, half of them with conflict: clients that
differ in their shares of classes, noise that grows with the inputs, heavy-tailed inputs, four to eight clients of very
unequal sizes that count by examples, and correlated inputs.

  experiments/unseen_kinds.py --bin build/bin [--problems 40] [--first 500]

Each problem is a run with a fixed point and a run that trains until it has settled and tests, with the same step size.
Prints the table of docs/measures.md, section 8. A wrong verdict ends it with an error."""

import argparse
import collections
import json
import os
import subprocess
import tempfile

import numpy as np

KINDS = ("class shares", "noise with inputs", "heavy tails", "few, unequal", "correlated")


def scales(rng, d, conflict):
    return np.exp(rng.uniform(np.log(0.4), np.log(2.5), size=d)) if conflict else np.exp(rng.uniform(-0.5, 0.5, size=d))


def class_shares(rng, conflict):
    """Classes with inputs around centres of their own, in shares that differ by client. With conflict, clients that see
    larger inputs also call two of the classes by each other's names more often."""
    d, classes, data = int(rng.integers(3, 7)), 3, []
    centres = 1.2 * rng.normal(size=(classes, d))
    swapped = rng.uniform(0.75, 0.95)
    for c in range(int(rng.integers(8, 20))):
        y = rng.choice(classes, size=80, p=rng.dirichlet(np.full(classes, 1.0)))
        odd = conflict and c % 2
        x = (centres[y] + rng.normal(size=(80, d))) * (2.5 if odd else 0.7 if conflict else 1)
        swap = odd * swapped > rng.random(80)
        y = np.where(swap & (y < 2), 1 - y, y)
        data.append((x, y.astype(np.int32)))
    return data


def noise_with_inputs(rng, conflict):
    d, data = int(rng.integers(3, 9)), []
    truth, k = rng.normal(size=d), rng.uniform(0.6, 1.4)
    for _ in range(int(rng.integers(12, 40))):
        s = scales(rng, d, conflict)
        x = rng.normal(size=(80, d)) * s
        noise = (0.2 + 0.5 * np.abs(x).mean(1)) * rng.normal(size=80)
        data.append((x, x @ (truth + conflict * k * (s - 1)) + noise))
    return data


def heavy_tails(rng, conflict):
    d, data = int(rng.integers(3, 7)), []
    truth, k = rng.normal(size=d), rng.uniform(0.6, 1.4)
    for _ in range(int(rng.integers(12, 40))):
        s = scales(rng, d, conflict)
        x = np.clip(rng.standard_t(3, size=(100, d)), -12, 12) * s
        data.append((x, x @ (truth + conflict * k * (s - 1)) + 0.7 * rng.standard_t(4, size=100)))
    return data


def few_unequal(rng, conflict):
    d, data = int(rng.integers(2, 6)), []
    truth, k = rng.normal(size=d), rng.uniform(0.8, 1.6)
    clients = int(rng.integers(4, 9))
    for n in np.geomspace(30, 900, clients).astype(int):
        s = scales(rng, d, conflict)
        x = rng.normal(size=(n, d)) * s
        data.append((x, x @ (truth + conflict * k * (s - 1)) + 0.5 * rng.normal(size=n)))
    return data


def correlated(rng, conflict):
    """Neighbouring inputs go together, or with conflict against each other in half of the clients, which then also
    answer differently in the direction that their inputs vary in most."""
    d, data = int(rng.integers(4, 9)), []
    truth, k = rng.normal(size=d), rng.uniform(0.6, 1.4)
    for c in range(int(rng.integers(10, 30))):
        r = (0.7, -0.7)[c % 2] if conflict else rng.uniform(0.4, 0.7)
        covariance = r ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
        values, vectors = np.linalg.eigh(covariance)
        most = vectors[:, -1] * np.sign(vectors[0, -1])
        x = rng.normal(size=(80, d)) @ np.linalg.cholesky(covariance).T
        data.append((x, x @ (truth + conflict * k * (1 if c % 2 else -1) * most) + 0.5 * rng.normal(size=80)))
    return data


MAKE = dict(zip(KINDS, (class_shares, noise_with_inputs, heavy_tails, few_unequal, correlated)))


class Lab:
    def __init__(self, binaries, data):
        self.leeway = os.path.join(binaries, "leeway")
        self.folder = tempfile.TemporaryDirectory()
        self.data = os.path.join(self.folder.name, "data")
        self.runs = 0
        for i, (x, y) in enumerate(data):
            client = os.path.join(self.data, f"client_{i:03d}")
            os.makedirs(client)
            np.save(os.path.join(client, "train_x.npy"), x)
            np.save(os.path.join(client, "train_y.npy"), y)

    def verdict(self, config):
        self.runs += 1
        path, out = (os.path.join(self.folder.name, f"{n}_{self.runs}") for n in ("config", "run"))
        with open(path, "w") as f:
            f.write(config)
        subprocess.run([self.leeway, "run", path, "--data", self.data, "--out", out, "--processes", "1"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        read = lambda verb: json.loads(subprocess.check_output([self.leeway, verb, out, "--json"]))
        return read("drift"), read("show")["releases"]


def one(options, kind, conflict, h, seed):
    lab = Lab(options.bin, MAKE[kind](np.random.default_rng(seed), conflict))
    model = ("softmax_regression { classes: 3 l2: 0.01 }" if kind == "class shares"
             else "linear_regression { intercept: false }")
    weighting = "EXAMPLES" if kind == "few, unequal" else "UNIFORM"
    head = f"model {{ {model} }} weighting: {weighting} durability: RELAXED"
    fixed = lab.verdict(f"""{head} phases {{ constants {{}} }} phases {{ optimum {{}} }}
        phases {{ fixed_point {{ auto_step_size: true steps: [{h}] }} }}""")[0]["evidence"][0]
    eta = fixed["step_size"]
    test, releases = lab.verdict(f"""{head}
        phases {{ train {{ rounds: {20000 // h} drift_off: true loss_off: true local {{ step_size: {eta!r} steps: {h} }} }} }}
        phases {{ release {{ step_size: {eta!r} steps: [{h}] rounds: 20 }} }}
        phases {{ release {{ step_size: {eta!r} steps: [{h}] }} }}""")
    return fixed, test["verdict"], [r["difference"] for r in releases]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--first", type=int, default=500, help="seed of the first problem")
    options = parser.parse_args()
    table, by_kind = collections.Counter(), collections.Counter()
    off, wrong = {5: [], 20: []}, []
    for i in range(options.problems):
        kind, conflict, h = KINDS[i % 5], (i // 5) % 2 == 0, (10, 50)[(i // 10) % 2]
        fixed, said, differences = one(options, kind, conflict, h, options.first + i)
        lost, gap = fixed["lost"], fixed["gap"]
        table[fixed["verdict"], said] += 1
        by_kind[kind, fixed["verdict"], said] += 1
        for name in (fixed["verdict"], said):
            if (name == "harmless" and lost > 0.03) or (name == "conflict" and lost < 0.01):
                wrong.append(i)
        ratio = {rounds: d / gap for rounds, d in zip((20, 5), differences)}
        if gap > fixed["sampling_error"]:
            for rounds in off:
                off[rounds].append(abs(ratio[rounds] - 1))
        print(f"{i:2} {kind:17} {'conflict' if conflict else 'none':8} H = {h}: lost {100 * lost:.3g} %, gap/guard "
              f"{gap / fixed['sampling_error']:.3g}, fixed point {fixed['verdict']}, release test {said}, D/gap "
              f"{ratio[5]:.4f}, of 20 rounds {ratio[20]:.4f}", flush=True)
    same = sum(n for (a, b), n in table.items() if a == b)
    print(f"\nsame verdict on {same} of {options.problems}; wrong: {wrong or 'none'}")
    for rounds, errors in off.items():
        print(f"D after {rounds} rounds differs from the gap by at most {100 * max(errors):.2g} %, in the median "
              f"{100 * np.median(errors):.2g} %, where the gap exceeds the guard ({len(errors)} problems)")
    print("\n| kind | fixed point | release test | problems |\n|---|---|---|---|")
    for (kind, a, b), n in sorted(by_kind.items()):
        print(f"| {kind} | {a} | {b} | {n} |")
    if wrong:
        raise SystemExit(f"wrong verdicts on problems {wrong}")


if __name__ == "__main__":
    main()
