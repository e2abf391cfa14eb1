"""What EM learns of inputs: transitions by multinomial logistic regression, emissions by linear or generalised linear.

The sufficient statistics are the posterior of each step beside its inputs; those of two batches stand one after the
other, and each process keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import finite_start, regression_of
from seqmodels.hmm.emissions.logistic import multinomial_logistic
from seqmodels.hmm.parameters import Parameters


@dataclass(frozen=True)
class InputOptions:
    """What is regressed on which of the U inputs of a model.

    Attributes:
        n_inputs: U.
        transition: the columns that transitions are regressed on; none: they are the same at all inputs.
        emission: the same of emissions.
        ridge: of the slopes of transitions: the prior ``-½ ridge Σ slope²``, slopes of a row less their mean.
    """

    n_inputs: int = 0
    transition: tuple[int, ...] = ()
    emission: tuple[int, ...] = ()
    ridge: float = 0.0

    def started(self, parameters: Parameters, emission: Emission) -> Parameters:
        """With slopes of zero."""
        if self.transition:
            slopes = parameters.transition.new_zeros(*parameters.transition.shape, self.n_inputs)
            parameters = replace(parameters, transition_slopes=slopes)
        if self.emission:
            table = finite_start(emission.observation, parameters.table)
            parameters = replace(parameters, table=table, table_slopes=table.new_zeros(*table.shape, self.n_inputs))
        return parameters

    def n_parameters(self, allowed: Tensor, is_free: Tensor, emits_freely: Tensor, emission: Emission) -> int:
        """Free slopes: of transitions where ``allowed (K, K)`` of the states whose row ``is_free (K,)``, and of
        emissions of those that ``emits_freely (K,)``.
        """
        of_transitions = len(self.transition) * int((allowed.sum(1) - 1)[is_free].clamp(min=0).sum())
        if not self.emission:
            return of_transitions
        n_free = regression_of(emission.observation, emission.size).n_free
        return of_transitions + len(self.emission) * n_free * int(emits_freely.sum())

    def log_prior(self, parameters: Parameters) -> Tensor:
        """``()`` log p of the transitions' slopes under the Gaussian of ``ridge``, in nats, up to a constant."""
        total = parameters.transition.new_zeros(())
        if parameters.transition_slopes is None or not self.ridge:
            return total
        for row, slopes in zip(parameters.transition > 0, parameters.transition_slopes, strict=True):
            if row.any():
                total = total + (slopes[row] - slopes[row].mean(0)).square().sum()
        return -0.5 * self.ridge * total


@dataclass(frozen=True)
class InputStatistics:
    """The posterior of N steps, and what of them a regression reads; None: what none reads.

    Attributes:
        inputs: (N, U).
        transitions: (N, K, K) float64, expected transitions into each step, zeros of first ones.
        x: (N, ...) encoded frames.
        past: (N, p, D) those before each.
        gamma: (N, K) float64.
    """

    inputs: Tensor
    transitions: Tensor | None = None
    x: Tensor | None = None
    past: Tensor | None = None
    gamma: Tensor | None = None

    def __add__(self, other: InputStatistics) -> InputStatistics:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return InputStatistics(**{name: torch.cat(pair) for name, pair in pairs.items() if pair[0] is not None})

    def scaled(self, factor: float) -> InputStatistics:
        """Those of ``factor`` times the data."""
        transitions, gamma = (None if each is None else factor * each for each in (self.transitions, self.gamma))
        return replace(self, transitions=transitions, gamma=gamma)

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        return {name: each.cpu().numpy() for name, each in vars(self).items() if each is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], device: torch.device) -> InputStatistics:
        """The inverse of ``arrays``."""
        return cls(**{name: torch.tensor(array, device=device) for name, array in arrays.items()})


def maximised_transitions(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """``(K, K)`` and ``(K, K, U)``: transitions where all inputs are zero, and their slopes.

    Each row is a regression of its own; the slopes of a state to itself are zero, or to the first that it leads to.

    Args:
        pseudocounts: ``(K, K)`` of transitions where all inputs are zero.
    """
    assert parameters.transition_slopes is not None
    assert statistics.transitions is not None
    columns = list(options.transition)
    u = statistics.inputs[:, columns].double()
    design = torch.cat([torch.ones_like(u[:, :1]), u], 1)
    transition, slopes = parameters.transition.clone(), parameters.transition_slopes.clone()
    for i in range(len(transition)):
        leads_to = reference_first(i, (transition[i] > 0).nonzero()[:, 0].tolist())
        if len(leads_to) < 2:
            continue
        intercepts = transition[i, leads_to].log()
        before = torch.cat([intercepts[:, None], slopes[i, leads_to][:, columns]], 1)
        fitted = multinomial_logistic(
            statistics.transitions[:, i, leads_to].double(),
            design,
            before - before[:1],
            ridge=options.ridge,
            at_zero=pseudocounts[i, leads_to],
        )
        transition[i, leads_to] = torch.softmax(fitted[:, 0], 0)
        new_slopes = slopes.new_zeros(len(leads_to), slopes.shape[2])
        new_slopes[:, columns] = fitted[:, 1:]
        slopes[i, leads_to] = new_slopes
    return transition, slopes


def maximised_emissions(
    parameters: Parameters, statistics: InputStatistics, emission: Emission, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """``(K, P)`` output parameters where all inputs are zero, and ``(K, P, U)`` slopes; each state by itself."""
    assert parameters.table_slopes is not None
    assert statistics.x is not None
    assert statistics.gamma is not None
    columns, regression = list(options.emission), regression_of(emission.observation, emission.size)
    inputs = statistics.inputs[:, columns].double()
    x = statistics.x.double() if statistics.x.is_floating_point() else statistics.x
    table, slopes = parameters.table.clone(), torch.zeros_like(parameters.table_slopes)
    for k, gamma in enumerate(statistics.gamma.double().T):
        before = parameters.table_slopes[k][:, columns]
        table[k], slopes[k][:, columns] = regression.maximise(table[k], before, x, statistics.past, inputs, gamma)
    return table, slopes


def reference_first(i: int, states: Sequence[int]) -> list[int]:
    """The ``states`` that state i leads to, that one first to which the slopes of others are relative."""
    return [i, *(j for j in states if j != i)] if i in states else list(states)
