"""A small transformer learns to write, character by character, the DiLoCo way: each client takes many steps of AdamW, the server
moves by Nesterov's momentum. Consensus error and diversity of the updates say how far the clients disagree.

python3 examples/transformer_diloco.py TEXT [--clients 4] [--rounds 20] [--steps 50] [--out DIRECTORY]

TEXT: a text file, of which each client has a stretch, or TFF's shakespeare_train.h5, of which each client has one role.
"""

import argparse

import numpy as np
import torch
from torch import nn

import leeway
import leeway.torch

CONTEXT, VOCABULARY, BATCH = 32, 128, 16  # characters are ASCII


class Transformer(nn.Module):
    """Scores of the next character at every place."""

    def __init__(self, width=64, layers=2, heads=4):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.zeros(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.output = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -1e9).triu(1), persistent=False)

    def forward(self, x):
        return self.output(self.layers(self.embedding(x) + self.position, self.mask))


def make_model(width):
    torch.manual_seed(0)
    return Transformer(width)


def read_parts(path, clients):
    """The text of each client."""
    if path.endswith(".h5"):
        import h5py
        with h5py.File(path) as file:
            roles = sorted(file["examples"], key=lambda role: -file["examples"][role]["snippets"].size)[:clients]
            return [b"\n".join(file["examples"][role]["snippets"][()]) for role in roles]
    with open(path, "rb") as file:
        text = file.read()
    size = len(text) // clients
    return [text[i * size:(i + 1) * size] for i in range(clients)]


def loss_of(model, text, starts):
    rows = torch.stack([text[s:s + CONTEXT + 1] for s in starts])
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(server, name, text, width):
    """One client: its own loop, its own optimizer, which it keeps from round to round."""
    torch.set_num_threads(1)
    model = make_model(width)
    text = torch.from_numpy(np.minimum(np.frombuffer(text, np.uint8), VOCABULARY - 1).astype(np.int64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    fixed = np.linspace(0, len(text) - CONTEXT - 1, 64).astype(int)  # where the loss is measured
    for task in leeway.Client(server, examples=len(text), name=name):
        leeway.torch.load_into(model, task.model)
        with torch.no_grad():
            loss = loss_of(model, text, fixed).item()
        random = task.random  # the same places in the text whenever the run is repeated
        for _ in range(task.steps):
            optimizer.zero_grad()
            loss_of(model, text, random.integers(0, len(text) - CONTEXT - 1, BATCH)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        task.report(model, metrics={"loss": loss})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    for option, value in (("--clients", 4), ("--rounds", 20), ("--steps", 50), ("--width", 64)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--out")
    options = parser.parse_args()
    names = [f"client_{i}" for i in range(options.clients)]
    parts = dict(zip(names, read_parts(options.text, options.clients)))
    config = f"""
        seed: 1
        phases {{ train {{ rounds: {options.rounds} drift_off: true local {{ step_size: 0.001 steps: {options.steps} }}
                          server {{ rate: 0.7 momentum: 0.9 nesterov: true }} }} }}"""
    run = leeway.simulate(config, lambda server, clients: train(server, clients[0], parts[clients[0]], options.width),
                          clients=names, processes=len(names), model=make_model(options.width), out=options.out)
    print(run.rounds()[["loss", "consensus_error", "pairwise_cosine", "update_diversity"]].to_string())


if __name__ == "__main__":
    main()
