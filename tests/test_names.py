"""Names of features and symbols, from the data through a fitted model and its file to what it draws."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.sequences import Sequences

rng = np.random.default_rng(0)
FRAMES = [rng.normal(size=(12, 2)) for _ in range(6)]
STATES = [rng.choice(["sit", "walk", "lie"], 12).tolist() for _ in range(6)]
NUMBERS = [np.array([["lie", "sit", "walk"].index(each) for each in item]) for item in STATES]
NAMED = Sequences(FRAMES, features=["ax", "ay"])
HMM = sm.HMM(2, max_iter=3, observation=sm.GaussianMixture(1))
MODELS: dict[str, sm.SequenceModel] = {
    "hmm": sm.HMM(2, max_iter=3),
    "ngram": sm.NGram(2),
    "lstm": sm.LSTM(d_model=4, max_steps=2),
}


def test_features_are_known_and_checked_by_name() -> None:
    model = HMM.clone().fit(NAMED)
    assert model.feature_names_in_.tolist() == ["ax", "ay"]
    assert model.score(FRAMES) == pytest.approx(model.score(NAMED), rel=1e-6)  # without names all pass
    for features, message in (
        (["ay", "ax"], "the features of X are ay, ax but the model was fitted on ax, ay, in this order"),
        (["ax", "az"], "X lacks ay and has the unknown az: the model was fitted on the features ax, ay"),
    ):
        other = Sequences(FRAMES, features=features)
        for call in (model.score, model.decode, model.log_prob_steps):
            with pytest.raises(ValueError, match=re.escape(message)):
                call(other)
        with pytest.raises(ValueError, match=re.escape(message)):
            HMM.clone().fit(NAMED, validation=other)
    wider = Sequences([np.ones((2, 3))], features=["ax", "ay", "az"])
    with pytest.raises(ValueError, match="X has the unknown az"):
        model.score(wider)


def test_errors_and_warnings_name_the_feature() -> None:
    constant = [np.column_stack([x[:, 0], np.ones(len(x))]) for x in FRAMES]
    with pytest.raises(ValueError, match="feature ay is constant over the training data"):
        HMM.clone().fit(Sequences(constant, features=["ax", "ay"]))
    rounded = [np.column_stack([rng.normal(size=200), rng.integers(0, 4, 200)])]
    with pytest.warns(UserWarning, match="feature steps lies on a grid of step 1"):
        HMM.clone().fit(Sequences(rounded, features=["ax", "steps"]))
    assert Sequences(rounded, features=["ax", "steps"]).profile()["kind"].to_dict() == {
        "ax": "reals",
        "steps": "counts",
    }


def test_without_names_there_are_none() -> None:
    model = HMM.clone().fit(FRAMES)
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "symbol_names_")
    assert model.score(NAMED) == pytest.approx(model.score(FRAMES), rel=1e-6)
    assert not hasattr(sm.NGram(2).fit(["to be", "or not"]), "feature_names_in_")
    with pytest.raises(sm.NotFittedError):
        _ = sm.NGram(2).feature_names_in_


def test_sources_and_targets_have_names_of_their_own() -> None:
    targets = Sequences(FRAMES, features=["p", "q"])
    model = sm.LSTMSeq2Seq(d_model=4, max_steps=2, length="given").fit(NAMED, targets)
    assert model.feature_names_in_.tolist() == ["ax", "ay"]
    with pytest.raises(ValueError, match="X lacks ax, ay and has the unknown p, q"):
        model.score(targets, NAMED)
    with pytest.raises(ValueError, match="y lacks p, q and has the unknown ax, ay"):
        model.score(NAMED, NAMED)
    tagger = sm.HMMTagger(max_iter=2).fit(NAMED, STATES)
    assert tagger.feature_names_in_.tolist() == ["ax", "ay"]
    assert tagger.symbol_names_.tolist() == ["lie", "sit", "walk"]
    assert set(tagger.predict(FRAMES[:1])[0]) <= {"lie", "sit", "walk"}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_strings_is_that_of_their_numbers(name: str) -> None:
    model, numbers = MODELS[name].clone().fit(STATES), MODELS[name].clone().fit(NUMBERS)
    assert model.symbol_names_.tolist() == ["lie", "sit", "walk"]
    np.testing.assert_allclose(model.log_prob(STATES), numbers.log_prob(NUMBERS), rtol=1e-5, atol=1e-5)
    # Without names all pass.
    np.testing.assert_allclose(model.log_prob(NUMBERS), numbers.log_prob(NUMBERS), rtol=1e-5, atol=1e-5)
    order = Sequences(STATES, symbols=["walk", "run", "sit", "lie"])  # names are what they go by, not numbers
    np.testing.assert_allclose(model.log_prob(order), numbers.log_prob(NUMBERS), rtol=1e-5, atol=1e-5)
    drawn, as_numbers = model.sample(3, random_state=1), numbers.sample(3, random_state=1)
    for words, symbols in zip(drawn, as_numbers, strict=True):
        assert list(words) == [["lie", "sit", "walk"][symbol] for symbol in symbols]
    begun = model.sample(prefix=["walk", "sit"], length=2, random_state=2)[0]
    assert (list(begun[:2]), len(begun)) == (["walk", "sit"], 4)
    assert list(model.generate(["walk", "sit"], length=2, random_state=2)) == list(begun[2:])
    assert {type(each) for each in begun} == {str}
    stream = model.stream()
    steps = [stream.update(word) for word in STATES[0]]
    np.testing.assert_allclose(steps, model.log_prob_steps(STATES[:1])[0][:12], atol=1e-5)
    best = model.n_best(2, prefix=["sit"], length=2)
    assert best[0].item[0] == "sit"
    np.testing.assert_allclose(model.log_prob([best[0].item]) > -np.inf, True)


def test_unknown_strings_are_refused_by_name() -> None:
    model = sm.NGram(2).fit(STATES)
    for call in (
        lambda: model.score([["sit"], ["sit", "run"]]),
        lambda: model.score(Sequences([["sit"], ["sit", "run"]])),
    ):
        with pytest.raises(ValueError, match="sequence 1 has 'run' at position 1, but the model knows lie, sit, walk"):
            call()
    with pytest.raises(ValueError, match="'run' at position 0, but the model knows"):
        model.stream().update("run")
    with pytest.raises(ValueError, match="the model was fitted on integers, which have no names"):
        sm.NGram(2).fit(NUMBERS).score(STATES)
    with pytest.raises(ValueError, match="n_symbols is 5 but the symbols of the data have 3 names"):
        sm.NGram(2, encoding=sm.Symbols(5)).fit(STATES)


def test_what_may_come_is_named_though_it_is_not_there() -> None:
    model = sm.NGram(2).fit(Sequences(STATES, symbols=["sit", "walk", "lie", "run"]))
    assert np.isfinite(model.score([["run", "sit"]]))


def test_source_and_target_share_one_alphabet() -> None:
    upper = [[word.upper() for word in item] for item in STATES]
    model = sm.LSTM(d_model=4, max_steps=2).fit(STATES, upper)
    assert model.symbol_names_.tolist() == ["LIE", "SIT", "WALK", "lie", "sit", "walk"]
    assert set(model.predict(STATES[:2], prefix=["SIT"], max_length=2)[0]) <= set(model.symbol_names_)


@pytest.mark.parametrize("X", [NAMED, STATES], ids=["features", "symbols"])
def test_a_file_keeps_the_names(X: Any, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    model = sm.HMM(2, max_iter=2).fit(X)
    model.save(file)
    loaded = sm.load(file)
    assert loaded.encoding_.names == model.encoding_.names
    assert loaded.score(X) == pytest.approx(model.score(X), rel=1e-6)
    content = storage.read(file)
    for names in (["a"], ["a", "a"], [1, 2], "ab"):
        content["encoding"]["state"]["names"] = names
        storage.write(file, content)
        with pytest.raises(ValueError, match="names of features or symbols"):
            sm.load(file)
    del content["encoding"]["state"]["names"]  # as an older version wrote it
    storage.write(file, content)
    assert sm.load(file).encoding_.names is None


def test_more_that_reads_strings(tmp_path: Path) -> None:
    named = Sequences(STATES, labels=["a", "b"] * 3, names=list("pqrstu"))
    classifier = sm.GenerativeClassifier(sm.NGram(2), calibrate=False).fit(named)
    assert classifier.predict(STATES).tolist() == classifier.predict(named).tolist()
    assert not hasattr(classifier, "feature_names_in_")
    masked = sm.MaskedTransformer(d_model=4, n_layers=1, max_steps=1).fit(named)
    assert masked.fill(["sit", "walk", "sit"], [1]).item[1] in ("lie", "sit", "walk")
    assert sm.HMM(2).partial_fit(STATES).partial_fit([["walk"]]).symbol_names_.tolist() == ["lie", "sit", "walk"]
    with pytest.warns(UserWarning, match="no interval"):
        result = sm.compare({"a": sm.NGram(1), "b": sm.NGram(2)}, named[:4], test=named[4:], baseline="a")
    result.save(tmp_path / "c")
    again = sm.evaluation.Comparison.load(tmp_path / "c")
    assert (again.test.symbols, list(again.test[0])) == (named.symbols, STATES[4])
    assert sm.evaluation.error_rate(Sequences([["a", "b"]]), Sequences([["a", "c"]])) == 0.5


def test_a_saved_comparison_keeps_times(tmp_path: Path) -> None:
    days = [np.datetime64("2020-01-01T00") + np.arange(12)] * 6
    X = Sequences(FRAMES, features=["ax", "ay"], times=days, time_name="hour", by="who")
    result = sm.compare({"a": HMM.clone()}, X[:4], test=X[4:], baseline="a")
    result.save(tmp_path / "c")
    test = sm.evaluation.Comparison.load(tmp_path / "c").test
    assert (test.features, test.time_name, test.by) == (("ax", "ay"), "hour", "who")
    assert test.times is not None
    assert test.times[0].tolist() == days[0].tolist()


def test_what_shares_an_encoding_need_not_share_names_or_a_grid() -> None:
    y = Sequences(FRAMES, features=["p", "q"]).dithered()
    model = HMM.clone().fit(NAMED, y)
    assert not hasattr(model, "feature_names_in_")
    assert np.isfinite(model.score(NAMED, y))
