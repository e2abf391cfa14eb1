"""The E-step of one autoregression whose data miss values: a filter and smoother of the gaps, sums of all else.

Its one state has posterior probability one everywhere, and what is complete has the same sums in every E-step, of which
its log-density is a linear function: only gaps are gone through again (Shumway and Stoffer 1982, *An approach to time
series smoothing and forecasting using the EM algorithm*).
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
    """What E-steps read of one batch of sequences.

    Attributes:
        batch: the sequences.
        gaps: what is filtered.
        of_complete: ``(1, F)`` sums of frames outside of gaps, but for the first p of a sequence,
        early, before_early: which are these, ``(n, D)``, and what is before them.
    """

    batch: PackedBatch
    gaps: Gaps
    of_complete: Tensor
    early: Tensor
    before_early: Tensor

    @classmethod
    def of(cls, batch: PackedBatch, corpus: Corpus, emission: AutoregressiveEmission) -> RegressionBatch:
        """Of a batch that was packed without beliefs."""
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
        """As an E-step of an HMM of one state has them."""
        table, device = parameters.table, self.batch.x.device
        known = filtered(self.gaps, emission.observation, table[0])
        of_gaps = quadratic.sums_of_moments(*self.gaps.sums(known.smoothed())).to(device)
        n_frames, n = float(len(self.batch.x)), float(self.batch.segments.n_sequences)
        log_prob = float(known.log_prob + emission.log_prob_of_sums(table, self.of_complete).sum())
        log_prob += float(emission.observation.log_prob(table, self.early, self.before_early).sum())
        # Of the chain, whose only state is the first.
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
    """What this process has of the data."""
    batches = replace(corpus, past_filter=None).own_batches()
    return [RegressionBatch.of(batch, corpus, emission) for batch in batches]


@torch.no_grad()
def smoothed_e_step(
    batches: Sequence[RegressionBatch], emission: AutoregressiveEmission, parameters: Parameters
) -> Expectations:
    """The expectations of all batches under the chain of one state with ``parameters``."""
    return reduce(add, [batch.expectations(parameters, emission) for batch in batches])
