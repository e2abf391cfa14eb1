"""Densities of independent features against scipy, by sums and integrals, and where values are missing or far."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import integrate

import seqmodels as sm
from seqmodels.observations.independent_features import IndependentFeatures
from tests.observations.independent_densities import DENSITIES, Density

NAN = torch.nan
every = pytest.mark.parametrize("density", DENSITIES, ids=str)


@every
def test_log_probs_are_scipys(density: Density) -> None:
    x = density.draws(40, 0, 0) / [1.0, density.unit]
    found = density.observation.log_prob(density.table, torch.as_tensor(x).unsqueeze(1))  # (40, 2)
    for k in range(2):
        twins = [density.twin(density.theta[k, :, d].numpy()) for d in range(2)]
        each = [(t.logpmf if density.is_discrete else t.logpdf)(x[:, d]) for d, t in enumerate(twins)]
        assert_allclose(found[:, k], sum(each), rtol=1e-9, atol=1e-10)


@every
def test_probabilities_sum_to_one(density: Density) -> None:
    observation = density.observation
    for k, d in ((0, 0), (1, 1)):
        row = density.theta[k, :, d]
        if density.is_discrete:
            x = torch.arange(20_000, dtype=torch.float64).unsqueeze(-1)
            assert float(observation.log_prob(row, x).exp().sum()) == pytest.approx(1.0, abs=1e-9)
            continue

        def p(x: float, row: torch.Tensor = row) -> float:
            return float(observation.log_prob(row, torch.tensor([x], dtype=torch.float64)).exp())

        middle = float(np.clip(density.twin(row.numpy()).median(), *density.support))
        low, high = density.support
        mass = sum(integrate.quad(p, *ends, limit=400)[0] for ends in ((low, middle), (middle, high)))
        assert mass == pytest.approx(1.0, abs=1e-7)


@every
def test_draws_have_the_quantiles(density: Density) -> None:
    drawn = density.observation.sample(density.table.repeat(20_000, 1), None, torch.Generator().manual_seed(0))
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    for k in range(2):
        for d in range(2):
            twin, x = density.twin(density.theta[k, :, d].numpy()), drawn[k::2, d].numpy()
            at = twin.ppf(levels)
            if density.observation.kind == "angles":  # of scipy's twin from the location - π to the location + π
                x = twin.median() + np.angle(np.exp(1j * (x - twin.median())))
            assert_allclose((x[:, None] <= at).mean(0), twin.cdf(at), atol=0.015)
    assert density.observation.sample(density.table.float(), None, torch.Generator()).dtype == torch.float32


@every
def test_missing_values_are_summed_out(density: Density) -> None:
    x = torch.as_tensor(density.draws(1, 0, 0) / [1.0, density.unit])[0]
    observation, table = density.observation, density.table
    first, second = (
        observation.log_prob(table.unflatten(-1, (-1, 2))[..., d], x[d : d + 1]) for d in range(2)
    )  # each feature by itself
    assert_allclose(observation.log_prob(table, x), first + second, rtol=1e-12)
    hidden = torch.tensor([float(x[0]), NAN], dtype=torch.float64)
    assert_allclose(observation.log_prob(table, hidden), first, rtol=1e-12)
    assert observation.log_prob(table, torch.full((2,), NAN, dtype=torch.float64)).tolist() == [0.0, 0.0]
    conditionals = observation.full_conditionals(table, x)
    assert_allclose(conditionals.each, torch.stack([first, second], -1), rtol=1e-12)
    assert_allclose(conditionals.others, torch.stack([second, first], -1), rtol=1e-12)


@every
@pytest.mark.parametrize("size", [1.0, 30.0, 1e3])
def test_no_output_parameters_are_without_figure_and_gradient(density: Density, size: float) -> None:
    """A network may say anything."""
    observation = density.observation
    generator = torch.Generator().manual_seed(1)
    outputs = (size * torch.randn(300, observation.n_output_parameters(2), generator=generator)).requires_grad_()
    x = torch.as_tensor(density.draws(300, 1, 1) / [1.0, density.unit], dtype=torch.float32)
    x[::7, 0] = NAN
    found = observation.log_prob(outputs, x)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    found.sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    drawn = observation.sample(outputs.detach(), None, generator)
    assert observation.log_prob(outputs.detach(), drawn).isfinite().all()


@every
def test_networks_train_on_it_stream_and_draw(density: Density) -> None:
    X = density.sequences(0, n=3)
    network = sm.LSTM(
        d_model=4, n_layers=1, max_steps=4, observation=density.observation, dtype="float64", device="cpu"
    ).fit(X, validation=None)
    stream = network.stream()
    assert_allclose([stream.update(x) for x in X[0][:5]], network.log_prob_steps(X[:1])[0][:5], rtol=1e-9)
    predicted = network.predict_next(X[0][:5])
    assert float(predicted.log_prob(torch.as_tensor(X[0][5]))) == pytest.approx(network.log_prob_steps(X[:1])[0][5])
    (drawn,) = network.sample(length=20, random_state=0)
    assert np.isfinite(network.score([drawn]))


@every
def test_floors_are_named_and_their_hits_seen(density: Density) -> None:
    observation: IndependentFeatures = density.observation
    arguments = observation.get_params()
    assert observation.floor_hits(density.table, 2).tolist() == [False, False]
    for name, value in arguments.items():
        with pytest.raises(ValueError, match=name):
            type(observation)(**{name: -1.0}).check(2)
        assert value > 0
    if not arguments:
        return
    assert observation.with_floor(4.0).get_params() == {"min_scale": 2 * arguments["min_scale"]}  # 4 is of variances
    moved = observation.on_floor(density.table, 2, 1e9)  # to a floor that is above all
    raised, x = observation.with_floor(1e9), torch.full((2,), 0.5)
    assert raised.floor_hits(moved, 2).all()
    assert_allclose(raised.log_prob(moved, x), raised.log_prob(density.table, x))
