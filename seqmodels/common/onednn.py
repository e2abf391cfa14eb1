"""Products of float32 matrices by oneDNN, which on a CPU with AVX-512 is faster than MKL at large ones."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def multiplies(x: Tensor) -> bool:
    """Return True if oneDNN (torch's CPU library) should compute matrix products of ``x``.

    That is so for float32 on a CPU with AVX-512, without autocast.
    """
    is_float32_on_cpu = x.dtype == torch.float32 and x.device.type == "cpu"
    return is_float32_on_cpu and not torch.is_autocast_enabled("cpu") and has_avx512()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight.T + bias`` as a new tensor, shape ``(..., out)``, computed by oneDNN without gradients.

    Call it only where ``multiplies(x)`` is True. It is fastest if ``x`` is contiguous. A weight that is contiguous
    neither itself nor transposed is copied first, because oneDNN is slow on parts of larger matrices.

    Args:
        x: inputs, shape ``(..., in)``.
        weight: weights, shape ``(out, in)``.
        bias: bias, shape ``(out,)``; None means 0.
    """
    if not (weight.is_contiguous() or weight.mT.is_contiguous()):
        weight = weight.contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


@cache
def has_avx512() -> bool:
    """Return True if the processor has AVX-512 and torch was built with oneDNN."""
    return torch.backends.mkldnn.is_available() and bool(torch.cpu.get_capabilities().get("avx512_f"))
