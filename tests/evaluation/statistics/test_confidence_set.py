"""The model confidence set: against the package arch, by hand, and how often it holds the best model."""

import numpy as np
import pytest
from scipy import signal, stats

from seqmodels.evaluation.statistics.confidence_set import confidence_set_p_values


def scores_of(rng, n, behind):
    """``(M, 1, n)``: what all models share of a cluster, noise, and how far each is behind."""
    shared = 2 * rng.normal(size=n)
    return np.stack([shared + rng.normal(size=n) - each for each in behind])[:, None]


def test_p_values_are_those_of_arch():
    bootstrap = pytest.importorskip("arch.bootstrap")
    scores = scores_of(np.random.default_rng(3), 800, [0, 0.02, 0.04, 0.07, 0.3])
    oracle = bootstrap.MCS(-scores[:, 0].T, size=0.05, reps=20_000, block_size=1, method="R", bootstrap="mbb", seed=1)
    oracle.compute()
    expected = oracle.pvalues.sort_index()["Pvalue"].to_numpy()
    p = confidence_set_p_values(list(scores), np.ones(800), n_bootstrap=20_000)
    assert 0.05 < sorted(expected)[2] < 0.95  # not all are clear
    np.testing.assert_allclose(p, expected, atol=0.015)


def test_two_models_have_the_two_sided_p_of_their_difference():
    scores = scores_of(np.random.default_rng(0), 200, [0, 0.15])
    d = (scores[0] - scores[1])[0]
    p = confidence_set_p_values(list(scores), np.ones(200), n_bootstrap=20_000)
    assert p[0] == 1
    assert p[1] == pytest.approx(2 * stats.norm.sf(d.mean() / (d.std() / np.sqrt(200))), abs=0.01)


def test_few_clusters_have_the_tails_of_students_t():
    d = np.random.default_rng(6).normal(size=12) + 0.9
    p = confidence_set_p_values([d[None], np.zeros((1, 12))], np.ones(12), n_bootstrap=20_000)
    student, normal = stats.ttest_1samp(d, 0).pvalue, 2 * stats.norm.sf(np.sqrt(12) * d.mean() / d.std())
    assert normal < 0.5 * student
    assert p.min() == pytest.approx(student, rel=0.3)


def test_the_best_models_are_in_the_set_and_others_are_not():
    rng = np.random.default_rng(1)
    p = np.array(
        [
            confidence_set_p_values(list(scores_of(rng, 50, [0, 0, 0.2, 3])), np.ones(50), n_bootstrap=300)
            for _ in range(200)
        ]
    )
    assert 0.9 < (p[:, :2] >= 0.05).all(axis=1).mean() <= 0.995
    assert (p[:, 3] < 0.05).all()


def test_it_is_over_clusters_and_does_not_depend_on_units_alone():
    rng = np.random.default_rng(2)
    by_cluster = scores_of(rng, 30, [0, 0.5, 1.0])
    parts = rng.uniform(0, 1, (30, 3))
    parts /= parts.sum(axis=1, keepdims=True)
    in_parts = (by_cluster[..., None] * parts).reshape(3, 1, 90)
    clusters = np.repeat(np.arange(30), 3)
    whole = confidence_set_p_values(list(by_cluster), np.full(30, 3.0))
    np.testing.assert_allclose(confidence_set_p_values(list(in_parts), np.ones(90), clusters), whole, atol=1e-12)


def test_seeds_widen_it():
    """Two models that differ by their seeds alone: of one seed each they are told apart, of four they are not."""
    rng = np.random.default_rng(5)
    noise = 0.1 * rng.normal(size=(2, 4, 40))
    by_seed = np.array([[0.0, 0.6, -0.5, 0.3], [0.1, -0.6, 0.2, -0.4]])[..., None] + noise
    assert confidence_set_p_values(list(by_seed[:, 1:2]), np.ones(40)).min() < 0.01
    assert confidence_set_p_values(list(by_seed), np.ones(40)).min() > 0.05


def test_one_long_sequence_is_resampled_in_blocks():
    """Steps that depend on each other: as independent ones they would tell two equal models apart far too often."""
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(60):
        d = signal.lfilter([1], [1, -0.9], rng.normal(size=1200))[200:]
        wrong += confidence_set_p_values([d[None], np.zeros((1, 1000))], np.array([1000.0])).min() < 0.05
    assert wrong <= 10  # of steps taken as independent about 40


def test_what_cannot_be_told():
    few = scores_of(np.random.default_rng(0), 4, [0, 1])
    assert np.isnan(confidence_set_p_values(list(few), np.ones(4))).all()
    some = scores_of(np.random.default_rng(0), 30, [0, 0, 0])
    some[1, 0, 3] = -np.inf
    p = confidence_set_p_values(list(some), np.ones(30))
    assert p[1] == 0
    assert p[[0, 2]].max() == 1
    same = np.repeat(some[:1], 3, axis=0)
    assert confidence_set_p_values(list(same), np.ones(30)).tolist() == [1, 1, 1]
    shifted = np.stack([same[0], same[0] - 1.0])
    assert confidence_set_p_values(list(shifted), np.ones(30)).tolist() == [1, 0]
