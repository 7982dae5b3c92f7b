"""Plain PyTorch: one network, one data set, no federation. train_federated.py is this script with Leeway added."""

import torch


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))


def load_data(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(300, 20, generator=g)
    return x, (x[:, :3] + 0.3 * torch.randn(300, 3, generator=g)).argmax(1)


def train(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(20):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(20):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()


if __name__ == "__main__":
    model = make_model()
    train(model, *load_data(seed=0))
    x, y = load_data(seed=99)
    print(f"accuracy {(model(x).argmax(1) == y).float().mean():.3f}")
