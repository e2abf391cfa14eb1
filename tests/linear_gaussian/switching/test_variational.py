"""Structured mean field against dense Gaussians and the sum over all paths."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels.linear_gaussian.switching.parameters import SwitchingParameters
from seqmodels.linear_gaussian.switching.variational import (
    RegimeBatch,
    RegimeTables,
    batches_of,
    state_chain,
    variational_step,
)
from tests.linear_gaussian.dense import dense
from tests.linear_gaussian.dense import random_parameters as random_system
from tests.linear_gaussian.switching.enumerated import enumerated, random_parameters


def drawn(seed: int, lengths: tuple[int, ...], D: int, *, missing: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    x = [2 * rng.normal(size=(T, D)) for T in lengths]
    if missing:
        x[0][1, 0] = x[0][2] = x[1][0, 1] = np.nan
    return x


@pytest.mark.parametrize("missing", [False, True])
def test_the_bound_rises_below_the_log_probability(missing: bool) -> None:
    p, x = random_parameters(1, 2, 2, 2, full=False), drawn(0, (6, 5, 5, 1), 2, missing=missing)
    batch, tables = RegimeBatch.of(x, np.ones(len(x))), RegimeTables.of(p)
    gamma, bounds = np.full((len(batch.x), 2), 0.5), []
    for _ in range(30):
        step = variational_step(tables, batch, gamma)
        gamma = step.regimes.gamma
        bounds.append(step.bounds)
    exact = np.array([enumerated(p, each).log_prob for each in x])
    for before, after in pairwise(bounds):
        assert (after >= before - 1e-10).all()
    assert (bounds[-1] < exact).all()
    assert (bounds[-1] > exact - 6).all()
    assert_allclose(bounds[-1], bounds[-2], atol=1e-3)
    assert_allclose(gamma.sum(1), 1, atol=1e-12)


def test_of_one_regime_the_bound_is_the_log_probability_and_states_are_smoothed() -> None:
    system = random_system(2, 3, 2, None)
    p = SwitchingParameters.repeated(system, 1)
    x = drawn(1, (5, 4), 2, missing=True)
    batch = RegimeBatch.of(x, np.ones(2))
    step = variational_step(RegimeTables.of(p), batch, np.ones((len(batch.x), 1)))
    known = [dense(system, each) for each in x]
    assert_allclose(step.bounds, [each.log_prob for each in known], rtol=1e-11)
    lengths = [5, 4]
    means, covariances = (batch.packing.unpack(m, lengths) for m in (step.states.means, step.states.covariances))
    across = batch.packing.unpack(step.states.across, lengths)
    for i, each in enumerate(known):
        assert_allclose(means[i], each.means, atol=1e-10)
        for t in range(lengths[i]):
            assert_allclose(covariances[i][t], each.covariances[t, :, t], atol=1e-10)
            if t:
                assert_allclose(across[i][t], each.covariances[t, :, t - 1], atol=1e-10)


def test_certain_regimes_give_the_states_of_their_path() -> None:
    """The entropy and moments of q(z) are those of the Gaussian of z given x and the path."""
    p, x = random_parameters(5, 2, 1, 2), drawn(3, (4,), 2)
    path = np.array([0, 1, 1, 0])
    batch = RegimeBatch.of(x, np.ones(1))
    chain = state_chain(RegimeTables.of(p), batch, np.eye(2)[path])
    precision, linear = np.zeros((4, 4)), np.zeros(4)
    for t, s in enumerate(path):
        C, R = p.observation[s], np.linalg.inv(p.observation_covariance[s])
        precision[t, t] += (C.T @ R @ C)[0, 0]
        linear[t] += (C.T @ R @ (x[0][t] - p.intercept[s]))[0]
        if t == 0:
            precision[0, 0] += 1 / p.initial_covariance[0, 0]
            linear[0] += p.initial_mean[0] / p.initial_covariance[0, 0]
            continue
        a, b, q = p.transition[s, 0, 0], p.drift[s, 0], p.state_covariance[s, 0, 0]
        precision[t, t] += 1 / q
        precision[t, t - 1] -= a / q
        precision[t - 1, t] -= a / q
        precision[t - 1, t - 1] += a * a / q
        linear[t] += b / q
        linear[t - 1] -= a * b / q
    covariance = np.linalg.inv(precision)
    assert_allclose(chain.means[:, 0], covariance @ linear, atol=1e-12)
    assert_allclose(chain.covariances[:, 0, 0], np.diagonal(covariance), atol=1e-12)
    assert_allclose(chain.across[1:, 0, 0], np.diagonal(covariance, -1), atol=1e-12)
    assert chain.entropy[0] == pytest.approx(0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1])


def test_batches_hold_every_sequence_once() -> None:
    x = drawn(0, (3, 4_000, 7, 200, 1), 2)
    batches, numbers = batches_of(x, np.arange(1.0, 6.0))
    assert sorted(np.concatenate(numbers).tolist()) == [0, 1, 2, 3, 4]
    assert len(batches) == 2
    for batch, here in zip(batches, numbers, strict=True):
        assert_allclose(batch.weights, here[batch.packing.order] + 1)
        unpacked = batch.packing.unpack(batch.x, [len(x[i]) for i in here])
        assert all((a == x[i]).all() for a, i in zip(unpacked, here, strict=True))
