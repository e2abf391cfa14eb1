"""Committed tables of comparisons obey the methods of the library as it is now."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seqmodels.evaluation.statistics.paired import METHOD, METHOD_WITH_SEEDS, MIN_BLOCKS, USUAL_BLOCKS

RESULTS = Path(__file__).resolve().parents[2] / "experiments/results"
BLOCKS = re.compile(r"moving blocks of (\d+) steps")


def name_of(path: Path) -> str:
    return path.relative_to(RESULTS).as_posix()


def comparisons() -> list[Path]:
    """Tables that ``Comparison.frame`` made, or that have its intervals."""
    tables = sorted(RESULTS.rglob("*.csv"))
    return [path for path in tables if {"method", "difference"} <= set(pd.read_csv(path, nrows=0).columns)]


def faults(frame: pd.DataFrame) -> list[str]:
    """What the library would not write."""
    found = []
    for row in frame.to_dict("records"):
        method, n = row["method"], row.get("n_clusters", np.nan)
        if not isinstance(method, str) or method.startswith("none") or method in (METHOD, METHOD_WITH_SEEDS):
            pass
        elif BLOCKS.fullmatch(method) is None:
            found.append(f"{row['model']}: {method}")
        elif not MIN_BLOCKS <= n <= USUAL_BLOCKS:
            found.append(f"{row['model']}: {n} blocks, where {MIN_BLOCKS} to {USUAL_BLOCKS} are usual")
        if "bits" in row and not np.isclose(row["bits"], -row["score"] / np.log(2), equal_nan=True):
            found.append(f"{row['model']}: bits are a cost")
        if row.get("steps") == 0 and row.get("fit_seconds", 0) > 1 and not np.isnan(row.get("rank", np.nan)):
            found.append(f"{row['model']}: ranked, though no step was taken")
    return found


@pytest.mark.parametrize("path", comparisons(), ids=name_of)
def test_a_committed_table_is_of_the_methods_of_today(path: Path) -> None:
    assert faults(pd.read_csv(path)) == []


def test_a_fault_is_seen() -> None:
    row = {"model": "a", "score": -1.0, "bits": 1 / np.log(2), "difference": 0.1, "n_clusters": 10, "steps": 5}
    rows = [
        {**row, "method": METHOD},
        {**row, "method": "moving blocks of 106 steps", "n_clusters": 1052},
        {**row, "method": "cluster bootstrap"},
        {**row, "method": METHOD, "bits": -1.44},
        {**row, "method": METHOD, "steps": 0, "fit_seconds": 90.0, "rank": 3.0},
    ]
    assert [len(faults(pd.DataFrame([each]))) for each in rows] == [0, 1, 1, 1, 1]
