"""The CNN in PyTorch: cnn_client.py SERVER DATA CLIENT..."""

import os
import sys

import numpy as np
import torch

import leeway.torch
import leeway.torch_models

if __name__ == "__main__":
    server, folder, *clients = sys.argv[1:]
    torch.set_num_threads(1)
    data = {}
    for c in clients:
        x, y = (np.load(os.path.join(folder, c, f"train_{axis}.npy")) for axis in "xy")
        data[c] = (torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.int64)))
    model = leeway.torch_models.Cnn((12, 12), classes=5, filters=(4, 8), hidden=16)
    leeway.torch.join(server, model, torch.nn.functional.cross_entropy, data)
