"""Dropout from 16 random bits for each entry.

On a CPU torch takes longer to draw a mask than to multiply matrices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.common.randomness import fit_generator, torch_dropout

LEVELS = 1 << 16  # probabilities are multiples of 1 / LEVELS


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Return ``x`` with random entries set to zero and the others scaled up, in training (Srivastava et al., 2014).

    In evaluation it is ``x``. On a CPU four entries share one 64-bit draw of the fit's generator, so that a mask costs
    a quarter of the draws; p is rounded to a multiple of 2⁻¹⁶, and the scale belongs to the rounded p, so that the mean
    is kept exactly. On other devices it is torch's dropout.

    Args:
        x: tensor of any shape.
        p: fraction of entries dropped, from 0 to 1.
        training: True to drop entries.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return torch_dropout(x, p)
    return x * keep_factors(x.shape, p, x.dtype)


def keep_factors(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """Return the factors by which ``dropout`` multiplies entries: 0 if dropped, else the inverse of the fraction kept.

    They are drawn anew, on the CPU.

    Args:
        shape: shape of the result.
        p: fraction of entries dropped, from 0 to 1; it is rounded to a multiple of 2⁻¹⁶.
        dtype: dtype of the result.
    """
    dropped = round(p * LEVELS)
    if dropped == LEVELS:
        return torch.zeros(shape, dtype=dtype)
    return keep_mask(shape, dropped).to(dtype).mul_(LEVELS / (LEVELS - dropped))


def keep_mask(shape: torch.Size, dropped: int) -> Tensor:
    """Return a random mask of this shape on the CPU; each entry is False with probability ``dropped / 65536``."""
    size = shape.numel()
    draws = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(1 << 63), None, generator=fit_generator())
    return (draws.view(torch.int16)[:size] >= dropped - LEVELS // 2).view(shape)
