"""Which symbols are masked, how many, and what replaces them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from seqmodels.neural.masked.network import BEGIN, END, MASK, with_boundaries
from seqmodels.neural.masked.training import Masking

V = 5


def spans_of(group: np.ndarray) -> list[int]:
    """Lengths of the contiguous pieces of each group."""
    return [int(n) for n in np.unique(group[group >= 0], return_counts=True)[1]]


@pytest.mark.parametrize("objective", ["tokens", "spans"])
@pytest.mark.parametrize(
    ("n", "fraction", "count"), [(20, 0.15, 3), (1, 0.15, 1), (3, 0.01, 1), (7, 1.0, 7), (0, 0.5, 0)]
)
def test_the_fraction_is_masked(objective, n, fraction, count):
    masking = Masking(objective, fraction)
    for seed in range(20):
        assert np.count_nonzero(masking.choose(n, np.random.default_rng(seed)) >= 0) == count


def test_the_three_shares_and_the_random_symbols():
    rng = np.random.default_rng(0)
    steps = rng.integers(1, V, size=20_000)  # no zeros: a zero among the inputs was drawn
    inputs, masked = Masking(fraction=0.5).apply(steps, V, rng)
    assert masked.sum() == 10_000
    assert (inputs[~masked] == steps[~masked]).all()
    replaced = inputs == V + MASK
    changed = masked & ~replaced & (inputs != steps)
    # Of the tenth that is drawn a fifth falls on the true symbol, and then looks kept.
    counts = [replaced.sum(), changed.sum(), masked.sum() - replaced.sum() - changed.sum()]
    assert chisquare(counts, [8_000, 800, 1_200]).pvalue > 0.01
    # A zero is never the true symbol, each of the others is in a quarter of the places.
    drawn = np.bincount(inputs[changed], minlength=V)
    assert chisquare(drawn, changed.sum() * np.array([4, 3, 3, 3, 3]) / 16).pvalue > 0.01


def test_every_place_is_as_likely():
    rng = np.random.default_rng(1)
    counts = sum((Masking(fraction=0.3).choose(10, rng) >= 0).astype(int) for _ in range(2_000))
    assert chisquare(counts).pvalue > 0.01


def test_spans_are_contiguous_and_have_their_mean_length():
    rng = np.random.default_rng(2)
    lengths: list[int] = []
    for _ in range(300):
        group = Masking("spans", 0.02, span_mean=4.0).choose(2_000, rng)  # sparse: few meet, few are cut
        for k in range(group.max() + 1):
            (places,) = np.nonzero(group == k)
            assert len(places) == places[-1] - places[0] + 1 or len(places) < places[-1] - places[0] + 1 <= 60
        lengths += spans_of(group)[:-1]
    error = np.std(lengths) / np.sqrt(len(lengths))
    assert abs(np.mean(lengths) - 4.0) < 0.35 + 3 * error  # cut and covered ones are shorter
    assert 0.15 < np.mean(np.array(lengths) == 1) < 0.35  # geometric: a quarter are of one symbol


def test_a_span_shares_its_fate():
    rng = np.random.default_rng(3)
    masking = Masking("spans", 0.3, 3.0, mask_share=0.5, random_share=0.0, keep_share=0.5)
    for _ in range(50):
        state = rng.bit_generator.state
        inputs, masked = masking.apply(np.zeros(40, dtype=np.int64), V, rng)
        again = np.random.default_rng()
        again.bit_generator.state = state
        group = masking.choose(40, again)
        assert ((group >= 0) == masked).all()
        for k in range(group.max() + 1):
            assert len(set((inputs[group == k] == V + MASK).tolist())) == 1


def test_boundaries_are_never_masked():
    row = with_boundaries(np.array([0, 1, 2]), V)
    assert row.tolist() == [V + BEGIN, 0, 1, 2, V + END]
    inputs, masked = Masking(fraction=1.0, mask_share=1.0, random_share=0.0, keep_share=0.0).apply(
        row, V, np.random.default_rng(0)
    )
    assert masked.tolist() == [False, True, True, True, False]
    assert inputs.tolist() == [V + BEGIN, *[V + MASK] * 3, V + END]
    assert not Masking().apply(row[-1:], V, np.random.default_rng(0))[1].any()  # nothing but a boundary


def test_masks_are_drawn_anew_and_repeat_by_seed():
    rng, steps = np.random.default_rng(0), np.zeros(200, dtype=np.int64)
    first, second = (Masking().apply(steps, V, rng)[1] for _ in range(2))
    assert (first != second).any()
    assert (Masking().apply(steps, V, np.random.default_rng(0))[1] == first).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "words"}, "objective is 'words'"),
        ({"fraction": 0.0}, "mask_fraction is 0"),
        ({"span_mean": 0.5}, "span_mean is 0.5"),
        ({"mask_share": 0.5}, "three shares that sum to 1"),
        ({"mask_share": 1.2, "random_share": -0.3}, "three shares"),
    ],
)
def test_what_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Masking(**options)
