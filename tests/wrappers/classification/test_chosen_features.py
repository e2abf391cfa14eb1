"""``features="auto"``: chosen by clusters held out, kept in files, and none where clusters do not tell."""

from pathlib import Path

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.data import FrameFeatures
from seqmodels.wrappers.classification.chosen_features import FeaturesChoice, chosen_features, level_columns

DENSITY = sm.HMM(3, topology="left-to-right", max_iter=5)


def contours(n: int, seed: int, *, spread: float = 3.0) -> sm.Sequences:
    """Rising and falling contours of ``n`` speakers, each at a level of the speaker's own."""
    rng, items, labels, speakers = np.random.default_rng(seed), [], [], []
    for speaker in range(n):
        level = spread * rng.standard_normal(2)
        for i in range(8):
            line = (-1) ** i * np.linspace(-1, 1, 12)[:, None] * [1.0, 0.5]
            items.append(level + line + 0.3 * rng.standard_normal((12, 2)))
            labels.append("up" if i % 2 == 0 else "down")
            speakers.append(f"speaker {speaker}")
    return sm.Sequences(items, labels=labels, clusters=speakers)


def without_clusters(x: sm.Sequences) -> sm.Sequences:
    return sm.Sequences(list(x), labels=x.labels)


def test_levels_of_speakers_are_taken_away_by_default(tmp_path: Path) -> None:
    train, test = contours(4, 0), contours(10, 1)
    plain = sm.GenerativeClassifier(DENSITY, features=None, calibrate=False).fit(train)
    classifier = sm.GenerativeClassifier(DENSITY, calibrate=False).fit(train)
    assert classifier.score(test) > 0.9 > 0.85 > plain.score(test)
    assert isinstance(classifier.features_, FrameFeatures)
    assert "of clusters held out" in str(classifier.reason_)
    classifier.save(tmp_path / "classifier")
    loaded = sm.load(tmp_path / "classifier")
    assert repr(loaded.features_) == repr(classifier.features_)
    assert loaded.reason_ == classifier.reason_
    np.testing.assert_allclose(loaded.predict_proba(test), classifier.predict_proba(test), rtol=1e-9)


def test_a_file_whose_features_are_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "classifier"
    sm.GenerativeClassifier(DENSITY, calibrate=False).fit(contours(4, 0)).save(path)
    content = storage.read(path)
    content["features"] = storage.describe(sm.HMM(2))
    storage.write(path, content)
    with pytest.raises(ValueError, match="no function"):
        sm.load(path)


@pytest.mark.parametrize(
    "options",
    [
        {"features": None},
        {"training_features": [FrameFeatures(0)]},
        {"model": DENSITY.clone().set_params(observation=sm.AutoregressiveGaussian())},
        {"model": DENSITY.clone().set_params(encoding=sm.encodings.Standardize())},
    ],
    ids=str,
)
def test_what_is_named_is_left_alone(options: dict[str, object]) -> None:
    classifier = sm.GenerativeClassifier(**{"model": DENSITY, "calibrate": False, **options}).fit(contours(4, 0))
    assert classifier.features_ is None
    assert classifier.reason_ is None


def test_where_clusters_do_not_tell_there_are_no_features() -> None:
    x = contours(4, 0)
    index = np.unique(x.labels or [], return_inverse=True)[1]
    assert chosen_features(x, index, may_pool=False).features is not None
    assert chosen_features(without_clusters(x), index, may_pool=False) == FeaturesChoice()
    of_one_label = x.take(index == 0)  # all are right
    assert chosen_features(of_one_label, np.zeros(len(of_one_label), dtype=int), may_pool=True).features is None
    one = contours(1, 0)
    assert chosen_features(one, np.unique(one.labels or [], return_inverse=True)[1], may_pool=True) == FeaturesChoice()
    of_speakers = np.unique(x.clusters or [], return_inverse=True)[1]
    assert chosen_features(x, of_speakers, may_pool=True) == FeaturesChoice()  # each label within one cluster


def test_what_levels_tell_of_the_label_stays() -> None:
    rng = np.random.default_rng(0)
    items = [rng.normal(3 * (i % 2), 1.0, (12, 1)) for i in range(40)]
    x = sm.Sequences(items, labels=[i % 2 for i in range(40)], clusters=[i // 10 for i in range(40)])
    choice = chosen_features(x, np.arange(40) % 2, may_pool=True)
    assert choice.features is None
    assert not choice.pools_variances
    assert str(choice.reason).startswith("no features")


def test_a_column_that_is_constant_over_a_recording_is_kept_where_asked() -> None:
    x = np.column_stack([np.arange(5.0), np.full(5, 2.0)])
    with pytest.raises(ValueError, match="column 1 is constant"):
        FrameFeatures(0)(x)
    read = FrameFeatures(0, constant="keep")(x)
    np.testing.assert_array_equal(read[:, 1], 0.0)
    np.testing.assert_allclose(read[:, 0], FrameFeatures(0)(x[:, :1])[:, 0])


def test_the_level_of_a_column_is_of_the_cluster_or_of_the_label() -> None:
    rng = np.random.default_rng(0)
    label, cluster = np.arange(40) % 2, np.arange(40) // 10
    level = np.stack([3.0 * cluster, 3.0 * label], axis=1)
    items = [level[i] + rng.normal(size=(12, 2)) for i in range(40)]
    assert level_columns(items, label, cluster) == (0,)
    assert level_columns(items, cluster, label) == (1,)


def voices(n: int, seed: int) -> sm.Sequences:
    """Two sequences of each of twelve labels from ``n`` speakers, who say each of them somewhere else."""
    centres = np.random.default_rng(0).standard_normal((12, 20))
    rng, items, labels, speakers = np.random.default_rng(seed), [], [], []
    for speaker in range(n):
        spoken = centres + rng.standard_normal((12, 20))
        for i in range(24):
            items.append(spoken[i % 12] + 0.3 * rng.standard_normal((9, 20)))
            labels.append(i % 12)
            speakers.append(speaker)
    return sm.Sequences(items, labels=labels, clusters=speakers)


def test_variances_are_pooled_where_few_speakers_show_too_little(tmp_path: Path) -> None:
    model = sm.HMM(2, topology="left-to-right", max_iter=5)
    train, test = voices(3, 1), voices(20, 2)
    plain = sm.GenerativeClassifier(model, features=None, calibrate=False).fit(train)
    classifier = sm.GenerativeClassifier(model, calibrate=False).fit(train)
    assert str(classifier.reason_).startswith("of clusters held out")
    assert "pooled variances" in str(classifier.reason_)
    assert classifier.score(test) > plain.score(test) + 0.03
    variances = np.concatenate([each.covariances_[:, 0] for each in classifier.models_])
    assert (variances.std(axis=0) < 0.1 * variances.mean(axis=0)).all()
    classifier.save(tmp_path / "classifier")
    np.testing.assert_allclose(
        sm.load(tmp_path / "classifier").predict_proba(test), classifier.predict_proba(test), rtol=1e-9, atol=1e-9
    )
    named = model.clone().set_params(observation=sm.GaussianMixture(1))
    assert "pooled" not in str(sm.GenerativeClassifier(named, calibrate=False).fit(train).reason_)
