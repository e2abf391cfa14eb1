"""Atomic writing: files and folders are written beside the old ones and then put in their place as a whole.

If several files make up a folder, ``locked_folder`` lets only one process write to it at a time.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, which does not let files in use be removed either
    fcntl = None  # type: ignore[assignment]

LOCK = ".seqmodels.lock"  # the lock file in a folder that is being written to
LOCKED_BYTE = 1 << 20  # the byte locked under Windows: beyond the text, because other processes read that


@contextmanager
def locked_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Return a context manager that creates a folder if needed, and reserves it for this process to write to.

    It yields the folder's path. The lock is the operating system's, held on an open file in the folder. It ends with
    the process, even a killed one, so no stale lock is left. On a file system without locks nothing is reserved. A
    folder that was created and is empty at the end is removed again.

    Args:
        folder: path of the folder.

    Raises:
        ValueError: another process, or another thread of this one, holds the folder.
        OSError: the folder cannot be created or written to.
    """
    root = Path(folder)
    made = [each for each in (root, *root.parents) if not each.exists()]
    descriptor = _begin_lock(root)
    path = root / LOCK
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
        yield root
    finally:
        if fcntl is None:  # Windows removes only a closed file; a process that has opened it meanwhile will remove it
            os.close(descriptor)
            with suppress(PermissionError):
                path.unlink(missing_ok=True)
        else:
            path.unlink(missing_ok=True)
            os.close(descriptor)
        with suppress(OSError):  # a folder that is not empty stays
            for each in made:
                each.rmdir()


def _begin_lock(root: Path) -> int:
    """Lock the lock file in ``root``, creating both if needed, and return its file descriptor.

    Raise ``ValueError`` if another process holds the lock, ``FileExistsError`` if ``root`` is a file.
    """
    path = root / LOCK
    while True:
        try:
            root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileNotFoundError, FileExistsError):  # the second also if it vanishes between pathlib's two looks
            if _is_file(root):
                raise FileExistsError(f"{root} is a file, so nothing can be written into it; pass a folder") from None
            continue  # the process that had created the folder found it empty at its end and removed it
        if (_lock(descriptor) if fcntl else _lock_byte(descriptor)) is False:
            holder = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise ValueError(
                f"{root} is being written to by another run{f' ({holder})' * bool(holder)}, with whose files these "
                "would be mixed; wait until it ends, or pass another folder"
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # the process that had the lock has removed the file meanwhile


def _is_file(path: Path) -> bool:
    """Return True if the path is something other than a folder, including a link to nothing.

    It looks once, because other processes may remove the path at any time.
    """
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return path.is_symlink()


def _lock_byte(descriptor: int) -> bool:
    """Lock one byte of the open file, as Windows requires, and return True on success."""
    import msvcrt

    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except OSError:
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Return a context manager that yields the path of a temporary file, which replaces ``path`` when the block ends.

    The temporary file lies in the same folder under a unique name with the same suffix. It is written to the disk
    before it is renamed, so ``path`` is never incomplete. If the block fails, ``path`` stays as it was. If a process is
    killed, the next one that writes ``path`` removes what it left. A link is followed. A path that is not a regular
    file, such as ``/dev/stdout``, is yielded itself.

    Args:
        path: path of the file to write.

    Raises:
        IsADirectoryError: ``path`` is a folder.
        OSError: the disk is full, or the folder is missing or cannot be written to.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass the name of a file")
    if target.exists() and not target.is_file():
        yield target
        return
    _remove_left_behind(target)
    partial, descriptor = _begin(target)
    try:
        yield partial
        if target.exists():
            os.chmod(partial, stat.S_IMODE(target.stat().st_mode))
        os.fsync(descriptor)
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    sync_folder(target.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text in UTF-8 to a file, which appears complete or, if writing fails, stays as it was.

    Args:
        path: path of the file.
        text: its whole content.
    """
    with replaced(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Return a context manager that creates a folder in ``parent`` and yields its path.

    If the block fails, the folder is removed.

    Args:
        parent: an existing folder.
        prefix: beginning of the folder's name, which is followed by 12 hexadecimal digits.
    """
    folder, descriptor = _begin_folder(parent, prefix)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder)
        raise
    finally:
        if descriptor is not None:
            os.close(descriptor)


def remove_folders(parent: Path, names: re.Pattern[str], *, but: str) -> None:
    """Remove the folders in ``parent`` whose names match a pattern, except those that another process is writing.

    Args:
        parent: the folder that holds them.
        names: the pattern, which must match the whole name.
        but: name of a folder to keep.
    """
    for folder in [each for each in parent.iterdir() if names.fullmatch(each.name) and each.name != but]:
        if os.name == "nt":
            shutil.rmtree(folder)
            continue
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if _lock(descriptor):
                shutil.rmtree(folder)
        finally:
            os.close(descriptor)


def _begin_folder(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """Create a folder in ``parent`` with a new name that begins with ``prefix``.

    Return its path and a file descriptor that holds a lock on it until this process ends; None under Windows.
    """
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(6)}"
        folder.mkdir()
        if os.name == "nt":
            return folder, None
        descriptor = os.open(folder, os.O_RDONLY)
        if (
            _lock(descriptor) is not False and folder.exists()
        ):  # else another writer has just taken it for one that was left behind
            return folder, descriptor
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make sure that files that were renamed within a folder have reached the disk under their new names.

    Under Windows, which cannot open folders, do nothing.
    """
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stem(target: Path) -> str:
    return f".{target.name[:150]}."  # a name has at most 255 bytes


def _begin(target: Path) -> tuple[Path, int]:
    """Create a temporary file beside the target, and return its path and its descriptor.

    The descriptor holds a lock on the file until this process ends.
    """
    while True:
        partial = target.with_name(f"{_stem(target)}{secrets.token_hex(6)}.partial{target.suffix[-20:]}")
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if (
            _lock(descriptor) is not False and partial.exists()
        ):  # else another writer has just taken it for one that was left behind
            return partial, descriptor
        os.close(descriptor)


def _remove_left_behind(target: Path) -> None:
    """Remove the temporary files of the target that killed processes left, which are those that nobody has locked."""
    names = [name for name in os.listdir(target.parent) if name.startswith(_stem(target)) and ".partial" in name]
    for partial in (target.parent / name for name in names):
        try:
            descriptor = os.open(partial, os.O_RDWR)
        except FileNotFoundError:  # another writer was quicker
            continue
        try:
            if _lock(descriptor):
                partial.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Try to lock an open file for this process alone, without waiting.

    Return True if it is locked now, False if another process holds it, and None if there are no locks on this system or
    file system.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
