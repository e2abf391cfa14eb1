"""Provenance of a figure: the command, date, versions and machine, so that it can be reproduced."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seqmodels.version import __version__

if TYPE_CHECKING:
    import pandas as pd

PACKAGES = ("torch", "numpy", "scipy", "pandas")


def provenance() -> dict[str, Any]:
    """The command (paths cut to names), the date in UTC, versions of Python and packages, and the hardware."""
    return {
        "command": _command(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            "seqmodels": __version__,
            **{name: version(name) for name in PACKAGES},
        },
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
    }


def stamped(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with the columns ``command``, ``date`` and ``hardware``."""
    now = provenance()
    hardware = now["hardware"]
    machine = (
        f"{hardware['processor']}, {hardware['cores']} cores, {hardware['threads']} threads, torch {torch.__version__}"
    )
    return frame.assign(command=f"python {now['command']}", date=now["date"], hardware=machine)


def _command() -> str:
    """The command line, with paths cut to file names."""
    return " ".join(Path(word).name if "/" in word else word for word in sys.argv)


def _processor() -> str:
    """The processor's name, as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
