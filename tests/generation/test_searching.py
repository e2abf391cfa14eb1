from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.generation import Hypothesis, Search, beam_search, beam_searches, given_each, given_rows
from seqmodels.generation.beam import Beam, _settled
from seqmodels.generation.searching import Goal, batches
from tests.generation.markov import Markov

EMPTY = np.zeros(0, dtype=np.int64)
X = ["ab", "b", "ba", "aab", "bb", "b", "abba"]
Y = ["xy", "y", "yx", "xxy", "yy", "y", "xyyx"]


@cache
def reader() -> sm.SequenceModel:
    """A network that has learned a little of which letter stands for which."""
    return sm.LSTMSeq2Seq(d_model=16, max_steps=60, batch_size=7, dtype="float64").fit(X, Y, validation=None)


@cache
def counter(length: str = "stop") -> sm.HMM:
    symbols = [np.array([ord(c) % 4 for c in text]) for text in X]
    model = sm.HMM(3, length=length, observation=sm.Categorical(0.1), max_iter=5, dtype="float64")  # type: ignore[arg-type]
    return model.fit(symbols, symbols)


def test_sources_are_searched_together_as_one_by_one() -> None:
    for model, sources in ((reader(), X), (counter(), [np.array([0, 1]), np.array([1]), np.array([1, 0])] * 2)):
        together = model.predict(sources, n_beams=4, n_best=3, max_length=5)
        for source, found in zip(sources, together, strict=True):
            alone = model.n_best(3, source=source, n_beams=4, max_length=5)
            assert [str(each.item) for each in found] == [str(each.item) for each in alone]
            np.testing.assert_allclose([c.log_prob for c in found], [c.log_prob for c in alone], rtol=0, atol=1e-9)
            items: list[Any] = [each.item for each in found]
            np.testing.assert_allclose(
                [c.log_prob for c in found], model.log_prob([source] * len(items), items), rtol=0, atol=1e-9
            )
        for size in (1, 2):
            some = model.predict(sources, n_beams=4, max_length=5, batch_size=size)
            assert [str(item) for item in some] == [str(found[0].item) for found in together]


def test_the_search_itself_knows_log_prob() -> None:
    model, sources = reader(), ["ab", "ba", "bb"]
    encoded = [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64) for text in sources]
    found = beam_searches(model._cursor(), Search(5, 4, max_length=6), prefixes=[EMPTY] * 3, sources=encoded)
    for source, hypotheses in zip(sources, found, strict=True):
        texts = [bytes(h.steps.tolist()).decode() for h in hypotheses]
        assert len(set(texts)) == 4
        expected = model.log_prob([source] * 4, texts)
        np.testing.assert_allclose([h.log_prob for h in hypotheses], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("end", [None, 0.3])
def test_each_source_has_its_own_beam(end: float | None) -> None:
    how = Search(3, 3, None if end else 4, 4, 0.7)
    sources, prefixes = [np.array([2]), np.array([0]), np.array([1])], [np.array([2]), np.array([0]), np.array([1])]
    for begun in ([EMPTY] * 3, prefixes):
        together = beam_searches(Markov(end), how, prefixes=begun, sources=sources)
        for source, prefix, found in zip(sources, begun, together, strict=True):
            alone = beam_search(Markov(end), how, prefix=prefix, source=source)
            assert [(h.steps.tolist(), h.log_prob) for h in found] == [(h.steps.tolist(), h.log_prob) for h in alone]
            assert {int(h.steps[0]) for h in found} == {int(source[0])}


def test_a_source_is_settled_by_its_own_beginnings() -> None:
    steps, owner = torch.zeros(3, 1, dtype=torch.int64), torch.tensor([0, 1, 1])
    log_prob, longest = torch.tensor([-9.0, -1.0, -8.0], dtype=torch.float64), torch.full((3,), 1000)
    beam = Beam(steps, log_prob, owner, longest, None, stops=True)
    found = [[Hypothesis(EMPTY, -5.0)], [Hypothesis(EMPTY, -5.0)]]
    assert _settled(found, beam, Search()).tolist() == [True, False, False]
    assert _settled(found, beam, Search(n_best=2)).tolist() == [False, False, False]


def test_prefixes_are_kept_to() -> None:
    model = reader()
    found = model.predict(X, prefix="zy", n_beams=3, max_length=6)
    assert all(text.startswith("zy") for text in found)
    each = ["x", None, "yy", "x", "", "y", "x"]
    mixed = model.predict(X, prefix=each, n_beams=3, max_length=6)
    for source, prefix, text in zip(X, each, mixed, strict=True):
        assert text.startswith(prefix or "")
        assert text == model.n_best(1, source=source, prefix=prefix, n_beams=3, max_length=6)[0].item
    symbols = counter().predict([[0, 1], [1]], prefix=[1, 0], max_length=4)
    assert [item[:2].tolist() for item in symbols] == [[1, 0], [1, 0]]
    apart = counter().predict([[0, 1], [1]], prefix=[[1, 0], [0]], max_length=4)
    assert [item[0] for item in apart] == [1, 0]


def test_targets_may_be_longer_where_sources_are() -> None:
    model = counter()
    n_steps = [len(item) for item in model.predict([[0], [0, 0], [0] * 4], prefix=[0], max_length=1, max_ratio=1.5)]
    longest = [len(item) for item in model.predict([[0], [0, 0], [0] * 4], prefix=[0], max_length=1)]
    assert longest == [1, 1, 1]
    assert all(n <= most for n, most in zip(n_steps, [2, 4, 7], strict=True))
    never = sm.HMM(1).fit([[0]], [[0] * 500])  # an end is hardly ever due
    found = never.predict([[0], [0] * 4], max_length=2, max_ratio=1.5)
    assert [len(item) for item in found] == [3, 8]


def test_lengths_may_differ() -> None:
    found = counter("given").predict([[0, 1], [1, 0], [1]], length=[3, 1, 2], n_beams=2)
    assert [len(item) for item in found] == [3, 1, 2]


def test_the_mean_ranks_long_ones_higher() -> None:
    by_mean = beam_search(Markov(0.4), Search(100, 3, max_length=4, alpha="mean"), prefix=EMPTY)
    everything = beam_search(Markov(0.4), Search(1000, 500, max_length=4), prefix=EMPTY)
    means = sorted((h.log_prob / (len(h.steps) + 1) for h in everything), reverse=True)
    assert [Search(alpha="mean").score(h.log_prob, len(h.steps)) for h in by_mean] == means[:3]
    assert len(by_mean[0].steps) > len(everything[0].steps)


def test_batches_are_alike() -> None:
    shapes = [(2, 0, None), (1, 0, None), (2, 0, None), (2, 1, None), (2, 0, None), (3, 0, 4)]
    goals = [Goal(np.zeros(n), np.zeros(begun), length) for n, begun, length in shapes]
    assert list(batches(goals, 2, pads=False)) == [[5], [1], [0, 2], [4], [3]]
    assert list(batches(goals, 3, pads=True)) == [[5], [1, 0, 2], [4], [3]]
    with pytest.raises(ValueError, match="batch_size is 0"):
        list(batches(goals, 0, pads=True))


def test_given_rows() -> None:
    one, two = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    assert given_rows(None, 3) is None
    np.testing.assert_array_equal(given_rows(one, 3), [one] * 3)
    np.testing.assert_array_equal(given_rows([one, two], 2), [one, two])
    with pytest.raises(ValueError, match=r"2 sources of \[1\] steps for 3 sequences"):
        given_rows([one, two], 3)
    with pytest.raises(ValueError, match=r"\[1, 2\] steps"):
        given_rows([one, np.ones((2, 2))], 2)


def test_a_source_with_no_possible_target_is_named() -> None:
    model = sm.HMM(1, length="given").fit([[0, 2]], [[0, 0]])  # never a 1
    with pytest.raises(ValueError, match="source 1: nothing that the model holds possible begins with the prefix"):
        model.predict([[0], [0, 0]], prefix=[[0], [1]], length=3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"length": [1, 2]}, "there are 7 sources but 2 lengths"),
        ({"prefix": ["a", "b"]}, "there are 7 sources but 2 prefixes"),
        ({"n_best": 0}, "n is 0"),
        ({"alpha": "median"}, "alpha is 'median'"),
    ],
)
def test_what_cannot_be_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reader().predict(X, max_length=3, **wrong)


def test_given_each() -> None:
    one, two = np.array([1, 2]), np.array([3])
    assert given_each(None, 2) == [None, None]
    assert given_each(one, 2) == [one, one]
    assert given_each([one, two], 2) == [one, two]
    with pytest.raises(ValueError, match="2 sources for 3 sequences"):
        given_each([one, two], 3)
