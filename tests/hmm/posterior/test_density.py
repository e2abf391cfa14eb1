"""The log-density of unconstrained numbers: it integrates to one, with the derivative of what they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from torch import Tensor

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import ConjugatePrior
from seqmodels.hmm.conjugate import ConjugateFamily, conjugate_of
from seqmodels.hmm.conjugate.distributions import dirichlet_log_density, wishart_log_density
from seqmodels.hmm.conjugate.gaussian_mixture import NO_FLOOR
from seqmodels.hmm.posterior.density import PosteriorDensity
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import gaussian

PRIOR = ConjugatePrior(count=2.5, mean=0.3, mean_count=0.4, covariance=1.7)


def of_family(observation: Any) -> tuple[ConjugateFamily, Tensor]:
    family = conjugate_of(observation, 1)
    return family, family.prior(PRIOR, 1)


@pytest.mark.parametrize("observation", [sm.Poisson(), sm.Bernoulli()], ids=repr)
def test_densities_of_one_number_integrate_to_one(observation: Any) -> None:
    family, hyper = of_family(observation)

    def density(u: float) -> float:
        return float(family.log_density(torch.tensor([[u]], dtype=torch.float64), hyper).exp())

    assert quad(density, -60, 40, limit=300, points=[-5, 0, 2, 6])[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_densities_of_means_and_variances_integrate_to_one(covariance_type: Any) -> None:
    """On a grid of means in units of each variance; of one feature a shape is a log-variance, or minus half of it."""
    family, hyper = of_family(sm.GaussianMixture(1, covariance_type))
    log_variance, z = torch.meshgrid(
        torch.linspace(-12, 20, 400).double(), torch.linspace(-20, 20, 400).double(), indexing="ij"
    )
    mean = z * (log_variance / 2).exp()
    shape = log_variance if covariance_type == "diag" else -log_variance / 2
    table = torch.stack([torch.zeros_like(z), mean, shape], -1).flatten(0, 1)
    density = family.log_density(table, hyper).exp().view(z.shape) * (log_variance / 2).exp()
    volume = density.sum() * (40 / 399) * (32 / 399) * (1.0 if covariance_type == "diag" else 0.5)
    assert float(volume) == pytest.approx(1.0, abs=1e-3)


def test_logits_of_a_dirichlet_distribution_integrate_to_one_whichever_is_fixed() -> None:
    concentration = torch.tensor([0.7, 2.0], dtype=torch.float64)
    for fixed in (0, 1):

        def density(u: float, fixed: int = fixed) -> float:
            logits = torch.tensor([3.0, u] if fixed == 0 else [u, 3.0], dtype=torch.float64)
            return float(dirichlet_log_density(logits, concentration).exp())

        assert quad(density, -60, 60, limit=300, points=[0, 3, 6])[0] == pytest.approx(1.0, abs=1e-6)


def test_the_derivative_of_a_precision_is_that_of_its_factor() -> None:
    size, freedom = 3, 5.5
    scatter = torch.tensor([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.8]], dtype=torch.float64)
    shape = torch.tensor([0.2, -0.3, 0.1, 0.5, -0.4, 0.3], dtype=torch.float64)
    rows, columns = torch.tril_indices(size, size)

    def precision(shape: Tensor) -> Tensor:
        factor = gaussian.precision_cholesky(shape, size, NO_FLOOR)
        return (factor @ factor.mT)[rows, columns]

    factor = gaussian.precision_cholesky(shape, size, NO_FLOOR)
    jacobian = torch.autograd.functional.jacobian(precision, shape)
    assert isinstance(jacobian, Tensor)
    of_precision = stats.wishart(freedom, np.linalg.inv(scatter.numpy())).logpdf((factor @ factor.mT).numpy())
    expected = of_precision + float(torch.linalg.slogdet(jacobian)[1])
    ours = float(wishart_log_density(factor, torch.tensor(freedom, dtype=torch.float64), scatter))
    assert ours == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("length", ["given", "stop"])
def test_a_chain_has_its_log_likelihood_and_prior_and_their_gradient(length: Any) -> None:
    x = [np.array([0, 1, 1, 0, 2]), np.array([2, 1, 0])]
    fitted = sm.HMM(2, observation=sm.Categorical(), length=length, start="free", dtype="float64").fit(x)
    posterior = sm.hmm.PosteriorHMM(fitted, n_samples=1, warmup=1, length=length)
    apply_setting(posterior, fitted._setting())
    posterior.model_ = fitted
    family = posterior._family()
    examples, chain = fitted._setting().examples(Data.of(x)), fitted._fitted_chain
    corpus = chain.corpus(examples, family.emission, torch.device("cpu"), torch.float64)
    density: PosteriorDensity = posterior._density(chain, family, examples, corpus)
    n = density.coordinates.n
    assert n == 1 + 2 * (1 if length == "given" else 2) + 2 * 2
    u = torch.linspace(-0.5, 0.7, n, dtype=torch.float64)
    zero = torch.zeros(n, dtype=torch.float64)
    assert float(density(u) - density(zero)) == pytest.approx(
        by_hand(density, x, u) - by_hand(density, x, zero), rel=1e-9
    )
    free = u.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(density(free), free)
    steps = 1e-5 * torch.eye(n, dtype=torch.float64)
    numeric = [(float(density(u + step)) - float(density(u - step))) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient.numpy(), numeric, rtol=1e-5, atol=1e-6)


def by_hand(density: PosteriorDensity, x: list[np.ndarray], u: Tensor) -> float:
    """``log p(x | θ) + Σ a log θ``, a being 1 in the chain, and 1/3 of each of three symbols."""
    parameters, _ = density.coordinates.at(u)
    emission = parameters.table.softmax(-1)
    chain = [t for t in (parameters.initial, parameters.transition, parameters.final) if t is not None]
    model = sm.HMM.from_parameters(*(t.numpy() for t in chain), emission=emission.numpy())
    log_prior = sum(float(t.log().sum()) for t in chain) + float(emission.log().sum() / 3)
    return float(model.log_prob(x).sum()) + log_prior
