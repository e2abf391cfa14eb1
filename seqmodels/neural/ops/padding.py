"""Batches of sequences of different lengths, padded on the right."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def pad_right(rows: list[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return B sequences ``(T_i, ...)`` as a batch ``(B, T, ...)`` padded with zeros on the right, and a mask.

    The mask is False at padding, ``(B, T)`` bool.
    """
    padded = to_device(pad_sequence([torch.as_tensor(row) for row in rows], batch_first=True), device)
    lengths = to_device(torch.tensor([len(row) for row in rows]), device)
    return padded, torch.arange(padded.shape[1], device=device) < lengths.unsqueeze(1)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return CPU ``values`` on a device; the copy to a GPU is asynchronous, through pinned memory."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def reverse_padded(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices that reverse each row of a padded batch within its own length; applied twice they cancel.

    Args:
        mask: False at padding, which is on the right, ``(B, S)``.

    Returns:
        Row and column indices into ``(B, S, ...)``.

    >>> reverse_padded(torch.tensor([[True, True, True], [True, True, False]]))[1].tolist()
    [[2, 1, 0], [1, 0, 2]]
    """
    step, length = torch.arange(mask.shape[1], device=mask.device), mask.sum(1, keepdim=True)
    rows = torch.arange(len(mask), device=mask.device)[:, None]
    return rows, torch.where(step < length, length - 1 - step, step)
