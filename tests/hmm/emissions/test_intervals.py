"""EM for intervals: statistics add, equal frames are counted once, starts do not depend on how wide an interval is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.hmm.emissions import IntervalEmission, emission_of
from seqmodels.hmm.emissions.intervals import DistinctFrames, expected_values
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import Gamma, IntervalCensored, Observation, OfIntervals, Rounded, StudentT

INF = np.inf
RNG = np.random.default_rng(0)
DENSITIES = pytest.mark.parametrize("density", [sm.GaussianMixture(2), StudentT(), Gamma()], ids=repr)


def emission_and_frames(density: Observation, n: int = 60) -> tuple[IntervalEmission, torch.Tensor, torch.Tensor]:
    """The emission of two rounded features, frames with missing values, and a table of three states."""
    emission = emission_of(Rounded(density, width=0.5, scale=[1.0, 1.0]), 2)
    assert isinstance(emission, IntervalEmission)
    x = torch.tensor(0.5 * RNG.integers(1, 9, (n, 2)), dtype=torch.float64)
    x[3, 0] = x[7] = torch.nan
    labels = torch.tensor(RNG.integers(3, size=n))
    return emission, x, emission.from_labels(x, None, labels, 3, torch.Generator().manual_seed(0))


@DENSITIES
def test_statistics_add_and_a_state_without_frames_stays(density: Observation) -> None:
    emission, x, table = emission_and_frames(density)
    gamma = torch.rand(len(x), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    log_b, memo = emission.evaluate(table, x, None, torch.float64, Scratch())
    (whole,) = emission.statistics(table, x, None, gamma, memo)
    parts = [emission.statistics(table, a, None, g)[0] for a, g in zip(x.split(25), gamma.split(25), strict=True)]
    assert_allclose(sum(parts), whole, rtol=1e-10, atol=1e-12)
    expected = emission.observation.log_prob(table, x.unsqueeze(1))
    assert_allclose(log_b.log(), expected, rtol=1e-12)
    assert_allclose(emission.log_prob(table, x, None, torch.float64), expected, rtol=1e-12)
    gamma[:, 1] = 0
    kept = emission.maximise(emission.statistics(table, x, None, gamma), table)
    assert_allclose(
        kept[1, emission.n_parameters(1) - table.shape[1] :], table[1, emission.n_parameters(1) - table.shape[1] :]
    )


@DENSITIES
def test_the_m_step_raises_what_it_is_to_raise(density: Observation) -> None:
    """``Σ γ log p`` of frames, with γ fixed, goes up: EM for the places within cells alone."""
    emission, x, table = emission_and_frames(density)
    gamma = torch.rand(len(x), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    values = []
    for _ in range(8):
        values.append(float((gamma * emission.log_prob(table, x, None, torch.float64)).sum()))
        table = emission.maximise(emission.statistics(table, x, None, gamma), table)
    assert np.diff(values).min() > -1e-10
    assert values[-1] > values[0] + 1e-6


def test_equal_frames_are_counted_once_missing_ones_too() -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [torch.nan, 2.0], [1.0, 2.0], [torch.nan, 2.0], [1.0, 3.0]])
    frames = DistinctFrames.of(x)
    assert len(frames.values) == 3
    assert_allclose(frames.values[frames.index], x)
    gamma = torch.arange(6.0).unsqueeze(1)
    counted = frames.summed(gamma)
    assert sorted(counted.ravel().tolist()) == [4.0, 5.0, 6.0]
    distinct = DistinctFrames.of(torch.arange(6.0).view(3, 2))
    assert distinct.index.tolist() == [0, 1, 2]


def test_starts_are_from_expected_values_not_from_middles() -> None:
    low = torch.tensor([[0.9], [1.9], [2.9], [-INF], [2.0], [0.0], [-INF], [torch.nan]], dtype=torch.float64)
    high = torch.tensor([[1.1], [2.1], [3.1], [2.0], [INF], [1e6], [INF], [torch.nan]], dtype=torch.float64)
    values = expected_values(low, high, torch.ones(8).double(), "reals").ravel()
    assert_allclose(values[:3], [1.0, 2.0, 3.0], atol=0.05)
    assert 0 < values[3] < 2 < values[4] < 4
    assert 1 < values[5] < 4  # of 0 to a million the middle is far off
    assert values[6:].isnan().all()
    positive = expected_values(low, high, torch.ones(8).double(), "positive").ravel()
    assert (positive[:6] > 0).all()
    assert positive[5] < 6


def test_an_observation_without_an_emission_is_refused() -> None:
    class Own(OfIntervals):
        def __init__(self) -> None:
            self.observation = _NoMoments()

        def ends(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x + 1

        def n_features(self, size: int) -> int:
            return size

        def sample(self, *_: object) -> torch.Tensor:
            raise AssertionError

    with pytest.raises(ValueError, match="EM cannot fit"):
        emission_of(Own(), 1)
    assert repr(IntervalCensored(StudentT())) == "IntervalCensored(observation=StudentT())"


class _NoMoments(sm.Bernoulli):
    has_interval_probabilities = True  # type: ignore[assignment]
