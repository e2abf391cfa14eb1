"""Slopes on inputs relative to a reference category, which change no probability."""

from __future__ import annotations

import numpy as np
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from seqmodels.hmm.learning.given_inputs import relative_to_references
from seqmodels.hmm.parameters import Parameters

Array = NDArray[np.float64]
INITIAL = np.array([0.0, 0.7, 0.3])
TRANSITION = np.array([[0.5, 0.2, 0.3], [0.6, 0.0, 0.4], [0.0, 0.1, 0.9]])  # the second state is left at once
IS_ZERO = np.array([[True, False, False], [True, True, False], [True, False, True]])  # references and the impossible


def probabilities(row: Array, slopes: Array, u: Array) -> Array:
    """Probabilities proportional to ``row exp(slopes u)``."""
    weights = row * np.exp(slopes @ u)
    return np.asarray(weights / weights.sum())


def test_slopes_relative_to_references_change_no_probability() -> None:
    rng = np.random.default_rng(0)
    slopes, of_first = rng.normal(size=(3, 3, 2)), rng.normal(size=(3, 2))
    chain = [torch.as_tensor(each) for each in (INITIAL, TRANSITION, slopes, of_first)]
    given = Parameters(chain[0], chain[1], None, torch.zeros(3, 1), transition_slopes=chain[2], initial_slopes=chain[3])
    found = relative_to_references(given)
    assert found.transition_slopes is not None
    assert found.initial_slopes is not None
    assert not found.transition_slopes[torch.as_tensor(IS_ZERO)].any()
    assert not found.initial_slopes[:2].any()
    for u in rng.normal(size=(5, 2)):
        rows = zip(TRANSITION, slopes, found.transition_slopes.numpy(), strict=True)
        for row, before, after in [*rows, (INITIAL, of_first, found.initial_slopes.numpy())]:
            assert_allclose(probabilities(row, after, u), probabilities(row, before, u), rtol=1e-12)
