"""Inputs that commands share: data given by paths, and saved models together with how their data were read."""

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
    """The options of the command line that say how files are read.

    Args:
        by: the column of a table that says which sequence a row belongs to; "" if it is not named.
        columns: the features of a table; empty if they are not named.
        time: the column of times of a table; "" if it is not named.
        cut: what one sequence of a text is: a ``"whole"`` file, a ``"line"`` or a ``"paragraph"``.
        kind: ``"vectors"``, ``"symbols"`` or ``"text"``, which a file is read as; None lets the file decide.
        label: the column of labels of a table; "" if it is not named.
        dither: True to add noise to the rounded values of a table.
        inputs: the columns of a table that are known at each step and not modelled.
        date_format: format of dates for ``datetime.strptime``; "" if it is not stated.
    """

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
        """True if an option is set that applies only to tables or arrays."""
        return bool(
            self.by or self.columns or self.time or self.label or self.dither or self.inputs or self.date_format
        )


# The formats of files in words, and options that several commands share.
OF_FORMATS = f"A file or a folder: {', '.join(each.name for each in FORMATS)}."
Target = Annotated[
    str | None,
    typer.Option(help="A file whose line i is the target of line i of DATA; the model is then p(target | data)."),
]
By = Annotated[
    str,
    typer.Option(help="For a table: the column that says which sequence a row belongs to; by default all are one."),
]
Columns = Annotated[
    str, typer.Option(help="For a table: the columns of features, a,b,c; by default all other numeric columns.")
]
Time = Annotated[
    str,
    typer.Option(help="For a table: the column that orders a sequence; by default dates, or a column called time."),
]
DateFormat = Annotated[
    str,
    typer.Option(
        help="For a table: how dates are written, in the notation of strptime: %d/%m/%Y; by default so that they are "
        "regular."
    ),
]
Inputs = Annotated[
    str,
    typer.Option(help="For a table: columns, a,b, that are known at each step and not modelled: p(x | a, b)."),
]
Cut = Annotated[Literal["whole", "line", "paragraph"], typer.Option(help="What one sequence of a text is.")]
Seed = Annotated[
    int, typer.Option(help="The seed of everything random; the same seed repeats a run.", min=0, max=2**32 - 1)
]
Jobs = Annotated[
    int, typer.Option(help="The number of fits at a time, each in its own process; -1 means one per core.")
]
Kinds = Annotated[
    Kind | None,
    typer.Option(help="The kind to read a file as if several are possible: 0, 1, 1 can be symbols or vectors."),
]


def dataset_of(path: str, target: str | None, options: ReadOptions) -> Dataset:
    """Return what is to be read at a path, without reading it: pairs, recordings, text or any other format.

    Args:
        path: path of a file or folder.
        target: path of the targets, which makes it pairs; None means that ``options`` and the files decide.
        options: how the files are read.
    """
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
    """Return the names in a text such as ``"a,b,c"``, without spaces around them and without empty ones."""
    return [name.strip() for name in columns.split(",") if name.strip()]


def that_reads(model: Any, inputs: Sequence[str]) -> Any:
    """Set an unfitted model to read inputs, unless it does so already, and return it.

    Args:
        model: the unfitted model, which may be changed in place.
        inputs: names of the inputs, columns of a table that are known at each step; empty returns the model unchanged.

    Raises:
        ValueError: the model cannot read inputs, or does not say what depends on them.
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
    """Return a line of words for each file of a data set, which says what was read from it.

    Args:
        dataset: the data set.
        read: the sequences and their targets, or None in place of the targets.
    """
    named = zip((*dataset.paths(), ""), (part for part in read if part is not None), strict=False)
    return "\n".join(f"Read {Path(path).name or path}: {part.describe()}" for path, part in named)


def read_content(path: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the path is a folder.
    """
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; pass a file")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}; pass the path of one")
    return Path(path).read_bytes()


def check_inputs_file(names: Sequence[str], path: str | None, rows: str) -> None:
    """Check that a file of inputs is named if a model reads inputs, and only then.

    Args:
        names: names of the inputs that the model reads; empty if it reads none.
        path: the path passed as ``--inputs-file``, or None.
        rows: words that complete "a table with a row for each ..." in the message.

    Raises:
        ValueError: a file is missing or not needed.
    """
    if not names and path is not None:
        raise ValueError(f"--inputs-file is {path}, but the model reads no inputs; leave it out")
    if names and path is None:
        raise ValueError(
            f"the model reads the inputs {', '.join(names)}; pass --inputs-file, a table of these columns with a row "
            f"for each {rows}"
        )


def read_inputs(path: str, names: Sequence[str], by: str | None = None) -> dict[str, np.ndarray]:
    """Read U inputs of each sequence from a table; return arrays ``(T, U)`` by the sequence's name.

    Args:
        path: the path of the table.
        names: the columns of inputs.
        by: the column that names the sequence of a row; None means that all rows are one sequence, whose name is
            ``""``.

    Raises:
        ValueError: a column is missing or does not hold numbers.
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
        raise ValueError(f"{path}: the column {words[0]!r} holds no numbers, so it is not an input")
    warn_of_codes(frame, names, path)
    if by is None:
        return {"": frame[list(names)].to_numpy(np.float64)}
    groups = frame.groupby(by, sort=False)
    return {str(name): rows[list(names)].to_numpy(np.float64) for name, rows in groups}


class Saveable(Protocol):
    """Protocol of an object that is saved to a file: a model, a classifier, a detector of anomalies."""

    def content(self) -> dict[str, Any]:
        """Return the JSON values and arrays that ``save`` writes to the file."""
        ...


M = TypeVar("M", bound=Saveable)


@dataclass(frozen=True)
class SavedModel(Generic[M]):
    """The content of a file that holds a model, together with how its data were read if the command line saved it.

    Args:
        model: the fitted model, classifier or detector of anomalies.
        data: how the data were read; None if that is not known.
        sample_rate: sample rate of recordings in Hz; None for other data.
        about: further facts about the data as JSON values.
    """

    model: M
    data: Dataset | None = None
    sample_rate: int | None = None
    about: dict[str, Any] | None = None

    @staticmethod
    def of(model: M, data: Dataset, read: Pair) -> SavedModel[M]:
        """Return the content to save for a model that was just fitted, with how its data were read.

        Args:
            model: the fitted model.
            data: the data set that was read.
            read: sequences and targets that were read from it.
        """
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
        """Read a file and return the sequence model in it, together with how its data were read.

        Args:
            path: the file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a saved sequence model.
        """
        saved = SavedModel.read_any(path)
        if not isinstance(saved.model, SequenceModel):
            raise ValueError(f"{path} holds {a_or_an(type(saved.model))}, which has no likelihood of sequences")
        return saved

    @staticmethod
    def read_any(path: str) -> SavedModel[Any]:
        """Read a file of any object that ``seqmodels.load`` loads, and return it together with how its data were read.

        Args:
            path: the file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not one that can be loaded.
        """
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
        """Write everything to one file, which ``seqmodels.load`` can read too.

        Args:
            path: the file.
        """
        read = None if self.data is None else to_table(self.data, DATASETS)
        kept = None if read is None else {"read": read, "sample_rate": self.sample_rate, "about": self.about}
        storage.write(path, {**self.model.content(), "data": kept})

    def like(self, path: str, target: str | None = None) -> Dataset:
        """Return another file as a data set that is read like the data of the fit.

        Args:
            path: the path of the file.
            target: the path of the targets, for a model of pairs.

        Raises:
            ValueError: ``target`` is missing for a model of pairs, or given for another.
        """
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
        """Check that recordings have the sample rate of the data that the model was fitted to.

        Args:
            file: path of the recordings, for the message.
            X: their sequences.

        Raises:
            ValueError: they have another sample rate.
        """
        rates = set(X.metadata["sample_rate"]) if "sample_rate" in X.metadata else set()
        if self.sample_rate is not None and rates - {self.sample_rate}:
            raise ValueError(
                f"{file} has a sample rate of {rates.pop()} Hz but the model was fitted on {self.sample_rate}; "
                "resample it first"
            )
