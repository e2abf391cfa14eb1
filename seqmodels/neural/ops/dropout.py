"""Dropout from 16 random bits an entry: on a CPU torch takes longer to draw a mask than to multiply matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.common.randomness import fit_generator, torch_dropout

LEVELS = 1 << 16  # probabilities are whole multiples of 1 / LEVELS


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``x * kept / P(kept)`` in training, ``x`` otherwise (Srivastava et al., 2014).

    Four entries share one 64-bit draw of the fit's generator, so that on a CPU a mask costs a quarter of the draws; the
    probability is rounded to a multiple of 2⁻¹⁶, and the scale is of the rounded one, so the mean is exactly kept. On
    other devices it is torch's own.

    Args:
        x: of any shape.
        p: fraction dropped, from 0 to 1.
        training: whether to drop at all.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return torch_dropout(x, p)
    return x * keep_factors(x.shape, p, x.dtype)


def keep_factors(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """What ``dropout`` multiplies by, on the CPU: 0, or 1 / P(kept)."""
    dropped = round(p * LEVELS)
    if dropped == LEVELS:
        return torch.zeros(shape, dtype=dtype)
    return keep_mask(shape, dropped).to(dtype).mul_(LEVELS / (LEVELS - dropped))


def keep_mask(shape: torch.Size, dropped: int) -> Tensor:
    """Bool of this shape, on the CPU: each False with probability ``dropped / LEVELS``, independently."""
    size = shape.numel()
    draws = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(1 << 63), None, generator=fit_generator())
    return (draws.view(torch.int16)[:size] >= dropped - LEVELS // 2).view(shape)
