"""The M-step of EM in continuous time: ``q_kl = n_kl / τ_k``, jumps over the time in which they could occur.

Where the first state has the stationary distribution of the process, ``π Q = 0``, the rates maximise

    ``F(Q) = Σ_k f_k log π_k(Q) + Σ_kl (n_kl log q_kl - q_kl τ_k)``,

f being the expected first states. With y of ``Q y = -(f / π - Σ f)`` the derivative of the first sum by ``q_kl`` is
``π_k (y_l - y_k)``, so that there ``q_kl = (n_kl + q_kl π_k (y_l - y_k)) / τ_k``: a small correction, taken as a step
upwards that is halved until F rises, as in ``learning.first_state``. EM stays monotone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.hmm.learning.em import Expectations, MAPObjective, m_step
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import stationary_of_generator, transition_probabilities
from seqmodels.training import Row

ROUNDS = 4  # of corrections in an M-step, each from the rates of the one before
HALVINGS = 30  # of a step that does not improve


@dataclass(frozen=True)
class RateObjective:
    """What EM maximises: as ``of_chain``, but that the transitions are those of a generator."""

    of_chain: MAPObjective

    def log_prior(self, parameters: Parameters) -> float:
        """Nats, up to a constant: that of the emissions."""
        return self.of_chain.log_prior(parameters)

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """A row of the history, as of ``MAPObjective``."""
        return self.of_chain.row(step, seconds, log_prob, log_prior, table)

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """The parameters that maximise the expected log-probability, given jumps and times (``expectations.xi``)."""
        objective, generator = self.of_chain, parameters.generator
        assert generator is not None
        is_stationary = objective.start == "stationary"
        updated = m_step(parameters, expectations, replace(objective, start="free") if is_stationary else objective)
        frozen = objective.constraints.frozen
        is_free = ~frozen.rows(frozen.transition, len(generator)).to(generator.device)
        first = expectations.initial if is_stationary else None
        return with_generator(updated, maximised_rates(generator, expectations.xi, is_free, first), objective.start)


def with_generator(parameters: Parameters, generator: Tensor, start: Start) -> Parameters:
    """The parameters with these rates and what follows from them: the transitions over one unit of time, and where it
    is ``"stationary"`` the distribution of the first state.
    """
    one = generator.new_ones(1)
    initial = stationary_of_generator(generator) if start == "stationary" else parameters.initial
    transition = transition_probabilities(generator, one)[0]
    return replace(parameters, initial=initial, transition=transition, generator=generator)


def maximised_rates(generator: Tensor, path: Tensor, is_free: Tensor, first: Tensor | None) -> Tensor:
    """``(K, K)`` the generator of an M-step; rates that are zero stay zero, and a state that was never visited keeps
    its own.

    Args:
        generator: before.
        path: (K, K) expected jumps, and on the diagonal times.
        is_free: (K,) False for states whose rates stay as they are.
        first: (K,) expected first states, where they have the stationary distribution; else None.
    """
    time = path.diagonal().clone()[:, None]
    jumps = _without_diagonal(path)
    is_free = is_free[:, None] & (time > 0)
    rates = torch.where(is_free, jumps / time, _without_diagonal(generator))
    if first is not None:
        rates = _corrected(_without_diagonal(generator), rates, jumps, time, is_free, first)
    return generator_of(rates)


def generator_of(rates: Tensor) -> Tensor:
    """``(K, K)`` rates off the diagonal, which is not read, with the diagonal that makes rows sum to zero."""
    generator = _without_diagonal(rates)
    return generator - torch.diag(generator.sum(1))


def _without_diagonal(matrix: Tensor) -> Tensor:
    return matrix - torch.diag(matrix.diagonal())


def _corrected(before: Tensor, plain: Tensor, jumps: Tensor, time: Tensor, is_free: Tensor, first: Tensor) -> Tensor:
    """Rates whose F is at least that of those ``before``, from the better of these and the ``plain`` M-step."""

    def objective(rates: Tensor) -> float:
        shares = stationary_of_generator(generator_of(rates))
        of_rates = torch.xlogy(jumps, torch.where(jumps > 0, rates, 1.0)) - rates * time
        of_first = torch.xlogy(first, torch.where(first > 0, shares, 1.0))
        value = float(of_rates.sum() + of_first.sum())
        return -math.inf if math.isnan(value) else value

    rates, value = max(((each, objective(each)) for each in (before, plain)), key=lambda pair: pair[1])
    for _ in range(ROUNDS):
        shares = stationary_of_generator(generator_of(rates))
        y = _influence(rates, first, shares)
        gain = shares[:, None] * (y - y[:, None])  # (K, K), the derivative by each rate
        room = (-torch.where(rates > 0, gain, 0.0)).amax(1, keepdim=True).clamp(min=0.0)
        size = time + room
        step = torch.where(is_free & (size > 0), (jumps + rates * (gain - time)) / size, 0.0)
        improved = False
        for halving in range(HALVINGS):
            candidate = (rates + step * 0.5**halving).clamp(min=0.0)
            new_value = objective(candidate)
            if new_value > value:
                rates, value, improved = candidate, new_value, True
                break
        if not improved:
            break
    return rates


def _influence(rates: Tensor, first: Tensor, shares: Tensor) -> Tensor:
    """``y (K,)``: the derivative of ``Σ f_k log π_k`` by ``q_kl`` is ``π_k (y_l - y_k)``."""
    generator = generator_of(rates)
    scale = rates.sum(1).mean().clamp(min=1e-300)
    slope = torch.where(first > 0, first / shares, 0.0) - first.sum()
    influence: Tensor = torch.linalg.solve(scale * shares.expand(len(shares), -1) - generator, slope)
    return influence
