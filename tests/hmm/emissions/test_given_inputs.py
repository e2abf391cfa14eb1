"""Emissions given inputs: M-steps against least squares and scipy, and what cannot be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
import torch

import seqmodels as sm
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.emissions.given_inputs import (
    PriorFrames,
    finite_start,
    log_density_given_inputs,
    regression_of,
    weighted_least_squares,
)
from seqmodels.observations import (
    Beta,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Observation,
    PseudoFrames,
    Rounded,
    StudentT,
    VonMises,
    ZeroInflated,
)

RNG = np.random.default_rng(0)
N, D, U = 60, 2, 2
INPUTS = torch.tensor(RNG.normal(size=(N, U)))
GAMMA = torch.tensor(RNG.uniform(size=N))
LINEAR = INPUTS @ torch.tensor([[1.0, -0.5], [0.3, 0.8]], dtype=torch.float64)
REALS = LINEAR + 0.4 + 0.5 * torch.tensor(RNG.normal(size=(N, D)))
BITS = torch.tensor(RNG.uniform(size=(N, D)) < torch.sigmoid(LINEAR).numpy(), dtype=torch.float64)
COUNTS = torch.tensor(RNG.poisson(LINEAR.exp().numpy()), dtype=torch.float64)
SYMBOLS = torch.tensor(RNG.integers(0, 3, N))
OUTLYING = LINEAR + 0.4 + 0.5 * torch.tensor(RNG.standard_t(3.0, size=(N, D)))
POSITIVE = torch.tensor(RNG.gamma(3.0, LINEAR.exp().numpy()))
PROPORTIONS = torch.tensor(RNG.beta(2.0 * LINEAR.exp().numpy(), 2.0))
ANGLES = torch.tensor(RNG.vonmises(0.5 * LINEAR.numpy(), 2.0))
ZEROS = torch.where(torch.tensor(RNG.uniform(size=(N, D)) < 0.3), 0.0, COUNTS)
SOME_MISSING = torch.where(torch.tensor(RNG.uniform(size=(N, D)) < 0.2), torch.nan, POSITIVE)


def start_of(observation: Observation, size: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    past = torch.full((N, observation.n_past, D), torch.nan, dtype=torch.float64) if observation.n_past else None
    table = emission_of(observation, size).from_labels(
        x, past, torch.zeros(N, dtype=torch.int64), 1, torch.Generator().manual_seed(0)
    )
    return finite_start(observation, table), torch.zeros(1, table.shape[1], U, dtype=torch.float64)


def objective(observation: Observation, table: torch.Tensor, slopes: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    log_b = log_density_given_inputs(observation, table, slopes, x, None, INPUTS)
    size = D if x.is_floating_point() else 3
    return (GAMMA * log_b[:, 0]).sum() + emission_of(observation, size).log_prior(table)


@pytest.mark.parametrize(
    ("observation", "x"),
    [
        (sm.GaussianMixture(1), REALS),
        (sm.GaussianMixture(1, "spherical"), REALS),
        (sm.GaussianMixture(1, "full"), REALS),
        (sm.GaussianMixture(1, "tied"), REALS),
        (sm.GaussianMixture(1, prior=PseudoFrames(20.0, 0.5, 0.3, mean_count=5.0)), REALS),
        (sm.GaussianMixture(1, "spherical", prior=PseudoFrames(20.0)), REALS),
        (sm.GaussianMixture(1, "full", prior=PseudoFrames(20.0, mean_count=0.0)), REALS),
        (sm.GaussianMixture(1, "tied", prior=PseudoFrames(20.0)), REALS),
        (sm.Bernoulli(), BITS),
        (sm.Bernoulli(2.0, 0.3), BITS),
        (sm.Poisson(), COUNTS),
        (sm.Poisson(1.5, 2.0), COUNTS),
        (sm.Categorical(), SYMBOLS),
        (sm.Categorical(0.7), SYMBOLS),
        (Gamma(), POSITIVE),
        (Gamma(), SOME_MISSING),
        (LogNormal(), POSITIVE),
        (StudentT(), OUTLYING),
        (Beta(), PROPORTIONS),
        (VonMises(), ANGLES),
        (NegativeBinomial(), COUNTS),
        (ZeroInflated(sm.Poisson()), ZEROS),
        (ZeroInflated(Gamma()), torch.where(ZEROS == 0, 0.0, POSITIVE)),
        (Rounded(sm.GaussianMixture(1), 0.5), (2 * REALS).round() / 2),
        (sm.Columns([(sm.GaussianMixture(1), 1), (sm.Poisson(), 1)]), torch.stack([REALS[:, 0], COUNTS[:, 1]], 1)),
    ],
)
def test_the_maximum_that_scipy_finds(observation: Observation, x: torch.Tensor) -> None:
    size = D if x.is_floating_point() else 3
    table, slopes = start_of(observation, size, x)
    regression = regression_of(observation, size)
    assert len(regression.places) == size * (1 + isinstance(observation, VonMises))
    row, found = regression.maximise(table[0], slopes[0], x, None, INPUTS, GAMMA)
    best = objective(observation, row[None], found[None], x)
    assert best > objective(observation, table, slopes, x) + 1.0 - 0.9 * (not x.is_floating_point())
    moving = torch.cat([torch.arange(row.shape[0])[each] for each in regression.location])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(flat, requires_grad=True)
        of_slopes = torch.zeros_like(found).index_put((moving,), at[len(row) :].view(-1, U))
        value = -objective(observation, at[None, : len(row)], of_slopes[None], x)
        (gradient,) = torch.autograd.grad(value, at)
        return float(value.detach()), gradient.numpy()

    start = np.concatenate([row.numpy(), found[moving].numpy().ravel()])
    for near in (start, start + 0.05 * np.random.default_rng(1).normal(size=len(start))):
        assert -scipy.optimize.minimize(loss, near, jac=True, tol=1e-7).fun < best + 1e-5


@pytest.mark.parametrize(
    "observation",
    [
        sm.GaussianMixture(2),
        sm.GaussianMixture(2, "full"),
        sm.GaussianMixture(2, "spherical"),
        sm.GaussianMixture(2, "tied"),
        sm.GaussianMixture(1, background=0.2),
        sm.GaussianMixture(2, "full", prior=PseudoFrames(5.0), background=0.1),
        sm.GaussianMixture(2, "tied", prior=PseudoFrames(5.0)),
    ],
    ids=repr,
)
def test_steps_of_components_rise_to_a_maximum_of_scipy(observation: sm.GaussianMixture) -> None:
    x = torch.where(torch.arange(N)[:, None] % 3 == 0, 3.0 - REALS, REALS)
    table, slopes = start_of(observation, D, x)
    regression, row, found = regression_of(observation, D), table[0], slopes[0]
    reached = [objective(observation, table, slopes, x)]
    for _ in range(60):
        row, found = regression.maximise(row, found, x, None, INPUTS, GAMMA)
        reached.append(objective(observation, row[None], found[None], x))
    assert min(after - before for before, after in itertools.pairwise(reached)) > -1e-9
    assert reached[-1] > reached[1] + 1.0

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(flat, requires_grad=True)
        of_slopes = torch.zeros_like(found).index_put((torch.tensor(regression.places),), at[len(row) :].view(-1, U))
        value = -objective(observation, at[None, : len(row)], of_slopes[None], x)
        (gradient,) = torch.autograd.grad(value, at)
        return float(value.detach()), gradient.numpy()

    start = np.concatenate([row.numpy(), found[regression.places].numpy().ravel()])
    assert -scipy.optimize.minimize(loss, start, jac=True, tol=1e-7).fun < reached[-1] + 1e-4
    assert np.abs(loss(start)[1]).max() < 1e-2


def test_an_autoregression_with_inputs_is_one_regression() -> None:
    observation = sm.AutoregressiveGaussian(1, ridge=0.0, background=0.0)
    regression = regression_of(observation, D)
    past = torch.cat([torch.full((1, 1, D), torch.nan, dtype=torch.float64), REALS[:-1].unsqueeze(1)])
    table, slopes = start_of(observation, D, REALS)
    row, found = regression.maximise(table[0], slopes[0], REALS, past, INPUTS, GAMMA)
    matrix, intercept, covariance, first_mean, _ = observation.regression(row, D)
    design = np.concatenate([REALS[:-1], np.ones((N - 1, 1)), INPUTS[1:]], 1)
    root = np.sqrt(GAMMA[1:, None].numpy())
    expected = np.linalg.lstsq(root * design, root * REALS[1:].numpy(), rcond=None)[0]
    np.testing.assert_allclose(matrix, expected[:D].T, atol=1e-9)
    np.testing.assert_allclose(intercept, expected[D], atol=1e-9)
    np.testing.assert_allclose(found[regression.location[0]], expected[D + 1 :].T, atol=1e-9)
    residual = root * (REALS[1:].numpy() - design @ expected)
    np.testing.assert_allclose(covariance, residual.T @ residual / float(GAMMA[1:].sum()), atol=1e-9)
    assert torch.equal(first_mean, observation.regression(table[0], D)[3])


@pytest.mark.parametrize(
    "observation",
    [
        sm.AutoregressiveGaussian(2, ridge=3.0, unit_root=20.0, background=0.0),
        sm.AutoregressiveGaussian(1, "diag", unit_root=5.0, background=0.0),
        sm.AutoregressiveGaussian(1, ridge=1.0, intercept=False, background=0.0),
    ],
    ids=repr,
)
def test_priors_of_an_autoregression_with_inputs(observation: sm.AutoregressiveGaussian) -> None:
    """At inputs of zero it is the autoregression without inputs; given inputs, the maximum that scipy finds."""
    emission, p = emission_of(observation, D), observation.order
    padded = torch.cat([torch.full((p, D), torch.nan, dtype=torch.float64), REALS])
    past = torch.stack([padded[t : t + p] for t in range(N)])
    generator = torch.Generator().manual_seed(0)
    table = emission.from_labels(REALS, past, torch.zeros(N, dtype=torch.int64), 1, generator)
    slopes, regression = torch.zeros(1, table.shape[1], U, dtype=torch.float64), regression_of(observation, D)
    without = emission.maximise(emission.statistics(table, REALS, past, GAMMA[:, None]), table)
    row, _ = regression.maximise(table[0], slopes[0], REALS, past, torch.zeros_like(INPUTS), GAMMA)
    n = sum(observation._widths(D)[:3])  # of the regression; the rest is of the first steps
    np.testing.assert_allclose(row[:n], without[0, :n], atol=1e-8)
    row, found = regression.maximise(table[0], slopes[0], REALS, past, INPUTS, GAMMA)
    places = torch.tensor(regression.places)
    is_fixed = np.zeros(len(row) + found[places].numel(), bool)
    is_fixed[n : len(row)] = True
    if not observation.intercept:
        is_fixed[places] = True

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(flat, requires_grad=True)
        of_slopes = torch.zeros_like(found).index_put((places,), at[len(row) :].view(-1, U))
        log_b = log_density_given_inputs(observation, at[None, : len(row)], of_slopes[None], REALS, past, INPUTS)
        value = -(GAMMA * log_b[:, 0]).sum() - emission.log_prior(at[None, : len(row)])
        (gradient,) = torch.autograd.grad(value, at)
        return float(value.detach()), np.where(is_fixed, 0.0, gradient.numpy())

    at = np.concatenate([row.numpy(), found[places].numpy().ravel()])
    assert np.abs(loss(at)[1]).max() < 1e-6
    assert is_fixed.sum() == len(row) - n + 2 * (not observation.intercept)
    assert observation.intercept or not row[places].any()


def test_missing_values_and_states_without_frames() -> None:
    x = REALS.clone()
    x[::3, 1] = torch.nan
    regression = regression_of(sm.GaussianMixture(1), D)
    table, slopes = start_of(sm.GaussianMixture(1), D, REALS)
    row, found = regression.maximise(table[0], slopes[0], x, None, INPUTS, GAMMA)
    seen = ~torch.isnan(x[:, 1])
    alone = regression_of(sm.GaussianMixture(1), 1).maximise(
        *(each[0] for each in start_of(sm.GaussianMixture(1), 1, REALS[:, 1:])),
        *(x[seen, 1:], None, INPUTS[seen], GAMMA[seen]),
    )
    np.testing.assert_allclose(found[2], alone[1][1])
    np.testing.assert_allclose(row[[2, 4]], alone[0][1:])
    for observation, data in ((sm.GaussianMixture(1), REALS), (sm.Poisson(), COUNTS), (sm.Bernoulli(), BITS)):
        table, slopes = start_of(observation, D, data)
        row, found = regression_of(observation, D).maximise(
            table[0], slopes[0] + 0.1, data, None, INPUTS, torch.zeros_like(GAMMA)
        )
        assert torch.allclose(row, table[0])
    full = regression_of(sm.GaussianMixture(1, "full"), D)
    with pytest.raises(ValueError, match="some values are missing"):
        full.maximise(*(each[0] for each in start_of(sm.GaussianMixture(1, "full"), D, REALS)), x, None, INPUTS, GAMMA)
    assert weighted_least_squares(REALS, INPUTS, torch.zeros_like(GAMMA)) is None


def test_frames_of_a_prior_alone_are_a_regression_unless_they_have_no_weight() -> None:
    weights = torch.arange(1.0, 8.0, dtype=torch.float64)
    prior, without = PriorFrames(REALS[:7], INPUTS[:7], weights), torch.zeros_like(GAMMA)
    found = weighted_least_squares(REALS, INPUTS, without, pseudo=prior)
    root = weights.sqrt().numpy()[:, None]
    expected = np.linalg.lstsq(root * INPUTS[:7].numpy(), root * REALS[:7].numpy())[0]
    assert found is not None
    np.testing.assert_allclose(found[0], expected, rtol=1e-8)
    weightless = prior._replace(weights=torch.zeros_like(weights))
    assert weighted_least_squares(REALS, INPUTS, without, pseudo=weightless) is None


def test_what_has_no_regression() -> None:
    with pytest.raises(ValueError, match="cannot depend on inputs"):
        regression_of(sm.Chords(4), 4)


def test_too_many_symbols() -> None:
    table = torch.zeros(500, dtype=torch.float64)
    with pytest.raises(ValueError, match="1500 coefficients"):
        regression_of(sm.Categorical(), 500).maximise(table, torch.zeros(500, U), SYMBOLS, None, INPUTS, GAMMA)
