"""Predictions given the true steps before are those of scoring, whichever sequences are read together."""

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.model.teacher_forcing import BATCH, WARM_UP, forced_batches

TEXTS = ["banana", "bandana", "an", "nab a cab", "cabana", "a"]


def forced_steps(model, X, y=None, n_steps=400):
    """Nats of every evaluated step of every sequence, in the order of the batches."""
    found = []
    for batch in forced_batches(model, X, y, n_steps, 0):
        rows = [[] for _ in batch.lengths]
        for prediction, x, real in batch.steps(model):
            log_prob = prediction.log_prob(x)
            for row in real:
                rows[row].append(float(log_prob[row]))
        found += [np.array(row) for row in rows]
    return found


def fitted(model, *data):
    return model.fit(*data, validation=None)


@pytest.mark.parametrize(
    "model",
    [sm.HMM(2, max_iter=2, length="given"), sm.LSTM(d_model=8, max_steps=3, length="given")],
    ids=["hmm", "lstm"],
)
def test_texts_of_many_lengths(model):
    stepped = forced_steps(fitted(model, TEXTS), TEXTS)
    for ours, batched in zip(stepped, model.log_prob_steps(TEXTS), strict=True):
        np.testing.assert_allclose(ours, batched, rtol=0, atol=2e-5)


def test_pairs_whose_sources_have_several_lengths():
    X, y = ["ab", "abc", "ba", "cab"], ["bab", "b", "ab", "aba"]
    model = fitted(sm.LSTMSeq2Seq(d_model=8, max_steps=3, length="given"), X, y)
    stepped = forced_steps(model, X, y)
    batched = model.log_prob_steps(X, y)
    assert len(forced_batches(model, X, y, 400, 0)) == 2
    for ours, theirs in zip(stepped, [batched[i] for i in (0, 2, 1, 3)], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5)


def test_a_long_text_is_evaluated_on_warmed_up_windows_from_all_over_it():
    text = "".join("ab"[i % 7 > 2] for i in range(6000))
    model = fitted(sm.HMM(1, max_iter=1, length="given"), [text])
    (batch,) = forced_batches(model, [text], None, 240, 0)
    assert batch.values.shape == (BATCH, 10 + WARM_UP)
    assert sum(len(real) for _, _, real in batch.steps(model)) == 240
    assert bytes(batch.values[-1].to(torch.uint8).tolist()).decode() == text[-10 - WARM_UP :]


def test_more_sequences_than_are_wanted_are_drawn_by_seed():
    X = [np.full(3, i % 5) for i in range(100)]
    model = fitted(sm.HMM(1, max_iter=1), X)
    first, again, other = (forced_batches(model, X, None, 48, seed)[0].values for seed in (0, 0, 1))
    assert first.shape == (BATCH, 2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
