"""Measurement of the largest amount of main memory that a block of code held."""

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
    """The largest amount of main memory that a block of code held; ``peak_memory`` fills it in when the block ends.

    Attributes:
        megabytes: the memory in units of 1e6 bytes, beyond what was held before; NaN if the system does not report it.
    """

    megabytes: float = math.nan


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """Return a context manager that measures the most main memory that its block held beyond what was held before.

    It yields a ``PeakMemory``, which is filled when the block ends. The measure is Linux's high-water mark. Free memory
    that Python or the C library kept from earlier work is returned to the system first. If they keep some of it anyway,
    its reuse within the block is not counted. Memory of a GPU is not counted.

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
        held_before = math.nan  # the mark covers the whole life of the process, which says nothing about this block
    yield peak
    peak.megabytes = _read_status("VmHWM") - held_before


def _release_free_memory() -> None:
    gc.collect(1)  # not a full collection, because that takes longer than many fits
    if PROC_STATUS.exists():
        library = ctypes.CDLL(None)
        try:
            library.malloc_trim(0)
        except AttributeError:
            return  # this C library cannot release it


def _read_status(field: str) -> float:
    """Return the field of ``/proc/self/status`` called ``field`` in megabytes (1e6 bytes), or NaN if there is none."""
    if not PROC_STATUS.exists():
        return math.nan
    lines = [line for line in PROC_STATUS.read_text().splitlines() if line.startswith(f"{field}:")]
    return int(lines[0].split()[1]) * 1024 / 1e6 if lines else math.nan
