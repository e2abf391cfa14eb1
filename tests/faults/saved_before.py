"""Models that earlier versions saved say what they said then; a file of a newer format is refused as newer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import seqmodels as sm
from seqmodels.common import storage
from tests.faults.promise import Promise, main
from tests.fixtures.make import figures
from tests.test_fixtures import EACH, EXPECTED, ROUGH_SINUSOIDS, items


def deviation(folder: Path, name: str) -> float:
    """The largest relative one of a model's figures from those it gave when it was saved."""
    then = EXPECTED[folder]["models"][name]
    data = EXPECTED[folder]["data"][then["data"]]
    now = figures(sm.load(folder / f"{name}.safetensors"), items(data["X"]), items(data["y"]))
    return max(
        float((np.abs(np.subtract(a, b)) / np.maximum(1.0, np.abs(b))).max())
        for a, b in zip(now, then["figures"], strict=True)
    )


def newer_is_refused(path: Path) -> bool:
    """Whether a file that says that it is of the next format is refused for that."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "newer"
        model = sm.load(path)
        before = storage.FORMAT
        storage.FORMAT = before + 1
        try:
            model.save(copy)
        finally:
            storage.FORMAT = before
        try:
            sm.load(copy)
        except ValueError as error:
            return "newer version" in str(error)
    return False


def measure(quick: bool) -> list[Promise]:
    """Quick, a few of them: a unit test loads all."""
    found = {(folder.name, name): deviation(folder, name) for folder, name in (EACH[::8] if quick else EACH)}
    exact = [x for (folder, name), x in found.items() if not rough(folder, name)]
    others = [x for (folder, name), x in found.items() if rough(folder, name)]
    newer = sum(newer_is_refused(folder / f"{name}.safetensors") for folder, name in EACH[:3])
    promise = "saved models of every release say what they said"
    return [
        Promise(f"{promise}: float64", "1e-12", f"{max(exact):.1e} in {len(exact)} models", max(exact) <= 1e-12),
        Promise(
            f"{promise}: float32, and sinusoids, which were float32",
            "1e-6",
            f"{max(others):.1e} in {len(others)} models",
            max(others) <= 1e-6,
        ),
        Promise("a newer format is refused as newer", "3 of 3", f"{newer} of 3", newer == 3),
    ]


def rough(release: str, name: str) -> bool:
    return name.endswith("float32") or (release, name) in ROUGH_SINUSOIDS


if __name__ == "__main__":
    main(measure)
