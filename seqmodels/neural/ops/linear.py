"""``x Wᵀ + b``, with and without gradients, by whichever of the processor's libraries is faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.common import onednn
from seqmodels.neural.ops.precision import has_kernels_for_bfloat16

ROWS = 32  # from which on oneDNN is faster: it takes longer to start
REPEATS = 16  # of a product, from which on it is faster to lay out the weight for it first


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``: (..., in) and (out, in) -> (..., out), the same up to rounding; gradients likewise.

    In float32 on a CPU with AVX-512 it is oneDNN's product; torch itself calls MKL, which was half as fast where it was
    tried, on an AMD EPYC. In compiled code it is torch's.
    """
    if x.numel() < ROWS * x.shape[-1] or not onednn.multiplies(x):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return onednn.linear(x, weight, bias)
    if torch.compiler.is_compiling() or not is_plain(weight):
        return F.linear(x, weight, bias)
    return cast(Tensor, _LinearByOneDNN.apply(x, weight, bias))  # type: ignore[no-untyped-call]


def is_plain(weight: Tensor) -> bool:
    """Whether it is a tensor of this process in float32, and no shard of one."""
    return type(weight) in (Tensor, nn.Parameter) and weight.dtype == torch.float32


class _LinearByOneDNN(torch.autograd.Function):
    """``F.linear`` in float32 with both passes by oneDNN; differentiated twice, the second pass is torch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return onednn.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        g, rows = gradients[0].flatten(0, -2), x.flatten(0, -2)
        product = F.linear if torch.is_grad_enabled() else onednn.linear
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            product(g, weight.t()).view(x.shape) if needs_x else None,
            product(g.t(), rows.t()) if needs_weight else None,
            g.sum(0) if ctx.has_bias and needs_bias else None,
        )


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
    """What ``layer`` makes of ``x (..., in)``, by the faster library as in ``linear``; hooks of it are not called."""
    return linear(x, layer.weight, layer.bias)


def _may_be_laid_out(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or torch.compiler.is_compiling() or not onednn.has_avx512():
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_kernels_for_bfloat16())
