"""Tails and scale of a regression's t density, from the density of each training frame given all others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

import seqmodels as sm
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.emissions.left_out import LeftOut, degrees_and_scale
from seqmodels.observations import AutoregressiveGaussian

ORDER, RIDGE = 2, 0.1


def simulated(n: int, size: int, seed: int = 0, degrees: float | None = None, root: float = 0.4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.zeros((n + 50, size))
    for t in range(1, len(x)):
        noise = rng.normal(size=size) if degrees is None else rng.standard_t(degrees, size)
        x[t] = root * x[t - 1] + noise @ (np.eye(size) + 0.3)
    return 2 * x[50:] + 10


def posterior(model: Any) -> tuple[float, float]:
    """n and the degrees of freedom of a fitted model."""
    n, degrees, _ = model.observation_.posterior(model.parameters_.table, model.encoding_.size)
    return float(n), float(degrees)


def prediction(z: np.ndarray, y: np.ndarray, w: np.ndarray, z_new: np.ndarray, unit_root: float, kind: str) -> Any:
    """Location, scale matrix and degrees of freedom of the next step, by weighted least squares on pseudo-frames."""
    width, size = z.shape[1], y.shape[1]
    ones = np.hstack([np.tile(np.eye(size), ORDER), np.zeros((size, 1))])
    ridge = np.sqrt(RIDGE) * np.eye(width)[:-1]
    rows = np.vstack([np.sqrt(w)[:, None] * z, np.sqrt(unit_root) * ones, ridge])
    target = np.vstack([np.sqrt(w)[:, None] * y, np.sqrt(unit_root) * np.eye(size), np.zeros((width - 1, size))])
    b = np.linalg.lstsq(rows, target, rcond=None)[0]
    scatter = (target - rows @ b).T @ (target - rows @ b)
    degrees = w.sum() - width - (size - 1 if kind == "full" else 0)
    factor = 1 + z_new @ np.linalg.solve(rows.T @ rows, z_new)
    return z_new @ b, factor * scatter / degrees, degrees


def distances(x: list[np.ndarray], share: np.ndarray, unit_root: float, kind: str) -> np.ndarray:
    """Squared distances of all frames after the first of each sequence, from fits to all frames but one."""
    rows = [(np.append(s[t - ORDER : t], 1.0), s[t]) for s in x for t in range(ORDER, len(s))]
    z, y = (np.array(each) for each in zip(*rows, strict=True))
    found = []
    for i in range(len(z)):
        location, scale, _ = prediction(z, y, np.where(np.arange(len(z)) == i, 0.0, share), z[i], unit_root, kind)
        r = y[i] - location
        found.append(r @ np.linalg.solve(scale, r) if kind == "full" else r**2 / np.diag(scale))
    return np.array(found).reshape(len(z), -1)


def log_t(square: Any, degrees: Any, factor: Any, size: int) -> Any:
    """Log-density of a t density with the scale matrix ``factor I``, at a squared distance from its location."""
    half = 0.5 * (degrees + size)
    constant = special.gammaln(half) - special.gammaln(0.5 * degrees) - 0.5 * size * np.log(np.pi * degrees * factor)
    return constant - half * np.log1p(square / (degrees * factor))


def test_the_density_of_the_oracle() -> None:
    t = stats.multivariate_t(np.zeros(3), 0.7 * np.eye(3), df=4.5)
    np.testing.assert_allclose(log_t(4.0, 4.5, 0.7, 3), t.logpdf([0.0, 2.0, 0.0]), rtol=1e-12)


def means_on_a_grid(squares: np.ndarray, weights: np.ndarray, size: int, most: float) -> tuple[float, float]:
    """1 / E[1/ν] and E[f] under the product of densities, by sums over a dense grid and scipy's densities."""
    inverse, log_factor = np.linspace(1 / most, 0.4, 201), np.linspace(-3, 2, 301)
    each = np.broadcast_to(weights, squares.shape).ravel()
    log_prob = np.zeros((len(inverse), len(log_factor)))
    for square, weight in zip(squares.ravel(), each, strict=True):
        log_prob += weight * log_t(square, 1 / inverse[:, None], np.exp(log_factor), size)
    edges = [np.where(np.isin(np.arange(n), (0, n - 1)), 0.5, 1.0) for n in log_prob.shape]  # the trapezoidal rule
    share = np.outer(*edges) * np.exp(log_prob - log_prob.max())
    share /= share.sum()
    return 1 / float(share.sum(1) @ inverse), float(share.sum(0) @ np.exp(log_factor))


@pytest.mark.parametrize("kind", ["full", "diag"])
@pytest.mark.parametrize(("size", "unit_root"), [(1, 0.0), (2, 0.0), (2, 3.0)])
@pytest.mark.parametrize("background", [0.0, 0.05])
def test_distances_are_those_of_fits_to_all_frames_but_one(
    kind: Any, size: int, unit_root: float, background: float
) -> None:
    X = [simulated(14, size, 1), simulated(11, size, 2)]
    X[0][6] += 12.0  # a jump
    options: dict[str, Any] = {"covariance_type": kind, "ridge": RIDGE, "unit_root": unit_root}
    observation = AutoregressiveGaussian(ORDER, background=background, predictive="plug-in", **options)
    model = sm.HMM(1, observation=observation, tol=1e-13, max_iter=500).fit(X)
    emission, encoded = AutoregressiveEmission(observation, size), [model.encoding_.encode(each) for each in X]
    table = model.parameters_.table
    x = torch.tensor(np.concatenate(encoded))
    empty = np.full((ORDER, size), np.nan)
    past = torch.tensor(
        np.concatenate([[np.vstack([empty, s])[t : t + ORDER] for t in range(len(s))] for s in encoded])
    )
    integrated = emission.with_posterior(table, emission.statistics_of_complete(table, x, past))
    assert integrated is not None
    found = emission.left_out(integrated, x, past, 1.0)
    share = found.weights[:, 0].numpy()
    assert (share.min() < 0.5) == bool(background)
    expected = distances(encoded, share, unit_root, kind)
    np.testing.assert_allclose(found.squares, expected, rtol=1e-5 if background else 1e-9, atol=1e-8)


@pytest.mark.parametrize("size", [1, 3])
def test_degrees_and_factor_are_their_means_on_a_grid(size: int) -> None:
    rng = np.random.default_rng(0)
    squares = size * stats.f(size, 4).rvs((20, 1), random_state=rng)
    weights = rng.uniform(0.2, 1.0, (20, 1))
    halves = [LeftOut(torch.tensor(squares[part]), torch.tensor(weights[part])) for part in (slice(8), slice(8, None))]
    found = degrees_and_scale(halves, size, 17.0, 1e-4)
    np.testing.assert_allclose(found, means_on_a_grid(squares, weights, size, 17.0), rtol=5e-3)


def test_the_scale_and_the_degrees_of_a_fit() -> None:
    X = [simulated(30, 1, 3)]
    observation = AutoregressiveGaussian(ORDER, background=0.0, ridge=RIDGE)
    model = sm.HMM(1, observation=observation).fit(X)
    squares = distances([model.encoding_.encode(X[0])], np.ones(28), 0.0, "full")
    most = 28 - ORDER - 1
    degrees, factor = means_on_a_grid(squares, np.ones((28, 1)), 1, most)
    np.testing.assert_allclose(posterior(model), [28 * factor * degrees / most, degrees], rtol=5e-3)


@pytest.mark.filterwarnings("ignore:.*of the frames are exact copies")
def test_weights_count_frames_and_the_order_of_sequences_does_not_matter() -> None:
    x, y = simulated(30, 2, 4), simulated(20, 2, 5)
    observation = AutoregressiveGaussian(ORDER, ridge=RIDGE)
    of_one, of_both = (sm.HMM(1, observation=observation).fit(each) for each in ([x, x, y], [y, x, x]))
    weighted = sm.HMM(1, observation=observation).fit([x, y], sample_weight=[2.0, 1.0])
    np.testing.assert_allclose(posterior(of_both), posterior(of_one), rtol=1e-6)
    np.testing.assert_allclose(posterior(weighted), posterior(of_one), rtol=1e-3)


def test_tails_of_the_data_are_tails_of_the_density() -> None:
    def fitted(X: list[np.ndarray], **options: Any) -> Any:
        return sm.HMM(1, observation=AutoregressiveGaussian(1, background=0.0, **options)).fit(X)

    gained = {}
    for name, degrees in (("gaussian", None), ("t", 3.0)):
        x, later = simulated(400, 1, 6, degrees), [simulated(4000, 1, 7, degrees)]
        model = fitted([x])
        assert (posterior(model)[1] < 8) == (name == "t")
        gained[name] = model.score(later) - fitted([x], predictive="plug-in").score(later)
    assert gained["t"] > 0.05
    assert abs(gained["gaussian"]) < 0.005


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_variances_stay_above_their_floor(kind: Any) -> None:
    x = np.zeros((40, 2))
    x[:, 0], x[20, 1], x[10:, 1] = np.random.default_rng(9).normal(size=40), 30.0, 1.0  # a step, and nothing else
    x += 1e-9 * np.random.default_rng(10).normal(size=x.shape)
    floor = 1e-3
    observation = AutoregressiveGaussian(1, kind, min_covariance=floor, background=0.0)
    model = sm.HMM(1, observation=observation).fit([x])
    n, degrees = posterior(model)
    unit = model.encoding_.affine()[1]
    variances = np.linalg.eigvalsh(
        (model.covariances_[0] * (np.eye(2) if kind == "diag" else 1)) / np.outer(unit, unit)
    )
    most = 39 - 3 - (kind == "full")
    assert variances.min() * (n / degrees) / (39 / most) >= floor * (1 - 1e-6)
    smaller = sm.HMM(1, observation=AutoregressiveGaussian(1, kind, min_covariance=1e-6, background=0.0)).fit([x])
    ratio = np.divide(*posterior(smaller)) / (39 / most)
    assert ratio < 0.9
