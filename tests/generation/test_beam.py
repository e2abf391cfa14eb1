"""Beam search: against all sequences, listed, and of many sources at once against each alone."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.encodings.examples import TargetLengths
from seqmodels.generation import BeamSearch, Decoding, Hypothesis, beam_search, beam_searches, sample_steps
from seqmodels.generation.beam import Beam, Request, _is_over, batches
from seqmodels.sequences.measure import Length
from tests.generation.markov import CHAIN, FIRST, Markov, seeded

EMPTY = np.zeros(0, dtype=np.int64)


# -- of one source, encoded ---------------------------------------------------------------------------------------


def enumerated(end: float | None, longest: int, alpha: float = 0.0) -> list[tuple[tuple[int, ...], float, float]]:
    """Every sequence, its log-probability and its score, best first."""
    shortest, found = longest if end is None else 1, []
    for n in range(shortest, longest + 1):
        for s in product(range(3), repeat=n):
            p = float(FIRST[s[0]]) * np.prod([float(CHAIN[a, b]) for a, b in pairwise(s)])
            p *= 1 if end is None else (1 - end) ** (n - 1) * end
            if p > 0:
                found.append((s, float(np.log(p)), float(np.log(p) / ((6 + n) / 6) ** alpha)))
    return sorted(found, key=lambda each: -each[2])


@pytest.mark.parametrize("end", [None, 0.1, 0.6])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 3.0])
def test_a_beam_of_all_beginnings_is_exhaustive(end: float | None, alpha: float) -> None:
    longest, n = 4, 12
    how = BeamSearch(3**longest + 1, n, None if end else longest, longest, alpha)
    found, expected = beam_search(Markov(end), how, prefix=EMPTY), enumerated(end, longest, alpha)
    scores = [how.score(h.log_prob, len(h.steps)) for h in found]
    np.testing.assert_allclose(scores, [score for _, _, score in expected[:n]], rtol=0, atol=1e-6)
    log_prob = {s: p for s, p, _ in expected}
    np.testing.assert_allclose(
        [h.log_prob for h in found], [log_prob[tuple(h.steps)] for h in found], rtol=0, atol=1e-6
    )
    assert len({tuple(h.steps) for h in found}) == n


def test_a_search_for_the_best_few_stops_early_and_misses_nothing() -> None:
    everything = beam_search(Markov(0.6), BeamSearch(1000, 500, max_length=5), prefix=EMPTY)
    for n in (1, 3, 7):
        few = beam_search(Markov(0.6), BeamSearch(1000, n, max_length=5), prefix=EMPTY)
        assert [h.log_prob for h in few] == [h.log_prob for h in everything[:n]]
    assert len(beam_search(Markov(0.6), BeamSearch(3, max_length=10**9), prefix=EMPTY)) == 1


@pytest.mark.parametrize(("end", "length"), [(None, 6), (0.1, None), (0.45, None)])
def test_width_one_is_greedy(end: float | None, length: int | None) -> None:
    greedy = sample_steps(
        Markov(end),
        1,
        prefix=EMPTY,
        source=None,
        length=length,
        max_length=6,
        generator=seeded(),
        decoding=Decoding(temperature=0),
    )
    found = beam_search(Markov(end), BeamSearch(1, 1, length, 6), prefix=EMPTY)
    assert [h.steps.tolist() for h in found] == [x.tolist() for x in greedy]


def test_a_wider_beam_finds_what_greed_misses() -> None:
    narrow, wide = (beam_search(Markov(0.3), BeamSearch(w, 1, max_length=3), prefix=np.array([0]))[0] for w in (1, 2))
    assert len(narrow.steps) == 4  # going on was always likelier than ending
    assert wide.steps.tolist() == [0]
    assert narrow.log_prob < wide.log_prob


def test_a_prefix_is_kept_and_the_steps_after_it_are_counted() -> None:
    found = beam_search(Markov(0.25), BeamSearch(50, 50, max_length=2), prefix=np.array([0, 2]))
    expected = [(s, p) for s, p, _ in enumerated(0.25, 4) if s[:2] == (0, 2)]
    assert sorted(tuple(h.steps) for h in found) == sorted(s for s, _ in expected)
    np.testing.assert_allclose([h.log_prob for h in found], [p for _, p in expected], rtol=0, atol=1e-6)
    exact = beam_search(Markov(0.25), BeamSearch(50, 50, length=0), prefix=np.array([0, 2]))
    assert [h.steps.tolist() for h in exact] == [[0, 2]]
    assert exact[0].log_prob == pytest.approx(np.log(0.2 * 0.3 * 0.75 * 0.25), abs=1e-6)


def test_a_length_asked_for_is_kept_to_with_the_end_after_it() -> None:
    found = beam_search(Markov(0.9), BeamSearch(27, 5, length=3), prefix=EMPTY)
    assert {len(h.steps) for h in found} == {3}
    best = max(p for s, p, _ in enumerated(0.9, 3) if len(s) == 3)
    assert found[0].log_prob == pytest.approx(best, abs=1e-6)


def test_a_source_reaches_the_start() -> None:
    found = beam_search(Markov(), BeamSearch(9, 1, 2), prefix=EMPTY, source=np.array([1]))
    assert found[0].steps.tolist() == [1, 1]


def test_what_is_impossible_is_not_found() -> None:
    found = beam_search(Markov(), BeamSearch(100, 100, 1), prefix=np.array([2]))
    assert [h.steps.tolist() for h in found] == [[2, 1]]
    assert torch.isneginf(torch.tensor(found[0].log_prob)).item() is False


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "n_beams is 0"),
        ({"n_best": 0}, "n is 0"),
        ({"length": -1}, "sequences would have -1 steps"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"alpha": float("nan")}, "alpha is nan"),
    ],
)
def test_numbers_out_of_range_are_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BeamSearch(**wrong)  # type: ignore[arg-type]


def test_a_sequence_of_no_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="sequences would have 0 steps"):
        beam_search(Markov(), BeamSearch(1, 1, 0), prefix=EMPTY)


def test_the_length_is_that_of_what_follows_the_prefix() -> None:
    model = sm.NGram(3).fit(["hello there", "hello world"] * 3)
    drawn = model.sample(20, length=4, prefix="hello ", random_state=0, top_k=2)
    assert [len(text) for text in drawn] == [10] * 20
    text = model.sample(1, length=4, prefix="hello ", random_state=1)[0]
    assert text == "hello " + "".join(model.generate("hello ", length=4, random_state=1))
    assert max(len(text) for text in model.sample(50, max_length=3, prefix="hello ", random_state=0)) <= 9
    assert [len(each.item) for each in model.n_best(2, length=4, prefix="hello ")] == [10, 10]
    pairs = sm.HMM(2, max_iter=2, length="given").fit(["ab", "ba"], ["aab", "bba"])
    assert [len(text) for text in pairs.predict(["ab", "b"], prefix="ab", length=[3, 1])] == [5, 3]


# -- of many sources, raw ------------------------------------------------------------------------------------------

X = ["ab", "b", "ba", "aab", "bb", "b", "abba"]
Y = ["xy", "y", "yx", "xxy", "yy", "y", "xyyx"]


@cache
def reader() -> sm.SequenceModel:
    """A network that has learned a little of which letter stands for which."""
    return sm.LSTMSeq2Seq(d_model=16, max_steps=60, batch_size=7, dtype="float64").fit(X, Y, validation=None)


@cache
def counter(length: Length = "stop") -> sm.HMM:
    symbols = [np.array([ord(c) % 4 for c in text]) for text in X]
    model = sm.HMM(3, length=length, observation=sm.Categorical(0.1), max_iter=5, dtype="float64")
    return model.fit(symbols, symbols)


@pytest.mark.slow
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
    found = beam_searches(model.cursor(), BeamSearch(5, 4, max_length=6), prefixes=[EMPTY] * 3, sources=encoded)
    for source, hypotheses in zip(sources, found, strict=True):
        texts = [bytes(h.steps.tolist()).decode() for h in hypotheses]
        assert len(set(texts)) == 4
        expected = model.log_prob([source] * 4, texts)
        np.testing.assert_allclose([h.log_prob for h in hypotheses], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("end", [None, 0.3])
def test_each_source_has_its_own_beam(end: float | None) -> None:
    how = BeamSearch(3, 3, None if end else 4, 4, 0.7)
    sources, prefixes = [np.array([2]), np.array([0]), np.array([1])], [np.array([2]), np.array([0]), np.array([1])]
    for begun in ([EMPTY] * 3, prefixes):
        together = beam_searches(Markov(end), how, prefixes=begun, sources=sources)
        for source, prefix, found in zip(sources, begun, together, strict=True):
            alone = beam_search(Markov(end), how, prefix=prefix, source=source)
            assert [(h.steps.tolist(), h.log_prob) for h in found] == [(h.steps.tolist(), h.log_prob) for h in alone]
            assert {int(h.steps[0]) for h in found} == {int(source[0])}


def test_the_search_of_a_source_is_over_by_its_own_partial_sequences() -> None:
    steps, source = torch.zeros(3, 1, dtype=torch.int64), torch.tensor([0, 1, 1])
    log_prob, max_steps = torch.tensor([-9.0, -1.0, -8.0], dtype=torch.float64), torch.full((3,), 1000)
    beam = Beam(steps, log_prob, source, max_steps, None, has_end=True)
    found = [[Hypothesis(EMPTY, -5.0)], [Hypothesis(EMPTY, -5.0)]]
    assert _is_over(found, beam, BeamSearch()).tolist() == [True, False, False]
    assert _is_over(found, beam, BeamSearch(n_best=2)).tolist() == [False, False, False]


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
    assert all(n <= 2 for n in longest)
    assert all(n <= 1 + most for n, most in zip(n_steps, [2, 4, 7], strict=True))
    never = sm.HMM(1).fit([[0]], [[0] * 500])  # an end is hardly ever due
    found = never.predict([[0], [0] * 4], max_length=2, max_ratio=1.5)
    assert [len(item) for item in found] == [3, 8]


@pytest.mark.slow
def test_by_default_a_target_may_be_as_long_as_those_of_the_fit_were(tmp_path: Path) -> None:
    never = sm.HMM(1, random_state=0).fit([[0], [0, 0, 0]], [[0] * 90, [0] * 70])  # an end is hardly ever due
    assert never.target_lengths_ == TargetLengths(90, 40)
    expected = [90 + 40 * 1, 90 + 40 * 3]
    assert [len(item) for item in never.predict([[0], [0] * 3])] == expected
    assert [len(item) for item in never.predict([[0], [0] * 3], prefix=[0, 0])] == [n + 2 for n in expected]
    assert len(never.n_best(1, source=[0], n_beams=1)[0].item) == expected[0]
    never.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert [len(item) for item in loaded.predict([[0], [0] * 3])] == expected
    never.target_lengths_ = None  # as of a file that does not say it
    assert [len(item) for item in never.predict([[0]])] == [1000]


def test_a_mixture_and_what_wraps_a_model_know_how_long_targets_were() -> None:
    model = counter()
    assert model.target_lengths_ == TargetLengths(4, 1.0)
    assert sm.Mixture.from_fitted([model, model], weights="static").target_lengths_ == TargetLengths(4, 1)
    ignoring = sm.HMM(2, ignore_source=True, max_iter=2).fit(X, X)
    assert ignoring.target_lengths_ == TargetLengths(4, 0.0)
    for without in (counter("given"), sm.HMM(2, max_iter=2).fit(X)):
        assert without.target_lengths_ is None


def test_lengths_may_differ() -> None:
    found = counter("given").predict([[0, 1], [1, 0], [1]], length=[3, 1, 2], n_beams=2)
    assert [len(item) for item in found] == [3, 1, 2]


def test_the_mean_ranks_long_ones_higher() -> None:
    by_mean = beam_search(Markov(0.4), BeamSearch(100, 3, max_length=4, alpha="mean"), prefix=EMPTY)
    everything = beam_search(Markov(0.4), BeamSearch(1000, 500, max_length=4), prefix=EMPTY)
    means = sorted((h.log_prob / (len(h.steps) + 1) for h in everything), reverse=True)
    assert [BeamSearch(alpha="mean").score(h.log_prob, len(h.steps)) for h in by_mean] == means[:3]
    assert len(by_mean[0].steps) > len(everything[0].steps)


def test_batches_are_alike() -> None:
    shapes = [(2, 0, None), (1, 0, None), (2, 0, None), (2, 1, None), (2, 0, None), (3, 0, 4)]
    requests = [Request(np.zeros(n), np.zeros(begun), length) for n, begun, length in shapes]
    assert list(batches(requests, 2, pads=False)) == [[5], [1], [0, 2], [4], [3]]
    assert list(batches(requests, 3, pads=True)) == [[5], [1, 0, 2], [4], [3]]
    with pytest.raises(ValueError, match="batch_size is 0"):
        list(batches(requests, 0, pads=True))


def test_a_source_with_no_possible_target_is_named() -> None:
    model = sm.HMM(1, length="given").fit([[0, 2]], [[0, 0]])  # never a 1
    with pytest.raises(ValueError, match="source 1: no sequence that begins with the prefix is possible"):
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
