"""Ten clients train a small PyTorch network on this machine, and Leeway measures how far they disagree.

python3 examples/quickstart.py [DIRECTORY]
"""

import sys

import torch

import leeway
import leeway.torch

CONFIG = """
seed: 1
phases { probe { point: INITIAL step_size: 0.1 steps: [1, 5, 20] } }
phases { train { rounds: 30 local { step_size: 0.1 epochs: 1 batch_size: 20 } evaluate_every: 10 } }
phases { probe { point: CURRENT step_size: 0.1 steps: [1, 5, 20] } }
"""


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


def data_of(client):
    """Two half moons, of which each client sees its own stretch."""
    g = torch.Generator().manual_seed(int(client[-1]))
    label = torch.arange(200) % 2
    angle = torch.rand(200, generator=g) * 1.5 + 0.16 * int(client[-1])
    sign = 1 - 2 * label
    x = torch.stack([torch.cos(angle) * sign + label, torch.sin(angle) * sign + 0.5 * label], 1)
    x += 0.1 * torch.randn(200, 2, generator=g)
    return (x[:150], label[:150]), (x[150:], label[150:])


def join(server, clients):
    """What a client process does."""
    torch.set_num_threads(1)
    parts = {client: data_of(client) for client in clients}
    leeway.torch.join(server, make_model(), torch.nn.functional.cross_entropy,
                      data={client: train for client, (train, _) in parts.items()},
                      test={client: test for client, (_, test) in parts.items()})


if __name__ == "__main__":
    run = leeway.simulate(CONFIG, join, clients=10, model=make_model(), out=sys.argv[1] if len(sys.argv) > 1 else None)
    print(run.drift()[["point", "h", "average_drift_squared", "drift_bound"]].to_string(index=False))
    print(run.evaluations()[["round", "test_loss", "accuracy"]].to_string(index=False))
    model = run.load_into(make_model())
    print("the model is in", run.directory)
