"""A first state of which nothing is known: the limit of one of which less and less is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seqmodels.inference.gaussian.diffuse import diffuse_moments, split_by_length
from seqmodels.inference.gaussian.kalman import grouped
from seqmodels.linear_gaussian.parameters import SystemParameters
from tests.linear_gaussian.dense import dense, random_parameters

LENGTHS = (6, 9, 6)


def without_start(parameters: SystemParameters) -> SystemParameters:
    K = len(parameters.transition)
    return replace(parameters, initial_mean=np.zeros(K), initial_covariance=np.zeros((K, K)))


def limit_of_log_prob(parameters: SystemParameters, x: np.ndarray) -> float:
    """``log p(x) + q/2 log κ`` of a first state of covariance κ I; what falls as 1/κ is taken off."""
    K, found = len(parameters.transition), []
    for kappa in (1e6, 2e6):
        broad = replace(parameters, initial_mean=np.zeros(K), initial_covariance=kappa * np.eye(K))
        found.append(dense(broad, x).log_prob + 0.5 * K * np.log(kappa))
    return 2 * found[1] - found[0]


def without_prior(parameters: SystemParameters, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean ``(T, K)`` and covariance ``(T, K, T, K)`` of the states: least squares, all steps together."""
    p, n_steps, K = parameters, len(x), len(parameters.transition)
    moves = np.kron(np.eye(n_steps)[1:], np.eye(K)) - np.kron(np.eye(n_steps)[:-1], p.transition)
    by_moves = moves.T @ np.kron(np.eye(n_steps - 1), np.linalg.inv(p.state_covariance)) @ moves
    seen = ~np.isnan(x.reshape(-1))
    design = np.kron(np.eye(n_steps), p.observation)[seen]
    noise = np.kron(np.eye(n_steps), p.observation_covariance)[np.ix_(seen, seen)]
    weighted = np.linalg.solve(noise, design).T
    covariance = np.linalg.inv(by_moves + weighted @ design)
    mean = covariance @ weighted @ (x - p.intercept).reshape(-1)[seen]
    return mean.reshape(n_steps, K), covariance.reshape(n_steps, K, n_steps, K)


@pytest.mark.parametrize("missing", [False, True])
def test_moments_are_those_of_least_squares(missing: bool) -> None:
    parameters, rng = random_parameters(0, 3, 2), np.random.default_rng(1)
    x = [rng.normal(size=(n, 2)) for n in LENGTHS]
    if missing:
        x[0][0] = x[1][2, 1] = np.nan
    seen = []
    for whole in grouped([each - parameters.intercept for each in x]):
        for group in split_by_length(whole):
            moments = diffuse_moments(without_start(parameters).system, group, np.eye(3))
            length, n = group.packing.n_steps, len(group.numbers)
            assert moments.rank == 3
            for i, log_prob, means in zip(
                group.numbers, moments.log_prob, moments.means.reshape(length, n, 3).swapaxes(0, 1), strict=True
            ):
                seen.append(int(i))
                assert log_prob == pytest.approx(limit_of_log_prob(parameters, x[i]), abs=1e-6)
                expected, covariances = without_prior(parameters, x[i])
                np.testing.assert_allclose(means, expected, rtol=1e-9, atol=1e-9)
                now = np.stack([covariances[t, :, t] for t in range(length)])
                across = np.stack([covariances[t + 1, :, t] for t in range(length - 1)])
                np.testing.assert_allclose(moments.covariances.now, now, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(moments.covariances.across[:-1], across, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(moments.covariances.before, now[:-1].sum(0), rtol=1e-9, atol=1e-9)
    assert sorted(seen) == [0, 1, 2]


def test_what_the_data_leave_open_is_not_counted() -> None:
    """A random walk that is observed, and another that is not."""
    parameters = replace(
        random_parameters(0, 2, 1), transition=np.eye(2), observation=np.array([[1.0, 0.0]]), state_covariance=np.eye(2)
    )
    (group,) = grouped([np.array([[0.3], [0.1], [0.5]])])
    both = diffuse_moments(without_start(parameters).system, group, np.eye(2))
    first = diffuse_moments(without_start(parameters).system, group, np.eye(2)[:1])
    assert (both.rank, first.rank) == (1, 1)
    assert both.log_prob == pytest.approx(first.log_prob)


def test_groups_of_one_length_keep_their_steps() -> None:
    x = [np.full((n, 1), i) + np.arange(n)[:, None] / 10 for i, n in enumerate((3, 5, 3, 4))]
    (whole,) = grouped(x, [each + 100 for each in x])
    parts = split_by_length(whole)
    assert sorted(int(i) for part in parts for i in part.numbers) == [0, 1, 2, 3]
    for part in parts:
        assert part.drive is not None
        for i, each in zip(part.numbers, part.packing.unpack(part.x, [len(x[i]) for i in part.numbers]), strict=True):
            np.testing.assert_array_equal(each, x[i])
        np.testing.assert_array_equal(part.drive, part.x + 100)
