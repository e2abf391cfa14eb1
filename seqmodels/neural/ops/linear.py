"""``x Wᵀ + b`` without gradients, by whichever of the processor's libraries is faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.ops.precision import has_bfloat16_kernels

ROWS = 32  # from which on oneDNN is faster: it takes longer to start
REPEATS = 16  # of a product, from which on it is faster to lay out the weight for it first


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``: (..., in) and (out, in) -> (..., out), the same up to rounding.

    In float32, without gradients, on a CPU with AVX-512 it is oneDNN's product, as in compiled code; torch itself calls
    MKL, which was slower where it was tried, on an AMD EPYC.
    """
    if torch.is_grad_enabled() or x.dtype != torch.float32 or x.device.type != "cpu":
        return F.linear(x, weight, bias)
    if x.numel() < ROWS * x.shape[-1] or torch.is_autocast_enabled("cpu") or not _has_avx512():
        return F.linear(x, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


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
    if weight.device.type != "cpu" or torch.compiler.is_compiling() or not _has_avx512():
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_bfloat16_kernels())


@cache
def _has_avx512() -> bool:
    """Whether the processor has it, and torch was built with oneDNN."""
    return torch.backends.mkldnn.is_available() and bool(torch.cpu.get_capabilities().get("avx512_f"))
