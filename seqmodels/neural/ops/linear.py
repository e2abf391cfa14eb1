"""Linear layers, ``x Wᵀ + b``, with and without gradients, computed by torch or oneDNN, whichever is faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.common import onednn
from seqmodels.neural.ops.precision import has_kernels_for_bfloat16

ROWS = 32  # number of rows from which oneDNN is faster, which takes longer to start
REPEATS = 16  # number of repeated products from which laying out the weight first is faster


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x Wᵀ + b`` as ``F.linear`` does, with the same gradients, both up to rounding.

    In float32 on a CPU with AVX-512 it is oneDNN's product, because MKL's, which torch calls, was half as fast on the
    AMD EPYC where it was tried. Under ``torch.compile`` it is torch's.

    Args:
        x: inputs, ``(..., in)``.
        weight: W, ``(out, in)``.
        bias: b, ``(out,)``; None for none.
    """
    if x.numel() < ROWS * x.shape[-1] or not onednn.multiplies(x):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return onednn.linear(x, weight, bias)
    if torch.compiler.is_compiling() or not is_plain(weight):
        return F.linear(x, weight, bias)
    return cast(Tensor, _LinearByOneDNN.apply(x, weight, bias))  # type: ignore[no-untyped-call]


def is_plain(weight: Tensor) -> bool:
    """Return True if ``weight`` is an ordinary float32 tensor and not a shard (``DTensor``)."""
    return type(weight) in (Tensor, nn.Parameter) and weight.dtype == torch.float32


class _LinearByOneDNN(torch.autograd.Function):
    """The function ``F.linear`` in float32 whose forward and backward pass are computed by oneDNN.

    If it is differentiated twice, the second backward pass is torch's.
    """

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
    """Return the function ``x -> x Wᵀ``, prepared for ``n_times`` products with the same W, without gradients.

    For enough products on a CPU with AVX-512 oneDNN computes it, with W laid out for it once, and otherwise
    ``torch.mm``; results are the same up to rounding.

    Args:
        weight: W, ``(out, in)``.
        n_rows: number of rows of each ``x``, which is ``(n_rows, in)``.
        n_times: number of products to be computed.
    """
    if n_times < REPEATS or not _may_be_laid_out(weight):
        transposed = weight.t()
        return lambda x: torch.mm(x, transposed)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, n_rows)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda x: product(x, laid_out, None, "none", [], "")


def apply_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Return ``layer(x)`` for ``x (..., in)``, computed by torch or oneDNN; hooks of the layer are not called."""
    return linear(x, layer.weight, layer.bias)


def _may_be_laid_out(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or torch.compiler.is_compiling() or not onednn.has_avx512():
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_kernels_for_bfloat16())
