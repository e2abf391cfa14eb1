"""Reading NumPy's files: ``.npy`` with one array, and ``.npz`` with several named arrays."""

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
ENDING = ".npy"  # the ending of the names of a .npz file's members
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# The errors that NumPy and zipfile raise for damaged files.
DAMAGED = (
    ValueError,
    EOFError,
    OSError,
    KeyError,
    SyntaxError,
    TypeError,
    RuntimeError,  # the archive has a password
    NotImplementedError,  # the archive has an unusual compression
    OverflowError,
    MemoryError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
)


@checked
def npy(path: str | Path, *, kind: Kind | None = None) -> Sequences:
    """Read the sequences of a ``.npy`` or ``.npz`` file.

    An array that is too large for memory can stay on disk: ``data.on_disk(path)``.

    Args:
        path: the path of the file. In a ``.npy`` file, an array of shape ``(T, D)`` or ``(T,)`` is one sequence, and
            one of shape ``(n, T, D)`` is n sequences of equal length. In a ``.npz`` file each array is a sequence with
            the array's name; or ``X``, shape ``(N, D)`` or ``(N,)``, and ``lengths``, shape ``(n,)``, are sequences
            laid end to end as in ``Sequences.from_lengths``, with optional ``labels``, shape ``(n,)``. Other arrays are
            then left out with a warning.
        kind: ``"vectors"`` makes an array of shape ``(T,)`` frames of one feature; ``"symbols"`` makes integers of
            shape ``(n, T)`` n sequences. None reads integers or strings of shape ``(T,)`` as symbols, and everything
            else as vectors.

    Raises:
        ValueError: the file holds no arrays, or Python objects, which only pickle could read; it is cut off or its
            header contradicts its size; two arrays have the same name; the arrays unpack to far more than the file's
            size (``file_contents.unpacked_limit``); or the path is a pipe or a device.
    """
    path = check_file(path)
    arrays = _arrays(path)
    if not arrays:
        raise ValueError(f"{path} holds no arrays; there is nothing to model")
    for name, array in arrays.items():
        if not array.size or not array.ndim:
            raise ValueError(f"{path}, {name} has shape {array.shape}, which is not a sequence; leave it out")
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
    """Return the kind to read an array as: ``kind`` if given, vectors for fractions of shape ``(T,)``, else None."""
    return "vectors" if kind is None and array.ndim == 1 and array.dtype.kind == "f" else kind


# -- the file --------------------------------------------------------------------------------------------------


def _arrays(path: Path) -> dict[str, np.ndarray]:
    n_bytes = path.stat().st_size
    with _refused_by_name(str(path)), path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return _members(path, file, n_bytes)
        file.seek(0)
        refuse_beyond_memory(str(path), n_bytes, "leave it on disk: seqmodels.data.on_disk")
        return {path.stem: _array(file, n_bytes)}


def _members(path: Path, file: BinaryIO, n_packed: int) -> dict[str, np.ndarray]:
    """Return the arrays of an open ``.npz`` file by name.

    Args:
        path: path of the file, for errors.
        file: the open file.
        n_packed: size of the file in bytes.

    Raises:
        ValueError: a name repeats, or the arrays unpack to far more than the file's size.
    """
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
    """Read one array from an open ``.npy`` file.

    Args:
        file: the open file.
        n_bytes: size of its content in bytes.

    Raises:
        ValueError: if its header does not agree with the size, or it does not hold numbers or strings.
    """
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
    """Return a context that turns errors of a damaged file into a ``ValueError`` that names the place ``where``."""
    try:
        yield
    except DAMAGED as error:
        said = str(error) if str(error).startswith(where) else f"{where} cannot be read as NumPy's file: {_why(error)}"
        raise ValueError(said) from None


def _why(error: Exception) -> str:
    return "it is larger than memory" if isinstance(error, MemoryError) else reason(error)


def reason(error: Exception) -> str:
    """Return the message of an error in one line, or its type if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__
