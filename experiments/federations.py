"""Real and made-up federations as arrays, small enough for many runs: lists of clients, each (x, y) for training, and
the same for tests where there are some. FOLDER holds the data as docs/results.md describes."""

import csv
import glob
import gzip
import json
import os

import numpy as np

FASHION = "/usr/share/datasets/fashion-mnist"


def halved(images):
    """Images of 28 x 28 with 2 x 2 pixels averaged, as rows."""
    return images.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196).astype(np.float32)


def femnist(folder, most=10 ** 9):
    """By writer; at most so many training images of each. Ink is 1."""
    parts = []
    for part in ("train", "test"):
        clients = {}
        for path in sorted(glob.glob(os.path.join(folder, "femnist_leaf", part, "*.json.gz"))):
            with gzip.open(path) as f:
                for user, data in json.load(f)["user_data"].items():
                    x = 1 - halved(np.array(data["x"]))
                    clients[user] = (x, np.array(data["y"], np.int32))
        parts.append(clients)
    train, test = parts
    names = sorted(name for name in train if len(train[name][1]) > 0)
    return [(train[n][0][:most], train[n][1][:most]) for n in names], [test.get(n) for n in names]


def fashion_dirichlet(rng, clients=50, images=10000, alpha=0.1):
    """Fashion-MNIST with the images of each class in Dirichlet(alpha) shares; the test images are one set."""
    def read(kind):
        with gzip.open(f"{FASHION}/{kind}-images-idx3-ubyte.gz") as f:
            x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        with gzip.open(f"{FASHION}/{kind}-labels-idx1-ubyte.gz") as f:
            return x, np.frombuffer(f.read(), np.uint8, offset=8).astype(np.int32)
    x, y = read("train")
    chosen = rng.choice(len(y), images, replace=False)
    rows = [[] for _ in range(clients)]
    for label in range(10):
        own = rng.permutation(chosen[y[chosen] == label])
        cuts = (np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * len(own)).astype(int)
        for client, part in zip(rows, np.split(own, cuts)):
            client.extend(part)
    test_x, test_y = read("t10k")
    train = [(halved(x[r]) / 255, y[r]) for r in rows if len(r) >= 20]
    return train, (halved(test_x[:2000]) / 255, test_y[:2000])


def one_hot(rows, size):
    """Rows of several numbers below size, each as a one among zeros."""
    x = np.zeros((len(rows), rows.shape[1] * size), np.float32)
    for i in range(rows.shape[1]):
        x[np.arange(len(rows)), i * size + rows[:, i]] = 1
    return x


def contexts(sequences, size, most, length=2):
    """From tokens to (x, y): the next one by those before it; all tokens beyond `size` are one."""
    rows = [s[i:i + length + 1] for s in sequences for i in range(len(s) - length)][:most]
    rows = np.minimum(np.array(rows), size - 1)
    return one_hot(rows[:, :-1], size), rows[:, -1].astype(np.int32)


def stackexchange(folder, clients=50, most=200, words=50):
    """The next word by the two before it, for the users with the most sentences; other words than the most frequent are one."""
    users = {}
    with gzip.open(os.path.join(folder, "stackexchange", "sentences.tsv.gz"), "rt") as f:
        for row in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE):
            users.setdefault(row["user_id"], []).append(row["tokens"].split())
    counts = {}
    for sentences in users.values():
        for word in (w for s in sentences for w in s):
            counts[word] = counts.get(word, 0) + 1
    numbers = {w: i for i, w in enumerate(sorted(counts, key=lambda w: (-counts[w], w))[:words - 1])}
    largest = sorted(users, key=lambda u: (-sum(map(len, users[u])), u))[:clients]
    return [contexts([[numbers.get(w, words - 1) for w in s] for s in users[u]], words, most) for u in largest]


def shakespeare(folder, clients=30, most=200, letters=40):
    """The next character by the two before it, for the roles with the most text."""
    import h5py
    with h5py.File(os.path.join(folder, "shakespeare_tff", "shakespeare_train.h5"), "r") as f:
        texts = {role: "\n".join(s.decode(errors="ignore") for s in f["examples"][role]["snippets"][()])
                 for role in f["examples"]}
    largest = sorted(texts, key=lambda r: (-len(texts[r]), r))[:clients]
    counts = {}
    for letter in "".join(texts[r] for r in largest):
        counts[letter] = counts.get(letter, 0) + 1
    numbers = {a: i for i, a in enumerate(sorted(counts, key=lambda a: (-counts[a], a)))}
    return [contexts([[numbers[a] for a in texts[r]]], letters, most) for r in largest]


def heart(folder):
    """By hospital: 13 columns in standard units, and whether the heart is diseased."""
    hospitals = []
    for path in sorted(glob.glob(os.path.join(folder, "heart_disease", "processed.*.data"))):
        with open(path) as f:
            rows = [[v for i, v in enumerate(line.strip().split(",")) if i not in (10, 11, 12)] for line in f if line.strip()]
        rows = np.array([[float(v) for v in row] for row in rows if "?" not in row])
        columns = [rows[:, i] for i in (0, 1, 3, 4, 5, 7, 8, 9)]
        columns += [rows[:, 2] == v for v in (2, 3, 4)] + [rows[:, 6] == v for v in (1, 2)]
        hospitals.append((np.stack(columns, 1).astype(float), (rows[:, -1] > 0).astype(np.int32)))
    everyone = np.concatenate([x for x, _ in hospitals])
    return [(((x - everyone.mean(0)) / everyone.std(0)).astype(np.float32), y) for x, y in hospitals]


def conflict(rng, strength, clients=20, samples=100, dimension=10):
    """Logistic: where a client's inputs are larger, what it wants shifts with them."""
    truth, out = rng.normal(size=dimension), []
    for _ in range(clients):
        scale = rng.uniform(0.3, 3, size=dimension)
        x = rng.normal(size=(samples, dimension)) * scale
        y = x @ (truth + strength * (scale - scale.mean())) + rng.logistic(size=samples) > 0
        out.append((x.astype(np.float32), y.astype(np.int32)))
    return out


def deal(clients, rng):
    """The same examples at random among clients of the same sizes: the control."""
    x, y = (np.concatenate([c[i] for c in clients]) for i in (0, 1))
    order = rng.permutation(len(y))
    cuts = np.cumsum([len(c[1]) for c in clients])[:-1]
    return list(zip(np.split(x[order], cuts), np.split(y[order], cuts)))
