"""Several processes under ``torchrun``: every one is given all sequences, works on its share, and sums are added up over all.

The script is that of one process, after ``torch.distributed.init_process_group()``; so are the parameters, but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Item = TypeVar("Item")


def share(items: Sequence[Item]) -> list[Item]:
    """Every n-th of them, for n processes; all where there is only this one.

    Raises:
        ValueError: there are fewer than processes.
    """
    if not _several():
        return list(items)
    if len(items) < dist.get_world_size():
        raise ValueError(
            f"there are {len(items)} sequences for {dist.get_world_size()} processes; start fewer, or cut the sequences"
        )
    return list(items[dist.get_rank() :: dist.get_world_size()])


def add_up(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The sums over all processes of float64 tensors, of the same shapes in each; all processes must call it."""
    if not _several():
        return list(tensors)
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    parts = flat.split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
