from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels.counts.ngram.counts import n_of_counts
from seqmodels.counts.ngram.smoothing import discounts, kneser_ney, witten_bell

COUNTS = np.repeat([1, 2, 3, 4, 9], [10, 4, 2, 1, 3])
CONTEXT = np.arange(len(COUNTS)) % 6


def test_discounts_by_hand() -> None:
    y = 10 / (10 + 2 * 4)
    assert_allclose(
        discounts(n_of_counts(COUNTS)), [1 - 2 * y * 4 / 10, 2 - 3 * y * 2 / 4, 3 - 4 * y * 1 / 2], rtol=1e-14
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5, 7, 9], [0.5, 1, 1.5]),  # none is rare
        ([2, 2, 3, 3, 4], [0.5, 1, 1.5]),  # none comes once
        ([1, 1, 5], [0.5, 1, 1.5]),  # none comes twice: D_1 would be 1, and what came once forgotten
        ([1, 2, 2, 2, 3, 3, 3, 3, 3], [1 / 7, 2 - 3 / 7 * 5 / 3, 1.5]),  # none comes four times
        ([1, *[2] * 2, *[3] * 20], [0.2, 1, 1.5]),  # D_2 would be below zero
    ],
)
def test_where_counts_of_counts_fail(counts: list[int], expected: list[float]) -> None:
    assert_allclose(discounts(n_of_counts(np.array(counts))), expected, rtol=1e-14)


@pytest.mark.parametrize("smoothing", [witten_bell, kneser_ney])
def test_shares_and_backoff_of_a_context_sum_to_one(smoothing) -> None:
    share, backoff = smoothing(COUNTS, CONTEXT, 6)
    assert_allclose(np.bincount(CONTEXT, share) + backoff, 1, rtol=1e-14)
    assert (backoff > 0).all()
    assert (share >= 0).all()


def test_witten_bell_by_hand() -> None:
    share, backoff = witten_bell(np.array([3, 1, 2]), np.array([0, 0, 1]), 2)
    assert_allclose(share, [3 / 6, 1 / 6, 2 / 3])
    assert_allclose(backoff, [2 / 6, 1 / 3])
