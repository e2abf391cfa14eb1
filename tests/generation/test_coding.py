"""Shares of a prediction in integers, and sequences coded by a cursor."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import seqmodels as sm
from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.common.range_interval import TOTAL
from seqmodels.encodings.examples import Example
from seqmodels.generation import ImpossibleSymbolError, StepCoder, ToDecode
from seqmodels.generation.coding import MAX_SYMBOLS, cumulative_shares

pytestmark = pytest.mark.products_repeat
MODEL = sm.HMM.from_parameters(
    [0.5, 0.5], [[0.6, 0.3], [0.2, 0.7]], final=[0.1, 0.1], emission=[[0.9, 0.1], [0.2, 0.8]]
)
ITEMS = [np.array(item) for item in ([0, 1, 1, 0], [1], [1, 1, 0], [0, 0, 0, 1, 1, 0, 1])]


def test_shares_are_probabilities_of_which_none_is_lost() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(50, 0.02), size=40)
    p[:, 3:5] = 0
    p /= p.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    log_p[:, 4] = -1e4  # more than nothing, though exp gives 0
    shares = np.diff(cumulative_shares(log_p))
    assert (shares.sum(axis=1) == TOTAL).all()
    assert (shares[:, 3] == 0).all()
    assert (shares[:, 4] == 1).all()
    assert (shares[log_p > -np.inf] >= p[log_p > -np.inf] * (TOTAL - 50) * (1 - 1e-12)).all()
    assert np.abs(shares - p * TOTAL).max() < 100


@pytest.mark.parametrize("log_p", [[np.nan, 0.0], [-np.inf, -np.inf], [np.inf, 0.0]])
def test_what_is_no_prediction_is_refused(log_p: list[float]) -> None:
    with pytest.raises(ValueError, match="or that no symbol is possible"), np.errstate(invalid="ignore"):
        cumulative_shares(np.array([log_p]))


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_sequences_are_decoded_whatever_are_read_at_once(at_once: int) -> None:
    coder, encoder = StepCoder(MODEL.cursor(), 2, True, at_once), RangeEncoder()
    coder.encode([Example(item) for item in ITEMS], encoder)
    code = encoder.finish()
    assert len(code) - 1 <= -MODEL.log_prob(ITEMS).sum() / np.log(256) <= len(code) + 1
    for item, values in zip(ITEMS, coder.decode([ToDecode(None)] * 4, RangeDecoder(code)), strict=True):
        assert_array_equal(values, item)


def test_lengths_that_are_given_are_not_coded() -> None:
    model = sm.HMM.from_parameters([0.5, 0.5], [[0.6, 0.4], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
    coder, encoder = StepCoder(model.cursor(), 2, False), RangeEncoder()
    coder.encode([Example(item) for item in ITEMS], encoder)
    known = [ToDecode(len(item)) for item in ITEMS]
    for item, values in zip(ITEMS, coder.decode(known, RangeDecoder(encoder.finish())), strict=True):
        assert_array_equal(values, item)


def test_what_has_no_probability_is_named() -> None:
    model = sm.HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.5, 0.5, 0.0]])
    coder = StepCoder(model.cursor(), 3, True)
    with pytest.raises(ImpossibleSymbolError) as raised:
        coder.encode([Example(ITEMS[0]), Example(np.array([0, 1, 2]))], RangeEncoder())
    assert (raised.value.sequence, raised.value.step, raised.value.symbol) == (1, 2, 2)


def test_alphabets_that_are_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match="can be coded"):
        StepCoder(MODEL.cursor(), MAX_SYMBOLS + 1, True)
