"""What this machine can hold: work that cannot fit is refused before it begins."""

from __future__ import annotations

import math
import os


def memory() -> float:
    """Bytes of main memory; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def refuse_beyond_memory(what: str, n_bytes: float, way_out: str) -> None:
    """Raise ``ValueError`` if ``what`` takes more bytes than there are.

    >>> refuse_beyond_memory("a table", 1e18, "pass fewer states")
    Traceback (most recent call last):
    ...
    ValueError: a table would take 888.2 PiB of memory, more than this machine has; pass fewer states
    """
    if n_bytes > memory():
        raise ValueError(f"{what} would take {_readable(n_bytes)} of memory, more than this machine has; {way_out}")


def _readable(n_bytes: float) -> str:
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(len(units) - 1, int(math.log2(n_bytes)) // 10) if n_bytes >= 1 else 0
    return f"{n_bytes / 1024.0**power:,.1f} {units[power]}"
