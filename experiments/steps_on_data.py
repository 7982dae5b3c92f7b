#!/usr/bin/python3
"""Rounds to a target accuracy with local steps chosen round by round (`auto_steps`), beside every fixed number of them.

  experiments/steps_on_data.py FOLDER --bin build/bin [--rounds 120]

Softmax regression on FEMNIST by writer (105 writers, images of 14 x 14, tests of the same writers) and on Fashion-MNIST with Dirichlet(0.1)
shares of each class (46 clients, 10,000 images of 14 x 14, one test set), 20 clients a round, batches of 20. FOLDER as for
`./run real`. Prints the tables of docs/results.md, "Local steps by what they achieve".
"""

import argparse
import json
import os
import subprocess
import tempfile

import numpy as np

import federations

RULES = {"H = 1": "steps: 1", "H = 5": "steps: 5", "H = 20": "steps: 20", "1 epoch": "epochs: 1", "5 epochs": "epochs: 5",
         "auto_steps": "auto_steps {}"}
EVERY = 2


def save(folder, train, tests, central):
    for i, (x, y) in enumerate(train):
        parts = {"train": (x, y)}
        if tests is not None and tests[i] is not None and len(tests[i][1]) > 0:
            parts["test"] = tests[i]
        write(os.path.join(folder, f"client_{i:03d}"), parts)
    if central is not None:
        write(os.path.join(folder, "evaluator"), {"test": central})


def write(folder, parts):
    os.makedirs(folder)
    for part, (x, y) in parts.items():
        np.save(os.path.join(folder, f"{part}_x.npy"), x)
        np.save(os.path.join(folder, f"{part}_y.npy"), y)


def train(options, folder, classes, eta, rule):
    """(round, accuracy) of the evaluations, and the local steps of each round."""
    leeway = os.path.join(options.bin, "leeway")
    with tempfile.TemporaryDirectory() as out:
        path = os.path.join(out, "config.textproto")
        with open(path, "w") as f:
            f.write(f"""seed: 1 model {{ softmax_regression {{ classes: {classes} l2: 1e-4 }} }} durability: RELAXED cohort {{ size: 20 }}
                phases {{ train {{ rounds: {options.rounds} drift_off: true loss_off: {str('auto' not in rule).lower()}
                evaluate_every: {EVERY} local {{ step_size: {eta} batch_size: 20 {rule} }} }} }}""")
        subprocess.run([leeway, "run", path, "--data", folder, "--out", os.path.join(out, "run"), "--processes", "1"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        shown = json.loads(subprocess.check_output([leeway, "show", os.path.join(out, "run"), "--json"]))
    accuracy = [(e["trained_rounds"], e["central_accuracy"] if e["central_examples"] else e["accuracy"])
                for e in shown["evaluations"]]
    return accuracy, [r["local_steps"] for r in shown["rounds"]]


def reached(accuracy, target):
    """The first evaluated round after which it is reached, and still is at the next evaluation: no lucky round."""
    for (_, a), (done, b) in zip(accuracy, accuracy[1:]):
        if min(a, b) >= target:
            return done - EVERY
    return None


def table(options, name, folder, classes, eta, targets):
    print(f"\n{name}, step size {eta}: rounds until the test accuracy is\n\n| local steps | "
          + " | ".join(f"{100 * t:.0f} %" for t in targets) + f" | after {options.rounds} rounds |\n|---|"
          + "---|" * (len(targets) + 1), flush=True)
    for rule_name, rule in RULES.items():
        accuracy, steps = train(options, folder, classes, eta, rule)
        rounds = [reached(accuracy, t) for t in targets]
        print(f"| {rule_name} | " + " | ".join("–" if r is None else str(r) for r in rounds)
              + f" | {100 * np.mean([a for _, a in accuracy[-3:]]):.1f} % |", flush=True)
        if "auto" in rule:
            changes = [(i, h) for i, h in enumerate(steps) if i == 0 or h != steps[i - 1]]
            print("H by round: " + ", ".join(f"{h} from round {i}" for i, h in changes), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--rounds", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clients, central = federations.fashion_dirichlet(np.random.default_rng(1))
        save(os.path.join(folder, "fashion"), clients, None, central)
        table(options, "Fashion-MNIST, Dirichlet(0.1)", os.path.join(folder, "fashion"), 10, 0.1, (0.6, 0.7, 0.75))
        clients, tests = federations.femnist(options.folder)
        save(os.path.join(folder, "femnist"), clients, tests, None)
        table(options, "FEMNIST by writer", os.path.join(folder, "femnist"), 62, 0.1, (0.4, 0.5, 0.6))


if __name__ == "__main__":
    main()
