"""``x Wᵀ + b`` in evaluation, by whichever of the processor's libraries is faster."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 32  # from which on oneDNN is faster: it takes longer to start


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


def apply_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """``layer(x)`` by ``linear`` where there are no gradients."""
    if torch.is_grad_enabled():
        out: Tensor = layer(x)
        return out
    return linear(x, layer.weight, layer.bias)


@cache
def _has_avx512() -> bool:
    """Whether the processor has it, and torch was built with oneDNN."""
    return torch.backends.mkldnn.is_available() and bool(torch.cpu.get_capabilities().get("avx512_f"))
