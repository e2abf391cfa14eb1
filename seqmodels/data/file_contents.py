"""Reading whole files safely: unpacked within a limit, and refused by name if they are damaged or not files."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path

from seqmodels.common.main_memory import refuse_beyond_memory

# A packed file may unpack to this many bytes whatever its size, and beyond that to this multiple of its size, because
# only short files repeat themselves a thousandfold; a long one that does was made to fill the memory.
UNPACKED_ANYHOW, UNPACKED_RATIO = 1 << 27, 100
SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
# The first bytes of files in other formats, none of which a text begins with.
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
NEVER_TEXT = (b"PK\x03\x04", b"%PDF-", b"{\\rtf")  # listed because they are valid UTF-8 and no decoder refuses them


def check_file(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` after checking that it is a regular file, or a link to one.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: the path is a folder; or a pipe, a device or a socket, which may never end or can be read only once.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {file}") from None
    except ValueError as error:
        raise ValueError(f"{str(file)!r} is not the name of a file: {error}") from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{file} is a folder; pass a file in it, or read the folder by seqmodels.data.read")
    if not stat.S_ISREG(mode):
        what = SPECIAL.get(stat.S_IFMT(mode), "no regular file")
        raise ValueError(f"{file} is {what}, not a file on disk; write what comes from it to a file, and pass that")
    return file


def is_file(path: Path) -> bool:
    """Return True if the path is a regular file, False if it is a folder or does not exist.

    Raises:
        ValueError: the path is a pipe, a device or a socket.
    """
    return path.exists() and not path.is_dir() and bool(check_file(path))


def files_in(folder: Path) -> list[Path]:
    """Return the paths of all files in a folder and its subfolders, in no order.

    Pipes and devices are among them; ``check_file`` refuses these.
    """
    return [path for path in folder.rglob("*") if not path.is_dir()]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file, unpacked if its name ends in ``.gz``.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: the path is not a regular file; its gzip data are damaged, cut off or unpack to far more bytes than
            its size (``unpacked_limit``); or it does not fit into memory.
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
    """Return the largest number of bytes to which ``n_packed`` packed bytes may unpack before a file is refused."""
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
    """Decode bytes that should be text in UTF-8, and return the text.

    Args:
        file: the file that they come from, for error messages.
        raw: the bytes.

    Raises:
        ValueError: the bytes are not text; the message names the first wrong byte and the likely format.
    """
    check_text(file, raw)
    return raw.decode("utf-8")


def check_text(file: Path, raw: bytes) -> None:
    """Check that the bytes of a file are text in UTF-8 without a null byte.

    Args:
        file: the file, for the message.
        raw: its bytes.

    Raises:
        ValueError: if they are not; the message names the first wrong byte and the likely format.
    """
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
    """Return a phrase that names the format the bytes seem to have; "" if it is not known."""
    return next((what for beginning, what in BEGINNINGS.items() if raw.startswith(beginning)), "")
