"""The single most probable path, ``delta_t(j) = max_i (delta_t-1(i) + log a_ij) + log b_t(j)`` (Viterbi, 1967)."""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import LogDensities
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.trellis import Trellis

CHUNK = 1 << 22  # elements of the (n, K, K) intermediate held at once


@torch.no_grad()
def viterbi(
    initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The best path of states of each sequence, in float64 whatever the precision of ``log_b``.

    Exact ties go to the lowest state, decided from the last frame backwards. The memory it takes beyond ``log_b`` is
    one or two bytes for each frame and state.

    Args:
        initial: (K,) p(z_1), or (n, K), one row a sequence in the caller's order.
        transition: (K, K) p(z_t+1 | z_t).
        log_b: (N, K) packed log p(x_t | z_t) in nats.
        packing: which rows belong to which sequence.
        final: (K,) p(end | z_T), where the end is an event.

    Returns:
        (N,) int64 packed states, and (n,) float64 nats, log p(path, x). A sequence no path can explain has -inf, and its
        states mean nothing.

    >>> log_b = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    >>> path, _ = viterbi(torch.tensor([0.5, 0.5]), torch.full((2, 2), 0.5), log_b, Packing.of([2]))
    >>> path.tolist()
    [0, 1]
    """
    whole = Cutting.whole(packing.lengths, log_b.device)
    trellis = Trellis.of(initial, transition, LogDensities(log_b.detach()), whole, final)
    best, came_from = _climb(trellis)
    log_prob, state = best.max(1)
    return _trace(trellis.packing, came_from, state), log_prob[trellis.packing.rank]


def _climb(trellis: Trellis) -> tuple[Tensor, Tensor]:
    """(n, K) by rank, the best way to end in each state; (N, K) the state before, for rows after the first frames."""
    into = trellis.transition.log().T.contiguous()  # into[j, i] = log a_ij
    log_b, blocks = trellis.densities.log(), trellis.packing.blocks
    came_from = torch.zeros(log_b.shape, dtype=torch.uint8 if len(into) <= 256 else torch.int32, device=log_b.device)
    delta = trellis.starts(torch.float64).log() + log_b[: blocks[0][1]]
    log_ends = trellis.ends(torch.float64).log()
    best = torch.empty_like(log_ends)
    for low, high in blocks[1:]:
        best[high - low : len(delta)] = delta[high - low :]
        delta, came_from[low:high] = _step(delta[: high - low], into)
        delta += log_b[low:high]
    best[: len(delta)] = delta
    return best + log_ends, came_from


def _step(delta: Tensor, into: Tensor) -> tuple[Tensor, Tensor]:
    """(n, K) best scores and the lowest states they come from, a few rows at a time."""
    pieces = [(rows[:, None, :] + into).max(2) for rows in delta.split(max(1, CHUNK // into.numel()))]
    return torch.cat([piece.values for piece in pieces]), torch.cat([piece.indices for piece in pieces])


def _trace(packing: Packing, came_from: Tensor, last: Tensor) -> Tensor:
    """(N,) states, followed back from the last ones (n,) by rank."""
    path = torch.empty(len(came_from), dtype=torch.int64, device=came_from.device)
    state = last[:0]
    for low, high in reversed(packing.blocks):
        state = torch.cat([state, last[len(state) : high - low]])
        path[low:high] = state
        state = came_from[low:high].gather(1, state[:, None])[:, 0].long()
    return path
