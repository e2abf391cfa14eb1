"""The filter against the sum over all paths: exact while it keeps all, unbiased where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from seqmodels.linear_gaussian.switching.compiled_filter import chosen_children
from seqmodels.linear_gaussian.switching.particle_filter import WhitenedSystem, filter_sequence, n_paths
from tests.linear_gaussian.switching.enumerated import enumerated, random_parameters


@pytest.mark.parametrize(("T", "full"), [(1, True), (4, True), (6, False), (7, False)])
def test_all_paths_are_the_sum_over_all_paths(T: int, full: bool) -> None:
    p = random_parameters(T, 2, 2, 2, full=full)
    x = 2 * np.random.default_rng(T).normal(size=(T, 2))
    if not full:
        x[1, 0] = x[3] = np.nan
    filtered, expected = filter_sequence(WhitenedSystem(p), x, 2**T, 0), enumerated(p, x)
    assert filtered.log_prob.sum() == pytest.approx(expected.log_prob, rel=1e-11)
    assert_allclose(filtered.regimes[-1], expected.regimes[-1], atol=1e-10)
    weights = np.exp(filtered.log_weights)
    assert_allclose(np.einsum("l,lts->ts", weights, np.eye(2)[filtered.paths]), expected.regimes, atol=1e-10)
    assert_array_equal(filtered.paths[weights.argmax()], expected.best)
    for t in range(T):
        assert_allclose(filtered.regimes[t], enumerated(p, x[: t + 1]).regimes[-1], atol=1e-10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("n_particles", [1, 2, 5, 20])
def test_the_mean_over_seeds_is_p_of_x(n_particles: int) -> None:
    p, x = random_parameters(3, 3, 1, 2), np.random.default_rng(4).normal(size=(5, 2))
    exact, system = enumerated(p, x).log_prob, WhitenedSystem(p)
    found = [filter_sequence(system, x, n_particles, seed).log_prob.sum() for seed in range(1_500)]
    ratio = np.exp(np.array(found) - exact)
    assert ratio.std() > 1e-4  # paths were dropped
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))


@pytest.mark.slow
def test_more_particles_err_less() -> None:
    p, x = random_parameters(3, 3, 2, 2), np.random.default_rng(4).normal(size=(7, 2))
    exact, system = enumerated(p, x).log_prob, WhitenedSystem(p)
    errors = [
        np.std([filter_sequence(system, x, n, seed).log_prob.sum() - exact for seed in range(60)]) for n in (3, 20, 200)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0


def test_children_are_kept_as_often_as_they_weigh() -> None:
    weights = np.array([0.4, 0.0, 0.03, 0.2, 0.07, 0.15, 0.15])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    n, mean = 4, np.zeros(len(weights))
    grid = (np.arange(2_000) + 0.5) / 2_000
    for u in grid:
        children, kept = np.zeros(n, dtype=np.int64), np.zeros(n)
        assert chosen_children(log_weights, n, u, children, kept) == n
        assert len(set(children.tolist())) == n
        mean[children] += np.exp(kept) / len(grid)
    assert_allclose(mean, weights, atol=1e-3)


def test_few_children_are_all_kept() -> None:
    log_weights = np.log([0.7, 0.3])
    children, kept = np.zeros(4, dtype=np.int64), np.zeros(4)
    assert chosen_children(log_weights, 4, 0.5, children, kept) == 2
    assert_array_equal(children[:2], [0, 1])
    assert_array_equal(kept[:2], log_weights)
    only = np.array([0.0, -np.inf, -np.inf, -np.inf])  # zeros fill the places that are left
    assert chosen_children(only, 2, 0.5, children[:2], kept[:2]) == 2
    assert_array_equal(kept[:2], [0.0, -np.inf])


def test_the_number_of_paths_is_a_power_up_to_the_particles() -> None:
    assert [n_paths(t, 3, 10) for t in range(5)] == [1, 3, 9, 10, 10]
    assert n_paths(100_000, 1, 10) == 1


def test_correlated_noise_sees_whole_frames() -> None:
    p = random_parameters(0, 2, 1, 2)
    x = np.zeros((3, 2))
    x[1] = np.nan
    assert np.isfinite(filter_sequence(WhitenedSystem(p), x, 8, 0).log_prob).all()
    x[1, 0] = 0.0
    with pytest.raises(ValueError, match="whose noise is correlated"):
        filter_sequence(WhitenedSystem(p), x, 8, 0)
