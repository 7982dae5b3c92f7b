"""train.py with Leeway added: four clients train together what one trained alone."""

import torch
import leeway
import leeway.torch


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))


def load_data(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(300, 20, generator=g)
    return x, (x[:, :3] + 0.3 * torch.randn(300, 3, generator=g)).argmax(1)


def join(server, clients):
    data = {client: load_data(seed=int(client[-1])) for client in clients}
    leeway.torch.join(server, make_model(), torch.nn.functional.cross_entropy, data)


if __name__ == "__main__":
    model = make_model()
    config = "phases { train { rounds: 20 local { step_size: 0.1 epochs: 1 batch_size: 20 } } }"
    run = leeway.simulate(config, join, clients=4, model=model)
    run.load_into(model)
    x, y = load_data(seed=99)
    print(f"accuracy {(model(x).argmax(1) == y).float().mean():.3f}")
