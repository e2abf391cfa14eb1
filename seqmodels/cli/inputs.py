"""Inputs of the commands: data by their paths, and saved models together with how their data were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import typer

from seqmodels.common import storage
from seqmodels.common.display import a_or_an
from seqmodels.common.storage import MALFORMED
from seqmodels.data import is_recordings, is_text
from seqmodels.data.read import FORMATS
from seqmodels.data.tables import read_table
from seqmodels.data.text import Unit
from seqmodels.evaluation.runs.datasets import DATASETS, Dataset, Files, Pair, Parallel, Recordings, TextFiles, hashed
from seqmodels.evaluation.runs.toml import from_table, to_table
from seqmodels.loading import restored
from seqmodels.model import SequenceModel
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.columns.numbers import refuse_unread, warn_of_codes


@dataclass(frozen=True)
class ReadOptions:
    """Options of how files are read, see ``Files`` and ``TextFiles``."""

    by: str = ""
    columns: Sequence[str] = ()
    time: str = ""
    cut: Unit = "whole"
    kind: Kind | None = None
    label: str = ""
    dither: bool = False
    inputs: Sequence[str] = ()
    date_format: str = ""

    @property
    def of_tables(self) -> bool:
        """Whether any is of tables, or arrays, only."""
        return bool(
            self.by or self.columns or self.time or self.label or self.dither or self.inputs or self.date_format
        )


# What a file may be of, and options that several commands have.
OF_FORMATS = f"A file or a folder: {', '.join(each.name for each in FORMATS)}."
Target = Annotated[str | None, typer.Option(help="Line i of this file given line i of DATA: p(target | data).")]
By = Annotated[
    str, typer.Option(help="A table's column that says which sequence a row is of; without it all rows are one.")
]
Columns = Annotated[str, typer.Option(help="A table's features, a,b,c; by default all other numeric columns.")]
Time = Annotated[
    str, typer.Option(help="A table's column to order a sequence by; by default dates, or one called time.")
]
DateFormat = Annotated[
    str,
    typer.Option(help="How a table's dates are written, as strptime takes it: %d/%m/%Y; by default what is regular."),
]
Inputs = Annotated[
    str, typer.Option(help="A table's columns, a,b, that are known at each step and not modelled: p(x | a, b).")
]
Cut = Annotated[Literal["whole", "line", "paragraph"], typer.Option(help="What one sequence of a text is.")]
Seed = Annotated[
    int, typer.Option(help="Seed of everything random: the same one gives the same.", min=0, max=2**32 - 1)
]
Jobs = Annotated[int, typer.Option(help="Fits at a time, each in its own process; -1: one a core.")]
Kinds = Annotated[
    Kind | None, typer.Option(help="What a file is read as that could be several: 0, 1, 1 are symbols, or vectors.")
]


def dataset_of(path: str, target: str | None, options: ReadOptions) -> Dataset:
    """The data set at a path: pairs if there is a target, recordings, text, or what ``data.read`` reads."""
    if target is not None:
        return Parallel(path, target)
    if is_recordings(path) and options.kind in (None, "vectors") and not options.of_tables:
        return Recordings(path)
    if is_text(path) and options.kind in (None, "text") and not options.of_tables:
        return TextFiles(path, options.cut)
    return Files(
        path,
        options.kind or "",
        options.by,
        list(options.columns),
        options.time,
        options.label,
        options.cut,
        options.dither,
        list(options.inputs) or (),
        options.date_format,
    )


def names_of(columns: str) -> list[str]:
    """The names in ``a,b,c``."""
    return [name.strip() for name in columns.split(",") if name.strip()]


def that_reads(model: Any, inputs: Sequence[str]) -> Any:
    """The unfitted model, a network's ``inputs`` set where ``--inputs`` names some and no setting says which it reads.

    Raises:
        ValueError: a model that reads none, or that must be told what they drive.
    """
    if not inputs or model._reads_inputs:
        return model
    params = model.get_params(deep=False)
    if "input_effects" in params:
        raise ValueError(
            f"--inputs names {', '.join(inputs)}, but nothing of this {type(model).__name__} depends on inputs; pass "
            "--set input_effects__transitions=true, --set input_effects__emissions=true, or both"
        )
    if "inputs" not in params:
        raise ValueError(
            f"--inputs names {', '.join(inputs)}, but {a_or_an(type(model))} reads no inputs; take hmm, elman, lstm, "
            "gru or transformer"
        )
    changed = model.set_params(inputs=True)
    changed._check_hyperparameters()
    return changed


def understood(dataset: Dataset, read: Pair) -> str:
    """What was read, in words."""
    named = zip((*dataset.paths(), ""), (part for part in read if part is not None), strict=False)
    return "\n".join(f"Read {Path(path).name or path}: {part.describe()}" for path, part in named)


def read_content(path: str) -> bytes:
    """The bytes of a file; ``FileNotFoundError`` where there is none, ``ValueError`` for a folder."""
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; pass a file")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}; pass the path of one")
    return Path(path).read_bytes()


def check_inputs_file(names: Sequence[str], path: str | None, rows: str) -> None:
    """Raise ``ValueError`` where a model reads the inputs ``names`` and there is no file of them, or the reverse."""
    if not names and path is not None:
        raise ValueError(f"--inputs-file is {path}, but the model reads no inputs; leave it out")
    if names and path is None:
        raise ValueError(
            f"the model reads the inputs {', '.join(names)}; pass --inputs-file, a table of these columns with a row "
            f"for each {rows}"
        )


def read_inputs(path: str, names: Sequence[str], by: str | None = None) -> dict[str, np.ndarray]:
    """From a table, the inputs ``(T, U)`` of each sequence by its name; without ``by`` all rows are of one, ``""``.

    Raises:
        ValueError: a column that is not there, or that holds no numbers.
    """
    import pandas as pd

    frame, place = read_table(Path(path), [by])
    frame.columns = [str(column) for column in frame.columns]
    missing = [name for name in [*names, *([] if by is None else [by])] if name not in frame]
    if missing:
        raise ValueError(f"{path} has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    refuse_unread(frame, names, place, "an input is a number at each step")
    words = [name for name in names if not pd.api.types.is_numeric_dtype(frame[name])]
    if words:
        raise ValueError(f"{path}: the column {words[0]!r} holds no numbers, so it is no input")
    warn_of_codes(frame, names, path)
    if by is None:
        return {"": frame[list(names)].to_numpy(np.float64)}
    groups = frame.groupby(by, sort=False)
    return {str(name): rows[list(names)].to_numpy(np.float64) for name, rows in groups}


class Saveable(Protocol):
    """What has a file: a model, a classifier, anomalies."""

    def content(self) -> dict[str, Any]:
        """The JSON values and arrays that ``save`` writes to the file."""
        ...


M = TypeVar("M", bound=Saveable)


@dataclass(frozen=True)
class SavedModel(Generic[M]):
    """A model and, where the command line saved it, how its data were read.

    Args:
        model: fitted.
        data: how the data were read; None where only the model is known.
        sample_rate: in Hz, of recordings.
        about: further facts about the data, as JSON.
    """

    model: M
    data: Dataset | None = None
    sample_rate: int | None = None
    about: dict[str, Any] | None = None

    @staticmethod
    def of(model: M, data: Dataset, read: Pair) -> SavedModel[M]:
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
            "description": X.describe(),
        }
        data = data.understood(read)
        return SavedModel(model, data.at([Path(path).name for path in data.paths()]), rate, about)

    @staticmethod
    def read(path: str) -> SavedModel[SequenceModel]:
        """From a file; ``ValueError`` if it has no sequence model, ``FileNotFoundError`` if there is none."""
        saved = SavedModel.read_any(path)
        if not isinstance(saved.model, SequenceModel):
            raise ValueError(f"{path} holds {a_or_an(type(saved.model))}, which has no likelihood of sequences")
        return saved

    @staticmethod
    def read_any(path: str) -> SavedModel[Any]:
        """As ``read``, of whatever ``seqmodels.load`` loads."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}; seqmodels fit writes one")
        content = storage.read(path)
        model = restored(content, path)
        kept = content.get("data")
        if kept is None:
            return SavedModel(model)
        try:
            return SavedModel(model, from_table(kept["read"], DATASETS), kept["sample_rate"], kept["about"])
        except MALFORMED as error:
            raise ValueError(f"{path} does not say how its data were read: {error}") from error

    def write(self, path: Path) -> None:
        """One file, which ``seqmodels.load`` reads as it does any other."""
        read = None if self.data is None else to_table(self.data, DATASETS)
        kept = None if read is None else {"read": read, "sample_rate": self.sample_rate, "about": self.about}
        storage.write(path, {**self.model.content(), "data": kept})

    def like(self, path: str, target: str | None = None) -> Dataset:
        """Another file, read as the data of the fit were."""
        n = 0 if self.data is None else len(self.data.paths())
        if self.data is None or n == 0:
            return dataset_of(path, target, ReadOptions())
        paths = [path] if target is None else [path, target]
        if n != len(paths):
            raise ValueError(
                "the model is p(y | x): pass --target" if n == 2 else "the model is p(x): leave --target out"
            )
        return self.data.at(paths)

    def check_sample_rate(self, file: str, X: Sequences) -> None:
        """Raise ``ValueError`` for recordings of another sample rate than those of the fit."""
        rates = set(X.metadata["sample_rate"]) if "sample_rate" in X.metadata else set()
        if self.sample_rate is not None and rates - {self.sample_rate}:
            raise ValueError(
                f"{file} has a sample rate of {rates.pop()} Hz but the model was fitted on {self.sample_rate}; "
                "resample it first"
            )
