"""The function ``read``, which reads a file or a folder as ``Sequences`` in the format that file endings tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from seqmodels.common.parameters import checked
from seqmodels.data.audio import RECORDINGS
from seqmodels.data.fasta import FASTA
from seqmodels.data.file_contents import check_file, files_in, is_file
from seqmodels.data.file_format import FileFormat
from seqmodels.data.jsonl import JSON
from seqmodels.data.kinds import as_kind, suffix_of
from seqmodels.data.midi import MUSIC
from seqmodels.data.npy import NPY
from seqmodels.data.tables import TABLE, read_table, table, table_of_rows
from seqmodels.data.text import Unit, are_numbers, read_text, text
from seqmodels.data.ts import SERIES
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.columns.numbers import Place, with_numbers

if TYPE_CHECKING:
    import pandas as pd

# Endings of files that are neither read nor text, and the advice that the error gives.
_AS_TABLE = "save it as .csv, or read it with pandas and pass the frame: seqmodels.data.table(frame)"
_AS_ARRAYS = "save its arrays as .npy or .npz: seqmodels.data.npy"
_AS_WAV = "convert it first: ffmpeg -i in.mp3 out.wav"
_AS_TEXT = "save its text as .txt"
_UNPACKED = "unpack it first, or pack each file as .gz"
NOT_READ = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".sav", ".dta", ".sas7bdat", ".rds"), _AS_TABLE),
    **dict.fromkeys((".db", ".sqlite", ".avro", ".orc"), _AS_TABLE),
    **dict.fromkeys((".h5", ".hdf5", ".mat", ".pkl", ".pickle", ".pt", ".pth", ".safetensors", ".nc"), _AS_ARRAYS),
    **dict.fromkeys((".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".aiff", ".mp4"), _AS_WAV),
    **dict.fromkeys((".docx", ".doc", ".odt", ".pdf", ".rtf", ".epub"), _AS_TEXT),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst"), _UNPACKED),
    **dict.fromkeys((".arrow", ".feather", ".bin"), "leave it on disk: seqmodels.data.on_disk"),
}
OF_TABLES = ("by", "time", "label", "cluster", "columns", "inputs", "date_format")  # options that name columns
FILE = "file"  # the column of a folder's tables that names the file of a row
Folders = Literal["label", "cluster"]


def _text_or_numbers(path: Path, *, kind: Kind | None, unit: Unit) -> Sequences:
    """Read a file as text, or as numbers if it holds nothing else and ``kind`` asks for vectors or symbols.

    Args:
        path: path of the file.
        kind: ``"vectors"``, ``"symbols"`` or ``"text"``; None reads text.
        unit: what one sequence of a text is: a ``"whole"`` file, a ``"line"`` or a ``"paragraph"``.
    """
    if kind in ("vectors", "symbols") and are_numbers(read_text(path)):
        return table(path, kind=kind)
    texts = text(path, unit)
    if kind in (None, "text"):
        return texts
    return Sequences([as_kind(item, kind, str(path)) for item in texts], metadata=texts.metadata)


TEXT = FileFormat("text", (".txt", ".md"), _text_or_numbers, options=("kind", "unit"))  # and every other ending
FORMATS = (TABLE, NPY, FASTA, JSON, SERIES, RECORDINGS, MUSIC, TEXT)
FORMAT_OF = {ending: each for each in FORMATS for ending in each.endings}


@checked
def read(
    path: str | Path,
    *,
    kind: Kind | None = None,
    by: str | None = None,
    columns: str | Sequence[str] | None = None,
    time: str | None = None,
    label: str | None = None,
    cluster: str | None = None,
    unit: Unit = "whole",
    folders: Folders = "label",
    inputs: str | Sequence[str] | None = None,
    date_format: str | None = None,
) -> Sequences:
    """Read sequences from a file, or from a folder of files of one format, chosen by the ending of their names.

    - ``.csv``, ``.tsv``, ``.parquet``: ``data.table``, whose arguments are ``by``, ``columns``, ``time``, ``label``,
      ``cluster``, ``inputs``, ``date_format``;
    - ``.npy``, ``.npz``: ``data.npy``; ``.ts``: ``data.ts``; ``.fasta``, ``.fa``, ``.fna``, ``.faa``: ``data.fasta``;
    - ``.jsonl``, ``.ndjson``, ``.json``: ``data.jsonl``; ``.wav``: ``data.audio``; ``.mid``, ``.midi``: ``data.midi``;
    - anything else: UTF-8 text, ``data.text``; or ``data.table`` if it holds only numbers and ``kind`` asks for them.

    ``.gz`` files are unpacked. ``print(read(path).describe())`` shows what was understood.

    Args:
        path: the path of a file or a folder, whose subfolders are read too.
        kind: ``"vectors"``, ``"symbols"`` or ``"text"`` for a file that could be read as several; None decides by the
            file.
        by: the column of a table that names the sequence of each row; None recognises it.
        columns: the columns of a table to model, or the key of the sequence in JSON; None recognises them.
        time: the column of a table with the times; None recognises it.
        label: the column of a table with the labels; None recognises it.
        cluster: the column of a table with the clusters; None recognises it.
        unit: what one sequence of a text is: a ``"whole"`` file, a ``"line"`` or a ``"paragraph"``.
        folders: what the name of a file's folder is in a folder with subfolders: its ``"label"`` or its ``"cluster"``.
            A file is one sequence, named after it, or holds several.
        inputs: columns of a table that are known at each step and not modelled.
        date_format: how the dates of a table are written, in the notation of ``datetime.strptime``; None recognises it.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: a folder has no files to read, or files of several formats; the reader of the format refuses the
            file; an argument does not apply to the format; the path is a pipe or a device; or the ending belongs to a
            format that is not read (``.xlsx``), unless ``kind`` is ``"text"``.
    """
    if folders not in get_args(Folders):
        raise ValueError(f"folders is {folders!r}; pass one of {', '.join(map(repr, get_args(Folders)))}")
    options = Options(kind, by, columns, time, label, cluster, unit, inputs, date_format)
    root = Path(path)
    if root.is_dir():
        return _read_folder(root, folders, options)
    if not is_file(root):
        raise FileNotFoundError(f"there is no file or folder {root}")
    return _read_file(root, options)


@dataclass(frozen=True)
class Options:
    """The arguments of ``read`` as one value, from which the reader of each format takes those that it knows.

    Args:
        kind: ``"vectors"``, ``"symbols"`` or ``"text"``; None decides by the file.
        by: column of a table that names the sequence of each row; None recognises it.
        columns: columns of a table to model, or the key of the sequence in JSON; None recognises them.
        time: column of a table with the times; None recognises it.
        label: column of a table with the labels; None recognises it.
        cluster: column of a table with the clusters; None recognises it.
        unit: what one sequence of a text is: a ``"whole"`` file, a ``"line"`` or a ``"paragraph"``.
        inputs: columns of a table that are known at each step and not modelled.
        date_format: how the dates of a table are written, as for ``datetime.strptime``; None recognises it.
    """

    kind: Kind | None
    by: str | None
    columns: str | Sequence[str] | None
    time: str | None
    label: str | None
    cluster: str | None
    unit: Unit
    inputs: str | Sequence[str] | None
    date_format: str | None

    def of(self, known: FileFormat) -> dict[str, Any]:
        """Return those arguments, by name, that the reader of the format ``known`` accepts."""
        return {name: getattr(self, name) for name in known.options}


def _read_file(file: Path, options: Options) -> Sequences:
    suffix = suffix_of(file)
    if suffix in NOT_READ and options.kind != "text":
        raise ValueError(f"{file} ends in {suffix}, which is not read; {NOT_READ[suffix]}")
    known = FORMAT_OF.get(suffix, TEXT)
    extra = [name for name in OF_TABLES if name not in known.options and getattr(options, name)]
    if extra:
        raise ValueError(f"{file} is not a table, so it has no columns; leave {extra[0]} out")
    if known.kind is not None and options.kind not in (None, known.kind):
        raise ValueError(f"{file} holds {known.kind}, so its kind is not {options.kind!r}; leave kind out")
    return known.reader(file, **options.of(known))


@checked
def is_table(path: str | Path) -> bool:
    """Return True if ``read`` would read the file, or every file in the folder, as a table."""
    return _suffixes(Path(path)) <= set(TABLE.endings) and not is_text(path)


@checked
def is_recordings(path: str | Path) -> bool:
    """Return True if the path is a recording (a ``.wav`` file), or a folder with at least one."""
    return bool(_suffixes(Path(path)) & set(RECORDINGS.endings))


@checked
def is_text(path: str | Path) -> bool:
    """Return True if ``read`` would read the path as text.

    It does so for a text file and for a folder without other known files. A path without a file counts by its ending.
    """
    return _suffixes(Path(path)) <= set(TEXT.endings) and suffix_of(Path(path)) not in NOT_READ


def _suffixes(path: Path) -> set[str]:
    """Return the file endings of known formats: that of a file, or those of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return {suffix_of(file) for file in files} & set(FORMAT_OF)


# -- folders -------------------------------------------------------------------------------------------------


def _read_folder(root: Path, folders: Folders, options: Options) -> Sequences:
    files = _files(root)
    known = FORMAT_OF[suffix_of(files[0])]
    if known.reader_of_folder is not None and options.kind in (None, known.kind):
        return known.reader_of_folder(root)
    if known is TABLE:
        source, place = _one_table(root, files, folders, options)
        options = replace(options, by=options.by or FILE)
        if folders in source:
            options = replace(options, label=folders) if folders == "label" else replace(options, cluster=folders)
        return table_of_rows(source, str(root), place, **options.of(TABLE))
    return Sequences.joined(_of_folder(root, file, files, folders, _read_file(file, options)) for file in files)


def _files(root: Path) -> list[Path]:
    """Return the files in a folder that have a known format, in the order of their paths.

    Files of unknown formats and hidden files are ignored.

    Args:
        root: the folder, whose subfolders are searched too.

    Raises:
        ValueError: if there are none, or they differ in format.
    """
    there = sorted(
        (check_file(file) for file in files_in(root) if suffix_of(file) in FORMAT_OF and file.name[0] != "."),
        key=lambda file: file.relative_to(root).as_posix(),
    )
    if not there:
        raise ValueError(
            f"the folder {root} has no file to read: {', '.join(FORMAT_OF)}; pass a file itself if it is text"
        )
    if len({FORMAT_OF[suffix_of(file)].name for file in there}) > 1:
        raise ValueError(
            f"the folder {root} has files of several formats, {', '.join(sorted({suffix_of(f) for f in there}))}; pass "
            "a folder of one"
        )
    return there


def _folder_names(root: Path, files: Sequence[Path]) -> list[str] | None:
    """Return the folder of each file, relative to the root; None if at least one file is in the root itself."""
    names = [file.parent.relative_to(root).as_posix() for file in files]
    return None if "." in names else names


def _name(root: Path, file: Path) -> str:
    path = file.relative_to(root).as_posix()
    return path.removesuffix(".gz").rpartition(".")[0] or path


def _of_folder(root: Path, file: Path, files: list[Path], folders: Folders, part: Sequences) -> Sequences:
    """Return the sequences of one file of a folder, named after the file.

    If files are in subfolders, the name of the file's folder becomes its label or cluster.

    Args:
        root: the folder.
        file: the file.
        files: all files of the folder.
        folders: ``"label"`` or ``"cluster"``: the meaning of a subfolder's name.
        part: the sequences that were read from the file.
    """
    name, folder_names = _name(root, file), _folder_names(root, files)
    metadata = part.metadata.copy()
    metadata["name"] = [name] if len(part) == 1 else [f"{name}:{each}" for each in part.names]
    if folder_names is not None and folders not in metadata:
        metadata[folders] = folder_names[files.index(file)]
    if len(part) > 1 and "cluster" not in metadata:
        metadata["cluster"] = name
    return part.with_metadata(metadata)


def _one_table(root: Path, files: list[Path], folders: Folders, options: Options) -> tuple[pd.DataFrame, Place]:
    """Join the tables in the files of a folder, adding a column that says which file a row comes from.

    Args:
        root: the folder.
        files: its files.
        folders: ``"label"`` or ``"cluster"``: the meaning of a subfolder's name.
        options: the arguments of ``read``.

    Returns:
        The table, and a function that says in words from which file and row a row of it comes.

    Raises:
        ValueError: the tables have different columns.
    """
    import pandas as pd

    read = [read_table(file, None) for file in files]
    tables, places = [frame for frame, _ in read], [place for _, place in read]
    folder_names = _folder_names(root, files)
    columns = [[str(column) for column in each] for each in tables]
    for file, there in zip(files, columns, strict=True):
        if there != columns[0]:
            raise ValueError(
                f"{file} has the columns {', '.join(there)} but {files[0]} has {', '.join(columns[0])}; all files of a "
                "folder have the same"
            )
    by, starts = options.by, np.cumsum([0, *map(len, tables)])
    for i, (file, each) in enumerate(zip(files, tables, strict=True)):
        if by is None:
            each.insert(0, FILE, _name(root, file))
        elif by in each:
            each[by] = [f"{_name(root, file)}:{value}" for value in each[by]]
        if folder_names is not None and folders not in each:
            each[folders] = folder_names[i]

    def place(row: int) -> str:
        i = int(np.searchsorted(starts, row, side="right")) - 1
        return places[i](row - int(starts[i]))

    whole = pd.concat(tables, ignore_index=True)
    besides = (FILE, folders, by, options.label, options.cluster)
    are_words = options.kind in ("symbols", "text")
    return (whole if are_words else with_numbers(whole, str(root), besides=besides)), place
