"""``x Wᵀ + b`` without gradients, by whichever of the processor's libraries is faster."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.common import onednn
from seqmodels.neural.ops.precision import has_kernels_for_bfloat16

ROWS = 32  # from which on oneDNN is faster: it takes longer to start
REPEATS = 16  # of a product, from which on it is faster to lay out the weight for it first


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``: (..., in) and (out, in) -> (..., out), the same up to rounding.

    In float32, without gradients, on a CPU with AVX-512 it is oneDNN's product, as in compiled code; torch itself calls
    MKL, which was slower where it was tried, on an AMD EPYC.
    """
    if torch.is_grad_enabled() or x.numel() < ROWS * x.shape[-1] or not onednn.multiplies(x):
        return F.linear(x, weight, bias)
    return onednn.linear(x, weight, bias)


def repeated_linear(weight: Tensor, n_rows: int, n_times: int) -> Callable[[Tensor], Tensor]:
    """``x -> x Wᵀ`` of one ``weight (out, in)`` and ``n_times`` many ``x (n_rows, in)``, without gradients.

    For enough of them on a CPU with AVX-512 it is oneDNN's product, with W laid out once as it wants it, and otherwise
    ``mm``; the same up to rounding.
    """
    if n_times < REPEATS or not _may_be_laid_out(weight):
        transposed = weight.t()
        return lambda x: torch.mm(x, transposed)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, n_rows)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda x: product(x, laid_out, None, "none", [], "")


def apply_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """``layer(x)`` by ``linear`` where there are no gradients."""
    if torch.is_grad_enabled():
        out: Tensor = layer(x)
        return out
    return linear(x, layer.weight, layer.bias)


def _may_be_laid_out(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or torch.compiler.is_compiling() or not onednn.has_avx512():
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_kernels_for_bfloat16())
