"""Linear or softmax regression as a NumPy function, or linear regression as torch.nn.Linear:
numpy_client.py MODEL SERVER DATA CLIENT..."""

import os
import sys

import numpy as np

import leeway


def linear(w, batch):
    x, y = batch
    r = x @ w - y
    return 0.5 * np.mean(r ** 2), x.T @ r / len(y)


def softmax(w, batch, l2=0.01):
    x, y = batch
    scores = x @ w["weight"].T + w["bias"]
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.mean(np.log(p[rows, y])) + 0.5 * l2 * sum(np.sum(t ** 2) for t in w.values())
    p[rows, y] -= 1
    p /= len(y)
    return loss, {"weight": p.T @ x + l2 * w["weight"], "bias": p.sum(axis=0) + l2 * w["bias"]}


def softmax_smoothness(batch, l2=0.01):
    """At every model: half the largest eigenvalue of the inputs' second moments, and the penalty's."""
    x = np.column_stack([batch[0], np.ones(len(batch[0]))])
    return 0.5 * np.linalg.eigvalsh(x.T @ x / len(x))[-1] + l2


def load(folder, part="train"):
    return tuple(np.load(os.path.join(folder, f"{part}_{axis}.npy")) for axis in "xy")


def join_with_torch(server, data):
    import torch
    import leeway.torch
    features = next(iter(data.values()))[0].shape[1]
    pairs = {c: torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y[:, None]))
             for c, (x, y) in data.items()}
    leeway.torch.join(server, torch.nn.Linear(features, 1, dtype=torch.float64),
                      lambda output, target: 0.5 * torch.mean((output - target) ** 2), pairs)


if __name__ == "__main__":
    kind, server, folder, *clients = sys.argv[1:]
    if kind == "torch_linear":
        join_with_torch(server, {c: load(os.path.join(folder, c)) for c in clients})
        sys.exit()
    leeway.join(server, gradient={"linear": linear, "softmax": softmax}[kind],
                smoothness=softmax_smoothness if kind == "softmax" else None,
                data={c: load(os.path.join(folder, c)) for c in clients})
