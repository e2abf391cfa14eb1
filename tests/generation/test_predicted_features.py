"""Quantiles, means and scores of one step ahead, against SciPy's distributions and dense sums."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

import seqmodels as sm
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import StepMap, inverse_power
from seqmodels.generation.cursor import Prediction
from seqmodels.generation.feature_distributions import FeatureDistributions, GaussianFeatures
from seqmodels.generation.predicted_features import _of_gaussians, feature_distributions, mixtures_of_steps
from seqmodels.linear_gaussian.cursor import UnseenSteps
from seqmodels.observations import (
    Beta,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Observation,
    Rounded,
    StudentT,
    ZeroInflated,
)

LEVELS = np.array([1e-6, 1e-3, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999])
SHIFT, SCALE = 3.0, 100.0


def predicted(
    observation: Observation,
    table: list[list[float]],
    weights: list[float],
    shift: float = 0.0,
    scale: float = 1.0,
    powers: list[float] | None = None,
) -> FeatureDistributions:
    """The distribution of one feature under a mixture of these rows of output parameters, perhaps of its power."""
    log_weights = torch.tensor([weights], dtype=torch.float64).log()
    prediction = Prediction(observation, torch.tensor([table], dtype=torch.float64), log_weights, None, None)
    units = torch.tensor([shift], dtype=torch.float64), torch.tensor([scale], dtype=torch.float64)
    step = None if powers is None else StepMap(np.zeros((1, 1)), np.ones((1, 1)), np.array(powers))
    features = feature_distributions(prediction, slice(0, 1), np.ones(1), *units, step)
    assert features is not None
    return features


log = np.log
ONE_COMPONENT: list[tuple[Observation, list[float], Any]] = [
    (StudentT(), [2.0, log(0.5), log(0.5)], stats.t(0.5, 2, 0.5)),
    (StudentT(), [2.0, log(0.5), log(1.5)], stats.t(1.5, 2, 0.5)),
    (StudentT(), [2.0, log(0.5), log(1e6)], stats.t(1e6, 2, 0.5)),
    (StudentT(min_scale=1e-9), [2.0, log(1e-9), log(4)], stats.t(4, 2, 1e-9)),
    (Gamma(), [log(0.05), log(2.0)], stats.gamma(0.05, scale=40.0)),
    (Gamma(), [log(1e4), log(2.0)], stats.gamma(1e4, scale=2e-4)),
    (LogNormal(), [-30.0, log(2.0)], stats.lognorm(2.0, scale=np.exp(-30.0))),
    (Beta(), [log(0.5), log(3.0)], stats.beta(0.5, 3.0)),
    (Beta(), [log(4e3), log(6e3)], stats.beta(4e3, 6e3)),
]


@pytest.mark.parametrize(("observation", "row", "twin"), ONE_COMPONENT)
def test_one_component_has_scipys_quantiles_and_mean(observation: Observation, row: list[float], twin: Any) -> None:
    features = predicted(observation, [row], [1.0])
    assert_allclose(features.quantiles(LEVELS)[:, 0], twin.ppf(LEVELS), rtol=1e-8)
    mean = twin.mean() if np.isfinite(twin.mean()) else np.nan
    assert_allclose(features.mean, [mean], rtol=1e-12)
    moved = predicted(observation, [row], [1.0], SHIFT, SCALE)
    assert_allclose(moved.quantiles(LEVELS)[:, 0], SHIFT + SCALE * twin.ppf(LEVELS), rtol=1e-8)


MIXTURES: list[tuple[Observation, list[list[float]], list[Any]]] = [
    (StudentT(), [[0.0, 0.0, log(3)], [0.0, 0.0, log(30)]], [stats.t(3), stats.t(30)]),
    (
        StudentT(min_scale=1e-9),
        [[0.0, log(1e-6), log(3)], [1e4, log(2), log(0.6)]],
        [stats.t(3, 0, 1e-6), stats.t(0.6, 1e4, 2)],
    ),
    (Gamma(), [[log(0.1), 0.0], [log(50), 5.0]], [stats.gamma(0.1, scale=10), stats.gamma(50, scale=np.exp(5) / 50)]),
    (
        LogNormal(),
        [[1.0, log(2)], [-30.0, log(0.01)]],
        [stats.lognorm(2, scale=np.e), stats.lognorm(0.01, scale=np.exp(-30))],
    ),
    (Beta(), [[log(0.3), log(0.4)], [log(3), log(9)]], [stats.beta(0.3, 0.4), stats.beta(3, 9)]),
]


@pytest.mark.parametrize(("observation", "table", "twins"), MIXTURES)
def test_the_cdf_of_a_mixture_reaches_the_level_at_its_quantile(
    observation: Observation, table: list[list[float]], twins: list[Any]
) -> None:
    weights = [0.3, 0.7]
    # A third component of weight 0, whose mean and quantiles are elsewhere, changes nothing.
    features = predicted(observation, [*table, [-7.0] * len(table[0])], [*weights, 0.0])
    reached = [sum(w * twin.cdf(x) for w, twin in zip(weights, twins, strict=True)) for x in features.quantiles(LEVELS)]
    assert_allclose(np.ravel(reached), LEVELS, rtol=1e-8)
    means = [twin.mean() for twin in twins]
    assert_allclose(features.mean, [np.dot(weights, means) if np.isfinite(means).all() else np.nan], rtol=1e-12)


def test_the_score_of_a_mixture_of_t_densities_is_the_integral() -> None:
    features = predicted(StudentT(), [[0.0, 0.0, log(2)], [3.0, log(0.01), log(9)]], [0.5, 0.5])

    def squared(x: float, y: float) -> float:
        return float((0.5 * stats.t.cdf(x, 2) + 0.5 * stats.t.cdf((x - 3) / 0.01, 9) - (x >= y)) ** 2)

    for y in (2.98, -40.0):
        ends = sorted({-np.inf, -1e3, -40.0, 2.5, 2.98, 3.0, 3.1, 5.0, 1e3, np.inf})
        parts = [integrate.quad(squared, a, b, (y,), epsabs=1e-12, limit=200)[0] for a, b in itertools.pairwise(ends)]
        assert_allclose(features.crps(np.array([y])), [sum(parts)], rtol=1e-5)


def test_amounts_have_a_jump_at_0_and_the_quantiles_of_their_density_above() -> None:
    features = predicted(ZeroInflated(Gamma()), [[log(0.4 / 0.6), log(2.0), log(3.0)]], [1.0], 0.0, SCALE)
    twin = stats.gamma(2.0, scale=1.5 * SCALE)
    found = features.quantiles(LEVELS)[:, 0]
    assert_array_equal(found[LEVELS < 0.4], 0.0)
    assert_allclose(found[LEVELS > 0.4], twin.ppf((LEVELS[LEVELS > 0.4] - 0.4) / 0.6), rtol=1e-8)
    assert_allclose(features.cdf(np.array([[-1e-9], [0.0], [250.0]]))[:, 0], [0, 0.4, 0.4 + 0.6 * twin.cdf(250.0)])
    assert_allclose(features.mean, [0.6 * twin.mean()], rtol=1e-9)
    expected = [0.0, 0.6 * twin.pdf(250.0)]  # no density where the cdf jumps
    assert_allclose(features.density(np.array([[0.0], [250.0]]))[:, 0], expected)  # type: ignore[attr-defined]
    for y in (0.0, 250.0):
        parts = [
            integrate.quad(lambda x, is_above: (0.4 + 0.6 * twin.cdf(x) - is_above) ** 2, a, b, (a >= y,))[0]
            for a, b in ((0.0, y), (y, np.inf))
        ]
        assert_allclose(features.crps(np.array([y])), [sum(parts)], rtol=1e-5)


LARGEST_SIZE = 1e8  # where the score still differs from that of a Poisson distribution, by 3e-8
COUNTS: list[tuple[Observation, list[list[float]], Any]] = [
    (
        NegativeBinomial(),
        [[log(3.0), log(0.5)], [log(100.0), log(LARGEST_SIZE)]],
        lambda x: (
            0.3 * stats.nbinom.cdf(x, 0.5, 0.5 / 3.5)
            + 0.7 * stats.nbinom.cdf(x, LARGEST_SIZE, LARGEST_SIZE / (LARGEST_SIZE + 100))
        ),
    ),
    (
        ZeroInflated(sm.Poisson()),
        [[log(0.4 / 0.6), log(3.0)], [-800.0, log(20.0)]],
        lambda x: np.where(x < 0, 0, 0.3 * (0.4 + 0.6 * stats.poisson.cdf(x, 3)) + 0.7 * stats.poisson.cdf(x, 20)),
    ),
]


@pytest.mark.parametrize(("observation", "table", "cdf"), COUNTS, ids=["negative binomial", "zero-inflated"])
def test_a_quantile_of_counts_is_the_least_that_reaches_the_level(
    observation: Observation, table: list[list[float]], cdf: Any
) -> None:
    features = predicted(observation, table, [0.3, 0.7])
    found = features.quantiles(LEVELS)[:, 0]
    assert_array_equal(found, [np.flatnonzero(cdf(np.arange(2000)) >= level)[0] for level in LEVELS])
    assert not np.signbit(found).any()  # 0 and not -0
    values = np.arange(2000)
    assert_allclose(features.mean, [(1 - cdf(values)).sum()], rtol=1e-8)
    assert_allclose(features.crps(np.array([7.0])), [((cdf(values) - (values >= 7)) ** 2).sum()], rtol=1e-8)
    assert_allclose(features.cdf(np.array([[-0.5], [2.0], [2.7]])).ravel(), cdf(np.array([-1, 2, 2])), rtol=1e-8)


ROUNDED: list[tuple[Observation, list[float], Any]] = [
    (StudentT(), [0.3, log(0.02), log(5)], stats.t(5, 0.3, 0.02)),
    (StudentT(), [0.3, log(30.0), log(5)], stats.t(5, 0.3, 30.0)),
    (Gamma(), [log(0.3), log(5.0)], stats.gamma(0.3, scale=5 / 0.3)),
    (LogNormal(), [0.0, 0.0], stats.lognorm(1.0)),
    (sm.GaussianMixture(1, "diag"), [0.0, 0.9, log(0.04)], stats.norm(0.9, 0.2)),
]


@pytest.mark.parametrize(("density", "row", "twin"), ROUNDED)
def test_rounded_values_have_the_quantiles_mean_and_score_of_their_cells(
    density: Observation, row: list[float], twin: Any
) -> None:
    features = predicted(Rounded(density, width=0.5, origin=0.2), [row], [1.0])
    points = 0.2 + 0.5 * np.arange(-40_000, 40_000)
    cdf, beyond = twin.cdf(points + 0.25), twin.sf(points + 0.25)
    levels = LEVELS[2:]
    assert_allclose(features.quantiles(levels)[:, 0], [points[np.flatnonzero(cdf >= p)[0]] for p in levels], atol=1e-9)
    is_above = points > 0.1
    assert_allclose(features.mean, [0.2 + 0.5 * (beyond[is_above].sum() - cdf[~is_above].sum())], rtol=1e-6)
    assert_allclose(features.crps(np.array([0.7])), [0.5 * ((cdf - (points >= 0.69)) ** 2).sum()], rtol=1e-6)


def test_forecasts_of_heavy_tails_are_exact_and_say_where_there_is_no_mean() -> None:
    x = stats.t.rvs(0.7, size=(400, 1), random_state=0)
    model = sm.HMM(1, observation=StudentT(), random_state=0).fit([x])
    nu, location, scale = (each[0, 0] for each in (model.degrees_of_freedom_, model.locations_, model.scales_))
    assert nu < 1
    with pytest.warns(UserWarning, match="has no mean and shows NaN, as for a t density of at most 1"):
        frame = model.forecast([x], 2, quantiles=(0.05, 0.5, 0.95)).frame
    assert frame["method"].tolist() == ["exact", "exact"]
    assert frame["mean"].isna().all()
    expected = stats.t.ppf([0.05, 0.5, 0.95], nu, location, scale)
    assert_allclose(frame[["5%", "50%", "95%"]].to_numpy()[0], expected, rtol=1e-6)
    assert model.predict_next(x).mean.isnan().all()


@pytest.mark.parametrize("kind", ["diag", "full"])
@pytest.mark.parametrize("encoding", [sm.Standardize(), sm.encodings.Chain([sm.Standardize()])])
def test_components_that_all_steps_share_are_mixed_as_by_each_prediction(kind: str, encoding: sm.Encoding) -> None:
    """Also those that a step cannot come from: the chain has one way through its states."""
    rng = np.random.default_rng(0)
    x = np.repeat([0.0, 4.0, 8.0], 5)[:, None] + rng.standard_normal((15, 2))
    model = sm.HMM(3, topology="left-to-right", observation=sm.GaussianMixture(1, kind), encoding=encoding, n_init=1)
    model.fit([x])
    cursor = model.cursor()
    closed = cursor.predictions_ahead(cursor.start(), 4)
    assert closed is not None
    affine = tuple(torch.as_tensor(each) for each in model.encoding_.affine())
    step = None
    if isinstance(model.encoding_, SeriesEncoding):
        step, affine = model.encoding_.step_encoder(x).map, (torch.zeros(2), torch.ones(2))
    shared = mixtures_of_steps(closed, *affine, step)
    assert shared is not None
    n_kept = []
    for prediction, (ours,) in zip(closed, shared, strict=True):
        alone = feature_distributions(prediction, slice(0, 1), np.ones(1), *affine, step)
        shift, scale = affine if step is None else (torch.tensor(step.shift[0]), torch.tensor(step.scale[0]))
        kept, weights = prediction.weights()[0] > 0, prediction.weights()[0].log()
        mixture = prediction.observation.distribution(
            prediction.output_parameters[0][kept], log_weights=weights[kept], past=None, shift=shift, scale=scale
        )
        n_kept.append(int(kept.sum()))
        for other in (alone, _of_gaussians(mixture)):
            assert isinstance(ours, GaussianFeatures)
            assert isinstance(other, GaussianFeatures)
            for name in ("weights", "loc", "scale"):
                assert_allclose(getattr(ours, name), getattr(other, name), rtol=1e-12)
    assert n_kept[0] == 1
    assert n_kept[-1] == 3


def test_gaussians_of_several_steps_are_those_of_each_prediction() -> None:
    """A filter has another Gaussian at each step, of which all are computed together."""
    x = np.cumsum(np.random.default_rng(0).standard_normal((2, 30, 2)), axis=1)
    cursor = sm.LinearGaussian(2, max_iter=2).fit([*x]).cursor()
    state = cursor.start(None, 2)
    for step in torch.as_tensor(x[:, :5].copy()).unbind(1):
        state = cursor.advance(state, step)
    closed, one_by_one = cursor.predictions_ahead(state, 3), UnseenSteps.predictions_ahead(cursor, state, 3)
    assert closed is not None
    assert one_by_one is not None
    affine = torch.tensor([1.0, -2.0]).double(), torch.tensor([3.0, 0.5]).double()
    together = mixtures_of_steps(closed, *affine)
    assert together is not None
    for rows, prediction in zip(together, one_by_one, strict=True):
        for i, ours in enumerate(rows):
            alone = feature_distributions(prediction, slice(i, i + 1), np.ones(1), *affine)
            assert isinstance(ours, GaussianFeatures)
            assert isinstance(alone, GaussianFeatures)
            for name in ("weights", "loc", "scale"):
                assert_allclose(getattr(ours, name), getattr(alone, name), rtol=1e-12)
    past = [*closed[:2], replace(closed[2], past=torch.zeros(2, 1, 2))]
    assert mixtures_of_steps(past, *affine) is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("power", "nu"), [(0.5, 5.0), (0.5, 2.2), (1.0, 1.5)])
def test_a_power_of_t_densities_has_their_quantiles_mean_and_score(power: float, nu: float) -> None:
    twin = stats.t(nu, 2.0, 0.5)
    features = predicted(StudentT(), [[2.0, log(0.5), log(nu)]], [1.0], powers=[power])
    raw = inverse_power(twin.ppf(LEVELS), np.array(power))
    assert_allclose(features.quantiles(LEVELS)[:, 0], raw, rtol=1e-8)
    assert_allclose(features.cdf(raw[:, None])[:, 0], LEVELS, rtol=1e-8)

    def part(low: float, high: float) -> float:  # of the mean, between two values of h
        of_value = lambda h: inverse_power(np.array(h), np.array(power)) * twin.pdf(h)  # noqa: E731
        return float(integrate.quad(of_value, low, high, epsabs=1e-12, epsrel=1e-10, limit=500)[0])

    mean = part(-np.inf, -10.0) + part(-10.0, 0.0) + part(0.0, 10.0) + part(10.0, np.inf)
    assert_allclose(features.mean, [mean], rtol=1e-4 if nu * power < 1.2 else 1e-6)
    grid = np.concatenate([-np.geomspace(1e7, 1e-3, 40_000), np.geomspace(1e-3, 1e7, 40_000)])
    squared = (features.cdf(grid[:, None])[:, 0] - (grid >= 1.7)) ** 2
    assert_allclose(features.crps(np.array([1.7])), [np.trapezoid(squared, grid)], rtol=2e-3)


@pytest.mark.parametrize(("power", "nu"), [(0.5, 1.9), (0.0, 30.0), (1.0, 1.0)])
def test_a_power_of_t_densities_may_have_no_mean(power: float, nu: float) -> None:
    features = predicted(StudentT(), [[0.0, 0.0 if power else log(20.0), log(nu)]], [1.0], powers=[power])
    assert np.isnan(features.mean).all()


def test_log_values_of_gammas_have_a_mean_if_their_tail_is_thin() -> None:
    thin = predicted(Gamma(), [[log(3.0), log(3.0 / 4.0)]], [1.0], powers=[0.0])
    assert_allclose(thin.mean, [(1 - 1 / 4.0) ** -3.0], rtol=1e-8)
    heavy = predicted(Gamma(), [[log(3.0), log(3.0 / 0.9)]], [1.0], powers=[0.0])
    assert np.isnan(heavy.mean).all()
