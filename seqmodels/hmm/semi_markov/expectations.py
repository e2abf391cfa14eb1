"""EM for hidden semi-Markov models: the E-step over segments, and durations as part of what a state emits.

The table of a state holds the output parameters of its emission and, in further columns, the parameters of its
durations. The sufficient statistics of durations are expected counts beside those of the emission. So Baum-Welch,
restarts, checkpoints and several processes work as for an ``HMM`` (``seqmodels.hmm.learning``).

The full duration of a last segment that is cut off is hidden: the E-step counts each duration by ``p(d) / P(d >= steps
seen)``, so that M-steps are those for complete data and the likelihood never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.learning.constraints import Tying
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.learning.given_inputs import InputStatistics
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.semi_markov.durations import DurationFamily
from seqmodels.inference.chains.densities import Densities, clamped
from seqmodels.inference.chains.given_inputs import log_transitions
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.semi_markov import Durations, SemiMarkovTrellis, forward_backward_pass


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
    """

    def __init__(
        self,
        inner: Emission,
        family: DurationFamily,
        *,
        left_censored: bool,
        constraints: SegmentConstraints | None = None,
    ) -> None:
        super().__init__(inner.observation, inner.size)
        self.inner = inner
        self.family = family
        self.left_censored = left_censored
        self.constraints = constraints

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

        These are its densities, or the number of states times the longest duration if that is more.
        """
        return max(self.inner.n_densities(n_states), n_states * self.family.longest)

    def split(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return a table's P columns of the emission, ``(K, P)``, and its Q columns of durations, ``(K, Q)``, as views.

        ``table`` is ``(K, P + Q)``; slopes ``(K, P + Q, U)`` are split along the same axis.
        """
        n_columns = table.shape[1] - self.family.n_columns
        return table[:, :n_columns], table[:, n_columns:]

    def durations(self, table: Tensor) -> Durations:
        """Return the distributions of durations in ``table (K, P + Q)``, in the form in which inference reads them."""
        return Durations.of(self.family.log_pmf(self.split(table)[1]), left_censored=self.left_censored)

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
    """Return the expected counts of full durations of first segments that began before their sequence, ``(K, D)``.

    If a segment is observed at any of its steps with equal probability, its full duration given that r steps are left
    has the distribution ``p(d) / P(d >= r)`` for d >= r.

    Args:
        left: expected counts of the steps left of these segments at the first step of a sequence, ``(K, D)``.
        log_pmf: log-probabilities of durations of 1 to D steps, ``(K, D)``.
    """
    log_at_least = log_pmf.flip(1).logcumsumexp(1).flip(1)
    rate = (left.log() - torch.where(left > 0, log_at_least, 0.0)).logcumsumexp(1)
    return (rate + log_pmf).exp()


# -- the data ----------------------------------------------------------------------------------------------------------


def trellis_of_batch(
    parameters: Parameters, emission: SegmentEmission, batch: PackedBatch, densities: Densities
) -> SemiMarkovTrellis:
    """Return the parameters and densities of a batch, from which forward and Viterbi passes over segments run.

    Where the state of a step is known, all other states have density zero. Where transitions depend on inputs, those
    into a segment depend on the inputs of its first step.

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
    p, log_a, durations = parameters, None, emission.durations(parameters.table)
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
    statistics = (*of_emission, posterior.durations, posterior.first_durations)
    first, into = posterior.gamma[trellis.packing.rank], posterior.xi
    of_inputs = InputStatistics.of_batch(parameters, batch, gamma, first, into if into.dim() == 3 else None)
    log_prob, xi = float(posterior.log_prob.sum()), into.sum(0) if into.dim() == 3 else into
    counted = Expectations(log_prob, posterior.initial, xi, posterior.final, statistics, of_inputs)
    return counted.scaled(batch.weight)
