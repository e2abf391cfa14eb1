"""EM for hidden semi-Markov models: the E-step over segments, and durations as part of what a state emits.

The table of a state holds the output parameters of its emission and, in further columns, the parameters of its
durations. The sufficient statistics of durations are expected counts beside those of the emission. So Baum-Welch,
restarts, checkpoints and several processes work as for an ``HMM`` (``seqmodels.hmm.learning``).

The full duration of a last segment that is cut off is hidden: the E-step counts each duration by ``p(d) / P(d >= steps
seen)``, so that M-steps are those for complete data and the likelihood never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.learning.constraints import Tying
from seqmodels.hmm.learning.em import Expectations, OwnMStep, m_step
from seqmodels.hmm.learning.given_inputs import InputOptions, InputStatistics
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.semi_markov.duration_regression import DurationRegression
from seqmodels.hmm.semi_markov.durations import DurationFamily
from seqmodels.inference.chains.densities import Densities, clamped
from seqmodels.inference.chains.given_inputs import distinct_rows, log_transitions
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.semi_markov import (
    TABLES_OF_STEP,
    Durations,
    SemiMarkovPosterior,
    SemiMarkovTrellis,
    distinct_tables,
    forward_backward_pass,
)


@dataclass(frozen=True)
class SegmentConstraints:
    """States of an HSMM that share their emission or durations, and states that keep them through EM.

    Attributes:
        emission: states that share an emission.
        durations: states that share their durations.
        keeps_emission: True for states whose emission EM leaves unchanged, ``(K,)``; equal for all states that share
            one.
        keeps_durations: True for states whose durations EM leaves unchanged, ``(K,)``; equal for all states that share
            them.
    """

    emission: Tying
    durations: Tying
    keeps_emission: Tensor
    keeps_durations: Tensor

    @property
    def is_free(self) -> bool:
        """True if no state shares or keeps anything."""
        return (
            self.emission.is_free
            and self.durations.is_free
            and not bool(self.keeps_emission.any() or self.keeps_durations.any())
        )

    @property
    def tyings(self) -> tuple[Tying, Tying]:
        """The groups of states that share an emission, and those of states that share durations."""
        return self.emission, self.durations

    @property
    def n_free(self) -> tuple[int, int]:
        """Number of distinct emissions and number of distinct distributions of durations that EM estimates."""
        of_emission = torch.unique(self.emission.group[~self.keeps_emission])
        return len(of_emission), len(torch.unique(self.durations.group[~self.keeps_durations]))


class SegmentEmission(Emission):
    """An emission together with the durations of segments (visits to a state), both of which are learned by one M-step.

    A row of its tables ``(K, P + Q)`` has the P output parameters of a state, then the Q parameters of its durations.

    ``statistics`` returns the statistics of the emission only. ``maximise`` takes two more at the end: expected counts
    of the durations of whole segments, ``(K, D)``, and of the steps left of first segments, ``(K, D)``, for durations
    up to D. Given these two alone, it leaves the emission as it is, because a regression on inputs has an M-step of its
    own.

    Args:
        inner: the emission without durations.
        family: family of the distributions of durations.
        left_censored: True if the first segment of a sequence may have begun before the sequence.
        constraints: states that share or keep their emission or durations; None if all are free.
        reads_inputs: True if durations depend on inputs, so that each step has tables of them.
    """

    def __init__(
        self,
        inner: Emission,
        family: DurationFamily,
        *,
        left_censored: bool,
        constraints: SegmentConstraints | None = None,
        reads_inputs: bool = False,
    ) -> None:
        super().__init__(inner.observation, inner.size)
        self.inner = inner
        self.family = family
        self.left_censored = left_censored
        self.constraints = constraints
        self.reads_inputs = reads_inputs

    @property
    def n_statistics(self) -> int:
        return self.inner.n_statistics + 2

    @property
    def shares(self) -> bool:
        return self.inner.shares

    @property
    def frozen_states(self) -> Tensor | None:
        return None if self.constraints is None else self.constraints.keeps_emission

    @property
    def tied_states(self) -> Tensor | None:
        return None if self.constraints is None else self.constraints.emission.group

    def is_kept(self, table: Tensor) -> Tensor:
        if self.constraints is None:
            return super().is_kept(table)
        c, columns = self.constraints, (part.shape[1] for part in self.split(table))
        kept = zip((c.keeps_emission, c.keeps_durations), columns, strict=True)
        return torch.cat([is_kept[:, None].expand(-1, n) for is_kept, n in kept], 1).to(table.device)

    def observed(self, table: Tensor) -> Tensor:
        return self.split(table)[0]

    def n_densities(self, n_states: int) -> int:
        """Return how many numbers a frame takes in memory for ``n_states`` states.

        These are its densities, or the number of states times the longest duration (of all tables of a step, if
        durations depend on inputs) if that is more.
        """
        of_durations = n_states * self.family.longest * (TABLES_OF_STEP if self.reads_inputs else 1)
        return max(self.inner.n_densities(n_states), of_durations)

    def split(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return a table's P columns of the emission, ``(K, P)``, and its Q columns of durations, ``(K, Q)``, as views.

        ``table`` is ``(K, P + Q)``; slopes ``(K, P + Q, U)`` are split along the same axis.
        """
        n_columns = table.shape[1] - self.family.n_columns
        return table[:, :n_columns], table[:, n_columns:]

    def durations(self, table: Tensor) -> Durations:
        """Return the distributions of durations in ``table (K, P + Q)``, in the form in which inference reads them."""
        return Durations.of(self.family.log_pmf(self.split(table)[1]), left_censored=self.left_censored)

    def durations_given_inputs(self, parameters: Parameters, inputs: Tensor | None, n_sequences: int) -> Durations:
        """Return the distributions of durations of segments that begin at N steps of n packed sequences.

        They are those of all segments if durations do not depend on inputs.

        Args:
            parameters: parameters of the HSMM.
            inputs: standardised inputs of the steps, ``(N, U)``; None if nothing depends on inputs.
            n_sequences: number of sequences n, whose first steps come first.

        Raises:
            ValueError: the tables do not fit into memory.
        """
        durations = self.durations(parameters.table)
        if parameters.duration_slopes is None:
            return durations
        assert inputs is not None
        tables = distinct_tables(parameters.duration_slopes, inputs)
        n_cut_off = min(len(inputs), n_sequences * durations.log_pmf.shape[1])  # steps at ends, counted one by one
        n_tables = max(len(tables[0]), n_cut_off)
        refuse_beyond_memory(
            f"durations of {n_tables:,} steps that depend on inputs",
            8.0 * 2 * TABLES_OF_STEP * n_tables * durations.log_pmf.numel(),
            "pass a smaller max_duration, or shorter sequences",
        )
        return durations.given_inputs(parameters.duration_slopes, inputs, n_sequences, tables)

    def has_free_durations(self, n_states: int) -> Tensor:
        if self.constraints is None:
            return torch.ones(n_states, dtype=torch.bool)
        return self.constraints.durations.is_first & ~self.constraints.keeps_durations

    def with_shared_durations(self, slopes: Tensor) -> Tensor:
        return slopes if self.constraints is None else self.constraints.durations.shared(slopes)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        return self.inner.evaluate(self.split(table)[0], x, past, dtype, scratch)

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        return self.inner.log_prob(self.split(table)[0], x, past, dtype)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        return self.inner.statistics(self.split(table)[0], x, past, gamma, memo)

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        *of_emission, counts, first = statistics
        emission, durations = self.split(table)
        in_full = counts
        if self.left_censored:
            in_full = counts + _full_durations_of_first(first, self.family.log_pmf(durations))
        c, maximise = self.constraints, self.inner.maximise if of_emission else _unchanged
        if c is None:
            updated = self.family.maximise(in_full, first.sum(1), durations)
            return torch.cat([maximise(tuple(of_emission), emission), updated], 1)
        of_groups = maximise(c.emission.pool(tuple(of_emission)), c.emission.one_each(emission))
        in_full, n_biased = c.durations.pool((in_full, first.sum(1)))
        of_durations = self.family.maximise(in_full, n_biased, c.durations.one_each(durations))
        spread = c.emission.spread(of_groups), c.durations.spread(of_durations)
        kept = zip((c.keeps_emission, c.keeps_durations), (emission, durations), spread, strict=True)
        return torch.cat([torch.where(is_kept[:, None].to(new.device), old, new) for is_kept, old, new in kept], 1)

    def maximise_durations(
        self, parameters: Parameters, statistics: InputStatistics, options: InputOptions
    ) -> tuple[Tensor, Tensor]:
        """Return the parameters of durations at inputs of zero, ``(K, Q)``, and their slopes, ``(K, U)``: the M-step.

        Args:
            parameters: parameters before the M-step, with slopes of durations.
            statistics: expected numbers of segments by the inputs of their first step.
            options: which inputs the durations depend on, and the strength of the prior of slopes.
        """
        s, columns = statistics, list(options.duration)
        assert parameters.duration_slopes is not None
        assert s.segments is not None
        assert s.segment_steps is not None
        assert s.duration_counts is not None
        table, slopes = self.split(parameters.table)[1].clone(), parameters.duration_slopes.clone()
        inputs, n, steps = s.inputs, s.segments, s.segment_steps
        is_biased = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
        if s.biased is not None and s.biased_steps is not None and s.first_inputs is not None:
            inputs, n, steps = (
                torch.cat(both) for both in ((inputs, s.first_inputs), (n, s.biased), (steps, s.biased_steps))
            )
            is_biased = torch.nn.functional.pad(is_biased, (0, len(s.biased)), value=True)
        counts, design, c = s.duration_counts.sum(0), inputs[:, columns].double(), self.constraints
        group = torch.arange(len(table)) if c is None else c.durations.group
        # Rows of the same inputs count together; there are few where inputs are the same at all steps of a sequence.
        rows = torch.cat([design, is_biased[:, None].to(design)], 1)
        at, number = distinct_rows(rows)
        rows = rows[at]
        design, is_biased = rows[:, :-1], rows[:, -1] > 0
        n, steps = (each.new_zeros(len(rows), each.shape[1]).index_add_(0, number, each) for each in (n, steps))
        for k in self.has_free_durations(len(table)).nonzero()[:, 0].tolist():
            alike = (group == group[k]).nonzero()[:, 0]
            total = counts[alike].sum(0)
            (n_all,), _ = all_reduce_sum([total.sum()])
            if not n_all > 0:
                continue
            of_rows = (n[:, alike].sum(1), steps[:, alike].sum(1), is_biased)
            regression = DurationRegression(total, design, *of_rows, options.ridge * len(alike))
            row, of_columns = self.family.maximise_given_inputs(regression, table[k], slopes[k, columns])
            table[alike] = row
            for state in alike.tolist():
                slopes[state, columns] = of_columns
        return table, slopes

    def log_prior(self, table: Tensor) -> Tensor:
        emission, durations = self.split(table)
        if self.constraints is not None:  # because an emission or durations that states share count once
            emission = self.constraints.emission.one_each(emission)
            durations = self.constraints.durations.one_each(durations)
        return self.inner.log_prior(emission) + self.family.log_prior(self.family.normalised(durations))

    def tie(self, table: Tensor) -> Tensor:
        emission, durations = self.split(table)
        if self.constraints is not None:
            emission, durations = (
                tying.spread(tying.one_each(each))
                for tying, each in zip(self.constraints.tyings, (emission, durations), strict=True)
            )
        return torch.cat([self.inner.tie(emission), self.family.normalised(durations)], 1)

    def unbounded(self, table: Tensor) -> Tensor:
        emission, durations = self.split(table)
        return torch.cat([self.inner.unbounded(emission), self.family.unbounded(durations)], 1)

    def of_unbounded(self, numbers: Tensor) -> Tensor:
        emission, durations = self.split(numbers)
        return self.tie(torch.cat([self.inner.of_unbounded(emission), self.family.of_unbounded(durations)], 1))

    def floor_hits(self, table: Tensor) -> Tensor:
        return self.inner.floor_hits(self.split(table)[0])

    def n_parameters(self, n_states: int) -> int:
        if self.constraints is None:
            return self.inner.n_parameters(n_states) + n_states * self.family.n_free
        n_emissions, n_durations = self.constraints.n_free
        of_emissions = self.inner.n_parameters(n_emissions) if n_emissions else 0
        return of_emissions + n_durations * self.family.n_free

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        emission, durations = self.split(table)
        return {**self.inner.raw_parameters(emission, shift, scale), **self.family.raw(durations)}

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        return self.inner.by_state(self.split(table)[0], shift, scale, names)


def _unchanged(statistics: Statistics, table: Tensor) -> Tensor:
    return table


def _full_durations_of_first(left: Tensor, log_pmf: Tensor) -> Tensor:
    """Return the expected counts of full durations of first segments that began before their sequence, ``(..., D)``.

    If a segment is observed at any of its steps with equal probability, its full duration given that r steps are left
    has the distribution ``p(d) / P(d >= r)`` for d >= r.

    Args:
        left: expected counts of the steps left of these segments at the first step of a sequence, ``(..., D)``.
        log_pmf: log-probabilities of durations of 1 to D steps, ``(..., D)``.
    """
    log_at_least = log_pmf.flip(-1).logcumsumexp(-1).flip(-1)
    rate = (left.log() - torch.where(left > 0, log_at_least, 0.0)).logcumsumexp(-1)
    return (rate + log_pmf).exp()


# -- the data ----------------------------------------------------------------------------------------------------------


def trellis_of_batch(
    parameters: Parameters, emission: SegmentEmission, batch: PackedBatch, densities: Densities
) -> SemiMarkovTrellis:
    """Return the parameters and densities of a batch, from which forward and Viterbi passes over segments run.

    Where the state of a step is known, all other states have density zero. Where transitions and durations depend on
    inputs, those of a segment depend on the inputs of its first step.

    Args:
        parameters: parameters of the HSMM.
        emission: the emission with durations.
        batch: some sequences.
        densities: densities of their N frames in each state, ``(N, K)``.
    """
    if batch.states is not None:
        densities = clamped(densities, batch.states)
    packing, log_b = batch.segments.packing, densities.log()
    if not batch.segments.is_whole:
        packing = Packing.of(batch.segments.lengths.cpu(), log_b.device)
        log_b = packing.pack(batch.segments.packing.unpack(log_b))
    p, log_a = parameters, None
    durations = emission.durations_given_inputs(p, batch.inputs, packing.n_sequences)
    if p.duration_slopes is not None:
        assert batch.segments.is_whole, "no sequence is cut where durations differ from step to step"
    if p.transition_slopes is not None:
        assert batch.inputs is not None
        assert batch.segments.is_whole, "no sequence is cut where transitions differ from step to step"
        log_a = log_transitions(p.transition, p.transition_slopes, batch.inputs)
    return SemiMarkovTrellis(batch.initial(p), p.transition, p.final, durations, log_b, packing, log_a)


def expected_counts(
    parameters: Parameters,
    emission: SegmentEmission,
    batch: PackedBatch,
    dtype: torch.dtype,
    refuse: Callable[[Sequence[int]], None],
) -> Expectations:
    """Return log p(x) and the expected counts of one batch of an HSMM (the E-step), times the batch's weight.

    Args:
        parameters: parameters of the HSMM.
        emission: the emission with durations.
        batch: some sequences.
        dtype: precision of the densities.
        refuse: function that is called with the numbers of sequences of probability zero, and raises ``ValueError`` if
            there are any.
    """
    densities, memo = batch.evaluate(emission, parameters, dtype)
    trellis = trellis_of_batch(parameters, emission, batch, densities)
    posterior = forward_backward_pass(trellis)
    refuse(batch.impossible(posterior.log_prob))
    gamma = posterior.gamma
    if not batch.segments.is_whole:
        gamma = batch.segments.packing.pack(trellis.packing.unpack(gamma))
    of_emission: Statistics = ()
    if parameters.table_slopes is None:
        of_emission = emission.statistics(parameters.table, batch.x, batch.past, gamma.to(dtype), memo)
    first, into = posterior.gamma[trellis.packing.rank], posterior.xi
    of_inputs = InputStatistics.of_batch(parameters, batch, gamma, first, into if into.dim() == 3 else None)
    counts = posterior.durations, posterior.first_durations
    if parameters.duration_slopes is not None:
        assert of_inputs is not None
        of_inputs = _with_durations(of_inputs, batch, trellis, posterior)
        counts = torch.zeros_like(counts[0]), torch.zeros_like(counts[0])  # their regressions have their own
    statistics = (*of_emission, *counts)
    log_prob, xi = float(posterior.log_prob.sum()), into.sum(0) if into.dim() == 3 else into
    counted = Expectations(log_prob, posterior.initial, xi, posterior.final, statistics, of_inputs)
    return counted.scaled(batch.weight)


def _with_durations(
    statistics: InputStatistics, batch: PackedBatch, trellis: SemiMarkovTrellis, posterior: SemiMarkovPosterior
) -> InputStatistics:
    """Return the statistics of regressions with those of durations.

    Args:
        statistics: those of the other regressions.
        batch: n sequences.
        trellis: their parameters and densities, with durations that differ from step to step.
        posterior: the posterior of their segments.
    """
    counts, d, first = posterior.durations, trellis.durations, {}
    if d.is_left_censored:
        assert d.table_of_row is not None, "durations depend on inputs"
        of_first = d.log_pmf[d.table_of_row[: trellis.packing.n_sequences]]
        in_full = _full_durations_of_first(posterior.first_durations, of_first)
        counts, by_sequence = counts + in_full.sum(0), in_full[trellis.packing.rank]
        later = torch.arange(in_full.shape[-1], dtype=in_full.dtype, device=in_full.device)
        first = {
            "first_inputs": batch.first_inputs,
            "biased": by_sequence.sum(-1),
            "biased_steps": by_sequence @ later,
        }
    return replace(
        statistics, segments=posterior.segments, segment_steps=posterior.steps, duration_counts=counts[None], **first
    )


class SegmentObjective(OwnMStep):
    """The objective of EM of an HSMM whose durations depend on inputs: their M-step is a regression."""

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the parameters that increase the objective most, given expected counts under ``parameters``."""
        emission, of_inputs = self.of_chain.emission, expectations.given_inputs
        updated = m_step(parameters, expectations, self.of_chain)
        assert isinstance(emission, SegmentEmission), "of an HSMM"
        assert of_inputs is not None, "durations depend on inputs"
        durations, slopes = emission.maximise_durations(parameters, of_inputs, self.of_chain.inputs)
        table = torch.cat([emission.observed(updated.table), durations], 1)
        return replace(updated, table=table, duration_slopes=slopes)
