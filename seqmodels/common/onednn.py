"""Products of float32 matrices by oneDNN: on a CPU with AVX-512 faster than MKL, which torch itself calls."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def multiplies(x: Tensor) -> bool:
    """Whether oneDNN is for products of ``x``: float32 on a CPU with AVX-512, without autocast."""
    is_float32_on_cpu = x.dtype == torch.float32 and x.device.type == "cpu"
    return is_float32_on_cpu and not torch.is_autocast_enabled("cpu") and has_avx512()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``, without gradients, where ``multiplies(x)``: (..., in) and (out, in) -> (..., out), a new tensor.

    Quickest where ``x`` is contiguous, and ``weight`` or its transpose: part of a larger matrix is copied first, for
    which oneDNN has but a slow loop.
    """
    if not (weight.is_contiguous() or weight.mT.is_contiguous()):
        weight = weight.contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


@cache
def has_avx512() -> bool:
    """Whether the processor has it, and torch was built with oneDNN."""
    return torch.backends.mkldnn.is_available() and bool(torch.cpu.get_capabilities().get("avx512_f"))
