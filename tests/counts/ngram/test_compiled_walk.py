"""The probability of one event by a walk up the orders is that of the tables, wherever the walk stops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.counts.ngram.cursor import NGramCursor, WalkedSteps
from seqmodels.generation.cursor import single_steps

RNG = np.random.default_rng(4)
X = [RNG.choice(6, p=[0.4, 0.3, 0.2, 0.05, 0.05, 0.0], size=40) for _ in range(3)]


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("source", [None, np.array([1, 0])])
def test_every_event_after_every_context(order: int, length: str, source: np.ndarray | None) -> None:
    model = sm.NGram(order, length=length, dtype="float64", encoding=sm.encodings.Symbols(6))
    model.fit(*([X] if source is None else [[source] * len(X), X]))
    cursor = model.cursor()
    assert isinstance(cursor, NGramCursor)
    steps = single_steps(cursor)
    assert isinstance(steps, WalkedSteps)
    state = cursor.start(source)
    at = steps.enter(state)
    for x in [0, 0, 5, 5, 1, 2, 5, 0, 1]:  # 5 was never seen
        prediction = cursor.distribution(state)
        for event in range(6):
            expected = float(prediction.log_prob(torch.tensor([event])))
            assert_allclose(steps.advance(at, np.int64(event))[1], expected, rtol=1e-12)
        state, (at, _) = cursor.advance(state, torch.tensor([x])), steps.advance(at, np.int64(x))
        assert steps.leave(at).recent.tolist() == state.recent.tolist()
        assert steps.leave(at).is_first == state.is_first
