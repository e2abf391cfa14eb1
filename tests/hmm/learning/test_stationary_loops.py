"""The M-step of stationary chains in loops, from the equations that it solves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

from seqmodels.hmm.learning.first_state import invariant
from seqmodels.hmm.learning.stationary_loops import ascend, objective, solve


@pytest.mark.parametrize("k", [1, 2, 7])
def test_systems_are_solved(k: int) -> None:
    rng = np.random.default_rng(k)
    matrix, right = rng.normal(size=(k, k)), rng.normal(size=k)
    matrix[0, 0] = 1e-30  # the first pivot is another row's
    expected, found = np.linalg.solve(matrix, right), right.copy()
    assert solve(matrix.copy(), found)
    assert_allclose(found, expected, rtol=1e-9)
    if k > 1:
        assert not solve(np.ones((k, k)), right.copy())


def value_of(rows: np.ndarray, counts: np.ndarray, first: np.ndarray) -> float:
    return float(np.sum(counts * np.log(rows)) + first @ np.log(invariant(rows)))


def test_many_steps_reach_the_maximum() -> None:
    rng = np.random.default_rng(0)
    counts, first, k = rng.gamma(2.0, size=(3, 3)), np.array([0.1, 3.0, 0.2]), 3
    rows = counts / counts.sum(1, keepdims=True)
    for _ in range(20):
        rows, _ = ascend(counts, rows, first, np.ones(k, bool), 4, 30, 1e-14)

    def loss(logits: np.ndarray) -> float:
        each = np.exp(logits.reshape(k, k))
        return -value_of(each / each.sum(1, keepdims=True), counts, first)

    best = scipy.optimize.minimize(loss, np.log(counts).ravel(), options={"gtol": 1e-9}, method="BFGS")
    assert_allclose(value_of(rows, counts, first), -best.fun, rtol=1e-9)
    value, has_one = objective(rows, counts, first, np.empty((k, k)), np.empty(k))
    assert has_one
    assert_allclose(value, value_of(rows, counts, first), rtol=1e-12)


def test_no_step_goes_down_and_frozen_rows_and_zeros_stay() -> None:
    rng = np.random.default_rng(1)
    for seed in range(20):
        counts, first = rng.gamma(0.3, size=(4, 4)), rng.gamma(0.3, size=4)
        previous = rng.dirichlet(np.ones(4), size=4)
        previous[0] = [0.0, 0.5, 0.0, 0.5]
        counts[0, [0, 2]] = 0.0
        is_free = np.array([True, True, seed % 2 == 0, True])
        rows, pi = ascend(counts, previous, first, is_free, 4, 30, 1e-10)
        with np.errstate(divide="ignore", invalid="ignore"):
            before, after = (
                np.nansum(counts * np.log(each)) + first @ np.log(invariant(each)) for each in (previous, rows)
            )
        assert after >= before - 1e-12
        assert (rows[0, [0, 2]] == 0.0).all()
        assert_allclose(rows.sum(1), 1.0, rtol=1e-12)
        assert_allclose(pi, invariant(rows), rtol=1e-10)
        if not is_free[2]:
            assert (rows[2] == previous[2]).all()


def test_a_chain_that_has_come_apart_stays_as_it_is() -> None:
    rows = np.eye(2)
    same, initial = ascend(np.ones((2, 2)), rows, np.ones(2), np.ones(2, bool), 4, 30, 1e-10)
    assert (same == rows).all()
    assert np.isnan(initial).all()
