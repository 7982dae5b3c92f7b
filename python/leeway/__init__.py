"""Federated learning that measures its own drift: bring a model of your own.

    leeway.join(server, gradient=f, data=(x, y), name="clinic_07")      numpy, or anything with a gradient
    leeway.torch.join(server, model, loss, dataset, name="clinic_07")   PyTorch
    for task in leeway.Client(server, examples=n, name="clinic_07"):    a training loop of your own
    leeway.simulate(config, join, clients=100)                          the whole federation on this machine
    leeway.read("runs/mine")                                            its records as tables

docs/python.md of the project has the rest.
"""

from leeway._client import Client, Task
from leeway._errors import Error
from leeway._gradient import join
from leeway._read import Run, Verdict, read
from leeway._simulate import simulate
from leeway._tensors import load, save
from leeway.config import Config

__version__ = "0.1.0"
__all__ = ["Client", "Config", "Error", "Run", "Task", "Verdict", "join", "load", "read", "save", "simulate"]
