"""Release tests against what is known: 40 regression problems, half of them with conflict, whose fixed points
numpy has in closed form. Networks are in experiments/networks.py.

  experiments/release.py --bin build/bin [--problems 40] [--first 100]

Prints the table of docs/results.md, "Release test"."""

import argparse
import collections
import json
import os
import subprocess
import tempfile

import numpy as np

KINDS = ("shifted", "groups", "rotated", "scaled")


def examples(rng, n, transform, w, noise):
    x = rng.normal(size=(n, len(w))) @ transform
    return x, x @ w + noise * rng.normal(size=n)


def problem(kind, conflict, rng):
    """Clients of one kind. With conflict their optima go with their curvature, so that they do not average out."""
    d, clients, n = int(rng.integers(4, 12)), int(rng.integers(8, 41)), int(rng.integers(20, 120))
    truth, strength = rng.normal(size=d), rng.uniform(0.3, 1.5)
    data = []
    for c in range(clients):
        w = truth
        if kind == "shifted":  # some inputs of a client are larger, and count for more
            scale = np.where(rng.random(d) < 0.5, rng.uniform(0.3, 3), 1) if conflict else rng.uniform(0.5, 2, size=d)
            transform = np.diag(scale)
            w = truth + conflict * strength * (scale - 1)
        elif kind == "groups":  # three groups with inputs of their own
            own = np.arange(d) % 3 == c % 3
            transform = np.diag(np.where(own, 2.5, 0.6) if conflict else np.where(own, 2.0, 0.7))
            w = truth + conflict * strength * own
        elif kind == "rotated":  # any Hessian, and an optimum along what it weighs
            q, _ = np.linalg.qr(rng.normal(size=(d, d)))
            hessian = q * np.geomspace(*((0.2, 4) if conflict else (0.3, 3)), d) @ q.T
            transform = np.linalg.cholesky(hessian).T
            along = hessian @ np.ones(d)
            w = truth + conflict * 1.5 * strength * along / np.linalg.norm(along)
        else:  # larger inputs, a steeper answer
            scale = rng.uniform(0.3, 3) if conflict else 1
            transform = scale * np.eye(d)
            w = truth * (1 + conflict * strength * (scale - 1) / 2)
        data.append(examples(rng, n, transform, w, rng.uniform(0.3, 1)))
    return data


def closed_form(data, h):
    """The step size 1/L, and the gap of FedAvg's fixed point, its share and what the optimum owes to the sample."""
    a = np.array([x.T @ x / len(y) for x, y in data])
    b = np.array([x.T @ y / len(y) for x, y in data])
    eta = 1 / max(np.linalg.eigvalsh(m)[-1] for m in a)
    one = np.eye(a.shape[1])
    powers = np.array([np.linalg.matrix_power(one - eta * m, h) for m in a])
    pull = np.mean([(one - p) @ np.linalg.solve(m, v) for p, m, v in zip(powers, a, b)], 0)
    best = np.linalg.solve(a.mean(0), b.mean(0))
    rest = np.linalg.solve(one - powers.mean(0), pull)
    loss = lambda w: np.mean([np.mean((x @ w - y) ** 2) / 2 for x, y in data])
    targets = np.concatenate([y for _, y in data])
    gap = loss(rest) - loss(best)
    g = a @ best - b
    guard = np.trace(np.linalg.solve(a.mean(0), g.T @ g / len(g) / (len(g) - 1))) / 2
    lost = gap / (targets.var() / 2 - loss(best))
    verdict = "harmless" if lost < 0.01 or gap < guard else "conflict" if lost > 0.03 else "uncertain"
    return eta, gap, guard, lost, verdict


def save(data, folder):
    for i, (x, y) in enumerate(data):
        client = os.path.join(folder, f"client_{i:03d}")
        os.makedirs(client)
        np.save(os.path.join(client, "train_x.npy"), x)
        np.save(os.path.join(client, "train_y.npy"), y)


def run(options, config, data):
    """Runs a config over clients in memory; returns what `leeway show --json` says and, as "verdict", `leeway drift --json`
    (None if the run has no verdict)."""
    with tempfile.TemporaryDirectory() as folder:
        save(data, os.path.join(folder, "data"))
        path = os.path.join(folder, "config.textproto")
        with open(path, "w") as f:
            f.write(config)
        leeway = os.path.join(options.bin, "leeway")
        out = os.path.join(folder, "run")
        subprocess.run([leeway, "run", path, "--data", os.path.join(folder, "data"), "--out", out, "--processes", "1"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        shown = json.loads(subprocess.check_output([leeway, "show", out, "--json"]))
        drift = subprocess.run([leeway, "drift", out, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        shown["verdict"] = json.loads(drift.stdout) if drift.returncode == 0 else None
        return shown


def regressions(options):
    table = collections.Counter()
    worst, wrong = 0, 0
    for i in range(options.problems):
        rng = np.random.default_rng(options.first + i)
        conflict, h = (i // 4) % 2 == 0, (10, 50)[(i // 8) % 2]
        data = problem(KINDS[i % 4], conflict, rng)
        eta, gap, guard, lost, expected = closed_form(data, h)
        verdict = run(options, f"""model {{ linear_regression {{ intercept: false }} }} durability: RELAXED
            phases {{ train {{ rounds: {4000 // h} drift_off: true local {{ step_size: {eta!r} steps: {h} }} }} }}
            phases {{ release {{ step_size: {eta!r} steps: [{h}] }} }}""", data)["verdict"]
        said, difference = verdict["verdict"], verdict["releases"][0]["difference"]
        table[expected, said] += 1
        wrong += (said == "harmless" and lost > 0.03 and gap > guard) or (said == "conflict" and lost < 0.01)
        if gap > guard:
            worst = max(worst, abs(difference / gap - 1))
        print(f"{KINDS[i % 4]:8} {'conflict' if conflict else 'none':8} H = {h}: lost {100 * lost:.3g} %, fixed point "
              f"{expected}, release test {said}, D/gap {difference / gap:.4f}", flush=True)
    print(f"\nsame verdict on {sum(n for (a, b), n in table.items() if a == b)} of {options.problems}, {wrong} wrong; "
          f"D differs from the gap by at most {100 * worst:.2g} % where that exceeds the guard")
    for (expected, said), n in sorted(table.items()):
        print(f"  fixed point {expected}, release test {said}: {n}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--first", type=int, default=100, help="seed of the first problem")
    regressions(parser.parse_args())


if __name__ == "__main__":
    main()
