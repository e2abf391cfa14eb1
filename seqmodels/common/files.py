"""Files and folders written beside the old ones and put in their place whole: at every instant the old or the new.

A folder that several files make up is written to by one process at a time, see ``locked_folder``.
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

LOCK = ".seqmodels.lock"  # in a folder that is being written to
LOCKED_BYTE = 1 << 20  # of the lock file, under Windows: behind its text, which others read


@contextmanager
def locked_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder, which is created, for this process alone to write to until the block ends.

    The lock is the operating system's, on an open file in the folder: it ends with the process, however that ends, so
    that what a killed one left is no lock. A file system without locks has none.

    Raises:
        ValueError: another process, or another thread of this one, has the folder.
        OSError: it cannot be created or written to.
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
        if fcntl is None:  # it can be removed only when it is closed; another that has opened it meanwhile will do it
            os.close(descriptor)
            with suppress(PermissionError):
                path.unlink(missing_ok=True)
        else:
            path.unlink(missing_ok=True)
            os.close(descriptor)
        with suppress(OSError):  # a folder with something in it stays
            for each in made:
                each.rmdir()


def _begin_lock(root: Path) -> int:
    """A descriptor of the lock file in ``root`` that has the lock."""
    path = root / LOCK
    while True:
        try:
            root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileNotFoundError, FileExistsError):  # the second also where a folder goes between pathlib's two looks
            if _is_file(root):
                raise FileExistsError(f"{root} is a file, so nothing can be written into it; pass a folder") from None
            continue  # whoever had made the folder found it empty at the end, and removed it
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
        os.close(descriptor)  # whoever had the lock has removed the file meanwhile


def _is_file(path: Path) -> bool:
    """Whether it is something else than a folder, a link to nothing too; by one look, as others may remove it."""
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return path.is_symlink()


def _lock_byte(descriptor: int) -> bool:
    """``_lock`` under Windows, where it is of a byte."""
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
    """A file to write in the place of ``path``, which afterwards is the new one, whole and on the disk.

    If anything fails, it is the old one.

    What is written lies beside it, under a name of its own with the same suffix, until it is renamed. A process that is
    killed leaves that behind; whoever writes the same ``path`` next removes it. A link is followed; what is no ordinary
    file (``/dev/stdout``) is written to as it is.

    Raises:
        IsADirectoryError: ``path`` is a folder.
        OSError: the disk is full, the folder cannot be written to or is not there.
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
    """UTF-8 in the place of what was there, as ``replaced`` does it."""
    with replaced(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in ``parent``, its name ``prefix`` and 12 digits, which is removed again if anything fails."""
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
    """Folders in ``parent`` of such ``names``, except for one and for those that another process is writing."""
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
    """A new folder, and a lock on it that ends with this process."""
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
    """Make sure that what was renamed in it is so on the disk too; does nothing on systems that open no folders."""
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
    """A new file beside the target, and a lock on it that ends with this process."""
    while True:
        partial = target.with_name(f"{_stem(target)}{secrets.token_hex(6)}.partial{target.suffix[-20:]}")
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if (
            _lock(descriptor) is not False and partial.exists()
        ):  # else another writer has just taken it for one that was left behind
            return partial, descriptor
        os.close(descriptor)


def _remove_left_behind(target: Path) -> None:
    """What killed processes began to write in the place of the target: files that nobody has a lock on."""
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
    """Whether the open file is this process's alone; None: the system or the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
