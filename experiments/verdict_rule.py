"""The verdict's rule on problems that it was not chosen on: what it says, what the rule before it said (the loss gap in
standard errors of the loss over clients), and what is true: how much the loss on fresh data of the same clients rises
from the optimum to where FedAvg settles, as a share of what the best model explains there.

  experiments/verdict_rule.py --bin build/bin [--seeds 4] [--first 0]

Prints one line per problem and the confusion tables of docs/measures.md, section 7."""

import argparse
import collections
import json
import os
import subprocess
import tempfile

import numpy as np

HARMLESS, CONFLICT = 0.01, 0.03


def spread(rng, d, low, high):
    return np.exp(rng.uniform(np.log(low), np.log(high), size=d))


def regression(rng, clients, size, scale, optimum, noise):
    """One client after the other: the scale of its inputs, its own optimum, its noise and its number of examples."""
    out = []
    for c in range(clients):
        s = scale(c)
        out.append({"scale": s, "w": optimum(c, s), "noise": noise(c), "n": int(size(c))})
    return out


def problems(rng):
    d = int(rng.integers(3, 10))
    truth, k = rng.normal(size=d), rng.uniform(0.3, 1.5)
    same = lambda c: np.ones(d)
    wide = lambda c: spread(rng, d, 0.35, 2.8)
    mild = lambda c: spread(rng, d, 0.6, 1.7)
    one = lambda c, s: truth
    against = lambda c, s: truth + k * (s - 1)  # what the inputs weigh goes with the optimum: does not average out
    at_random = lambda c, s: truth + 0.5 * rng.normal(size=d)
    groups = lambda c: np.where(np.arange(d) % 3 == c % 3, 2.2, 0.7)
    sizes = lambda c: np.exp(rng.uniform(np.log(15), np.log(500)))
    fixed = lambda n: lambda c: n
    make = lambda *arguments: regression(rng, *arguments)
    return {
        "identical, noisy": make(60, fixed(40), same, one, fixed(6.0)),
        "identical, 15 examples each": make(60, fixed(15), same, one, fixed(1.0)),
        "identical, six silos": make(6, fixed(200), same, one, fixed(1.0)),
        "one truth, inputs differ": make(40, fixed(60), wide, one, fixed(1.0)),
        "one truth, sizes differ": make(40, sizes, mild, one, fixed(2.0)),
        "optima at random, 60 clients": make(60, fixed(80), mild, at_random, fixed(0.5)),
        "optima at random, six silos": make(6, fixed(80), mild, at_random, fixed(0.5)),
        "tiny conflict, 600 clients": make(600, fixed(30), wide, lambda c, s: truth + 0.05 * (s - 1), fixed(1.0)),
        "conflict": make(30, fixed(100), wide, against, fixed(1.0)),
        "conflict, six silos": make(6, fixed(200), wide, against, fixed(1.0)),
        "conflict, half of the clients noisy": make(60, fixed(60), wide, against, lambda c: (0.5, 6.0)[c % 2]),
        "conflict, sizes differ": make(40, sizes, wide, against, fixed(1.0)),
        "conflict of three groups": make(24, fixed(80), groups, lambda c, s: truth + k * (s > 1), fixed(1.0)),
    }


def draw(rng, client, n=None):
    n = n or client["n"]
    x = rng.normal(size=(n, len(client["w"]))) * client["scale"]
    return x, x @ client["w"] + client["noise"] * rng.normal(size=n)


def solve(data, p, h):
    """The optimum and FedAvg's fixed point, in closed form."""
    a = np.array([x.T @ x / len(y) for x, y in data])
    b = np.array([x.T @ y / len(y) for x, y in data])
    eta = 1 / max(np.linalg.eigvalsh(m)[-1] for m in a)
    one = np.eye(a.shape[1])
    powers = np.array([np.linalg.matrix_power(one - eta * m, h) for m in a])
    pull = sum(q * (one - m) @ np.linalg.pinv(own) @ v for q, m, own, v in zip(p, powers, a, b))
    return (np.linalg.solve(np.tensordot(p, a, 1), p @ b),
            np.linalg.solve(one - np.tensordot(p, powers, 1), pull))


def truly_lost(rng, clients, p, h, draws=6):
    """On fresh data of the same clients, the mean over several draws of the data that models come from."""
    total = 0
    for _ in range(draws):
        best, rest = solve([draw(rng, c) for c in clients], p, h)
        fresh = [draw(rng, c, 20 * c["n"]) for c in clients]
        loss = lambda w: p @ [np.mean((x @ w - y) ** 2) / 2 for x, y in fresh]
        mean = p @ [y.mean() for _, y in fresh]
        constant = (p @ [np.mean(y ** 2) for _, y in fresh] - mean ** 2) / 2
        total += (loss(rest) - loss(best)) / (constant - loss(solve(fresh, p, 1)[0])) / draws
    return total


# Classes: the same with labels. FedAvg is run until it has settled.


def labels(rng, client, classes, n=None):
    n = n or client["n"]
    x = rng.normal(size=(n, client["w"].shape[1])) * client["scale"]
    return x, np.argmax(x @ client["w"].T + rng.gumbel(size=(n, classes)), axis=1).astype(np.int32)


def classifiers(rng, conflict):
    d, classes = 3, 3
    truth, out = 1.5 * rng.normal(size=(classes, d)), []
    for c in range(12):
        s = np.where(np.arange(d) % 3 == c % 3, 2.5, 0.6) if conflict else spread(rng, d, 0.6, 1.7)
        out.append({"scale": s, "w": truth + conflict * 2.5 * rng.permutation(3)[:, None] * (s > 1), "n": 100})
    return out


def softmax_gradient(x, y, w, l2=1e-3):
    x = np.column_stack([x, np.ones(len(x))])
    z = x @ w.T
    z -= z.max(1, keepdims=True)
    p = np.exp(z)
    p /= p.sum(1, keepdims=True)
    loss = -np.mean(np.log(p[np.arange(len(y)), y])) + l2 / 2 * np.sum(w * w)
    p[np.arange(len(y)), y] -= 1
    return loss, p.T @ x / len(y) + l2 * w


def softmax_truth(rng, clients, h, classes=3):
    data = [labels(rng, c, classes) for c in clients]
    curvature = lambda x: np.linalg.eigvalsh(np.cov(x.T, bias=True) + np.outer(x.mean(0), x.mean(0)))[-1] + 1
    eta = 2 / max(curvature(x) for x, _ in data)
    size = (classes, data[0][0].shape[1] + 1)

    def train(data, steps, rounds):
        w = np.zeros(size)
        for _ in range(rounds):
            ends = []
            for x, y in data:
                own = w.copy()
                for _ in range(steps):
                    own -= eta * softmax_gradient(x, y, own)[1]
                ends.append(own)
            w = np.mean(ends, 0)
        return w

    fresh = [labels(rng, c, classes, 20 * c["n"]) for c in clients]
    loss = lambda w: np.mean([softmax_gradient(x, y, w)[0] for x, y in fresh])
    shares = np.mean([np.bincount(y, minlength=classes) / len(y) for _, y in fresh], 0)
    pooled = [(np.concatenate([x for x, _ in fresh]), np.concatenate([y for _, y in fresh]))]
    best, rest = train(data, 1, 1500), train(data, h, 100)
    return (loss(rest) - loss(best)) / (-shares @ np.log(shares) - loss(train(pooled, 1, 500)))


def run(options, data, model, weighting, h):
    with tempfile.TemporaryDirectory() as folder:
        for i, (x, y) in enumerate(data):
            client = os.path.join(folder, "data", f"client_{i:04d}")
            os.makedirs(client)
            np.save(os.path.join(client, "train_x.npy"), x)
            np.save(os.path.join(client, "train_y.npy"), y)
        path, out = os.path.join(folder, "c.textproto"), os.path.join(folder, "run")
        with open(path, "w") as f:
            f.write(f"""model {{ {model} }} weighting: {weighting} durability: RELAXED phases {{ constants {{}} }}
                phases {{ optimum {{}} }} phases {{ fixed_point {{ auto_step_size: true steps: [{h}] }} }}""")
        leeway = os.path.join(options.bin, "leeway")
        subprocess.run([leeway, "run", path, "--data", os.path.join(folder, "data"), "--out", out, "--processes", "1"],
                       check=True, stdout=subprocess.DEVNULL)
        answer = json.loads(subprocess.check_output([leeway, "drift", out, "--json"]))
        return {**answer["evidence"][0], "sentence": answer["sentence"]}


def old_rule(gap, clients):
    if gap > 1:
        return "conflict"
    return "harmless" if gap < 0.25 and clients >= 10 else "uncertain"


def name_of(lost):
    return "harmless" if lost < HARMLESS else "conflict" if lost > CONFLICT else "between"


def one_problem(options, kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    h = (10, 50)[seed % 2]
    if kind.startswith("classes"):
        h = 20
        clients = classifiers(rng, kind.endswith("conflict"))
        evidence = run(options, [labels(rng, c, 3) for c in clients], "softmax_regression { classes: 3 l2: 0.001 }",
                       "UNIFORM", h)
        return h, len(clients), evidence, softmax_truth(rng, clients, h)
    clients = problems(rng)[kind]
    weighting = ("UNIFORM", "EXAMPLES")[(seed // 2) % 2]
    v = np.array([c["n"] if weighting == "EXAMPLES" else 1.0 for c in clients])
    evidence = run(options, [draw(rng, c) for c in clients], "linear_regression { intercept: false }", weighting, h)
    return h, len(clients), evidence, truly_lost(rng, clients, v / v.sum(), h)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    tables = {"new": collections.Counter(), "old": collections.Counter()}
    kinds = list(problems(np.random.default_rng(0))) + ["classes, one truth", "classes, conflict"]
    for kind in kinds:
        for seed in range(options.first, options.first + options.seeds):
            h, clients, e, truth = one_problem(options, kind, seed)
            old = old_rule(e["gap_in_standard_errors"], clients)
            tables["new"][name_of(truth), e["verdict"]] += 1
            tables["old"][name_of(truth), old] += 1
            print(f"{kind:36} H = {h}: lost {100 * e['lost']:7.3f} %, on fresh data {100 * truth:7.3f} %: {e['verdict']:9} "
                  f"(gap/sampling error {e['gap'] / e['sampling_error']:.3g}); in standard errors "
                  f"{e['gap_in_standard_errors']:.3g}: {old}", flush=True)
    for rule, table in tables.items():
        print(f"\n{rule} rule\n\n| on fresh data | harmless | uncertain | conflict |\n|---|---|---|---|")
        for truth in ("harmless", "between", "conflict"):
            print(f"| {truth} | " + " | ".join(str(table[truth, said]) for said in ("harmless", "uncertain", "conflict")) + " |")


if __name__ == "__main__":
    main()
