"""Compares loss and gradients of the networks with PyTorch's, in float32.

Usage: torch_check.py TORCH_DUMP. Runs that program, rebuilds each model from the
same weights in PyTorch, and compares on the same batch: relative error of the loss
and, tensor by tensor, |ours - theirs| / |theirs| at most 1e-4. Exits with 77 if
PyTorch is not there (Debian: python3-torch).
"""

import subprocess
import sys
import tempfile

LIMIT = 1e-4

try:
    import numpy as np
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print(f"skipped: {error}; apt-get install python3-torch")
    sys.exit(77)


class Flat:
    """Takes tensors off a flat vector, in the order of LayoutOf."""

    def __init__(self, values):
        self.values = torch.from_numpy(values)
        self.next = 0

    def take(self, *shape):
        size = int(np.prod(shape))
        self.next += size
        return self.values[self.next - size : self.next].reshape(shape)


def layers_of(name):
    """The model's layers, and how each reads its parameters off a flat vector.

    Flat vectors hold weights as Keras does; the readers transpose them."""

    def dense(flat, inputs, outputs):
        return {"weight": flat.take(inputs, outputs).T, "bias": flat.take(outputs)}

    def conv(flat, channels, filters):
        weight = flat.take(3, 3, channels, filters).permute(3, 2, 0, 1)
        return {"weight": weight, "bias": flat.take(filters)}

    def lstm(flat, inputs, hidden):
        return {
            "weight_ih_l0": flat.take(inputs, 4 * hidden).T,
            "weight_hh_l0": flat.take(hidden, 4 * hidden).T,
            "bias_ih_l0": flat.take(4 * hidden),
        }

    def embedding(flat, vocabulary, size):
        return {"weight": flat.take(vocabulary, size)}

    if name == "cnn":
        return [
            ("conv1", nn.Conv2d(1, 32, 3), lambda f: conv(f, 1, 32)),
            ("conv2", nn.Conv2d(32, 64, 3), lambda f: conv(f, 32, 64)),
            ("dense1", nn.Linear(9216, 128), lambda f: dense(f, 9216, 128)),
            ("dense2", nn.Linear(128, 62), lambda f: dense(f, 128, 62)),
        ]
    if name == "next_character":
        return [
            ("embedding", nn.Embedding(90, 8), lambda f: embedding(f, 90, 8)),
            ("lstm1", nn.LSTM(8, 256, batch_first=True), lambda f: lstm(f, 8, 256)),
            ("lstm2", nn.LSTM(256, 256, batch_first=True), lambda f: lstm(f, 256, 256)),
            ("output", nn.Linear(256, 90), lambda f: dense(f, 256, 90)),
        ]
    return [
        ("embedding", nn.Embedding(10004, 96), lambda f: embedding(f, 10004, 96)),
        ("lstm1", nn.LSTM(96, 670, batch_first=True), lambda f: lstm(f, 96, 670)),
        ("projection", nn.Linear(670, 96), lambda f: dense(f, 670, 96)),
        ("output", nn.Linear(96, 10004), lambda f: dense(f, 96, 10004)),
    ]


def loss_of(name, layers, x, y):
    modules = {label: module for label, module, _ in layers}
    if name == "cnn":
        h = functional.relu(modules["conv1"](x.unsqueeze(1)))
        h = functional.relu(modules["conv2"](h))
        h = functional.max_pool2d(h, 2).permute(0, 2, 3, 1).flatten(1)
        h = functional.relu(modules["dense1"](h))
        return functional.cross_entropy(modules["dense2"](h), y.long())
    h = x.long()
    for label, module, _ in layers:
        h = module(h)[0] if label.startswith("lstm") else module(h)
    # Token 0 is padding.
    return functional.cross_entropy(h.flatten(0, 1), y.long().flatten(), ignore_index=0)


def check(directory, name):
    load = lambda part: np.load(f"{directory}/{name}_{part}.npy")
    x, y = torch.from_numpy(load("x")), torch.from_numpy(load("y"))
    layers = layers_of(name)
    weights, gradients = Flat(load("w")), Flat(load("gradient"))
    with torch.no_grad():
        for _, module, read in layers:
            for parameter in module.parameters():
                parameter.zero_()  # PyTorch's second LSTM bias stays zero
            for key, value in read(weights).items():
                getattr(module, key).copy_(value)
    assert weights.next == len(weights.values), "parameters left over"

    loss = loss_of(name, layers, x, y)
    loss.backward()
    ours = float(load("loss")[0])
    errors = {"loss": abs(ours - loss.item()) / abs(loss.item())}
    for label, module, read in layers:
        for key, value in read(gradients).items():
            theirs = getattr(module, key).grad
            errors[f"{label}.{key}"] = ((value - theirs).norm() / theirs.norm()).item()
    for label, error in errors.items():
        print(f"{name:15} {label:20} {error:.1e}{'' if error <= LIMIT else '  TOO LARGE'}")
    return max(errors.values()) <= LIMIT


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True)
        results = [check(directory, name) for name in ("cnn", "next_character", "next_word")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
