"""The E-step of an autoregression without hidden states whose data miss values, by filtering and smoothing the gaps.

The model is a chain of one state, whose posterior probability is one at every step. The sufficient statistics of the
complete frames are therefore the same in every E-step, and the log-density of these frames is a linear function of
them; each E-step filters and smooths the gaps only (Shumway and Stoffer 1982, *An approach to time series smoothing and
forecasting using the EM algorithm*).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import torch
from torch import Tensor

from seqmodels.hmm.corpus import Corpus, PackedBatch, refuse
from seqmodels.hmm.emissions import quadratic
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.gap_filter import Gaps, filtered
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.parameters import Parameters


@dataclass(frozen=True)
class RegressionBatch:
    """One batch of sequences, prepared once for the E-steps of an autoregression with one state.

    Attributes:
        batch: the packed sequences, N frames in all.
        gaps: the frames with missing values, whose distribution every E-step computes by filtering and smoothing.
        of_complete: the F sufficient statistics of the frames outside of gaps, summed, ``(1, F)``; the first p frames
            of each sequence, for an autoregression of order p, are left out.
        early: the frames that have fewer than p frames before them, ``(n, D)`` with D features.
        before_early: the frames before each frame of ``early``, ``(n, p, D)``; NaN before the start of a sequence.
    """

    batch: PackedBatch
    gaps: Gaps
    of_complete: Tensor
    early: Tensor
    before_early: Tensor

    @classmethod
    def of(cls, batch: PackedBatch, corpus: Corpus, emission: AutoregressiveEmission) -> RegressionBatch:
        """Return a batch prepared for the E-steps of the autoregression ``emission`` with one state.

        The missing values of the batch must not have been filled in yet.

        Args:
            batch: some packed sequences of ``corpus``.
            corpus: the training data.
            emission: the autoregression.
        """
        assert batch.past is not None, "an autoregression is given its past"
        gaps = Gaps.of([corpus.sequences[i] for i in batch.indices], emission.observation.order)
        device, is_complete = batch.x.device, torch.ones(len(batch.x), dtype=torch.bool, device=batch.x.device)
        places = (torch.from_numpy(each[~gaps.is_to_come]).to(device) for each in (gaps.sequence, gaps.time))
        is_complete[batch.segments.rows(*places)] = False
        x, past = batch.x[is_complete], batch.past[is_complete]
        is_early = past.isnan().flatten(1).any(1)
        (sums,) = emission.statistics(x.new_zeros(1, 0), x, past, x.new_ones(len(x), 1))
        return cls(batch, gaps, sums, x[is_early].double(), past[is_early].double())

    def expectations(self, parameters: Parameters, emission: AutoregressiveEmission) -> Expectations:
        """Return the result of the E-step on this batch: expected counts of a chain of one state, and the
        log-probability.

        Args:
            parameters: parameters of the chain of one state, with the autoregression's numbers in ``table``.
            emission: the autoregression.

        Raises:
            ValueError: if the log-probability of the batch is -inf; the message names its sequences.
        """
        table, device = parameters.table, self.batch.x.device
        known = filtered(self.gaps, emission.observation, table[0])
        of_gaps = quadratic.sums_of_moments(*self.gaps.sums(known.smoothed())).to(device)
        n_frames, n = float(len(self.batch.x)), float(self.batch.segments.n_sequences)
        log_prob = float(known.log_prob + emission.log_prob_of_sums(table, self.of_complete).sum())
        log_prob += float(emission.observation.log_prob(table, self.early, self.before_early).sum())
        # The chain has one state, so only staying in it and ending have probabilities other than 1.
        if n_frames > n:
            log_prob += (n_frames - n) * float(parameters.transition.log())
        if parameters.final is not None:
            log_prob += n * float(parameters.final.log())
        if log_prob == -torch.inf:
            refuse(self.batch.indices)
        count = parameters.initial.new_full((1,), n)
        xi = parameters.initial.new_full((1, 1), n_frames - n)
        return Expectations(log_prob, count, xi, count, (self.of_complete + of_gaps,)).scaled(self.batch.weight)


def regression_batches(corpus: Corpus, emission: AutoregressiveEmission) -> list[RegressionBatch]:
    """Return this process's batches of the training data ``corpus``, prepared for ``smoothed_e_step``."""
    batches = replace(corpus, past_filter=None).own_batches()
    return [RegressionBatch.of(batch, corpus, emission) for batch in batches]


@torch.no_grad()
def smoothed_e_step(
    batches: Sequence[RegressionBatch], emission: AutoregressiveEmission, parameters: Parameters
) -> Expectations:
    """Return the result of the E-step of an autoregression without hidden states: statistics and log-probability,
    summed.

    Args:
        batches: the training data of this process.
        emission: the autoregression.
        parameters: parameters of a chain of one state, with the autoregression's numbers in ``table``.
    """
    return reduce(add, [batch.expectations(parameters, emission) for batch in batches])
