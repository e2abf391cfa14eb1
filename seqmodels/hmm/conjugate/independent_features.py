"""Conjugate families of counts and bits: a Gamma distribution on each rate, a Beta distribution on each probability."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from seqmodels.hmm.conjugate.distributions import (
    dirichlet_divergence,
    dirichlet_log_density,
    draw_dirichlet,
    draw_gamma,
    expected_log,
    gamma_divergence,
    log_gamma_log_density,
)
from seqmodels.hmm.conjugate.family import ConjugateFamily, conjugate_of, refuse_other_prior
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Statistics, emission_of
from seqmodels.observations import Bernoulli, Poisson
from seqmodels.observations.exponential_family import ExponentialFamily


@conjugate_of.register(Poisson)
def _(observation: Poisson, size: int) -> ConjugateFamily:
    refuse_other_prior("pseudocount", observation.pseudocount, 0.0)
    return PoissonFamily(emission_of(observation, size))


@conjugate_of.register(Bernoulli)
def _(observation: Bernoulli, size: int) -> ConjugateFamily:
    refuse_other_prior("pseudocount", observation.pseudocount, 0.0)
    return BernoulliFamily(emission_of(observation, size))


class PoissonFamily(ConjugateFamily):
    """The conjugate family of ``Poisson``: a Gamma distribution of each mean count.

    The hyperparameters of K states, ``(K, 2 D)``, are the shapes of the Gamma distributions of all D features, then
    their rates.
    """

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        mean, count = _mean_and_count(self, prior, n_states)
        return torch.cat([count * mean, count.expand_as(mean)], 1)

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        return prior + statistics[0]  # sums of x, and how often it was observed

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        shape, rate = hyper.chunk(2, 1)
        log_rates = torch.digamma(shape) - rate.log()
        return log_rates, log_rates.exp() - shape / rate

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        return gamma_divergence(*hyper.chunk(2, 1), *prior.chunk(2, 1)).sum(1)

    def mean(self, hyper: Tensor) -> Tensor:
        shape, rate = hyper.chunk(2, 1)
        return (shape / rate).log()

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        shape, rate = hyper.chunk(2, 1)
        return (draw_gamma(shape, generator) / rate).log()

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        return log_gamma_log_density(table, *hyper.chunk(2, 1)).sum(1)

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        shape, rate = hyper.chunk(2, 1)
        return {"shape": shape.numpy(), "rate": rate.numpy()}


class BernoulliFamily(ConjugateFamily):
    """The conjugate family of ``Bernoulli``: a Beta distribution of each probability.

    The hyperparameters of K states, ``(K, 2 D)``, are the concentrations of the value 1 for all D features, then those
    of 0.
    """

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        mean, count = _mean_and_count(self, prior, n_states)
        if float(mean.max()) >= 1:
            raise ValueError(f"mean of the prior is up to {float(mean.max()):g}; pass probabilities between 0 and 1")
        return torch.cat([count * mean, count * (1 - mean)], 1)

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        on, observed = statistics[0].chunk(2, 1)
        return prior + torch.cat([on, observed - on], 1)

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        log_on, log_off = expected_log(_pairs(hyper)).unbind(-1)
        return log_on - log_off, log_off + softplus(log_on - log_off)

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        return dirichlet_divergence(_pairs(hyper), _pairs(prior)).sum(1)

    def mean(self, hyper: Tensor) -> Tensor:
        on, off = hyper.chunk(2, 1)
        return on.log() - off.log()

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        on, off = draw_dirichlet(_pairs(hyper), generator).unbind(-1)
        return on.log() - off.log()

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        return dirichlet_log_density(torch.stack([table, torch.zeros_like(table)], -1), _pairs(hyper)).sum(1)

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        on, off = hyper.chunk(2, 1)
        return {"on": on.numpy(), "off": off.numpy()}


def _pairs(hyper: Tensor) -> Tensor:
    """Return the concentrations ``(K, 2 D)`` as pairs of 1 and 0, ``(K, D, 2)``."""
    return torch.stack(hyper.chunk(2, 1), -1)


def _mean_and_count(family: ConjugateFamily, prior: ConjugatePrior, n_states: int) -> tuple[Tensor, Tensor]:
    observation = family.emission.observation
    assert isinstance(observation, ExponentialFamily)
    mean = prior.numbers("mean", observation.prior_mean(family.size).numpy(), (n_states, family.size))
    return mean, prior.numbers("count", 1.0, (n_states, 1))
