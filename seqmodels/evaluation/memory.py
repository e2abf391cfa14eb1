"""The most memory that a piece of work held above what the process held before it."""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Peak:
    """``megabytes`` (1e6 bytes) of the process's main memory, once the work is done; NaN where the system does not say."""

    megabytes: float = math.nan


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure what is done within, by the system's own high-water mark, which is set back first; Linux only.

    Memory that Python or the C library kept from earlier work is handed back before; what they keep all the same is not
    counted when it is used again. A GPU's memory is not counted.

    >>> with peak_memory() as peak:
    ...     block = bytearray(30_000_000)
    >>> math.isnan(peak.megabytes) or peak.megabytes > 25
    True
    """
    peak = Peak()
    before = _restarted()
    yield peak
    peak.megabytes = _read("VmHWM") - before


def _restarted() -> float:
    """What is held now, from which the mark starts again."""
    _trim()
    try:
        CLEAR.write_text("5")
    except OSError:
        return math.nan  # the mark is that of the whole process, which is no figure of this work
    return _read("VmRSS")


def _trim() -> None:
    gc.collect(1)  # a full collection takes longer than many a fit
    if STATUS.exists():
        library = ctypes.CDLL(None)
        try:
            library.malloc_trim(0)
        except AttributeError:
            return  # a C library without it keeps what it keeps


def _read(field: str) -> float:
    """Megabytes of a line such as ``VmRSS:  120340 kB``."""
    if not STATUS.exists():
        return math.nan
    lines = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:")]
    return int(lines[0].split()[1]) * 1024 / 1e6 if lines else math.nan
