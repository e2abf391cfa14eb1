"""Batches of sequences of different lengths, padded on the right."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def pad_right(rows: list[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows (T_i, ...) as a batch (B, T, ...), padded with zeros, and its mask (B, T), True where real."""
    padded = to_device(pad_sequence([torch.as_tensor(row) for row in rows], batch_first=True), device)
    lengths = to_device(torch.tensor([len(row) for row in rows]), device)
    return padded, torch.arange(padded.shape[1], device=device) < lengths.unsqueeze(1)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """``values``, of the CPU, there: on a GPU by way of pinned memory, so that it need not be waited for."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def reverse_padded(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Indices into ``(B, S, ...)`` that reverse each row within its own length; applied twice they undo themselves.

    Args:
        mask: (B, S), True where real, on the left.

    >>> reverse_padded(torch.tensor([[True, True, True], [True, True, False]]))[1].tolist()
    [[2, 1, 0], [1, 0, 2]]
    """
    step, length = torch.arange(mask.shape[1], device=mask.device), mask.sum(1, keepdim=True)
    rows = torch.arange(len(mask), device=mask.device)[:, None]
    return rows, torch.where(step < length, length - 1 - step, step)
