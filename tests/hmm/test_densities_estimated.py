"""Standard errors of densities of independent features: closed forms for one state, gradients for two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import ive, polygamma

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.observations import (
    Beta,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Observation,
    StudentT,
    VonMises,
    ZeroInflated,
)

RNG = np.random.default_rng(0)
Z = np.repeat([0, 1], 60)
SAMPLES: dict[str, tuple[Observation, np.ndarray]] = {
    "gamma": (Gamma(), RNG.gamma(2.0, 1 + 3 * Z)),
    "beta": (Beta(), RNG.beta(2 + 4 * Z, 5 - 3 * Z)),
    "log-normal": (LogNormal(), np.exp(2 * Z + 0.5 * RNG.normal(size=120))),
    "student-t": (StudentT(), 4 * Z + RNG.standard_t(4, 120)),
    "von-mises": (VonMises(), RNG.vonmises(2 * Z, 4)),
    "negative-binomial": (NegativeBinomial(), RNG.negative_binomial(3, 0.5 - 0.3 * Z).astype(float)),
    "zero-inflated": (ZeroInflated(sm.Poisson()), np.where(RNG.random(120) < 0.3, 0.0, RNG.poisson(2 + 6 * Z))),
    "zero-inflated-gamma": (ZeroInflated(Gamma()), np.where(RNG.random(120) < 0.3, 0.0, RNG.gamma(2.0, 1 + 3 * Z))),
}


def test_one_state_has_the_errors_of_its_density() -> None:
    """By the Fisher information of n independent values, which in an exponential family is the observed one."""

    def errors(observation: Observation, x: np.ndarray) -> tuple[Any, np.ndarray]:
        model = sm.HMM(1, observation=observation, tol=0.0, max_iter=30, dtype="float64").fit([x[:, None]])
        return model, model.standard_errors([x[:, None]])["standard_error"].to_numpy()

    x = SAMPLES["gamma"][1]
    model, found = errors(Gamma(), x)
    shape, rate = model.shapes_[0, 0], model.rates_[0, 0]
    information = len(x) * np.array([[polygamma(1, shape), -1 / rate], [-1 / rate, shape / rate**2]])
    assert_allclose(found, np.sqrt(np.diag(np.linalg.inv(information))), rtol=1e-5)
    model, found = errors(LogNormal(), SAMPLES["log-normal"][1])
    sd = model.scales_[0, 0]
    assert_allclose(found, [sd / np.sqrt(120), sd / np.sqrt(240)], rtol=1e-5)
    model, found = errors(VonMises(), SAMPLES["von-mises"][1])
    kappa = model.concentrations_[0, 0]
    mean_length = ive(1, kappa) / ive(0, kappa)
    spread = 1 - mean_length / kappa - mean_length**2
    assert_allclose(found, [1 / np.sqrt(120 * kappa * mean_length), 1 / np.sqrt(120 * spread)], rtol=1e-5)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_gradient_of_every_density_is_that_of_its_log_probability(name: str) -> None:
    observation, values = SAMPLES[name]
    x = [values[::2, None], values[1::2, None]]
    model = sm.HMM(2, observation=observation.clone(), n_init=1, max_iter=4, dtype="float64").fit(x)
    objective, _, _ = model._objective_at(model._setting().examples(Data.of(x)))
    rng = np.random.default_rng(1)
    u, step = (torch.tensor(scale * rng.normal(size=objective.coordinates.n)) for scale in (0.03, 1.0))
    _, gradient = objective.value_and_gradient(u)
    up, down = (objective.value_and_gradient(u + sign * 1e-5 * step)[0] for sign in (1, -1))
    assert_allclose((up - down) / 2e-5, float(gradient @ step), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_columns_have_the_errors_of_each_density() -> None:
    counts, reals = SAMPLES["zero-inflated"][1], SAMPLES["gamma"][1]
    x = [np.column_stack([reals, counts])]
    observation = sm.Columns([(Gamma(), 1), (ZeroInflated(sm.Poisson()), 1)])
    model = sm.HMM(1, observation=observation, tol=0.0, max_iter=60, dtype="float64").fit(x)
    together = model.standard_errors(x)
    alone = sm.HMM(1, observation=Gamma(), tol=0.0, max_iter=60, dtype="float64").fit([reals[:, None]])
    assert together["name"].tolist() == ["shapes", "rates_0", "zero_weights", "rates_1"]
    expected = alone.standard_errors([reals[:, None]])["standard_error"]
    assert_allclose(together["standard_error"][:2], expected, rtol=1e-5)
