"""How much memory a process has held at most, and how much more than before it began; in MB of 2^20 bytes."""

from __future__ import annotations

import resource
from pathlib import Path

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


class Peak:
    """Peak resident memory since construction; since the start of the process where the peak cannot be reset.

    Linux lets a process reset its own peak through ``/proc/self/clear_refs``.
    """

    def __init__(self) -> None:
        self.earlier = _most()
        self.held = _field("VmRSS") or self.earlier
        _reset_peak()

    def mb(self) -> float:
        """The most that was ever resident."""
        return max(self.earlier, _most())

    def extra_mb(self) -> float:
        """The most that was resident since, over what was before."""
        return max(0.0, _most() - self.held)


def _reset_peak() -> None:
    """Reset the peak to what is resident now (Linux); does nothing where the file is absent or not writable."""
    if RESET.exists():
        try:
            RESET.write_text("5")
        except PermissionError:
            return


def _most() -> float:
    # Not ru_maxrss where it can be helped: that is also of what the process was before it became this program.
    return _field("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kilobytes on Linux


def _field(name: str) -> float:
    """0.0 where there is no such field."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), 0.0)
