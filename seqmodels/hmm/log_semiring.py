"""Forward-backward in logarithms, ``log alpha_t(j) = logsumexp_i(log alpha_t-1(i) + log a_ij) + log b_t(j)``: slow, never underflows.

Sequences must be whole.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.hmm.log_product import CHUNK, LogProduct
from seqmodels.hmm.trellis import Forward, Posterior, Trellis


def forward(trellis: Trellis) -> Forward:
    """The forward pass; an impossible frame and all after it have step -inf, and the sequence ends with -inf."""
    log_alpha, steps = _forward(trellis)
    last = log_alpha[trellis.cutting.last]
    return Forward(steps, torch.logsumexp(last + trellis.final.log(), 1), log_alpha.exp())


def log_beliefs(trellis: Trellis) -> Tensor:
    """(N, K) float64 log p(z_t | x_<=t), however small."""
    return _forward(trellis)[0]


def posterior(trellis: Trellis) -> Posterior:
    """The E-step; sequences of probability zero have log_prob -inf and are left out of gamma (zeros) and the sums."""
    packing, log_a, log_b = trellis.packing, trellis.transition.log(), trellis.densities.log().double()
    log_alpha, steps = _forward(trellis)
    ends = torch.logsumexp(log_alpha[packing.last] + trellis.final.log(), 1)
    log_end, back = trellis.ends(torch.float64).log(), LogProduct(trellis.transition.T.contiguous())
    gamma = torch.zeros_like(log_alpha)
    xi = torch.zeros_like(trellis.transition)
    ahead = log_a.new_empty(0, len(log_a))  # log of b_t+1 beta_t+1 / c_t+1, for the sequences that go on
    for t in reversed(range(len(packing.blocks))):
        low, high = packing.blocks[t]
        now = log_alpha[low:high]
        going = len(ahead)
        beta = torch.cat([back(ahead), log_end[going : high - low]])
        norm = _finite(torch.logsumexp(now + beta, 1, keepdim=True))
        gamma[low:high] = (now + beta - norm).exp()
        weights = None if trellis.weights is None else trellis.weights[packing.order[:going]]
        xi += _pairs(now[:going], log_a, ahead, weights)
        ahead = log_b[low:high] + beta - norm - _finite(steps[low:high, None])
    log_prob = packing.totals(steps) + ends
    everyone = torch.arange(packing.n_sequences, device=gamma.device)
    first, last = (trellis.weighted(gamma[rows], everyone).sum(0) for rows in (packing.rank, packing.last))
    return Posterior(log_prob, gamma, xi, first, last)


def _forward(trellis: Trellis) -> tuple[Tensor, Tensor]:
    """(N, K) log of the beliefs, and (N,) steps."""
    onward, log_b = LogProduct(trellis.transition), trellis.densities.log().double()
    log_alpha, steps = torch.empty_like(log_b), log_b.new_empty(len(log_b))
    predicted = trellis.starts(torch.float64).log()
    for low, high in trellis.packing.blocks:
        joint = predicted[: high - low] + log_b[low:high]
        steps[low:high] = torch.logsumexp(joint, 1)
        log_alpha[low:high] = joint - _finite(steps[low:high, None])
        predicted = onward(log_alpha[low:high])
    return log_alpha, steps


def _pairs(log_alpha: Tensor, log_a: Tensor, ahead: Tensor, weights: Tensor | None) -> Tensor:
    """(K, K) expected transitions between one frame and the next, summed over sequences by ``weights (n,)``."""
    size = max(1, CHUNK // log_a.numel())
    total, each = torch.zeros_like(log_a), log_a.new_ones(len(ahead)) if weights is None else weights
    for here, there, weight in zip(log_alpha.split(size), ahead.split(size), each.split(size), strict=True):
        total += torch.einsum("n,nij->ij", weight, (here[:, :, None] + log_a + there[:, None, :]).exp())
    return total


def _finite(values: Tensor) -> Tensor:
    """Zero in place of -inf, so that an impossible row stays -inf and does not become NaN."""
    return torch.where(values == -torch.inf, 0.0, values)
