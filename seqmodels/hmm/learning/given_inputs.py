"""What EM learns of inputs: transitions by multinomial logistic regression on the inputs of the step they lead to.

The sufficient statistics are the expected transitions of each step beside its inputs; those of two batches stand one
after the other, and each process keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.hmm.learning.logistic import multinomial_logistic
from seqmodels.hmm.parameters import Parameters


def chosen_inputs(choice: Sequence[str] | bool | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs that an argument names: True: all of ``names``; None or False: none."""
    if isinstance(choice, bool) or choice is None:
        return names if choice else ()
    return (choice,) if isinstance(choice, str) else tuple(choice)


@dataclass(frozen=True)
class InputOptions:
    """What is regressed on which of the U inputs of a model.

    Attributes:
        n_inputs: U.
        transition: the columns that transitions are regressed on; none: they are the same at all inputs.
        ridge: of the slopes of transitions: the prior ``-½ ridge Σ slope²``, slopes of a row less their mean.
    """

    n_inputs: int = 0
    transition: tuple[int, ...] = ()
    ridge: float = 0.0

    def started(self, parameters: Parameters) -> Parameters:
        """With slopes of zero."""
        if not self.transition:
            return parameters
        return replace(parameters, transition_slopes=parameters.transition.new_zeros(*self._shape(parameters)))

    def _shape(self, parameters: Parameters) -> tuple[int, int, int]:
        k = len(parameters.initial)
        return k, k, self.n_inputs

    def n_parameters(self, allowed: Tensor, is_free: Tensor) -> int:
        """Free slopes of transitions where ``allowed (K, K)``, of the states whose row ``is_free (K,)``."""
        return len(self.transition) * int((allowed.sum(1) - 1)[is_free].clamp(min=0).sum())

    def log_prior(self, parameters: Parameters) -> float:
        """Nats."""
        if parameters.transition_slopes is None or not self.ridge:
            return 0.0
        total = 0.0
        for row, slopes in zip(parameters.transition > 0, parameters.transition_slopes, strict=True):
            total += float((slopes[row] - slopes[row].mean(0)).square().sum()) if row.any() else 0.0
        return -0.5 * self.ridge * total


@dataclass(frozen=True)
class InputStatistics:
    """Of N steps that have one before: their inputs ``(N, U)``, and expected transitions ``(N, K, K)`` into them."""

    inputs: Tensor
    transitions: Tensor

    def __add__(self, other: InputStatistics) -> InputStatistics:
        return InputStatistics(torch.cat([self.inputs, other.inputs]), torch.cat([self.transitions, other.transitions]))

    def scaled(self, factor: float) -> InputStatistics:
        """Those of ``factor`` times the data."""
        return InputStatistics(self.inputs, factor * self.transitions)

    def arrays(self) -> dict[str, object]:
        """By name, to be stored."""
        return {"inputs": self.inputs.cpu().numpy(), "transitions": self.transitions.cpu().numpy()}


def maximised_transitions(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """``(K, K)`` and ``(K, K, U)``: transitions where all inputs are zero, and their slopes.

    Each row is a regression of its own; the slopes of a state to itself are zero, or to the first that it leads to.

    Args:
        pseudocounts: ``(K, K)`` of transitions where all inputs are zero.
    """
    assert parameters.transition_slopes is not None
    columns = list(options.transition)
    u = statistics.inputs[:, columns].double()
    design = torch.cat([torch.ones_like(u[:, :1]), u], 1)
    transition, slopes = parameters.transition.clone(), parameters.transition_slopes.clone()
    for i in range(len(transition)):
        leads_to = _reference_first(i, (transition[i] > 0).nonzero()[:, 0].tolist())
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


def _reference_first(i: int, states: Sequence[int]) -> list[int]:
    return [i, *(j for j in states if j != i)] if i in states else list(states)
