"""EM of durations ends where the likelihood is highest, also where segments are cut off at either end."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.semi_markov.durations import DurationName, duration_family
from seqmodels.hmm.semi_markov.expectations import SegmentEmission
from seqmodels.sequences.measure import Length

RNG = np.random.default_rng(0)
X = [
    (np.arange(n)[:, None] // 4 % 2) * 2.0 + RNG.normal(size=(n, 1))  # some shorter than a segment may last
    for n in RNG.integers(4, 16, 60)
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("durations", ["poisson", "negative-binomial"])
def test_no_change_of_durations_raises_the_likelihood(
    durations: DurationName, length: Length, left_censored: bool
) -> None:
    model = sm.hmm.HSMM(
        2,
        durations=durations,
        max_duration=9,
        left_censored=left_censored,
        length=length,
        n_init=1,
        tol=1e-11,
        max_iter=2000,
        pseudocount=0.0,
        observation=sm.GaussianMixture(1),
    ).fit(X)
    table = model.parameters_.table

    def log_prob(state: int, column: int, change: float) -> float:
        other = copy.copy(model)
        changed = table.clone()
        changed[state, column] += change
        other.parameters_ = replace(model.parameters_, table=changed)
        return float(other.log_prob(X).sum())

    n_columns = {"poisson": 1, "negative-binomial": 2}[durations]
    for state in range(2):
        for column in range(table.shape[1] - n_columns, table.shape[1]):
            at_bound = durations == "negative-binomial" and not -4.5 < float(table[state, -2]) < 6.8
            if at_bound:  # of the search over sizes
                continue
            slope = (log_prob(state, column, 1e-4) - log_prob(state, column, -1e-4)) / 2e-4
            assert abs(slope) < 0.02, (state, column)
    assert model.log_prob(X).sum() > log_prob(0, table.shape[1] - 1, -0.2) + 0.05


def test_expected_durations_are_of_all_segments_in_full() -> None:
    """Of a segment that is cut off after two steps, and may last up to four."""
    family = duration_family("categorical", 4, 0.0)
    emission = SegmentEmission(emission_of(sm.Categorical(), 2), family, left_censored=True)
    table = torch.tensor([[0.5, 0.5, 0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    symbols, left = torch.ones(1, 2, dtype=torch.float64), torch.tensor([[0.0, 0.0, 2.0, 0.0]], dtype=torch.float64)
    found = emission.maximise((symbols, torch.zeros_like(left), left), table)[0, 2:]
    # In full 3 or 4 steps, 6/7 and 8/7 of the two, each met in proportion to its duration.
    expected = np.array([0, 0, 6 / 7 / 3, 8 / 7 / 4])
    assert_allclose(found, expected / expected.sum(), rtol=1e-10)


def test_batches_are_bounded_by_durations_too() -> None:
    emission = SegmentEmission(
        emission_of(sm.Categorical(), 2), duration_family("poisson", 40, 0.0), left_censored=False
    )
    assert emission.n_densities(3) == 120
