"""Padded sequences read from their own end: what is real turned around, padding where it was."""

from __future__ import annotations

import torch
from torch import Tensor


def backwards(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Indices into ``(B, S, ...)`` that turn each row around within its own length; the same ones turn it back.

    Args:
        mask: (B, S), True where real, on the left.

    >>> backwards(torch.tensor([[True, True, True], [True, True, False]]))[1].tolist()
    [[2, 1, 0], [1, 0, 2]]
    """
    step, length = torch.arange(mask.shape[1], device=mask.device), mask.sum(1, keepdim=True)
    rows = torch.arange(len(mask), device=mask.device)[:, None]
    return rows, torch.where(step < length, length - 1 - step, step)
