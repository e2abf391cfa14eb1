"""EM for negative binomial distributions: means in closed form, sizes as the root of one equation in one unknown.

The likelihood of the size r, ``Σ_t γ_t Σ_{j < x_t} log(r + j)``, depends on all counts only through the number of
counts that exceed each ``j``. This is exact for counts up to ``N_EXACT``. Larger ``j`` are put in bins of 10 % of their
value, and each ``log(r + j)`` is bounded from below by the line in ``log(r + b)``, b the first of its bin, that touches
it at the r before the M-step. The bound touches the likelihood there, so that a step that raises the bound raises the
likelihood (Hunter and Lange 2004, *A tutorial on MM algorithms*).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import NOT_VISITED, Statistics, emission_of, row_blocks
from seqmodels.hmm.emissions.feature_moments import IndependentEmission
from seqmodels.observations import NegativeBinomial
from seqmodels.observations.negative_binomial import LEAST_LOG_MEAN, LEAST_SIZE, MOST_SIZE

N_EXACT = 64  # counts that have a bin of their own
GROWTH = 1.1  # ratio of the first j of a bin to that of the bin before
LARGEST_COUNT = 1e15  # larger counts are in the last bin, because float64 hardly distinguishes them
N_HALVINGS = 60  # bisection steps of the equation in the size


def first_of_bins() -> Tensor:
    """Return the least integer of each of the B bins that nonnegative integers are put in, then infinity, ``(B + 1,)``.

    Bins hold one integer each up to ``N_EXACT``, and then widen by 10 %. The result is float64.
    """
    firsts = [float(j) for j in range(N_EXACT)]
    while firsts[-1] < LARGEST_COUNT:
        firsts.append(math.floor(max(firsts[-1] + 1, firsts[-1] * GROWTH)))
    return torch.tensor([*firsts, math.inf], dtype=torch.float64)


@emission_of.register(NegativeBinomial)
class NegativeBinomialEmission(IndependentEmission):
    """EM computations for ``NegativeBinomial``, whose parameters are log-means and log-sizes of D features, ``(K,
    2D)``.

    The expected statistics, ``(K, 2 + B, D)`` for K states, are for each feature ``Σ γ`` and ``Σ γ x`` over the frames
    in which it is observed, with posteriors γ of the state, and the weights of B bins of integers below the counts
    (``first_of_bins``).
    """

    observation: NegativeBinomial

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        firsts = first_of_bins().to(x.device)
        n_bins, (k, d) = len(firsts) - 1, (len(table), self.size)
        size = self._sizes(table)  # (K, D)
        full = torch.zeros(k, d, n_bins, dtype=torch.float64, device=x.device)
        partial, moments = torch.zeros_like(full), torch.zeros(k, 2, d, dtype=torch.float64, device=x.device)
        for rows in row_blocks(len(x), 4 * k * d, x.device):
            weights, observed = gamma[rows].T.double(), ~torch.isnan(x[rows])
            counts = torch.where(observed, x[rows], 0.0).double()
            moments[:, 0] += weights @ observed.double()
            moments[:, 1] += weights @ counts
            # The bin of the last j below each count; those before it are full. A count of 0 has no j at all.
            last = (torch.bucketize(counts - 1, firsts, right=True) - 1).clamp(min=0)  # (n, D)
            weighted = weights.unsqueeze(-1) * (counts > 0)  # (K, n, D)
            begin = firsts[last]
            # Σ_j (r + b) / (r + j) over the j of the bin below the count
            rest = (size[:, None] + begin) * (
                torch.digamma(size[:, None] + counts.clamp(min=1)) - torch.digamma(size[:, None] + begin)
            )
            rest = torch.where(last < N_EXACT - 1, 1.0, rest)
            index = last.T.expand(k, -1, -1)  # (K, D, n)
            full.scatter_add_(2, index, weighted.mT)
            partial.scatter_add_(2, index, (weighted * rest).mT)
        # Bins before the last one of a count, wholly below it: the sums over all later ones.
        beyond = full.flip(-1).cumsum(-1).flip(-1) - full
        return (torch.cat([moments, (partial + beyond * self._weights(size, firsts)).movedim(-1, 1)], 1),)

    def _weights(self, size: Tensor, firsts: Tensor) -> Tensor:
        """Return the weight that a bin adds for a count above all its integers, ``(K, D, B)``.

        ``size``: the negative binomial's size r before the M-step, ``(K, D)``; ``firsts``: least integer of each bin,
        then infinity, ``(B + 1,)``.
        """
        r, begin, end = size.unsqueeze(-1), firsts[:-1], firsts[1:].clamp(max=2 * LARGEST_COUNT)
        weights = (r + begin) * (torch.digamma(r + end) - torch.digamma(r + begin))
        return torch.where(end - begin == 1, 1.0, weights)

    def _sizes(self, table: Tensor) -> Tensor:
        return table[:, self.size :].clamp(math.log(LEAST_SIZE), math.log(MOST_SIZE)).exp()

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        frames, total, bins = statistics[0][:, 0], statistics[0][:, 1], statistics[0][:, 2:]
        is_visited = frames > NOT_VISITED
        n = torch.where(is_visited, frames, 1.0)
        mean, weights = total / n, bins / n.unsqueeze(1)
        firsts = first_of_bins()[:-1].to(table.device).view(1, -1, 1)
        low, high = (torch.full_like(mean, math.log(end)) for end in (LEAST_SIZE, MOST_SIZE))
        for _ in range(N_HALVINGS):  # the slope in r is above zero before the root and below after it
            middle = 0.5 * (low + high)
            r = middle.exp()
            slope = (weights / (r.unsqueeze(1) + firsts)).sum(1) - torch.log1p(mean / r)
            low, high = torch.where(slope > 0, middle, low), torch.where(slope > 0, high, middle)
        log_size = 0.5 * (low + high)
        updated = torch.cat([mean.log().clamp(min=LEAST_LOG_MEAN), log_size], 1)
        return torch.where(is_visited.repeat(1, 2), updated, table)
