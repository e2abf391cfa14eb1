"""Stacking weights against the fixed point of EM, which is slow and plain, and the conditions of a maximum."""

from __future__ import annotations

import numpy as np
import pytest

from seqmodels.evaluation.statistics.stacking import stacking_weights, steps_of_models
from seqmodels.sequences.mapped import MappedArray


def by_em(log_probs: np.ndarray, n_iter: int = 20_000) -> np.ndarray:
    p = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
    weights = np.full(p.shape[1], 1 / p.shape[1])
    for _ in range(n_iter):
        shares = weights * p
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights


@pytest.mark.parametrize("level", [0.0, -1e9])
def test_weights_are_those_of_em(level: float) -> None:
    rng = np.random.default_rng(0)
    log_probs = rng.normal(size=(400, 4)) + np.array([0.5, 0.0, -6.0, 0.0])
    log_probs[:, 3] = log_probs[:, 0] - 0.1  # never better than the first
    weights = stacking_weights(log_probs + level)
    np.testing.assert_allclose(weights, by_em(log_probs), atol=2e-4)
    assert weights[2] == weights[3] == 0
    assert weights.sum() == pytest.approx(1)


def test_a_step_that_one_model_alone_foresees_gives_it_weight() -> None:
    log_probs = np.zeros((1_000, 2))
    log_probs[:, 1] = -2.0
    log_probs[7] = (-5_000.0, -3.0)
    log_probs[8] = (-np.inf, -3.0)
    log_probs[9] = -np.inf
    a = np.exp(-2)  # 997 steps 1 - w + a w, two of w
    expected = 2 / (999 * (1 - a))
    np.testing.assert_allclose(stacking_weights(log_probs), [1 - expected, expected], atol=1e-6)


def test_a_million_steps_are_thinned_evenly_on_disk_or_not() -> None:
    rng = np.random.default_rng(0)
    sequences = [rng.normal(size=n) for n in (70, 1, 0, 200)]
    whole = np.concatenate(sequences)
    np.testing.assert_array_equal(steps_of_models([sequences, sequences])[:, 1], whole)
    on_disk = [MappedArray.temporary(max(1, len(s)))[: len(s)] for s in sequences]
    for array, values in zip(on_disk, sequences, strict=True):
        array[:] = values
    for most in (90, 100, 271):
        every = -(-271 // most)
        for steps in (sequences, on_disk):
            np.testing.assert_array_equal(steps_of_models([steps], most)[:, 0], whole[::every])
