"""Anomalies: the rate of false alarms, what is found, per step, window, sequence; zeros, unknown symbols, features."""

import io
from dataclasses import dataclass

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.encodings import OpenSymbols
from seqmodels.hmm import ContinuousTimeHMM

GAUSSIAN = sm.GaussianMixture(1)


def vectors(n, length=40, *, seed=0, n_features=2):
    """Sequences of one two-state process, in raw units far from standardised."""
    rng = np.random.default_rng(seed)
    items = []
    for _ in range(n):
        states = np.cumsum(rng.random(length) < 0.2) % 2
        noise = rng.normal(size=(length, n_features))
        noise[:, 1:] += 0.8 * noise[:, :1]
        items.append(100.0 + 5.0 * states[:, None] + noise)
    return items


@pytest.fixture(scope="module")
def hmm():
    return sm.HMM(2, max_iter=10, observation=sm.GaussianMixture(1, "full"), encoding=sm.Standardize()).fit(vectors(40))


@pytest.fixture(scope="module")
def anomalies(hmm):
    return sm.Anomalies(hmm, quantile=0.99).calibrate(vectors(25, seed=1))


# -- the rate of false alarms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["step", 4])
def test_the_share_of_false_alarms_is_as_asked(hmm, per):
    """Also of a wrong model: of twice as many states as few data have, and of data it was not fitted to."""
    detector = sm.Anomalies(hmm, quantile=0.95, per=per).calibrate(vectors(100, seed=1))
    frame = detector.predict(vectors(200, seed=2), features=False)
    judged = frame[frame["score"].notna()]
    assert judged["is_anomaly"].mean() == pytest.approx(0.05, abs=0.012)
    wrong = sm.HMM(1, max_iter=2, observation=GAUSSIAN).fit(vectors(3))
    frame = sm.Anomalies(wrong, quantile=0.95).calibrate(vectors(100, seed=1)).predict(vectors(200, seed=2))
    assert frame["is_anomaly"].mean() == pytest.approx(0.05, abs=0.012)


def test_the_share_of_sequences_is_as_asked():
    """Over 100 repetitions with 19 held-out sequences of several lengths; its standard deviation is 0.0085."""
    rng = np.random.default_rng(0)

    def draw(n):
        return [rng.integers(0, 2, rng.integers(2, 12)) for _ in range(n)]

    model = sm.NGram(1).fit(draw(30))
    shares = []
    for _ in range(100):
        detector = sm.Anomalies(model, quantile=0.9, per="sequence").calibrate(draw(19))
        shares.append(detector.predict(draw(20))["is_anomaly"].mean())
    assert 0.06 < np.mean(shares) < 0.125  # scores of symbols have ties, which are not counted as alarms


def test_p_values_are_the_share_of_held_out_scores_that_are_as_high(anomalies):
    frame = anomalies.predict(vectors(2, seed=3))
    for row in frame.iloc[::7].itertuples():
        assert row.p_value == (1 + (anomalies.scores_ >= row.score).sum()) / (1 + len(anomalies.scores_))
    assert (frame["is_anomaly"] == (frame["p_value"] <= 0.01)).all()
    assert len(anomalies.scores_) == 1000


# -- what is found -----------------------------------------------------------------------------------------------------


def test_a_spike_and_its_feature_are_found(anomalies, hmm):
    x = vectors(3, seed=4)
    x[1][20, 1] += 30
    frame = anomalies.predict(sm.Sequences(x, names=["a", "b", "c"]))
    row = frame.iloc[frame["score"].argmax()]
    assert (row["sequence"], row["step"], row["feature"], row["is_anomaly"]) == ("b", 20, "x1", True)
    np.testing.assert_allclose(frame["log_prob"], np.concatenate(hmm.log_prob_steps(x)))
    np.testing.assert_allclose(frame["score"], -frame["log_prob"])
    assert frame.loc[~frame["is_anomaly"], "feature"].eq("").all()
    assert "value" not in frame


def test_a_broken_relation_is_found_in_both_of_its_features(anomalies):
    """Each value is usual by itself."""
    x = vectors(1, seed=4)
    x[0][20] = x[0][20].mean() + np.array([2.5, -2.5])
    frame = anomalies.predict(x)
    usual = frame[["log_prob_x0", "log_prob_x1"]].median()
    assert ((usual - frame.loc[20, ["log_prob_x0", "log_prob_x1"]].astype(float)) > 5).all()


def test_the_feature_at_fault_does_not_depend_on_units():
    """The density of the first feature, in millionths, is always far below that of the second."""
    scale = np.array([1e6, 1e-6])
    detector = sm.Anomalies(sm.HMM(1, max_iter=2, observation=GAUSSIAN), quantile=0.9).fit(
        [item * scale for item in vectors(10)]
    )
    (x,) = vectors(1, seed=4)
    x[20, 1] += 8
    x[30, 0] += 12
    frame = detector.predict([x * scale])
    assert (frame["feature"][20], frame["feature"][30]) == ("x1", "x0")
    assert frame["log_prob_x0"][20] < frame["log_prob_x1"][20]


def test_windows_find_a_change_that_lasts(hmm):
    x = vectors(1, 60, seed=5)
    x[0][30:] += np.array([1.0, -0.5])
    held_out = vectors(50, seed=1)
    shares = {}
    for per in ("step", 10):
        frame = sm.Anomalies(hmm, quantile=0.99, per=per).calibrate(held_out).predict(x)
        shares[per] = frame["is_anomaly"][40:].mean()
    assert shares["step"] < 0.8 * shares[10]
    assert frame["score"][:9].isna().all()
    assert not frame["is_anomaly"][:9].any()
    assert frame["score"][20] == pytest.approx(-frame["log_prob"][11:21].mean())


def test_sequences_are_judged_by_their_mean(hmm):
    detector = sm.Anomalies(hmm, quantile=0.95, per="sequence").calibrate(vectors(25, seed=1))
    x = [*vectors(3, seed=2), 100 + 9 * np.random.default_rng(0).normal(size=(20, 2))]
    frame = detector.predict(x)
    assert frame["is_anomaly"].tolist() == [False, False, False, True]
    np.testing.assert_allclose(frame["score"], -hmm.log_prob(x) / frame["n_units"])
    assert frame["worst_step"][3] == np.argmin(hmm.log_prob_steps(x)[3])
    np.testing.assert_allclose(detector.score_samples(x), -frame["score"])


# -- text and symbols --------------------------------------------------------------------------------------------------


def test_text_is_judged_by_character():
    text = ["abcabcabc" * 5] * 30
    detector = sm.Anomalies(sm.NGram(2), quantile=0.99).fit(text)
    item = "abcabéabc"
    frame = detector.predict([item])
    assert "".join(frame["value"][:-1]) == item
    assert frame["value"].iloc[-1] == "end"
    steps = detector.model_.log_prob_steps([item])[0]
    assert len(steps) == len(frame) + 1  # é has two bytes
    assert frame["log_prob"].sum() == pytest.approx(steps.sum())
    assert frame["log_prob"][5] == pytest.approx(steps[5:7].sum())
    assert frame.loc[5, "is_anomaly"]
    assert len(detector.score_samples([item])[0]) == 10


def test_a_piece_stands_on_its_last_character():
    text = ["the cat the dog " * 10] * 12
    detector = sm.Anomalies(sm.NGram(2, encoding=sm.BPE(280)), quantile=0.9).fit(text)
    frame = detector.predict(["the cat"])
    assert frame["log_prob"].sum() == pytest.approx(detector.model_.log_prob(["the cat"])[0])


@pytest.mark.parametrize("length", ["given", "stop"])
def test_unknown_and_impossible_symbols_leave_the_others_their_probability(length):
    """Symbol 2 has probability zero, 7 is not known; what follows is as after the likeliest symbol."""
    chain = {"initial": [1.0, 0.0], "transition": [[0.1, 0.8], [0.7, 0.2]], "final": [0.1, 0.1]}
    if length == "given":
        chain = {"initial": [1.0, 0.0], "transition": [[0.2, 0.8], [0.7, 0.3]]}
    model = sm.HMM.from_parameters(**chain, emission=[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    detector = sm.Anomalies(model, quantile=0.9).calibrate(model.sample(10, length=10, random_state=0))
    item = np.array([0, 1, 7, 0, 2, 1])
    frame = detector.predict([item])
    assert frame["reason"].tolist()[:6] == ["", "", "unknown symbol 7", "", "impossible", ""]
    assert frame["is_anomaly"].tolist()[2::2][:2] == [True, True]
    assert frame["p_value"][2] == 1 / (len(detector.scores_) + 1)
    assert np.isneginf(frame["log_prob"][[2, 4]]).all()
    stream, filled = model.stream(), list(item)
    for t, x in enumerate(item):
        if x > 1:
            filled[t] = int(np.argmax(stream.predict_next().probs[:2].numpy()))
        stream.update(filled[t])
    expected = model.log_prob_steps([np.array(filled)])[0]
    kept = np.isfinite(frame["log_prob"])
    np.testing.assert_allclose(frame["log_prob"][kept], expected[kept], rtol=1e-6)
    assert len(frame) == 6 + (length == "stop")
    detector.plot(item)[0].figure.savefig(io.BytesIO())


def test_an_end_that_cannot_be_is_the_anomaly():
    """After symbol 0 a sequence goes on."""
    model = sm.HMM.from_parameters([0.5, 0.5], [[0.2, 0.8], [0.3, 0.2]], [0.0, 0.5], emission=[[1.0, 0.0], [0.0, 1.0]])
    detector = sm.Anomalies(model, quantile=0.9).calibrate(model.sample(10, random_state=0))
    frame = detector.predict([np.array([1, 1, 0])])
    assert frame["reason"].tolist() == ["", "", "", "impossible"]
    np.testing.assert_allclose(np.exp(frame["log_prob"]), [0.5, 0.2, 0.3, 0.0], rtol=1e-6)
    assert frame["is_anomaly"].tolist()[-1]


def test_words_are_scored_by_their_own_names():
    """Of words a new one has probability zero; with a class for unknown symbols the symbols of training do not."""
    words = [["sit", "walk", "sit", "run"] * 5] * 8
    detector = sm.Anomalies(sm.NGram(2), quantile=0.9).fit(words)
    frame = detector.predict([["sit", "fly", "sit"]])
    assert frame["reason"].tolist()[1] == "unknown symbol fly"
    assert np.isneginf(frame["log_prob"][1])
    assert np.isfinite(frame["log_prob"][[0, 2]]).all()
    detector.plot(["sit", "fly", "sit"])[0].figure.savefig(io.BytesIO())
    symbols = [np.array([3, 30, 3, 700] * 5)] * 8
    model = sm.NGram(2, encoding=OpenSymbols()).fit(symbols)
    frame = sm.Anomalies(model, quantile=0.9).calibrate(symbols).predict([np.array([3, 30, 3, 700, 5, 3])])
    assert "".join(frame["reason"]) == ""
    np.testing.assert_allclose(frame["log_prob"].sum(), model.log_prob([np.array([3, 30, 3, 700, 5, 3])])[0], rtol=1e-9)


def test_held_out_zeros_are_warned_of():
    model = sm.HMM.from_parameters([1.0], [[1.0]], emission=[[0.5, 0.5, 0.0]])
    with pytest.warns(UserWarning, match=r"more than 0.1 of what was held out has probability zero"):
        detector = sm.Anomalies(model, quantile=0.9).calibrate([np.array([0, 2, 1, 2]), np.array([0, 1, 0, 1, 7])])
    assert not detector.predict([np.array([0, 2])])["is_anomaly"].any()


def test_an_impossible_vector_is_as_one_that_is_missing():
    table = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.1, 0.9]], "probabilities": [[1.0, 0.3], [1.0, 0.8]]}
    model = sm.HMM.from_parameters(**table)
    x = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    detector = sm.Anomalies(model, quantile=0.9).calibrate(model.sample(10, length=10, random_state=0))
    frame = detector.predict([x])
    missing = x.copy()
    missing[1] = np.nan
    np.testing.assert_allclose(frame["log_prob"][[0, 2]], model.log_prob_steps([missing])[0][[0, 2]], rtol=1e-6)
    assert frame["reason"][1] == "impossible"
    assert frame["feature"][1] == "x0"


# -- other models ------------------------------------------------------------------------------------------------------


def test_networks_and_conditional_models():
    torch.manual_seed(0)
    x = vectors(20, 10)
    lstm = sm.LSTM(d_model=4, max_steps=3, observation=sm.GaussianMixture(2))
    frame = sm.Anomalies(lstm, quantile=0.9).fit(x).predict(x[:2])
    assert np.isfinite(frame[["log_prob_x0", "log_prob_x1"]].to_numpy()).all()
    X = [np.arange(6) % 3 for _ in range(12)]
    detector = sm.Anomalies(sm.HMMTagger(max_iter=2), quantile=0.9).fit(X, X)
    frame = detector.predict([[0, 1, 2]], [[0, 1, 1]])
    assert frame["value"].tolist() == [0, 1, 1]
    upper, _ = detector.plot([0, 1, 1], [0, 1, 2])
    assert upper.figure is not None


def test_missing_values_have_no_share_in_it(anomalies):
    x = vectors(1, seed=6)[0]
    x[4] = np.nan
    x[5, 0] = np.nan
    frame = anomalies.predict([x])
    assert frame["log_prob"][4] == 0.0
    assert frame[["score", "p_value"]].isna().all(axis=1).tolist() == [t == 4 for t in range(len(x))]
    per_sequence = sm.Anomalies(anomalies.model_, quantile=0.5, per="sequence").calibrate(vectors(4, seed=1))
    assert per_sequence.predict([x])["score"][0] == pytest.approx(-frame["log_prob"].sum() / (len(x) - 1))


def test_a_missing_frame_of_a_narrow_density_is_no_anomaly():
    """Its log p, 0, is far below that of any other."""
    x = [1e-6 * item for item in vectors(20)]
    detector = sm.Anomalies(sm.HMM(1, max_iter=2, observation=GAUSSIAN), quantile=0.9).fit(x)
    assert detector.threshold_ < 0
    x[0][3] = np.nan
    assert not detector.predict(x[:1])["is_anomaly"][3]


def test_missing_features_have_no_log_prob(anomalies):
    x = vectors(1, seed=6)[0]
    x[4] = np.nan
    x[5, 0] = np.nan
    frame = anomalies.predict([x])
    assert frame["log_prob_x0"].isna().tolist() == [t in (4, 5) for t in range(len(x))]


# -- fit and calibrate -------------------------------------------------------------------------------------------------


def test_whole_clusters_are_held_out():
    x = sm.Sequences(vectors(10), clusters=[i // 2 for i in range(10)])
    model = sm.HMM(1, max_iter=2, observation=GAUSSIAN)
    detector = sm.Anomalies(model, quantile=0.9, random_state=3).fit(x)
    assert not model.__sklearn_is_fitted__()
    held_out = [c for c in range(5) if np.isin(detector.scores_, scores_of(detector.model_, x, c)).any()]
    assert len(held_out) == 1
    np.testing.assert_allclose(detector.scores_, np.sort(scores_of(detector.model_, x, held_out[0])))
    assert detector.model_.score(x.take([c != held_out[0] for c in x.clusters])) == pytest.approx(
        model.clone()
        .fit(x.take([c != held_out[0] for c in x.clusters]))
        .score(x.take([c != held_out[0] for c in x.clusters]))
    )


def scores_of(model, x, cluster):
    return -np.concatenate(model.log_prob_steps(x.take([c == cluster for c in x.clusters])))


def test_of_one_sequence_the_tail_is_held_out():
    (x,) = vectors(1, 200)
    detector = sm.Anomalies(sm.HMM(1, max_iter=2, observation=GAUSSIAN), quantile=0.9).fit([x])
    fitted = sm.HMM(1, max_iter=2, observation=GAUSSIAN).fit([x[:160]])
    np.testing.assert_allclose(detector.scores_, np.sort(-fitted.log_prob_steps([x[160:]])[0]))


def test_too_few_held_out_scores_are_refused_with_the_quantile_that_they_allow(hmm):
    with pytest.raises(ValueError, match=r"at least 999 held-out steps, but there are 80; .* at most 0.9876"):
        sm.Anomalies(hmm).calibrate(vectors(2))
    sm.Anomalies(hmm, quantile=0.9876).calibrate(vectors(2))
    with pytest.raises(ValueError, match="at least 999 held-out sequences, but there are 8"):
        sm.Anomalies(hmm, per="sequence").fit(vectors(40))
    with pytest.raises(ValueError, match="there are 70"):
        sm.Anomalies(hmm, per=6).calibrate(vectors(2))
    sm.Anomalies(hmm).calibrate(vectors(27, 37))  # 999 steps


def test_what_cannot_be_is_refused(hmm, anomalies):
    x = vectors(4)
    for options, said in (
        ({"quantile": 1}, "quantile is 1"),
        ({"held_out": 0.0}, "held_out is 0.0"),
        ({"per": "frame"}, "per is 'frame'"),
        ({"per": 0}, "per is 0"),
        ({"quantile": 0.9, "feature_names": ["a"]}, "1 feature_names but 2 features"),
    ):
        with pytest.raises(ValueError, match=said):
            sm.Anomalies(hmm, **options).calibrate(x).predict(x)
    with pytest.raises(sm.NotFittedError, match="call fit"):
        sm.Anomalies(sm.HMM(2)).calibrate(x)
    with pytest.raises(sm.NotFittedError, match="no threshold"):
        sm.Anomalies(hmm).predict(x)
    with pytest.raises(ValueError, match="all sequences are of one cluster"):
        sm.Anomalies(hmm, quantile=0.5).fit(sm.Sequences(x, clusters=[0] * 4))
    with pytest.raises(ValueError, match="has no likelihood"):
        sm.Anomalies(sm.MaskedTransformer()).fit(x)
    with pytest.raises(ValueError, match="3 features but the model was fitted on 2"):
        anomalies.predict(vectors(1, n_features=3))


def test_what_it_says(anomalies, hmm):
    assert "99" in repr(anomalies)
    assert "of 1,000 held out" in repr(anomalies)
    assert "held out" not in repr(sm.Anomalies(hmm))
    assert sm.Anomalies(hmm).get_params()["model__n_states"] == 2


# -- keeping -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["step", "sequence", 4])
def test_a_saved_detector_judges_as_before(hmm, tmp_path, per):
    new = vectors(3, seed=4)
    new[1][20, 1] += 30
    detector = sm.Anomalies(hmm, quantile=0.9, per=per, feature_names=pd.Index(["flow", "heat"]))
    detector.calibrate(vectors(25, seed=1)).save(tmp_path / "detector")
    loaded = sm.load(tmp_path / "detector")
    assert type(loaded) is sm.Anomalies
    assert (loaded.threshold_, loaded.per, loaded.feature_names) == (detector.threshold_, per, ["flow", "heat"])
    pd.testing.assert_frame_equal(loaded.predict(new), detector.predict(new), rtol=1e-9)
    again = loaded.calibrate(vectors(40, seed=5))  # the fitted model is what is saved, and may get another threshold
    assert again.threshold_ != detector.threshold_


def test_a_saved_detector_may_be_fitted_again(tmp_path):
    x = [np.arange(40) % 3 for _ in range(20)]
    detector = sm.Anomalies(sm.NGram(2), quantile=0.99).fit(x)
    detector.save(tmp_path / "detector")
    loaded = sm.load(tmp_path / "detector")
    assert not loaded.model.__sklearn_is_fitted__()
    pd.testing.assert_frame_equal(loaded.predict(x[:2]), detector.predict(x[:2]), rtol=1e-9)
    assert loaded.fit(x).threshold_ == detector.threshold_


def test_a_threshold_of_infinity_is_kept(tmp_path):
    model = sm.HMM(1, observation=sm.Categorical(pseudocount=0.0), length="given", max_iter=2)
    model.fit([np.array([0, 0, 2, 0, 0])] * 3, validation=None)
    with pytest.warns(UserWarning, match="probability zero"):
        detector = sm.Anomalies(model, quantile=0.9).calibrate([np.tile([0, 1], 20)])
    detector.save(tmp_path / "detector")
    assert sm.load(tmp_path / "detector").threshold_ == detector.threshold_ == np.inf


def test_nothing_without_a_threshold_is_saved(hmm, tmp_path):
    with pytest.raises(sm.NotFittedError, match="no threshold"):
        sm.Anomalies(hmm).save(tmp_path / "detector")
    assert list(tmp_path.iterdir()) == []


def test_classes_of_ones_own_are_named(tmp_path):
    @dataclass(kw_only=True, eq=False, repr=False)
    class OwnNGram(sm.NGram):
        """A model that the library does not know."""

    with pytest.warns(UserWarning, match=r"classes=\[OwnNGram\]"):
        sm.Anomalies(OwnNGram(order=2), quantile=0.9).fit([np.arange(40) % 3] * 5).save(tmp_path / "detector")
    assert type(sm.load(tmp_path / "detector", classes=[OwnNGram]).model_) is OwnNGram
    with pytest.raises(ValueError, match=r"classes=\[OwnNGram\]"):
        sm.load(tmp_path / "detector")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content.update(scores=content["scores"][::-1].copy()), "should rise"),
        (lambda content: content["scores"].put(0, np.nan), "should rise"),
        (lambda content: content.update(threshold=np.array(1e9)), "none of the held-out scores"),
        (lambda content: content.update(threshold=np.array(np.nan)), "none of the held-out scores"),
        (lambda content: content.update(scores=content["scores"].astype(np.float32)), "should be of float64"),
        (lambda content: content.update(usual_of_features=np.zeros(3)), "shape"),
        (lambda content: content.update(usual_of_features=None), "no array"),
        (lambda content: content["usual_of_features"].put(0, np.nan), "usual_of_features"),
        (lambda content: content.pop("fitted"), "'fitted' is not what a saved model has there"),
        (lambda content: content.update(fitted=dict(content)), "Anomalies"),
        (lambda content: content.update(model=[]), "not what a saved model has"),
        (lambda content: content["model"]["params"].update(quantile=2.0), "between 0 and 1"),
        (lambda content: content["model"]["params"].update(per="day"), "per"),
        (lambda content: content["model"]["params"].update(model=3), "model"),
        (lambda content: content["model"]["params"].update(feature_names=3), "feature_names"),
        (lambda content: content["fitted"]["state"]["transition"].put(0, 7.0), "sum to one"),
    ],
)
def test_a_detector_that_no_fit_could_have_made_is_refused(anomalies, tmp_path, change, said):
    anomalies.save(tmp_path / "detector")
    content = storage.read(tmp_path / "detector")
    change(content)
    storage.write(tmp_path / "detector", content)
    with pytest.raises(ValueError, match=f"detector.*{said}"):
        sm.load(tmp_path / "detector")


# -- pictures ----------------------------------------------------------------------------------------------------------


def drawn(axes, gid):
    return [line for line in axes.lines if line.get_gid() == gid]


def test_the_plot_marks_what_predict_flags(anomalies):
    before = dict(matplotlib.rcParams)
    (x,) = vectors(1, seed=4)
    x[20, 1] += 30
    above, below = anomalies.plot(x, title="pump 3")
    assert above.get_title(loc="left").startswith("pump 3: ")
    above.figure.savefig(io.BytesIO(), format="png")
    assert dict(matplotlib.rcParams) == before
    frame = anomalies.predict([x])
    (marks,) = drawn(below, "anomaly")
    assert marks.get_xdata().tolist() == np.flatnonzero(frame["is_anomaly"]).tolist()
    assert (20, x[20, 1]) in [tuple(point) for line in drawn(above, "anomaly") for point in line.get_xydata()]
    (threshold,) = drawn(below, "threshold")
    assert set(threshold.get_ydata()) == {-anomalies.threshold_}
    figure = matplotlib.figure.Figure()
    mine = figure.subplots(2)
    assert anomalies.plot(x, ax=mine) == tuple(mine)
    assert pyplot.get_fignums() == [above.figure.number]
    for form, start in (("pdf", b"%PDF"), ("svg", b"<?xml")):
        buffer = io.BytesIO()
        above.figure.savefig(buffer, format=form)
        assert buffer.getvalue().startswith(start)


def test_texts_many_features_and_sequences_are_drawn(hmm):
    text = ["abcabcabc" * 100] * 12
    detector = sm.Anomalies(sm.NGram(2), quantile=0.99).fit(text)
    above, _ = detector.plot("abc" * 300 + "q" + "abc" * 100)
    assert len([patch for patch in above.patches if patch.get_gid() == "anomaly"]) > 0
    assert "of 1201" in above.get_xlabel()
    wide = vectors(20, n_features=9)
    names = [f"sensor {d}" for d in range(9)]
    model = sm.HMM(1, max_iter=2, observation=GAUSSIAN)
    detector = sm.Anomalies(model, quantile=0.9, feature_names=names).fit(wide)
    above, _ = detector.plot(wide[0])
    assert above.get_yticklabels()[8].get_text() == "sensor 8"
    per_sequence = sm.Anomalies(hmm, quantile=0.9, per="sequence").calibrate(vectors(10, seed=1))
    above, below = per_sequence.plot(vectors(1)[0])
    assert "anomaly" in above.get_title(loc="left")
    assert drawn(below, "threshold") == []


def test_features_of_other_ranges_are_drawn_on_one_scale(anomalies):
    model = sm.HMM(1, max_iter=2, observation=GAUSSIAN)
    x = [item * np.array([1.0, 1000.0]) for item in vectors(10)]
    above, _ = sm.Anomalies(model, quantile=0.9).fit(x).plot(x[0])
    assert "IQR" in above.get_ylabel()
    lines = [line for line in above.lines if line.get_gid() is None]
    for line, values in zip(lines, x[0].T, strict=True):
        np.testing.assert_allclose(np.corrcoef(line.get_ydata(), values)[0, 1], 1.0)
    assert anomalies.plot(vectors(1)[0])[0].get_ylabel() == "value"


# -- times, and several sequences ------------------------------------------------------------------------------


def dated(n=8):
    frames = [pd.DataFrame(x, index=pd.date_range("2024-05-01", periods=len(x), freq="D")) for x in vectors(n, seed=4)]
    frames[1].iloc[20, 1] += 30
    return sm.Sequences(frames, names=[f"pump {i}" for i in range(n)])


def test_steps_have_their_times(anomalies):
    x = dated(2)
    frame = anomalies.predict(x)
    assert list(frame.columns[:3]) == ["sequence", "step", "time"]
    assert frame["time"].tolist() == [*x.times[0], *x.times[1]]
    assert "time" not in anomalies.predict(x.items)
    detector = sm.Anomalies(sm.NGram(2), quantile=0.9).fit([np.array([0, 1, 2] * 5)] * 10)
    with_end = detector.predict(sm.Sequences([[0, 1]], times=[[3.0, 4.0]]))
    assert with_end["time"].tolist()[:2] == [3, 4]
    assert with_end["value"].tolist()[2] == "end"
    assert np.isnan(with_end["time"].iloc[2])


@pytest.mark.parametrize("n_features", [2, 9])
def test_the_plot_stands_over_the_times(anomalies, n_features):
    x = dated(2)
    detector = anomalies
    if n_features > 2:
        x = sm.Sequences([np.tile(item, 5)[:, :9] for item in x], times=x.times)
        detector = sm.Anomalies(sm.HMM(1, max_iter=2, observation=GAUSSIAN), quantile=0.9).fit(
            vectors(20, n_features=9)
        )
    above, below = detector.plot(x.take([1]))
    (marks,) = drawn(below, "anomaly")
    flagged = detector.predict(x.take([1]))
    at = matplotlib.dates.date2num(x.times[1][flagged["is_anomaly"]])
    np.testing.assert_array_equal(marks.get_xdata(), at)
    assert above.get_xlim() == below.get_xlim()
    assert below.get_xlim()[0] == matplotlib.dates.date2num(x.times[1][0]) - 0.5
    assert any(set(line.get_xdata()) <= set(at) and len(line.get_xdata()) for line in above.lines)


def test_sequences_are_drawn_one_above_the_other(anomalies):
    x = dated(8)
    panels = anomalies.plot(x, title="new")
    assert len(panels) == 12
    titles = [panel.get_title(loc="left") for panel in panels[::2]]
    frame = anomalies.predict(x)
    for i, title in enumerate(titles):
        n = int(frame[frame["sequence"] == f"pump {i}"]["is_anomaly"].sum())
        assert title.startswith(f"new, pump {i}: {n} of ")
    assert "the first 6 of 8 sequences" in panels[-1].get_xlabel()
    assert panels.figure is panels[0].figure
    mine = matplotlib.figure.Figure().subplots(4)
    assert anomalies.plot(x[:2], ax=mine) == tuple(mine)
    assert len(anomalies.plot([np.asarray(item) for item in x[:3]])) == 6
    with pytest.raises(ValueError, match="ax holds 4 axes, but 2 are drawn on"):
        anomalies.plot(x[0], ax=mine)


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_what_an_input_explains_is_no_anomaly():
    rng = np.random.default_rng(0)

    def driven(n):
        inputs = list(20 * rng.normal(size=(n, 30, 1)))
        items = [u + rng.normal(size=(30, 2)) for u in inputs]
        return sm.Sequences(items, inputs=inputs, input_names=["load"])

    model = sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=True), max_iter=3, n_init=1)
    detector = sm.Anomalies(model, quantile=0.99).fit(driven(20))
    new = driven(2)
    items = [np.array(x) for x in new]
    items[1][7] = -items[1][7] - 30.0  # within the range of the values, but not at this load
    frame = detector.predict(sm.Sequences(items, inputs=new.inputs, input_names=["load"]))
    worst = frame.loc[frame["score"].idxmax()]
    assert (worst["sequence"], worst["step"]) == (1, 7)
    assert frame["is_anomaly"].sum() <= 4
    with pytest.raises(ValueError, match="the model reads the inputs load, but the sequences have no inputs"):
        detector.predict(items)


def test_a_step_that_cannot_be_does_not_lose_the_inputs_of_the_next():
    rng = np.random.default_rng(0)
    inputs = list(rng.normal(size=(30, 20, 1)))
    items = [(u[:, 0] > 0).astype(int) for u in inputs]
    X = sm.Sequences(items, inputs=inputs, input_names=["push"])
    model = sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=True), max_iter=5, n_init=1)
    detector = sm.Anomalies(model, quantile=0.9).fit(X)
    changed = np.array(items[0])
    changed[3] = 7  # which the model does not know
    with_past = sm.Sequences(
        [changed], inputs=inputs[:1], past=[items[1]], past_inputs=[inputs[1]], input_names=["push"]
    )
    frame = detector.predict(with_past)
    assert frame["reason"][3] == "unknown symbol 7"
    expected = detector.predict(X.take([0]))["log_prob"]
    np.testing.assert_allclose(frame["log_prob"].drop(3), expected.drop(3), atol=1e-5)


def test_a_step_that_cannot_be_does_not_lose_the_times_of_the_next():
    rng = np.random.default_rng(0)
    times = [np.cumsum(rng.exponential(size=30)) for _ in range(12)]
    items = [(np.floor(t / 3) % 2).astype(int) for t in times]
    X = sm.Sequences(items, times=times)
    model = ContinuousTimeHMM(2, max_iter=3)
    detector = sm.Anomalies(model, quantile=0.9).fit(X)
    changed = np.array(items[0])
    changed[-1] = 7  # which the model does not know
    frame = detector.predict(sm.Sequences([changed], times=times[:1]))
    assert frame["reason"].iloc[-1] == "unknown symbol 7"
    expected = detector.predict(X.take([0]))["log_prob"]
    np.testing.assert_allclose(frame["log_prob"][:-1], expected[:-1], atol=1e-9)
