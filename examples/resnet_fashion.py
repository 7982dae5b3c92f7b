"""A residual network on Fashion-MNIST, whose classes are spread over the clients by a Dirichlet distribution.

python3 examples/resnet_fashion.py [--norm group|batch] [--clients 10] [--rounds 20] [--alpha 0.3] [--out DIRECTORY]

The data are those of the Debian package dataset-fashion-mnist. With --norm batch the running statistics are averaged like weights.
"""

import argparse
import gzip

import numpy as np
import torch
from torch import nn

import leeway
import leeway.torch

FASHION = "/usr/share/datasets/fashion-mnist"


def read_idx(name):
    with gzip.open(f"{FASHION}/{name}-ubyte.gz") as f:
        magic = f.read(4)
        shape = [int.from_bytes(f.read(4), "big") for _ in range(magic[3])]
        return np.frombuffer(f.read(), np.uint8).reshape(shape).copy()


def norm(kind, channels):
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(4, channels)


class Block(nn.Module):
    """Two 3 by 3 convolutions beside a shortcut."""

    def __init__(self, kind, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(kind, outputs), nn.ReLU(),
                                  nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), norm(kind, outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def make_model(kind, width):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, width, 3, 2, 1, bias=False), norm(kind, width), nn.ReLU(),
                         Block(kind, width, width, 1), Block(kind, width, 2 * width, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))


def split(labels, clients, alpha):
    """Rows of each client: every class is shared out by its own draw of a Dirichlet distribution."""
    rng = np.random.default_rng(0)
    parts = [[] for _ in range(clients)]
    for label in range(10):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(rows)).astype(int)
        for part, share in zip(parts, np.split(rows, cuts)):
            part.extend(share)
    return [np.sort(np.asarray(part, np.int64)) for part in parts]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--norm", choices=["group", "batch"], default="group")
    for option, value in (("--clients", 10), ("--rounds", 20), ("--examples", 10000), ("--width", 16)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--out")
    options = parser.parse_args()
    images = torch.from_numpy(read_idx("train-images-idx3")[:options.examples]).float().unsqueeze(1) / 255
    labels = torch.from_numpy(read_idx("train-labels-idx1")[:options.examples].astype(np.int64))
    names = [f"client_{i:02}" for i in range(options.clients)]
    rows = {name: torch.from_numpy(part) for name, part in
            zip(names, split(labels.numpy(), options.clients, options.alpha)) if len(part) >= 10}

    def join(server, clients):
        torch.set_num_threads(1)
        cut = {c: len(rows[c]) * 9 // 10 for c in clients}
        leeway.torch.join(server, make_model(options.norm, options.width), nn.functional.cross_entropy,
                          data={c: (images[rows[c][:cut[c]]], labels[rows[c][:cut[c]]]) for c in clients},
                          test={c: (images[rows[c][cut[c]:]], labels[rows[c][cut[c]:]]) for c in clients})

    config = f"""
        seed: 1 weighting: EXAMPLES
        phases {{ train {{ rounds: {options.rounds} local {{ step_size: 0.05 epochs: 1 batch_size: 20 }}
                          evaluate_every: {max(1, options.rounds // 4)} }} }}
        phases {{ probe {{ point: CURRENT step_size: 0.05 steps: [1, 2, 5] }} }}"""
    run = leeway.simulate(config, join, clients=list(rows), model=make_model(options.norm, options.width), out=options.out)
    print(run.evaluations()[["round", "test_loss", "accuracy"]].to_string(index=False))
    print(run.drift()[["h", "average_drift_squared", "drift_bound"]].to_string(index=False))


if __name__ == "__main__":
    main()
