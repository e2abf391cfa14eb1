"""M-steps of probabilities and emissions that depend on inputs, by regression.

First states and transitions are multinomial logistic regressions; emissions are linear or generalised linear ones. The
sufficient statistics are the posterior of each step beside its inputs. Adding the statistics of two batches
concatenates them, and each process keeps its own.
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

MOST_ITERATIONS = 30  # iterations of one search in an M-step


@dataclass(frozen=True)
class InputOptions:
    """The columns of the inputs on which each part of a model is regressed, and the prior of the slopes.

    Attributes:
        n_inputs: number of inputs of the model, U.
        transition: columns that transitions are regressed on; empty if transitions do not depend on inputs.
        emission: columns that emissions are regressed on; empty if emissions do not depend on inputs.
        ridge: precision of the Gaussian prior of the slopes of transitions and of the first state, ``-½ ridge Σ
            slope²``, where slopes are taken relative to the mean of their row.
        start: columns that the first state is regressed on; empty if it does not depend on inputs.
    """

    n_inputs: int = 0
    transition: tuple[int, ...] = ()
    emission: tuple[int, ...] = ()
    ridge: float = 0.0
    start: tuple[int, ...] = ()

    def started(self, parameters: Parameters, emission: Emission) -> Parameters:
        """Return ``parameters`` with slopes of zero for everything that is regressed on inputs."""
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
        """Return the number of free slopes.

        Args:
            n_first: number of states that may be the first; 0 if their distribution is frozen.
            allowed: True for possible transitions, ``(K, K)``.
            is_free: True for states whose transitions are not frozen, ``(K,)``.
            emits_freely: True for states whose emission is not frozen, ``(K,)``.
            emission: the emission, which knows how many numbers of a state depend on inputs.
        """
        of_first = len(self.start) * max(0, n_first - 1)
        of_transitions = len(self.transition) * int((allowed.sum(1) - 1)[is_free].clamp(min=0).sum())
        if not self.emission:
            return of_first + of_transitions
        n_free = regression_of(emission.observation, emission.size).n_free
        return of_first + of_transitions + len(self.emission) * n_free * int(emits_freely.sum())

    def free_slopes(self, parameters: Parameters, emission: Emission) -> tuple[Tensor, Tensor, Tensor]:
        """Return masks of the slopes that are learned, for transitions, the table and the first state.

        The shapes are ``(K, K, U)``, ``(K, P, U)`` and ``(K, U)``. Slopes of reference categories, and of inputs that
        the options do not name, are False.
        """
        of_table = torch.zeros_like(parameters.table, dtype=torch.bool)
        if self.emission:
            regression = regression_of(emission.observation, emission.size)
            of_table[:, regression.places] = True
            if regression.has_reference:
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
        """Return the log-density of the prior of the slopes in nats, up to a constant, as a scalar tensor."""
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
    """Posterior of each of N steps beside its inputs, as the regressions of an M-step read them.

    An attribute is None if no regression of the model reads it.

    Attributes:
        inputs: inputs of each step, ``(N, U)``.
        transitions: expected transitions into each step, ``(N, K, K)`` float64; zeros for first steps.
        x: encoded frames or symbols, ``(N, ...)``.
        past: frames before each frame, ``(N, p, D)``.
        gamma: posterior of the states of each step, ``(N, K)`` float64.
        first_inputs: inputs of the first step of each of n sequences, ``(n, U)``.
        first: posterior of the first state of each sequence, ``(n, K)`` float64.
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
        """Return the statistics with posteriors multiplied by ``factor``, as if the data had that weight."""
        posteriors = (self.transitions, self.gamma, self.first)
        transitions, gamma, first = (None if each is None else factor * each for each in posteriors)
        return replace(self, transitions=transitions, gamma=gamma, first=first)


def maximised_transitions(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """Return the transition matrix at inputs of zero, ``(K, K)``, and slopes of its logits, ``(K, K, U)``.

    Each row is a multinomial logistic regression, fitted in one M-step. Slopes are relative to a reference, whose slope
    is zero: the state itself, or the first state that it leads to if it does not lead to itself.

    Args:
        parameters: the parameters before the M-step.
        statistics: expected transitions and inputs of each step.
        pseudocounts: counts added to transitions at inputs of zero, ``(K, K)``.
        options: which inputs the transitions depend on, and the ridge.
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
    """Return the distribution of the first state at inputs of zero, ``(K,)``, and the slopes of its logits, ``(K,
    U)``.

    The first possible state is the reference, whose slope is zero.

    Args:
        parameters: the parameters before the M-step.
        statistics: posteriors and inputs of the first steps.
        pseudocounts: counts added to first states at inputs of zero, ``(K,)``.
        options: which inputs the first state depends on, and the ridge.
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
    """Return regressors of each step, ``(N, 1 + F)`` float64: a one, then the inputs in the F ``columns``."""
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
    """Fit a distribution over ``states`` by regression, and write it into ``row`` and ``slopes``.

    Nothing changes if there are fewer than two states.

    Args:
        row: probabilities at inputs of zero, ``(K,)``; is overwritten.
        slopes: slopes of the logits, ``(K, U)``; is overwritten.
        states: possible states; the first of them is the reference.
        columns: the F columns of the inputs that are read.
        counts: expected counts of each state at each step, ``(N, K)``.
        design: regressors of each step, ``(N, 1 + F)``.
        pseudocounts: counts added at inputs of zero, ``(K,)``.
        ridge: precision of the Gaussian prior of the slopes.
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
    """Return output parameters at inputs of zero, ``(K, P)``, and their slopes, ``(K, P, U)``, after an M-step.

    Each state is a regression of its own.
    """
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
    """Return parameters with the same probabilities, in which the slopes of references and impossible states are
    zero.
    """
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
    """Return a mask ``(K, K)`` that is True for possible transitions other than the reference of their row."""
    result = transition > 0
    for i, row in enumerate(result):
        states = reference_first(i, row.nonzero()[:, 0].tolist())
        row[states[:1]] = False
    return result


def has_initial_slope(initial: Tensor) -> Tensor:
    """Return a mask ``(K,)`` that is True for every possible first state but the first one, which is the reference."""
    result = initial > 0
    result[int(result.nonzero()[0])] = False
    return result


def reference_first(i: int, states: Sequence[int]) -> list[int]:
    """Return the ``states`` that state i leads to, with the reference first: state i itself if it is one of them."""
    return [i, *(j for j in states if j != i)] if i in states else list(states)
