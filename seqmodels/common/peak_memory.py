"""The most main memory that a block of code held."""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROC_STATUS, PROC_CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class PeakMemory:
    """``megabytes`` (1e6 bytes) of main memory, set when the block ends; NaN where the system does not say."""

    megabytes: float = math.nan


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """The most main memory that the block held above what was held before it, by Linux's high-water mark.

    Memory that Python or the C library kept from earlier work is returned to the system before; what they keep
    nevertheless is not counted when it is used again. A GPU's memory is not counted.

    >>> with peak_memory() as peak:
    ...     block = bytearray(100_000_000)
    >>> math.isnan(peak.megabytes) or peak.megabytes > 50
    True
    """
    peak = PeakMemory()
    _release_free_memory()
    try:
        PROC_CLEAR_REFS.write_text("5")  # the high-water mark starts again from what is held now
        held_before = _read_status("VmRSS")
    except OSError:
        held_before = math.nan  # the mark is that of the whole process, which says nothing of this block
    yield peak
    peak.megabytes = _read_status("VmHWM") - held_before


def _release_free_memory() -> None:
    gc.collect(1)  # a full collection takes longer than many a fit
    if PROC_STATUS.exists():
        library = ctypes.CDLL(None)
        try:
            library.malloc_trim(0)
        except AttributeError:
            return  # this C library cannot release it


def _read_status(field: str) -> float:
    """Megabytes of a line such as ``VmRSS:  120340 kB``."""
    if not PROC_STATUS.exists():
        return math.nan
    lines = [line for line in PROC_STATUS.read_text().splitlines() if line.startswith(f"{field}:")]
    return int(lines[0].split()[1]) * 1024 / 1e6 if lines else math.nan
