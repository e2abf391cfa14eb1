from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from seqmodels.encodings import BPE, Bytes, Characters, Encoding, Standardize, Symbols
from seqmodels.encodings.preparation import Data, Setting, default_encoding, hold_out
from seqmodels.hmm import HMM
from seqmodels.observations import Categorical, GaussianMixture, Observation
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.measure import Measure


def vectors(*lengths: int, size: int = 2, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(3.0, 2.0, (n, size)) for n in lengths]


def learn(data: Data, encoding: Encoding, observation: Observation | None = None) -> Setting:
    emitted = GaussianMixture() if data.X.kind == "vectors" else Categorical()
    return Setting.learn(data, encoding, emitted if observation is None else observation, "given")


# -- data --------------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr("seqmodels.encodings.preparation.MAX_HELD_OUT", 12)
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
    monkeypatch.setattr("seqmodels.encodings.preparation.MAX_HELD_OUT", 12)
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


# -- setting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "encoding", "measure"),
    [
        (vectors(4, 3), Standardize(), Measure("R^2", "frame", "given", "exact", False)),
        (["ab"], Bytes(), Measure("text", "byte", "given", "exact", False)),
        (["ab"], Characters(), Measure("text", "byte", "given", "bound", False)),
        (["ab"], BPE(n_symbols=256), Measure("text", "byte", "given", "bound", False)),
        ([[0, 1]], Symbols(), Measure("symbols", "symbol", "given", "exact", False)),
    ],
)
def test_what_is_measured(items: list[Any], encoding: Encoding, measure: Measure) -> None:
    setting = learn(Data.of(items), encoding)
    assert setting.measure == measure
    assert setting.encoding is not encoding  # the user's object stays unfitted
    assert not hasattr(encoding, "size")


def test_default_encodings_read_their_kind() -> None:
    kinds: list[Kind] = ["vectors", "text", "symbols"]
    assert [default_encoding(kind).reads for kind in kinds] == kinds


def test_the_encoding_learns_from_sources_and_targets() -> None:
    x, y = vectors(50, seed=1), vectors(30, seed=2)
    setting = learn(Data.of(x, y), Standardize())
    assert setting.measure.conditional
    np.testing.assert_allclose(setting.encoding.affine()[0], np.concatenate([x[0], y[0]]).mean(0))


def test_sources_of_another_kind_have_an_encoding_of_their_own() -> None:
    x, y = vectors(50, seed=1), [[0, 4]]
    setting = Setting.learn(Data.of(x, y), Symbols(), Categorical(), "given", Standardize())
    assert setting.source_encoding is not None
    assert setting.encoding.size == 5
    np.testing.assert_allclose(setting.source_encoding.affine()[0], x[0].mean(0))
    (example,) = setting.examples(Data.of(x, y))
    assert example.source is not None
    assert abs(example.source.mean()) < 1e-12
    np.testing.assert_array_equal(example.values, [0, 4])


def test_ignored_sources_are_neither_read_nor_checked() -> None:
    data = Data.of([np.full((3, 1), np.nan)], [[1, 0]])
    setting = Setting.learn(data, Symbols(), Categorical(), "given", "ignored")
    setting.check(data, missing_is_summed_out=False)
    assert setting.measure.conditional
    assert setting.examples(data)[0].source is None


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ValueError, match=re.escape("the source_encoding Symbols() reads symbols but the sequences are text")
    ):
        Setting.learn(Data.of(["a"], [[1]]), Symbols(), Categorical(), "given", Symbols())
    with pytest.raises(ValueError, match=re.escape("the encoding Bytes() reads text but the sequences are symbols")):
        learn(Data.of([[1]]), Bytes())
    with pytest.raises(
        ValueError, match=r"the observation GaussianMixture\(\) emits vectors but the sequences are text"
    ):
        learn(Data.of(["a"]), Bytes(), GaussianMixture())


def test_check_names_sequence_and_frame() -> None:
    fitted = vectors(5, 5)
    setting = learn(Data.of(fitted), Standardize())
    holed = vectors(4, 4)
    holed[1][2, 1] = np.nan
    setting.check(Data.of(holed), missing_is_summed_out=True)
    with pytest.raises(ValueError, match="sequence 1 of X has a NaN at frame 2"):
        setting.check(Data.of(holed), missing_is_summed_out=False)
    with pytest.raises(ValueError, match="sequence 1 of y has a NaN at frame 2"):
        setting.check(Data.of(fitted, holed), missing_is_summed_out=False)
    with pytest.raises(ValueError, match="the model was fitted on vectors but got text"):
        setting.check(Data.of(["a"]), missing_is_summed_out=True)
    with pytest.raises(ValueError, match="sequence 0 has 3 features but the model was fitted on 2"):
        setting.check(Data.of(vectors(2, size=3)), missing_is_summed_out=True)


def test_examples_carry_log_determinants_units_and_weights() -> None:
    x = vectors(6, 4)
    x[1][0, 0] = np.nan
    setting = learn(Data.of(x), Standardize())
    scale = setting.encoding.affine()[1]
    first, second = setting.examples(Data.of(x, weights=[1.0, 0.5]))
    np.testing.assert_allclose(first.values, (x[0] - setting.encoding.affine()[0]) / scale)
    assert first.log_det == pytest.approx(-6 * np.log(scale).sum())
    assert second.log_det == pytest.approx(-4 * np.log(scale).sum() + np.log(scale[0]))
    assert (first.n_units, second.n_units, first.weight, second.weight) == (6, 4, 1.0, 0.5)
    assert first.source is None


def test_examples_with_targets_score_the_target_in_its_own_units() -> None:
    (example,) = learn(Data.of(["abc"], ["né"]), Characters()).examples(Data.of(["abc"], ["né"]))
    assert example.source is not None
    assert (len(example.source), len(example.values), example.n_units, example.log_det) == (3, 2, 3, 0.0)


def test_a_model_without_an_encoder_says_what_to_do_about_sources_of_another_kind() -> None:
    with pytest.raises(ValueError, match="X is 1-dimensional vectors but y is symbols, and this HMM reads them alike"):
        HMM(2).fit([np.zeros((3, 1))], [[0, 1]])
    with pytest.raises(ValueError, match="ignore_source=True"):
        HMM(2, source_encoding=Symbols()).fit([[1]], [[0, 1]])


def test_an_ignored_source_leaves_the_model_of_targets_alone() -> None:
    y = [[0, 1, 1], [1, 0]]
    alone = HMM(2, max_iter=3).fit(y)
    ignoring = HMM(2, max_iter=3, ignore_source=True).fit(["a", "b"], y)
    np.testing.assert_array_equal(ignoring.log_prob(["c", "d"], y), alone.log_prob(y))
