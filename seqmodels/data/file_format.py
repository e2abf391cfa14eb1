"""``FileFormat``: the endings of the files of a format, and the function that reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seqmodels.sequences import Kind, Sequences


@dataclass(frozen=True)
class FileFormat:
    """A format that ``read`` knows by the ending of a file's name.

    To add one, define it below its reader, in a file of its own, and name it in ``FORMATS`` of ``read.py``.

    Args:
        name: of the format, in the help of commands.
        endings: of names of its files, in lower case, each with its point; ``.gz`` may follow.
        reader: a function of the path of a file that returns its sequences.
        options: the arguments of ``read`` that ``reader`` takes too, by keyword; others are refused.
        kind: what its sequences always are; None: it depends.
        binary: those of ``endings`` whose files are no text.
        reader_of_folder: a function of a folder, for what is not read file by file.
    """

    name: str
    endings: tuple[str, ...]
    reader: Callable[..., Sequences]
    options: tuple[str, ...] = ()
    kind: Kind | None = None
    binary: tuple[str, ...] = ()
    reader_of_folder: Callable[[Path], Sequences] | None = None
