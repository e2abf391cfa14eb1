"""The loss by a finite window."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm


@pytest.fixture(scope="module")
def x():
    draws, _ = sm.data.hmm_draws(24, 40, n_states=3, n_symbols=4, random_state=2)
    return draws


@pytest.mark.parametrize("length", ["given", "stop"])
def test_a_model_without_memory_loses_nothing_but_at_its_ends(x, length):
    model = sm.HMM(1, max_iter=3, length=length).fit(x)
    loss = sm.evaluation.window_loss(model, x, 8)
    if length == "given":
        assert loss.difference == pytest.approx(0, abs=1e-12)
        return
    # A sequence has no end before its first step, so the first step of a window has no chance to end to be left out.
    windows = sum(-(-len(item) // 8) for item in x) - len(x)
    expected = windows * np.log1p(-model.final_[0]) / x.n_units.sum()
    assert loss.difference == pytest.approx(expected, rel=1e-6)


def test_an_n_gram_loses_less_the_wider_the_window(x):
    model = sm.NGram(2, length="given").fit(x)
    losses = [sm.evaluation.window_loss(model, x, width).difference for width in (2, 8, 30)]
    assert losses[0] > losses[1] > losses[2] >= 0
    assert losses[2] < 0.02
    assert sm.evaluation.window_loss(model, x, 40).difference == 0


def test_it_is_the_difference_of_two_scores(x):
    model = sm.LSTM(d_model=8, max_steps=20, length="given").fit(x)
    loss = sm.evaluation.window_loss(model, x, 5)
    assert loss.difference == pytest.approx(model.score(x) - model.score(x.chunks(5)), abs=1e-6)
    assert loss.low < loss.difference < loss.high
    assert loss.n_clusters == 24


def test_one_long_text_has_blocks_and_bytes_as_units():
    text = "né. " * 200
    model = sm.HMM(4, max_iter=20).fit([text])
    loss = sm.evaluation.window_loss(model, [text], 16)
    assert "moving blocks" in loss.method
    whole = model.log_prob_steps([text])[0][:-1]
    apart = model.log_prob_steps(sm.Sequences([text]).chunks(16))
    assert loss.difference == pytest.approx((whole.sum() - sum(s[:-1].sum() for s in apart)) / len(text.encode()))


def test_clusters_are_the_independent_units(x):
    model = sm.HMM(2, max_iter=2).fit(x)
    grouped = sm.Sequences(x.items, metadata=x.metadata.assign(speaker=[i % 6 for i in range(24)]))
    assert sm.evaluation.window_loss(model, grouped, 4, cluster="speaker").n_clusters == 6


def test_a_conditional_model_and_no_width_are_refused(x):
    source, target = x.continuation(5)
    with pytest.raises(ValueError, match="pass y too"):
        sm.evaluation.window_loss(sm.HMM(1, max_iter=1).fit(source, target), x, 4)
    with pytest.raises(ValueError, match="length is 0"):
        sm.evaluation.window_loss(sm.HMM(1, max_iter=1).fit(x), x, 0)
