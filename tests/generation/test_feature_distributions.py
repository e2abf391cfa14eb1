from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, special, stats

import seqmodels as sm
from seqmodels.encodings.cells import Cells
from seqmodels.encodings.step_maps import inverse_power
from seqmodels.generation.cursor import Prediction
from seqmodels.generation.feature_distributions import (
    CellFeatures,
    EmpiricalFeatures,
    FeatureDistributions,
    GaussianFeatures,
    GridFeatures,
    JoinedFeatures,
    PowerFeatures,
    StudentFeatures,
    _standard_density,
    crps_of_draws,
    quantiles_of_steps,
)
from seqmodels.generation.predicted_features import feature_distributions

LEVELS = np.array([1e-4, 0.05, 0.5, 0.95, 0.9999])


def gaussians(n_components: int, seed: int = 0, spread: float = 3.0) -> GaussianFeatures:
    rng = np.random.default_rng(seed)
    loc, scale = spread * rng.normal(size=(n_components, 2)), np.exp(rng.normal(size=(n_components, 2)))
    return GaussianFeatures(rng.dirichlet(np.ones(n_components)), loc, scale)


def integrated_crps(features: FeatureDistributions, y: np.ndarray, d: int) -> float:
    """By its definition, ``∫ (F(x) - 1{x >= y})² dx``, numerically."""

    def squared(x: float) -> float:
        at = np.full(len(y), x)
        return float((features.cdf(at)[d] - (x >= y[d])) ** 2)

    low, high = (features.quantiles(np.array([p]))[0, d] for p in (1e-9, 1 - 1e-9))
    parts = [integrate.quad(squared, a, b, limit=400)[0] for a, b in ((min(low, y[d]), y[d]), (y[d], max(high, y[d])))]
    return sum(parts)


@pytest.mark.parametrize("n_components", [1, 2, 40])
@pytest.mark.parametrize("spread", [0.1, 3.0, 1000.0])
def test_quantiles_of_gaussians_are_where_the_cdf_reaches_them(n_components: int, spread: float) -> None:
    features = gaussians(n_components, spread=spread)
    by_scipy = sum(
        w * stats.norm.cdf(1.7, loc, scale)
        for w, loc, scale in zip(features.weights, features.loc, features.scale, strict=True)
    )
    assert_allclose(features.cdf(np.array([1.7, 1.7])), by_scipy, rtol=1e-12)
    assert_allclose(features.cdf(features.quantiles(LEVELS)), np.tile(LEVELS[:, None], 2), rtol=1e-7)


def test_a_quantile_between_two_far_components_is_found() -> None:
    """The density there is zero in floating point, so Newton's method alone would leave the line."""
    features = GaussianFeatures(np.array([0.5, 0.5]), np.array([[-1e3], [1e3]]), np.ones((2, 1)))
    low, middle, high = features.quantiles(np.array([0.49, 0.5, 0.51]))[:, 0]
    assert_allclose([low, high], [-1e3 + stats.norm.ppf(0.98), 1e3 + stats.norm.ppf(0.02)], rtol=1e-9)
    assert -1e3 < middle < 1e3


@pytest.mark.parametrize("n_components", [1, 3])
def test_crps_of_gaussians_is_the_integral(n_components: int) -> None:
    features = gaussians(n_components)
    for y in (np.array([0.3, -8.0]), np.array([20.0, 1.0])):
        assert_allclose(features.crps(y), [integrated_crps(features, y, d) for d in range(2)], rtol=1e-6)


def whole_numbers(observation: sm.observations.Observation, table: np.ndarray, weights: list[float]) -> GridFeatures:
    units = np.zeros((1, table.shape[1])), np.ones((1, table.shape[1]))
    return GridFeatures(observation, torch.as_tensor(table), np.array(weights), *units, np.ones(table.shape[1]))


def test_whole_numbers_have_scipys_cdf_and_the_least_quantile() -> None:
    rates = np.array([[0.0, 3.5], [2.0, 900.0]])
    features, weights = whole_numbers(sm.Poisson(), np.log(np.maximum(rates, 1e-300)), [0.3, 0.7]), np.array([0.3, 0.7])
    for x in (-0.5, 0.0, 2.9, 3.0, 40.0):
        assert_allclose(features.cdf(np.full(2, x)), weights @ stats.poisson.cdf(x, rates), rtol=1e-12)
    quantiles = features.quantiles(LEVELS)
    assert (quantiles == np.rint(quantiles)).all()
    assert (features.cdf(quantiles) >= LEVELS[:, None]).all()
    assert (features.cdf(quantiles - 1) < LEVELS[:, None]).all()
    y = np.array([1.0, 700.0])
    values = np.arange(1500.0)[:, None]
    expected = ((weights @ stats.poisson.cdf(values[..., None], rates.T).swapaxes(1, 2) - (values >= y)) ** 2).sum(0)
    assert_allclose(features.crps(y), expected, rtol=1e-9)
    assert_allclose(features.mean, weights @ rates)


def test_bits() -> None:
    features = whole_numbers(sm.Bernoulli(), special.logit(np.array([[0.1], [0.7]])), [0.5, 0.5])
    assert_allclose(features.mean, [0.4])
    assert_allclose(features.cdf(np.array([[-0.1], [0.0], [1.0]])), [[0.0], [0.6], [1.0]])
    assert_allclose(features.quantiles(np.array([0.5, 0.59, 0.61])), [[0.0], [0.0], [1.0]])
    assert_allclose([features.crps(np.array([y])) for y in (0.0, 1.0)], [[0.16], [0.36]])  # the Brier score


@pytest.mark.slow
def test_crps_of_draws_has_the_true_mean_for_any_number_of_draws() -> None:
    rng, y = np.random.default_rng(0), np.array([0.7])
    expected = GaussianFeatures(np.ones(1), np.zeros((1, 1)), np.ones((1, 1))).crps(y)[0]
    for n in (2, 3, 10):
        found = np.array([crps_of_draws(rng.normal(size=(n, 1)), y)[0] for _ in range(20_000)])
        assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found))
    draws = rng.normal(size=(7, 2))
    pairs = np.abs(draws[:, None] - draws).sum((0, 1)) / (7 * 6)
    assert_allclose(crps_of_draws(draws, np.zeros(2)), np.abs(draws).mean(0) - 0.5 * pairs, rtol=1e-12)
    assert np.isnan(crps_of_draws(draws[:1], np.zeros(2))).all()


def test_draws_have_their_own_quantiles() -> None:
    features = EmpiricalFeatures(np.array([[3.0], [1.0], [2.0], [10.0]]))
    assert features.mean == [4.0]
    assert_allclose(features.quantiles(np.array([0.25, 0.3, 0.9])), [[1.0], [2.0], [10.0]])
    assert_allclose(features.cdf(np.array([2.0])), [0.5])


OBSERVATIONS = (
    sm.GaussianMixture(2),
    sm.GaussianMixture(2, "full"),
    sm.GaussianMixture(2, "lowrank", rank=1),
    sm.GaussianMixture(1, "spherical"),
    sm.AutoregressiveGaussian(2),
    sm.AutoregressiveGaussian(1, "diag"),
    sm.Poisson(),
    sm.Bernoulli(),
    sm.Columns([(sm.AutoregressiveGaussian(1), 2), (sm.Poisson(), 1)]),
    sm.observations.Gamma(),
    sm.observations.Beta(),
    sm.observations.NegativeBinomial(),
    sm.observations.ZeroInflated(sm.Poisson()),
    sm.observations.ZeroInflated(sm.observations.Gamma()),
    sm.Columns([(sm.observations.LogNormal(), 2), (sm.observations.NegativeBinomial(), 1)]),
)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
def test_each_feature_has_the_distribution_of_draws(observation: sm.observations.Observation) -> None:
    """Of a mixture of two rows and three states, against the observation's own draws; in raw units."""
    generator, size, n = torch.Generator().manual_seed(0), 3, 40_000
    p = observation.n_output_parameters(size)
    table = 0.5 * torch.randn(2, 3, p, generator=generator, dtype=torch.float64)
    log_weights = torch.randn(2, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    past = torch.randn(2, observation.n_past, size, generator=generator).double() if observation.n_past else None
    whole = {"counts", "bits"} & set(observation.values(size))
    shift, scale = (torch.zeros(3), torch.ones(3)) if whole else (torch.tensor([5.0, 0, -2]), torch.tensor([2, 0.1, 1]))
    shift = 0 * shift if "amounts" in observation.values(size) else shift
    prediction = Prediction(observation, table, log_weights, past, None)
    weights = np.array([0.25, 0.75])
    features = feature_distributions(prediction, slice(0, 2), weights, shift.double(), scale.double())
    assert features is not None
    joint = (log_weights.exp() * torch.tensor(weights)[:, None]).flatten()
    chosen = torch.multinomial(joint, n, replacement=True, generator=generator)
    each = None if past is None else past[chosen // 3]
    draws = (shift + scale * observation.sample(table.flatten(0, 1)[chosen], each, generator)).double().numpy()
    assert_allclose(features.mean, draws.mean(0), atol=5 * (draws.std(0) / np.sqrt(n)).max())
    for x in np.quantile(draws, [0.1, 0.5, 0.9], axis=0):
        assert_allclose(features.cdf(x), (draws <= x).mean(0), atol=0.012)
    y = np.quantile(draws, 0.3, axis=0)
    assert_allclose(features.crps(y), crps_of_draws(draws, y), rtol=0.03)
    assert isinstance(features, JoinedFeatures) == isinstance(observation, sm.Columns)


def test_rows_of_no_weight_and_states_of_none_are_left_out() -> None:
    table = torch.tensor([[[0.0, 1.0, 0.0], [0.0, 9.0, 0.0]], [[0.0, 5.0, 0.0], [0.0, 5.0, 0.0]]]).double()
    log_weights = torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf]]).double()
    prediction = Prediction(sm.GaussianMixture(1), table, log_weights, None, None)
    one = torch.ones(1).double()
    features = feature_distributions(prediction, slice(0, 2), np.array([1.0, 0.0]), 0 * one, one)
    assert features is not None
    assert_allclose(features.mean, [1.0])


def test_a_power_of_a_gaussian_has_the_mean_quantiles_and_score_of_a_log_normal() -> None:
    mean, deviation, y = np.array([0.3, -1.0]), np.array([0.5, 1.2]), np.array([2.0, 0.01])
    features = PowerFeatures(GaussianFeatures(np.ones(1), mean[None], deviation[None]), np.zeros(2))
    log_normal = stats.lognorm(deviation, scale=np.exp(mean))
    assert_allclose(features.mean, log_normal.mean(), rtol=1e-9)
    assert_allclose(features.quantiles(np.array([0.05, 0.9])), [log_normal.ppf(0.05), log_normal.ppf(0.9)], rtol=1e-9)
    assert_allclose(features.cdf(y), log_normal.cdf(y), rtol=1e-9)
    assert_array_equal(features.cdf(np.array([-1.0, 0.0])), [0.0, 0.0])
    # Baran & Lerch (2015), Log-normal distribution based ensemble model output statistics models, eq. 4.
    w = (np.log(y) - mean) / deviation
    tail = stats.norm.cdf(w - deviation) + stats.norm.cdf(deviation / np.sqrt(2)) - 1
    assert_allclose(features.crps(y), y * (2 * stats.norm.cdf(w) - 1) - 2 * log_normal.mean() * tail, rtol=1e-9)
    far = np.array([-1.0, 1e4])  # where nothing is drawn: E|X - y| - ½ E|X - X'| has no more to integrate
    expected = np.abs(log_normal.mean() - far) - _half_spread(mean, deviation)
    assert_allclose(features.crps(far), expected, rtol=1e-9)


def _half_spread(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """``½ E|X - X'|`` of log-normal X, X': ``E X (2 Φ(σ / √2) - 1)``."""
    return np.exp(mean + deviation**2 / 2) * (2 * stats.norm.cdf(deviation / np.sqrt(2)) - 1)


@pytest.mark.parametrize("lmbda", [0.4, 1.0, 1.5])
def test_a_power_of_a_mixture_is_that_of_draws(lmbda: float) -> None:
    base = GaussianFeatures(np.array([0.4, 0.6]), np.array([[0.3], [2.0]]), np.array([[0.5], [1.0]]))
    features, rng = PowerFeatures(base, np.array([lmbda])), np.random.default_rng(0)
    h = np.where(rng.random(200_000) < 0.4, rng.normal(0.3, 0.5, 200_000), rng.normal(2, 1, 200_000))
    draws = inverse_power(h[:, None], np.array([lmbda]))
    assert_allclose(features.mean, draws.mean(0), rtol=0.01)
    assert_allclose(features.crps(np.array([1.5])), crps_of_draws(draws, np.array([1.5])), rtol=0.01)
    if lmbda == 1:  # h is a shift
        assert_allclose(features.mean, 1 + base.mean, rtol=1e-9)
        assert_allclose(features.crps(np.array([1.5])), base.crps(np.array([0.5])), rtol=1e-9)


def test_each_row_moves_its_own_components() -> None:
    each = [gaussians(3, seed) for seed in range(2)]
    shift, scale = np.array([[10.0, 0.0], [-5.0, 1.0]]), np.array([[2.0, 1.0], [0.5, 3.0]])
    both = GaussianFeatures(
        np.concatenate([0.4 * each[0].weights, 0.6 * each[1].weights]),
        np.concatenate([features.loc for features in each]),
        np.concatenate([features.scale for features in each]),
    )
    x = np.array([1.5, -0.5])
    expected = sum(
        w * features.cdf((x - a) / b) for w, features, a, b in zip((0.4, 0.6), each, shift, scale, strict=True)
    )
    assert_allclose(both.moved(shift, scale).cdf(x), expected, rtol=1e-12)


def features_of_cells(n_parts: int) -> CellFeatures:
    rng = np.random.default_rng(1)
    cells = (
        Cells(np.array([-1.0, 0.0, 2.0]), np.array([0.5, 3.0])),
        Cells(np.array([10.0]), np.array([1.0, 2.0])),
    )
    probabilities = [rng.dirichlet(np.ones(each.n_cells), size=n_parts) for each in cells]
    weights, shift = rng.dirichlet(np.ones(n_parts)), rng.normal(size=(n_parts, 2))
    return CellFeatures(cells, weights, probabilities, shift, rng.uniform(0.5, 2.0, size=(n_parts, 2)))


@pytest.mark.parametrize("n_parts", [1, 30])
def test_mixtures_of_cells_are_those_of_draws(n_parts: int) -> None:
    features, rng, n = features_of_cells(n_parts), np.random.default_rng(2), 200_000
    part = rng.choice(n_parts, size=n, p=features.weights)
    columns = []
    for d, cells in enumerate(features.cells):
        cell = (rng.random((n, 1)) > np.cumsum(features.probabilities[d], axis=1)[part]).sum(1)
        columns.append(features.shift[part, d] + features.scale[part, d] * cells.quantile(rng.random(n), cell))
    draws = EmpiricalFeatures(np.stack(columns, axis=1))
    error = draws.x.std(0) / np.sqrt(n)
    assert (np.abs(features.mean - draws.mean) < 5 * error).all()
    at = draws.quantiles(np.array([0.02, 0.3, 0.8]))
    assert_allclose(features.cdf(at), draws.cdf(at), atol=5 * 0.5 / np.sqrt(n))
    assert_allclose(features.cdf(features.quantiles(LEVELS)), np.tile(LEVELS[:, None], 2), rtol=1e-6)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("n_parts", "tolerance"), [(1, 1e-6), (30, 1e-5)])
def test_crps_of_cells_is_its_definition(n_parts: int, tolerance: float) -> None:
    features = features_of_cells(n_parts)
    low, high = features.quantiles(np.array([1e-12, 1 - 1e-12]))
    for y in (np.array([0.3, 9.0]), np.array([-80.0, 300.0])):
        parts = []
        for a, b in ((np.minimum(low, y), y), (y, np.maximum(high, y))):  # F below what was observed, 1 - F above
            x = np.linspace(a, b, 60_001)
            squares = (features.cdf(x) - (b > y)) ** 2
            parts.append((0.5 * (squares[1:] + squares[:-1]) * np.diff(x, axis=0)).sum(0))
        assert_allclose(features.crps(y), np.sum(parts, axis=0), rtol=tolerance)


def test_a_quantile_that_is_found_is_not_searched_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would leave its place while others of its step are searched for, and take many more iterations."""
    rng, evaluated = np.random.default_rng(0), list[int]()

    def counted(z: np.ndarray) -> np.ndarray:
        evaluated.append(len(z))
        return _standard_density(z)

    monkeypatch.setattr("seqmodels.generation.feature_distributions._standard_density", counted)
    levels = np.array([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
    steps = [
        GaussianFeatures(rng.dirichlet(np.ones(60)), rng.normal(size=(60, 2)), np.exp(rng.normal(size=(60, 2))))
        for _ in range(8)
    ]
    for features, quantiles in zip(steps, quantiles_of_steps(steps, levels), strict=True):
        assert_allclose(features.cdf(quantiles), np.tile(levels[:, None], 2), atol=1e-9)
    assert len(evaluated) < 20


def test_quantiles_of_steps_are_those_of_each_step() -> None:
    """Side by side, also where some searches end long before others."""
    rng = np.random.default_rng(5)
    steps: list[FeatureDistributions] = [
        GaussianFeatures(rng.dirichlet(np.ones(c)), spread * rng.standard_normal((c, 2)), rng.uniform(0.1, 2.0, (c, 2)))
        for c, spread in [(3, 1.0), (3, 1e4), (1, 1.0), (3, 1e-3), (2, 5.0), (3, 50.0)]
    ]
    steps.insert(2, EmpiricalFeatures(rng.standard_normal((50, 2))))
    for step, together in zip(steps, quantiles_of_steps(steps, LEVELS), strict=True):
        assert_array_equal(together, step.quantiles(LEVELS))


def test_mixtures_of_student_t_have_exact_cdfs_quantiles_and_scores() -> None:
    weights, degrees = np.array([0.6, 0.39, 0.01]), np.array([3.0, 40.0, np.inf])
    loc, scale = np.array([[0.0, 1.0], [1.0, 2.0], [0.0, 0.0]]), np.array([[1.0, 2.0], [0.1, 3.0], [10.0, 20.0]])
    features = StudentFeatures(weights, loc, scale, degrees)
    moved = features.moved(np.array([[5.0, -1.0]]), np.array([[2.0, 0.5]]))

    def cdf(x: float, d: int) -> float:
        each = [
            (stats.norm if np.isinf(nu) else stats.t(nu)).cdf((x - m) / s)
            for nu, m, s in zip(degrees, loc[:, d], scale[:, d], strict=True)
        ]
        return float(weights @ each)

    levels = np.array([1e-6, 0.05, 0.5, 0.975])
    quantiles, y = features.quantiles(levels), np.array([0.7, -30.0])
    np.testing.assert_allclose(moved.quantiles(levels), [5.0, -1.0] + quantiles * [2.0, 0.5], rtol=1e-8, atol=1e-8)
    for d in range(2):
        np.testing.assert_allclose([cdf(x, d) for x in quantiles[:, d]], levels, rtol=1e-8)
        np.testing.assert_allclose(features.cdf(y)[d], cdf(y[d], d), rtol=1e-7)
        below = integrate.quad(lambda x, d=d: cdf(x, d) ** 2, -np.inf, y[d], limit=300)[0]
        above = integrate.quad(lambda x, d=d: (1 - cdf(x, d)) ** 2, y[d], np.inf, limit=300)[0]
        np.testing.assert_allclose(features.crps(y)[d], below + above, rtol=1e-6)
