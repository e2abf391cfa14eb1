"""Binary decisions: one for each two sides, whose odds make the probabilities of symbols again."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from seqmodels.encodings.binary_code import BinaryCode, BinaryDecisions, log_odds_of_all, log_odds_of_path


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("has_end", [False, True])
def test_a_code_has_a_decision_for_each_two_sides(size: int, has_end: bool) -> None:
    code = BinaryCode(size, has_end)
    n_open = sum(int(code.is_open(np.arange(1 << d, 2 << d), d).sum()) for d in range(code.n_bits))
    assert n_open == size - 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("has_end", [False, True])
def test_decisions_of_a_path_have_the_probability_of_its_symbols(size: int, has_end: bool) -> None:
    rng, code = np.random.default_rng(size), BinaryCode(size, has_end)
    values = rng.integers(size, size=6)
    n_steps, n_events = 6 + has_end, size + has_end
    p = rng.dirichlet(np.ones(n_events), n_steps)
    if has_end:  # which cannot come first
        p[0] = [*rng.dirichlet(np.ones(size)), 0.0]
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    decisions, odds = BinaryDecisions.of(code, values), log_odds_of_path(code, log_p, values)
    signed = np.where(decisions.bits == 1, odds, -odds)
    found = np.where(decisions.bits >= 0, -np.logaddexp(0, -signed), 0).sum(1)
    events = [*values, size][:n_steps]
    assert_allclose(found, log_p[np.arange(n_steps), events], atol=1e-12)
    every, decided = log_odds_of_all(code, log_p), decisions.bits >= 0
    at = np.where(np.arange(code.n_bits + 1) == 0, 0, decisions.nodes)
    assert_allclose(odds[decided], np.take_along_axis(every, at, 1)[decided], atol=1e-12)
    assert_array_equal(odds[~decided], 0.0)


def test_what_has_no_probability_has_finite_odds() -> None:
    with np.errstate(divide="ignore"):
        log_p = np.log([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    odds = log_odds_of_path(BinaryCode(4, False), log_p, np.array([3, 3]))
    assert_array_equal(odds, [[0.0, -12.0, 0.0], [0.0, 12.0, 0.0]])  # below what cannot come neither side is likelier
