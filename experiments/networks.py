#!/usr/bin/python3
"""Release tests of networks at a plateau that local steps make, beside the same examples dealt at random.

  experiments/networks.py --bin build/bin [--shakespeare FILE] [--only mlp cnn lstm roles] [--seeds 10]

Each network trains with H local steps until it no longer gets anywhere; then comes a release test, and then
training goes on with one step a round. Data: two kinds of clients that contradict each other (MLP); Fashion-MNIST, two
classes per client, images of 14 x 14 (CNN; Debian package dataset-fashion-mnist); lines of one role of Shakespeare's
plays per client, each in a spelling of its own (lstm) or as they are (roles; TFF's shakespeare_train.h5). Prints the tables of docs/results.md, "Networks".
"""

import argparse
import gzip
import os

import numpy as np

from federations import deal
from release import run

FASHION = "/usr/share/datasets/fashion-mnist"


def disagreeing(rng, _):
    """Two kinds of clients that weigh the two inputs differently and answer differently."""
    clients = []
    for c in range(6):
        x = rng.normal(size=(200, 2)) * ((3, 0.5) if c % 2 else (0.5, 3))
        y = x @ ((1, -1.5) if c % 2 else (-1.5, 1)) + 0.5 * rng.normal(size=200) > 0
        clients.append((x.astype(np.float32), y.astype(np.int32)))
    return clients


def two_classes(rng, _, clients=10, samples=200):
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


def roles(rng, path, clients=6, samples=100, length=40, styles=False):
    """Lines of one role per client, of those with the most text; the next character of each is to be told. With styles,
    each role also has a spelling of its own: letters are moved on in the alphabet by as many places as no other role's."""
    import h5py
    with h5py.File(path, "r") as f:
        texts = {role: "\n".join(s.decode(errors="ignore") for s in f["examples"][role]["snippets"][()])
                 for role in f["examples"]}
    longest = sorted(texts, key=lambda role: (-len(texts[role]), role))[:3 * clients]
    others = sorted({a for r in longest for a in texts[r].lower() if not "a" <= a <= "z"})
    out = []
    for c, role in enumerate(rng.choice(longest, clients, replace=False)):
        shift = 4 * c if styles else 0
        token = lambda a: 1 + (ord(a) - 97 + shift) % 26 if "a" <= a <= "z" else 27 + others.index(a)
        tokens = np.array([token(a) for a in texts[role].lower()], np.int32)
        begins = rng.choice(len(tokens) // length - 1, samples, replace=False) * length
        rows = np.array([tokens[b:b + length + 1] for b in begins])
        out.append((rows[:, :-1], rows[:, 1:]))
    return out


def spellings(rng, path):
    return roles(rng, path, styles=True)


# Data, model, local steps, step size, examples per step (0: all), rounds of them, rounds of one step after the test.
KINDS = {
    "mlp": (disagreeing, "mlp { hidden: [8] classes: 2 }", 40, 0.3, 0, 90, 200),
    "cnn": (two_classes, "cnn { filters: [4, 8] hidden: 16 classes: 10 }", 20, 0.1, 20, 100, 200),
    "lstm": (spellings, "lstm { vocabulary: 60 embedding: 8 hidden: [24] }", 40, 1, 8, 250, 400),
    "roles": (roles, "lstm { vocabulary: 60 embedding: 8 hidden: [24] }", 40, 1, 8, 250, 400),
}


def config(kind, seed):
    _, model, h, eta, batch, rounds, after = KINDS[kind]
    rule = f"step_size: {eta} batch_size: {batch}"
    train = lambda start, count, steps: f"""phases {{ train {{ start: {start} rounds: {count} drift_every: 1000 loss_every: 50
        local {{ {rule} steps: {steps} }} }} }}"""
    return f"""seed: {seed} model {{ {model} }} durability: RELAXED max_update: 64 {train("INITIAL", rounds, h)}
        phases {{ release {{ {rule} steps: [{h}] who_pays_off: true }} }} {train("CURRENT", after, 1)}"""


def measure(options, kind, seed):
    """What the release test says of clients as they are and shuffled, and the loss after one step a round."""
    clients = KINDS[kind][0](np.random.default_rng(seed), options.shakespeare)
    real = run(options, config(kind, seed), clients)
    return real, run(options, config(kind, seed), deal(clients, np.random.default_rng(seed)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--shakespeare", help="shakespeare_train.h5 of TensorFlow Federated; without it no LSTM")
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    for kind in options.only:
        if kind in ("lstm", "roles") and not options.shakespeare:
            continue
        print(f"\n{kind}\n\n| seed | lost | verdict | loss at the plateau | after one step a round | shuffled: lost | verdict |"
              "\n|---|---|---|---|---|---|---|", flush=True)
        for seed in range(options.first, options.first + options.seeds):
            real, control = measure(options, kind, seed)
            test, of_control = real["verdict"]["releases"][0], control["verdict"]["releases"][0]
            print(f"| {seed} | {100 * test['lost']:.3g} % | {real['verdict']['verdict']} | {test['start_loss']:.4f} | "
                  f"{real['final_loss']['loss']:.4f} | {100 * of_control['lost']:.2g} % | {control['verdict']['verdict']} |",
                  flush=True)
            for name, one, expected in (("as they are", test, "conflict"), ("shuffled", of_control, "harmless")):
                if one["verdict"] != expected:
                    print(f"  {name}: {one['doubt']}", flush=True)


if __name__ == "__main__":
    main()
