"""Provenance of figures: the command, date, versions, machine, data and settings that are needed to reproduce them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seqmodels.common.storage import describe
from seqmodels.common.version import __version__
from seqmodels.data import sha256
from seqmodels.evaluation.comparison.saved_comparison import as_json
from seqmodels.model import SequenceModel

if TYPE_CHECKING:
    import pandas as pd

    from seqmodels.evaluation.comparison.plan import DataParts, FitPlan

PACKAGES = ("torch", "numpy", "scipy", "pandas")


def provenance() -> dict[str, Any]:
    """Return the command, the date in UTC, the versions of Python and packages, and the hardware, as a dictionary.

    Paths in the command are cut to file names.
    """
    return {
        "command": " ".join(Path(word).name if "/" in word else word for word in sys.argv),
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


def comparison_provenance(models: Mapping[str, SequenceModel], parts: DataParts, plan: FitPlan) -> dict[str, Any]:
    """Return what is needed to reproduce a comparison, as a dictionary of JSON values.

    It has the command, date, versions and hardware, SHA-256 hashes of the data, and all settings.

    Args:
        models: models by name.
        parts: training, validation and test data.
        plan: seeds, budget and search.
    """
    by_name = {"train": parts.train, "validation": parts.held_out, "test": parts.test}
    items = [(f"{name} {n}", s) for name, d in by_name.items() if d is not None for n, s in (("x", d.X), ("y", d.y))]
    record = {
        **provenance(),
        "sha256": {name: sha256(s) for name, s in items if s is not None},
        "models": {name: describe(model, by_name=True) for name, model in models.items()},
        "random_state": plan.random_state,
        "seeds": plan.seeds,
        "budget": None if plan.budget is None else vars(plan.budget),
        "search": None if plan.search is None else vars(plan.search),
        "validation": parts.validation if isinstance(parts.validation, str | None) else "given",
    }
    return {name: as_json(value) for name, value in record.items()}


def stamped(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of a frame with columns that say how it was made: ``command``, ``date`` and ``hardware``."""
    now = provenance()
    hardware = now["hardware"]
    machine = (
        f"{hardware['processor']}, {hardware['cores']} cores, {hardware['threads']} threads, torch {torch.__version__}"
    )
    return frame.assign(command=f"python {now['command']}", date=now["date"], hardware=machine)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
