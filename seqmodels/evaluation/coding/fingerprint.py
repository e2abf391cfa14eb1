"""SHA-256 of a fitted model, and of sequences: what was coded, and by what."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from seqmodels.common import storage
from seqmodels.encodings import Encoding
from seqmodels.model import SequenceModel
from seqmodels.sequences import Item

# Hyperparameters that no coded figure depends on: coding is in float64, on the CPU.
OF_NO_FIGURE = ("device", "dtype", "verbose")


def digest_of_model(model: SequenceModel) -> bytes:
    """Of all that its figures depend on: what it has learned, its encodings, and its hyperparameters.

    The same for the model that ``load`` reads from its file.
    """
    digest = hashlib.sha256()
    _update(digest, _facts(model))
    return digest.digest()


def digest_of_items(items: Iterable[Item]) -> bytes:
    """Of raw sequences of text, integers or names."""
    digest = hashlib.sha256()
    for item in items:
        values = item if isinstance(item, str) else np.asarray(item)
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            values = values.astype("<i8")
        _update(digest, values)
    return digest.digest()


def _facts(model: SequenceModel) -> dict[str, Any]:
    described = storage.describe(model, by_name=True)
    described["params"] = {name: x for name, x in described["params"].items() if name not in OF_NO_FIGURE}
    source_encoding = model._setting().source_encoding
    return {
        "model": described,
        "encoding": _of_encoding(model.encoding_),
        "source_encoding": None if source_encoding is None else _of_encoding(source_encoding),
        "observation": storage.describe(model.observation_, by_name=True),
        "measure": model.measure_.to_json(),
        "state": model._state(),
        "members": {name: _facts(member) for name, member in model._members().items()},
    }


def _of_encoding(encoding: Encoding) -> dict[str, Any]:
    return {**storage.describe(encoding, by_name=True), "state": encoding.state()}


def _update(digest: Any, value: Any) -> None:
    """Add a value, its type and length before it, so that no two values give the same bytes; as a file would have it.

    A file has no tuples, and plain numbers for those of numpy.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        digest.update(f"mapping {len(value)} ".encode())
        for name in sorted(value, key=str):
            _update(digest, str(name))
            _update(digest, value[name])
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)} ".encode())
        for each in value:
            _update(digest, each)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "O":
        _update(digest, value.tolist())
    elif isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype.str} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif isinstance(value, str):
        raw = value.encode(errors="surrogatepass")
        digest.update(f"text {len(raw)} ".encode())
        digest.update(raw)
    else:
        digest.update(f"{type(value).__name__} {value!r} ".encode())
