from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import seqmodels as sm
from seqmodels.wrappers.classification import GenerativeClassifier

DENSITY = sm.HMM(1, observation=sm.GaussianMixture(1, "full"), max_iter=2)


@cache
def walks(n: int = 120, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Two-dimensional walks around three places."""
    rng, places = np.random.default_rng(seed), np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 2.0]])
    labels = np.arange(n) % 3
    items = [places[c] + rng.standard_normal((4 + i % 5, 2)) + rng.standard_normal(2) for i, c in enumerate(labels)]
    return items, np.array(["left", "right", "up"])[labels]


@cache
def fitted() -> GenerativeClassifier:
    return GenerativeClassifier(DENSITY).fit(*walks())


def test_bayes_rule_by_hand() -> None:
    X, y = walks()
    classifier = GenerativeClassifier(DENSITY, priors=[0.5, 0.3, 0.2], calibrate=False).fit(X, y)
    joint = np.empty((len(X), 3))
    for c, (label, prior) in enumerate(zip(["left", "right", "up"], [0.5, 0.3, 0.2], strict=True)):
        frames = np.concatenate([x for x, own in zip(X, y, strict=True) if own == label])
        normal = multivariate_normal(frames.mean(0), np.cov(frames.T, bias=True))
        joint[:, c] = np.log(prior) + [normal.logpdf(x).sum() for x in X]
    np.testing.assert_allclose(classifier.decision_function(X), joint, rtol=1e-4)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[joint.argmax(1)])
    expected = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    np.testing.assert_allclose(classifier.predict_proba(X), expected, atol=1e-4)
    assert classifier.score(X, y) == (classifier.classes_[joint.argmax(1)] == y).mean()


def test_the_temperature_corrects_confidence_and_leaves_predictions() -> None:
    X, y = walks(300, seed=1)  # each walk has an offset of its own, which the models know nothing of
    classifier, plain = fitted(), GenerativeClassifier(DENSITY, calibrate=False).fit(*walks())
    assert classifier.temperature_ > 1.5
    assert plain.temperature_ == 1.0
    np.testing.assert_array_equal(classifier.predict(X), plain.predict(X))
    np.testing.assert_allclose(classifier.decision_function(X), plain.decision_function(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(
        classifier.predict(X), classifier.classes_[classifier.predict_log_proba(X).argmax(axis=1)]
    )
    own = np.arange(len(X)), np.searchsorted(classifier.classes_, y)
    losses = [-each.predict_log_proba(X)[own].mean() for each in (classifier, plain)]
    assert losses[0] < 0.8 * losses[1]
    sure, right = classifier.predict_proba(X).max(axis=1).mean(), classifier.score(X, y)
    assert abs(sure - right) < 0.05 < plain.predict_proba(X).max(axis=1).mean() - right
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1)


def test_priors() -> None:
    X, y = walks()
    most = [i for i, label in enumerate(y) if label != "up"] + [2]
    part = [X[i] for i in most], y[most]
    data = GenerativeClassifier(DENSITY, calibrate=False).fit(*part)
    np.testing.assert_allclose(data.priors_, [40 / 81, 40 / 81, 1 / 81])
    uniform = GenerativeClassifier(DENSITY, priors="uniform", calibrate=False).fit(*part)
    gained = uniform.decision_function(X) - data.decision_function(X)
    np.testing.assert_allclose(gained, np.tile(np.log(81 / 3 / np.array([40, 40, 1])), (len(X), 1)))
    never = GenerativeClassifier(DENSITY, priors=[0, 0.5, 0.5], calibrate=False).fit(X, y)
    assert (never.predict_proba(X)[:, 0] == 0).all()


def test_all_labels_share_one_encoding() -> None:
    classifier = fitted()
    assert all(model.encoding_ is classifier.encoding_ for model in classifier.models_)
    np.testing.assert_allclose(classifier.encoding_.mean, np.concatenate(walks()[0]).mean(0))
    X = [np.array([[0.0, 1.0], [0.5, 1.0]]), np.array([[0.0, 2.0], [1.0, 0.0]])] * 2
    density = sm.HMM(1, observation=sm.GaussianMixture(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # frames are few, repeated, and constant within one label
        found = GenerativeClassifier(density, calibrate=False).fit(X, [0, 1, 0, 1])
    assert found.predict(X).tolist() == [0, 1, 0, 1]
    symbols = GenerativeClassifier(sm.HMM(1), calibrate=False).fit([[0, 0], [0, 4], [0, 1], [4, 4]], list("abab"))
    assert [model.encoding_.size for model in symbols.models_] == [5, 5]
    assert symbols.predict_proba([[4, 4, 1]]).tolist() == [[0.5, 0.5]]  # impossible under both: the priors


def test_units_do_not_matter() -> None:
    X, y = walks()
    scaled = GenerativeClassifier(DENSITY).fit([8 * x for x in X], y)
    assert scaled.temperature_ == pytest.approx(fitted().temperature_, rel=1e-6)
    np.testing.assert_allclose(
        scaled.predict_proba([8 * x for x in X]), fitted().predict_proba(X), rtol=1e-4, atol=1e-9
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "model", [sm.NGram(2), sm.HMM(2, encoding=sm.Characters()), sm.LSTM(d_model=8, max_steps=30)], ids=str
)
@pytest.mark.products_repeat
def test_languages_of_text(model: sm.SequenceModel, tmp_path: Path) -> None:
    X = ["banana", "bandana", "panama", "cabana", "xylitol", "oxytocin", "xylem", "oxytonic"] * 2
    y = np.tile(np.repeat([3, 7], 4), 2)
    classifier = GenerativeClassifier(model, n_folds=2).fit(X, y, validation=None)
    assert classifier.predict(["panamana", "xylocin"]).tolist() == [3, 7]
    log_proba = classifier.predict_log_proba(X)
    np.testing.assert_allclose(  # of two labels: the log-odds
        classifier.decision_function(X) / classifier.temperature_, log_proba[:, 1] - log_proba[:, 0], rtol=1e-6
    )
    classifier.save(tmp_path / "classifier")
    np.testing.assert_allclose(sm.load(tmp_path / "classifier").predict_log_proba(X), log_proba, rtol=1e-9, atol=1e-9)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    X, _ = walks()
    fitted().save(tmp_path / "classifier")
    found = sm.load(tmp_path / "classifier")
    assert isinstance(found, GenerativeClassifier)
    assert repr(found) == repr(fitted())
    for name in ("classes_", "priors_", "temperature_", "fit_seconds_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(fitted(), name))
    assert found.classes_.dtype == fitted().classes_.dtype
    np.testing.assert_allclose(found.predict_proba(X), fitted().predict_proba(X), rtol=1e-9, atol=1e-9)
    weighted = GenerativeClassifier(DENSITY, priors=np.array([0.2, 0.2, 0.6]), calibrate=False).fit(*walks())
    weighted.save(tmp_path / "classifier")
    np.testing.assert_array_equal(sm.load(tmp_path / "classifier").priors, [0.2, 0.2, 0.6])


def test_labels_that_the_sequences_carry() -> None:
    X, y = walks()
    carrying = sm.Sequences(X, labels=y)
    classifier = GenerativeClassifier(DENSITY).fit(carrying)
    np.testing.assert_allclose(classifier.predict_proba(X), fitted().predict_proba(X), rtol=1e-9, atol=1e-9)
    assert classifier.score(carrying) == fitted().score(X, y)


def test_scikit_learn() -> None:
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import GridSearchCV, cross_val_score

    X, y = walks()
    classifier = GenerativeClassifier(DENSITY, priors=np.full(3, 1 / 3), calibrate=False)
    assert is_classifier(classifier)
    assert clone(classifier).get_params()["model__observation__covariance_type"] == "full"
    scores = cross_val_score(classifier, X, y, cv=2)
    assert scores.mean() > 0.6
    assert (cross_val_score(classifier, X, y, cv=2, scoring="neg_log_loss") > -3).all()
    grid = GridSearchCV(classifier, {"model__observation": [sm.GaussianMixture(1, "spherical")]}, cv=2).fit(X, y)
    assert grid.best_estimator_.predict(X[:1])[0] in ("left", "right", "up")
    assert classifier.model is DENSITY
    assert not DENSITY.__sklearn_is_fitted__()


def test_a_fit_that_fails_leaves_the_earlier_one() -> None:
    X, y = walks()
    classifier = GenerativeClassifier(DENSITY, calibrate=False).fit(X, y)
    before = classifier.predict_proba(X)
    classifier.set_params(model__topology=np.eye(3))
    with pytest.raises(ValueError, match="the sequences labelled 'left' alone: "):
        classifier.fit(X, y)
    np.testing.assert_allclose(classifier.predict_proba(X), before, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({}, None, "the sequences carry no labels; pass y"),
        ({}, ["a", "b"], r"there are 4 sequences but labels of shape \(2,\)"),
        ({}, ["a"] * 4, "every sequence has the label 'a'"),
        ({}, list("abcd"), "no label has two sequences, so none can be held out; pass calibrate=False"),
        ({"priors": "flat"}, list("abab"), "priors is 'flat'; pass 'data', 'uniform' or 2 probabilities"),
        ({"priors": [0.5, 0.6]}, list("abab"), r"one probability for each of \['a', 'b'\], summing to one"),
        ({"n_folds": 1}, list("abab"), "n_folds is 1"),
        ({"model": "hmm"}, list("abab"), "model is 'hmm', which has no likelihood"),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, Any], labels: Any, message: str) -> None:
    classifier = GenerativeClassifier(sm.HMM(1)).set_params(**options)
    with pytest.raises(ValueError, match=message):
        classifier.fit([[0, 1], [1], [0], [1, 1]], labels)
    with pytest.raises(ValueError, match="pass 'auto', or None to hold out nothing"):
        GenerativeClassifier(sm.HMM(1)).fit([[0], [1]], [0, 1], validation=[[0]])


def test_an_unfitted_one_says_so(tmp_path: Path) -> None:
    for ask in (lambda c: c.predict([[0]]), lambda c: c.save(tmp_path / "x")):
        with pytest.raises(sm.NotFittedError, match="call fit first"):
            ask(GenerativeClassifier(sm.HMM(1)))


def test_a_model_fitted_in_a_given_encoding_keeps_it() -> None:
    encoding = sm.HMM(1).learned_encoding([[0, 1, 6]])
    model = sm.HMM(1, warm_start=True).fit_encoded(encoding, [[0, 1], [1]])
    assert model.encoding_ is encoding
    assert model.emission_.shape == (1, 7)
    with pytest.raises(ValueError, match="sequence 0 has symbol 7"):
        sm.HMM(1).fit_encoded(encoding, [[7]])
    with pytest.raises(ValueError, match="reads symbols but the sequences are vectors"):
        sm.HMM(1).fit_encoded(encoding, [np.zeros((2, 2))])
    with pytest.raises(ValueError, match="a warm start continues with the encoding"):
        model.fit_encoded(encoding, [[0, 1], [1]])


def test_speakers_are_held_out_whole() -> None:
    rng, y = np.random.default_rng(0), np.tile([0, 1], 24)
    speakers = np.repeat(np.arange(8), 6)
    shift = 1.5 * rng.standard_normal(8)[speakers]  # larger than what tells the labels apart
    X = [(label + s + 0.3 * rng.standard_normal((5, 1))) for label, s in zip(y, shift, strict=True)]
    density = sm.HMM(2, observation=sm.GaussianMixture(1))
    known = GenerativeClassifier(density).fit(sm.Sequences(X), y)
    unknown = GenerativeClassifier(density).fit(sm.Sequences(X, clusters=speakers), y)
    assert unknown.temperature_ > 2 * known.temperature_
    np.testing.assert_array_equal(known.predict(X), unknown.predict(X))


def test_labels_of_held_out_parts_are_those_of_classifiers_fitted_to_the_rest() -> None:
    from seqmodels.wrappers.classification.calibration import folds

    X, y = walks()
    classifier = GenerativeClassifier(DENSITY, random_state=3)
    predicted = classifier.cross_val_predict(X, y, n_folds=3)
    parts = folds(np.unique(y, return_inverse=True)[1], None, 3, 3)
    assert len(parts) == 3
    for part in parts:
        rest = [x for x, out in zip(X, part, strict=True) if not out]
        others = GenerativeClassifier(DENSITY, calibrate=False).fit(rest, y[~part])
        held_out = [x for x, out in zip(X, part, strict=True) if out]
        np.testing.assert_array_equal(predicted[part], others.predict(held_out))
    assert not classifier.__sklearn_is_fitted__()
    assert classifier.calibrate


def test_whole_clusters_are_held_out_to_count_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = walks()
    speakers = np.arange(len(X)) % 7
    fitted_to: list[set[int]] = []
    fit = GenerativeClassifier._fit_to

    def noted(self: GenerativeClassifier, part: sm.Sequences, *arguments: Any, **options: Any) -> GenerativeClassifier:
        assert part.clusters is not None
        fitted_to.append(set(part.clusters))
        return fit(self, part, *arguments, **options)

    monkeypatch.setattr(GenerativeClassifier, "_fit_to", noted)
    predicted = GenerativeClassifier(DENSITY).cross_val_predict(sm.Sequences(X, clusters=speakers), y, n_folds=3)
    held_out = [set(range(7)) - each for each in fitted_to]
    assert sorted(speaker for part in held_out for speaker in part) == list(range(7))
    assert (predicted == y).mean() > 0.7


def test_what_cannot_be_held_out_is_refused() -> None:
    X, y = walks()
    with pytest.raises(ValueError, match="n_folds is 1"):
        GenerativeClassifier(DENSITY).cross_val_predict(X, y, n_folds=1)
    with pytest.raises(ValueError, match="the label 'other' has one sequence only"):
        GenerativeClassifier(DENSITY).cross_val_predict(X, ["other", *y[1:]])


@pytest.mark.parametrize("missing", [np.nan, None, pd.NaT, pd.NA, np.datetime64("NaT")], ids=repr)
def test_a_label_that_is_missing_is_no_class(missing: Any) -> None:
    X, y = walks(12)
    labels = [*y[:-1], missing]
    said = "sequence 11 has no label .*, as have 1 of 12; leave them out"
    with pytest.raises(ValueError, match=said):
        GenerativeClassifier(DENSITY).fit(X, labels)
    with pytest.raises(ValueError, match=said):
        GenerativeClassifier(DENSITY).fit(sm.Sequences(X, labels=labels))
    with pytest.raises(ValueError, match=said):
        fitted().score(X, labels)


def test_labels_of_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="labels are lists of different lengths; pass one word or number"):
        GenerativeClassifier(DENSITY).fit(walks(6)[0], [["a"], ["a", "b"]] * 3)


@dataclass(eq=False, repr=False)
class Warns(sm.NGram):
    """Warns of every fit, with a number that differs."""

    def _fit(self, train, validation):
        warnings.warn(f"it has {len(train)} sequences", stacklevel=2)
        super()._fit(train, validation)


@pytest.mark.parametrize("method", ["fit", "cross_val_predict"])
def test_what_all_fits_warn_of_is_said_once_with_how_many_and_which_labels(method):
    X, y = [[0, 1, 0], [0, 1], [0, 0, 1], [1, 1], [1, 1, 0], [1, 0, 1, 1], [1]], list("aaabbbb")
    classifier = sm.GenerativeClassifier(Warns(1), n_folds=3)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        getattr(classifier, method)(X, y, **({"n_folds": 3} if method == "cross_val_predict" else {}))
    (one,) = given
    n = {"fit": 8, "cross_val_predict": 6}[method]
    assert f" sequences ({n} warnings like this, in {n} fits, of the labels a, b)" in str(one.message)
    assert one.filename == __file__


def test_labels_whose_answer_to_an_input_differs() -> None:
    rng = np.random.default_rng(0)
    inputs = list(rng.normal(size=(40, 15)))
    labels = np.resize(["up", "down"], 40)
    slopes = np.where(labels == "up", 1.0, -1.0)
    items = [s * u[:, None] + rng.normal(size=(15, 1)) for s, u in zip(slopes, inputs, strict=True)]
    X = sm.Sequences(items, inputs=inputs, input_names=["push"], labels=labels)
    train, test = X[:24], X[24:]
    plain = GenerativeClassifier(sm.HMM(1, max_iter=2), calibrate=False).fit(train)
    given = GenerativeClassifier(
        sm.HMM(1, max_iter=2, input_effects=sm.hmm.ChainInputEffects(emissions=True)), calibrate=False
    ).fit(train)
    assert given.score(test) == 1.0 > plain.score(test)
    assert given.cross_val_predict(X, n_folds=2).tolist() == labels.tolist()
    doubled = GenerativeClassifier(given.model, features=_doubled, calibrate=False).fit(train)
    np.testing.assert_allclose(doubled.decision_function(test), given.decision_function(test), rtol=1e-4)
    with pytest.raises(ValueError, match="reads inputs, but the sequences have none, or not one for each step of what"):
        GenerativeClassifier(given.model, features=_halved).fit(train)
    with pytest.raises(ValueError, match="reads inputs, but the sequences have none"):
        GenerativeClassifier(given.model).fit(items, labels)


def _doubled(item: np.ndarray) -> np.ndarray:
    return 2 * item


def _halved(item: np.ndarray) -> np.ndarray:
    return item[::2]


def test_features_that_keep_the_steps_keep_their_times() -> None:
    rng = np.random.default_rng(0)
    times = [np.cumsum(rng.exponential(size=20)) for _ in range(8)]
    items = [np.exp(np.cumsum(rng.normal(size=(20, 1)), axis=0)) for _ in times]
    X = sm.Sequences(items, times=times, labels=["a", "b"] * 4)
    model = sm.LinearGaussian.ornstein_uhlenbeck(time_step=1.0, max_iter=3)
    classifier = GenerativeClassifier(model, features=np.log, calibrate=False).fit(X)
    logarithms = sm.Sequences([np.log(x) for x in items], times=times, labels=X.labels)
    by_hand = GenerativeClassifier(model, features=None, calibrate=False).fit(logarithms)
    np.testing.assert_allclose(classifier.decision_function(X), by_hand.decision_function(logarithms), rtol=1e-12)
    halves = GenerativeClassifier(model, features=lambda x: x[::2], calibrate=False)
    with pytest.raises(ValueError, match="reads times, but features make other steps"):
        halves.fit(X)
