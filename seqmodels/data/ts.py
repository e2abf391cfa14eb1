"""``.ts``: the format of the UCR and UEA time series archives, as aeon and sktime read it (Bagnall et al. 2018)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.data.text import read_text
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    import pandas as pd

PAIR = re.compile(r"\(([^,()]*),([^,()]*)\)")  # (time, value)


def ts(path: str | Path) -> Sequences:
    """The series of a ``.ts`` file (``.gz`` too), as vectors ``(T, D)``; their classes are labels, as strings.

    A line holds a series: its dimensions separated by ``:``, their values by ``,``, ``?`` where one is missing; then
    the class (``@classLabel``), or the number (``@targetLabel``), which becomes the column ``target`` of the metadata.
    Steps at the end where all dimensions are missing, as padding is, are left out. With ``@timeStamps true`` a value
    is ``(time, value)``, and all dimensions have one time a step.

    Raises:
        ValueError: a file without ``@data``; a line that does not fit the header, by its number; dimensions of one
            series that have different lengths.
    """
    path = Path(path)
    header, rows = _parts(path, read_text(path))
    has_class, has_target, has_times = (_is_set(header, name) for name in ("classlabel", "targetlabel", "timestamps"))
    items, times, labels = [], [], []
    for number, line in rows:
        where = f"{path}:{number}"
        body, _, label = line.rpartition(":") if has_class or has_target else (line, "", "")
        between = r"(?<=\))\s*:\s*(?=\()" if has_times else ":"  # times have colons, too
        series = [_dimension(where, text, has_times) for text in re.split(between, body) if text.strip()]
        lengths = [len(values) for _, values in series]
        if not series or len(set(lengths)) > 1:
            raise ValueError(f"{where} has dimensions of lengths {lengths}; one series has one length in all")
        frames = np.stack([values for _, values in series], axis=1)  # (T, D)
        seen = np.flatnonzero(~np.isnan(frames).all(axis=1))
        if not len(seen):
            raise ValueError(f"{where} has no value that is not missing; leave the series out")
        end = int(seen[-1]) + 1
        items.append(frames[:end])
        times.append(series[0][0][:end])
        labels.append(label.strip())
    try:
        return Sequences(
            items,
            labels=labels if has_class else None,
            metadata=_targets(path, labels) if has_target and not has_class else None,
            times=times if has_times else None,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parts(path: Path, text: str) -> tuple[dict[str, str], list[tuple[int, str]]]:
    """The header by its keys, in lower case, and the lines of the data by their numbers."""
    header: dict[str, str] = {}
    lines = [(i, line.strip()) for i, line in enumerate(text.split("\n"), start=1)]
    kept = [(i, line) for i, line in lines if line and not line.startswith("#")]
    for k, (number, line) in enumerate(kept):
        if not line.startswith("@"):
            raise ValueError(f"{path}:{number} comes before @data and does not begin with @; it is no .ts file")
        key, _, value = line[1:].partition(" ")
        if key.lower() == "data":
            if k + 1 == len(kept):
                raise ValueError(f"{path} has no series after @data")
            return header, kept[k + 1 :]
        header[key.lower()] = value.strip()
    raise ValueError(f"{path} has no line @data; it is no .ts file")


def _is_set(header: dict[str, str], name: str) -> bool:
    return header.get(name, "false").lower().split()[:1] == ["true"]


def _dimension(where: str, text: str, has_times: bool) -> tuple[np.ndarray, np.ndarray]:
    """``(T,)`` times, or numbers of the steps, and ``(T,)`` values."""
    import pandas as pd

    pairs = PAIR.findall(text) if has_times else [(str(t), value) for t, value in enumerate(text.split(","))]
    try:
        values = np.array([np.nan if v.strip() in ("?", "NaN", "nan") else float(v) for _, v in pairs])
        try:
            return np.array([float(t) for t, _ in pairs]), values
        except ValueError:
            return pd.to_datetime([t.strip() for t, _ in pairs]).to_numpy(), values
    except ValueError as error:
        raise ValueError(f"{where} has a value that is no number ({error}); write ? for one that is missing") from None


def _targets(path: Path, labels: list[str]) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.DataFrame({"target": [float(label) for label in labels]})
    except ValueError as error:
        raise ValueError(f"{path} has a target that is no number: {error}") from None
