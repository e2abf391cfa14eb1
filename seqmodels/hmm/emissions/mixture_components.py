"""The components of a mixture: their sum is a density, their shares are responsibilities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from seqmodels.inference.chains.densities import PowerDensities
from seqmodels.inference.chains.scratch import Scratch

UNDERFLOW = {torch.float32: -120.0, torch.float64: -1000.0}  # powers of two below are subnormal, which is slow


@dataclass
class ComponentBlock:
    """``components (M, K, n)``: logarithms to base two of w N of the frames ``rows``; ``features (F, n)``, or None
    where they are cheaper to make again than to keep; ``observed (D,)``: the features observed in these frames, or None
    if all are.

    Once summed, ``components`` are densities over the largest of each state, on ``result`` where it is given; of M = 1
    nothing is kept.
    """

    rows: slice | Tensor
    components: Tensor
    features: Tensor | None = None
    observed: Tensor | None = None
    result: Tensor | None = None

    def sum_up(self, exponent: Tensor, factor: Tensor | None) -> None:
        """Write the sum over components as ``factor · 2^exponent``, ``(K, N)``; None: there is one component."""
        if factor is None:
            exponent[:, self.rows] = self.components[0].to(exponent.dtype)
            self.components = self.components.new_empty(0)
            return
        smallest = UNDERFLOW[self.components.dtype]
        if isinstance(self.rows, slice) and _on_gpu(self.components, exponent):
            from seqmodels.hmm.emissions import triton_mixtures

            triton_mixtures.sum_up(self.components, exponent[:, self.rows], factor[:, self.rows], smallest)
            return
        result = self.components if self.result is None else self.result
        if isinstance(self.rows, slice) and self.components.dtype == exponent.dtype:  # in place
            peak = torch.amax(self.components, 0, out=exponent[:, self.rows])
            self.components = torch.sub(self.components, peak, out=result).clamp_(min=smallest).exp2_()
            torch.sum(self.components, 0, out=factor[:, self.rows])
        else:
            peak = self.components.amax(0)
            exponent[:, self.rows] = peak.to(exponent.dtype)
            self.components = torch.sub(self.components, peak, out=result).clamp_(min=smallest).exp2_()
            factor[:, self.rows] = self.components.sum(0).to(factor.dtype)

    def responsibilities(self, gamma: Tensor, factor: Tensor | None) -> Tensor:
        """``(M·K, n)``: posteriors of state and component, from those of the states, ``gamma (N, K)``; uses all up."""
        weight = gamma.T[:, self.rows]  # (K, n)
        if factor is None:
            return weight.to(self.components.dtype)
        if isinstance(self.rows, slice):
            weight = torch.div(weight, factor[:, self.rows], out=factor[:, self.rows])
        else:
            weight = weight / factor[:, self.rows]
        return self.components.mul_(weight).flatten(0, 1)


def _on_gpu(components: Tensor, exponent: Tensor) -> bool:
    """Whether there is a kernel for these components, and Triton, which comes with torch for a GPU."""
    if not components.is_cuda or find_spec("triton") is None:
        return False
    from seqmodels.hmm.emissions import triton_mixtures

    return triton_mixtures.can_run(components, exponent)


@dataclass(frozen=True)
class Memo:
    """The blocks of all frames, summed over components, the factors of the sums, and whether values are missing."""

    blocks: list[ComponentBlock]
    factor: Tensor | None
    has_missing: bool = False


def mixture_densities(
    blocks: Iterable[ComponentBlock],
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    scratch: Scratch,
    *,
    has_missing: bool = False,
) -> tuple[PowerDensities, Memo]:
    """Densities of N frames in K states of M components, ``shape`` ``(M, K, N)``, and the blocks, summed."""
    exponent, factor = _sums(shape, dtype, device, scratch)
    summed = []
    for block in blocks:
        block.sum_up(exponent, factor)
        summed.append(block)
    return PowerDensities(exponent, factor), Memo(summed, factor, has_missing)


def mixture_log_prob(
    blocks: Iterable[ComponentBlock], shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """``(N, K)`` log-densities, without the blocks, which memory may not hold at once."""
    exponent, factor = _sums(shape, dtype, device, Scratch())
    for block in blocks:
        block.sum_up(exponent, factor)
    return PowerDensities(exponent, factor).log()


def new_log_weights(counts: Tensor, log_weights: Tensor) -> Tensor:
    """``counts (K, M)`` -> log-weights; a state without frames keeps its own."""
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, (counts / total).log(), log_weights)


def _sums(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, scratch: Scratch
) -> tuple[Tensor, Tensor | None]:
    m, k, n = shape
    factor = scratch.buffer("factor", (k, n), dtype, device) if m > 1 else None
    return scratch.buffer("exponent", (k, n), dtype, device), factor
