"""The recursion over time of Viterbi's algorithm, on all pieces that are still running at once.

Terms are rounded to a grid of ``1 / GRID`` nats, some 1e-11. Sums of such numbers are exact below ``2^53 / GRID``, 1e5 nats, so that
neither the order of terms nor where a sequence is cut decides between two paths: equal ones are exactly equal. Scores lose their
largest every ``RENEWED`` frames to stay small.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.hmm.cutting import ROUND
from seqmodels.hmm.packing import Packing

GRID = 2.0**36  # steps in a nat
RENEWED = ROUND  # frames; pieces have a multiple of them, so that scores are what they are in the whole sequence
CHUNK = 1 << 22  # elements of the (n, K, K) intermediate held at once


def on_grid(nats: Tensor) -> Tensor:
    """Rounded, in float64, states along memory."""
    shift = 1.5 * 2**52 / GRID  # to numbers that are 1 / GRID apart; beyond 3e4 nats the grid is coarser
    return torch.empty(nats.shape, dtype=torch.float64, device=nats.device).copy_(nats).add_(shift).sub_(shift)


def climb(into: Tensor, log_b: Tensor, packing: Packing, arriving: Tensor) -> tuple[Tensor, Tensor]:
    """The best ways through pieces.

    Args:
        into: (K, K) on the grid, ``into[j, i] = log a_ij``.
        log_b: (N, K) packed.
        arriving: (w, K) by rank, scores before the first frames.

    Returns:
        (w, K) by rank, scores after the last frames, the largest 0; and (N, K) the states before, but for first frames.
    """
    came_from = torch.zeros(log_b.shape, dtype=torch.uint8 if len(into) <= 256 else torch.int16, device=log_b.device)
    closing, delta, blocks = torch.empty_like(arriving), arriving, packing.blocks
    for start in range(0, len(blocks), RENEWED):
        window = blocks[start : start + RENEWED]
        offset = window[0][0]
        seen = on_grid(log_b[offset : window[-1][1]])
        for t, (low, high) in enumerate(window, start):
            if t:
                closing[high - low : len(delta)] = delta[high - low :]
                delta, came_from[low:high] = step(delta[: high - low], into)
            delta = seen[low - offset : high - offset].add_(delta)
        delta = renewed(delta)
    closing[: len(delta)] = delta
    return renewed(closing), came_from


def warm_up(into: Tensor, log_b: Tensor, size: int, margin: int, packing: Packing) -> Tensor:
    """(m, K) by rank: a guess of the scores after each piece of full size, from even ones ``margin`` frames before its end."""
    m = packing.batch_sizes[size - 1]
    delta = torch.zeros(m, len(into), dtype=torch.float64, device=into.device)
    for t in range(size - margin, size):
        low = packing.blocks[t][0]
        if t > size - margin:
            delta = torch.cat([_arrivals(rows, into).amax(2) for rows in _split(delta, into)])
        delta = delta + on_grid(log_b[low : low + m])
        if (t + 1) % RENEWED == 0:
            delta = renewed(delta)
    return renewed(delta)


def step(delta: Tensor, into: Tensor) -> tuple[Tensor, Tensor]:
    """(n, K) best scores and the lowest states they come from, a few rows at a time."""
    found = [_arrivals(rows, into).max(2) for rows in _split(delta, into)]
    if len(found) == 1:
        return found[0].values, found[0].indices
    return torch.cat([best.values for best in found]), torch.cat([best.indices for best in found])


def renewed(delta: Tensor) -> Tensor:
    """Less the largest of each row; impossible rows stay -inf."""
    return delta - delta.amax(1, keepdim=True).clamp_(min=torch.finfo(delta.dtype).min)


def _arrivals(delta: Tensor, into: Tensor) -> Tensor:
    """(n, K, K): from every state (last axis) to every state."""
    return delta[:, None, :] + into


def _split(delta: Tensor, into: Tensor) -> tuple[Tensor, ...]:
    return delta.split(max(1, CHUNK // into.numel()))
