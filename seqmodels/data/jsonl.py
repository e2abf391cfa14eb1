"""JSON lines: a sequence a line; or one JSON array of sequences."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from seqmodels.data.kinds import as_kind, check_kind, suffix_of
from seqmodels.data.text import read_text
from seqmodels.sequences import Kind, Sequences

LINES = (".jsonl", ".ndjson")
OF_SEQUENCES = ("name", "label", "cluster")  # keys that never hold the sequence


def jsonl(path: str | Path, *, columns: str | None = None, kind: Kind | None = None) -> Sequences:
    r"""Sequences of JSON: strings (text), lists of strings or integers (symbols), lists of lists of numbers (vectors).

    Blank lines are left out; ``null`` among the numbers of a frame is missing.

    Args:
        path: a file with a value a line (``.jsonl``, ``.ndjson``), or one that is an array of sequences, or a
            dictionary of them by name; ``.gz`` too.
        columns: of values that are dictionaries, the key of the sequence; None: the only one that holds a list, or
            else the only one that holds a string. The other keys are metadata; ``name``, ``label`` and ``cluster``
            are those of ``Sequences``.
        kind: how values are read that could be of several kinds: ``"vectors"`` (a list of numbers is one feature),
            ``"symbols"`` (of a string the characters), ``"text"`` (strings of a list are joined).

    Raises:
        ValueError: names the line that is no JSON, or no sequence.
    """
    import pandas as pd

    check_kind(kind)
    rows = _values(Path(path))
    if not rows:
        raise ValueError(f"{path} holds no values; there is nothing to model")
    items, metadata = [], []
    for where, value in rows:
        is_object = isinstance(value, dict)
        key = _key_of_item(where, value, columns) if is_object else None
        item = value[key] if is_object else value
        if not isinstance(item, str | list):
            raise ValueError(f"{where} is {json.dumps(item)[:50]}, which is no sequence; pass a string or a list")
        items.append(as_kind(_with_missing(item), kind, where))
        metadata.append({name: each for name, each in value.items() if name != key} if is_object else {})
    table = pd.DataFrame(metadata, index=range(len(items)))
    try:
        return Sequences(items, metadata=table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _values(path: Path) -> list[tuple[str, Any]]:
    """Each value with the place that an error names."""
    text = read_text(path)
    whole = None if suffix_of(path) in LINES else _parsed(text)
    if isinstance(whole, list):
        return [(f"{path}, entry {i}", value) for i, value in enumerate(whole)]
    if isinstance(whole, dict):
        return [(f"{path}, {name!r}", {"name": name, "sequence": each}) for name, each in whole.items()]
    values = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                values.append((f"{path}:{number}", json.loads(line)))
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"{path}:{number} is no JSON ({error}); pass a value a line, or one array of sequences"
                ) from None
    return values


def _parsed(text: str) -> Any:
    """The one value of a text; None if it is no JSON, or values line by line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _key_of_item(where: str, value: dict[str, Any], columns: str | None) -> str:
    if columns is not None:
        if columns not in value:
            raise ValueError(f"{where} has no key {columns!r}; it has {', '.join(value)}")
        return columns
    lists = [key for key, each in value.items() if isinstance(each, list)]
    texts = [key for key, each in value.items() if isinstance(each, str) and key not in OF_SEQUENCES]
    candidates = lists or texts
    if len(candidates) != 1:
        raise ValueError(
            f"{where} has {len(candidates)} keys that may hold it ({', '.join(candidates or value)}); name it "
            "with columns="
        )
    return candidates[0]


def _with_missing(item: Any) -> Any:
    """Frames in which null is NaN."""
    if isinstance(item, list) and item and isinstance(item[0], list):
        return [[math.nan if x is None else x for x in frame] if isinstance(frame, list) else frame for frame in item]
    return item
