"""The components of a mixture, in chunks of frames: summed into densities, and shared out again as responsibilities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import by_state

UNDERFLOW = {torch.float32: -80.0, torch.float64: -700.0}  # exponents below give subnormal numbers, which are slow


@dataclass
class Chunk:
    """``components (M, K, n)``: log w + log N of the frames ``rows``; ``features (n, F)``, or None where they are cheaper to
    make again than to keep; ``seen (D,)``: the features observed in these frames, or None if that is no concern.

    Once summed, ``components`` are densities over each frame's largest (unless M = 1) and ``total (K, n)`` their sums.
    """

    rows: slice | Tensor
    components: Tensor
    features: Tensor | None = None
    seen: Tensor | None = None
    total: Tensor | None = None

    def log_sum(self) -> Tensor:
        """``(K, n)`` nats; uses the log-densities up."""
        if len(self.components) == 1:
            return self.components[0]
        peak = self.components.amax(0)
        smallest = UNDERFLOW[self.components.dtype]
        self.total = self.components.sub_(peak).clamp_(min=smallest).exp_().sum(0)
        return self.total.log().add_(peak)

    def shares(self, gamma: Tensor) -> Tensor:
        """``(M·K, n)``: posteriors of state and component, from those of the states, ``gamma (N, K)``; uses the densities up."""
        weight = gamma.T[:, self.rows].to(self.components.dtype)  # (K, n)
        if self.total is None:
            return weight
        return self.components.mul_(weight.div(self.total)).flatten(0, 1)


def densities(chunks: Iterable[Chunk], n_states: int, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, list[Chunk]]:
    """``(N, K)`` log-densities of all frames, and the chunks, summed."""
    result, kept = by_state(n_states, len(x), dtype, x.device), []
    for chunk in chunks:
        result.T[:, chunk.rows] = chunk.log_sum().to(dtype)
        kept.append(chunk)
    return result, kept


def log_prob(chunks: Iterable[Chunk], n_states: int, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same without the chunks, which memory may not hold at once."""
    result = by_state(n_states, len(x), dtype, x.device)
    for chunk in chunks:
        result.T[:, chunk.rows] = chunk.log_sum().to(dtype)
    return result


def new_log_weights(counts: Tensor, log_weights: Tensor) -> Tensor:
    """``counts (K, M)`` -> log-weights; a state without frames keeps its own."""
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, (counts / total).log(), log_weights)
