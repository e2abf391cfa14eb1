"""Reading JSON lines, with one sequence per line, or a JSON array of sequences."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.parameters import checked
from seqmodels.data.file_format import FileFormat
from seqmodels.data.kinds import as_kind, suffix_of
from seqmodels.data.strict_json import parsed
from seqmodels.data.text import read_text
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.items import in_words

LINES = (".jsonl", ".ndjson")
OF_SEQUENCES = ("name", "label", "cluster")  # keys of metadata, which never hold the sequence


@checked
def jsonl(path: str | Path, *, columns: str | None = None, kind: Kind | None = None) -> Sequences:
    """Read sequences from JSON: strings become text, lists of strings or integers symbols, and lists of frames vectors.

    A frame is a list of numbers, in which ``null`` is a missing value. Blank lines are left out. If some lines lack a
    key of the metadata, or have a label that is ``null``, the value is missing there and a warning says so.

    Args:
        path: a file with one value per line (``.jsonl``, ``.ndjson``), or with an array of sequences or a dictionary of
            them by name; it may end in ``.gz``.
        columns: the key of the sequence, if values are dictionaries. None means the only key with a list, or else the
            only one with a string. The other keys are metadata; ``name``, ``label`` and ``cluster`` have the meaning
            that they have in ``Sequences``.
        kind: how to read values that could be of several kinds: ``"vectors"`` (a list of numbers has one feature),
            ``"symbols"`` (a string is a list of characters) or ``"text"`` (strings in a list are joined). None decides
            by the values.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not valid JSON or not a sequence, has its sequence under another key than the first line,
            repeats a key, or has an integer of thousands of digits. The message names the line.
    """
    import pandas as pd

    rows = _values(Path(path))
    if not rows:
        raise ValueError(f"{path} holds no values; there is nothing to model")
    items, metadata, keys = [], [], []
    for where, value in rows:
        is_object = isinstance(value, dict)
        keys.append(_key_of_item(where, value, columns) if is_object else None)
        if keys[-1] != keys[0]:
            first, here = (f"the key {key!r}" if key is not None else "no key" for key in (keys[0], keys[-1]))
            raise ValueError(
                f"{where} has its sequence under {here}, but {rows[0][0]} under {first}; give all lines the same keys, "
                "or name one that all have with columns="
            )
        item = value[keys[-1]] if is_object else value
        if not isinstance(item, str | list):
            raise ValueError(f"{where} is {in_words(item)}, which is not a sequence; pass a string or a list")
        items.append(as_kind(_with_missing(item, kind), kind, where))
        metadata.append({name: each for name, each in value.items() if name != keys[-1]} if is_object else {})
    _check_metadata(Path(path), [where for where, _ in rows], metadata)
    table = pd.DataFrame(metadata, index=range(len(items)))
    try:
        return Sequences(items, metadata=table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


JSON = FileFormat("JSON lines", (*LINES, ".json"), jsonl, options=("columns", "kind"))


def _check_metadata(path: Path, places: list[str], metadata: list[dict[str, Any]]) -> None:
    """Check the metadata that were read with the sequences, and warn of those that some sequences lack.

    Args:
        path: path of the file, for the warning.
        places: place of each sequence in the file.
        metadata: metadata of each sequence, by name.

    Raises:
        ValueError: a name, label or cluster is a list or a dictionary.
    """
    for where, each in zip(places, metadata, strict=True):
        for name in OF_SEQUENCES:
            if isinstance(each.get(name), list | dict):
                raise ValueError(f"{where} has a {name} that is {in_words(each[name])}; pass a string or a number")
    for name in dict.fromkeys(name for each in metadata for name in each):
        without = [
            i
            for i, each in enumerate(metadata)
            if each.get(name) is None and (name in OF_SEQUENCES or name not in each)
        ]
        if without:
            warn_caller(
                f"{path}: {len(without)} of {len(places)} have no {name!r}, the first is {places[without[0]]}; it is "
                f"missing there: add it, or leave {name!r} out of all",
            )


def _values(path: Path) -> list[tuple[str, Any]]:
    """Return each JSON value of a file, with its place as errors name it.

    Raises:
        ValueError: a line is not JSON.
    """
    text = read_text(path)
    whole, why = (None, None) if suffix_of(path) in LINES else _parsed(text, path)
    if isinstance(whole, list):
        return [(f"{path}, entry {i}", value) for i, value in enumerate(whole)]
    if isinstance(whole, dict):
        return [(f"{path}, {name!r}", {"name": name, "sequence": each}) for name, each in whole.items()]
    values = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                values.append((where, parsed(line, where)))
            except json.JSONDecodeError as error:
                fault = error
                if not values and why is not None and why.lineno > number:
                    where, fault = f"{path}:{why.lineno}", why  # the file is one value over many lines
                raise ValueError(
                    f"{where} is not JSON ({fault}); pass a value a line, or one array of sequences"
                ) from None
    return values


def _parsed(text: str, path: Path) -> tuple[Any, json.JSONDecodeError | None]:
    """Return the single JSON value of a text, and None; if the text is not one value, return None and the error."""
    try:
        return parsed(text, str(path)), None
    except json.JSONDecodeError as error:
        return None, error


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
            "with columns=, or, if a line is a step, pass a table: pandas.read_json(path, lines=True)"
        )
    return candidates[0]


def _with_missing(item: Any, kind: Kind | None) -> Any:
    """Return an item with null replaced by NaN, if it is a list of frames or, with ``kind="vectors"``, of numbers.

    Other items are returned unchanged.

    Args:
        item: the item, as it was read.
        kind: kind to read it as, or None.
    """
    if kind == "vectors" and isinstance(item, list) and any(isinstance(x, int | float) for x in item):
        return [math.nan if x is None else x for x in item]
    if isinstance(item, list) and item and isinstance(item[0], list):
        return [[math.nan if x is None else x for x in frame] if isinstance(frame, list) else frame for frame in item]
    return item
