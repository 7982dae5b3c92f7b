#!/usr/bin/python3
"""How to choose the number of local steps: rules beside every fixed H, in numpy alone.

Quadratic clients as in the paper (100 clients, 100 examples, 30 features) and two kinds of conflict: what a client wants
depends on its inputs' scale ("paper"), or is drawn at random ("random"). Rounds until the loss gap is 10^-2, 10^-4, 10^-6,
10^-8 of the first; "-": not within ROUNDS. Rules as in docs/measures.md, "Local steps chosen by what they achieve".

experiments/local_steps.py [--seeds N]
"""

import argparse

import numpy as np

LARGEST = 64
ROUNDS = 3000
TARGETS = [1e-2, 1e-4, 1e-6, 1e-8]


class Problem:
    """The mean displacement after h steps is affine in w, so a round is one product."""

    def __init__(self, seed, conflict, kind, clients=100, samples=100, dimension=30):
        rng = np.random.default_rng(seed)
        scales = 5 * rng.random(clients)
        truth = rng.standard_normal(dimension)
        hessians, linear = [], []
        for scale in scales:
            x = scale * rng.random((samples, dimension))
            shift = ((scale - scales.mean()) / np.sqrt(dimension) if kind == "paper"
                     else rng.standard_normal(dimension))
            y = x @ (truth + conflict * shift) + 0.3 * rng.standard_normal(samples)
            hessians.append(x.T @ x / samples)
            linear.append(x.T @ y / samples)
        a, b = np.array(hessians), np.array(linear)
        self.eta = 1 / max(np.linalg.eigvalsh(h)[-1] for h in a)
        self.hessian, self.optimum = a.mean(0), np.linalg.solve(a.mean(0), b.mean(0))
        own = np.linalg.solve(a, b[..., None])[..., 0]
        one = np.eye(dimension)
        shrink, self.moves, h = one - self.eta * a, {}, 1
        while h <= LARGEST:
            self.moves[h] = ((one - shrink).mean(0), np.einsum("cij,cj->ci", one - shrink, own).mean(0))
            shrink, h = shrink @ shrink, 2 * h

    def gap(self, w):
        away = w - self.optimum
        return away @ self.hessian @ away / 2

    def displacement(self, w, h):
        matrix, offset = self.moves[h]
        return matrix @ w - offset


def fixed(h):
    def choose(problem, w, state):
        return h, state
    return choose


def ratio(theta):
    """The largest h whose drift is at most theta |grad F|."""
    def choose(problem, w, state):
        gradient = problem.displacement(w, 1) / problem.eta
        fits = [h for h in problem.moves if np.linalg.norm(gradient - problem.displacement(w, h) / (problem.eta * h))
                <= theta * np.linalg.norm(gradient)]
        return max(fits, default=1), state
    return choose


def by_decrease(problem, w, state):
    """auto_steps: half as many when a round brought less than one gradient step guarantees. A round's loss is known
    when its local steps have been taken, so the new number comes with the next round."""
    h, before = state or (LARGEST, None)
    gradient = problem.displacement(w, 1) / problem.eta
    now = (problem.gap(w), problem.eta / 2 * gradient @ gradient)
    if before is not None and h > 1 and before[0] - now[0] < before[1]:
        return h, (h // 2, None)
    return h, (h, now)


def rounds_to_targets(problem, choose):
    w = np.zeros(len(problem.optimum))
    first, state, reached = problem.gap(w), None, []
    for done in range(ROUNDS):
        while len(reached) < len(TARGETS) and problem.gap(w) <= TARGETS[len(reached)] * first:
            reached.append(done)
        if len(reached) == len(TARGETS):
            break
        h, state = choose(problem, w, state)
        w = w - problem.displacement(w, h)
    return reached + [None] * (len(TARGETS) - len(reached))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="problems of each kind (default 3)")
    seeds = parser.parse_args().seeds
    rules = {f"H = {h}": fixed(h) for h in (1, 2, 4, 8, 16, 32, 64)}
    rules.update({"ratio, 0.8": ratio(0.8), "ratio, 0.95": ratio(0.95), "auto_steps": by_decrease})
    worst = {name: 0.0 for name in rules}
    for kind in ("paper", "random"):
        for conflict in (0, 0.003, 0.01, 0.1, 1):
            found = {name: [] for name in rules}
            for seed in range(seeds):
                problem = Problem(seed, conflict, kind)
                for name, rule in rules.items():
                    found[name].append(rounds_to_targets(problem, rule))
                best = [min((found[f"H = {h}"][-1][k] or np.inf for h in (1, 2, 4, 8, 16, 32, 64)))
                        for k in range(len(TARGETS))]
                for name in rules:
                    for k, limit in enumerate(best):
                        if np.isfinite(limit):
                            worst[name] = max(worst[name], (found[name][-1][k] or np.inf) / limit)
            print(f"{kind}, conflict {conflict}: median rounds of {seeds} problem(s)")
            for name in rules:
                columns = [[r[k] for r in found[name]] for k in range(len(TARGETS))]
                print(f"  {name:12}", *(f"{np.median(c):6.0f}" if None not in c else "     -" for c in columns))
    print("most rounds at any target, over those of the best fixed H for that target:")
    for name, value in worst.items():
        print(f"  {name:12} {value:6.2f}")


if __name__ == "__main__":
    main()
