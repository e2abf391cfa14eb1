"""Where EM starts: clusters found, every arc possible, quick on much data."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.hmm.corpus import Corpus
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.emissions.categorical import CONTEXTS
from seqmodels.hmm.emissions.kmeans import grouped_labels, in_comparable_units, kmeans_labels, with_neighbour_means
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture, Observation
from seqmodels.observations.gaussian import CovarianceType


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def begin(x: list[np.ndarray], observation: Observation, size: int, k: int, has_end: bool = False) -> Parameters:
    dealt = Corpus(x, [1.0] * len(x), None, observation.n_past, 3, 4, torch.device("cpu"), torch.float64).batches
    return next(starts(emission_of(observation, size), dealt, k, has_final=has_end, generators=[generator()]))


# -- clusters ----------------------------------------------------------------------------------------------


def test_kmeans_finds_clusters_far_apart() -> None:
    centres = torch.tensor([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0], [20.0, 20.0]])
    truth = torch.arange(4).repeat(50)
    x = centres[truth] + torch.randn(200, 2, generator=generator())
    labels = kmeans_labels(x, 4, generator(1))
    assert len({(int(a), int(b)) for a, b in zip(truth, labels, strict=True)}) == 4
    assert torch.equal(labels, kmeans_labels(x, 4, generator(1)))


@pytest.mark.parametrize(("rows", "distinct"), [(1, 1), (2, 1), (3, 3), (30, 2)])
def test_kmeans_with_more_clusters_than_rows(rows: int, distinct: int) -> None:
    x = torch.randn(distinct, 3, generator=generator())[torch.arange(rows) % distinct]
    labels = kmeans_labels(x, 8, generator(2))
    assert labels.shape == (rows,)
    kinds = torch.arange(rows) % distinct  # of equal rows some may be in another cluster with the same centre
    assert all(len(kinds[labels == cluster].unique()) == 1 for cluster in labels.unique())
    assert 0 <= int(labels.min()) <= int(labels.max()) < 8


def test_clusters_of_groups_are_those_of_each_alone() -> None:
    """Four pairs of clusters, group by group, one group without frames and one with a single one."""
    truth = torch.arange(8).repeat(60)
    x = 20.0 * truth.unsqueeze(1) + torch.randn(480, 1, generator=generator())
    groups = truth // 2
    groups[groups == 3] = 5
    x, groups, truth = torch.cat([x, x[:1]]), torch.cat([groups, torch.tensor([3])]), torch.cat([truth, truth[:1]])
    labels = grouped_labels(x, groups, 6, 2, generator(3))
    found = {(int(g), int(t), int(c)) for g, t, c in zip(groups, truth, labels, strict=True)}
    assert len(found) == 9  # each cluster of each group under one label
    assert len({(g, c) for g, _, c in found}) == 9
    assert set(labels.tolist()) == {0, 1}


def test_seeds_of_many_clusters_are_good() -> None:
    """Spread at most a little wider than with the true centres."""
    truth = torch.arange(40).repeat(100)
    centres = 6 * torch.randn(40, 5, generator=generator())
    x = centres[truth] + torch.randn(4000, 5, generator=generator(1))
    for seed in range(3):
        labels = kmeans_labels(x, 40, generator(seed))
        means = torch.zeros(40, 5).index_add_(0, labels, x) / torch.bincount(labels, minlength=40).unsqueeze(1)
        assert (x - means[labels]).square().sum(1).mean() < 1.35 * 5


def test_few_clusters_differ_from_start_to_start() -> None:
    x = torch.randn(300, 1, generator=generator()).exp()
    counts = {
        tuple(torch.bincount(kmeans_labels(x, 3, generator(s)), minlength=3).sort().values.tolist()) for s in range(8)
    }
    assert len(counts) > 5


def test_frames_in_context() -> None:
    x = torch.tensor([[1.0], [0.0], [0.0], [5.0], [0.0], [0.0]])
    frame, around = with_neighbour_means(x).T
    assert torch.equal(frame, x[:, 0])
    assert_allclose(around * 5**0.5, [3, 7, 6, 5, 5, 5], rtol=1e-6)  # of five frames, the ends repeated
    noise = with_neighbour_means(torch.randn(4_000, 1, generator=generator()))
    assert_allclose(noise.std(0), 1.0, atol=0.05)


def test_features_of_all_sorts_are_spread_alike() -> None:
    nan = torch.nan
    x = torch.tensor([[-1.5, 1.0, 9.0], [nan, nan, nan], [0.5, 0.0, 4.0]])
    found = in_comparable_units(x, ("reals", "bits", "counts"))
    assert_allclose(found, [[-1.5, 2.0, 6.0], [-0.5, 1.0, 5.0], [0.5, 0.0, 4.0]])
    assert torch.equal(in_comparable_units(torch.full((2, 1), nan), ("bits",)), torch.zeros(2, 1))
    assert torch.equal(in_comparable_units(torch.tensor([[0.0], [9.0]]), ("amounts",)), torch.tensor([[0.0], [6.0]]))
    some = torch.tensor([[1.0, 0.5, 0.0], [torch.e, nan, torch.pi], [1.0, 0.25, nan]])  # a missing angle: both means
    found = in_comparable_units(some, ("positive", "proportions", "angles"))
    expected = torch.tensor([[0.0, 2.0, 1.0, 0.0], [1.0, 1.5, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    assert torch.allclose(found, expected, atol=1e-6)


def test_every_state_owns_symbols() -> None:
    """Four groups of symbols, each with its own neighbours, and states that are fewer, as many, and more."""
    rng = np.random.default_rng(0)
    group = np.arange(2000) % 4
    x = torch.as_tensor(4 * group + rng.integers(4, size=2000))
    emission = emission_of(Categorical(), 16)
    labels = emission.labels(x, 4, generator())
    assert len({(int(a), int(b)) for a, b in zip(x // 4, labels, strict=True)}) == 4
    for k in (16, 21, 40):
        labels = emission.labels(x, k, generator())
        owners = {(int(a), int(b)) for a, b in zip(labels, x, strict=True)}
        assert len(owners) == len({state for state, _ in owners})  # no two symbols share a state
        assert len(owners) == k if k > 16 else len(owners) <= 16
    frequent = torch.cat([torch.zeros(900, dtype=torch.int64), torch.arange(16).repeat(10)])
    labels = emission.labels(frequent, 32, generator())
    assert len(labels[frequent == 0].unique()) > len(labels[frequent == 1].unique())


def test_rare_symbols_count_as_one_neighbour() -> None:
    emission = emission_of(Categorical(), CONTEXTS + 40)
    x = torch.arange(CONTEXTS + 40).repeat(3)
    labels = emission.labels(x, 5, generator())
    assert len(labels) == len(x)
    assert 1 < len(labels.unique()) <= 5


# -- parameters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_end", [False, True])
def test_every_arc_is_possible(has_end: bool) -> None:
    x = [np.array([0, 1, 2, 3] * 5), np.array([3])]
    first = begin(x, Categorical(), 6, k=4, has_end=has_end)
    rows = first.transition if first.final is None else torch.cat([first.transition, first.final[:, None]], 1)
    assert (first.final is not None) == has_end
    assert_allclose(rows.sum(1), 1, rtol=1e-12)
    assert_allclose(first.initial.sum(), 1, rtol=1e-12)
    assert_allclose(first.table.exp().sum(1), 1, rtol=1e-12)
    assert min(rows.min(), first.initial.min(), first.table.exp().min()) > 0
    assert rows.max() > 0.6  # and yet the order of the data shows
    assert len(rows.unique(dim=0)) == 4


def test_counts_do_not_cross_from_one_sequence_to_the_next() -> None:
    x = [np.array([0, 0, 0, 0]), np.array([1, 1, 1, 1])] * 10
    first = begin(x, Categorical(), 2, k=2)
    assert first.transition.diagonal().min() > 0.8
    assert_allclose(first.initial, [0.5, 0.5])


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_components_begin_on_the_clusters(kind: CovarianceType) -> None:
    rng = np.random.default_rng(1)
    centres = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])
    x = [centres[rng.integers(4, size=50)] + 0.3 * rng.normal(size=(50, 2)) for _ in range(8)]
    observation = GaussianMixture(2, kind)
    table = begin(x, observation, 2, k=2).table
    means = observation.unpack(table, 2)[1].reshape(4, 2)
    nearest = np.abs(means.numpy()[:, None] - centres).max(-1).min(0)
    assert nearest.max() < 0.5


def test_missing_values_begin_somewhere() -> None:
    x = np.random.default_rng(2).normal(size=(40, 2))
    x[::2, 0], x[1::4, 1] = np.nan, np.nan
    assert torch.isfinite(begin([x], GaussianMixture(2), 2, k=3).table).all()


@pytest.mark.parametrize("lengths", [(1, 1), (2, 3), (50,)])
def test_an_autoregression_begins_near_the_one_of_all_frames(lengths: tuple[int, ...]) -> None:
    x = [np.cumsum(np.random.default_rng(3).normal(size=(n, 2)), axis=0) for n in lengths]
    observation = AutoregressiveGaussian(2)
    first = begin(x, observation, 2, k=2)
    assert torch.isfinite(first.table).all()
    matrix, _, _, first_mean, _ = observation.unpack(first.table, 2)
    assert torch.equal(first_mean[0], first_mean[1])
    if lengths == (50,):
        assert_allclose(
            matrix[:, :, 2:].diagonal(dim1=1, dim2=2) + matrix[:, :, :2].diagonal(dim1=1, dim2=2), 1, atol=0.4
        )


def test_the_start_of_much_data_is_quick() -> None:
    """Bounds that only an algorithm of another order would break: they hold many times over."""
    rng, began = np.random.default_rng(4), time.perf_counter()
    begin([rng.integers(256, size=300_000)], Categorical(), 256, k=8)
    begin([rng.integers(8000, size=50_000)], Categorical(), 8000, k=8)  # 8,000 x 8,000 pairs would not fit
    begin([rng.normal(size=(30_000, 13))], GaussianMixture(4), 13, k=8)
    assert time.perf_counter() - began < 8
