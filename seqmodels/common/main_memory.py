"""Main memory: refusing work that cannot fit, and keeping what a training step frees for the next step."""

from __future__ import annotations

import math
import os

import torch
from torch import nn

# Bytes: just below the most that glibc lets the threshold grow to, from which on it returns freed blocks.
LARGEST_THRESHOLD = 31 << 20


def main_memory() -> float:
    """Return the size of this machine's main memory in bytes; infinity if the system does not report it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def memory_of_process(device: torch.device) -> float:
    """Return the number of bytes of memory that this process may use on a device.

    On a GPU this is all of its memory. On a CPU it is main memory divided by the number of processes that ``torchrun``
    started on this machine.
    """
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return main_memory() / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def refuse_beyond_memory(what: str, n_bytes: float, way_out: str) -> None:
    """Check that an amount of memory is at most this machine's main memory.

    Args:
        what: what would take the memory, as the beginning of the message.
        n_bytes: bytes that it would take.
        way_out: what to do instead, as the end of the message.

    Raises:
        ValueError: it is more.

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
    """Let the C library keep freed memory for reuse in this process, if the weights of ``module`` are on a CPU.

    glibc returns free memory above twice the largest block that it has seen freed. With a small network that is nearly
    everything after each training step, and the system has to map it again at the next. This function raises the
    threshold by freeing one large block.
    """
    if next(module.parameters()).device.type == "cpu":
        torch.empty(LARGEST_THRESHOLD, dtype=torch.uint8)
