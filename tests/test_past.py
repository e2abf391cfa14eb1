"""Sequences that carry what came before them: kept, checked, scored given it, and said where it is not read."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.data import sha256
from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import Data, hold_out
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.evaluation.tuning.search import cross_validation_folds
from seqmodels.hmm import corpus
from seqmodels.neural.model import VALIDATION_STEPS, _limit
from seqmodels.sequences.sequences import PAST_OF_TEST
from seqmodels.wrappers.adapt.tokenizer import PublishedTokens
from seqmodels.wrappers.anomalies.full_conditionals import feature_log_probs

WORDS = ["né to be", "or not", "to bé € be", "that is", "the question", "tobacco"] * 3
SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 3, "batch_size": 4, "dtype": "float64"}


def series(n: int = 300, seed: int = 0, n_features: int = 2) -> np.ndarray:
    """Three states that last, far apart."""
    rng = np.random.default_rng(seed)
    state = np.cumsum(rng.random(n) < 0.05) % 3
    return np.array([[0.0, 0.0], [4.0, -2.0], [-3.0, 5.0]])[state, :n_features] + 0.5 * rng.normal(size=(n, n_features))


def given(x: Any, *cuts: int) -> sm.Sequences:
    """The rest of one item after each cut, given all before."""
    return sm.Sequences([x[t:] for t in cuts], past=[x[:t] for t in cuts])


def last_steps(model: sm.SequenceModel, x: Any, n_units: int) -> np.ndarray:
    steps = model.log_prob_steps([x])[0]
    return steps[len(steps) - n_units - (model.length_ == "stop") :]


# -- what a container holds ------------------------------------------------------------------------------------


def test_the_past_follows_its_sequences() -> None:
    x = [np.arange(12.0).reshape(6, 2), np.arange(8.0).reshape(4, 2), np.zeros((1, 2))]
    parts = sm.Sequences(x, names=["a", "b", "c"], past=[x[1], None, np.zeros((0, 2))])
    assert [None if each is None else len(each) for each in parts.past] == [4, None, None]
    assert parts.n_units_of_past.tolist() == [4, 0, 0]
    assert parts.take([1, 0]).past[1] is parts.past[0]
    assert parts.take([1]).past is parts[1:].past is None
    assert parts[:1].with_metadata(parts.metadata[:1]).past[0] is parts.past[0]
    assert parts.without_past().past is None
    assert sm.Sequences(x).without_past().past is None
    both = sm.Sequences.joined([parts[1:], parts[:1]])
    assert [each is None for each in both.past] == [True, True, False]
    assert sm.Sequences.joined([parts[1:], parts[1:]]).past is None
    for same in (copy.deepcopy(parts), pickle.loads(pickle.dumps(parts))):
        assert_array_equal(same.past[0], x[1])
    assert "given 4 frames before them" in repr(parts)
    assert "given 4 frames before it" in parts[:1].describe()
    assert "given 4 frames before them" in parts._repr_html_()
    assert "past" not in parts.to_frame()
    assert_array_equal(parts.after_past()[0], np.concatenate([x[1], x[0]]))


def test_parts_keep_as_much_as_is_asked_for() -> None:
    x = sm.Sequences([np.arange(10)], past=[np.arange(100, 103)])
    cuts = [(0, 0, 4), (0, 4, 10)]
    assert x.segments(cuts).past is None
    assert [each.tolist() for each in x.segments(cuts, past=2).past] == [[101, 102], [2, 3]]
    assert [each.tolist() for each in x.segments(cuts, past=5).past] == [[100, 101, 102], [102, 0, 1, 2, 3]]
    assert [len(each) for each in x.segments(cuts, past=None).past] == [3, 7]
    assert [each.tolist() for each in x.with_past_of(1).past] == [[102]]
    assert x.chunks(4).past is None
    assert [len(each) for each in x.chunks(4, past=None).past] == [3, 7, 11]
    X, y = x.continuation(4)
    assert (X.past, y.past) == (None, None)
    text = sm.Sequences(["né à la"]).segments([(0, 3, 7)], past=2)
    assert text.past == ["é "]
    assert text.n_units_of_past.tolist() == [3]


def test_a_single_series_keeps_what_came_before_its_tail() -> None:
    x = np.arange(40_000.0)[:, None]
    train, test = sm.Sequences([x]).split(0.5)
    assert (train.past, len(test.past[0]), float(test.past[0][-1, 0])) == (None, PAST_OF_TEST, 19_999.0)
    assert np.shares_memory(test.past[0], x)
    assert len(sm.Sequences([x]).split(0.5, past=None)[1].past[0]) == 20_000
    assert sm.Sequences([x]).split(0.5, past=0)[1].past is None
    first, second = test.split(0.5, past=None)
    assert (len(first.past[0]), len(second.past[0])) == (PAST_OF_TEST, PAST_OF_TEST + 10_000)
    assert sm.Sequences([x[:5], x[5:9], x[9:13]]).split(0.4)[1].past is None
    with pytest.raises(ValueError, match=r"past is 1\.5; pass a number of steps, 0 for none, or None for all"):
        sm.Sequences([x]).split(0.5, past=1.5)


@pytest.mark.parametrize(
    ("items", "past", "message"),
    [
        ([np.zeros((3, 2))], [np.zeros((3, 1))], r"the past of sequence 0 has 1 features but the sequence has 2"),
        ([np.zeros((3, 2))], [[np.inf, 0.0]], r"in the past: sequence 0 has shape \(2,\)"),
        ([np.zeros((3, 2))], np.zeros((3, 2)), r"past is of type ndarray but there are 1 sequences; pass a list"),
        ([[0, 1], [1]], [None, [-1]], r"in the past: sequence 1 has the negative symbol -1"),
        ([[0, 1], [1]], [None], r"there are 2 sequences; pass a list with the steps before each sequence, or None"),
        (["a", "b"], "ab", r"past is of type str but there are 2 sequences"),
        (["a"], [[1]], r"in the past: sequence 0 is of type list but the sequences are text"),
        ([["sit"]], [["walk", 3]], r"in the past: sequence 0 has 3 at position 1 among strings"),
    ],
)
def test_a_past_that_is_none_is_refused(items: list[Any], past: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.Sequences(items, past=past)


def test_words_of_a_past_are_symbols_too() -> None:
    x = sm.Sequences([["sit"]], past=[["walk", "sit"]])
    assert x.symbols == ("sit", "walk")
    with pytest.raises(ValueError, match="the past of sequence 0 has 'walk' at position 0, which is not among"):
        sm.Sequences([["sit"]], past=[["walk"]], symbols=["sit"])
    numbers = sm.Sequences([[0]], past=[[1, 0]], symbols=["sit", "walk"])
    assert numbers.past[0].tolist() == ["walk", "sit"]


def test_a_past_is_dithered_with_its_sequence() -> None:
    whole = np.round(series(60))
    x = given(whole, 40)
    noisy = x.dithered(3)
    assert_array_equal(np.concatenate([noisy.past[0], noisy[0]]).round(), whole)
    assert noisy.past[0].std() > 0
    assert noisy.grid == (1.0, 1.0)


def test_hashes_and_saved_data_hold_the_past(tmp_path: Path) -> None:
    x, train = series(90), sm.Sequences([series(200, 1)])
    assert len({sha256(each) for each in (given(x, 60), given(x, 60).with_past_of(9), sm.Sequences([x[60:]]))}) == 3
    model = sm.HMM(2, max_iter=2).fit(train)
    for test, scored in ((given(x, 60, 70), model), (given("to be or not", 3), sm.NGram(2).fit(WORDS))):
        result = sm.compare({"model": scored}, test)
        result.save(tmp_path / scored.encoding_.reads)
        again = sm.evaluation.Comparison.load(tmp_path / scored.encoding_.reads)
        assert all(np.array_equal(a, b) for a, b in zip(again.test.past, test.past, strict=True))
        assert_allclose(scored.log_prob(again.test), scored.log_prob(test), rtol=1e-12)
        assert str(again) == str(result)
        assert " that came before " in result.how_to_read()
    (file,) = (tmp_path / "text").rglob("test.json")
    saved = json.loads(file.read_text())
    assert saved["past"] == ["to "]


# -- scores ----------------------------------------------------------------------------------------------------


def test_missing_values_of_a_past_are_summed_out() -> None:
    x = series(60)
    holes = x.copy()
    holes[10:20, 0], holes[37:39], holes[50, 1] = np.nan, np.nan, np.nan
    for observation in (sm.GaussianMixture(2), sm.AutoregressiveGaussian(2)):
        model = sm.HMM(2, observation=observation, max_iter=3, dtype="float64").fit([holes])
        assert_allclose(model.log_prob_steps(given(holes, 40))[0], last_steps(model, holes, 20), rtol=1e-9)
    network = sm.GRU(**SMALL, encoding=sm.Standardize()).fit([x])
    with pytest.raises(ValueError, match="of the past: sequence 0 of X has a NaN at frame 10"):
        network.log_prob(given(holes[:50], 40))


def test_a_past_may_be_longer_than_the_windows_of_a_context() -> None:
    x = series(70)
    model = sm.Transformer(context=8, n_heads=2, **SMALL).fit([x])
    rest = given(x, 3, 33, 69)
    for item, steps in zip(rest, model.log_prob_steps(rest), strict=True):
        assert_allclose(steps, last_steps(model, x, len(item)), rtol=1e-9)


def test_pieces_of_text_do_not_reach_over_the_end_of_a_past() -> None:
    model = sm.NGram(3, encoding=sm.BPE(300), dtype="float64").fit(WORDS)
    text, at = "né to be € tobacco", 12
    past, rest = (model.encoding_.encode(part) for part in (text[:at], text[at:]))
    encoded = model._steps([Example(np.concatenate([past, rest]))])[0][len(past) :]
    (steps,) = model.log_prob_steps(given(text, at))
    last = model.encoding_.last_unit(rest)
    assert len(steps) == len(text[at:].encode()) + 1
    assert_allclose(steps[[*last, -1]], encoded, rtol=1e-12)
    assert_allclose(model.log_prob(given(text, at)), encoded.sum(), rtol=1e-12)
    spelling = model.encoding_.spelling()
    word = np.array([[spelling.index(b"t"), spelling.index(b"o")], [spelling.index(b"to"), -1]])
    each = [model._steps([Example(np.concatenate([past, w[w >= 0]]))])[0][len(past) :].sum() for w in word]
    marginal = model.log_prob_marginal(given(text[:at] + "to", at), beam=None)
    assert_allclose(marginal, np.logaddexp(*each), rtol=1e-9)


class SpaceFirst:
    """A tokenizer of bytes that puts a space before a text, as SentencePiece does."""

    added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012
    bos_token_id = eos_token_id = None

    def __len__(self) -> int:
        return 257

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"<0x{i:02X}>" if i < 256 else "▁" for i in ids]

    def encode(self, text: str, *, add_special_tokens: bool, verbose: bool) -> list[int]:
        return [256 if byte == ord(" ") else byte for byte in (" " + text).encode()]


def test_what_goes_on_has_no_space_put_before_it() -> None:
    encoding = PublishedTokens(SpaceFirst()).restore({})
    setting = Setting.from_fitted(encoding, sm.Categorical(), "stop", conditional=False)
    rest = given("to bé", 2)
    (example,) = setting.examples(Data.of(rest))
    assert (example.n_past, len(example.values), example.n_units) == (3, 7, 4)  # a space, "to"; " bé" of four bytes
    steps = setting.all_in_raw_units(rest, [np.arange(1.0, 6.0)])[0]
    assert steps.tolist() == [1, 2, 3, 4, 5]  # a step a byte, and the end


def test_pieces_that_keep_all_that_came_before_sum_to_the_whole() -> None:
    x = series(50)
    whole = sm.Sequences([x])
    for model in (
        sm.HMM(2, max_iter=3).fit([x]),
        sm.LSTM(**SMALL).fit([x]),
    ):
        assert_allclose(model.log_prob(whole.chunks(13, past=None)).sum(), model.log_prob(whole)[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["hmm", "lstm", "ngram"])
def test_the_past_of_a_series_on_disk_stays_there(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = np.cumsum(np.random.default_rng(0).random(400) < 0.4) % 3
    x = symbols if name == "ngram" else series(400)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setitem(corpus.ELEMENTS_AT_ONCE, "cpu", 100)  # an HMM reads it in parts
    makers = {"hmm": lambda: sm.HMM(2, max_iter=2), "lstm": lambda: sm.LSTM(**SMALL), "ngram": lambda: sm.NGram(3)}
    model = makers[name]().set_params(dtype="float64").fit([x])
    _, test = sm.Sequences([mapped]).split(0.3, past=90)
    assert test.items[0].is_on_disk
    assert test.past[0].is_on_disk
    _, in_memory = sm.Sequences([x]).split(0.3, past=90)
    expected = model.log_prob_steps(in_memory)[0]
    assert_allclose(model.log_prob_steps(test)[0], expected, rtol=1e-9)
    assert_allclose(model.log_prob(test), expected.sum(), rtol=1e-9)
    from_memory = sm.Sequences(test.items, past=[np.asarray(test.past[0])])
    assert_allclose(model.log_prob(from_memory), expected.sum(), rtol=1e-9)


def test_an_impossible_figure_is_counted_from_the_beginning_of_the_past() -> None:
    x = series(30)
    model = sm.HMM(1, max_iter=2).fit([x])
    rest = given(x, 10)
    rest.items[0] = np.where(np.arange(20)[:, None] == 4, 1e200, rest[0])
    with pytest.raises(ValueError, match=r"sequence 0 of X, counted from the beginning of its past, .* at frame 14"):
        model.log_prob(rest)


# -- states, features, forecasts -------------------------------------------------------------------------------


def test_states_are_those_of_the_sequence_given_its_past() -> None:
    x = series(80)
    model, rest = sm.HMM(3, max_iter=5, dtype="float64").fit([x]), given(x, 50)
    for question in ("decode", "posterior", "filter"):
        assert_allclose(getattr(model, question)(rest)[0], getattr(model, question)([x])[0][50:], rtol=1e-9)
    assert model.sample_states(rest, 4)[0].shape == (4, 30)
    assert_allclose(model.forecast_states(rest, 2)[0].states, model.forecast_states([x], 2)[0].states, rtol=1e-9)
    assert_allclose(feature_log_probs(model, rest)[0], feature_log_probs(model, [x])[0][50:], rtol=1e-9)
    forecasts = [model.forecast(each, 2).frame["mean"] for each in (rest, [x])]
    assert_allclose(*forecasts, rtol=1e-9)
    with pytest.raises(ValueError, match=r"path_log_prob reads whole sequences.* pass X\.without_past\(\)"):
        model.path_log_prob(rest, model.decode(rest))
    pairs = sm.HMM(2, max_iter=2).fit([x[:40]], [x[40:]])
    with pytest.raises(ValueError, match="the states of pairs reads whole sequences"):
        pairs.decode([x[:40]], rest)


def test_pasts_of_targets_and_sources_of_a_tagger_are_equally_long() -> None:
    x = np.cumsum(np.random.default_rng(0).random(40) < 0.4) % 3
    tagger = sm.HMMTagger(max_iter=2).fit([x[:30]], [x[:30]])
    X, y = given(x, 30), given(x, 30)
    assert_allclose(tagger.log_prob(X, y), tagger.log_prob_steps([x], [x])[0][30:].sum(), rtol=1e-9)
    with pytest.raises(ValueError, match=r"the past of sequence 0 has 5 steps in X but 30 in y; keep as many of both"):
        tagger.log_prob(X.with_past_of(5), y)


def test_origins_are_in_the_sequence_and_the_past_is_given() -> None:
    x = series(90)
    model = sm.HMM(2, max_iter=3, dtype="float64").fit([x[:60]])
    options: dict[str, Any] = {"horizon": 2, "n_origins": 2, "train": [x[:60]], "n": 20}
    result = sm.backtest({"hmm": model}, given(x, 60), first=10, **options)
    whole = sm.backtest({"hmm": model}, [x], first=70, **options)
    assert sorted(set(result.scores["origin"])) == [10, 28]
    assert_allclose(result.scores["crps"], whole.scores["crps"], rtol=1e-6)
    assert set(result.scores["model"]) == {"hmm", "naive", "VAR"}


# -- fitting, comparing, anomalies -----------------------------------------------------------------------------


def test_fit_says_that_it_does_not_read_the_past() -> None:
    x = series(60)
    plain = sm.HMM(2, max_iter=3).fit([x[40:]])
    with pytest.warns(UserWarning, match=r"have a past, which fit does not read.* X\.without_past\(\)"):
        model = sm.HMM(2, max_iter=3).fit(given(x, 40))
    assert_allclose(model.means_, plain.means_, rtol=1e-9)
    with pytest.raises(ValueError, match="partial_fit reads whole sequences"):
        model.partial_fit(given(x, 40))
    with pytest.warns(UserWarning, match="the training sequences have a past"):
        sm.compare({"hmm": sm.HMM(2, max_iter=3)}, given(x, 40), test=[x[:20]])


def test_validation_sequences_are_scored_given_their_past() -> None:
    x = series(200)
    held_out = given(x, 150)
    for model in (sm.HMM(2, max_iter=3), sm.LSTM(d_model=8, max_steps=2)):
        fitted = model.fit([x[:150]], validation=held_out)
        assert fitted.history_["validation"].iloc[-1] == pytest.approx(fitted.score(held_out), abs=1e-4)
    validation = hold_out(Data.of(held_out), "auto", True, 0)[1]
    assert validation is not None
    assert_array_equal(validation.X.past[0], x[:150])


def test_long_validation_sequences_are_cut_into_pieces_with_their_pasts() -> None:
    n, n_past = 2 * VALIDATION_STEPS + 9, VALIDATION_STEPS + 5
    example = Example(np.arange(n_past + n), n_units=n, n_past=n_past)
    pieces = _limit([example], 10_000)
    assert [piece.n_past for piece in pieces] == [VALIDATION_STEPS] * 3
    assert_array_equal(
        np.concatenate([piece.values[piece.n_past :] for piece in pieces]), np.arange(n_past, n_past + n)
    )
    assert pieces[1].values[VALIDATION_STEPS - 1] == n_past + VALIDATION_STEPS - 1
    assert sum(piece.n_units for piece in pieces) == n
    (whole,) = _limit([replace_past(example, 3)], 10_000)[:1]
    assert whole.n_past == 3


def replace_past(example: Example, n_past: int) -> Example:
    return Example(example.values[len(example.values) - 20 :], n_units=20 - n_past, n_past=n_past)


def test_folds_of_one_series_are_scored_given_what_came_before() -> None:
    folds = cross_validation_folds(Data.of([series(90)]), 3, 0)
    assert [None if held_out.X.past is None else len(held_out.X.past[0]) for _, held_out in folds] == [None, 30, 60]
    assert all(train.X.past is None for train, _ in folds)


def test_the_tail_of_one_series_is_compared_given_what_came_before() -> None:
    train, test = sm.Sequences([series(400)]).split(0.2)
    models = {"hmm": sm.HMM(3, max_iter=10), "lstm": sm.LSTM(d_model=8, max_steps=3)}
    result = sm.compare(models, train, test=test)
    whole = np.concatenate([train[0], test[0]])
    for name, model in models.items():
        assert_allclose(result.log_prob_steps[name][0], last_steps(model, whole, 80), atol=1e-4)
    assert result.log_prob_steps["hmm"][0][0] > models["hmm"].log_prob_steps(test.without_past())[0][0]
    assert "(80 frames, given the 320 frames that came before it)" in str(result).replace("\n", " ")


def test_the_first_held_out_frame_is_no_threshold_of_anomalies() -> None:
    x = series(2600)
    found = sm.Anomalies(sm.HMM(3, observation=sm.GaussianMixture(1), max_iter=20), quantile=0.995).fit([x[:2500]])
    assert found.threshold_ < 12
    spiked = x[2500:].copy()
    spiked[[30, 60], 0] += 10 * 0.5  # ten standard deviations
    frame = found.predict(given(np.concatenate([x[2400:2500], spiked]), 100))
    assert {30, 60} <= set(frame.loc[frame["is_anomaly"], "step"])
    assert frame["is_anomaly"].sum() <= 6


def test_anomalies_read_over_unknown_symbols_of_a_past() -> None:
    normal = [np.tile([0, 1, 2], 40) for _ in range(12)]
    found = sm.Anomalies(sm.NGram(2, length="given"), quantile=0.99).fit(normal)
    x = np.array([0, 1, 2, 7, 1, 2, 0, 2, 1, 9, 1])
    frame = found.predict(given(x, 5))
    whole = found.predict([x])
    assert_allclose(frame["log_prob"], whole["log_prob"][5:])
    assert frame.loc[frame["reason"] != "", "step"].tolist() == [4]
    beyond = found.predict(given(x[:9], 5))
    assert_allclose(beyond["log_prob"], whole["log_prob"][5:9], rtol=1e-5)
