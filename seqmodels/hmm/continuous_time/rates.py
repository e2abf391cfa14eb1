"""The M-step of EM in continuous time: ``q_kl = n_kl / τ_k``, expected jumps divided by the time spent in the state.

Where the first state has the stationary distribution of the process, ``π Q = 0``, the rates maximise

    ``F(Q) = Σ_k f_k log π_k(Q) + Σ_kl (n_kl log q_kl - q_kl τ_k)``,

where f are the expected first states. With y of ``Q y = -(f / π - Σ f)`` the derivative of the first sum by ``q_kl`` is
``π_k (y_l - y_k)``, so that at the maximum ``q_kl = (n_kl + q_kl π_k (y_l - y_k)) / τ_k``: a small correction, taken as
a step upwards that is halved until F rises, as in ``learning.first_state``. EM stays monotone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.hmm.learning import given_inputs
from seqmodels.hmm.learning.em import Expectations, OwnMStep, m_step
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import (
    generator_of,
    stationary_of_generator,
    transition_probabilities,
    without_diagonal,
)

ROWS_SUM_TO_ZERO = 1e-6  # largest sum of a row that counts as zero, relative to the largest rate of leaving a state
ROUNDS = 4  # corrections in one M-step, each from the result of the one before
HALVINGS = 30  # most halvings of a step that does not improve


class RateObjective(OwnMStep):
    """The objective of EM for a jump process in continuous time, which learns a generator in place of transitions."""

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the parameters that maximise the objective given the expected counts: the M-step.

        Args:
            parameters: parameters before the step.
            expectations: expected counts; ``xi (K, K)`` holds the expected jumps between states, and on its diagonal
                the expected time in each state.
        """
        objective, generator = self.of_chain, parameters.generator
        assert generator is not None
        is_stationary = objective.start == "stationary"
        without = replace(parameters, transition_slopes=None)
        updated = m_step(without, expectations, replace(objective, start="free") if is_stationary else objective)
        frozen = objective.constraints.frozen
        is_free = ~frozen.rows(frozen.transition, len(generator)).to(generator.device)
        if parameters.transition_slopes is not None:
            assert expectations.given_inputs is not None, "the E-step keeps what the regressions read"
            q, slopes = given_inputs.maximised_rates(parameters, expectations.given_inputs, is_free, objective.inputs)
            return replace(with_generator(updated, q, objective.start), transition_slopes=slopes)
        first = expectations.initial if is_stationary else None
        return with_generator(updated, maximised_rates(generator, expectations.xi, is_free, first), objective.start)


def with_generator(parameters: Parameters, generator: Tensor, start: Start) -> Parameters:
    """Return the parameters with a new generator, and with the probabilities that follow from it.

    These are the transitions over one unit of time and, if ``start`` is ``"stationary"``, the distribution of the first
    state.

    Args:
        parameters: the parameters, whose other arrays are kept.
        generator: rates of jumps between states, with rows that sum to zero, ``(K, K)``.
        start: how the distribution of the first state is determined.
    """
    one = generator.new_ones(1)
    initial = stationary_of_generator(generator) if start == "stationary" else parameters.initial
    transition = transition_probabilities(generator, one)[0]
    return replace(parameters, initial=initial, transition=transition, generator=generator)


def maximised_rates(generator: Tensor, path: Tensor, is_free: Tensor, first: Tensor | None) -> Tensor:
    """Return the generator that maximises the expected log-likelihood of a jump process, ``(K, K)``.

    Rates that are zero stay zero, and a state in which no time was spent keeps its rates.

    Args:
        generator: the generator before the step, ``(K, K)``.
        path: expected jumps, with the expected times in each state on the diagonal, ``(K, K)``.
        is_free: False for states whose rates stay unchanged, ``(K,)``.
        first: expected first states, ``(K,)``, if the first state has the stationary distribution; else None.
    """
    time = path.diagonal().clone()[:, None]
    jumps = without_diagonal(path)
    is_free = is_free[:, None] & (time > 0)
    rates = torch.where(is_free, jumps / time, without_diagonal(generator))
    if first is not None:
        rates = _corrected(without_diagonal(generator), rates, jumps, time, is_free, first)
    return generator_of(rates)


def _corrected(before: Tensor, plain: Tensor, jumps: Tensor, time: Tensor, is_free: Tensor, first: Tensor) -> Tensor:
    """Return rates ``(K, K)`` that maximise F if the first state has the stationary distribution of the process.

    With rates q, expected jumps n, times τ and first states f, and the stationary distribution π that q implies, F is
    ``Σ_k f_k log π_k + Σ_kl (n_kl log q_kl - q_kl τ_k)``. The result's F is at least that of ``before`` and of
    ``plain``.

    Args:
        before: rates before the M-step, ``(K, K)``.
        plain: rates after an M-step that ignores the first states, ``(K, K)``.
        jumps: expected jumps, ``(K, K)``.
        time: expected time in each state, ``(K, 1)``.
        is_free: True for states whose rates may change, ``(K, 1)``.
        first: expected first states, ``(K,)``.
    """

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
    """Return the vector y ``(K,)`` for which ``Σ f_k log π_k`` has the derivative ``π_k (y_l - y_k)`` by ``q_kl``.

    Args:
        rates: rates q of jumps between states, ``(K, K)``.
        first: expected first states f, ``(K,)``.
        shares: stationary distribution π of the process, ``(K,)``.
    """
    generator = generator_of(rates)
    scale = rates.sum(1).mean().clamp(min=1e-300)
    slope = torch.where(first > 0, first / shares, 0.0) - first.sum()
    influence: Tensor = torch.linalg.solve(scale * shares.expand(len(shares), -1) - generator, slope)
    return influence


def checked_generator(generator: Any) -> Tensor:
    """Return the user's ``generator`` of a jump process as a tensor ``(K, K)``, after checking it.

    It has rates of jumps off the diagonal, and minus their sum on it. The diagonal is computed anew, so that rows sum
    to zero exactly.

    Raises:
        ValueError: it is no square matrix of finite numbers, a rate off the diagonal is negative, or a row does not sum
            to zero.
    """
    q = numbers_of("generator", generator, "(K, K)")
    if q.ndim != 2 or q.shape[0] != q.shape[1] or not len(q):
        raise ValueError(f"generator has shape {q.shape}; pass (K, K): rates from state i to state j")
    off = q - np.diag(q.diagonal())
    if not (np.isfinite(q).all() and (off >= 0).all()):
        raise ValueError(
            f"generator must be finite, with rates of 0 or more off its diagonal; the smallest is {off.min()}"
        )
    if np.abs(q.sum(1)).max() > ROWS_SUM_TO_ZERO * max(off.sum(1).max(), 1e-300):
        raise ValueError(
            f"rows of the generator must sum to zero, so its diagonal is minus the other rates; they sum to {q.sum(1)}"
        )
    return generator_of(torch.as_tensor(off))
