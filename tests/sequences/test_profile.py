"""What a column of numbers is taken for."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from seqmodels.sequences.profile import grid_step, profile_of, warn_of_repeats

RNG = np.random.default_rng(0)
N = 4000


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (RNG.normal(size=N), "reals"),
        (np.full(N, 2.5), "constant"),
        (np.full(N, np.nan), "missing"),
        (RNG.integers(0, 2, N), "bits"),
        (RNG.poisson(4.0, N), "counts"),
        (RNG.integers(-9, 9, N), "grid"),
        (np.round(RNG.normal(size=N), 1), "grid"),
        (np.where(RNG.random(N) < 0.9, 0.0, RNG.gamma(2.0, size=N)), "spike"),
        (np.where(RNG.random(N) < 0.9, 0.0, RNG.poisson(9.0, N)), "spike"),
        (np.where(RNG.random(N) < 0.01, 0.0, RNG.normal(size=N)), "reals"),
    ],
)
def test_a_column_in_a_word(column: np.ndarray, kind: str) -> None:
    assert profile_of(column.astype(float)).kind == kind


def test_a_column_in_figures() -> None:
    column = np.where(np.arange(1000) % 20 == 0, np.arange(1000) / 4, 7.0)
    column[:100] = np.nan
    found = profile_of(column)
    assert found.missing == pytest.approx(0.1)
    assert (found.spike, found.spike_share) == (7.0, pytest.approx(0.95))
    assert (found.low, found.high, found.n_values) == (7.0, 245.0, 46)
    assert np.isnan(found.step)  # off the spike no value repeats
    grid = profile_of(RNG.integers(-4, 4, 1000) * 0.25)
    assert (grid.step, grid.n_values) == (0.25, 8)
    assert np.isnan(grid.spike)


def test_the_step_of_a_grid() -> None:
    assert grid_step(np.array([1.0, 1.5, np.nan, 3.0])) == 0.5
    assert grid_step(np.array([0.3, 0.1 + 0.2, 0.5])) == pytest.approx(0.2)  # 5e-17 apart is no step
    assert grid_step(np.array([-0.5, 0.3, 0.1 + 0.2, 0.5])) == pytest.approx(0.2)
    assert grid_step(1e9 + np.array([0.0, 0.5, 1.0])) == 0.5  # what is noise depends on the range, not on the level
    assert grid_step(np.array([2.0, 2.0])) == 0.0
    assert grid_step(np.array([np.nan])) == 0.0


def test_values_that_rounding_makes_equal_are_no_copies() -> None:
    rng = np.random.default_rng(0)
    one_decimal = np.round(15 * rng.normal(size=(1000, 1)), 1)
    assert len(np.unique(one_decimal)) < 600  # half of them are equal to others
    walk = np.round(np.cumsum(rng.normal(size=(1000, 1)), axis=0), 1)
    pair = np.hstack([one_decimal, np.round(one_decimal + 0.3 * rng.normal(size=(1000, 1)), 1)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for frames in (one_decimal, walk, pair, one_decimal[:60]):
            warn_of_repeats(frames)


def test_frames_that_were_copied_are_warned_of_on_a_grid_too() -> None:
    rng = np.random.default_rng(0)
    fine = np.round(15 * rng.normal(size=(1000, 2)), 1)
    for frames, share in (
        (np.concatenate([fine, fine[:250]]), "20%"),
        (np.where(np.arange(900)[:, None] < 300, 17.3, 15 * rng.normal(size=(900, 1))), "33%"),
        (rng.integers(0, 4, (1000, 1)).astype(float), "100%"),
    ):
        with pytest.warns(UserWarning, match=f"{share} of the frames are exact copies of others"):
            warn_of_repeats(frames)
