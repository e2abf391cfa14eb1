"""The filter and smoother of missing values alone: the filter of all lags, and the joint Gaussian of all frames."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

import seqmodels as sm
from seqmodels.hmm.gap_filter import VALUES_IN_RUN, Gaps, filtered, gaps_of
from seqmodels.hmm.missing_past import PastFilter

LENGTHS = [40, 33, 7, 2, 25]
# Order, features, share of missing values; the last has more values in a frame than a run may have.
SETTINGS = [(1, 1, 0.2), (2, 3, 0.2), (5, 2, 0.1), (3, 1, 0.7), (12, 2, 0.03), (1, VALUES_IN_RUN + 1, 0.01)]


def sequences(size: int, share: float) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    data = [rng.normal(size=(n, size)).cumsum(0) for n in LENGTHS]
    for x in data:
        x[rng.random(x.shape) < share] = np.nan
    data[0][9:13] = np.nan  # whole frames,
    data[1][[0, -1]] = np.nan  # the first and the last
    data[4][:] = np.nan_to_num(data[4])  # of which nothing is missing
    return data


def regression(order: int, size: int) -> tuple[sm.AutoregressiveGaussian, Tensor]:
    observation = sm.AutoregressiveGaussian(order, background=0.0)
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(observation.n_output_parameters(size), dtype=torch.float64, generator=generator)
    return observation, row * 0.3 / np.sqrt(order * size)


def steps_of_all_lags(past_filter: PastFilter, x: np.ndarray) -> Iterator[tuple[int, Tensor]]:
    """What is known of all p steps before each frame, and before what comes next, step by step."""
    order = past_filter.observation.order
    past = past_filter.widened(torch.full((1, order, x.shape[1]), torch.nan))
    for t, frame in enumerate(x):
        past = past_filter.advance(past, torch.as_tensor(frame).unsqueeze(0))
        yield t + 1, past[0]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("order", "size", "share"), SETTINGS)
def test_what_is_known_of_the_past_is_that_of_a_filter_of_all_lags(order: int, size: int, share: float) -> None:
    past_filter = PastFilter(*regression(order, size))
    data = sequences(size, share)
    for x, found in zip(data, past_filter.beliefs(data), strict=True):
        known = {} if found is None else dict(zip(found.steps.tolist(), found.past, strict=True))
        assert (found is None) == (not np.isnan(x).any())
        for t, past in steps_of_all_lags(past_filter, x):
            if t in known:
                assert_allclose(known[t], past, atol=1e-10)
            else:  # all is known
                assert not past[order:].any()


@pytest.mark.parametrize(("order", "size", "share"), SETTINGS[:-1])
def test_smoothed_moments_are_those_of_the_joint_gaussian(order: int, size: int, share: float) -> None:
    observation, row = regression(order, size)
    data = sequences(size, share)
    gaps = Gaps.of(data, order)
    found = filtered(gaps, observation, row)
    means, covariances = gaps.dense(found.smoothed(), gaps.width)
    log_prob = 0.0
    for i, x in enumerate(data):
        mean, covariance = joint_gaussian(observation, row, *x.shape)
        values, is_seen = x.ravel(), ~np.isnan(x.ravel())
        gain = np.linalg.solve(covariance[np.ix_(is_seen, is_seen)], covariance[is_seen]).T
        mean_given = np.where(is_seen, values, mean + gain @ (values[is_seen] - mean[is_seen]))
        covariance_given = covariance - gain @ covariance[is_seen]
        for r in np.flatnonzero((gaps.sequence == i) & ~gaps.is_to_come & ~gaps.is_early.numpy()):
            of_window = slice((gaps.time[r] - order) * size, (gaps.time[r] + 1) * size)
            assert_allclose(means[r], mean_given[of_window], atol=1e-9)
            assert_allclose(covariances[r], covariance_given[of_window, of_window], atol=1e-9)
        # Frames outside of gaps are given a past that is known.
        in_gaps = gaps.time[(gaps.sequence == i) & ~gaps.is_to_come]
        past = np.concatenate([np.full((order, size), np.nan), x])
        for t in set(range(len(x))) - set(in_gaps.tolist()):
            log_prob -= float(observation.log_prob(row, *map(torch.as_tensor, (x[t], past[t : t + order]))))
        deviation, within = (values - mean)[is_seen], covariance[np.ix_(is_seen, is_seen)]
        log_prob -= 0.5 * (deviation @ np.linalg.solve(within, deviation) + np.linalg.slogdet(2 * np.pi * within)[1])
    assert_allclose(found.log_prob, log_prob, atol=1e-8)


def joint_gaussian(
    observation: sm.AutoregressiveGaussian, row: Tensor, n: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all values of n frames: ``x = L e + mean`` with independent innovations e."""
    parts = (each.numpy() for each in observation.regression(row, size))
    matrix, intercept, noise, first_mean, first_noise = parts
    p = observation.order
    mean, weights, innovations = np.zeros(n * size), np.eye(n * size), np.zeros((n * size, n * size))
    for t in range(n):
        rows, past = slice(t * size, (t + 1) * size), slice((t - p) * size, t * size)
        innovations[rows, rows], mean[rows] = (noise, intercept) if t >= p else (first_noise, first_mean)
        if t >= p:
            mean[rows] += matrix @ mean[past]
            weights[rows] += matrix @ weights[past]
    return mean, weights @ innovations @ weights.T


def test_sums_are_those_of_expected_windows() -> None:
    observation, row = regression(2, 2)
    data = sequences(2, 0.2)
    gaps = Gaps.of(data, 2)
    joint = filtered(gaps, observation, row).joint
    means, covariances = gaps.dense(joint, gaps.width)
    is_used = torch.from_numpy(~gaps.is_to_come) & ~gaps.is_early
    products, first, count = gaps.sums(joint)
    expected = (means[:, :, None] * means[:, None] + covariances)[is_used].sum(0)
    assert_allclose(products, expected, rtol=1e-12)
    assert_allclose(first, means[is_used].sum(0), rtol=1e-12)
    assert count == is_used.sum()


def test_gaps_end_when_the_past_is_known_again() -> None:
    x = np.zeros((12, 1))
    x[[2, 3, 9]] = np.nan
    assert gaps_of(x, 3) == [(2, 6), (9, 12)]
    assert gaps_of(np.zeros((5, 2)), 3) == []
    assert Gaps.of([np.zeros((5, 2))], 3).steps == []


def test_a_fit_goes_through_gaps_run_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1)).cumsum(0)
    x[5::15] = np.nan  # 13 runs of 15 frames, and the first and the last
    calls = 0
    cholesky = torch.linalg.cholesky

    def counted(values: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        factor: Tensor = cholesky(values)
        return factor

    monkeypatch.setattr(torch.linalg, "cholesky", counted)
    sm.HMM(1, observation=sm.AutoregressiveGaussian(20), encoding=sm.Standardize(), max_iter=2).fit([x])
    assert calls < 800  # frame by frame there are 200 for each of some 20 times that the data are filtered
