"""Metrics of decoded sequences, and edit distances."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import sacrebleu

import seqmodels as sm
from seqmodels.evaluation import bleu, chrf, error_rate, evaluate, exact_match
from seqmodels.evaluation.metrics import edit_distances, errors


def test_errors_by_hand() -> None:
    assert error_rate(["kitten", "ab"], ["sitting", "ab"]) == 3 / 8
    assert error_rate([[1, 2, 3], np.array([4])], [np.array([1, 3]), [5, 6]]) == 3 / 4
    assert error_rate(["the cat sat"], ["the  bat sat down"], unit="word") == 2 / 3
    assert error_rate(["a"], ["bcd"]) == 3.0
    assert error_rate(["a", ""], ["", "b"]) == 2.0


def test_of_several_references_the_closest_counts() -> None:
    assert error_rate([["sunday", "saturday"]], ["sundays"]) == 1 / 6
    assert error_rate([["ab", "abcd"], "x"], ["abc", "x"]) == 1 / 5  # of equal ones the longest
    assert error_rate([([1, 2], [7, 8, 9])], [[7, 8]]) == 1 / 3
    assert exact_match(["one", ["two", "2"], "three"], ["one", "2", "four"]) == 2 / 3
    assert exact_match([[[1, 2], [3]], [4]], [np.array([3]), np.array([4, 4])]) == 0.5


def test_bleu_by_hand() -> None:
    # Of 6, 5, 4, 3 pieces of one to four words 5, 3, 2, 1 are in the reference, which is as long.
    found = bleu(["the cat sat on the mat"], ["the cat sat on a mat"])
    assert found == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    shorter = bleu(["the cat sat on the mat today"], ["the cat sat on"])
    assert shorter == pytest.approx(100 * math.exp(1 - 7 / 4))


def test_bleu_and_chrf_are_sacrebleus() -> None:
    hypotheses = ["The cat sat on a mat.", "He goes to school by bus"]
    references = ["the cat sat on the mat.", ["He takes the bus to school", "He goes to school by the bus"]]
    streams = [["the cat sat on the mat.", "He takes the bus to school"], [None, "He goes to school by the bus"]]
    for options in ({}, {"lowercase": True}, {"tokenize": "char"}):
        assert bleu(references, hypotheses, **options) == sacrebleu.corpus_bleu(hypotheses, streams, **options).score
    for order in (0, 2):
        expected = sacrebleu.corpus_chrf(hypotheses, streams, word_order=order).score
        assert chrf(references, hypotheses, word_order=order) == expected
        assert (chrf(references, hypotheses) == expected) == (order == 0)
    assert bleu(references, hypotheses) < bleu(references, hypotheses, lowercase=True)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: error_rate(["a"], ["a", "b"]), "1 references but 2 hypotheses"),
        (lambda: exact_match([], []), "0 references but 0 hypotheses"),
        (lambda: error_rate("ab", ["a", "b"]), r"pass \[text\]"),
        (lambda: error_rate([""], ["a"]), "the references are all empty"),
        (lambda: error_rate(["a"], ["a"], unit="byte"), "unit is 'byte'"),  # type: ignore[arg-type]
        (lambda: bleu([[1]], [[2]]), "BLEU and chrF compare texts, but one item is list; use error_rate"),  # type: ignore[list-item]
        (lambda: chrf([[1, 2]], ["a"]), "BLEU and chrF compare texts"),
    ],
)
def test_what_cannot_be_is_named(ask: Callable[[], float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask()


def reader(length: str = "stop") -> sm.SequenceModel:
    model = sm.GRU(d_model=16, n_layers=1, max_steps=40, length=length, batch_size=8)  # type: ignore[arg-type]
    X, y = pairs()
    return model.fit(X, y, validation=None)


def pairs() -> tuple[list[str], list[str]]:
    return ["ab", "ba", "aab", "bb"] * 2, ["x y", "y x", "xx y", "yy"] * 2


def test_a_model_of_text_is_evaluated() -> None:
    model, (X, y) = reader(), pairs()
    row = evaluate(model, X, y, max_length=2, max_ratio=1.0)
    found = model.predict(X, max_length=2, max_ratio=1.0)
    assert row["score"] == pytest.approx(model.score(X, y), rel=1e-6)
    assert row["bits"] == pytest.approx(-model.score(X, y) / math.log(2))
    assert row[["exact_match", "error_rate", "n"]].tolist() == [exact_match(y, found), error_rate(y, found), 8]
    assert row[["bleu", "chrf"]].tolist() == [bleu(y, found), chrf(y, found)]  # type: ignore[arg-type]
    assert row.name == "byte"
    other = evaluate(model, X, y, references=[[wanted, "abc"] for wanted in found], max_length=2, max_ratio=1.0)
    assert other[["exact_match", "error_rate", "chrf"]].tolist() == [1, 0, 100]
    assert other["score"] == pytest.approx(row["score"], rel=1e-6)


def test_symbols_of_a_given_length_are_evaluated() -> None:
    X, y = [np.array([0, 1]), np.array([1, 0, 0])] * 3, [np.array([1, 1, 0]), np.array([0])] * 3
    model = sm.HMM(3, length="given", max_iter=3).fit(X, y)
    more = {"of no steps": lambda references, hypotheses: sum(len(item) == 0 for item in hypotheses)}
    row = sm.evaluate(model, X, y, beam=2, metrics=more)
    assert row.index.tolist() == ["score", "bits", "exact_match", "error_rate", "n", "of no steps"]
    assert row["of no steps"] == 0
    assert row.name == "symbol"
    assert row["error_rate"] == error_rate(y, model.predict(X, n_beams=2, length=[3, 1] * 3))


def test_without_sacrebleu_it_is_said_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    model: Any = sm.GRU()  # not even fitted
    with pytest.raises(ImportError, match=r"pip install 'seqmodels\[translation\]'"):
        evaluate(model, *pairs())
    assert error_rate(["a"], ["b"]) == 1.0


def by_definition(a: np.ndarray, b: np.ndarray) -> int:
    """The recursion, one pair at a time."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + int(a[i - 1] != b[j - 1]))

    return distance(len(a), len(b))


def drawn(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [rng.integers(0, 3, rng.integers(0, 12)) for _ in range(n)]


@pytest.mark.parametrize("cells", [1, 30, 1 << 20])  # a pair at a time, a few, all
def test_distances_are_those_of_the_recursion(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MAX_CELLS", cells)
    first, second = drawn(60), drawn(61)[:60]
    expected = [by_definition(a, b) for a, b in zip(first, second, strict=True)]
    assert edit_distances(first, second).tolist() == expected
    assert edit_distances(second, first).tolist() == expected
    assert len(set(expected)) > 5


def test_nothing_against_nothing() -> None:
    empty, one = np.zeros(0, dtype=np.int64), np.array([4])
    assert edit_distances([empty, empty, one, one], [empty, one, empty, one]).tolist() == [0, 1, 1, 0]
    assert edit_distances([], []).tolist() == []
    with pytest.raises(ValueError, match="2 sequences but 1 partners"):
        edit_distances([one, one], [one])
