"""Reading rows of a Hugging Face ``datasets.Dataset``, or of any object with rows, without importing ``datasets``."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from seqmodels.common.parameters import checked
from seqmodels.data.kinds import as_kind
from seqmodels.sequences import Kind, Sequences


@checked
def from_rows(
    dataset: Any,
    column: str | None = None,
    *,
    label: str | None = None,
    cluster: str | None = None,
    name: str | None = None,
    kind: Kind | None = None,
) -> Sequences:
    """Return the rows of a Hugging Face ``datasets.Dataset``, or of a list of dictionaries, as sequences.

    Args:
        dataset: an object with a length, whose items by number are dictionaries.
        column: the entry that holds the sequence: a string (text), a list of strings or integers (symbols), or a list
            of lists of numbers (vectors). None means the only entry with a list, or else the only one with a string.
        label: the entry that becomes the label. Numbers of a ``ClassLabel`` become their names, also in ``column``.
        cluster: the entry that becomes the cluster.
        name: the entry that becomes the name.
        kind: ``"vectors"``, ``"symbols"`` or ``"text"`` for entries that could be read as several kinds, as in
            ``read``; None decides by the entries.

    Raises:
        ValueError: the dataset has no rows; there is no such column, or several may be meant; or it is a
            ``DatasetDict``. Pass one of its splits instead.

    >>> rows = [{"tokens": ["a", "dog"], "topic": "pets"}, {"tokens": ["a", "car"], "topic": "cars"}]
    >>> x = from_rows(rows, label="topic")
    >>> x.symbols, x.labels
    (('a', 'car', 'dog'), ['pets', 'cars'])
    """
    import pandas as pd

    if isinstance(dataset, dict):
        raise ValueError(f"the dataset has splits, {', '.join(map(str, dataset))}; pass one of them: dataset['train']")
    if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")) or not len(dataset):
        raise ValueError("the dataset has no rows by number; pass a datasets.Dataset, or a list of dictionaries")
    rows = [dataset[i] for i in range(len(dataset))]
    if not isinstance(rows[0], dict):
        raise ValueError(f"row 0 of the dataset is of type {type(rows[0]).__name__}; rows are dictionaries")
    said = [each for each in (label, cluster, name) if each is not None]
    key = _column_of(rows[0], said) if column is None else column
    missing = [each for each in [key, *said] if each not in rows[0]]
    if missing:
        raise ValueError(f"the rows have no column {missing[0]!r}; they have {', '.join(rows[0])}")
    for i, row in enumerate(rows):
        lacking = [each for each in [key, *said] if not isinstance(row, dict) or each not in row]
        if lacking:
            raise ValueError(
                f"row {i} of the dataset has no column {lacking[0]!r}, which row 0 has; give all rows the same columns"
            )
    class_names = {each: _class_names(dataset, each) for each in rows[0]}
    metadata = pd.DataFrame(
        {
            meaning: [_named(row[each], class_names[each]) for row in rows]
            for meaning, each in (("name", name), ("label", label), ("cluster", cluster))
            if each is not None
        },
        index=range(len(rows)),
    )
    items = [as_kind(row[key], kind, f"row {i}") for i, row in enumerate(rows)]
    return Sequences(items, metadata=metadata, symbols=class_names[key])


def _column_of(row: dict[str, Any], taken: list[str]) -> str:
    free = {key: value for key, value in row.items() if key not in taken}
    lists = [key for key, value in free.items() if not isinstance(value, str) and isinstance(value, Sized)]
    candidates = lists or [key for key, value in free.items() if isinstance(value, str)]
    if len(candidates) != 1:
        raise ValueError(
            f"{len(candidates)} columns may hold the sequences ({', '.join(candidates or row)}); name one: column="
        )
    return candidates[0]


def _class_names(dataset: Any, column: str) -> list[str] | None:
    """Return the names of the classes in a column of ``ClassLabel``, or of lists of them; None for any other column.

    Args:
        dataset: the dataset.
        column: name of the column.
    """
    features = getattr(dataset, "features", None)
    feature = features.get(column) if isinstance(features, dict) else None
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return None if names is None else [str(each) for each in names]


def _named(value: Any, names: list[str] | None) -> Any:
    return names[value] if names is not None and isinstance(value, int) and value >= 0 else value
