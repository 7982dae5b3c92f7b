"""A Flower client in a Leeway federation. Client is what Flower's tutorials call a NumPyClient, unchanged; with Flower
installed it may as well derive from flwr.client.NumPyClient. Leeway needs nothing of Flower.

python3 examples/flower_client.py [DIRECTORY]
"""

import sys

import numpy as np

import leeway
import leeway.flower

CONFIG = """
phases { train { rounds: 10 local { step_size: 0.2 steps: 5 } } }
phases { evaluate {} }
"""


class Client:
    """Linear regression on a client's own data."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(60, 3))
        self.y = self.x @ np.array([1.0, -2.0, 0.5]) + rng.normal(size=60) * 0.1 + 0.2 * rng.normal()

    def get_parameters(self, config):
        return [np.zeros(3), np.zeros(1)]

    def fit(self, parameters, config):
        w, b = parameters
        x, y = self.x[:50], self.y[:50]
        loss = 0.5 * np.mean((x @ w + b - y) ** 2)
        for _ in range(config["local_steps"]):
            residual = x @ w + b - y
            w = w - config["learning_rate"] * x.T @ residual / len(y)
            b = b - config["learning_rate"] * np.mean(residual, keepdims=True)
        return [w, b], len(y), {"loss": loss}

    def evaluate(self, parameters, config):
        w, b = parameters
        return 0.5 * np.mean((self.x[50:] @ w + b - self.y[50:]) ** 2), 10, {}


def join(server, clients):
    """What a client process does: one Flower client."""
    (name,) = clients
    leeway.flower.start_client(server_address=server, client=Client(seed=int(name[-1])), test_examples=10, name=name)


if __name__ == "__main__":
    initial = dict(zip(("parameter_000", "parameter_001"), Client(seed=0).get_parameters({})))
    run = leeway.simulate(CONFIG, join, clients=4, processes=4, model=initial,
                          out=sys.argv[1] if len(sys.argv) > 1 else None)
    print(run.rounds()[["loss", "average_drift_squared", "drift_bound"]].to_string())
    print(run.evaluations()[["round", "test_loss"]].to_string(index=False))
