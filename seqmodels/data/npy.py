"""NumPy's files: one array, or several by name."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import listed
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import checked
from seqmodels.data.file_contents import check_file, unpacked_limit
from seqmodels.data.file_format import FileFormat
from seqmodels.data.kinds import as_kind
from seqmodels.sequences import Kind, Sequences

CONCATENATED = ("X", "lengths")  # the arrays of a file that holds sequences laid end to end
OF_CONCATENATED = (*CONCATENATED, "labels")
ENDING = ".npy"  # of the members of a .npz file
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What numpy and zipfile raise for files that are damaged.
DAMAGED = (
    ValueError,
    EOFError,
    OSError,
    KeyError,
    SyntaxError,
    TypeError,
    RuntimeError,  # a password
    NotImplementedError,  # a compression of its own
    OverflowError,
    MemoryError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
)


@checked
def npy(path: str | Path, *, kind: Kind | None = None) -> Sequences:
    """The sequences of a ``.npy`` or ``.npz`` file.

    Args:
        path: ``.npy``: an array ``(T, D)`` or ``(T,)`` is one sequence; ``(n, T, D)`` are n of one length. ``.npz``: an
            array a sequence, by its name; or ``X (N, D)`` or ``(N,)`` and ``lengths (n,)``, as of
            ``Sequences.from_lengths``, with ``labels (n,)`` if there are any; other arrays are left out then, and
            warned of.
        kind: ``"vectors"``: ``(T,)`` are frames of one feature; ``"symbols"``: ``(n, T)`` are n sequences of whole
            numbers. None: ``(T,)`` of whole numbers or strings are symbols, everything else vectors.

    Raises:
        ValueError: a file that is no array, or holds Python objects, which only pickle could read; one that is cut off,
            or whose header says more or less than there is; two arrays of one name; arrays that unpack to far more than
            the file (``contents.unpacked_limit``); a pipe or a device.

    An array that is too large for memory stays on disk: ``data.on_disk(path)``.
    """
    path = check_file(path)
    arrays = _arrays(path)
    if not arrays:
        raise ValueError(f"{path} holds no arrays; there is nothing to model")
    for name, array in arrays.items():
        if not array.size or not array.ndim:
            raise ValueError(f"{path}, {name} has shape {array.shape}, which is no sequence; leave it out")
    if set(CONCATENATED) <= arrays.keys():
        return _laid_end_to_end(path, arrays, kind)
    items: list[np.ndarray] = []
    names: list[str] = []
    for name, array in arrays.items():
        several = array.ndim == 3 or (array.ndim == 2 and kind == "symbols" and array.shape[1] > 1)
        parts = list(array) if several else [array]
        items += [as_kind(part, _kind_of(part, kind), f"{path}, {name}") for part in parts]
        names += [f"{name}:{i}" for i in range(len(parts))] if several else [name]
    try:
        return Sequences(items, names=names)
    except ValueError as error:
        raise ValueError(f"{path}: {error} (the arrays are {listed(names)})") from None


NPY = FileFormat("NumPy", (".npy", ".npz"), npy, options=("kind",), binary=(".npy", ".npz"))


def _laid_end_to_end(path: Path, arrays: dict[str, np.ndarray], kind: Kind | None) -> Sequences:
    left_out = [name for name in arrays if name not in OF_CONCATENATED]
    if left_out:
        warn_caller(f"{path}: left out {listed(left_out)}; beside X and lengths there are labels")
    whole = as_kind(arrays["X"], _kind_of(arrays["X"], kind), f"{path}, X")
    labels = arrays.get("labels")
    if labels is not None and labels.ndim != 1:
        raise ValueError(f"{path}, labels has shape {labels.shape}; pass (n,), a label for each sequence")
    try:
        return Sequences.from_lengths(
            whole, arrays["lengths"].tolist(), labels=None if labels is None else labels.tolist()
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _kind_of(array: np.ndarray, kind: Kind | None) -> Kind | None:
    """Of numbers ``(T,)`` that are not whole, vectors of one feature."""
    return "vectors" if kind is None and array.ndim == 1 and array.dtype.kind == "f" else kind


# -- the file --------------------------------------------------------------------------------------------------


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file, by their names."""
    n_bytes = path.stat().st_size
    with _refused_by_name(str(path)), path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return _members(path, file, n_bytes)
        file.seek(0)
        refuse_beyond_memory(str(path), n_bytes, "leave it on disk: seqmodels.data.on_disk")
        return {path.stem: _array(file, n_bytes)}


def _members(path: Path, file: BinaryIO, n_packed: int) -> dict[str, np.ndarray]:
    """The arrays of a ``.npz`` file."""
    arrays = {}
    with zipfile.ZipFile(file) as packed:
        members = packed.infolist()
        names = [member.filename.removesuffix(ENDING) for member in members]
        twice = [name for name, n in Counter(names).items() if n > 1]
        if twice:
            raise ValueError(f"it has two arrays {twice[0]!r}, of which one would be lost; save them under two names")
        n_bytes = sum(member.file_size for member in members)
        if n_bytes > unpacked_limit(n_packed):
            raise ValueError(
                f"of {n_packed:,} bytes it unpacks to {n_bytes:,}, as files do that are made to fill the memory; if it "
                "is meant so, save it by numpy.savez, which packs nothing"
            )
        refuse_beyond_memory(str(path), n_bytes, "save each array as .npy, and leave them on disk: data.on_disk")
        for name, member in zip(names, members, strict=True):
            with _refused_by_name(f"{path}, {name}"), packed.open(member) as opened:
                if member.file_size > n_packed and member.compress_type == zipfile.ZIP_STORED:
                    raise ValueError(f"says that it has {member.file_size:,} bytes, more than the file")
                raw = opened.read(member.file_size + 1)  # to the end, where its checksum is compared
                arrays[name] = _array(io.BytesIO(raw), len(raw))
    return arrays


def _array(file: BinaryIO, n_bytes: int) -> np.ndarray:
    """One array, whose header says what there is."""
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"it is of version {version}, as tables of named columns are; save plain arrays")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError(
            "it holds Python objects: save arrays of numbers, of several lengths by numpy.savez(path, *arrays)"
        )
    if dtype.kind not in "biufU" or not dtype.itemsize:
        way_out = "save real numbers, or strings as symbols"
        if dtype.names is not None:
            way_out = f"pass the table pandas.DataFrame(array) to seqmodels.data.table, or save {way_out[5:]}"
        raise ValueError(f"it holds {dtype}; {way_out}")
    n_said, n_there = math.prod(shape) * dtype.itemsize, n_bytes - file.tell()
    if n_said != n_there or min(shape, default=0) < 0:
        what = "it is cut off, or its header is wrong" if n_said > n_there else "it has several arrays, or is damaged"
        raise ValueError(
            f"its header says {dtype} of shape {shape}, which are {n_said:,} bytes, but {n_there:,} follow: {what}; "
            "save it again"
        )
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


@contextmanager
def _refused_by_name(where: str) -> Iterator[None]:
    """Context in which what is raised for a damaged file is a ``ValueError`` that says where."""
    try:
        yield
    except DAMAGED as error:
        said = str(error) if str(error).startswith(where) else f"{where} cannot be read as NumPy's file: {_why(error)}"
        raise ValueError(said) from None


def _why(error: Exception) -> str:
    return "it is larger than memory" if isinstance(error, MemoryError) else reason(error)


def reason(error: Exception) -> str:
    """What an error says, in one line; its type, where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
