"""The contents of files: read whole and unpacked within a bound; what is no file, or is damaged, is refused by name."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path

from seqmodels.common.main_memory import refuse_beyond_memory

# What a packed file may unpack to: so many bytes whatever its size, and beyond that so many times its size. Data repeat
# themselves a thousandfold in short files only; a long file that does so was made to fill the memory.
UNPACKED_ANYHOW, UNPACKED_RATIO = 1 << 27, 100
SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
# What the contents of other formats begin with, each with bytes that no text has, or as no text begins.
BEGINNINGS = {
    b"PK\x03\x04": "a zip archive, as .xlsx, .docx and .npz files are",
    b"%PDF-": "a PDF",
    b"{\\rtf": "rich text",
    b"\xd0\xcf\x11\xe0": "an Office document, as .xls and .doc files are",
    b"\x1f\x8b": "a gzip file, whose name ends in .gz",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"\x93NUMPY": "NumPy's file, whose name ends in .npy",
    b"PAR1": "a Parquet file, whose name ends in .parquet",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "an HDF5 file",
    b"SQLite format 3": "an SQLite database",
    b"RIFF": "a recording, whose name ends in .wav",
    b"fLaC": "a recording",
    b"OggS": "a recording",
    b"ID3": "a recording",
    b"MThd": "a MIDI file, whose name ends in .mid",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x80": "a pickle of Python, which is not read since it may run anything",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
NEVER_TEXT = (b"PK\x03\x04", b"%PDF-", b"{\\rtf")  # are valid UTF-8


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path of a regular file; a link to one will do.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: a folder; a pipe, a device or a socket, which may never end or be read only once.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {file}") from None
    except ValueError as error:
        raise ValueError(f"{str(file)!r} is no name of a file: {error}") from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{file} is a folder; pass a file in it, or read the folder by seqmodels.data.read")
    if not stat.S_ISREG(mode):
        what = SPECIAL.get(stat.S_IFMT(mode), "no regular file")
        raise ValueError(f"{file} is {what}, not a file on disk; write what comes from it to a file, and pass that")
    return file


def is_file(path: Path) -> bool:
    """Whether there is a file, and no folder; raises ``ValueError`` for a pipe, a device or a socket."""
    return path.exists() and not path.is_dir() and bool(check_file(path))


def files_in(folder: Path) -> list[Path]:
    """The files in a folder and in those in it, in no order; pipes and devices too, which ``check_file`` refuses."""
    return [path for path in folder.rglob("*") if not path.is_dir()]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, unpacked if its name ends in ``.gz``.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: what ``check_file`` refuses; gzip that is damaged or cut off, or that unpacks to more than
            ``unpacked_limit``; more than memory holds.
    """
    file = check_file(path)
    size = file.stat().st_size
    refuse_beyond_memory(str(file), size, "cut it into several files, or leave it on disk: seqmodels.data.on_disk")
    try:
        return _unpacked(file) if file.suffix.lower() == ".gz" else file.read_bytes()
    except MemoryError:
        raise ValueError(
            f"{file} of {size:,} bytes does not fit into memory; cut it into several files, or leave it on disk: "
            "seqmodels.data.on_disk"
        ) from None


def unpacked_limit(n_packed: int) -> int:
    """How many bytes so many packed ones may unpack to."""
    return max(UNPACKED_ANYHOW, UNPACKED_RATIO * n_packed)


def _unpacked(file: Path) -> bytes:
    n_packed = file.stat().st_size
    limit, parts, n_bytes = unpacked_limit(n_packed), [], 0
    try:
        with gzip.open(file) as unpacking:
            while part := unpacking.read(1 << 20):
                parts.append(part)
                n_bytes += len(part)
                if n_bytes > limit:
                    raise ValueError(
                        f"{file} has {n_packed:,} bytes and unpacks to more than {limit:,}, as files do that are made "
                        "to fill the memory; if it is meant so, unpack it first (gunzip)"
                    )
    except gzip.BadGzipFile as error:
        raise ValueError(f"{file} is not what its ending .gz says: {error}; pack it again, or rename it") from None
    except (EOFError, zlib.error) as error:
        raise ValueError(
            f"{file} is damaged or cut off after {n_bytes:,} bytes were unpacked ({error}); pack it again from the "
            "original"
        ) from None
    return b"".join(parts)


def decoded(file: Path, raw: bytes) -> str:
    """The UTF-8 of a file of text.

    Raises:
        ValueError: other bytes than those of text, naming the first and what the file is taken for.
    """
    check_text(file, raw)
    return raw.decode("utf-8")


def check_text(file: Path, raw: bytes) -> None:
    """Raise ``ValueError`` for bytes that are no text in UTF-8, or hold a null byte, which no text has."""
    way_out = "convert it first, for example with iconv"
    if raw.startswith(NEVER_TEXT):
        raise ValueError(f"{file} is {_taken_for(raw)}, not text; save its contents as .csv, .jsonl or .txt")
    null = raw.find(b"\0")
    if null >= 0 and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        what = _taken_for(raw) or "UTF-16, or no text at all"
        raise ValueError(f"{file} has a null byte at offset {null}, so it may be {what}; {way_out}")
    if raw.isascii():
        return
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f", so it may be {_taken_for(raw)}" if _taken_for(raw) else ""
        raise ValueError(
            f"{file} is not UTF-8: byte {raw[error.start]:#04x} at offset {error.start} ({error.reason}){what}; "
            f"{way_out}"
        ) from None


def _taken_for(raw: bytes) -> str:
    """What a file that begins so may be, in words."""
    return next((what for beginning, what in BEGINNINGS.items() if raw.startswith(beginning)), "")
