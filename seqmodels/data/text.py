"""Reading text as ``Sequences``: files, folders, and a text that comes with Python; and a hash of sequences."""

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
    r"""Read a UTF-8 file, or every ``.txt`` file in a folder and its subfolders, in the order of their names.

    A leading byte order mark is dropped and line ends are read as ``\n``; nothing else is changed. A warning says if a
    file looks like FASTA, JSON or a table of numbers, because its headers, brackets or digits would be modelled as
    text.

    Args:
        path: a file with any name (``.gz`` is unpacked), or a folder.
        by: what one sequence is: a ``"whole"`` file, a ``"line"`` without its end, or a ``"paragraph"``, which is a run
            of lines between blank ones. Blank ones are dropped.

    Returns:
        Texts named after their file, relative to the folder, and, by line or paragraph, the number of the line on which
        they start: ``book.txt:12``. If lines or paragraphs come from several files, the file is their cluster.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: a file is not UTF-8 or holds a null byte (the message names the file and the byte), has another
            format, is damaged, or is a pipe or a device; or nothing is left to read.
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
    """Return one long English text that needs no download: the reference manual that CPython carries for ``help()``.

    It consists of the topics in ``pydoc_data.topics``, sorted by key, with a blank line between two, in Unicode normal
    form C: about 465,000 characters. The wording differs between versions of Python, so report its ``sha256`` with a
    result.

    >>> builtin_text()[0][:22]
    'The "assert" statement'
    """
    from pydoc_data.topics import topics

    joined = "\n\n".join(topics[key].strip("\n") for key in sorted(topics))
    return Sequences([unicodedata.normalize("NFC", joined)], names=["pydoc_data.topics"])


@checked
def sha256(sequences: Sequences) -> str:
    """Return 64 hexadecimal digits that identify all sequences, their order and their past, but not their metadata.

    The digits are the same on every machine: texts are hashed as UTF-8, strings as JSON, and numbers as little-endian
    float64 or int64, each after its shape, so the boundaries of sequences matter too. All NaN are the same; 0.0 and
    -0.0 are the same.

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
    r"""Return the text of a UTF-8 file without a byte order mark and with ``\n`` at line ends.

    A file that ends in ``.gz`` is unpacked.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8, holds a null byte, is no regular file, is damaged, or does not fit into
            memory.
    """
    return decoded(file, read_bytes(file)).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _checked_text(file: Path) -> str:
    """Return the text of a file, and warn if it looks like another format, whose marks would be modelled as text.

    The other formats are FASTA, JSON and tables of numbers.
    """
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
    """Return True if a text consists only of numbers and of separators between them, and has at least one digit."""
    return bool(OF_NUMBERS.fullmatch(document) and DIGIT.search(document))


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), list | dict)
    except (ValueError, RecursionError):
        return False


def _pieces(document: str, by: Unit) -> list[tuple[int, str]]:
    """Return the pieces of a document that are not blank, each with the number of its first line, counted from 1.

    Args:
        document: the text.
        by: what a piece is: the ``"whole"`` text, a ``"line"``, or a ``"paragraph"`` (lines between blank ones).
    """
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
