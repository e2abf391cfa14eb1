"""Description of a file format: its file name endings, and the function that reads a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seqmodels.sequences import Kind, Sequences


@dataclass(frozen=True)
class FileFormat:
    """A file format that ``read`` recognises by the ending of a file's name.

    To add one, define it below its reader, in a file of its own, and add it to ``FORMATS`` in ``read.py``.

    Args:
        name: the name of the format in the help of commands.
        endings: endings of file names, in lower case and with their point; ``.gz`` may follow them.
        reader: function that takes the path of a file and returns its sequences.
        options: names of those arguments of ``read`` that ``reader`` accepts as keywords; other arguments are refused.
        kind: the kind that its sequences always have; None if it depends on the file.
        binary: the endings among ``endings`` whose files are not text.
        reader_of_folder: function that reads a whole folder; None if folders are read file by file.
    """

    name: str
    endings: tuple[str, ...]
    reader: Callable[..., Sequences]
    options: tuple[str, ...] = ()
    kind: Kind | None = None
    binary: tuple[str, ...] = ()
    reader_of_folder: Callable[[Path], Sequences] | None = None
