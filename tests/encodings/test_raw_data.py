from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from seqmodels.encodings.raw_data import Data, hold_out
from seqmodels.sequences import Sequences


def test_targets_and_weights_must_fit() -> None:
    with pytest.raises(ValueError, match="there are 2 sequences in X but 1 in y"):
        Data.of(["a", "b"], ["c"])
    for weights in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 1.0]]):
        with pytest.raises(ValueError, match="sample_weight must be 2 finite numbers"):
            Data.of(["a", "b"], weights=weights)


def test_what_is_scored_is_the_target() -> None:
    assert list(Data.of(["a", "b"]).scored) == ["a", "b"]
    part = Data.of(["a", "b"], ["c", "d"], [1, 2]).take(np.array([False, True]))
    assert (list(part.X), list(part.scored), part.weights.tolist()) == (["b"], ["d"], [2.0])


# -- validation ----------------------------------------------------------------------------------------------------


def test_a_tenth_is_held_out_by_seed() -> None:
    x = [[i] for i in range(30)]
    data = Data.of(x, x, np.arange(1, 31))
    train, held_out = hold_out(data, "auto", True, 0)
    assert held_out is not None
    assert held_out.y is not None
    assert (len(train.X), len(held_out.X)) == (27, 3)
    for part in (train, held_out):
        numbers = [int(np.asarray(item)[0]) for item in part.X]
        assert numbers == [int(np.asarray(item)[0]) for item in part.scored] == [int(w) - 1 for w in part.weights]
    again, other = hold_out(data, "auto", True, 0)[1], hold_out(data, "auto", True, 1)[1]
    assert again is not None
    assert other is not None
    assert np.array_equal(again.weights, held_out.weights)
    assert not np.array_equal(other.weights, held_out.weights)


def test_of_one_long_sequence_the_head_is_held_out() -> None:
    text = "abcdefghij" * 5
    train, held_out = hold_out(Data.of([text], weights=[2.0]), "auto", True, 0)
    assert held_out is not None
    assert (list(train.X), list(held_out.X), train.weights.tolist()) == ([text[5:]], [text[:5]], [2.0])
    assert hold_out(Data.of(["short"]), "auto", True, 0)[1] is None
    assert hold_out(Data.of([text], [text]), "auto", True, 0)[1] is None


def test_no_more_is_held_out_than_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.encodings.raw_data.MAX_HELD_OUT", 12)
    text = "abcdefghij" * 50
    assert hold_out(Data.of([text]), "auto", True, 0)[1].X.items == [text[:12]]
    many = [[i] * 5 for i in range(100)]
    train, held_out = hold_out(Data.of(many), "auto", True, 0)
    assert held_out is not None
    assert (len(train.X), len(held_out.X)) == (97, 3)


def numbers_in(part: Data | None) -> list[int]:
    assert part is not None
    return [int(np.asarray(item)[0]) for item in part.scored]


def test_whole_clusters_are_held_out() -> None:
    clusters = [f"speaker {i % 20}" for i in range(100)]
    x = Sequences([[i] * 4 for i in range(100)], clusters=clusters)
    train, held_out = hold_out(Data.of(x), "auto", True, 0)
    assert len(numbers_in(held_out)) == 10  # two of twenty clusters
    assert {i % 20 for i in numbers_in(held_out)}.isdisjoint({i % 20 for i in numbers_in(train)})
    assert sorted(numbers_in(train) + numbers_in(held_out)) == list(range(100))
    drawn = {tuple(numbers_in(hold_out(Data.of(x), "auto", True, seed)[1])) for seed in range(5)}
    assert len(drawn) > 1
    # Clusters of the sources do where targets have none.
    sources = Data.of(x, [[i] for i in range(100)])
    assert numbers_in(hold_out(sources, "auto", True, 0)[1]) == numbers_in(held_out)


def test_one_cluster_at_least_is_held_out_and_the_smallest_if_all_are_large() -> None:
    sizes = {"a": 40, "b": 25, "c": 35}
    clusters = [name for name, size in sizes.items() for _ in range(size)]
    x = Sequences([[i] for i in range(100)], clusters=clusters)
    for seed in range(4):
        _, held_out = hold_out(Data.of(x), "auto", True, seed)
        assert [clusters[i] for i in numbers_in(held_out)] == ["b"] * 25


def test_no_more_clusters_are_held_out_than_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.encodings.raw_data.MAX_HELD_OUT", 12)
    x = Sequences([[i] * 5 for i in range(200)], clusters=[i // 2 for i in range(200)])
    assert len(numbers_in(hold_out(Data.of(x), "auto", True, 0)[1])) == 2


def test_two_clusters_are_no_clusters_and_a_sequence_without_one_is_its_own() -> None:
    items = [[i] for i in range(40)]
    two = Data.of(Sequences(items, clusters=["a", "b"] * 20))
    assert numbers_in(hold_out(two, "auto", True, 0)[1]) == numbers_in(hold_out(Data.of(items), "auto", True, 0)[1])
    some = Data.of(Sequences(items, clusters=["a"] * 38 + [None, None]))
    assert set(numbers_in(hold_out(some, "auto", True, 0)[1])) == {38, 39}


@pytest.mark.parametrize(("validation", "automatic"), [(None, True), (None, False), ("auto", False)])
def test_nothing_is_held_out(validation: Any, automatic: bool) -> None:
    data = Data.of(["a", "b"])
    train, held_out = hold_out(data, validation, automatic, 0)
    assert train is data
    assert held_out is None


def test_given_validation_is_taken_as_it_is() -> None:
    train, held_out = hold_out(Data.of(["a"]), ["b", "c"], False, 0)
    assert held_out is not None
    assert (list(train.X), list(held_out.X)) == (["a"], ["b", "c"])
    _, paired = hold_out(Data.of(["a"], ["b"]), (["c"], ["d"]), False, 0)
    assert paired is not None
    assert (list(paired.X), list(paired.scored)) == (["c"], ["d"])
    with pytest.raises(ValueError, match=re.escape("validation is a pair (X, y)")):
        hold_out(Data.of(["a"], ["b"]), ["c"], True, 0)
    with pytest.raises(ValueError, match="validation is 'some'; pass 'auto', None, or sequences"):
        hold_out(Data.of(["a"]), "some", True, 0)
