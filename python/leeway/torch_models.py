"""Leeway's own networks in PyTorch: the same tensors, names and answers (docs/models.md).

    model = leeway.torch_models.Cnn((28, 28), classes=62)
    leeway.torch.load_into(model, "runs/mine/models/final.safetensors")
"""

from __future__ import annotations

import math
from typing import Optional, Sequence

import torch
from torch import nn
from torch.nn import functional


class Dense(nn.Module):
    """x weight + bias, with weight [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(_glorot((inputs, outputs), inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Convolution(nn.Module):
    """3 by 3 without padding, with weight [3, 3, channels, filters]."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.weight = nn.Parameter(_glorot((3, 3, channels, filters), 9 * channels, 9 * filters))
        self.bias = nn.Parameter(torch.zeros(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, self.weight.permute(3, 2, 0, 1), self.bias)


class Mlp(nn.Module):
    """`model { mlp { hidden: ... classes: ... } }`, without its penalty l2."""

    def __init__(self, features: int, hidden: Sequence[int], classes: int):
        super().__init__()
        sizes = [features, *hidden, classes]
        self._layers = []
        for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            self.add_module(f"dense{i + 1}", Dense(inputs, outputs))
            self._layers.append(f"dense{i + 1}")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = _scaled(x).flatten(1)
        for name in self._layers[:-1]:
            x = torch.relu(getattr(self, name)(x))
        return getattr(self, self._layers[-1])(x)


class Cnn(nn.Module):
    """`model { cnn { classes: ... } }`: images [height, width] or [height, width, channels]."""

    def __init__(self, shape: Sequence[int], classes: int, filters: Sequence[int] = (32, 64), hidden: int = 128,
                 dropout_after_pooling: float = 0.0, dropout_after_dense: float = 0.0):
        super().__init__()
        height, width, channels = (*shape, 1)[:3]
        self.conv1 = Convolution(channels, filters[0])
        self.conv2 = Convolution(filters[0], filters[1])
        self.dense1 = Dense(((height - 4) // 2) * ((width - 4) // 2) * filters[1], hidden)
        self.dense2 = Dense(hidden, classes)
        self._shape = (height, width, channels)
        self._dropouts = (dropout_after_pooling, dropout_after_dense)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = _scaled(x).reshape(-1, *self._shape).permute(0, 3, 1, 2)
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        x = functional.max_pool2d(x, 2).permute(0, 2, 3, 1).flatten(1)
        x = functional.dropout(x, self._dropouts[0], self.training)
        x = functional.dropout(torch.relu(self.dense1(x)), self._dropouts[1], self.training)
        return self.dense2(x)


class LstmLayer(nn.Module):
    """Gates in the order input, forget, cell, output, with weights [inputs, 4 hidden]."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.input_weight = nn.Parameter(_glorot((inputs, 4 * hidden), inputs, 4 * hidden))
        self.recurrent_weight = nn.Parameter(_uniform((hidden, 4 * hidden), 1 / math.sqrt(hidden)))
        bias = torch.zeros(4 * hidden)
        bias[hidden:2 * hidden] = 1
        self.bias = nn.Parameter(bias)
        self._hidden = hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(len(x), self._hidden)
        gates_of_input = x @ self.input_weight + self.bias
        outputs = []
        for t in range(x.shape[1]):
            i, f, g, o = (gates_of_input[:, t] + h @ self.recurrent_weight).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


class Lstm(nn.Module):
    """`model { lstm { vocabulary: ... embedding: ... hidden: ... } }`: scores [examples, steps, vocabulary]."""

    def __init__(self, vocabulary: int, embedding: int, hidden: Sequence[int], projection: int = 0):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self._layers = []
        size = embedding
        for i, units in enumerate(hidden):
            self.add_module(f"lstm{i + 1}", LstmLayer(size, units))
            self._layers.append(f"lstm{i + 1}")
            size = units
        self.projection: Optional[Dense] = Dense(size, projection) if projection else None
        self.output = Dense(projection or size, vocabulary)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for name in self._layers:
            x = getattr(self, name)(x)
        if self.projection is not None:
            x = self.projection(x)
        return self.output(x)


def lstm_loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the steps whose target is no padding (token 0)."""
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten().long(), ignore_index=0)


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x / 255.0 if x.dtype == torch.uint8 else x


def _uniform(shape: Sequence[int], bound: float) -> torch.Tensor:
    return (2 * torch.rand(*shape) - 1) * bound


def _glorot(shape: Sequence[int], inputs: int, outputs: int) -> torch.Tensor:
    return _uniform(shape, math.sqrt(6 / (inputs + outputs)))
