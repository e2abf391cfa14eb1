"""What EM learns of inputs: the first state and transitions by multinomial logistic regression, emissions by linear or
generalised linear.

The sufficient statistics are the posterior of each step beside its inputs; those of two batches stand one after the
other, and each process keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import finite_start, regression_of
from seqmodels.hmm.emissions.logistic import multinomial_logistic
from seqmodels.hmm.parameters import Parameters

MOST_ITERATIONS = 30  # of a search in an M-step


@dataclass(frozen=True)
class InputOptions:
    """What is regressed on which of the U inputs of a model.

    Attributes:
        n_inputs: U.
        transition: the columns that transitions are regressed on; none: they are the same at all inputs.
        emission: the same of emissions.
        ridge: of the slopes of transitions and of the first state: the prior ``-½ ridge Σ slope²``, slopes of a row
            less their mean.
        start: the columns that the first state is regressed on.
    """

    n_inputs: int = 0
    transition: tuple[int, ...] = ()
    emission: tuple[int, ...] = ()
    ridge: float = 0.0
    start: tuple[int, ...] = ()

    def started(self, parameters: Parameters, emission: Emission) -> Parameters:
        """With slopes of zero."""
        if self.start:
            of_first = parameters.initial.new_zeros(len(parameters.initial), self.n_inputs)
            parameters = replace(parameters, initial_slopes=of_first)
        if self.transition:
            slopes = parameters.transition.new_zeros(*parameters.transition.shape, self.n_inputs)
            parameters = replace(parameters, transition_slopes=slopes)
        if self.emission:
            table = finite_start(emission.observation, parameters.table)
            parameters = replace(parameters, table=table, table_slopes=table.new_zeros(*table.shape, self.n_inputs))
        return parameters

    def n_parameters(
        self, n_first: int, allowed: Tensor, is_free: Tensor, emits_freely: Tensor, emission: Emission
    ) -> int:
        """Free slopes: of ``n_first`` first states, of transitions where ``allowed (K, K)`` of the states whose row
        ``is_free (K,)``, and of emissions of those that ``emits_freely (K,)``.
        """
        of_first = len(self.start) * max(0, n_first - 1)
        of_transitions = len(self.transition) * int((allowed.sum(1) - 1)[is_free].clamp(min=0).sum())
        if not self.emission:
            return of_first + of_transitions
        n_free = regression_of(emission.observation, emission.size).n_free
        return of_first + of_transitions + len(self.emission) * n_free * int(emits_freely.sum())

    def free_slopes(self, parameters: Parameters, emission: Emission) -> tuple[Tensor, Tensor, Tensor]:
        """Which slopes of transitions ``(K, K, U)``, of the table ``(K, P, U)`` and of the first state ``(K, U)`` are
        learned: none of a reference, and none that ``transition``, ``emission`` and ``start`` leave out.
        """
        of_table = torch.zeros_like(parameters.table, dtype=torch.bool)
        if self.emission:
            regression = regression_of(emission.observation, emission.size)
            for each in regression.location:
                of_table[:, each] = True
            if regression.n_free < emission.size:  # of symbols the first is the reference
                of_table[:, 0] = False
        rows = has_transition_slope(parameters.transition), of_table, has_initial_slope(parameters.initial)
        columns = (self.transition, self.emission, self.start)
        free = []
        for of_row, which in zip(rows, columns, strict=True):
            is_read = torch.zeros(self.n_inputs, dtype=torch.bool, device=of_row.device)
            is_read[list(which)] = True
            free.append(of_row.unsqueeze(-1) & is_read)
        return free[0], free[1], free[2]

    def log_prior(self, parameters: Parameters) -> Tensor:
        """``()`` log p of the slopes of transitions and of the first state under the Gaussian of ``ridge``, in nats, up
        to a constant.
        """
        total = parameters.transition.new_zeros(())
        rows: list[tuple[Tensor, Tensor]] = []
        if parameters.transition_slopes is not None:
            rows += zip(parameters.transition > 0, parameters.transition_slopes, strict=True)
        if parameters.initial_slopes is not None:
            rows.append((parameters.initial > 0, parameters.initial_slopes))
        for row, slopes in rows if self.ridge else ():
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
        first_inputs: (n, U) of the first step of n sequences.
        first: (n, K) float64, the posterior of their first states.
    """

    inputs: Tensor
    transitions: Tensor | None = None
    x: Tensor | None = None
    past: Tensor | None = None
    gamma: Tensor | None = None
    first_inputs: Tensor | None = None
    first: Tensor | None = None

    def __add__(self, other: InputStatistics) -> InputStatistics:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return InputStatistics(**{name: torch.cat(pair) for name, pair in pairs.items() if pair[0] is not None})

    def scaled(self, factor: float) -> InputStatistics:
        """Those of ``factor`` times the data."""
        posteriors = (self.transitions, self.gamma, self.first)
        transitions, gamma, first = (None if each is None else factor * each for each in posteriors)
        return replace(self, transitions=transitions, gamma=gamma, first=first)


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
    design = design_of(statistics.inputs, columns)
    transition, slopes = parameters.transition.clone(), parameters.transition_slopes.clone()
    for i in range(len(transition)):
        leads_to = reference_first(i, (transition[i] > 0).nonzero()[:, 0].tolist())
        counts = statistics.transitions[:, i].double()
        _maximise_row(transition[i], slopes[i], leads_to, columns, counts, design, pseudocounts[i], options.ridge)
    return transition, slopes


def maximised_initial(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """``(K,)`` and ``(K, U)``: the first state's distribution where all inputs are zero, and its slopes; those of the
    first possible state are zero.

    Args:
        pseudocounts: ``(K,)`` of first states where all inputs are zero.
    """
    assert parameters.initial_slopes is not None
    assert statistics.first is not None
    assert statistics.first_inputs is not None
    columns, design = list(options.start), design_of(statistics.first_inputs, list(options.start))
    initial, slopes = parameters.initial.clone(), parameters.initial_slopes.clone()
    states, counts = (initial > 0).nonzero()[:, 0].tolist(), statistics.first.double()
    _maximise_row(initial, slopes, states, columns, counts, design, pseudocounts, options.ridge)
    return initial, slopes


def design_of(inputs: Tensor, columns: list[int]) -> Tensor:
    """``(N, 1 + F)``: ones, then the inputs of these columns."""
    u = inputs[:, columns].double()
    return torch.cat([torch.ones_like(u[:, :1]), u], 1)


def _maximise_row(
    row: Tensor,
    slopes: Tensor,
    states: list[int],
    columns: list[int],
    counts: Tensor,
    design: Tensor,
    pseudocounts: Tensor,
    ridge: float,
) -> None:
    """Put the regression of a distribution over ``states``, of which the first is the reference, into ``row (K,)`` and
    ``slopes (K, U)``; of one state there is nothing to learn.

    Args:
        counts: (N, K) expected of each state.
        design: (N, 1 + F), of F ``columns``.
        pseudocounts: (K,) where all inputs are zero.
        ridge: as of ``InputOptions``.
    """
    if len(states) < 2:
        return
    before = torch.cat([row[states].log()[:, None], slopes[states][:, columns]], 1)
    at_zero = pseudocounts[states]
    fitted = multinomial_logistic(counts[:, states], design, before - before[:1], ridge=ridge, at_zero=at_zero)
    row[states] = torch.softmax(fitted[:, 0], 0)
    new_slopes = slopes.new_zeros(len(states), slopes.shape[1])
    new_slopes[:, columns] = fitted[:, 1:]
    slopes[states] = new_slopes


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


def relative_to_references(parameters: Parameters) -> Parameters:
    """The same probabilities, where the slopes of each reference are zero, and those of what is impossible."""
    of_transitions, of_first = parameters.transition_slopes, parameters.initial_slopes
    if of_transitions is not None:
        of_transitions = of_transitions.clone()
        for i, row in enumerate(parameters.transition > 0):
            states = reference_first(i, row.nonzero()[:, 0].tolist())
            if states:
                of_transitions[i] = torch.where(row[:, None], of_transitions[i] - of_transitions[i, states[0]], 0.0)
    if of_first is not None:
        is_possible = parameters.initial > 0
        of_first = torch.where(is_possible[:, None], of_first - of_first[is_possible][0], 0.0)
    return replace(parameters, transition_slopes=of_transitions, initial_slopes=of_first)


def has_transition_slope(transition: Tensor) -> Tensor:
    """``(K, K)`` bool: all possible transitions of a row but its reference."""
    result = transition > 0
    for i, row in enumerate(result):
        states = reference_first(i, row.nonzero()[:, 0].tolist())
        row[states[:1]] = False
    return result


def has_initial_slope(initial: Tensor) -> Tensor:
    """``(K,)`` bool: all possible first states but the first of them."""
    result = initial > 0
    result[int(result.nonzero()[0])] = False
    return result


def reference_first(i: int, states: Sequence[int]) -> list[int]:
    """The ``states`` that state i leads to, that one first to which the slopes of others are relative."""
    return [i, *(j for j in states if j != i)] if i in states else list(states)
