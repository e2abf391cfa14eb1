"""Directions, shortest arcs and scores of angles, against dense integration of von Mises densities."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

import seqmodels as sm
from seqmodels.generation.angle_features import AngleFeatures
from seqmodels.observations import VonMises

GRID = np.linspace(-np.pi, 3 * np.pi, 400_001)  # two turns
N = 200_000  # points of one


def von_mises(weights: list[float], directions: list[float], kappas: list[float]) -> tuple[AngleFeatures, np.ndarray]:
    """The mixture, and its density on the grid."""
    w, mu, kappa = (np.array(each) for each in (weights, directions, kappas))
    order = np.arange(1, 300)[:, None]
    moments = (w * special.ive(order, kappa) / special.ive(0, kappa) * np.exp(1j * order * mu)).sum(1)
    each = np.exp(kappa * (np.cos(GRID[:, None] - mu) - 1)) / (2 * np.pi * special.ive(0, kappa))
    return AngleFeatures(moments[:, None]), each @ w


MIXTURES = {
    "across pi": ([1.0], [-3.11], [20.0]),
    "two": ([0.7, 0.3], [-3.11, 1.0], [20.0, 5.0]),
    "narrow in wide": ([0.6, 0.4], [1.0, 1.5], [500.0, 2.0]),
    "uniform": ([1.0], [0.3], [1e-12]),
}


@pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES.keys())
def test_a_band_is_the_shortest_arc_with_the_probability(mixture: tuple[list[float], ...]) -> None:
    features, density = von_mises(*mixture)
    low, high = features.quantiles(np.array([0.05, 0.95]))[:, 0]
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(GRID))])
    lengths = np.interp(mass[:N] + 0.9, mass, GRID) - GRID[:N]
    assert_allclose(high - low, lengths.min(), atol=1e-7)
    turn = 2 * np.pi * (low < -np.pi)
    assert_allclose(np.diff(np.interp([low + turn, high + turn], GRID, mass)), [0.9], atol=1e-7)


def test_bands_are_written_around_the_direction() -> None:
    features, _ = von_mises([1.0], [-3.11], [20.0])
    low, middle, high = features.quantiles(np.array([0.05, 0.5, 0.95]))[:, 0]
    assert_allclose([features.mean[0], middle, 0.5 * (low + high)], -3.11, atol=1e-12)
    assert low < -np.pi < high < 0


def test_the_mean_of_opposite_directions_is_none() -> None:
    features, _ = von_mises([0.5, 0.5], [0.0, np.pi], [3.0, 3.0])
    assert np.isnan(features.mean).all()
    low, high = features.quantiles(np.array([0.05, 0.95]))[:, 0]
    assert 0 < high - low < 2 * np.pi


def test_cdf_and_score_are_integrals() -> None:
    features, density = von_mises(*MIXTURES["two"])
    is_below = (GRID <= 1.0)[:N]
    below = np.trapezoid(density[:N][is_below], GRID[:N][is_below])
    assert_allclose(features.cdf(np.array([[-4.0], [1.0], [4.0]])).ravel(), [0, below, 1], atol=1e-4)

    def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.abs((a - b + np.pi) % (2 * np.pi) - np.pi)

    few, q = GRID[:N:100], density[:N:100] * 2 * np.pi / (N / 100)
    expected = q @ distance(few, np.array(2.0)) - 0.5 * q @ distance(few[:, None], few) @ q
    assert_allclose(features.crps(np.array([2.0])), [expected], rtol=1e-5)
    assert_allclose(features.crps(np.array([2.0 - 2 * np.pi])), [expected], rtol=1e-5)


def test_draws_have_their_direction_and_arc() -> None:
    x = np.random.default_rng(0).vonmises(3.1, 20.0, size=(4000, 1))
    features, exact = AngleFeatures.of_draws(x), von_mises([1.0], [3.1], [20.0])[0]
    assert_allclose(features.mean, np.angle(np.exp(1j * x).mean(0)))
    levels = np.array([0.05, 0.5, 0.95])
    assert_allclose(features.quantiles(levels), exact.quantiles(levels), atol=0.03)


DIRECTION = 3.1


@pytest.fixture(scope="module")
def angles() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.vonmises(DIRECTION, 8.0, size=(80, 1)) for _ in range(2)]


def test_forecasts_of_angles_are_around_their_direction(angles: list[np.ndarray]) -> None:
    model = sm.HMM(1, observation=VonMises(), random_state=0).fit(angles)
    frame = model.forecast(angles[:1], 2, quantiles=(0.05, 0.95)).frame
    direction = np.angle(np.exp(1j * np.concatenate(angles)).mean())
    assert_allclose(frame["mean"], direction, atol=1e-5)
    assert_allclose(model.predict_next(angles[0]).mean, [direction], atol=1e-5)
    assert (frame["5%"] < direction).all()
    assert (frame["95%"] > np.pi).all()
    assert (frame["95%"] - frame["5%"] < 1.5).all()
    with pytest.raises(NotImplementedError, match=r"the variance of VonMises\(\) is not known; estimate it from draws"):
        _ = model.predict_next(angles[0]).variance


def test_columns_with_angles_have_the_same_forecast_of_them(angles: list[np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    both = [np.hstack([rng.normal(size=x.shape), x]) for x in angles]
    alone = sm.HMM(1, observation=VonMises(), random_state=0).fit(angles)
    joint = sm.HMM(1, observation=sm.Columns([(sm.GaussianMixture(1), 1), (VonMises(), 1)]), random_state=0).fit(both)
    frame = joint.forecast(both[:1], 2).frame
    of_angle = frame[frame["feature"] == 1].reset_index(drop=True).drop(columns="feature")
    assert (of_angle["method"] == "exact").all()
    expected = alone.forecast(angles[:1], 2).frame.drop(columns="feature")
    columns = ["mean", "5%", "95%"]
    assert_allclose(of_angle[columns], expected[columns], rtol=1e-5)
    assert_allclose(joint.predict_next(both[0]).mean[1], expected["mean"][0], rtol=1e-5)


def test_paths_of_a_network_have_bands_across_pi(angles: list[np.ndarray]) -> None:
    model = sm.ElmanRNN(d_model=8, max_epochs=3, observation=VonMises(), random_state=0).fit(angles)
    frame = model.forecast(angles[:1], 3, n=20).frame
    assert frame["method"].tolist() == ["exact", "sampled", "sampled"]
    assert (np.abs(frame["mean"]) <= np.pi).all()
    assert ((frame["5%"] < frame["mean"]) & (frame["mean"] < frame["95%"])).all()


def test_a_backtest_counts_angles_across_pi_as_covered(angles: list[np.ndarray]) -> None:
    model = sm.HMM(1, observation=VonMises(), random_state=0).fit(angles)
    result = sm.backtest({"hmm": model}, angles, horizon=1, n_origins=40, baselines=False).frame
    covered = next(name for name in result if name.startswith("covered 90"))
    assert 0.75 < result[covered].mean() <= 1.0
    assert (result["mae"] <= np.pi).all()
    assert result["mae"].mean() < 0.6
