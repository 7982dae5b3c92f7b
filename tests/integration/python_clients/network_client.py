"""Leeway's networks in PyTorch: network_client.py KIND SERVER DATA CLIENT..."""

import os
import sys

import numpy as np
import torch

import leeway.torch
from leeway.torch_models import Cnn, Lstm, Mlp, lstm_loss

KINDS = {
    "cnn": (lambda: Cnn((28, 28), classes=62), torch.nn.functional.cross_entropy, np.float32),
    "mlp": (lambda: Mlp(784, [10, 7], classes=5), torch.nn.functional.cross_entropy, np.float32),
    "lstm": (lambda: Lstm(9, 4, [6, 5], projection=3), lstm_loss, np.int64),
}

if __name__ == "__main__":
    kind, server, folder, *clients = sys.argv[1:]
    torch.set_num_threads(1)
    make, loss, type_of_x = KINDS[kind]
    data = {}
    for c in clients:
        x, y = (np.load(os.path.join(folder, c, f"train_{axis}.npy")) for axis in "xy")
        data[c] = (torch.from_numpy(x.astype(type_of_x)), torch.from_numpy(y.astype(np.int64)))
    leeway.torch.join(server, make(), loss, data)
