"""``x Wᵀ + b`` in evaluation, by whichever of the processor's libraries is faster."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels import onednn

ROWS = 32  # from which on oneDNN is faster: it takes longer to start


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``: (..., in) and (out, in) -> (..., out), the same up to rounding.

    In float32, without gradients, on a CPU with AVX-512 it is oneDNN's product, as in compiled code; torch itself calls
    MKL, which was slower where it was tried, on an AMD EPYC.
    """
    if torch.is_grad_enabled() or x.numel() < ROWS * x.shape[-1] or not onednn.multiplies(x):
        return F.linear(x, weight, bias)
    return onednn.linear(x, weight, bias)


def apply_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """``layer(x)`` by ``linear`` where there are no gradients."""
    if torch.is_grad_enabled():
        out: Tensor = layer(x)
        return out
    return linear(x, layer.weight, layer.bias)
