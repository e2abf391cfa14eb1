from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.evaluation.runs import toml
from seqmodels.loading import CLASSES
from seqmodels.neural.batches import Row
from seqmodels.neural.linear_start import RIDGE, linear_prediction
from seqmodels.observations import LinearPrediction

STILL = 1e-9  # a learning rate at which training changes nothing


def draws(n: int = 40, length: int = 30, seed: int = 0) -> list[np.ndarray]:
    """A vector autoregression of two features, whose first frames are elsewhere."""
    rng, a = np.random.default_rng(seed), np.array([[0.8, -0.3], [0.2, 0.7]])
    items = []
    for _ in range(n):
        x = [np.array([4.0, -2.0]) + rng.standard_normal(2)]
        for _ in range(length - 1):
            x.append(a @ x[-1] + [0.5, 0.1] + rng.standard_normal(2) @ [[0.5, 0.3], [0.0, 0.2]])
        items.append(np.array(x))
    return items


def row(x: np.ndarray, first: int = 0, weight: float = 1.0) -> Row:
    return Row(x, first, None, weight, False)


def test_least_squares() -> None:
    items = draws()
    found = linear_prediction([row(x) for x in items])
    assert found is not None
    past = np.concatenate([np.c_[x[:-1], np.ones(len(x) - 1)] for x in items])
    after = np.concatenate([x[1:] for x in items])
    ridge = np.diag([RIDGE * len(past)] * 2 + [0])
    solution = np.linalg.solve(past.T @ past + ridge, past.T @ after)
    np.testing.assert_allclose(found.coefficients, solution[:2].T, rtol=1e-9)
    np.testing.assert_allclose(found.intercept, solution[2], rtol=1e-9)
    errors = after - past @ solution
    np.testing.assert_allclose(found.covariance, errors.T @ errors / len(errors), rtol=1e-9)
    first = np.array([x[0] for x in items])
    more = 3  # pseudo-frames
    mean = (first.sum(0) + more * after.mean(0)) / (len(first) + more)
    np.testing.assert_allclose(found.first_mean, mean, rtol=1e-9)
    spread = (first - mean).T @ (first - mean) + more * (
        np.diag(after.var(0)) + np.outer(after.mean(0) - mean, after.mean(0) - mean)
    )
    np.testing.assert_allclose(found.first_covariance, spread / (len(first) + more), rtol=1e-9)


def test_weights_missing_values_sources_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    items = draws(6)
    twice = linear_prediction([row(x, weight=2.0 if i == 0 else 1.0) for i, x in enumerate(items)])
    for found, expected in zip(twice, linear_prediction([row(x) for x in [items[0], *items]]), strict=True):
        torch.testing.assert_close(found, expected)
    holed = [x.copy() for x in items]
    holed[2][10, 1] = np.nan
    cut = [*items[:2], items[2][:10], items[2][11:], *items[3:]]
    with_first = linear_prediction([row(x) for x in cut])
    found = linear_prediction([row(x) for x in holed])
    torch.testing.assert_close(found.coefficients, with_first.coefficients)
    torch.testing.assert_close(found.covariance, with_first.covariance)
    after_source = linear_prediction([row(x, first=5) for x in items])
    shorter = linear_prediction([row(x[4:]) for x in items])
    torch.testing.assert_close(after_source.coefficients, shorter.coefficients)
    whole = linear_prediction([row(x) for x in items])
    monkeypatch.setattr("seqmodels.neural.linear_start.ROWS_IN_MEMORY", 7)
    torch.testing.assert_close(linear_prediction([row(x) for x in items]).coefficients, whole.coefficients)


def test_too_few_frames_and_flat_ones() -> None:
    assert linear_prediction([row(draws(1)[0][:12])]) is None
    flat = linear_prediction([row(np.cumsum(np.ones((50, 2)), axis=0))])  # predicted without error
    assert flat is not None
    assert np.linalg.eigvalsh(flat.covariance).min() >= RIDGE * (1 - 1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical", "lowrank"])
@pytest.mark.parametrize("n_components", [1, 3])
def test_a_mixture_starts_around_the_prediction(covariance_type: Any, n_components: int) -> None:
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((2, 3, 3))
    covariances = [0.1 * np.eye(3) + 0.1 * f @ f.T for f in factors]
    if covariance_type == "diag":
        covariances = [np.diag(np.diag(c)) for c in covariances]
    if covariance_type == "spherical":
        covariances = [np.eye(3) * np.diag(c).mean() for c in covariances]
    a, c, m = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal(3)
    tensors = [torch.from_numpy(each) for each in (a, c, covariances[0], m, covariances[1])]
    observation = sm.GaussianMixture(n_components, covariance_type)
    start = observation.starting_point(3, torch.Generator().manual_seed(0))
    found = observation.starting_linear(start, LinearPrediction(*tensors))
    before = torch.from_numpy(rng.standard_normal(3)).float()
    for outputs, mean, covariance in (
        (found.bias + found.skip @ before, a @ before.numpy() + c, covariances[0]),
        (found.bias + found.first, m, covariances[1]),
    ):
        x = torch.from_numpy(mean + 0.3 * rng.standard_normal((50, 3)))
        log_prob = observation.log_prob(outputs.double(), x)
        expected = multivariate_normal(mean, covariance).logpdf(x)
        if n_components == 1 and covariance_type in ("full", "diag", "spherical"):
            deviation = np.sqrt(np.diag(covariances[0]))
            assert np.abs(log_prob.numpy() - expected).mean() < 0.5  # its mean lies a little apart
            shifted = observation.unpack(outputs, 3)[1][0].numpy() - mean
            assert np.abs(shifted / deviation).max() < 0.5
        else:
            assert np.abs(log_prob.numpy() - expected).mean() < 1.5
    if n_components == 3:
        shapes = [observation.unpack(found.bias, 3)[2][i] for i in range(3)]
        widest = [-s[0] * (2 if covariance_type == "full" else -1) for s in shapes]
        np.testing.assert_allclose(np.diff(widest), np.log(2), rtol=1e-4)


@pytest.mark.parametrize("model", [sm.LSTM, sm.GRU, sm.Transformer])
@pytest.mark.parametrize("length", ["given", "stop"])
def test_a_network_starts_as_a_linear_prediction(model: type, length: Any, tmp_path: Path) -> None:
    train, test = draws(60), draws(20, seed=1)
    observation = sm.GaussianMixture(1, "full")
    training = sm.training.GradientTraining(linear_start=True)
    network = model(d_model=8, max_steps=1, training=training, lr=STILL, observation=observation, length=length).fit(
        train
    )
    var = sm.HMM(1, observation=sm.AutoregressiveGaussian(), length=length).fit(train)
    assert network.score(test) > var.score(test) - 0.15
    assert sm.HMM(1, observation=observation, length=length).fit(train).score(test) < var.score(test) - 0.5
    network.save(tmp_path / "model")
    np.testing.assert_allclose(sm.load(tmp_path / "model").log_prob(test), network.log_prob(test), rtol=1e-5, atol=1e-5)


def test_training_goes_on_from_there() -> None:
    train, test = draws(60), draws(20, seed=1)
    start = sm.GRU(d_model=8, max_steps=1, training=sm.training.GradientTraining(linear_start=True), lr=STILL).fit(
        train
    )
    trained = sm.GRU(d_model=8, max_steps=80, training=sm.training.GradientTraining(linear_start=True)).fit(train)
    assert trained.score(test) > start.score(test) + 0.01
    warm = sm.GRU(
        d_model=8, max_steps=1, training=sm.training.GradientTraining(linear_start=True), lr=STILL, warm_start=True
    )
    first = warm.fit(train).score(test)
    assert warm.fit(train).score(test) == pytest.approx(first, abs=1e-4)


def test_other_observations_start_as_they_did() -> None:
    x = [np.random.default_rng(i).integers(0, 2, (20, 3)).astype(float) for i in range(5)]
    model = sm.GRU(
        d_model=8, max_steps=1, training=sm.training.GradientTraining(linear_start=True), observation=sm.Bernoulli()
    ).fit(x)
    assert model.module_.skip.weight.shape == (3, 3)
    few = sm.GRU(d_model=8, max_steps=1, training=sm.training.GradientTraining(linear_start=True), lr=1e-30).fit(
        [np.random.default_rng(0).normal(size=(6, 2))], validation=None
    )
    assert few.module_.skip.weight.abs().max() < 1e-9  # too few frames to start from
    assert (
        few.n_parameters_
        == sm.GRU(d_model=8, max_steps=1, training=sm.training.GradientTraining(linear_start=True))
        .fit(draws(), validation=None)
        .n_parameters_
    )


def test_names_of_clusters_change_nothing() -> None:
    x = draws(24)
    named = sm.Sequences(x, clusters=[f"speaker {i // 6}" for i in range(24)])
    options = {"d_model": 8, "max_steps": 4, "batch_size": 8}
    plain = sm.GRU(**options).fit(x, validation=None)
    np.testing.assert_array_equal(sm.GRU(**options).fit(named, validation=None).log_prob(x), plain.log_prob(x))
    assert not plain._has_first


def test_files_of_versions_in_which_clusters_decided_are_read() -> None:
    described = storage.describe(sm.GRU())
    described["params"] |= {"linear_start": "auto", "perturbation": "auto"}
    model = storage.build(described, CLASSES)
    assert (model.training.linear_start, model.training.perturbation) == (False, None)
    table = {"class": "GRU", "linear_start": "auto"}
    assert toml.from_table(table).training.linear_start is False
