"""Conjugate priors of what a chain does after each state: Dirichlet rows of transitions, or Gamma rates of jumps.

A distribution is held in a ``Parameters``, as that of the emissions is held in its table. Of Dirichlet rows
``transition`` and ``final`` are concentrations. Of rates the ``generator`` holds shapes off its diagonal, which are
numbers of jumps, and on it for each state the rate, which is the time spent there; its ``transition`` is not read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.conjugate.distributions import (
    dirichlet_divergence,
    dirichlet_log_density,
    draw_dirichlet,
    draw_gamma,
    expected_log,
    gamma_divergence,
    log_gamma_log_density,
)
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology
from seqmodels.inference.chains.continuous_time import generator_of, transition_probabilities, without_diagonal


class RowsFamily(ABC):
    """Abstract base of conjugate priors of a chain's transition and end probabilities, or of its rates in continuous
    time.

    A distribution is held in ``Parameters``, with hyperparameters in the place of probabilities or rates. Every method
    that takes and returns ``Parameters`` leaves ``initial`` and ``table`` as they are.
    """

    @abstractmethod
    def prior(
        self, prior: ConjugatePrior, parameters: Parameters, topology: Topology, *, has_final: bool
    ) -> Parameters:
        """Return the hyperparameters of a user's prior of transitions and ends, in the place of those of
        ``parameters``.

        They are zero for transitions that the topology forbids.

        Args:
            prior: the prior as the user passed it.
            parameters: parameters of a chain of K states, whose other fields are kept.
            topology: which transitions are possible.
            has_final: True if the end of a sequence is an event.
        """

    @abstractmethod
    def updated(self, prior: Parameters, xi: Tensor, final: Tensor) -> Parameters:
        """Return the hyperparameters of the posterior of transitions and ends: those of the prior, updated by expected
        counts.

        Args:
            prior: hyperparameters of the prior, in the place of parameters.
            xi: expected transitions; in continuous time expected jumps, with the expected time in each state on the
                diagonal, ``(K, K)``.
            final: expected ends in each state, ``(K,)``.
        """

    @abstractmethod
    def expected(self, hyper: Parameters) -> Parameters:
        """Return the transition and end probabilities, or rates, ``exp(E log θ)``, for the E-step of variational Bayes.

        The expectation is under the distribution whose hyperparameters are in ``hyper``.
        """

    @abstractmethod
    def divergence(self, hyper: Parameters, prior: Parameters) -> Tensor:
        """Return ``KL(posterior || prior)`` of all transitions and ends together in nats, as a scalar tensor.

        Args:
            hyper: hyperparameters of the posterior, in the place of parameters.
            prior: hyperparameters of the prior, likewise.
        """

    @abstractmethod
    def mean(self, hyper: Parameters) -> Parameters:
        """Return the mean transition and end probabilities, or rates, of the distribution with hyperparameters
        ``hyper``.
        """

    @abstractmethod
    def draw(self, hyper: Parameters, generator: torch.Generator) -> Parameters:
        """Return transition and end probabilities, or rates, drawn from the distribution with hyperparameters
        ``hyper``.
        """

    @abstractmethod
    def log_density(self, parameters: Parameters, prior: Parameters) -> Tensor:
        """Return the log-density of all transitions and ends together under the prior in nats, as a differentiable
        scalar.

        It is the density of logits of the probabilities, or of logarithms of the rates.

        Args:
            parameters: the parameters of the chain.
            prior: hyperparameters of the prior, in the place of parameters.
        """

    @abstractmethod
    def raw(self, hyper: Parameters) -> Mapping[str, np.ndarray]:
        """Return the hyperparameters of transitions and ends, or of rates, as arrays by name."""


@dataclass(frozen=True)
class DirichletRows(RowsFamily):
    """Dirichlet distributions of the probabilities of what follows each state: the transitions and the end."""

    def prior(
        self, prior: ConjugatePrior, parameters: Parameters, topology: Topology, *, has_final: bool
    ) -> Parameters:
        k, n_rows = len(parameters.initial), len(parameters.transition)
        transition = prior.concentrations("transition", (k, k), 1 / k) * topology.transition_mask(k)
        final = prior.concentrations("final", (k,), 1 / k) * topology.final_mask(k) if has_final else None
        repeated = None if final is None else final.repeat(n_rows // k)
        return replace(parameters, transition=transition.repeat(n_rows // k, 1), final=repeated)

    def updated(self, prior: Parameters, xi: Tensor, final: Tensor) -> Parameters:
        of_end = None if prior.final is None else prior.final + final * (prior.final > 0)
        return replace(prior, transition=prior.transition + xi * (prior.transition > 0), final=of_end)

    def expected(self, hyper: Parameters) -> Parameters:
        return _with_rows(hyper, expected_log(rows_of(hyper)).exp())

    def divergence(self, hyper: Parameters, prior: Parameters) -> Tensor:
        return dirichlet_divergence(rows_of(hyper), rows_of(prior)).sum()

    def mean(self, hyper: Parameters) -> Parameters:
        rows = rows_of(hyper)
        return _with_rows(hyper, rows / rows.sum(1, keepdim=True))

    def draw(self, hyper: Parameters, generator: torch.Generator) -> Parameters:
        return _with_rows(hyper, draw_dirichlet(rows_of(hyper), generator))

    def log_density(self, parameters: Parameters, prior: Parameters) -> Tensor:
        of_rows = rows_of(prior)
        return dirichlet_log_density(logs(rows_of(parameters), of_rows), of_rows).sum()

    def raw(self, hyper: Parameters) -> Mapping[str, np.ndarray]:
        final = {} if hyper.final is None else {"final": hyper.final.numpy()}
        return {"transition": hyper.transition.numpy(), **final}


@dataclass(frozen=True)
class GammaRates(RowsFamily):
    """Gamma distributions of the transition rates of a Markov chain in continuous time.

    In ``Parameters``, ``generator`` holds the shapes off its diagonal and the rate parameter of each state's
    distributions on it. The E-step of variational Bayes uses the rates ``exp(E log q)``, whose sum is less than the
    mean rate at which a state is left. It therefore adds one state, into which the process is lost.

    Attributes:
        mean_gap: mean time between two steps, which is the default of the prior's ``time``.
    """

    mean_gap: float = 1.0

    def prior(
        self, prior: ConjugatePrior, parameters: Parameters, topology: Topology, *, has_final: bool
    ) -> Parameters:
        k = len(parameters.initial)
        jumps = prior.concentrations("jumps", (k, k), 1 / k) * topology.transition_mask(k)
        time = prior.numbers("time", self.mean_gap, (k,))
        unread = torch.eye(k, dtype=torch.float64)
        return replace(parameters, transition=unread, generator=without_diagonal(jumps) + torch.diag(time))

    def updated(self, prior: Parameters, xi: Tensor, final: Tensor) -> Parameters:
        hyper = _generator(prior)
        return replace(prior, generator=hyper + xi * (hyper > 0))

    def expected(self, hyper: Parameters) -> Parameters:
        shape, rate, allowed = _jumps_and_time(hyper)
        rates = torch.where(allowed, (torch.digamma(shape) - rate.log()).exp(), 0.0)
        lost = (torch.where(allowed, shape / rate, 0.0) - rates).sum(1, keepdim=True)
        return replace(
            hyper, generator=generator_of(torch.nn.functional.pad(torch.cat([rates, lost], 1), (0, 0, 0, 1)))
        )

    def divergence(self, hyper: Parameters, prior: Parameters) -> Tensor:
        (shape, rate, allowed), (shape0, rate0, _) = _jumps_and_time(hyper), _jumps_and_time(prior)
        return torch.where(allowed, gamma_divergence(shape, rate, shape0, rate0), 0.0).sum()

    def mean(self, hyper: Parameters) -> Parameters:
        shape, rate, allowed = _jumps_and_time(hyper)
        return _with_rates(hyper, torch.where(allowed, shape / rate, 0.0))

    def draw(self, hyper: Parameters, generator: torch.Generator) -> Parameters:
        shape, rate, allowed = _jumps_and_time(hyper)
        return _with_rates(hyper, torch.where(allowed, draw_gamma(shape, generator) / rate, 0.0))

    def log_density(self, parameters: Parameters, prior: Parameters) -> Tensor:
        shape, rate, allowed = _jumps_and_time(prior)
        log_rates = torch.where(allowed, _generator(parameters), 1.0).log()
        return torch.where(allowed, log_gamma_log_density(log_rates, shape, rate), 0.0).sum()

    def raw(self, hyper: Parameters) -> Mapping[str, np.ndarray]:
        of_both = _generator(hyper)
        return {"jumps": without_diagonal(of_both).numpy(), "time": of_both.diagonal().numpy()}


def rows_of(parameters: Parameters) -> Tensor:
    """Return transition probabilities, or their concentrations, ``(K, K)``; ``(K, K + 1)`` with ends if these are
    events.
    """
    if parameters.final is None:
        return parameters.transition
    return torch.cat([parameters.transition, parameters.final.unsqueeze(1)], 1)


def logs(probabilities: Tensor, concentrations: Tensor) -> Tensor:
    """Return logarithms of ``probabilities``, with 0 in place of the logarithm where a Dirichlet concentration is 0.

    There the topology forbids a transition, and the gradient of log 0 would be NaN.
    """
    return torch.where(concentrations > 0, probabilities, 1.0).log()


def _with_rows(parameters: Parameters, rows: Tensor) -> Parameters:
    k = len(parameters.initial)
    final = None if parameters.final is None else rows[:, k].contiguous()
    return replace(parameters, transition=rows[:, :k].contiguous(), final=final)


def _generator(parameters: Parameters) -> Tensor:
    assert parameters.generator is not None, "of a chain in continuous time"
    return parameters.generator


def _jumps_and_time(hyper: Parameters) -> tuple[Tensor, Tensor, Tensor]:
    """Return shapes and rates of the Gamma distributions of jumps, both ``(K, K)``, and a mask of possible jumps.

    Shape and rate are 1 where a jump is impossible.
    """
    of_both = _generator(hyper)
    jumps = without_diagonal(of_both)
    allowed = jumps > 0
    return torch.where(allowed, jumps, 1.0), torch.where(allowed, of_both.diagonal()[:, None], 1.0), allowed


def _with_rates(parameters: Parameters, rates: Tensor) -> Parameters:
    generator = generator_of(rates)
    return replace(
        parameters, generator=generator, transition=transition_probabilities(generator, generator.new_ones(1))[0]
    )
