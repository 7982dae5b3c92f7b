"""Leeway's random numbers (common/rng.h): batches are the same as those of its own clients."""

from __future__ import annotations

from typing import List, Sequence

import numpy as np

MASK = (1 << 64) - 1
BATCH_ORDER = 2  # Purpose::kBatchOrder


def _philox(counters: np.ndarray, key: Sequence[int]) -> np.ndarray:
    """Philox4x32-10 of each row of counters (uint64 columns that hold 32 bits)."""
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = (counters[:, i] for i in range(4))
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c0
        b = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((b >> np.uint64(32)) ^ c1 ^ np.uint64(k0), b & low,
                          (a >> np.uint64(32)) ^ c3 ^ np.uint64(k1), a & low)
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def name_of(seed: int, round: int, client: int, purpose: int) -> List[int]:
    """The four words that name a stream."""
    words = []
    for salt in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03):
        x = _mix((seed + salt) & MASK)
        x = _mix(x ^ round)
        x = _mix((x + client) & MASK)
        x = _mix(x ^ purpose)
        words += [x & 0xFFFFFFFF, x >> 32]
    return words


class Stream:
    """Random 64-bit words, named by four 32-bit ones."""

    def __init__(self, name: Sequence[int]):
        self._key = name[:2]
        self._upper = name[2:]
        self._block = 0
        self._words: List[int] = []  # drawn and not used, last first

    def _draw(self, words: int) -> np.ndarray:
        blocks = (words + 1) // 2
        counters = np.zeros((blocks, 4), np.uint64)
        numbers = np.arange(self._block, self._block + blocks, dtype=np.uint64)
        counters[:, 0] = numbers & np.uint64(0xFFFFFFFF)
        counters[:, 1] = numbers >> np.uint64(32)
        counters[:, 2:] = np.asarray(self._upper, np.uint64)
        self._block += blocks
        drawn = _philox(counters, self._key)
        return np.stack([drawn[:, 0] | (drawn[:, 1] << np.uint64(32)),
                         drawn[:, 2] | (drawn[:, 3] << np.uint64(32))], axis=1).ravel()

    def next64(self) -> int:
        if not self._words:
            self._words = self._draw(2).tolist()[::-1]
        return self._words.pop()

    def reserve(self, words: int) -> None:
        """Draws ahead, which is faster for many."""
        if words > len(self._words):
            self._words = self._draw(words - len(self._words)).tolist()[::-1] + self._words

    def below(self, bound: int) -> int:
        product = self.next64() * bound
        if product & MASK < bound:
            threshold = ((1 << 64) - bound) % bound
            while product & MASK < threshold:
                product = self.next64() * bound
        return product >> 64

    def shuffle(self, items: List[int]) -> None:
        self.reserve(len(items))
        for i in range(len(items), 1, -1):
            j = self.below(i)
            items[i - 1], items[j] = items[j], items[i - 1]


class Batches:
    """Passes over the examples, each a fresh permutation, cut into batches."""

    def __init__(self, examples: int, batch_size: int, stream: Stream):
        self._order = list(range(examples))
        self._batch_size = batch_size
        self._stream = stream
        self._next = examples

    def next(self) -> np.ndarray:
        if self._next == len(self._order):
            self._stream.shuffle(self._order)
            self._next = 0
        begin = self._next
        self._next = min(begin + self._batch_size, len(self._order))
        return np.asarray(self._order[begin:self._next])
