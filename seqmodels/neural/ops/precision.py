"""The precision in which a network computes."""

from __future__ import annotations

import torch
from torch import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """The type in which matrix products of ``x`` are computed: that of autocast where it is on, else that of ``x``."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
