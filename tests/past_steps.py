"""The steps before each, as an autoregressive density reads them."""

from __future__ import annotations

import torch
from torch import Tensor


def past_steps(values: Tensor, n_past: int) -> Tensor | None:
    """The last ``n_past`` steps before each of ``values (B, T, D)``: ``(B, T, n_past, D)``, NaN before the start."""
    if n_past == 0:
        return None
    padded = torch.nn.functional.pad(values, (0, 0, n_past, 0), value=float("nan"))
    return padded.unfold(1, n_past, 1)[:, :-1].transpose(-1, -2)  # (B, T, n_past, D)
