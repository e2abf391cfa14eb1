"""``GenerativeClassifier`` with features of whole sequences, and with several readings of each in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.data import FrameFeatures, SpeechFeatures

DENSITY = sm.HMM(3, observation=sm.GaussianMixture(1, min_covariance=0.01), topology="left-to-right", max_iter=5)


def contours(n: int, seed: int, *, spread: float = 3.0) -> sm.Sequences:
    """Rising and falling contours of ``n`` speakers, each at a level and a scale of the speaker's own."""
    rng, items, labels, speakers = np.random.default_rng(seed), [], [], []
    for speaker in range(n):
        level, scale = spread * rng.standard_normal(2), np.exp(0.7 * rng.standard_normal())
        for i in range(8):
            slope = (-1) ** i
            line = slope * np.linspace(-1, 1, 12)[:, None] * [1.0, 0.5]
            items.append(level + scale * (line + 0.2 * rng.standard_normal((12, 2))))
            labels.append("up" if slope > 0 else "down")
            speakers.append(speaker)
    return sm.Sequences(items, labels=labels, clusters=speakers)


def doubled(x: np.ndarray) -> np.ndarray:
    return np.asarray(2 * x)


def test_levels_of_speakers_are_taken_away() -> None:
    train, test = contours(3, 0), contours(20, 1)
    plain = sm.GenerativeClassifier(DENSITY, features=None, calibrate=False).fit(train)
    normalised = sm.GenerativeClassifier(DENSITY, features=FrameFeatures(0), calibrate=False).fit(train)
    assert normalised.score(test) > 0.98 > 0.8 > plain.score(test)
    assert normalised.predict(test[:2]).tolist() == ["up", "down"]


def test_speakers_that_are_named_choose_no_features() -> None:
    x = contours(4, 0)
    named = sm.GenerativeClassifier(DENSITY, calibrate=False).fit(x)
    unnamed = sm.GenerativeClassifier(DENSITY, calibrate=False).fit(sm.Sequences(list(x), labels=x.labels))
    np.testing.assert_array_equal(named.decision_function(x), unnamed.decision_function(x))


def test_files_in_which_speakers_chose_the_features_are_read(tmp_path: Path) -> None:
    x, path = contours(4, 0), tmp_path / "classifier"
    classifier = sm.GenerativeClassifier(DENSITY, features=FrameFeatures(1), calibrate=False).fit(x)
    content = classifier.content()
    content["features"] = content["model"]["params"]["features"]
    content["model"]["params"]["features"] = "auto"
    storage.write(path, content)
    loaded = sm.load(path)
    assert repr(loaded.features) == repr(FrameFeatures(1))
    np.testing.assert_array_equal(loaded.decision_function(x), classifier.decision_function(x))
    storage.write(path, content | {"features": storage.describe(sm.HMM(2))})
    with pytest.raises(ValueError, match="no function"):
        sm.load(path)


def test_models_read_what_features_return() -> None:
    x = contours(4, 0)
    read = sm.Sequences([FrameFeatures(1)(item) for item in x], metadata=x.metadata)
    given, by_hand = (
        sm.GenerativeClassifier(DENSITY, features=features).fit(data)
        for features, data in ((FrameFeatures(1), x), (None, read))
    )
    np.testing.assert_allclose(given.predict_proba(x), by_hand.predict_proba(read), rtol=1e-9, atol=1e-9)
    assert given.temperature_ == pytest.approx(by_hand.temperature_, rel=1e-9)
    assert given.models_[0].encoding_.size == 4


def test_training_features_are_more_sequences_of_the_same_label() -> None:
    x = contours(4, 0)
    reading = sm.GenerativeClassifier(DENSITY, training_features=[doubled], calibrate=False).fit(x)
    more = sm.Sequences([*x, *map(doubled, x)], labels=[*x.labels, *x.labels])
    joined = sm.GenerativeClassifier(DENSITY, calibrate=False).fit(more)
    np.testing.assert_allclose(reading.decision_function(x), joined.decision_function(x), rtol=1e-9, atol=1e-9)
    alone = sm.GenerativeClassifier(DENSITY, calibrate=False).fit(x)
    assert not np.allclose(reading.decision_function(x), alone.decision_function(x))


class Moved:
    def __init__(self, *offset: float) -> None:
        self.offset = np.array(offset)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x + self.offset)


def test_readings_at_other_levels_teach_that_the_level_says_nothing() -> None:
    rng, labels = np.random.default_rng(0), np.tile([-1, 1], 20)

    def spoken(levels: np.ndarray) -> list[np.ndarray]:  # the label is in the second feature
        noise = 0.5 * rng.standard_normal((len(levels), 4, 2))
        return [np.array([level, label]) + x for level, label, x in zip(levels, labels, noise, strict=True)]

    train, test = spoken(3 * labels), spoken(3 * rng.permutation(labels))  # in training each label had its own level
    density = sm.HMM(1, observation=sm.GaussianMixture(1))
    plain = sm.GenerativeClassifier(density, calibrate=False).fit(train, labels)
    readings = [Moved(offset, 0) for offset in (-6, -3, 3, 6)]
    moved = sm.GenerativeClassifier(density, training_features=readings, calibrate=False).fit(train, labels)
    assert plain.score(test, labels) < 0.7
    assert moved.score(test, labels) == 1.0


def test_no_reading_of_a_held_out_sequence_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    x = contours(6, 0)
    held: list[set[float]] = []
    fitted_to: list[set[float]] = []
    fit, joint = sm.GenerativeClassifier._fitted, sm.GenerativeClassifier._log_joint

    def watch_fit(self: Any, readings: sm.Sequences, *rest: Any) -> Any:
        fitted_to.append({round(float(np.ptp(item) / f), 9) for item in readings for f in (1.0, 2.0)})
        return fit(self, readings, *rest)

    def watch_joint(self: Any, models: Any, readings: sm.Sequences) -> Any:
        held.append({round(float(np.ptp(item)), 9) for item in readings})
        return joint(self, models, readings)

    monkeypatch.setattr(sm.GenerativeClassifier, "_fitted", watch_fit)
    monkeypatch.setattr(sm.GenerativeClassifier, "_log_joint", watch_joint)
    sm.GenerativeClassifier(DENSITY, training_features=[doubled]).fit(x)
    assert len(held) == 3
    assert sum(map(len, held)) == len(x)
    for trained, scored in zip(fitted_to, held, strict=False):
        assert not trained & scored
    fitted_to.clear()
    networks = sm.GenerativeClassifier(sm.GRU(d_model=4, max_steps=2), training_features=[doubled], calibrate=False)
    readings = networks._training_readings(sm.Sequences(list(x)))
    assert readings.clusters == [*range(len(x)), *range(len(x))]  # by which networks hold out
    assert networks._training_readings(x).clusters == [*x.clusters, *x.clusters]


def test_features_are_saved_and_cloned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    t = np.arange(2400) / 8000
    tones = [0.5 * np.sin(2 * np.pi * f * t + 3 * t * t)[:, None] for f in (500, 900)]
    x = [tone + 0.01 * rng.standard_normal((2400, 1)) for tone in tones for _ in range(3)]
    y = ["low"] * 3 + ["high"] * 3
    extract = SpeechFeatures(8000, frames=FrameFeatures(0, mean=False, variance=False))
    classifier = sm.GenerativeClassifier(
        sm.HMM(1, observation=sm.GaussianMixture(1), max_iter=3),
        features=extract,
        training_features=extract.perturbed(warps=(0.9, 1.0, 1.1)),
        calibrate=False,
    )
    classifier.fit(x, y)
    assert classifier.score(x, y) == 1.0
    classifier.save(tmp_path / "classifier")
    loaded = sm.load(tmp_path / "classifier")
    assert repr(loaded) == repr(classifier)
    np.testing.assert_allclose(loaded.decision_function(x), classifier.decision_function(x), rtol=1e-9, atol=1e-9)
    clone = classifier.clone().set_params(features__mfcc__n_filters=30)
    assert (clone.features.mfcc.n_filters, classifier.features.mfcc.n_filters) == (30, 40)
    classifier.features = doubled
    with pytest.raises(ValueError, match="a file cannot hold how to make one"):
        classifier.save(tmp_path / "other")


def test_what_cannot_be_read_is_named() -> None:
    x = contours(2, 0)
    with pytest.raises(ValueError, match="features are read by 3, which is no function"):
        sm.GenerativeClassifier(DENSITY, features=3).fit(x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="features are read by None, which is no function"):
        sm.GenerativeClassifier(DENSITY, training_features=[None]).fit(x)  # type: ignore[list-item]
    flat = [*x, np.ones((5, 2))]
    with pytest.raises(ValueError, match="features of sequence 16: column 0 is constant"):
        sm.GenerativeClassifier(DENSITY, features=FrameFeatures(0)).fit(flat, [*x.labels, "up"])
