"""Memory that a step frees stays with the process for the next step."""

from __future__ import annotations

import torch
from torch import nn

LARGEST = 31 << 20  # bytes: just below the most that glibc lets its threshold grow to


def keep_freed_memory(module: nn.Module) -> None:
    """Let the C library keep freed memory, if ``module`` is trained on CPU.

    glibc returns what is free above twice the largest block it has seen freed: after each step of a small network nearly
    all of it, to be zeroed and mapped again at the next. One large block raises that
    threshold. Other C libraries lose nothing by it.
    """
    if next(module.parameters()).device.type == "cpu":
        torch.empty(LARGEST, dtype=torch.uint8)
