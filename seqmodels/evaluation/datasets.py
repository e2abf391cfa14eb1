"""Data sets of a run: where their files are and how they are read, described so that the run can be repeated."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from seqmodels import data
from seqmodels.data import MFCC
from seqmodels.data.text import Unit
from seqmodels.evaluation.suites import Choice, Task, pair_tasks, speech_tasks, table_tasks, text_tasks
from seqmodels.parameters import Configurable
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    import pandas as pd

Pair = tuple[Sequences, Sequences | None]  # X, and y for p(y | x)


class Dataset(Configurable, ABC):
    """Sequences that can be read again. To add one, define the four abstract methods, and put it into ``DATASETS``."""

    @abstractmethod
    def read(self) -> Pair:
        """Read the files. Raises ``ValueError``, ``OSError`` or ``ImportError`` in one line that says the way out."""

    @abstractmethod
    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        """The standard comparison of what was read."""

    @abstractmethod
    def paths(self) -> tuple[str, ...]:
        """The files or folders; none for built-in data."""

    @abstractmethod
    def at(self, paths: Sequence[str]) -> Self:
        """The same way of reading, of other files or folders."""

    def relative_to(self, folder: Path) -> Self:
        """With paths relative to a folder, so that the folder may move together with the data."""
        return self.at([os.path.relpath(path, folder) for path in self.paths()])

    def resolved_from(self, folder: Path) -> Self:
        """The inverse of ``relative_to``: with paths relative to the working directory."""
        return self.at([str(folder / path) for path in self.paths()])

    def sha256(self) -> str:
        """Hash of everything that is read, see ``hashed``."""
        return hashed(self.read())


@dataclass(eq=False, repr=False)
class BuiltinText(Dataset):
    """The text that comes with the library, ``data.builtin_text()``, as a data set of a run."""

    def read(self) -> Pair:
        return data.builtin_text(), None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return text_tasks(read[0], choice)

    def paths(self) -> tuple[str, ...]:
        return ()

    def at(self, paths: Sequence[str]) -> Self:
        return self


@dataclass(eq=False, repr=False)
class BuiltinSpeech(Dataset):
    """``data.speech``: cepstra of synthetic utterances."""

    n_utterances: int = 600
    n_speakers: int = 60
    random_state: int = 0

    def read(self) -> Pair:
        corpus = data.speech(self.n_utterances, self.n_speakers, features="mfcc", random_state=self.random_state)
        return corpus.sequences, None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return speech_tasks(read[0], choice)

    def paths(self) -> tuple[str, ...]:
        return ()

    def at(self, paths: Sequence[str]) -> Self:
        return self


@dataclass(eq=False, repr=False)
class TextFiles(Dataset):
    """A UTF-8 file or a folder of ``.txt``; ``cut`` as in ``data.text``."""

    path: str = ""
    cut: Unit = "whole"

    def read(self) -> Pair:
        return data.text(self.path, self.cut), None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return text_tasks(read[0], choice)

    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def at(self, paths: Sequence[str]) -> Self:
        return replace(self, path=paths[0])


@dataclass(eq=False, repr=False)
class Recordings(Dataset):
    """Cepstra of every WAV of a folder, or of one file; ``mfcc`` None is ``MFCC()``."""

    path: str = ""
    mfcc: MFCC | None = None

    def read(self) -> Pair:
        return data.audio(self.path, mfcc=self.mfcc), None

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return speech_tasks(read[0], choice)

    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def at(self, paths: Sequence[str]) -> Self:
        return replace(self, path=paths[0])


@dataclass(eq=False, repr=False)
class Table(Dataset):
    """A CSV with a row a step: ``by`` names the sequence, ``columns`` (empty: all other numeric ones) are its features.

    One column of whole numbers is read as symbols, anything else as vectors; ``dither``: with noise of one step of
    their grid.
    """

    path: str = ""
    by: str = ""
    columns: Sequence[str] = ()
    time: str = ""
    dither: bool = False

    def read(self) -> Pair:
        import pandas as pd

        if not self.by:
            raise ValueError(f"{self.path} is a table: name the column that says which sequence a row is of, with --by")
        try:
            frame = pd.read_csv(self.path)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} is not a CSV in UTF-8: {error}") from None
        names = list(self.columns) or self._numeric_columns(frame)
        is_symbols = len(names) == 1 and names[0] in frame and frame[names[0]].dtype.kind in "iu"
        columns = names[0] if is_symbols else names
        sequences = Sequences.from_frame(frame, by=self.by, columns=columns, time=self.time or None)
        return sequences.dithered() if self.dither else sequences, None  # before any split: one grid for all parts

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        return table_tasks(read[0], choice)

    def _numeric_columns(self, frame: pd.DataFrame) -> list[str]:
        columns = [str(c) for c in frame.select_dtypes("number").columns if c not in (self.by, self.time)]
        if not columns:
            raise ValueError(
                f"{self.path} has no numeric column besides {self.by!r}; it has {', '.join(frame.columns)}"
            )
        return columns

    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def at(self, paths: Sequence[str]) -> Self:
        return replace(self, path=paths[0])


@dataclass(eq=False, repr=False)
class Parallel(Dataset):
    """Pairs of texts: line i of ``target`` is given line i of ``source``."""

    source: str = ""
    target: str = ""

    def read(self) -> Pair:
        return data.pairs(self.source, self.target)

    def tasks(self, read: Pair, choice: Choice) -> list[Task]:
        X, y = read
        assert y is not None
        return pair_tasks(X, y, choice)

    def paths(self) -> tuple[str, ...]:
        return (self.source, self.target)

    def at(self, paths: Sequence[str]) -> Self:
        return replace(self, source=paths[0], target=paths[1])


DATASETS: dict[str, type[Configurable]] = {
    cls.__name__: cls for cls in (BuiltinText, BuiltinSpeech, TextFiles, Recordings, Table, Parallel, MFCC)
}


def hashed(pair: Pair) -> str:
    """64 hexadecimal digits of sequences, or of sources and targets."""
    X, y = pair
    return data.sha256(X) if y is None else f"{data.sha256(X)} {data.sha256(y)}"
