from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.encodings.auto_series import SeriesChoice
from seqmodels.hmm.levels_or_changes import forecasts_changes_better, tail_losses

NOISE = np.random.default_rng(0).normal(size=(120, 1))
JUMPS = 6.0 * (np.arange(120)[:, None] // 15 % 2) + NOISE
WALK = np.cumsum(NOISE, axis=0)
GROWS = 0.5 * np.arange(120)[:, None] + NOISE
CHANGES = SeriesChoice(False, 1, None, "to be tried")


def states(n: int = 2) -> sm.HMM:
    return sm.HMM(n, observation=sm.GaussianMixture(1), n_init=1, max_iter=10)


@pytest.mark.parametrize(
    ("x", "is_better"), [(JUMPS, False), (WALK, True), (GROWS, True)], ids=["jumps", "walk", "grows"]
)
def test_changes_are_read_where_the_model_forecasts_better_so(x: np.ndarray, is_better: bool) -> None:
    found = forecasts_changes_better(states(), sm.Sequences([x]), sm.Standardize(), CHANGES)
    assert found is is_better


def test_the_loss_is_in_deviations_of_the_series() -> None:
    losses = tail_losses(states(), [JUMPS], sm.Standardize(), 8)
    assert losses.shape == (1, 2)
    assert_allclose(tail_losses(states(), [4 * JUMPS], sm.Standardize(), 8), losses, rtol=1e-6)
    assert (losses < 0.3).all()


def test_a_part_that_cannot_be_fitted_has_no_loss() -> None:
    x = np.concatenate([np.zeros((60, 1)), NOISE[:60]])
    losses = tail_losses(states(), [x], sm.Standardize(), 8)
    assert np.isnan(losses[0, 0])
    assert np.isfinite(losses[0, 1])


def test_missing_values_are_left_out_of_the_loss() -> None:
    x = np.where(np.arange(120)[:, None] % 10 == 3, np.nan, JUMPS)
    losses = tail_losses(states(), [x], sm.Standardize(), 8)
    assert_allclose(losses, tail_losses(states(), [JUMPS], sm.Standardize(), 8), rtol=0.2)
    x[60:] = np.nan
    assert np.isnan(tail_losses(states(), [x], sm.Standardize(), 8)).all()
