"""Data sets of a run: where their files are and how they are read, described so that the run can be repeated."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from seqmodels import data
from seqmodels.common.parameters import Configurable
from seqmodels.data import MFCC
from seqmodels.data.text import Unit
from seqmodels.evaluation.runs.suites import Choice, Task, pair_tasks, speech_tasks, table_tasks, text_tasks
from seqmodels.sequences import Kind, Sequences

Pair = tuple[Sequences, Sequences | None]  # X, and y for p(y | x)


class Dataset(Configurable, ABC):
    """A data set that can be read again from its files, the abstract base class of the data sets of a run.

    A run is a set of comparisons that a file describes. To add a data set, define ``read`` and ``tasks``, name in
    ``path_parameters`` the hyperparameters that are paths, and put the class into ``DATASETS``.
    """

    path_parameters: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self) -> Pair:
        """Read the files and return ``(X, y)``, sequences and targets; ``y`` is None for p(x).

        Raises:
            ValueError, OSError, ImportError: the data cannot be read; the message is one line that says the way out.
        """

    @abstractmethod
    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        """Return the standard comparisons of models on the data.

        Args:
            read: the sequences and targets that ``read()`` returned.
            choice: which of the standard models to fit, and their seed.
        """

    def paths(self) -> tuple[str, ...]:
        """Return the paths of the files or folders; an empty tuple for built-in data."""
        return tuple(getattr(self, name) for name in self.path_parameters)

    def at(self, paths: Sequence[str]) -> Self:
        """Return a copy that reads other files or folders.

        Args:
            paths: a path for each name in ``path_parameters``.
        """
        return self.clone().set_params(**dict(zip(self.path_parameters, paths, strict=True)))

    def understood(self, read: Pair) -> Self:
        """Return a copy that states what was recognised in the data, so that other files are read alike.

        The default returns the data set itself.

        Args:
            read: the sequences and targets that ``read()`` returned.
        """
        return self

    def relative_to(self, folder: Path) -> Self:
        """Return a copy whose paths are relative to ``folder``, so that it may be moved together with the data."""
        return self.at([os.path.relpath(path, folder) for path in self.paths()])

    def resolved_from(self, folder: Path) -> Self:
        """Return a copy whose paths, relative to ``folder``, are made relative to the working directory again."""
        return self.at([str(folder / path) for path in self.paths()])

    def sha256(self) -> str:
        """Read the data and return their SHA-256 in hexadecimal digits.

        With targets, it is the hash of X, a space, and the hash of y.
        """
        return hashed(self.read())


@dataclass(eq=False, repr=False)
class BuiltinText(Dataset):
    """The text that comes with the library, ``data.builtin_text()``, as a data set of a run."""

    def read(self) -> Pair:
        return data.builtin_text(), None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return text_tasks(read[0], choice)


@dataclass(eq=False, repr=False)
class BuiltinSpeech(Dataset):
    """Cepstra of synthetic utterances, ``data.speech()``, as a data set of a run.

    Args:
        n_utterances: number of utterances.
        n_speakers: number of speakers who share them.
        random_state: seed of the synthesis.
    """

    n_utterances: int = 600
    n_speakers: int = 60
    random_state: int = 0

    def read(self) -> Pair:
        corpus = data.speech(self.n_utterances, self.n_speakers, features="mfcc", random_state=self.random_state)
        return corpus.sequences, None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return speech_tasks(read[0], choice)


@dataclass(eq=False, repr=False)
class TextFiles(Dataset):
    """A UTF-8 file or a folder of ``.txt`` files, as a data set of a run.

    Args:
        path: path of the file or folder.
        cut: what one sequence is: a ``"whole"`` file, a ``"line"`` or a ``"paragraph"``.
    """

    path_parameters = ("path",)

    path: str = ""
    cut: Unit = "whole"

    def read(self) -> Pair:
        return data.text(self.path, self.cut), None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return text_tasks(read[0], choice)


@dataclass(eq=False, repr=False)
class Recordings(Dataset):
    """Cepstra of a WAV file, or of every WAV file in a folder, as a data set of a run.

    Args:
        path: path of the file or folder.
        mfcc: options of the cepstra (mel-frequency cepstral coefficients); None means ``MFCC()``.
    """

    path_parameters = ("path",)

    path: str = ""
    mfcc: MFCC | None = None

    def read(self) -> Pair:
        return data.audio(self.path, mfcc=self.mfcc), None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return speech_tasks(read[0], choice)


@dataclass(eq=False, repr=False)
class Files(Dataset):
    """A file or a folder that ``data.read`` reads by its file extension, as a data set of a run.

    Args:
        path: path of the file or folder.
        kind: ``"vectors"``, ``"symbols"`` or ``"text"``; empty means that it is recognised.
        by: column of a table that names the sequence of each row; empty means that it is recognised.
        columns: columns of a table to model; empty means that they are recognised.
        time: column of a table with the times; empty means that it is recognised.
        label: column of a table with the labels; empty means that it is recognised.
        cut: what one sequence of a text is: a ``"whole"`` file, a ``"line"`` or a ``"paragraph"``.
        dither: whether noise of one grid step is added to vectors.
        inputs: columns of a table that are known at each step and not modelled.
        date_format: format of the dates of a table for ``datetime.strptime``; empty means that it is recognised.
    """

    path_parameters = ("path",)

    path: str = ""
    kind: Kind | Literal[""] = ""
    by: str = ""
    columns: Sequence[str] = ()
    time: str = ""
    label: str = ""
    cut: Unit = "whole"
    dither: bool = False
    inputs: Sequence[str] = ()
    date_format: str = ""

    def read(self) -> Pair:
        names = list(self.columns)
        sequences = data.read(
            self.path,
            kind=self.kind or None,
            by=self.by or None,
            columns=names[0] if len(names) == 1 else names or None,
            time=self.time or None,
            label=self.label or None,
            unit=self.cut,
            inputs=list(self.inputs) or None,
            date_format=self.date_format or None,
        )
        # Dithered before any split, so that all parts have one grid.
        return sequences.dithered() if self.dither else sequences, None

    def understood(self, read: Pair) -> Self:
        X = read[0]
        columns = list(X.features) if X.features is not None and data.is_table(self.path) else self.columns
        return self.clone().set_params(kind=X.kind, columns=columns)

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return text_tasks(read[0], choice) if read[0].kind == "text" else _tasks_of_steps(self.path, read[0], choice)


@dataclass(eq=False, repr=False)
class Table(Dataset):
    """A CSV or Parquet file with a row for each step, as a data set of a run; ``data.table`` reads it.

    Args:
        path: path of the file.
        by: column that names the sequence of each row; empty means that it is recognised.
        columns: columns to model; empty means that they are recognised.
        time: column with the times; empty means that it is recognised.
        dither: whether noise of one grid step is added to vectors.
        kind: ``"vectors"``, ``"symbols"`` or ``"text"``; empty means that it is recognised.
        inputs: columns that are known at each step and not modelled.
        date_format: format of the dates for ``datetime.strptime``; empty means that it is recognised.
    """

    path_parameters = ("path",)

    path: str = ""
    by: str = ""
    columns: Sequence[str] = ()
    time: str = ""
    dither: bool = False
    kind: Kind | Literal[""] = ""
    inputs: Sequence[str] = ()
    date_format: str = ""

    def read(self) -> Pair:
        sequences = data.table(
            self.path,
            by=self.by or None,
            columns=list(self.columns) or None,
            time=self.time or None,
            kind=self.kind or None,
            inputs=list(self.inputs) or None,
            date_format=self.date_format or None,
        )
        return sequences.dithered() if self.dither else sequences, None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return _tasks_of_steps(self.path, read[0], choice)


def _tasks_of_steps(path: str, sequences: Sequences, choice: Choice) -> list[Task]:
    if len(sequences) == 1 and sequences.n_units[0] < 2:
        raise ValueError(
            f"{path} is one sequence of one step, which cannot be split; if it is a table of several, name "
            "the column that says which one a row is of, with --by"
        )
    return table_tasks(sequences, choice)


@dataclass(eq=False, repr=False)
class Parallel(Dataset):
    """Pairs of texts as a data set of a run: line i of the file ``target`` given line i of the file ``source``."""

    path_parameters = ("source", "target")

    source: str = ""
    target: str = ""

    def read(self) -> Pair:
        return data.pairs(self.source, self.target)

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        X, y = read
        assert y is not None
        return pair_tasks(X, y, choice)


DATASETS: dict[str, type[Configurable]] = {
    cls.__name__: cls for cls in (BuiltinText, BuiltinSpeech, TextFiles, Recordings, Files, Table, Parallel, MFCC)
}


def hashed(pair: Pair) -> str:
    """Return the SHA-256 of X as 64 hexadecimal digits; with targets, the hashes of X and y with a space between.

    Args:
        pair: ``(X, y)``, where y is None for p(x).
    """
    X, y = pair
    return data.sha256(X) if y is None else f"{data.sha256(X)} {data.sha256(y)}"
