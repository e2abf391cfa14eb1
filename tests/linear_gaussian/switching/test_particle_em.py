"""EM of particles: its sums are expectations over all paths where it keeps all, and it goes on where the bound ends."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels.linear_gaussian import SwitchingLinearGaussian
from seqmodels.linear_gaussian.switching.learning import SwitchingObjective
from seqmodels.linear_gaussian.switching.parameters import SwitchingForm, SwitchingParameters
from seqmodels.linear_gaussian.switching.particle_em import given_paths, run_particle_em
from seqmodels.linear_gaussian.switching.variational import RegimeBatch
from tests.linear_gaussian.dense import dense
from tests.linear_gaussian.dense import random_parameters as random_system
from tests.linear_gaussian.switching.enumerated import enumerated, given_path, random_parameters


def test_sums_given_paths_are_those_of_a_smoother() -> None:
    """Of regimes that are one system, whatever the path; by weight."""
    system = random_system(0, 2, 2, None)
    p, x = SwitchingParameters.repeated(system, 2), np.random.default_rng(0).normal(size=(4, 2))
    path, known = np.array([1, 0, 0, 1]), dense(system, x)
    sums = given_paths(p, RegimeBatch.of([x], np.array([2.0])), [path], by_feature=False)
    assert_allclose(sums.initial, [0, 2])
    assert_allclose(sums.regime_transition, [[2, 2], [2, 0]])
    for regime in (0, 1):
        here = np.flatnonzero(path == regime)
        second = sum(known.covariances[t, :, t] + np.outer(known.means[t], known.means[t]) for t in here)
        assert_allclose(sums.seen[regime, 0, :2, :2], 2 * second, atol=1e-10)
        assert_allclose(sums.seen_x[regime, :, :2], 2 * x[here].T @ known.means[here], atol=1e-10)
        later = here[here > 0]
        cross = sum(known.covariances[t, :, t - 1] + np.outer(known.means[t], known.means[t - 1]) for t in later)
        assert_allclose(sums.moves[regime, :2, 2:4], 2 * cross, atol=1e-10)


@pytest.mark.slow
def test_a_step_raises_the_likelihood_itself() -> None:
    """From random parameters log p(x), summed over all paths, rises with every few steps."""
    p, rng = random_parameters(1, 2, 1, 2, full=False), np.random.default_rng(0)
    x = [2 * rng.normal(size=(5, 2)) for _ in range(30)]
    objective = SwitchingObjective(SwitchingForm("both", "diag", 1e-6), 150.0, 0.0)
    exact = [sum(enumerated(p, each).log_prob for each in x) / 150]
    for _ in range(3):
        p, rows = run_particle_em(p, objective, x, np.ones(30), 4, 64, 0, None, lambda row: None)
        exact.append(sum(enumerated(p, each).log_prob for each in x) / 150)
        assert rows[-1]["objective"] == pytest.approx(exact[-1], abs=0.01)  # 16 of 32 paths are kept
    assert (np.diff(exact) > 0.002).all()


@pytest.mark.slow
def test_where_noise_hides_regimes_it_does_better_than_mean_field() -> None:
    turns = [0.97 * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in (0.2, 1.2)]
    true = SwitchingLinearGaussian.from_parameters(
        *([0.5, 0.5], [[0.95, 0.05], [0.05, 0.95]], turns, 0.05 * np.eye(2)),
        *(np.random.default_rng(0).normal(size=(3, 2)), 0.5 * np.eye(3), [1.0, 0.0], np.eye(2)),
    )
    x = true.sample(50, length=60, random_state=0)
    shared = {"n_regimes": 2, "n_states": 2, "max_iter": 30, "n_init": 2}
    mean_field = SwitchingLinearGaussian(**shared, particle_steps=0).fit(x[:20])
    particles = SwitchingLinearGaussian(**shared, particle_steps=8).fit(x[:20])
    history = particles.history_
    assert history["particles"].tolist() == [0.0] * len(mean_field.history_) + [1.0] * 9
    assert (np.diff(history["step"]) == 1).all()
    assert (np.diff(history["seconds"]) >= 0).all()
    assert particles.score(x[20:]) > mean_field.score(x[20:]) + 0.01


def test_paths_of_a_small_system_are_all_there() -> None:
    """The oracle of these tests itself: densities given paths sum to p(x)."""
    p, x = random_parameters(4, 2, 1, 2), np.random.default_rng(3).normal(size=(3, 2))
    total = 0.0
    for path in product(range(2), repeat=3):
        chain = p.initial[path[0]] * np.prod([p.regime_transition[i, j] for i, j in pairwise(path)])
        total += chain * np.exp(given_path(p, path, x))
    assert np.log(total) == pytest.approx(enumerated(p, x).log_prob)
