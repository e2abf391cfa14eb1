"""The cursor of every model against its batched figures, where a state of low probability explains what comes later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.generation.cursor import start_after
from seqmodels.hmm.parameters import Parameters
from tests.families import Row, halved, rough, rows
from tests.hard_chains import CHAINS, batched, deviation, log_steps, walked, with_chain

HMMS = [
    row
    for row in halved(rows())
    if isinstance(row.model, sm.HMM) and row.model.n_states > 1  # of one state all chains are one
    if not row.family.needs_source and not row.conditional
]
TWO = [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]]


def hard(item: Any, n: int = 24) -> Any:
    """A segment that is repeated, and among real numbers frames 1e3 to 1e6 times as far as any."""
    if isinstance(item, str):
        return (item * n)[:n]
    x = np.concatenate([item] * n)[:n].copy()
    if x.ndim == 2 and not np.array_equal(x, np.round(x)):
        x[5], x[11], x[12] = 1e3 * x[5], -1e6 * x[11], 1e6 * x[12]
    return x


@pytest.mark.parametrize("row", HMMS, ids=str)
def test_an_hmm_is_the_sum_over_its_paths_batched_and_incremental(row: Row) -> None:
    x = hard(row.scored[0])
    for name in CHAINS:
        model = with_chain(rough(row), name)
        expected, found = log_steps(model, x), batched(model, x)
        assert deviation(found, expected) < 1e-9, name
        assert deviation(walked(model, x), expected) < 1e-9, name


def two_states(final: bool = False) -> sm.HMM:
    chain = (0.99 * np.eye(2), [0.01, 0.01]) if final else (np.eye(2), None)
    return sm.HMM.from_parameters([0.5, 0.5], *chain, emission=TWO, dtype="float64")


TURN = np.repeat([0, 1], [300, 600])


@pytest.mark.parametrize("final", [False, True])
def test_a_state_that_is_far_behind_comes_back(final: bool) -> None:
    model = two_states(final)
    expected = model.log_prob([TURN])[0]
    assert_allclose(expected, log_steps(model, TURN).sum(), rtol=1e-12)
    assert_allclose(walked(model, TURN).sum(), expected, rtol=1e-12)
    stream = model.stream()
    for symbol in TURN:
        stream.update(int(symbol))
    assert_allclose(stream.predict_next().probs[1], 0.9 * (0.99 if final else 1.0), rtol=1e-9)


def test_what_goes_on_from_it_is_right() -> None:
    model = two_states()
    drawn = np.concatenate(model.sample(20, prefix=TURN, length=50)).reshape(20, -1)[:, len(TURN) :]
    assert (drawn == 1).mean() > 0.85
    assert (np.array(list(model.generate(TURN, length=200))) == 1).mean() > 0.8
    best = model.n_best(1, prefix=TURN, length=3)[0]
    assert best.item[-3:].tolist() == [1, 1, 1]
    assert_allclose(best.log_prob, model.log_prob([best.item])[0], rtol=1e-12)


def test_beams_are_selected_with_their_beliefs() -> None:
    model = two_states()
    cursor = model.cursor()
    states = cursor.start(n=2)
    for t in range(400):
        states = cursor.advance(states, torch.tensor([0, 1]) if t < 380 else torch.tensor([1, 0]))
    picked = cursor.select(states, torch.tensor([1, 1, 0]))
    alone = start_after(cursor, None, np.repeat([1, 0], [380, 20]), 1)
    assert_allclose(picked.log_alpha[:2], alone.log_alpha.expand(2, -1), rtol=1e-12)
    assert_allclose(picked.log_alpha[2], alone.log_alpha[0].flip(0), rtol=1e-12)


def test_beliefs_merge_in_logarithms() -> None:
    model = two_states()
    cursor = model.cursor()
    one, other = (start_after(cursor, None, np.full(n, symbol), 1) for n, symbol in ((300, 0), (300, 1)))
    ((_, state),) = model._merge_states([0.0, -900.0], [one, other])
    after = start_after(cursor, None, [], 1)
    lasting = np.full(600, 1)
    log_probs = []
    for start in (one, other, state, after):
        walker, total = start, 0.0
        for symbol in lasting:
            total += float(cursor.distribution(walker).log_prob(torch.tensor([symbol])))
            walker = cursor.advance(walker, torch.tensor([symbol]))
        log_probs.append(total)
    assert_allclose(log_probs[2], np.logaddexp(log_probs[0], log_probs[1] - 900.0), rtol=1e-9)


def test_a_chain_that_em_fitted_and_one_segment_repeated() -> None:
    rng = np.random.default_rng(0)
    x = [np.repeat(rng.normal(size=(12, 2)), 5, axis=0) + 0.05 * rng.normal(size=(60, 2)) for _ in range(3)]
    model = sm.HMM(6, observation=sm.GaussianMixture(1), length="given", dtype="float64").fit(x)
    for item in (np.concatenate([x[0][:15]] * 20), x[1] + rng.normal(size=(60, 2)), x[2][::-1]):
        expected = log_steps(model, item)
        assert deviation(walked(model, item), expected) < 1e-9
        assert deviation(batched(model, item), expected) < 1e-9


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("length", ["given", "stop"])
def test_alignments_of_what_hardly_aligns(null: bool, length: Any) -> None:
    words = ["abc", "cab", "bbca", "acb", "aabc"]
    model = sm.AlignmentHMM(
        window=1, previous=False, null=null, length=length, pseudocount=1e-30, jump_pseudocount=1e-30, dtype="float64"
    ).fit(words, [word.upper() for word in words])
    for y in ("ABC", "AAAAAAAABBBBBBBBBBB" * 4, "CBA" * 20):
        assert deviation(walked(model, y, "abc"), batched(model, y, "abc")) < 1e-9


@pytest.mark.parametrize("n_each", [1, 2])
def test_labels_that_a_tagger_hardly_believes(n_each: int) -> None:
    words, tags = [np.array([0, 1, 2] * 4), np.array([0, 2, 0])], [np.array([0, 1, 0] * 4), np.array([0, 0, 1])]
    emission = sm.Categorical(pseudocount=1e-200)
    model = sm.HMMTagger(emission=emission, n_states_per_label=n_each, pseudocount=1e-200, dtype="float64").fit(
        words, tags
    )
    for source, y in (([0, 1, 2] * 20, [1, 0, 1] * 20), ([2] * 30, [1] * 30)):
        source, y = np.array(source), np.array(y)
        assert deviation(walked(model, y, source), batched(model, y, source)) < 1e-9


def test_other_cursors_on_many_steps() -> None:
    rng = np.random.default_rng(0)
    symbols, frames = [rng.integers(0, 3, 200)], [rng.normal(size=(100, 2))]
    long, far = np.concatenate([symbols[0][:7]] * 200), hard(frames[0], 200)
    for model, x in (
        (sm.NGram(3, dtype="float64").fit(symbols), long),
        (sm.LSTM(d_model=8, max_steps=3, dtype="float64").fit(frames), far),
        (sm.GRU(d_model=8, max_steps=3, dtype="float64").fit(symbols), long),
    ):
        assert deviation(walked(model, x), batched(model, x)) < 1e-9


def test_a_chain_that_hardly_goes_on_goes_on() -> None:
    model = sm.HMM.from_parameters([1.0, 0.0], [[0, 1e-30], [0, 0.5]], [1.0, 0.5], emission=TWO, dtype="float64")
    x = np.array([0, 1, 1])
    assert_allclose(model.log_prob([x])[0], np.log(0.9 * 1e-30 * 0.9 * 0.5 * 0.9 * 0.5), rtol=1e-12)
    assert_allclose(walked(model, x).sum(), model.log_prob([x])[0], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_only_the_state_far_behind_explains_the_next_frame(dtype: Any) -> None:
    """The first state is 2,000 nats ahead after the frames; the next frame is 50,000 nats nearer to the other."""
    chain = {"means": [[0.0], [2.0]], "covariances": [[0.01], [0.01]], "dtype": dtype}
    model = sm.HMM.from_parameters([0.5, 0.5], np.eye(2), **chain)
    x, far = np.zeros((10, 1)), np.array([40.0])
    expected = model.log_prob([np.append(x, far[None], axis=0)])[0] - model.log_prob([x])[0]
    value = torch.as_tensor(far)
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    assert_allclose(model.predict_next(x).log_prob(value), expected, rtol=tolerance)
    assert_allclose(model.forecast_states([x])[0].distribution().log_prob(value), expected, rtol=tolerance)


def test_a_state_that_cannot_be_explains_nothing() -> None:
    model = sm.HMM.from_parameters(
        [1.0, 0.0], np.eye(2), means=[[0.0], [50.0]], covariances=[[1.0], [1.0]], dtype="float64"
    )
    value = torch.tensor([50.0], dtype=torch.float64)
    expected = -0.5 * 50.0**2 - 0.5 * np.log(2 * np.pi)
    assert_allclose(model.predict_next().log_prob(value), expected, rtol=1e-9)
    assert_allclose(model.forecast_states([np.zeros((3, 1))])[0].distribution().log_prob(value), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_source_after_which_the_likely_state_must_end(dtype: Any) -> None:
    """The next step is normalised by a probability of continuing of 1e-20, or of 0 in all states but one.

    That one has a low probability.
    """
    x, y = [np.array([0, 0, 1]), np.array([0, 1])], [np.array([1, 1]), np.array([1, 0, 1])]
    model = sm.HMM(2, length="stop", dtype=dtype, max_iter=2).fit(x, y)
    table = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64).log()
    for initial, transition in (
        ([1.0, 0.0], [[0.0, 1e-20], [0.0, 0.5]]),
        ([1 - 1e-60, 1e-60], [[0.0, 0.0], [0.0, 0.5]]),
    ):
        chain = (torch.tensor(each, dtype=torch.float64) for each in (initial, transition, [1.0, 0.5]))
        model.parameters_ = Parameters(*chain, table)
        expected = np.log([0.9, 0.5 * 0.9, 0.5])
        assert_allclose(batched(model, np.array([1, 1]), np.array([0])), expected, rtol=1e-6)
        assert_allclose(walked(model, np.array([1, 1]), np.array([0])), expected, rtol=1e-6)
