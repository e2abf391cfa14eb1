"""How much memory a process has held at most, and how much more than before it began; in MB of 2^20 bytes."""

from __future__ import annotations

import resource
from pathlib import Path

STATUS, MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """The most that is resident from when this is made, where Linux lets a process lower its own mark; elsewhere from its beginning."""

    def __init__(self) -> None:
        self.earlier = _most()
        self.held = _field("VmRSS") or self.earlier
        _lower_mark()

    def mb(self) -> float:
        """The most that was ever resident."""
        return max(self.earlier, _most())

    def extra_mb(self) -> float:
        """The most that was resident since, over what was before."""
        return max(0.0, _most() - self.held)


def _lower_mark() -> None:
    """Linux: the mark falls to what is resident now. Where there is no such file, or it may not be written, the mark stays."""
    if MARK.exists():
        try:
            MARK.write_text("5")
        except PermissionError:
            return


def _most() -> float:
    # Not ru_maxrss where it can be helped: that is also of what the process was before it became this program.
    return _field("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kilobytes on Linux


def _field(name: str) -> float:
    """0.0 where there is no such field."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), 0.0)
