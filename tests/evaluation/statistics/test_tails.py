"""The share of the largest steps, and the shape of the tail, against ArviZ's figures and draws of known shape."""

from __future__ import annotations

import numpy as np
import pytest

from seqmodels.evaluation.statistics.tails import StepTails, difference_tails, pareto_shape


def heavy(n: int) -> np.ndarray:
    """Values with two heavy tails, the same on every machine."""
    x = np.sin(np.arange(1, n + 1) * 12.9898) * 43758.5453
    u = x - np.floor(x)
    return np.sign(u - 0.5) * ((1 / np.abs(2 * u - 1)) ** 0.6 - 1)


# arviz_stats 0.8.0: array_stats._pareto_khat(heavy(n), r_eff=1, tail="both")[1]
@pytest.mark.parametrize(
    ("n", "shape"),
    [(25, 0.43045572012948), (60, 0.37556329202965), (400, 0.78109617089650), (3000, 0.77471583790352)],
)
def test_the_shape_is_that_of_arviz(n: int, shape: float) -> None:
    x = heavy(n)
    assert StepTails.of([x], n).shape == pytest.approx(shape, rel=1e-6)
    assert StepTails.of([-x[: n // 3], -x[n // 3 :]], n).shape == pytest.approx(shape, rel=1e-6)


@pytest.mark.parametrize("k", [0.2, 0.5, 0.9])
def test_draws_of_a_pareto_distribution_have_its_shape(k: float) -> None:
    x = (np.random.default_rng(0).random(20_000) ** -k - 1) / k
    assert pareto_shape(x) == pytest.approx(k, abs=0.03)
    assert pareto_shape(1e-7 * x) == pytest.approx(pareto_shape(x), rel=1e-9)


def test_the_largest_steps_are_those_of_a_sort() -> None:
    x = np.concatenate([heavy(450), [-900.0, 300.0]])[np.random.default_rng(0).permutation(452)]
    by_size = x[np.argsort(-np.abs(x))]
    found = StepTails.of(np.array_split(x, 7), len(x))
    assert found.n_largest == 5
    assert found.share == pytest.approx(by_size[:5].sum() / x.sum())
    assert found.rest == pytest.approx(by_size[5:].mean())


def test_what_cannot_be_measured_is_nan() -> None:
    few = StepTails.of([np.arange(24.0)], 24)
    assert few.n_largest == 1
    assert few.share == pytest.approx(23 / np.arange(24).sum())
    assert np.isnan(few.shape)
    assert np.isfinite(StepTails.of([np.arange(25.0)], 25).shape)
    assert np.isnan(StepTails.of([np.zeros(100)], 100).shape)
    assert np.isnan(StepTails.of([np.zeros(100)], 100).share)
    assert np.isnan(StepTails.of([np.ones(1)], 1).rest)
    two_values = np.where(np.arange(26) % 13 == 0, 1.0, 0.0)
    assert np.isnan(StepTails.of([two_values], 26).shape)


def test_differences_are_of_all_sequences_and_an_impossible_step_has_none() -> None:
    rng = np.random.default_rng(0)
    lengths = (40, 1, 300)
    a, b = ([rng.normal(size=n) for n in lengths] for _ in range(2))
    together = np.concatenate(a) - np.concatenate(b)
    assert difference_tails(a, b) == StepTails.of([together], sum(lengths))
    a[1][0] = b[1][0] = -np.inf
    found = difference_tails(a, b)
    assert np.isnan([found.share, found.rest, found.shape]).all()
