"""Main memory: what cannot fit is refused before work begins, and what a training step frees is kept for the next."""

from __future__ import annotations

import math
import os

import torch
from torch import nn

# Bytes: just below the most that glibc lets the threshold grow to, from which on it returns freed blocks.
LARGEST_THRESHOLD = 31 << 20


def main_memory() -> float:
    """Bytes of main memory; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def memory_of_process(device: torch.device) -> float:
    """Bytes that a process may use there: of a GPU all, of main memory its part beside others of ``torchrun``."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return main_memory() / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def refuse_beyond_memory(what: str, n_bytes: float, way_out: str) -> None:
    """Raise ``ValueError`` if ``what`` takes more bytes than there are.

    >>> refuse_beyond_memory("a table", 1e18, "pass fewer states")
    Traceback (most recent call last):
    ...
    ValueError: a table would take 888.2 PiB of memory, more than this machine has; pass fewer states
    """
    if n_bytes > main_memory():
        raise ValueError(f"{what} would take {_readable(n_bytes)} of memory, more than this machine has; {way_out}")


def _readable(n_bytes: float) -> str:
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(len(units) - 1, int(math.log2(n_bytes)) // 10) if n_bytes >= 1 else 0
    return f"{n_bytes / 1024.0**power:,.1f} {units[power]}"


def keep_freed_memory(module: nn.Module) -> None:
    """Let the C library keep freed memory, if ``module`` is trained on CPU.

    glibc returns what is free above twice the largest block it has seen freed: after each step of a small network
    nearly all of it, to be zeroed and mapped again at the next. One large block raises that threshold. Other C
    libraries lose nothing by it.
    """
    if next(module.parameters()).device.type == "cpu":
        torch.empty(LARGEST_THRESHOLD, dtype=torch.uint8)
