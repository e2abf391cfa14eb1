"""What was run, when and on what, as columns beside the figures."""

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import torch


def stamped(frame: pd.DataFrame) -> pd.DataFrame:
    """With the columns ``command``, ``date`` and ``hardware``."""
    words = [Path(word).name if "/" in word else word for word in sys.argv]
    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    hardware = f"{_processor()}, {threads}, torch {torch.__version__}"
    return frame.assign(
        command=" ".join(["python", *words]), date=datetime.now(UTC).isoformat(timespec="seconds"), hardware=hardware
    )


def _processor() -> str:
    """As the system names it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
