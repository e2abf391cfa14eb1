"""Baum-Welch on little data, where calling tensor operations would take most of the time.

A step is a few compiled calls on arrays: the emissions' densities, the recursions of the chain with their sums, the
emissions' sums, and the M-step. Emissions without compiled loops of their own use tensor operations in between.
Equations and figures are those in ``em``, up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import is_distributed
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.emissions.base import EmissionInLoops
from seqmodels.hmm.learning.constraints import Constraints
from seqmodels.hmm.learning.em import Expectations, MAPObjective, RunningStatistics, maximised_table
from seqmodels.hmm.learning.first_state import stationary_step
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.densities import LogDensities, possible_states
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.parallel_segments import runs_sequentially
from seqmodels.training import Callback, FitResult, Interruption, Row, StopRule, run_em


def runs_in_loops(start: Parameters, batches: Sequence[PackedBatch]) -> bool:
    """Return True if EM that starts from the parameters ``start`` runs in compiled loops on arrays.

    It does in one process on a CPU, without inputs, for batches so small that tensor operations would take longer.
    """
    if is_distributed() or any(each is not None for each in (*start.slopes, start.generator)):
        return False
    k, device = len(start.initial), start.initial.device
    return all(
        batch.inputs is None
        and batch.segments.is_whole
        and runs_sequentially(k, len(batch.x), len(batch.segments.packing.batch_sizes), device)
        for batch in batches
    )


@dataclass(frozen=True)
class SmallData:
    """EM of an HMM in compiled loops, as the ``EMProblem`` that ``training.run_em`` runs for one start at a time.

    An M-step changes the arrays of ``ParametersInLoops`` in place. The result of an E-step is only the log-probability,
    because expected counts are attributes of ``ParametersInLoops``.

    Attributes:
        objective: the objective of maximum a posteriori EM.
        batches: the training sequences.
        dtype: precision of emissions that are computed by tensor operations.
    """

    objective: MAPObjective
    batches: Sequence[PackedBatch]
    dtype: torch.dtype

    def start(self, parameters: Parameters) -> ParametersInLoops:
        """Return the parameters of one start in the form that the compiled loops read and change."""
        return ParametersInLoops(parameters, self.objective, self.batches, self.dtype)

    def e_step(self, parameters: Sequence[ParametersInLoops], interruption: Interruption) -> list[float]:
        """Run the E-step of each start, whose expected counts are kept in ``parameters``, and return log p(x) in nats.

        There is one log-probability of the weighted data for each start. The argument ``interruption`` is not used.
        """
        return [steps.expect() for steps in parameters]

    def row(self, step: int, seconds: float, parameters: ParametersInLoops, expectations: float) -> Row:
        """Return the row of the fit's history for these parameters, in nats per frame, byte or symbol.

        Args:
            step: number of the EM step.
            seconds: time since the start of the run.
            parameters: the current parameters.
            expectations: log-probability of the weighted data in nats, from the E-step.
        """
        hits = parameters.emission.floor_hits()
        return self.objective.figures(step, seconds, expectations, parameters.log_prior(), hits)

    def m_step(self, parameters: ParametersInLoops, expectations: float) -> ParametersInLoops:
        """Update the parameters in place to their maximum a posteriori, given the last E-step's counts, and return
        them.
        """
        parameters.maximise()
        return parameters

    def ended(
        self, parameters: ParametersInLoops, expectations: float, n_rows: int
    ) -> tuple[Parameters, RunningStatistics | None]:
        """Return the final parameters as tensors, and the running statistics from which ``partial_fit`` can continue.

        Args:
            parameters: parameters at the end of the fit.
            expectations: log-probability of the weighted data in nats, from the last E-step.
            n_rows: number of E-steps, one for each row of the history.
        """
        return parameters.parameters, RunningStatistics.of_last(parameters.expectations(expectations), n_rows)


def run_em_in_loops(
    problem: SmallData, starts: Iterable[Parameters], stop: StopRule, callback: Callback
) -> list[FitResult[Parameters]]:
    """Run EM in compiled loops from one set of parameters after the other and return the results.

    A signal (Ctrl-C or SIGTERM) ends it after the current start.

    Args:
        problem: objective and data.
        starts: parameters to start from.
        stop: when a run from one start ends.
        callback: is called with every row of the history.
    """
    results: list[FitResult[Parameters]] = []
    for start in starts:
        results += run_em(problem, [problem.start(start)], stop, callback=callback)
        if results[-1].interrupted:
            break
    return results


class ParametersInLoops:
    """The parameters of EM from one start, and the sums of its last E-step, as arrays that compiled loops fill.

    The attribute ``counts`` holds expected starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)``, by the weights of
    the batches, for K states.
    """

    def __init__(
        self, start: Parameters, objective: MAPObjective, batches: Sequence[PackedBatch], dtype: torch.dtype
    ) -> None:
        k, frozen = len(start.initial), objective.constraints.frozen
        self.has_final, self.start = start.final is not None, objective.start
        self.initial, self.transition = start.initial.numpy().copy(), start.transition.numpy().copy()
        self.final = np.ones(k) if start.final is None else start.final.numpy().copy()
        self.counts: tuple[np.ndarray, np.ndarray, np.ndarray] = np.empty(k), np.empty((k, k)), np.empty(k)
        self.pseudocounts = objective.pseudocount.arrays(k)
        self.has_prior = any(bool(counts.any()) for counts in self.pseudocounts)
        self.is_frozen = frozen.rows(frozen.transition, k).numpy()
        self.keeps_initial = frozen.initial or objective.start != "free"
        self.batches = [_Batch.of(batch, k) for batch in batches]
        self.emission = _emission_of(start, objective, batches, dtype)

    def expect(self) -> float:
        """Run the E-step: fill the expected counts, and return the log-probability of the weighted data in nats.

        Raises:
            ValueError: if a sequence has probability zero; the message names it.
        """
        for count in self.counts:
            count.fill(0.0)
        self.emission.forget()
        total = 0.0
        for i, batch in enumerate(self.batches):
            expected = batch.expect(self, self.emission.log_densities(i))
            for count, more in zip(self.counts, expected.counts, strict=True):
                np.add(count, more, out=count)
            self.emission.add(i, expected.gamma, batch.packed.weight)
            total += expected.log_prob
        return total

    def maximise(self) -> None:
        """Run the M-step: overwrite the parameters with their maximum a posteriori, given the expected counts."""
        from seqmodels.hmm.learning.chain_loops import maximise_chain

        if self.start == "stationary":
            self._maximise_stationary()
        else:
            maximise_chain(
                self.counts, self.pseudocounts, self.is_frozen, self.keeps_initial, self.has_final, self.initial,
                self.transition, self.final,
            )  # fmt: skip
        self.emission.maximise()

    def _maximise_stationary(self) -> None:
        k, previous = len(self.initial), self.transition
        first, counts, last = self.counts
        if self.has_prior:
            first, counts, last = (
                count + np.where(table > 0, pseudocount, 0.0)
                for count, table, pseudocount in zip(self.counts, self.chain, self.pseudocounts, strict=True)
            )
        if self.has_final:
            counts, previous = np.column_stack([counts, last]), np.column_stack([previous, self.final])
        rows, self.initial = stationary_step(counts, previous, first, ~self.is_frozen)
        self.transition = np.ascontiguousarray(rows[:, :k])
        self.final = rows[:, k].copy() if self.has_final else self.final

    def log_prior(self) -> float:
        """Return the log-density of the prior at the current parameters in nats, up to a constant."""
        from seqmodels.hmm.learning.chain_loops import log_prior

        if not self.has_prior:
            return self.emission.log_prior()
        return float(log_prior(self.pseudocounts, self.has_final, *self.chain)) + self.emission.log_prior()

    @property
    def chain(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The current probabilities of first states ``(K,)``, transitions ``(K, K)`` and ends after each state
        ``(K,)``.
        """
        return self.initial, self.transition, self.final

    @property
    def parameters(self) -> Parameters:
        """The current parameters of the chain and its emissions as tensors."""
        final = torch.from_numpy(self.final) if self.has_final else None
        return Parameters(
            torch.from_numpy(self.initial), torch.from_numpy(self.transition), final, self.emission.table()
        )

    def expectations(self, log_prob: float) -> Expectations:
        """Return the expected counts of the last E-step as ``Expectations``, with ``log_prob`` as log-probability of
        the data.
        """
        first, xi, last = (torch.from_numpy(count) for count in self.counts)
        return Expectations(log_prob, first, xi, last, self.emission.statistics())


class _Expected(NamedTuple):
    """The result of an E-step on one batch of N frames.

    Log-probability and counts are multiplied by the batch's weight.

    Attributes:
        log_prob: log p(x) in nats.
        counts: expected starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)``.
        gamma: posterior of each state in each frame, ``(N, K)``.
    """

    log_prob: float
    counts: tuple[np.ndarray, np.ndarray, np.ndarray]
    gamma: np.ndarray


@dataclass(frozen=True)
class _Batch:
    """A batch of N frames of n sequences in the form that compiled loops read, with the arrays that they fill.

    Attributes:
        packed: the batch.
        is_impossible: True for states that a frame cannot be in, ``(N, K)``; None if all states are possible.
        weights: weight of each sequence, ``(n,)``.
        gamma: filled with posteriors, ``(N, K)``.
        memory: scratch arrays, ``(N, K)`` and ``(N,)``.
        by_rank: arrays with an entry for each sequence in order of length, such as its log-probability.
        counts: filled with expected starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)``.
    """

    packed: PackedBatch
    is_impossible: np.ndarray | None
    weights: np.ndarray
    gamma: np.ndarray
    memory: tuple[np.ndarray, np.ndarray]
    by_rank: tuple[np.ndarray, np.ndarray, np.ndarray]
    counts: tuple[np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def of(cls, batch: PackedBatch, k: int) -> _Batch:
        is_impossible = None if batch.states is None else ~possible_states(batch.states, k).numpy()
        weights, n = np.full(batch.segments.n_sequences, batch.weight), len(batch.x)
        memory, counts = (np.empty((n, k)), np.empty(n)), (np.empty(k), np.empty((k, k)), np.empty(k))
        by_rank = batch.segments.packing.arrays.by_rank()
        return cls(batch, is_impossible, weights, np.empty((n, k)), memory, by_rank, counts)

    def expect(self, em: ParametersInLoops, log_b: np.ndarray) -> _Expected:
        """Run the E-step on this batch under the parameters of ``em``.

        Args:
            em: the parameters.
            log_b: log-density of each of N frames in each of K states, ``(N, K)``.

        Raises:
            ValueError: if a sequence has probability zero; the message names it.
        """
        from seqmodels.inference.chains import sequential

        if self.is_impossible is not None:
            log_b = np.where(self.is_impossible, -np.inf, log_b)
        for count in self.counts:
            count.fill(0.0)
        packed, chain = self.packed.segments.packing.arrays, (em.initial[None], em.transition, em.final[None])
        sequential.expectations(chain, log_b, packed, self.weights, self.memory, self.gamma, self.counts, self.by_rank)
        _, log_prob, has_failed = self.by_rank
        total = float(log_prob.sum())
        if has_failed.any() or not total > -np.inf:
            return self._in_logarithms(em, log_b)
        return _Expected(self.packed.weight * total, self.counts, self.gamma)

    def _in_logarithms(self, em: ParametersInLoops, log_b: np.ndarray) -> _Expected:
        """Run the E-step on this batch in the log domain, for use if the scaled recursions underflowed."""
        batch = self.packed
        posterior = forward_backward_pass(batch.trellis(em.parameters, LogDensities(torch.from_numpy(log_b))))
        batch.refuse_impossible(posterior.log_prob)
        first, xi, last = (batch.weight * each.numpy() for each in (posterior.initial, posterior.xi, posterior.final))
        return _Expected(batch.weight * float(posterior.log_prob.sum()), (first, xi, last), posterior.gamma.numpy())


def _emission_of(
    start: Parameters, objective: MAPObjective, batches: Sequence[PackedBatch], dtype: torch.dtype
) -> EmissionInLoops:
    constraints, k = objective.constraints, len(start.initial)
    is_free = constraints.tying.is_free and not constraints.frozen.rows(constraints.frozen.emission, k).any()
    in_loops = objective.emission.in_loops(start.table, [batch.x for batch in batches], dtype) if is_free else None
    return in_loops or _TensorEmission(start.table, objective.emission, constraints, batches, dtype)


class _TensorEmission:
    """An ``EmissionInLoops`` made of tensor operations, for an emission that has no compiled loops of its own."""

    def __init__(
        self,
        table: Tensor,
        emission: Emission,
        constraints: Constraints,
        batches: Sequence[PackedBatch],
        dtype: torch.dtype,
    ) -> None:
        self._table, self.of_tensors, self.tying = table, emission, constraints.tying
        self.is_frozen = constraints.frozen.rows(constraints.frozen.emission, len(table))
        self.batches, self.dtype = batches, dtype
        self.memos: list[Any] = [None] * len(batches)
        self.sums: Statistics = ()

    def log_densities(self, i: int) -> np.ndarray:
        batch = self.batches[i]
        densities, self.memos[i] = self.of_tensors.evaluate(self._table, batch.x, batch.past, self.dtype, batch.scratch)
        return np.ascontiguousarray(densities.log().double().numpy())

    def forget(self) -> None:
        self.sums = ()

    def add(self, i: int, gamma: np.ndarray, weight: float) -> None:
        batch, posteriors = self.batches[i], torch.from_numpy(gamma).to(self.dtype)
        sums = self.of_tensors.statistics(self._table, batch.x, batch.past, posteriors, self.memos[i])
        weighted = tuple(weight * each for each in sums)
        self.sums = tuple(a + b for a, b in zip(self.sums, weighted, strict=True)) if self.sums else weighted

    def maximise(self) -> None:
        updated = maximised_table(self._table, self.of_tensors, self.sums, self.tying)
        self._table = torch.where(self.is_frozen[:, None], self._table, updated)

    def log_prior(self) -> float:
        return float(self.of_tensors.log_prior(self._of_groups))

    def floor_hits(self) -> int:
        return int(self.of_tensors.floor_hits(self._table).sum())

    def table(self) -> Tensor:
        return self._table

    def statistics(self) -> Statistics:
        return self.sums

    @property
    def _of_groups(self) -> Tensor:
        return self._table if self.tying.is_free else self.tying.one_each(self._table)
