"""Reading ``.ts`` files, the format of the UCR and UEA time series archives, used by aeon and sktime (Bagnall et al.
2018).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.common.display import listed
from seqmodels.common.parameters import checked
from seqmodels.data.file_format import FileFormat
from seqmodels.data.text import read_text
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    import pandas as pd

PAIR = re.compile(r"\s*\(([^,()]*),([^,()]*)\)\s*")  # (time, value)
BETWEEN_PAIRS = re.compile(r"(?<=\)),(?=\s*\()")
MISSING = ("?", "nan")


@checked
def ts(path: str | Path) -> Sequences:
    """Read the series of a ``.ts`` file as vectors, shape ``(T, D)``, with their classes as labels, which are strings.

    A line holds one series: its dimensions are separated by ``:`` and their values by ``,``; ``?`` is a missing value.
    Last comes the class (``@classLabel``), or a number (``@targetLabel``), which becomes the column ``target`` of the
    metadata. Steps at the end at which all dimensions are missing are padding and are dropped. With ``@timeStamps
    true`` a value is ``(time, value)``, and all dimensions must have the same times.

    Args:
        path: the path of the file; it may end in ``.gz``.

    Raises:
        ValueError: the file has no ``@data``; a line does not fit the header, because its class is not listed in
            ``@classLabel``, or its number of dimensions or its length differs from what the header or the line before
            says; a value is not a finite number; or the dimensions of a series differ in length or times. The message
            gives the line's number.
    """
    path = Path(path)
    header, rows = _parts(path, read_text(path))
    items: list[np.ndarray] = []
    times, labels = [], []
    for number, line in rows:
        where = f"{path}:{number}"
        body, label = _label(where, line, header)
        between = r"(?<=\))\s*:\s*(?=\()" if header.has_times else ":"  # because times may contain colons
        series = [_dimension(where, text, header.has_times) for text in re.split(between, body)]
        lengths = [len(values) for _, values in series]
        if len(set(lengths)) > 1:
            raise ValueError(f"{where} has dimensions of lengths {lengths}; one series has one length in all")
        n_dimensions = header.n_dimensions or (items[0].shape[1] if items else len(series))
        if len(series) != n_dimensions:
            said = "the header says" if header.n_dimensions else f"the series before {'have' if items else 'has'}"
            raise ValueError(f"{where} has {len(series)} dimensions, but {said} {n_dimensions}; separate them by ':'")
        if header.length not in (None, lengths[0]):
            raise ValueError(
                f"{where} has {lengths[0]} steps, but the header says {header.length} of each (@seriesLength); correct "
                "one of them, or write @equalLength false"
            )
        if any(not np.array_equal(series[0][0], there, equal_nan=True) for there, _ in series):
            raise ValueError(f"{where} has dimensions of different times; make series of one dimension of them")
        frames = np.stack([values for _, values in series], axis=1)  # (T, D)
        seen = np.flatnonzero(~np.isnan(frames).all(axis=1))
        if not len(seen):
            raise ValueError(f"{where} has no value that is not missing; leave the series out")
        end = int(seen[-1]) + 1
        items.append(frames[:end])
        times.append(series[0][0][:end])
        labels.append(label)
    try:
        return Sequences(
            items,
            labels=labels if header.has_class else None,
            metadata=_targets(rows, path, labels) if header.has_target else None,
            times=times if header.has_times else None,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error} (series are counted from 0, in the lines after @data)") from None


SERIES = FileFormat(".ts", (".ts",), ts, kind="vectors")


@dataclass(frozen=True)
class _Header:
    """The header of a ``.ts`` file: the contents of the lines before ``@data``.

    Args:
        has_class: True if each series ends with a class.
        has_target: True if each series ends with a number to predict.
        has_times: True if values have times.
        classes: the admitted classes; empty if any class is admitted.
        n_dimensions: number of dimensions of each series; None if it is not stated.
        length: length of each series; None if lengths differ or are not stated.
    """

    has_class: bool
    has_target: bool
    has_times: bool
    classes: tuple[str, ...]
    n_dimensions: int | None
    length: int | None

    @staticmethod
    def of(path: Path, entries: dict[str, str]) -> _Header:
        words = {key: value.split() for key, value in entries.items()}
        true = {key for key, each in words.items() if [word.lower() for word in each[:1]] == ["true"]}
        if {"classlabel", "targetlabel"} <= true:
            raise ValueError(f"{path} has @classLabel true and @targetLabel true; a series ends with one of them")
        one = 1 if "univariate" in true else None
        said = _whole(path, words, "dimensions") or _whole(path, words, "dimension")
        if one and said not in (None, one):
            raise ValueError(f"{path} says @univariate true and {said} dimensions; correct one of them")
        return _Header(
            "classlabel" in true,
            "targetlabel" in true,
            "timestamps" in true,
            tuple(words.get("classlabel", ())[1:]),
            said or one,
            _whole(path, words, "serieslength") if "equallength" in true else None,
        )


def _whole(path: Path, words: dict[str, list[str]], key: str) -> int | None:
    """Return the integer of the entry ``key`` in a header; None if there is no such entry or it is 0.

    Args:
        path: path of the file, for the error.
        words: words of each entry, by key.
        key: key of the entry in lower case.

    Raises:
        ValueError: the entry is not an integer.
    """
    said = words.get(key, [])
    if not said:
        return None
    if not said[0].isdecimal() or len(said[0]) > 9:
        raise ValueError(f"{path} says @{key} {said[0]!r:.40}, which is not a whole number; correct it")
    return int(said[0]) or None


def _parts(path: Path, text: str) -> tuple[_Header, list[tuple[int, str]]]:
    """Divide the text of a ``.ts`` file into its header and the lines of its data with their numbers.

    Args:
        path: path of the file, for errors.
        text: text of the file.

    Raises:
        ValueError: if the text has no ``@data``, or its header is malformed.
    """
    entries: dict[str, str] = {}
    lines = [(i, line.strip()) for i, line in enumerate(text.split("\n"), start=1)]
    kept = [(i, line) for i, line in lines if line and not line.startswith("#")]
    for k, (number, line) in enumerate(kept):
        if not line.startswith("@"):
            raise ValueError(f"{path}:{number} comes before @data and does not begin with @; it is not a .ts file")
        key, _, value = line[1:].partition(" ")
        if key.lower() == "data":
            if k + 1 == len(kept):
                raise ValueError(f"{path} has no series after @data")
            return _Header.of(path, entries), kept[k + 1 :]
        if key.lower() in entries:
            raise ValueError(f"{path}:{number} has @{key} a second time; leave one out")
        entries[key.lower()] = value.strip()
    raise ValueError(f"{path} has no line @data; it is not a .ts file")


def _label(where: str, line: str, header: _Header) -> tuple[str, str]:
    """Split the line of a series into its dimensions, and its class or number, which comes last.

    The class is "" if the header announces none.

    Args:
        where: place of the line, for errors.
        line: the line.
        header: header of the file.

    Raises:
        ValueError: if the class is missing or not listed in the header.
    """
    if not (header.has_class or header.has_target):
        return line, ""
    body, colon, label = line.rpartition(":")
    label = label.strip()
    if not colon or not label or label == "?":
        raise ValueError(f"{where} has no {'class' if header.has_class else 'number'} after its last ':'; add it")
    if header.has_class and header.classes and label not in header.classes:
        raise ValueError(
            f"{where} has the class {label!r:.60}, but the header says {listed(header.classes)}; correct one of them"
        )
    return body, label


def _dimension(where: str, text: str, has_times: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the times and the values of one dimension of a series of T steps, each of shape ``(T,)``, from its text.

    Args:
        where: place of the line, for errors.
        text: the values, separated by commas, each written ``(time, value)`` if they have times.
        has_times: True if values have times; else the steps are numbered.

    Raises:
        ValueError: if a value is malformed.
    """
    if not text.strip():
        raise ValueError(f"{where} has a dimension without values; write ? for each that is missing")
    if not has_times:
        values = [_value(where, value) for value in text.split(",")]
        return np.arange(float(len(values))), np.array(values)
    pairs = [PAIR.fullmatch(pair) for pair in BETWEEN_PAIRS.split(text)]
    if None in pairs:
        raise ValueError(
            f"{where} has a value that is not written (time, value): {text.strip()!r:.60}; the header says "
            "@timeStamps true"
        )
    said = [(pair[1].strip(), pair[2]) for pair in pairs if pair is not None]
    values = [_value(where, value) for _, value in said]
    return _times(where, [time for time, _ in said]), np.array(values)


def _times(where: str, said: list[str]) -> np.ndarray:
    """Return times that were read as text, shape ``(T,)``: numbers if all are numbers, and otherwise dates.

    Args:
        where: place of the line, for errors.
        said: the T times as text.

    Raises:
        ValueError: if one is neither a number nor a date.
    """
    import pandas as pd

    try:
        return np.array([float(time) for time in said])
    except ValueError:
        try:
            return pd.to_datetime(said).to_numpy()
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{where} has a time that is neither a number nor a date: {error}") from None


def _value(where: str, text: str) -> float:
    """Return the number that a text holds; NaN if it marks a missing value.

    Args:
        where: place of the line, for errors.
        text: the text.

    Raises:
        ValueError: if it is not a finite number.
    """
    text = text.strip()
    if text.lower() in MISSING:
        return np.nan
    try:
        value = float(text)
    except ValueError:
        value = np.inf
    if not np.isfinite(value) or "_" in text:
        raise ValueError(
            f"{where} has a value that is not a finite number: {text!r:.60}; write ? for one that is missing"
        )
    return value


def _targets(rows: list[tuple[int, str]], path: Path, labels: list[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {"target": [_value(f"{path}:{number}", label) for (number, _), label in zip(rows, labels, strict=True)]}
    )
