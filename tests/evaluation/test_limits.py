"""A budget, for any model."""

import pytest

import seqmodels as sm
from seqmodels.evaluation.limits import expected_seconds, limited, under_budget
from seqmodels.evaluation.standard import Task


def test_a_budget_takes_the_place_of_the_models_own():
    assert limited(sm.LSTM(max_steps=800)).max_steps == 800
    by_time = limited(sm.LSTM(max_steps=800, max_epochs=2), seconds=3.0)
    assert (by_time.max_steps, by_time.max_epochs, by_time.max_seconds) == (None, None, 3.0)
    by_steps = limited(sm.LSTM(max_seconds=9), steps=5)
    assert (by_steps.max_steps, by_steps.max_seconds) == (5, None)
    em = limited(sm.HMM(2, max_iter=3), seconds=3.0)
    assert em.max_seconds == 3.0
    assert em.max_iter > 10_000
    assert limited(sm.HMM(2, algorithm="gradient", max_iter=30), seconds=3.0).max_iter == 30
    assert limited(sm.HMM(2), steps=7).max_iter == 7
    assert limited(sm.AlignmentHMM(max_iter=3), seconds=2.0).max_iter == 3  # it knows no clock
    assert repr(limited(sm.NGram(3), seconds=1.0, steps=4)) == repr(sm.NGram(3))
    with pytest.raises(ValueError, match="steps of the budget is 0"):
        limited(sm.HMM(2), steps=0)


def test_what_is_expected_follows_the_budget():
    lstm = sm.LSTM(max_steps=100)
    assert expected_seconds(lstm, 10.0, seconds=None, steps=None) == 10.0
    assert expected_seconds(lstm, 10.0, seconds=None, steps=50) == 5.0
    assert expected_seconds(lstm, 10.0, seconds=2.0, steps=None) == 2.0
    assert expected_seconds(lstm, 10.0, seconds=2.0, steps=50) == 2.0
    assert expected_seconds(sm.NGram(), 1.0, seconds=60.0, steps=None) == 1.0
    x = sm.Sequences(["ab"])
    task = Task("t", "T", (x, None), (x, None), {"lstm": lstm, "ngram": sm.NGram()}, 11.0, "ngram", {"lstm": 10.0})
    held = under_budget(task, seconds=4.0, steps=None)
    assert held.seconds == 4.0
    assert held.models["lstm"].max_seconds == 4.0
