"""M-steps of probabilities and emissions that depend on inputs, by regression.

First states and transitions are multinomial logistic regressions; emissions are linear or generalised linear ones; for
durations see ``hmm.semi_markov.duration_regression``. The sufficient statistics are the posterior of each step beside
its inputs. Adding the statistics of two batches concatenates them, and each process keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import finite_start, regressed_columns, regression_of
from seqmodels.hmm.emissions.logistic import multinomial_logistic, poisson_regression
from seqmodels.hmm.learning.constraints import Tying
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import generator_of, without_diagonal

Part = Literal["transition", "emission", "start", "duration"]  # the parts of a model that may depend on inputs
OBSERVED = ("inputs", "x", "past", "first_inputs", "path_inputs")  # fields of ``InputStatistics`` that are no counts


@dataclass(frozen=True)
class PenalisedColumns:
    """The columns of one penalised term in the regression of one part of a model.

    Attributes:
        part: the part: transitions, emissions, the first state or durations.
        label: name of the term.
        columns: columns of the inputs whose slopes are drawn from one normal distribution.
        linear: columns of inputs of the term whose slopes have no penalty.
        new: column of the groups that were not among the training sequences, whose slopes have the same distribution
            and are not estimated; None if the term has no groups.
    """

    part: Part
    label: str
    columns: tuple[int, ...]
    linear: tuple[int, ...] = ()
    new: int | None = None


@dataclass(frozen=True)
class InputOptions:
    """The inputs (covariates) that each part of a hidden Markov model is regressed on, and the prior of the slopes.

    Attributes:
        n_inputs: number of inputs of the model, U.
        transition: columns of the inputs that transitions are regressed on; empty if transitions do not depend on
            inputs.
        emission: columns of the inputs that emissions are regressed on; empty if emissions do not depend on inputs.
        ridge: precision of the Gaussian prior of the slopes of transitions, of the first state and of durations,
            ``-½ ridge Σ slope²``, where the mean over the row is subtracted from those of probabilities.
        start: columns of the inputs that the first state is regressed on; empty if it does not depend on inputs.
        terms: those of these columns whose slopes are penalised, term by term.
        duration: columns of the inputs that durations are regressed on; empty if they do not depend on inputs.
    """

    n_inputs: int = 0
    transition: tuple[int, ...] = ()
    emission: tuple[int, ...] = ()
    ridge: float = 0.0
    start: tuple[int, ...] = ()
    terms: tuple[PenalisedColumns, ...] = ()
    duration: tuple[int, ...] = ()

    @property
    def without_terms(self) -> InputOptions:
        """The options without penalised terms, under which EM fits the model before their variances are estimated."""
        if not self.terms:
            return self

        def rest(part: Part, columns: tuple[int, ...]) -> tuple[int, ...]:
            of_terms = {column for term in self.terms if term.part == part for column in term.columns}
            return tuple(column for column in columns if column not in of_terms)

        of_parts = (rest("transition", self.transition), rest("emission", self.emission), rest("start", self.start))
        of_durations = rest("duration", self.duration)
        return InputOptions(self.n_inputs, *of_parts[:2], self.ridge, of_parts[2], duration=of_durations)

    def started(self, parameters: Parameters, emission: Emission) -> Parameters:
        """Return ``parameters`` with slopes of zero for everything that is regressed on inputs and has no slopes yet,
        with which a fit starts.
        """
        if self.start and parameters.initial_slopes is None:
            of_first = parameters.initial.new_zeros(len(parameters.initial), self.n_inputs)
            parameters = replace(parameters, initial_slopes=of_first)
        if self.transition and parameters.transition_slopes is None:
            slopes = parameters.transition.new_zeros(*parameters.transition.shape, self.n_inputs)
            parameters = replace(parameters, transition_slopes=slopes)
        if self.duration and parameters.duration_slopes is None:
            of_durations = parameters.initial.new_zeros(len(parameters.initial), self.n_inputs)
            parameters = replace(parameters, duration_slopes=of_durations)
        if self.emission and parameters.table_slopes is None:
            table = parameters.table.clone()
            observed = emission.observed(table)
            observed.copy_(finite_start(emission.observation, observed))
            parameters = replace(parameters, table=table, table_slopes=table.new_zeros(*table.shape, self.n_inputs))
        return parameters

    def joined(self, parameters: Parameters, emission: Emission) -> Parameters:
        """Return ``parameters`` with slopes of emissions as columns of the table after the output parameters.

        So conjugate families hold them, for models of which emissions alone depend on inputs, on all U of them. There
        are U columns for each location, zero if ``parameters`` have no slopes.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission distribution.
        """
        if not self.emission:
            return parameters
        table, slopes = parameters.table, parameters.table_slopes
        n, places = emission.observation.n_output_parameters(emission.size), regressed_columns(emission).places
        of_places = table.new_zeros(len(table), len(places) * self.n_inputs)
        if slopes is not None:
            of_places = slopes[:, places].flatten(1)
        return replace(parameters, table=torch.cat([table[:, :n], of_places, table[:, n:]], 1), table_slopes=None)

    def parted(self, parameters: Parameters, emission: Emission) -> Parameters:
        """Return ``parameters`` whose slopes are columns of the table with slopes of their own: undo ``joined``."""
        if not self.emission:
            return parameters
        n, places = emission.observation.n_output_parameters(emission.size), regressed_columns(emission).places
        outputs, of_places, others = parameters.table.tensor_split([n, n + len(places) * self.n_inputs], 1)
        table = torch.cat([outputs, others], 1)
        slopes = table.new_zeros(*table.shape, self.n_inputs)
        slopes[:, places] = of_places.unflatten(1, (len(places), self.n_inputs))
        return replace(parameters, table=table, table_slopes=slopes)

    def as_regressors(self, batch: PackedBatch) -> PackedBatch:
        """Return ``batch`` with the inputs of each frame beside its past, ``(N, pD + U)``, if emissions read inputs."""
        if not self.emission:
            return batch
        assert batch.inputs is not None
        past = batch.inputs if batch.past is None else torch.cat([batch.past.flatten(1), batch.inputs], 1)
        return replace(batch, past=past, inputs=None)

    def n_parameters(
        self, n_first: int, allowed: Tensor, is_free: Tensor, emits_freely: Tensor, emission: Emission
    ) -> int:
        """Return the number of free slopes of a model of K states.

        Args:
            n_first: number of states that may be the first; 0 if their distribution is frozen.
            allowed: True for possible transitions, ``(K, K)``.
            is_free: True for states whose transitions are not frozen, ``(K,)``.
            emits_freely: True for states whose emission is not frozen, ``(K,)``.
            emission: the emission distribution, which knows how many numbers of a state depend on inputs.
        """
        of_first = len(self.start) * max(0, n_first - 1)
        of_transitions = len(self.transition) * int((allowed.sum(1) - 1)[is_free].clamp(min=0).sum())
        if not self.emission:
            return of_first + of_transitions
        n_free = regressed_columns(emission).n_free
        return of_first + of_transitions + len(self.emission) * n_free * int(emits_freely.sum())

    def free_slopes(self, parameters: Parameters, emission: Emission) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return masks of the slopes that are learned, for transitions, output parameters, first state and durations.

        The shapes are ``(K, K, U)``, ``(K, P, U)`` and twice ``(K, U)``, for K states, P output parameters of a state,
        and U inputs. Slopes of reference categories, which are fixed at zero, and of inputs that the options do not
        name, are False.
        """
        of_table = torch.zeros_like(parameters.table, dtype=torch.bool)
        if self.emission:
            regression = regressed_columns(emission)
            of_table[:, regression.places] = True
            if regression.has_reference:
                of_table[:, 0] = False
        of_first = has_initial_slope(parameters.initial)
        rows = has_transition_slope(parameters), of_table, of_first, torch.ones_like(of_first)
        columns = (self.transition, self.emission, self.start, self.duration)
        free = []
        for of_row, which in zip(rows, columns, strict=True):
            is_read = torch.zeros(self.n_inputs, dtype=torch.bool, device=of_row.device)
            is_read[list(which)] = True
            free.append(of_row.unsqueeze(-1) & is_read)
        return free[0], free[1], free[2], free[3]

    def log_prior(self, parameters: Parameters) -> Tensor:
        """Return the log-density of the prior of slopes on inputs in nats, up to a constant, as a scalar tensor."""
        total = parameters.transition.new_zeros(())
        if parameters.duration_slopes is not None:
            total = total + parameters.duration_slopes[:, list(self.without_terms.duration)].square().sum()
        rows: list[tuple[Tensor, Tensor]] = []
        if parameters.transition_slopes is not None and parameters.generator is not None:
            total = total + parameters.transition_slopes.square().sum()
        elif parameters.transition_slopes is not None:
            slopes = parameters.transition_slopes
            linear = slopes[..., list(self.without_terms.transition)] if self.terms else slopes
            rows += zip(parameters.transition > 0, linear, strict=True)
        if parameters.initial_slopes is not None:
            slopes = parameters.initial_slopes
            linear = slopes[..., list(self.without_terms.start)] if self.terms else slopes
            rows.append((parameters.initial > 0, linear))
        for row, slopes in rows if self.ridge else ():
            if row.any():
                total = total + (slopes[row] - slopes[row].mean(0)).square().sum()
        return -0.5 * self.ridge * total


@dataclass(frozen=True)
class InputStatistics:
    """The sufficient statistics of regressions on inputs: for each of N steps its inputs and the posterior of its
    state.

    An attribute is None if no regression of the model reads it.

    Attributes:
        inputs: inputs of each step, ``(N, U)``.
        transitions: expected transitions into each step, ``(N, K, K)`` float64; zeros for first steps.
        x: encoded frames or symbols, ``(N, ...)``.
        past: frames before each frame, ``(N, p, D)``.
        gamma: posterior of the states of each step, ``(N, K)`` float64.
        first_inputs: inputs of the first step of each of n sequences, ``(n, U)``.
        first: posterior of the first state of each sequence, ``(n, K)`` float64.
        path_inputs: in continuous time the F inputs that rates depend on, for each of G gaps between steps, ``(G, F)``.
        paths: expected jumps within each gap, with the expected times in each state on the diagonal, ``(G, K, K)``.
        segments: expected number of segments of an ``HSMM`` that begin at each step, ``(N, K)`` float64.
        segment_steps: expected number of steps, all but the first, of these segments in full, ``(N, K)``.
        biased: the same number of first segments that may have begun before their sequence, ``(n, K)``.
        biased_steps: expected number of steps, all but the first, of these segments in full, ``(n, K)``.
        duration_counts: expected number of all these segments of each full duration, for each of B batches,
            ``(B, K, D)``.
    """

    inputs: Tensor
    transitions: Tensor | None = None
    x: Tensor | None = None
    past: Tensor | None = None
    gamma: Tensor | None = None
    first_inputs: Tensor | None = None
    first: Tensor | None = None
    path_inputs: Tensor | None = None
    paths: Tensor | None = None
    segments: Tensor | None = None
    segment_steps: Tensor | None = None
    biased: Tensor | None = None
    biased_steps: Tensor | None = None
    duration_counts: Tensor | None = None

    @classmethod
    def of_batch(
        cls, parameters: Parameters, batch: PackedBatch, gamma: Tensor, first: Tensor, transitions: Tensor | None
    ) -> InputStatistics | None:
        """Return the statistics that the regressions of ``parameters`` need; None if the sequences have no inputs.

        Args:
            parameters: the parameters, which have slopes for everything that is regressed on inputs.
            batch: N steps of n sequences, with K states.
            gamma: posterior of the states of each step, ``(N, K)``.
            first: posterior of the first state of each sequence, ``(n, K)``.
            transitions: expected transitions into each step, ``(N, K, K)``; None if they do not depend on inputs.
        """
        if batch.inputs is None:
            return None
        result = cls(batch.inputs, transitions)
        if parameters.initial_slopes is not None:
            result = replace(result, first_inputs=batch.first_inputs, first=first.double())
        if parameters.table_slopes is not None:
            result = replace(result, x=batch.x, past=batch.past, gamma=gamma.double())
        return result

    def __add__(self, other: InputStatistics) -> InputStatistics:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return InputStatistics(**{name: torch.cat(pair) for name, pair in pairs.items() if pair[0] is not None})

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the attributes that are not None as arrays by name, for a checkpoint."""
        each = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: tensor.cpu().numpy() for name, tensor in each.items() if tensor is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], device: torch.device) -> InputStatistics:
        """Return the statistics that a checkpoint stores as ``arrays``, with tensors on ``device``."""
        return cls(**{name: torch.tensor(array, device=device) for name, array in arrays.items()})

    def scaled(self, factor: float) -> InputStatistics:
        """Return the statistics with posteriors multiplied by ``factor``, as if the data had that weight."""
        posteriors = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in OBSERVED}
        return replace(self, **{name: factor * each for name, each in posteriors.items() if each is not None})


def maximised_transitions(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """Return the transition matrix at inputs of zero, ``(K, K)``, and the slopes of its logits on U inputs, ``(K, K,
    U)``.

    It is the M-step of transitions that depend on inputs: each row is a multinomial logistic regression. Slopes are
    relative to a reference, whose slope is zero: the state itself, or the first state that it leads to if it does not
    lead to itself.

    Args:
        parameters: the parameters before the M-step.
        statistics: expected transitions and inputs of each step.
        pseudocounts: counts added to transitions at inputs of zero, ``(K, K)``.
        options: which inputs the transitions depend on, and the strength of the prior of slopes.
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


def maximised_rates(
    parameters: Parameters, statistics: InputStatistics, is_free: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """Return the generator of a chain in continuous time at inputs of zero, and the slopes of its log-rates: the
    M-step.

    The shapes are ``(K, K)`` and ``(K, K, U)``, for K states and U inputs. Each rate q is a Poisson regression of the
    expected number n_g of jumps within gap g between two steps on its inputs u_g, with the expected time τ_g in the
    state as exposure: ``Σ_g (n_g log q(u_g) - τ_g q(u_g)) - ½ ridge Σ w²`` with ``log q(u) = b + w · u`` is concave. A
    rate without expected jumps becomes zero, and a state without expected time keeps its rates.

    Args:
        parameters: the parameters before the M-step.
        statistics: expected jumps and times of each gap, and its inputs.
        is_free: False for those of the K states whose rates stay unchanged, ``(K,)``.
        options: which inputs the rates depend on, and the strength of the prior of slopes.
    """
    assert parameters.generator is not None
    assert parameters.transition_slopes is not None
    assert statistics.paths is not None
    assert statistics.path_inputs is not None
    columns, paths = list(options.transition), statistics.paths
    design = design_of(statistics.path_inputs, list(range(len(columns))))
    rates, slopes = without_diagonal(parameters.generator), parameters.transition_slopes.clone()
    (sums,), _ = all_reduce_sum([paths.sum(0)])
    for k, j in (has_transition_slope(parameters) & (is_free & (sums.diagonal() > 0))[:, None]).nonzero().tolist():
        before = torch.cat([rates[k, j].log()[None], slopes[k, j, columns]])
        if sums[k, j] > 0:
            fitted = poisson_regression(paths[:, k, j], paths[:, k, k], design, before, ridge=options.ridge)
            rates[k, j], slopes[k, j, columns] = fitted[0].exp(), fitted[1:]
        else:
            rates[k, j], slopes[k, j] = 0.0, 0.0
    return generator_of(rates), slopes


def maximised_initial(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """Return the distribution of the first state at inputs of zero, ``(K,)``, and slopes of its logits, ``(K, U)``.

    U is the number of inputs. This is the M-step of a first state that depends on inputs, a multinomial logistic
    regression. The first possible state is the reference, whose slope is zero.

    Args:
        parameters: the parameters before the M-step.
        statistics: posteriors and inputs of the first steps.
        pseudocounts: counts added to first states at inputs of zero, ``(K,)``.
        options: which inputs the first state depends on, and the strength of the prior of slopes.
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
    """Return the regressors of each of N steps, ``(N, 1 + F)`` float64: a one, then the inputs in the F ``columns``."""
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
    parameters: Parameters, statistics: InputStatistics, emission: Emission, tying: Tying, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """Return output parameters at inputs of zero, ``(K, P)``, and their slopes on U inputs, ``(K, P, U)``: the
    M-step.

    Each group of states that share an emission is a regression of its own, in which a step counts with the sum of their
    posteriors. Parameters of a state that do not belong to the emission, such as those of durations, do not change.

    Args:
        parameters: the parameters before the M-step, with P output parameters of each of K states.
        statistics: frames, inputs and posterior of each step.
        emission: the emission distribution.
        tying: which states share an emission.
        options: which inputs the emissions depend on.
    """
    assert parameters.table_slopes is not None
    assert statistics.x is not None
    assert statistics.gamma is not None
    columns, regression = list(options.emission), regression_of(emission.observation, emission.size)
    inputs = statistics.inputs[:, columns].double()
    x = statistics.x.double() if statistics.x.is_floating_point() else statistics.x
    table, slopes = parameters.table.clone(), parameters.table_slopes.clone()
    rows, slopes_of_rows = (tying.one_each(emission.observed(each)) for each in (table, slopes))
    is_frozen = None if emission.frozen_states is None else tying.one_each(emission.frozen_states)
    (gammas,) = tying.pool((statistics.gamma.double().T.contiguous(),))
    free = torch.ones(len(rows), dtype=torch.bool) if is_frozen is None else ~is_frozen.cpu()
    if free.any():
        before = (rows[free], slopes_of_rows[free][:, :, columns])
        updated = regression.maximise_all(*before, x, statistics.past, inputs, gammas[free])
        rows[free] = updated[0]
        of_free = slopes_of_rows[free]
        of_free[:, :, columns] = updated[1]
        slopes_of_rows[free] = of_free
    emission.observed(table).copy_(tying.spread(rows))
    emission.observed(slopes).copy_(tying.spread(slopes_of_rows))
    return table, slopes


def relative_to_references(parameters: Parameters) -> Parameters:
    """Return parameters of the same model in which the slopes of reference categories and of impossible states are
    zero.

    The reference is the category of a multinomial regression relative to which the others are measured. For a row of
    transitions it is the state itself, if that is possible, else the first possible state.
    """
    of_transitions, of_first = parameters.transition_slopes, parameters.initial_slopes
    if of_transitions is not None and parameters.generator is not None:
        of_transitions = torch.where(has_transition_slope(parameters)[:, :, None], of_transitions, 0.0)
    elif of_transitions is not None:
        of_transitions = of_transitions.clone()
        for i, row in enumerate(parameters.transition > 0):
            states = reference_first(i, row.nonzero()[:, 0].tolist())
            if states:
                of_transitions[i] = torch.where(row[:, None], of_transitions[i] - of_transitions[i, states[0]], 0.0)
    if of_first is not None:
        is_possible = parameters.initial > 0
        of_first = torch.where(is_possible[:, None], of_first - of_first[is_possible][0], 0.0)
    return replace(parameters, transition_slopes=of_transitions, initial_slopes=of_first)


def has_transition_slope(parameters: Parameters) -> Tensor:
    """Return a mask ``(K, K)`` of the transitions that have slopes on inputs.

    These are all possible ones but the reference category of their row. The reference, whose slopes are zero, is the
    state itself or, if that is impossible, the first possible state.

    In continuous time it is True for the rates that are not zero.
    """
    if parameters.generator is not None:
        return without_diagonal(parameters.generator) > 0
    result = parameters.transition > 0
    for i, row in enumerate(result):
        states = reference_first(i, row.nonzero()[:, 0].tolist())
        row[states[:1]] = False
    return result


def has_initial_slope(initial: Tensor) -> Tensor:
    """Return a mask ``(K,)`` that is True for first states that have slopes on inputs.

    These are all states with a positive probability in ``initial (K,)`` but the first of them, the reference category.
    """
    result = initial > 0
    result[int(result.nonzero()[0])] = False
    return result


def reference_first(i: int, states: Sequence[int]) -> list[int]:
    """Return the ``states`` that state i leads to, reordered so that state i itself comes first if it is one of them.

    The first is then the reference category of the regression of a row of transitions.
    """
    return [i, *(j for j in states if j != i)] if i in states else list(states)
