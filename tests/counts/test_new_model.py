"""A model that counts is one short file and a row of ``families.py``: here against its definition, by dictionaries."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.sequences.measure import Length
from tests.counts import markov
from tests.counts.markov import Markov

X = [np.array(x) for x in ([0, 1, 2, 0, 1, 2, 1], [2], [1, 1, 0], [0, 2, 2, 1])]
SOURCES = [np.array(x) for x in ([1, 2], [0], [2, 2, 1], [1])]
ALPHA = 0.3
CASES = list(product(("given", "stop"), (False, True), (True, False)))


def triples(source: np.ndarray, x: np.ndarray, length: Length) -> list[tuple[str, ...]]:
    symbols = ["start", "start", *map(str, [*source, *x]), *(["end"] if length == "stop" else [])]
    return list(zip(symbols, symbols[1:], symbols[2:], strict=False))[len(source) :]


def by_definition(source: np.ndarray, x: np.ndarray, length: Length, conditional: bool, adaptive: bool) -> np.ndarray:
    """Each step from the counts of the training sequences and, if it is adaptive, of the steps before."""
    seen: Counter[tuple[str, ...]] = Counter()
    for s, row in zip(SOURCES, X, strict=True):
        seen.update(triples(s[: len(s) * conditional], row, length))
    events, steps = ["0", "1", "2", *(["end"] if length == "stop" else [])], []
    for x_y_z in triples(source[: len(source) * conditional], x, length):
        n = {z: seen[(*x_y_z[:2], z)] + ALPHA for z in events}
        possible = sum(n.values()) - (n["end"] if length == "stop" and not steps else 0.0)
        steps.append(np.log(n[x_y_z[2]] / possible))
        seen[x_y_z] += adaptive
    return np.array(steps)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("length", "conditional", "adaptive"), CASES)
def test_it_is_its_definition(length: Length, conditional: bool, adaptive: bool) -> None:
    """Many sequences in batches, and all at once one step after the other."""
    model = Markov(ALPHA, adaptive, length=length, dtype="float64").fit(*([SOURCES, X] if conditional else [X]))
    strings = [np.array(s) for s in product(range(3), repeat=5)]
    source = SOURCES[2]
    steps = model.log_prob_steps(*([[source] * len(strings), strings] if conditional else [strings]))
    expected = [by_definition(source, x, length, conditional, adaptive) for x in strings]
    assert_allclose(steps, expected, rtol=0, atol=1e-12)
    cursor = model.cursor()
    state, columns = cursor.start(source if conditional else None, len(strings)), torch.tensor(np.stack(strings))
    for t in range(5):
        prediction = cursor.distribution(state)
        assert_allclose(prediction.log_prob(columns[:, t]), np.array(expected)[:, t], rtol=0, atol=1e-12)
        state = cursor.advance(state, columns[:, t])
    if length == "stop":
        assert_allclose(cursor.distribution(state).log_end, np.array(expected)[:, 5], rtol=0, atol=1e-12)


def test_it_is_short() -> None:
    assert len(Path(markov.__file__).read_text(encoding="utf-8").splitlines()) <= 80
