"""An unknown offset against joint Gaussians in which it is integrated out."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import seqmodels as sm
from seqmodels.wrappers.offsets.training import OffsetPrior, Posteriors, PriorOptions
from tests.families import OFFSET, Row, rough, rows

LENGTHS = (5, 1, 3, 6, 4, 4)
SPEAKERS = ("a", "a", "b", "b", "c", "c")
BETWEEN, WITHIN = np.array([[0.5, 0.1], [0.1, 0.3]]), np.array([[0.2, -0.05], [-0.05, 0.1]])


@cache
def sequences() -> sm.Sequences:
    rng = np.random.default_rng(0)
    biases = dict(zip("abc", rng.normal(0, 2, (3, 2)), strict=True))
    X = [biases[s] + 0.5 * np.cumsum(rng.standard_normal((n, 2)), 0) for n, s in zip(LENGTHS, SPEAKERS, strict=True)]
    return sm.Sequences(X, clusters=SPEAKERS)


def fitted(inner: sm.SequenceModel) -> sm.LatentOffset:
    """With a prior that is told."""
    model = sm.LatentOffset(inner, n_folds=0, max_iter=1, dtype="float64").fit(sequences(), validation=None)
    model.prior_ = OffsetPrior(np.array([0.1, -0.2]), BETWEEN, WITHIN)
    return model


def joint(model: sm.LatentOffset, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of n encoded steps less their offset, of a model whose predictions are linear Gaussian.

    Asked of its own cursor: what it predicts after no step, after zeros and after ones.
    """
    cursor = copy.copy(model.model_).set_params(dtype="float64").cursor()

    def moments(past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        state = cursor.start(None, 1)
        for x in past:
            state = cursor.advance(state, torch.as_tensor(x)[None])
        seen = cursor.distribution(state).as_distribution(
            torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
        )
        parts = seen.component_distribution
        is_full = isinstance(parts, torch.distributions.MultivariateNormal)
        covariance = parts.covariance_matrix[0] if is_full else torch.diag(parts.variance[0])
        return parts.mean[0].numpy(), covariance.numpy()

    mean, covariance = np.zeros(2 * n), np.zeros((2 * n, 2 * n))
    for t in range(n):
        zero = np.zeros((t, 2))
        intercept, noise = moments(zero)
        regression = np.zeros((2, 2 * t))
        for k in range(2 * t):
            unit = zero.copy().reshape(-1)
            unit[k] = 1
            regression[:, k] = moments(unit.reshape(-1, 2))[0] - intercept
        now = slice(2 * t, 2 * t + 2)
        mean[now] = intercept + regression @ mean[: 2 * t]
        covariance[now, : 2 * t] = regression @ covariance[: 2 * t, : 2 * t]
        covariance[: 2 * t, now] = covariance[now, : 2 * t].T
        covariance[now, now] = regression @ covariance[: 2 * t, : 2 * t] @ regression.T + noise
    return mean, covariance


def exact(model: sm.LatentOffset, items: list[np.ndarray], prior: OffsetPrior, scale: float = 1.0) -> float:
    """``log p`` of sequences of one speaker together, raw units, of one scale; NaN is summed out."""
    lengths = [len(x) for x in items]
    ones = np.ones((sum(lengths), sum(lengths)))
    mean = np.tile(prior.mean, sum(lengths))
    covariance, log_det, begin = np.kron(ones, prior.between), 0.0, 0
    for item, n in zip(items, lengths, strict=True):
        of_mean, of_covariance = joint(model, n)
        now = slice(begin, begin + 2 * n)
        mean[now] += of_mean
        covariance[now, now] += scale**2 * of_covariance + np.kron(np.ones((n, n)), prior.within)
        log_det += float(
            np.sum(model.encoding_.log_det(item)) * (n if np.ndim(model.encoding_.log_det(item)) == 0 else 1)
        )
        begin += 2 * n
    x = np.concatenate([model.encoding_.encode(item) for item in items]).ravel()
    seen = ~np.isnan(x)
    return float(multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(x[seen])) + log_det


GAUSSIAN = sm.HMM(1, observation=sm.GaussianMixture(1, "full"))
DIAGONAL = sm.HMM(1, observation=sm.GaussianMixture(1, "diag"))
REGRESSION = sm.HMM(1, observation=sm.AutoregressiveGaussian(2))
# Of which training changes nothing: it predicts linearly from the last vector.
LINEAR_NETWORK = sm.LSTM(
    d_model=8,
    max_steps=1,
    lr=1e-30,
    n_layers=1,
    observation=sm.GaussianMixture(1, "full"),
    training=sm.training.GradientTraining(linear_start=True),
)


@pytest.mark.parametrize("inner", [GAUSSIAN, DIAGONAL, REGRESSION, LINEAR_NETWORK], ids=repr)
def test_linear_gaussian_models_have_the_exact_marginal(inner: sm.SequenceModel) -> None:
    model = fitted(inner)
    found = model.log_prob(sequences())
    for x, log_prob in zip(sequences(), found, strict=True):
        assert_allclose(
            log_prob, exact(model, [x], model.prior_), rtol=0, atol=1e-9 if inner is LINEAR_NETWORK else 1e-10
        )


@pytest.mark.parametrize("inner", [GAUSSIAN, DIAGONAL], ids=repr)
def test_missing_values_are_integrated_out_exactly(inner: sm.SequenceModel) -> None:
    model, X = fitted(inner), [np.array(x) for x in sequences()]
    X[0][2, 0], X[1][0, 1], X[3][4] = np.nan, np.nan, np.nan
    for x, log_prob in zip(X, model.log_prob(X), strict=True):
        assert_allclose(log_prob, exact(model, [x], model.prior_), rtol=0, atol=1e-10)
    stream = model.stream()
    assert_allclose([stream.update(x) for x in X[3]], model.log_prob_steps(X[3:4])[0], rtol=0, atol=1e-10)


SCALES, PROBABILITIES, RATE = (0.5, 1.0, 3.0), np.array([0.2, 0.5, 0.3]), 0.4


def scaled(inner: sm.SequenceModel, between: np.ndarray, probabilities: np.ndarray) -> sm.LatentOffset:
    """With a prior of scales that is told."""
    model = sm.LatentOffset(inner, n_folds=0, max_iter=1, scales=SCALES, dtype="float64")
    model.fit(sequences(), validation=None)
    model.prior_ = OffsetPrior(np.array([0.1, -0.2]), between, 0 * WITHIN, probabilities, RATE)
    return model


@pytest.mark.parametrize("inner", [GAUSSIAN, DIAGONAL, REGRESSION, LINEAR_NETWORK], ids=repr)
def test_scales_are_summed_out_of_what_has_a_known_offset(inner: sm.SequenceModel) -> None:
    model = scaled(inner, 1e-12 * BETWEEN, PROBABILITIES)
    plain = copy.copy(model)
    x = sequences().items[0]
    each = []  # nats of each step under each scale
    for scale in SCALES:
        plain.scales, plain.prior_ = (scale,), replace(model.prior_, scales=np.ones(1), rate=0.0)
        each.append(plain.log_prob_steps([x])[0])
    expected = [
        logsumexp([chain_log_prob(path) + sum(each[g][t] for t, g in enumerate(path)) for path in paths(n)])
        for n in range(1, len(x) + 1)
    ]
    assert_allclose(np.cumsum(model.log_prob_steps([x])[0]), expected, rtol=0, atol=1e-6)


def paths(n: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(len(SCALES)), repeat=n)


def chain_log_prob(path: tuple[int, ...]) -> float:
    """Of one path of scales, which stay or are drawn anew."""
    stays = [RATE * PROBABILITIES[b] + (1 - RATE) * (a == b) for a, b in itertools.pairwise(path)]
    return float(np.log(PROBABILITIES[path[0]]) + np.log(stays).sum())


@pytest.mark.parametrize("inner", [GAUSSIAN, REGRESSION, LINEAR_NETWORK], ids=repr)
def test_a_scale_that_is_certain_scales_the_covariance(inner: sm.SequenceModel) -> None:
    model = scaled(inner, BETWEEN, np.array([0.0, 0.0, 1.0]))
    found = [exact(model, [x], model.prior_, SCALES[2]) for x in sequences()]
    assert_allclose(model.log_prob(sequences()), found, rtol=0, atol=1e-9)


def test_scales_are_learned_and_enrolled() -> None:
    rng = np.random.default_rng(2)
    X, clusters = [], []
    for speaker in range(12):
        scale = 2.0 if speaker % 4 == 0 else 0.5
        X += list(rng.normal(0, 1, 2) + scale * rng.standard_normal((4, 20, 2)))
        clusters += [str(speaker)] * 4
    train = sm.Sequences(X[:32], clusters=clusters[:32])
    inner = sm.HMM(1, observation=sm.GaussianMixture(1))
    model = sm.LatentOffset(inner, n_folds=0, scales=(0.5, 1.0, 2.0)).fit(train)
    # The deviation of all that it was fitted to is about 1.1. A sequence keeps its scale; two of eight have the 2.
    assert model.prior_.rate < 0.1
    assert_allclose(model.prior_.scales, [0.6, 0.15, 0.25], atol=0.15)
    loud, soft = X[32:36], X[36:40]
    assert model.enrol(loud[:2]).prior_.scales[2] > model.prior_.scales[2] > model.enrol(soft[:2]).prior_.scales[2]
    assert model.enrol(loud[:2]).score(loud[2:]) > model.score(loud[2:]) > model.enrol(soft[:2]).score(loud[2:])
    one = sm.LatentOffset(inner, n_folds=0).fit(train)
    assert model.score(X[32:]) > one.score(X[32:]) + 0.1
    assert model.n_parameters_ == one.n_parameters_ + 3


def test_missing_values_of_an_autoregression_are_refused() -> None:
    model, x = fitted(REGRESSION), np.array(sequences().items[0])
    x[1, 0] = np.nan
    with pytest.raises(ValueError, match="NaN at frame 1, and this model cannot sum out"):
        model.log_prob([x])


@pytest.mark.parametrize("inner", [GAUSSIAN, REGRESSION, LINEAR_NETWORK], ids=repr)
def test_enrolment_conditions_on_what_is_not_scored(inner: sm.SequenceModel) -> None:
    model, X = fitted(inner), list(sequences())
    enrolled = model.enrol(X[2:4])
    for x in X[:2]:
        expected = exact(model, [*X[2:4], x], model.prior_) - exact(model, X[2:4], model.prior_)
        assert_allclose(enrolled.log_prob([x])[0], expected, rtol=0, atol=1e-6 if inner is LINEAR_NETWORK else 1e-9)
    assert_array_equal(model.prior_.mean, [0.1, -0.2])  # as it was
    assert_allclose(model.enrol([]).log_prob(X), model.log_prob(X), rtol=1e-9, atol=1e-9)


def test_a_network_is_trained_further_by_enrolment(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    up, down = (sm.Sequences([np.cumsum(rng.normal(sign, 0.3, (8, 2)), 0) for _ in range(6)]) for sign in (1, -1))
    network = sm.LSTM(d_model=8, max_steps=10, observation=sm.GaussianMixture(1))
    model = sm.LatentOffset(network, n_folds=0, max_iter=1).fit(up, validation=None)
    before = model.score(down)
    trained = model.enrol(list(down)[:3], steps=20, lr=0.02)
    assert trained.score(list(down)[3:]) > model.enrol(list(down)[:3]).score(list(down)[3:]) + 0.1
    assert model.score(down) == pytest.approx(before, rel=1e-12)
    assert repr(trained.model_) == repr(model.model_)
    trained.save(tmp_path / "model")
    assert sm.load(tmp_path / "model").score(down) == pytest.approx(trained.score(down), rel=1e-12)
    with pytest.raises(ValueError, match="HMM is no network"):
        fitted(GAUSSIAN).enrol(sequences(), steps=1)


def test_an_enrolled_model_is_saved(tmp_path: Path) -> None:
    model = sm.LatentOffset(GAUSSIAN, n_folds=0, max_iter=2, scales=(0.7, 1.4)).fit(sequences(), validation=None)
    model = model.enrol(list(sequences())[:2])
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert isinstance(loaded, sm.LatentOffset)
    assert_allclose(loaded.log_prob(sequences()), model.log_prob(sequences()), rtol=1e-5)
    assert_array_equal(loaded.offset_mean_, model.offset_mean_)
    assert_allclose(loaded.enrol(sequences()).offset_mean_, model.enrol(sequences()).offset_mean_, rtol=1e-9, atol=1e-9)


def offset_rows() -> list[Row]:
    return [
        r for r in rows("vectors") if r.family.name.startswith("offset") and not r.conditional and r.length == "given"
    ]


@pytest.mark.parametrize("row", offset_rows(), ids=str)
@pytest.mark.parametrize(
    ("size", "rtol"), [(1e2, 1e-7), (1e4, 1e-6), pytest.param(1e6, 1e-3, marks=pytest.mark.products_repeat)]
)
def test_frames_far_from_all_others_have_a_density(row: Row, size: float, rtol: float) -> None:
    model, x = rough(row), np.array(row.scored[3])
    x[3] = OFFSET + size * (x[3] - OFFSET)
    steps = model.log_prob_steps([x])[0]
    assert np.isfinite(steps).all()
    stream = model.stream()
    streamed = np.array([stream.update(frame) for frame in x])
    assert_allclose(streamed, steps, rtol=rtol)  # differences of what a network predicts
    other, same = (model.log_prob_steps([each, x])[0][:3] for each in (row.scored[3], x))
    assert_allclose(other, same, rtol=1e-7)


def test_the_prior_is_that_of_the_clusters() -> None:
    rng = np.random.default_rng(1)
    X, clusters = [], []
    for speaker in range(40):
        bias = rng.normal(0, [2.0, 1.0])
        for _ in range(6):
            X.append(bias + rng.normal(0, [0.5, 1.0]) + rng.standard_normal((20, 2)))
            clusters.append(str(speaker))
    model = sm.LatentOffset(sm.HMM(1), n_folds=2).fit(sm.Sequences(X, clusters=clusters))
    within = model.within_covariance_
    assert_allclose(np.diag(model.offset_covariance_ - within), [4.0, 1.0], rtol=0.4)
    assert_allclose(np.diag(within), [0.25, 1.0], rtol=0.2)
    assert_allclose(model.model_.covariances_[0, 0], [1.25, 2.0], rtol=0.15)  # sequences less their clusters' offsets
    one_each = sm.LatentOffset(sm.HMM(1), n_folds=0, max_iter=2).fit(X[:20])
    assert not one_each.within_covariance_.any()


def test_what_it_cannot_wrap_is_refused() -> None:
    with pytest.raises(ValueError, match="is for vectors, but the sequences are text"):
        sm.LatentOffset(sm.LSTM()).fit(["to be", "né"])
    columns = sm.Columns([(sm.GaussianMixture(), 1), (sm.Poisson(), 1)])
    rng = np.random.default_rng(0)
    mixed = [np.stack([rng.standard_normal(9), rng.poisson(2, 9)], 1) for _ in range(3)]
    with pytest.raises(ValueError, match="no mixture of Gaussians"):
        sm.LatentOffset(sm.GRU(d_model=8, max_steps=1, observation=columns)).fit(mixed)
    for wrong in (
        {"covariance_type": "tied"},
        {"n_folds": -1},
        {"prior_variance": 0.0},
        {"max_iter": 0},
        {"scales": ()},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}"):
            sm.LatentOffset(GAUSSIAN, **wrong).fit(sequences())  # type: ignore[arg-type]
    with pytest.raises(sm.NotFittedError, match="not fitted"):
        sm.LatentOffset(GAUSSIAN).enrol(sequences())


def test_pseudo_clusters_pull_the_prior_to_their_variance() -> None:
    """The mode of an inverse Wishart prior: as if that many clusters more had been seen."""
    means, covariances = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), np.tile(0.5 * np.eye(2), (3, 1, 1))
    options = PriorOptions(is_diagonal=False, count=2.0, variance=4.0)
    seen = Posteriors(means, covariances, np.zeros((3, 2)), np.zeros((2, 2)))
    found = options.maximised(seen, options.start(2, has_within=False)).between
    assert_allclose(found, (means.T @ means + 1.5 * np.eye(2) + 8 * np.eye(2)) / 5, rtol=1e-12)
