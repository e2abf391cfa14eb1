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
    hardware = (
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    return frame.assign(
        command=" ".join(["python", *words]), date=datetime.now(UTC).isoformat(timespec="seconds"), hardware=hardware
    )
