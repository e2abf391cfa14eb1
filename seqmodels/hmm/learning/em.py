"""Baum-Welch: EM for hidden Markov models (Baum et al. 1970; Rabiner 1989, section III.C).

The E-step sums, over all sequences, the expected counts of initial states, transitions and ends and the sufficient
statistics of the emissions; the M-step divides them. Together they increase ``log p(x) + log prior``
(``MAPObjective``). ``BaumWelch`` is the ``EMProblem`` that ``training.run_em`` runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum, is_distributed
from seqmodels.hmm.corpus import PackedBatch, refuse
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.learning.constraints import Constraints, Tying
from seqmodels.hmm.learning.first_state import Start, log_stationary, stationary_initial, stationary_rows
from seqmodels.hmm.learning.given_inputs import (
    InputOptions,
    InputStatistics,
    maximised_emissions,
    maximised_initial,
    maximised_transitions,
)
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.learning.stationary_given_inputs import maximised_stationary_transitions
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.threads import in_threads
from seqmodels.training import Interruption, Row

LEAST_WEIGHT = 0.05  # weight of a batch, relative to the newest, up to which regressions on inputs forget it

# -- what is maximised ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MAPObjective:
    """The objective ``log p(x) + log prior`` of maximum a posteriori EM, and the units in which the history reports it.

    Attributes:
        emission: the emission distribution whose parameters EM estimates.
        pseudocount: Dirichlet priors of the chain's probabilities; the emission has a prior of its own.
        constraints: parameters that the M-step leaves unchanged, and states that share one emission distribution.
        n_units: number of raw units of the training data, each counted with the weight of its sequence.
        log_det: log-determinant of the encoding over the weighted data, in nats, which is added to ``log p`` of encoded
            data to get that of raw data.
        start: how the distribution of the first state is determined.
        inputs: probabilities and emissions that are regressed on inputs.
    """

    emission: Emission
    pseudocount: Pseudocounts
    constraints: Constraints
    n_units: float
    log_det: float
    start: Start = "free"
    inputs: InputOptions = field(default_factory=InputOptions)

    def log_prior(self, parameters: Parameters) -> float:
        """Return the log-density of the prior at ``parameters`` in nats, up to a constant."""
        return float(self.log_prior_of(parameters))

    def log_prior_of(self, parameters: Parameters) -> Tensor:
        """Return the log-density of the prior at ``parameters`` in nats, up to a constant, as a differentiable scalar.

        An emission that several states share counts once.
        """
        tying = self.constraints.tying
        table = parameters.table if tying.is_free else tying.one_each(parameters.table)
        of_tables = self.emission.log_prior(table) + self.pseudocount.log_prior(parameters)
        return of_tables + self.inputs.log_prior(parameters)

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """Return a row of the fit's ``history_``: log-probability and objective, in nats per frame, byte or symbol.

        Args:
            step: number of the step.
            seconds: time since the start of the run.
            log_prob: log-probability of the encoded data, in nats.
            log_prior: log-density of the prior, in nats.
            table: P output parameters of each of K states, ``(K, P)``, from which states with a variance at its lower
                bound are counted.
        """
        return self.figures(step, seconds, log_prob, log_prior, int(self.emission.floor_hits(table).sum()))

    def figures(self, step: float, seconds: float, log_prob: float, log_prior: float, floor_hits: int) -> Row:
        """Return a row of the fit's ``history_``: log-probability and objective, in nats per frame, byte or symbol.

        Args:
            step: number of the step.
            seconds: time since the start of the run.
            log_prob: log-probability of the encoded data, in nats.
            log_prior: log-density of the prior, in nats.
            floor_hits: number of states with a variance at its lower bound.
        """
        per_unit = (log_prob + self.log_det) / self.n_units
        return {
            "step": step,
            "seconds": seconds,
            "log_prob": per_unit,
            "objective": per_unit + log_prior / self.n_units,
            "floor_hits": floor_hits,
        }

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the parameters that maximise the expected log-probability plus the log-prior: the M-step.

        Args:
            parameters: parameters before the M-step.
            expectations: expected counts under them, the result of the E-step.
        """
        return m_step(parameters, expectations, self)


@dataclass(frozen=True)
class OwnMStep:
    """Base class of EM objectives with an M-step of their own; prior and history rows are those of an HMM's objective.

    To add one, subclass it and define the method ``maximised``, the M-step.

    Attributes:
        of_chain: the objective of an HMM with the same emission, constraints and units.
    """

    of_chain: MAPObjective

    @property
    def emission(self) -> Emission:
        """The emission distribution whose parameters EM estimates."""
        return self.of_chain.emission

    def log_prior(self, parameters: Parameters) -> float:
        """Return the log-density of the prior at ``parameters`` in nats, up to a constant."""
        return self.of_chain.log_prior(parameters)

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """Return a row of the fit's ``history_``: log-probability and objective, in nats per frame, byte or symbol.

        Args:
            step: number of the step.
            seconds: time since the start of the run.
            log_prob: log-probability of the encoded data, in nats.
            log_prior: log-density of the prior, in nats.
            table: P output parameters of each of K states, ``(K, P)``, from which states with a variance at its lower
                bound are counted.
        """
        return self.of_chain.row(step, seconds, log_prob, log_prior, table)


class EMObjective(Protocol):
    """An objective that the M-steps of EM increase: log p(x), or a bound of it, plus a log-prior, in nats."""

    @property
    def emission(self) -> Emission:
        """The emission distribution whose parameters EM estimates."""

    def log_prior(self, parameters: Parameters) -> float:
        """Return the term, such as a log-prior, that the objective adds to the log-probability of the data, in nats."""

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """Return a row of the fit's ``history_``: log-probability and objective, in nats per frame, byte or symbol.

        Args:
            step: number of the step.
            seconds: time since the start of the run.
            log_prob: the objective's first term, the log-probability of the encoded data or a bound of it, in nats.
            log_prior: the objective's other term, what ``log_prior`` returned, in nats.
            table: P output parameters of each of K states, ``(K, P)``, from which states with a variance at its lower
                bound are counted.
        """

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the parameters that increase the objective most: the M-step.

        Args:
            parameters: parameters before the M-step.
            expectations: expected counts under them, the result of the E-step.
        """


# -- the E-step ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expectations:
    """The result of an E-step: the log-probability of the data and the expected counts, which add over batches.

    Attributes:
        log_prob: log p(x) in nats.
        initial: expected number of sequences that start in each of K states, ``(K,)``.
        xi: expected transitions between states, ``(K, K)``.
        final: expected number of sequences that end in each state, ``(K,)``.
        emission: sufficient statistics of the emissions; the first axis of each array is the state.
        given_inputs: posterior and inputs of every step that this process has read, if parameters are regressed on
            inputs; else None.
    """

    log_prob: float
    initial: Tensor
    xi: Tensor
    final: Tensor
    emission: Statistics
    given_inputs: InputStatistics | None = None

    def __add__(self, other: Expectations) -> Expectations:
        both = (self.given_inputs, other.given_inputs)
        return Expectations(
            self.log_prob + other.log_prob,
            self.initial + other.initial,
            self.xi + other.xi,
            self.final + other.final,
            tuple(a + b for a, b in zip(self.emission, other.emission, strict=True)),
            None if both[0] is None or both[1] is None else both[0] + both[1],
        )

    def scaled(self, factor: float) -> Expectations:
        """Return the expected counts with every sum multiplied by ``factor``, as if the data had that weight."""
        return Expectations(
            factor * self.log_prob,
            factor * self.initial,
            factor * self.xi,
            factor * self.final,
            tuple(factor * s for s in self.emission),
            None if self.given_inputs is None else self.given_inputs.scaled(factor),
        )

    def arrays(self) -> dict[str, Any]:
        """Return the expected counts as arrays by name for a checkpoint.

        The field ``given_inputs`` is left out, because its size grows with the data.
        """
        tensors = {"initial": self.initial, "xi": self.xi, "final": self.final}
        return {
            "log_prob": self.log_prob,
            **{name: tensor.cpu().numpy() for name, tensor in tensors.items()},
            "emission": {str(i): s.cpu().numpy() for i, s in enumerate(self.emission)},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], device: torch.device) -> Expectations:
        """Return the expected counts that a checkpoint stores as ``arrays``, with tensors on ``device``."""
        initial, xi, final = (torch.tensor(arrays[name], device=device) for name in ("initial", "xi", "final"))
        emission = arrays["emission"]
        statistics = tuple(torch.tensor(emission[str(i)], device=device) for i in range(len(emission)))
        return cls(arrays["log_prob"], initial, xi, final, statistics)


@torch.no_grad()
def e_step(
    chains: Sequence[Parameters],
    emission: Emission,
    batches: Sequence[PackedBatch],
    dtype: torch.dtype,
    interruption: Interruption | None = None,
) -> list[Expectations] | None:
    """Return the results of the E-step for several hidden Markov models: expected counts, and log-probabilities.

    The models (chains) are computed side by side: the emission densities of all their states are evaluated together.

    Args:
        chains: parameters of R chains with the same number of states.
        emission: the emission distribution of all chains; only its parameters differ.
        batches: the sequences of this process.
        dtype: precision of the densities.
        interruption: is asked between two batches whether a signal came; None means that nothing interrupts.

    Returns:
        The expectations of each chain, summed over the batches; None if a signal came between two batches.

    Raises:
        ValueError: if a sequence has probability zero; the message names it by its position among all sequences.
    """
    stacked = chains[0] if len(chains) == 1 else Parameters.stack(chains)
    table = torch.cat([parameters.table for parameters in chains])  # (R·K, P)

    def expectations(batch: PackedBatch) -> tuple[list[Expectations], list[int]]:
        return _expectations(stacked, table, len(chains), emission, batch, dtype)

    sums: list[Expectations] = []
    for batch in batches:
        if sums and interruption is not None and interruption.requested:
            return None
        dealt = batch.dealt(len(chains), stacked.transition.shape[-1], dtype)
        results = [expectations(batch)] if len(dealt) == 1 else in_threads(dealt, expectations)
        refuse([i for _, impossible in results for i in impossible])
        for of_chains, _ in results:
            sums = [a + b for a, b in zip(sums, of_chains, strict=True)] if sums else of_chains
    return sums


def _expectations(
    stacked: Parameters, table: Tensor, n_chains: int, emission: Emission, batch: PackedBatch, dtype: torch.dtype
) -> tuple[list[Expectations], list[int]]:
    """Return the expected counts of one batch for each of R chains, computed side by side (the E-step).

    Args:
        stacked: parameters of all chains, with a leading axis R.
        table: P output parameters of each of K states of each chain, ``(R K, P)``.
        n_chains: number of chains, R.
        emission: the emission distribution of all chains.
        batch: some sequences.
        dtype: precision of the densities.

    Returns:
        The expectations of each chain, and the positions of sequences that have probability zero. If there are any, the
        first list is empty.
    """
    if stacked.table_slopes is None:
        densities, memo = emission.evaluate(table, batch.x, batch.past, dtype, batch.scratch)
    else:  # chains with inputs are never run side by side, so this is one chain
        densities, memo = batch.densities(emission, stacked, dtype), None
    of_each = densities if n_chains == 1 else densities.chains(n_chains)
    posterior = forward_backward_pass(batch.trellis(stacked, of_each))
    if impossible := batch.impossible(posterior.log_prob):
        return [], impossible
    gamma = posterior.gamma.mT.flatten(0, -2).T  # (N, R·K)
    of_inputs, statistics = None, tuple[Tensor, ...]()
    if batch.inputs is not None:  # as above, one chain
        first = posterior.gamma[batch.segments.first]
        of_inputs = InputStatistics.of_batch(stacked, batch, gamma, first, posterior.transitions)
    if stacked.table_slopes is None:
        statistics = emission.statistics(table, batch.x, batch.past, gamma, memo)
    of_chains = [
        Expectations(float(p.log_prob.sum()), p.initial, p.xi, p.final, tuple(s), of_inputs).scaled(batch.weight)
        for p, *s in zip(posterior.chains, *(s.chunk(n_chains) for s in statistics), strict=True)
    ]
    return of_chains, []


def sum_over_processes(
    expectations: Sequence[Expectations], numbers: Sequence[float]
) -> tuple[list[Expectations], list[float]]:
    """Return the expected counts of each chain summed over all processes, and the ``numbers`` of process 0.

    The field ``given_inputs`` is not summed: every process keeps the steps of its own sequences.

    Args:
        expectations: expected counts of each chain in this process.
        numbers: numbers such as the time, on which all processes must agree.
    """
    if not is_distributed():
        return list(expectations), list(numbers)
    tensors = [[e.initial.new_tensor([e.log_prob]), e.initial, e.xi, e.final, *e.emission] for e in expectations]
    sums, numbers = all_reduce_sum([tensor for of_chain in tensors for tensor in of_chain], numbers)
    size = len(tensors[0])
    summed = []
    for i in range(0, len(sums), size):
        log_prob, initial, xi, final, *emission = sums[i : i + size]
        of_inputs = expectations[i // size].given_inputs
        summed.append(Expectations(float(log_prob), initial, xi, final, tuple(emission), of_inputs))
    return summed, numbers


@dataclass(frozen=True)
class RunningStatistics:
    """Running averages of expected counts per frame, for stepwise EM and ``partial_fit``.

    A logistic regression on inputs has no sums of fixed size from which its M-step could be taken. So for such models
    the posteriors and inputs of the batches are kept, each batch with its weight, until that is below ``LEAST_WEIGHT``
    of the newest.

    Attributes:
        mean: weighted average of the expectations of the batches, each divided by its number of frames.
        n_batches: number of batches averaged.
        n_frames: number of frames in these batches, by weight.
        given_inputs: for each batch that is kept for regressions on inputs, its weight in the average and its
            statistics.
    """

    mean: Expectations
    n_batches: int
    n_frames: float
    given_inputs: tuple[tuple[float, InputStatistics], ...] = ()

    @classmethod
    def first(cls, expectations: Expectations, n_frames: float) -> RunningStatistics:
        """Return the running averages after the first batch, of ``n_frames`` frames with these expected counts."""
        summed, of_inputs = replace(expectations, given_inputs=None), expectations.given_inputs
        kept = () if of_inputs is None else ((1 / n_frames, of_inputs),)
        return cls(summed.scaled(1 / n_frames), 1, n_frames, kept)

    @classmethod
    def of_last(cls, expectations: Expectations, n_steps: int) -> RunningStatistics | None:
        """Return the running averages after ``n_steps`` E-steps that each read all data, given the last one's results.

        Return None if regressions read inputs, because these would keep all data.
        """
        if expectations.given_inputs is not None:
            return None
        n_frames = float(expectations.xi.sum() + expectations.initial.sum())
        return cls(expectations.scaled(1 / n_frames), n_steps, n_frames)

    def add(
        self, expectations: Expectations, n_frames: float, *, decay: float, min_rate: float = 0.0
    ) -> RunningStatistics:
        """Return the running averages with one more batch.

        The new batch has the weight ``(n_batches + 2)^-decay``, but at least ``min_rate``; the average before it has
        the rest.

        Args:
            expectations: expected counts of the batch.
            n_frames: number of frames of the batch, by weight.
            decay: exponent of the weights; 1 weights all batches equally, values towards 0.5 weight the newest more.
            min_rate: least weight of the new batch.
        """
        rate, new = max((self.n_batches + 2) ** -decay, min_rate), self.first(expectations, n_frames)
        mean = self.mean.scaled(1 - rate) + replace(expectations, given_inputs=None).scaled(rate / n_frames)
        weighed = [((1 - rate) * w, s) for w, s in self.given_inputs] + [(rate * w, s) for w, s in new.given_inputs]
        kept = tuple((w, s) for w, s in weighed if w > LEAST_WEIGHT * weighed[-1][0])
        return RunningStatistics(mean, self.n_batches + 1, self.n_frames + n_frames, kept)

    def expectations(self, n_frames: float) -> Expectations:
        """Return the running averages as the expected counts of ``n_frames`` frames, for use in an M-step."""
        of_batches = [statistics.scaled(n_frames * weight) for weight, statistics in self.given_inputs]
        of_inputs = reduce(operator.add, of_batches) if of_batches else None
        return replace(self.mean.scaled(n_frames), given_inputs=of_inputs)

    def rescaled(self, n_frames: float) -> RunningStatistics:
        """Return the same sums of expected counts as averages over ``n_frames`` frames."""
        factor = self.n_frames / n_frames
        of_inputs = tuple((factor * weight, statistics) for weight, statistics in self.given_inputs)
        return RunningStatistics(self.mean.scaled(factor), self.n_batches, n_frames, of_inputs)

    def arrays(self) -> dict[str, Any]:
        """Return the running statistics as arrays by name, in the form in which a checkpoint stores them."""
        arrays = {"mean": self.mean.arrays(), "n_batches": self.n_batches, "n_frames": self.n_frames}
        of_inputs = {str(i): {"weight": w, **s.arrays()} for i, (w, s) in enumerate(self.given_inputs)}
        return {**arrays, "given_inputs": of_inputs} if of_inputs else arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any] | None, device: torch.device) -> RunningStatistics | None:
        """Return the running statistics that a checkpoint stores as ``arrays``, on ``device``; None for None."""
        if arrays is None:
            return None
        stored = arrays.get("given_inputs", {})
        of_inputs = [dict(stored[str(i)]) for i in range(len(stored))]
        kept = tuple((each.pop("weight"), InputStatistics.from_arrays(each, device)) for each in of_inputs)
        return cls(Expectations.from_arrays(arrays["mean"], device), arrays["n_batches"], arrays["n_frames"], kept)


# -- the M-step ----------------------------------------------------------------------------------------------


def m_step(parameters: Parameters, expectations: Expectations, objective: MAPObjective) -> Parameters:
    """Return parameters of a hidden Markov model that maximise the objective, given the expected counts of an E-step.

    Transitions that are zero stay zero, and a state without expected transitions keeps its row.

    Args:
        parameters: parameters before the M-step.
        expectations: expected counts under them, the result of the E-step.
        objective: the objective, with its priors and constraints.
    """
    k, constraints = len(parameters.initial), objective.constraints
    initial_counts, transition_counts, final_counts = objective.pseudocount.counts(parameters)
    first = expectations.initial + initial_counts
    counts, previous = expectations.xi + transition_counts, parameters.transition
    if parameters.final is not None and final_counts is not None:
        counts = torch.cat([counts, (expectations.final + final_counts).unsqueeze(1)], 1)
        previous = torch.cat([previous, parameters.final.unsqueeze(1)], 1)
    if objective.start == "stationary" and parameters.transition_slopes is None:
        is_free = ~constraints.frozen.rows(constraints.frozen.transition, k)
        transition_and_final = stationary_rows(counts, previous, first, is_free)
        initial = stationary_initial(transition_and_final[:, :k], parameters.final)
    else:
        transition_and_final = _normalised(counts, previous)
        initial = _normalised(first, parameters.initial) if objective.start == "free" else parameters.initial
    final = None if parameters.final is None else transition_and_final[:, k].contiguous()
    transition, of_inputs = transition_and_final[:, :k].contiguous(), expectations.given_inputs
    table, transition_slopes, table_slopes, initial_slopes = parameters.table, None, None, None
    if of_inputs is not None and parameters.initial_slopes is not None:
        initial, initial_slopes = maximised_initial(parameters, of_inputs, initial_counts, objective.inputs)
    if of_inputs is not None and parameters.transition_slopes is not None:
        regressed = (parameters, of_inputs, transition_counts, objective.inputs)
        if objective.start == "stationary":
            is_free = ~constraints.frozen.rows(constraints.frozen.transition, k)
            transition, transition_slopes = maximised_stationary_transitions(*regressed, is_free)
            initial = log_stationary(transition.log()).exp()  # at inputs of zero, their mean
        else:
            transition, transition_slopes = maximised_transitions(*regressed)
    if of_inputs is not None and parameters.table_slopes is not None:
        tying = constraints.tying_of(objective.emission)
        table, table_slopes = maximised_emissions(parameters, of_inputs, objective.emission, tying, objective.inputs)
    if expectations.emission:  # which does not hold what the regressions on inputs read
        table = maximised_table(table, objective.emission, expectations.emission, constraints.tying)
    slopes = (transition_slopes, table_slopes, initial_slopes, parameters.duration_slopes)
    updated = Parameters(initial, transition, final, table, *slopes)
    return constraints.frozen.keep(parameters, updated)


def maximised_table(table: Tensor, emission: Emission, statistics: Statistics, tying: Tying) -> Tensor:
    """Return the output parameters ``(K, P)`` that maximise the expected log-density: the M-step of the emissions.

    The statistics of states that share an emission are added first.

    Args:
        table: P output parameters of each of K states before the M-step, ``(K, P)``.
        emission: the emission distribution.
        statistics: its expected sufficient statistics, arrays whose first axis is the state.
        tying: which states share an emission.
    """
    if tying.is_free:
        return emission.maximise(statistics, table)
    return tying.spread(emission.maximise(tying.pool(statistics, emission.n_earlier_states), tying.one_each(table)))


def _normalised(counts: Tensor, previous: Tensor) -> Tensor:
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total, previous)


# -- Baum-Welch ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BaumWelch:
    """EM (Baum-Welch) of a hidden Markov model, in the form of an ``EMProblem`` that ``training.run_em`` runs.

    Attributes:
        objective: the objective that the M-steps increase.
        expect: the E-step: function that computes the expected counts of several chains on this process's share of the
            data; returns None if a signal came before it ended.
    """

    objective: EMObjective
    expect: Callable[[Sequence[Parameters], Interruption], list[Expectations] | None]

    @classmethod
    def on_batches(cls, objective: MAPObjective, batches: Sequence[PackedBatch], dtype: torch.dtype) -> BaumWelch:
        """Return EM of ordinary HMMs on batches of sequences, for any number of models side by side.

        Args:
            objective: the objective that M-steps increase.
            batches: the sequences of this process.
            dtype: precision of the densities.
        """

        def expect(chains: Sequence[Parameters], interruption: Interruption) -> list[Expectations] | None:
            return e_step(chains, objective.emission, batches, dtype, interruption)

        return cls(objective, expect)

    @classmethod
    def one_by_one(cls, objective: EMObjective, expectations: Callable[[Parameters], Expectations]) -> BaumWelch:
        """Return EM of chains whose E-step takes the parameters of one chain at a time.

        Args:
            objective: the objective that M-steps increase.
            expectations: the E-step, a function from parameters to expected counts.
        """
        return cls(objective, lambda chains, interruption: [expectations(each) for each in chains])

    def e_step(self, parameters: Sequence[Parameters], interruption: Interruption) -> list[Expectations] | None:
        """Return expected counts under the parameters of each chain, summed over processes; None if a signal came."""
        e_steps = self.expect(parameters, interruption)
        return None if e_steps is None else sum_over_processes(e_steps, [])[0]

    def row(self, step: int, seconds: float, parameters: Parameters, expectations: Expectations) -> Row:
        """Return the row of the fit's history for these parameters, in nats per frame, byte or symbol.

        Args:
            step: number of the EM step.
            seconds: time since the start of the run.
            parameters: parameters of one chain.
            expectations: expected counts under them, with the log-probability of the data.
        """
        prior = self.objective.log_prior(parameters)
        return self.objective.row(step, seconds, expectations.log_prob, prior, parameters.table)

    def m_step(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the parameters that increase the objective most, given expected counts, the result of the E-step."""
        return self.objective.maximised(parameters, expectations)

    def ended(
        self, parameters: Parameters, expectations: Expectations, n_rows: int
    ) -> tuple[Parameters, RunningStatistics | None]:
        """Return the final parameters, and the running statistics from which ``partial_fit`` can continue.

        Args:
            parameters: parameters at the end of the fit.
            expectations: expected counts of the last E-step.
            n_rows: number of E-steps, one for each row of the history.
        """
        return parameters, RunningStatistics.of_last(expectations, n_rows)


@dataclass(frozen=True)
class ParameterStore:
    """The conversion of a hidden Markov model's parameters and running statistics to arrays in checkpoints, and back.

    Attributes:
        device: device of the tensors that are read back.
    """

    device: torch.device

    def arrays(self, parameters: Parameters, kept: RunningStatistics | None) -> dict[str, Any]:
        """Return the parameters and the running statistics as nested dictionaries of arrays, for a checkpoint.

        ``kept`` are the running statistics from which ``partial_fit`` continues, or None. The keys ``"parameters"`` and
        ``"memory"`` are fixed by checkpoints that are already written.
        """
        memory = None if kept is None else kept.arrays()
        return {"parameters": parameters.to(torch.device("cpu")).arrays(), "memory": memory}

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[Parameters, RunningStatistics | None]:
        """Return the parameters and the running statistics that a checkpoint stores as ``arrays``."""
        parameters = Parameters.from_arrays(arrays["parameters"]).to(self.device)
        return parameters, RunningStatistics.from_arrays(arrays["memory"], self.device)
