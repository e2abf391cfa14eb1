"""Inputs of the commands: data by their paths, and saved models together with how their data were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from seqmodels import storage
from seqmodels.data.text import Unit
from seqmodels.evaluation.datasets import DATASETS, Dataset, Pair, Parallel, Recordings, Table, TextFiles, hashed
from seqmodels.evaluation.toml import from_table, to_table
from seqmodels.loading import MALFORMED, restored
from seqmodels.model import SequenceModel


@dataclass(frozen=True)
class Reading:
    """Options of how tables and texts are read, see ``Table`` and ``TextFiles``."""

    by: str = ""
    columns: Sequence[str] = ()
    time: str = ""
    cut: Unit = "whole"


def dataset_of(path: str, target: str | None, reading: Reading) -> Dataset:
    """The data set at a path: pairs if there is a target, a table, recordings, otherwise text."""
    if target is not None:
        return Parallel(path, target)
    file = Path(path)
    if file.suffix.lower() == ".csv":
        return Table(path, reading.by, list(reading.columns), reading.time)
    if file.suffix.lower() == ".wav" or (file.is_dir() and _has_recordings(file)):
        return Recordings(path)
    return TextFiles(path, reading.cut)


def _has_recordings(folder: Path) -> bool:
    return any(f.suffix.lower() == ".wav" for f in folder.rglob("*"))


@dataclass(frozen=True)
class Saved:
    """A model and, where the command line saved it, how its data were read.

    Args:
        model: fitted.
        data: how the data were read; None where only the model is known.
        sample_rate: in Hz, of recordings.
        about: further facts about the data, as JSON.
    """

    model: SequenceModel
    data: Dataset | None = None
    sample_rate: int | None = None
    about: dict[str, Any] | None = None

    @classmethod
    def of(cls, model: SequenceModel, data: Dataset, read: Pair) -> Self:
        """A model that was just fitted to these data."""
        X, y = read
        scored = X if y is None else y
        rate = int(X.metadata["sample_rate"].iloc[0]) if "sample_rate" in X.metadata else None
        about = {
            "sequences": len(X),
            "units": int(scored.n_units.sum()),
            "unit": scored.unit,
            "n_features": scored.n_features,
            "sha256": hashed(read),
        }
        return cls(model, data.at([Path(path).name for path in data.paths()]), rate, about)

    @classmethod
    def read(cls, path: str) -> Self:
        """From a file; ``ValueError`` if it has no sequence model, ``FileNotFoundError`` if there is none."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}; seqmodels fit writes one")
        content = storage.read(path)
        model = restored(content, path)
        if not isinstance(model, SequenceModel):
            raise ValueError(f"{path} holds a {type(model).__name__}, which has no likelihood of sequences")
        kept = content.get("data")
        if kept is None:
            return cls(model)
        try:
            return cls(model, from_table(kept["read"], DATASETS), kept["sample_rate"], kept["about"])
        except MALFORMED as error:
            raise ValueError(f"{path} does not say how its data were read: {error}") from error

    def write(self, path: Path) -> None:
        """One file, which ``seqmodels.load`` reads as it does any other."""
        assert self.data is not None
        kept = {"read": to_table(self.data, DATASETS), "sample_rate": self.sample_rate, "about": self.about}
        storage.write(path, {**self.model.content(), "data": kept})

    def like(self, path: str, target: str | None = None) -> Dataset:
        """Another file, read as the data of the fit were."""
        n = 0 if self.data is None else len(self.data.paths())
        if self.data is None or n == 0:
            return dataset_of(path, target, Reading())
        paths = [path] if target is None else [path, target]
        if n != len(paths):
            raise ValueError(
                "the model is p(y | x): pass --target" if n == 2 else "the model is p(x): leave --target out"
            )
        return self.data.at(paths)
