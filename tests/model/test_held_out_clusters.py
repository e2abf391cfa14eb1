"""Clusters held out in turn: which data have them, each sequence once, and scores of what was not fitted to."""

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.model import held_out_clusters
from seqmodels.model.held_out_clusters import cluster_parts, held_out_score


def recordings(n_clusters: int, n_each: int, length: int = 20) -> sm.Sequences:
    rng = np.random.default_rng(0)
    items = [rng.normal(k // n_each, 1.0, (length, 2)) for k in range(n_clusters * n_each)]
    return sm.Sequences(items, clusters=[f"c{k // n_each}" for k in range(len(items))])


@pytest.mark.parametrize(("n_clusters", "n_parts"), [(3, 3), (4, 4), (9, 4)])
def test_each_sequence_is_held_out_once_with_all_of_its_cluster(n_clusters: int, n_parts: int) -> None:
    x = recordings(n_clusters, 3)
    parts = cluster_parts(Data.of(x))
    assert len(parts) == n_parts
    assert sum(len(held_out.X) for _, held_out in parts) == len(x)
    for train, held_out in parts:
        assert len(train.X) + len(held_out.X) == len(x)
        assert not set(train.X.clusters or ()) & set(held_out.X.clusters or ())


def test_data_whose_clusters_do_not_tell_have_no_parts() -> None:
    x = recordings(3, 2)
    missing = [np.array(item) for item in x]
    missing[0][3, 1] = np.nan
    assert cluster_parts(Data.of(x))
    assert not cluster_parts(Data.of(recordings(2, 5)))
    assert not cluster_parts(Data.of(recordings(6, 1)))
    assert not cluster_parts(Data.of(list(x)))
    assert not cluster_parts(Data.of(sm.Sequences(missing, clusters=x.clusters)))
    assert not cluster_parts(Data.of(x, x))
    assert not cluster_parts(Data.of(["ab", "ba"] * 3))


def test_long_data_are_thinned_out_within_each_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out_clusters, "MOST_FRAMES", 3 * 4 * 20)
    parts = cluster_parts(Data.of(recordings(3, 10)))
    assert [len(held_out.X) for _, held_out in parts] == [4, 4, 4]


def test_the_score_is_of_clusters_that_no_model_was_fitted_to() -> None:
    x = recordings(3, 4)
    parts = cluster_parts(Data.of(x))
    expected = [sm.HMM(1, n_init=1).fit(train.X).log_prob(held_out.X).sum() for train, held_out in parts]
    score = held_out_score(lambda: sm.HMM(1, n_init=1), parts)
    assert score == pytest.approx(sum(expected) / x.n_units.sum(), abs=1e-12)
    assert score < sm.HMM(1, n_init=1).fit(x).score(x) - 0.1


def test_what_cannot_be_fitted_scores_minus_infinity() -> None:
    parts = cluster_parts(Data.of(recordings(3, 2)))
    assert held_out_score(lambda: sm.HMM(2, observation=sm.Bernoulli()), parts) == -np.inf
