#!/usr/bin/python3
"""Release tests of networks at a plateau that local steps make, beside the same examples dealt at random.

  experiments/networks.py --bin build/bin [--shakespeare FILE] [--only mlp cnn lstm] [--seeds 10]

Each network trains with H local steps until it no longer gets anywhere; then comes a release test, and then
training goes on with one step a round. Data: two kinds of clients that contradict each other (MLP); Fashion-MNIST, two
classes per client, images of 14 x 14 (CNN; Debian package dataset-fashion-mnist); lines of one role of Shakespeare's
plays per client (LSTM; TFF's shakespeare_train.h5). Prints the tables of docs/results.md, "Networks".
"""

import argparse
import gzip
import os

import numpy as np

from release import run

FASHION = "/usr/share/datasets/fashion-mnist"


def deal(clients, rng):
    """The same examples at random among clients of the same sizes."""
    x, y = (np.concatenate([c[i] for c in clients]) for i in (0, 1))
    order = rng.permutation(len(y))
    cuts = np.cumsum([len(c[1]) for c in clients])[:-1]
    return list(zip(np.split(x[order], cuts), np.split(y[order], cuts)))


def disagreeing(rng, _):
    """Two kinds of clients that weigh the two inputs differently and answer differently."""
    clients = []
    for c in range(6):
        x = rng.normal(size=(200, 2)) * ((3, 0.5) if c % 2 else (0.5, 3))
        y = x @ ((1, -1.5) if c % 2 else (-1.5, 1)) + 0.5 * rng.normal(size=200) > 0
        clients.append((x.astype(np.float32), y.astype(np.int32)))
    return clients


def two_classes(rng, _, clients=10, samples=40):
    """Fashion-MNIST: client c has images of the classes c and c + 1 alone, each 2 x 2 pixels averaged."""
    with gzip.open(f"{FASHION}/train-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(f"{FASHION}/train-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    out = []
    for c in range(clients):
        rows = np.concatenate([rng.choice(np.flatnonzero(y == k), samples // 2, replace=False)
                               for k in (c % 10, (c + 1) % 10)])
        images = x[rows].reshape(-1, 14, 2, 14, 2).mean((2, 4)) / 255
        out.append((images.astype(np.float32), y[rows].astype(np.int32)))
    return out


def roles(rng, path, clients=6, samples=12, length=40):
    """Lines of one role per client, of those with the most text; the next character of each is to be told."""
    import h5py
    with h5py.File(path, "r") as f:
        texts = {role: "\n".join(s.decode(errors="ignore") for s in f["examples"][role]["snippets"][()])
                 for role in f["examples"]}
    longest = sorted(texts, key=lambda role: -len(texts[role]))[:3 * clients]
    letters = {a: i + 1 for i, a in enumerate(sorted(set("".join(texts[r] for r in longest))))}
    out = []
    for role in rng.choice(longest, clients, replace=False):
        tokens = np.array([letters[a] for a in texts[role]], np.int32)
        begins = rng.choice(len(tokens) // length - 1, samples, replace=False) * length
        rows = np.array([tokens[b:b + length + 1] for b in begins])
        out.append((rows[:, :-1], rows[:, 1:]))
    return out


# Data, model, local steps and step size, rounds of them, rounds of one step after the test.
KINDS = {
    "mlp": (disagreeing, "mlp { hidden: [8] classes: 2 }", 40, 0.3, 90, 200),
    "cnn": (two_classes, "cnn { filters: [4, 8] hidden: 16 classes: 10 }", 40, 0.1, 60, 200),
    "lstm": (roles, "lstm { vocabulary: 100 embedding: 8 hidden: [24] }", 40, 1, 40, 200),
}


def config(kind, seed):
    _, model, h, eta, rounds, after = KINDS[kind]
    return f"""seed: {seed} model {{ {model} }} durability: RELAXED max_update: 64
        phases {{ train {{ rounds: {rounds} drift_off: true local {{ step_size: {eta} steps: {h} }} }} }}
        phases {{ release {{ step_size: {eta} steps: [{h}] who_pays_off: true }} }}
        phases {{ train {{ start: CURRENT rounds: {after} drift_off: true local {{ step_size: {eta} steps: 1 }} }} }}"""


def measure(options, kind, seed):
    """What the release test says of clients as they are and shuffled, and the losses before and after one step a round."""
    make, _, _, _, rounds, _ = KINDS[kind]
    clients = make(np.random.default_rng(seed), options.shakespeare)
    real, trained = run(options, config(kind, seed), clients)
    control, _ = run(options, config(kind, seed), deal(clients, np.random.default_rng(seed)))
    return (real["verdict"], real["releases"][0], trained[rounds]["loss"], trained[-1]["loss"], control["verdict"],
            control["releases"][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--shakespeare", help="shakespeare_train.h5 of TensorFlow Federated; without it no LSTM")
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    for kind in options.only:
        if kind == "lstm" and not options.shakespeare:
            continue
        print(f"\n{kind}\n\n| seed | lost | verdict | loss at the plateau | after one step a round | shuffled: lost | verdict |"
              "\n|---|---|---|---|---|---|---|", flush=True)
        for seed in range(options.first, options.first + options.seeds):
            verdict, real, before, after, of_control, control = measure(options, kind, seed)
            print(f"| {seed} | {100 * real['lost']:.3g} % | {verdict} | {before:.4f} | {after:.4f} | "
                  f"{100 * control['lost']:.2g} % | {of_control} |", flush=True)
            if of_control != "harmless":
                print("  ", control["doubt"], flush=True)


if __name__ == "__main__":
    main()
