"""Weights of models against sums over all paths of models, and against optimisers."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from seqmodels.wrappers.mixture.density_gate import LIMIT, DensityGate
from seqmodels.wrappers.mixture.weights import FixedShare, Weights, fit_prior, fit_rate

RNG = np.random.default_rng(0)
LOG_P = RNG.normal(-2.0, 1.5, (6, 3))
PRIOR = np.array([0.5, 0.3, 0.2])
GATE = DensityGate(np.log(PRIOR), 0.7, 0.2, 0.6)


def by_enumeration(log_p: np.ndarray, prior: np.ndarray, rate: float) -> np.ndarray:
    """``log p(x_1 .. x_t)`` of each t, over every path of models."""
    n_models, transition = len(prior), (1 - rate) * np.eye(len(prior)) + rate * prior
    totals = []
    for t in range(1, len(log_p) + 1):
        paths = []
        for path in product(range(n_models), repeat=t):
            p = np.log(prior[path[0]]) + sum(np.log(transition[a, b]) for a, b in pairwise(path))
            paths.append(p + sum(log_p[s, k] for s, k in enumerate(path)))
        totals.append(logsumexp(paths))
    return np.array(totals)


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_fixed_share_sums_over_all_paths_of_models(rate: float) -> None:
    found = FixedShare(PRIOR, rate).steps(LOG_P)
    assert_allclose(np.cumsum(found), by_enumeration(LOG_P, PRIOR, rate), rtol=1e-12)


def test_without_switching_it_is_a_mixture_of_whole_sequences() -> None:
    found = FixedShare(PRIOR, 0.0).steps(LOG_P)
    assert_allclose(np.cumsum(found), logsumexp(np.log(PRIOR) + LOG_P.cumsum(0), axis=1), rtol=1e-12)
    assert_allclose(found[0], logsumexp(np.log(PRIOR) + LOG_P[0]))


def test_with_a_rate_of_one_it_is_a_mixture_at_every_step() -> None:
    assert_allclose(FixedShare(PRIOR, 1.0).steps(LOG_P), logsumexp(np.log(PRIOR) + LOG_P, axis=1), rtol=1e-13)


@pytest.mark.parametrize("weights", [FixedShare(PRIOR, r) for r in (0.0, 0.1, 1.0)] + [GATE], ids=repr)
def test_the_loop_over_steps_agrees_with_the_recursion(weights: Weights) -> None:
    log_p = RNG.normal(-30.0, 20.0, (200, 3))
    log_p[50, 1], log_p[120] = -np.inf, -np.inf  # a zero of one model, and of all
    state, steps = weights.start(2), []
    for row in log_p:
        log_weights = weights.log_weights(state)
        assert_allclose(np.exp(log_weights).sum(1), 1.0, rtol=1e-12)
        steps.append(logsumexp(log_weights + row, axis=1))
        state = weights.after(state, np.stack([row, row]))
    expected = np.array(steps)
    assert_allclose(expected[:, 0], expected[:, 1])
    assert_allclose(weights.steps(log_p), expected[:, 0], rtol=1e-12)
    assert np.isneginf(expected[120, 0])


def test_a_density_gate_goes_up_the_gradient() -> None:
    k, state = 3, GATE.start(1)
    state = GATE.after(state, LOG_P[:1])  # so that there is a gain to look at
    step = 1e-6

    def log_p(parameters: np.ndarray) -> float:
        changed = state.copy()
        changed[0, : k + 1] = parameters
        return float(logsumexp(GATE.log_weights(changed)[0] + LOG_P[1]))

    here = state[0, : k + 1]
    gradient = [(log_p(here + step * e) - log_p(here - step * e)) / (2 * step) for e in np.eye(k + 1)]
    moved = GATE.after(state, LOG_P[1:2])[0, : k + 1] - here
    assert_allclose(moved, GATE.rate * np.array(gradient), rtol=1e-5)
    gain = np.clip(LOG_P[0] - logsumexp(np.log(PRIOR) + LOG_P[0]), -LIMIT, LIMIT)
    assert_allclose(state[0, k + 1 :], (1 - GATE.decay) * gain)


def test_the_prior_is_the_most_probable_one() -> None:
    log_p = [RNG.normal(-2, 1, (n, 3)) for n in (300, 1, 200)]
    log_p[0][7] = -np.inf  # what no model can give says nothing of them
    weight = [1.0, 2.0, 0.5]

    def loss(logits: np.ndarray) -> float:
        prior = softmax(logits)
        steps = [logsumexp(np.log(prior) + each[np.isfinite(each).all(1)], axis=1).sum() for each in log_p]
        return -float(np.dot(weight, steps) + np.log(prior).sum())  # a step each besides

    best = minimize(loss, np.zeros(3), tol=1e-12)
    assert_allclose(fit_prior(log_p, weight, 3), softmax(best.x), atol=1e-4)


def test_no_steps_leave_the_weights_equal() -> None:
    assert_allclose(fit_prior([], [], 4), 0.25)
    assert_allclose(fit_prior([np.full((5, 2), -np.inf)], [1.0], 2), 0.5)


def test_the_rate_is_that_of_the_data() -> None:
    rng, steps = np.random.default_rng(3), 4_000
    model = np.cumsum(rng.random(steps) < 0.02) % 2  # a switch in fifty steps; with half of its draws fixed share stays
    log_p = np.where(np.arange(2) == model[:, None], -1.0, -3.0)
    rate = fit_rate(np.array([0.5, 0.5]), [log_p], [1.0])
    assert 0.02 < rate < 0.07
    better = FixedShare(np.array([0.5, 0.5]), rate).steps(log_p).sum()
    assert all(better >= FixedShare(np.array([0.5, 0.5]), r).steps(log_p).sum() for r in (1e-4, 0.01, 0.2, 1.0))


def test_a_density_gate_learns_which_model_gained() -> None:
    rng = np.random.default_rng(4)
    model = np.cumsum(rng.random(2_000) < 0.02) % 2
    log_p = np.where(np.arange(2) == model[:, None], -1.0, -3.0) + rng.normal(0, 0.3, (2_000, 2))
    gate = DensityGate.fit(np.array([0.5, 0.5]), [log_p[:1_000]])
    assert gate.scale > 0
    assert gate.steps(log_p[1_000:]).mean() > FixedShare(np.array([0.5, 0.5]), 1.0).steps(log_p[1_000:]).mean() + 0.2
