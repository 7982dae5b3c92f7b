"""Federated learning that measures its own drift: bring a model of your own.

    leeway.join(server, gradient=f, data=(x, y), name="clinic_07")      numpy, or anything with a gradient
    leeway.torch.join(server, model, loss, dataset, name="clinic_07")   PyTorch

docs/python.md of the project has the rest.
"""

from leeway._errors import Error
from leeway._gradient import join
from leeway._tensors import load, save

__version__ = "0.1.0"
__all__ = ["Error", "join", "load", "save"]
