"""The components of a mixture in blocks of frames: their sum is a density, their shares are responsibilities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from seqmodels.inference.chains.densities import PowerDensities
from seqmodels.inference.chains.scratch import Scratch

UNDERFLOW = {torch.float32: -120.0, torch.float64: -1000.0}  # smaller powers of two are subnormal and slow


@dataclass
class ComponentBlock:
    """The densities of the components of K mixtures in n frames, first as logarithms and after ``sum_up`` as densities.

    Attributes:
        rows: the frames of the block.
        components: log2 of weight times density of M components in each of K states, ``(M, K, n)``. After ``sum_up``
            they are densities over the largest of their state, or empty if M is 1.
        features: F features of the frames in which log-densities are linear, ``(F, n)``; None where they are cheaper to
            compute again than to keep.
        observed: True for the features observed in these frames, ``(D,)``; None if all are.
        result: buffer ``(M, K, n)`` for the densities; None overwrites ``components``.
    """

    rows: slice | Tensor
    components: Tensor
    features: Tensor | None = None
    observed: Tensor | None = None
    result: Tensor | None = None

    def sum_up(self, exponent: Tensor, factor: Tensor | None) -> None:
        """Write the density of each frame in each state as ``factor`` times ``2^exponent``, both ``(K, N)``.

        The density of a state is the sum over its components.

        Args:
            exponent: filled with exponents of two for K states, in the columns of this block's frames among N.
            factor: filled likewise with factors; None if there is one component, whose log2 is the exponent.
        """
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
        """Return the posterior of each state and component in n frames, ``(M·K, n)``, to be called after ``sum_up``.

        There are M components in each of K states. The components and ``factor`` are overwritten.

        Args:
            gamma: posterior of each state in all N frames, ``(N, K)``.
            factor: the factors that ``sum_up`` wrote; None if there is one component.
        """
        weight = gamma.T[:, self.rows]  # (K, n)
        if factor is None:
            return weight.to(self.components.dtype)
        if isinstance(self.rows, slice):
            weight = torch.div(weight, factor[:, self.rows], out=factor[:, self.rows])
        else:
            weight = weight / factor[:, self.rows]
        return self.components.mul_(weight).flatten(0, 1)


def _on_gpu(components: Tensor, exponent: Tensor) -> bool:
    """Return True if the Triton kernel can sum these components; Triton comes with PyTorch for a GPU."""
    if not components.is_cuda or find_spec("triton") is None:
        return False
    from seqmodels.hmm.emissions import triton_mixtures

    return triton_mixtures.can_run(components, exponent)


@dataclass(frozen=True)
class Memo:
    """Intermediate results of an E-step of mixtures, from which posteriors of components (responsibilities) are
    computed.

    Attributes:
        blocks: the components of all frames after ``sum_up``.
        factor: the factors that ``sum_up`` wrote for K states and N frames, ``(K, N)``; None if there is one component.
        has_missing: True if any value is missing.
    """

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
    """Return the densities of N frames under mixtures in K states, and results from which the M-step continues.

    The second result is a ``Memo``, from which posteriors of the components are computed.

    Args:
        blocks: weighted log2-densities of the components, for some frames at a time, in order.
        shape: ``(M, K, N)``, with M components in each state.
        dtype, device: precision and device of the densities.
        scratch: buffers that hold the densities.
        has_missing: True if any value of the frames is missing.
    """
    exponent, factor = _sums(shape, dtype, device, scratch)
    summed = []
    for block in blocks:
        block.sum_up(exponent, factor)
        summed.append(block)
    return PowerDensities(exponent, factor), Memo(summed, factor, has_missing)


def mixture_log_prob(
    blocks: Iterable[ComponentBlock], shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the log-densities of N frames under mixtures in K states in nats, ``(N, K)``.

    Each block is dropped after it is summed, because memory may not hold all of them.

    Args:
        blocks: weighted log2-densities of the components, for some frames at a time, in order.
        shape: ``(M, K, N)``, with M components in each state.
        dtype, device: precision and device of the result.
    """
    exponent, factor = _sums(shape, dtype, device, Scratch())
    for block in blocks:
        block.sum_up(exponent, factor)
    return PowerDensities(exponent, factor).log()


def new_log_weights(counts: Tensor, log_weights: Tensor) -> Tensor:
    """Return the log-weights ``(K, M)`` of mixture components that maximise the likelihood of expected ``counts (K,
    M)``.

    There are M components in each of K states. A state without counts keeps its row of ``log_weights``.
    """
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, (counts / total).log(), log_weights)


def _sums(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, scratch: Scratch
) -> tuple[Tensor, Tensor | None]:
    m, k, n = shape
    factor = scratch.buffer("factor", (k, n), dtype, device) if m > 1 else None
    return scratch.buffer("exponent", (k, n), dtype, device), factor
