"""Checks of a command's options that need no data and are made first, so that no work is lost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from seqmodels.data.read import FORMATS, NOT_READ
from seqmodels.evaluation.tuning.budget import Budget

PICTURES = (".png", ".pdf", ".svg")
SAVED = ".safetensors"
OF_DATA = {ending for each in FORMATS for ending in each.endings}
NO_MODEL = ({*OF_DATA, *NOT_READ, *PICTURES, ".html"}) - {SAVED}  # endings that a file of a model may not have
NO_TEXT = {*NOT_READ, *PICTURES, *(ending for each in FORMATS for ending in each.binary)}  # the same for text and CSV
MAX_VALUE = 1000  # the most characters of an option's value
Outputs = Mapping[str, Path | None]  # files to write, by the options that name them


def check_outputs(
    *,
    models: Outputs | None = None,
    texts: Outputs | None = None,
    pictures: Outputs | None = None,
    files: Outputs | None = None,
    inputs: Sequence[str | None] = (),
) -> None:
    """Check that output files can be written, have a suitable ending, and would not replace an input.

    Args:
        models: files of models to write, as a mapping from option to path; a path of None is not written.
        texts: files of text to write, such as CSV.
        pictures: pictures to write.
        files: other files to write, with any ending.
        inputs: paths that the command reads.

    Raises:
        FileNotFoundError: the folder of a file does not exist.
        ValueError: a file cannot be written, has the wrong ending, is read too, or is named by two options.
    """
    models, texts, pictures = models or {}, texts or {}, pictures or {}
    each = {**models, **texts, **pictures, **(files or {})}
    written = {option: path for option, path in each.items() if path is not None}
    for option, path in written.items():
        _check_place(option, path)
        ending = path.suffix.lower()
        if option in pictures and ending not in PICTURES:
            raise ValueError(f"{option} is {path}; its name should end in {', '.join(PICTURES)}")
        if ending in (NO_MODEL if option in models else NO_TEXT if option in texts else ()):
            what = "a model, whose name ends in .safetensors" if option in models else "text, such as .csv"
            raise ValueError(f"{option} is {path}, but what is written is {what}; pass another name")
        if any(read is not None and _is_same(path, Path(read)) for read in inputs):
            raise ValueError(f"{option} is {path}, which the command reads, so it would be lost; pass another name")
    for (option, path), (other, there) in combinations(written.items(), 2):
        if os.path.realpath(path) == os.path.realpath(there):
            raise ValueError(f"{option} and {other} name the same file, {path}; pass two names")


def _check_place(option: str, path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{option} is {path}, a folder; pass the name of a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{option} is {path}, which may not be written; pass a name in another folder")


def _is_same(path: Path, other: Path) -> bool:
    return path.is_file() and other.is_file() and path.samefile(other)


def check_folder(option: str, folder: Path) -> None:
    """Check that a folder can be created and written to.

    Args:
        option: the option that names the folder, for the message.
        folder: the folder.

    Raises:
        ValueError: it cannot.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise ValueError(f"{option} is {folder}, but {there} is a file; pass a folder")
    if not os.access(there, os.W_OK):
        raise ValueError(f"{option} is {folder}, but {there} may not be written to; pass another folder")


def check_jobs(jobs: int) -> None:
    """Check that the number of parallel jobs is not 0.

    Raises:
        ValueError: it is 0.
    """
    if jobs == 0:
        raise ValueError("--jobs is 0; pass the number of fits to run at a time, or -1 for one per core")


def check_budget(seconds: float | None, steps: int | None) -> None:
    """Check the limits on the training of each model.

    Args:
        seconds: seconds of training; None means no limit.
        steps: number of training steps; None means no limit.

    Raises:
        ValueError: a limit is not above zero.
    """
    if seconds is not None or steps is not None:
        Budget(seconds=seconds, steps=steps)


def check_value(option: str, text: str) -> str:
    """Return the value of an option after checking its length.

    Args:
        option: the option, for the message.
        text: its value.

    Raises:
        ValueError: it has more than ``MAX_VALUE`` characters.
    """
    if len(text) > MAX_VALUE:
        raise ValueError(f"{option} has a value of {len(text):,} characters, {text[:20]}...; pass {MAX_VALUE} at most")
    return text
