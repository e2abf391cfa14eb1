"""Text as ``Sequences``: files, folders and a text that comes with Python, with a hash of the data used."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.parameters import checked
from seqmodels.data.file_contents import decoded, files_in, is_file, read_bytes
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.mapped import MappedArray

RECORD = re.compile(r">\s*\S.*")  # the header of a FASTA file
OF_NUMBERS, DIGIT = re.compile(r"[\d\s.,;eE+-]+"), re.compile(r"\d")
RESIDUES = re.compile(r"[A-Za-z*-]+\s*(\n|$)")
Unit = Literal["whole", "line", "paragraph"]


@checked
def text(path: str | Path, by: Unit = "whole") -> Sequences:
    r"""A UTF-8 file, or every ``.txt`` of a folder and the folders in it, in the order of their names.

    One leading byte order mark is dropped and line ends are read as ``\n``; nothing else is changed.

    Args:
        path: a file of any name (``.gz`` is unpacked), or a folder.
        by: one sequence per file (``"whole"``), per line without its end (``"line"``), or per run of lines
            between blank ones (``"paragraph"``). Blank ones are dropped.

    Returns:
        Text named after its file, relative to the folder, and, by line or paragraph, the number of the line on
        which it starts: ``book.txt:12``. If pieces come from several files, the file is their cluster.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: a file is not UTF-8 or holds a null byte (names the file and the byte), is of another format or
            damaged; a pipe or a device; nothing is left to read.

    A file that looks like FASTA, JSON or a table of numbers, whose headers, brackets or digits would be modelled, is
    warned of.
    """
    documents = {name: _pieces(_checked_text(file), by) for name, file in _files(Path(path)).items()}
    pieces = [(name, line, piece) for name, numbered in documents.items() for line, piece in numbered]
    if not pieces:
        raise ValueError(f"{path} holds only blank text; there is nothing to model")
    names = [name if by == "whole" else f"{name}:{line}" for name, line, _ in pieces]
    several = by != "whole" and len(documents) > 1
    return Sequences(
        [piece for _, _, piece in pieces], names=names, clusters=[name for name, _, _ in pieces] if several else None
    )


def builtin_text() -> Sequences:
    """One long English text that needs no download: the reference manual CPython carries for ``help()``.

    The topics of ``pydoc_data.topics`` in sorted order of their keys, a blank line between two, in Unicode
    normal form C: about 465,000 characters. The wording differs between versions of Python, so put its
    ``sha256`` next to a figure.

    >>> builtin_text()[0][:22]
    'The "assert" statement'
    """
    from pydoc_data.topics import topics

    joined = "\n\n".join(topics[key].strip("\n") for key in sorted(topics))
    return Sequences([unicodedata.normalize("NFC", joined)], names=["pydoc_data.topics"])


@checked
def sha256(sequences: Sequences) -> str:
    """64 hexadecimal digits that identify all sequences in their order, and their past; metadata do not count.

    Equal on every machine: texts are hashed as UTF-8, strings as JSON, numbers as little-endian float64 or int64, each
    after its shape, so where one sequence ends matters too. Every NaN is the same NaN; 0.0 and -0.0 are equal and hash
    alike.

    >>> sha256(Sequences(["ab", "c"])) == sha256(Sequences(["a", "bc"]))
    False
    """
    digest = hashlib.sha256(f"{sequences.kind} {len(sequences)}\n".encode())
    _update(digest, sequences)
    if sequences.past is not None:
        digest.update(f"past of {[i for i, past in enumerate(sequences.past) if past is not None]}\n".encode())
        _update(digest, [past for past in sequences.past if past is not None])
    return digest.hexdigest()


def _update(digest: Any, items: Iterable[Item]) -> None:
    for item in items:
        if isinstance(item, MappedArray):
            digest.update(f"{item.shape}\n".encode())
            for _, part in item.blocks():
                digest.update(part.tobytes() if item.is_text else _content(part.astype(_hashed_type(part)))[1])
            continue
        shape, content = _content(item)
        digest.update(f"{shape}\n".encode())
        digest.update(content)


def _hashed_type(array: np.ndarray) -> type[np.generic]:
    """What its numbers are in memory."""
    return np.float64 if array.ndim == 2 else np.int64


def _content(item: str | np.ndarray) -> tuple[tuple[int, ...], bytes]:
    if isinstance(item, str):
        encoded = item.encode()
        return (len(encoded),), encoded
    if item.dtype.kind == "O":
        return item.shape, json.dumps(item.tolist()).encode()
    if item.dtype.kind == "f":
        item = np.where(np.isnan(item), np.nan, item + 0.0)  # adding 0.0 turns -0.0 into 0.0
    return item.shape, item.astype(item.dtype.newbyteorder("<")).tobytes()


def _files(path: Path) -> dict[str, Path]:
    if is_file(path):
        return {path.name: path}
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {path}")
    files = {f.relative_to(path).as_posix(): f for f in files_in(path) if f.suffix.lower() == ".txt"}
    if not files:
        raise ValueError(f"the folder {path} has no .txt file; pass the file itself if it has another ending")
    return dict(sorted(files.items()))


def read_text(file: Path) -> str:
    r"""A UTF-8 file, unpacked if it ends in ``.gz``, without a byte order mark, with ``\n`` at line ends.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8 or holds a null byte, which is named; what ``contents.read_bytes`` refuses.
    """
    return decoded(file, read_bytes(file)).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _checked_text(file: Path) -> str:
    """A text; warns of one that looks like another format, whose marks would be modelled as text."""
    document = read_text(file)
    first, _, rest = document.lstrip().partition("\n")
    if RECORD.fullmatch(first) and RESIDUES.match(rest):
        looks_like, ending = "FASTA, and its headers", ".fasta"
    elif first[:1] in ("[", "{") and _is_json(first):
        looks_like, ending = "JSON, and its brackets", ".jsonl"
    elif are_numbers(document):
        looks_like, ending = "numbers, and their digits", ".csv"
    else:
        return document
    warn_caller(
        f"{file} looks like {looks_like} are modelled as text; for its sequences alone name it {ending}",
    )
    return document


def are_numbers(document: str) -> bool:
    """Whether a text is numbers and what stands between them."""
    return bool(OF_NUMBERS.fullmatch(document) and DIGIT.search(document))


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), list | dict)
    except (ValueError, RecursionError):
        return False


def _pieces(document: str, by: Unit) -> list[tuple[int, str]]:
    """The non-blank pieces of a document, each with the number of its first line, from 1."""
    if by == "whole":
        return [(1, document)] if document.strip() else []
    lines = [(number, line) for number, line in enumerate(document.split("\n"), start=1)]
    if by == "line":
        return [(number, line) for number, line in lines if line.strip()]
    paragraphs: list[list[tuple[int, str]]] = [[]]
    for number, line in lines:
        if line.strip():
            paragraphs[-1].append((number, line))
        elif paragraphs[-1]:
            paragraphs.append([])
    return [(lines[0][0], "\n".join(line for _, line in lines)) for lines in paragraphs if lines]
