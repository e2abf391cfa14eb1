"""Adaptive n-grams against their definition: shares from dictionaries of all strings, weights by EM for one event."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from tests.counts.ngram.test_ngram_model import END, ByDefinition, Context, events_of

EDGES = [0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.45, 0.6]  # between classes of what goes to shorter contexts
SIZES = [2, 3, 5, 9, 17, 65]  # from which on a class of contexts has been read
Class = tuple[int, int, int]  # symbols of the context; how well it was trained; how it was read
Read = dict[Context, Counter[object]]


def first_weights(cell: Class) -> np.ndarray:
    """Of what was read, of what was trained, of shorter contexts."""
    _, trained, read = cell
    size = ([*SIZES, 100][(read - 1) // 3] - 1) if read else 0
    a = 0.2 * size / (size + 5)
    left = ([*EDGES, 0.8][trained - 1]) if trained else 1.0
    return np.array([a, (1 - a) * (1 - left), (1 - a) * left])


@dataclass
class Shares:
    """Of every context of a training set: what followed it, and what is left to shorter ones."""

    definition: ByDefinition
    of_levels: list[dict[Context, tuple[dict[object, float], float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for n in range(self.definition.order):
            counts = self.definition.counts(n)
            d = self.definition.discounts([c for each in counts.values() for c in each.values()])
            self.of_levels.append({})
            for context, after in counts.items():
                if self.definition.smoothing == "witten-bell":
                    total, taken = after.total() + len(after), dict.fromkeys(after, 0.0)
                    left = len(after) / total
                else:
                    total, taken = after.total(), {w: d[min(c, 3)] for w, c in after.items()}
                    left = sum(taken.values()) / total
                self.of_levels[n][context] = {w: (c - taken[w]) / total for w, c in after.items()}, left

    def parts(self, w: object, before: Context, read: Read) -> list[tuple[Class, float, float]]:
        """For each length of context its class, and what the sequence and the training set say of an event."""
        parts = []
        for n in range(min(self.definition.order, len(before) + 1)):
            context = before[len(before) - n :]
            (share, left), after = self.of_levels[n].get(context, ({}, 1.0)), read.get(context, Counter())
            trained = 1 + sum(edge < left for edge in EDGES) if share else 0
            n_read, n_types = after.total(), len(after)
            spread = 0 if n_types == 1 else 1 if 2 * n_types <= n_read else 2
            was_read = 1 + 3 * sum(size <= n_read for size in SIZES) + spread if n_read else 0
            cell = (n, trained, was_read)
            parts.append((cell, after[w] / n_read if n_read else 0.0, share.get(w, 0.0) / (1 - left) if share else 0.0))
        return parts


def learned_weights(of_events: list[list[tuple[Class, float, float]]], uniform: float) -> dict[Class, np.ndarray]:
    """Twelve steps of EM, in which each class has five events more, as it was at first."""
    weights = {cell: first_weights(cell) for event in of_events for cell, _, _ in event}
    for _ in range(12):
        expected = {cell: 5 * first_weights(cell) for cell in weights}
        for event in of_events:
            shorter, each = uniform, []
            for cell, read, trained in event:
                part = weights[cell] * np.array([read, trained, shorter])
                shorter = part.sum()
                each.append((cell, part / shorter))
            reached = 1.0
            for cell, part in each[::-1]:
                expected[cell] = expected[cell] + reached * part
                reached *= part[2]
        weights = {cell: each / each.sum() for cell, each in expected.items()}
    return weights


def parts_of_sequence(shares: Shares, x: np.ndarray, *, has_end: bool) -> list[list[tuple[Class, float, float]]]:
    read: Read = defaultdict(Counter)
    result = []
    for before, w in events_of(x, None, has_end):
        result.append(shares.parts(w, before, read))
        for n in range(min(shares.definition.order, len(before) + 1)):
            read[before[len(before) - n :]][w] += 1
    return result


def probability(parts: list[tuple[Class, float, float]], weights: dict[Class, np.ndarray], uniform: float) -> float:
    p = uniform
    for cell, read, trained in parts:
        p = float(weights.get(cell, first_weights(cell)) @ [read, trained, p])
    return p


RNG = np.random.default_rng(4)
# Name: alphabet, training sequences (at least ten, of which about a tenth of the steps is held out), new ones.
DATA = {
    "some": (4, [np.minimum(RNG.geometric(0.5, n) - 1, 3) for n in (40, 1, 12, 25, 2, 18, 30, 7, 9, 20, 22)], (30, 1)),
    "many symbols": (50, [RNG.integers(50, size=n) for n in (30, 1, 12, 20, 2, 18, 5, 7, 9, 11)], (20, 1)),
    "repeats": (3, [np.tile([k % 3, 0, 2, 2], 6)[: 20 + k] for k in range(-19, 4, 2)], (25,)),
    "one symbol": (1, [np.zeros(n, int) for n in (3, 1, 1, 2, 4, 1, 3, 1, 2, 2)], (4,)),
}


@pytest.mark.parametrize(
    ("smoothing", "length", "order"), list(product(("kneser-ney", "witten-bell"), ("given", "stop"), (1, 4)))
)
@pytest.mark.parametrize(("size", "train", "lengths"), DATA.values(), ids=DATA)
def test_it_is_the_definition(
    size: int, train: list[np.ndarray], lengths: tuple[int, ...], smoothing: str, length: str, order: int
) -> None:
    has_end, uniform = length == "stop", 1 / (size + (length == "stop"))
    model = sm.NGram(order, smoothing=smoothing, length=length, adaptive=True, encoding=sm.Symbols(size)).fit(train)

    def shares(items: list[np.ndarray]) -> Shares:
        events = [event for x in items for event in events_of(x, None, has_end)]
        return Shares(ByDefinition(events, order, smoothing, size + has_end))

    drawn = [train[i] for i in np.random.default_rng(0).permutation(len(train))]
    n_before = np.cumsum([0, *map(len, drawn)])[:-1]
    is_held_out = n_before < sum(map(len, train)) / 10
    kept = shares([x for x, out in zip(drawn, is_held_out, strict=True) if not out])
    held_out = [x for x, out in zip(drawn, is_held_out, strict=True) if out]
    weights = learned_weights(
        [event for x in held_out for event in parts_of_sequence(kept, x, has_end=has_end)], uniform
    )
    of_all = shares(train)
    rng = np.random.default_rng(1)
    for x in [*(rng.integers(size, size=n) for n in lengths), np.tile(train[0][:3], 8)]:
        expected = [probability(each, weights, uniform) for each in parts_of_sequence(of_all, x, has_end=has_end)]
        if has_end:
            before = events_of(x, None, has_end)[0][0]
            expected[0] /= 1 - probability(of_all.parts(END, before, {}), weights, uniform)
        assert_allclose(model.log_prob_steps([x])[0], np.log(expected), rtol=0, atol=1e-10)
