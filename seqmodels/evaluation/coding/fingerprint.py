"""SHA-256 fingerprints of a fitted model and of sequences, which tell a decoder whether it has the right ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from seqmodels.common import storage
from seqmodels.encodings import Encoding
from seqmodels.model import SequenceModel
from seqmodels.sequences import Item

# Hyperparameters that no coded figure depends on, because coding is in float64 on the CPU.
OF_NO_FIGURE = ("device", "dtype", "verbose")


def digest_of_model(model: SequenceModel) -> bytes:
    """Return a SHA-256 digest of everything that a fitted model's log-probabilities and predictions depend on.

    It covers parameters, encodings and hyperparameters, and is the same for the model that ``load`` reads from its
    file.
    """
    digest = hashlib.sha256()
    _update(digest, _facts(model))
    return digest.digest()


def digest_of_items(items: Iterable[Item]) -> bytes:
    """Return a SHA-256 digest of raw sequences of text, integers or names of symbols."""
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
    """Add a value to a SHA-256 digest, preceded by its type and length, so that no two values give the same bytes.

    Values that a saved file does not distinguish have one digest: tuples and lists, NumPy scalars and Python numbers.

    Args:
        digest: the ``hashlib`` object, which is updated in place.
        value: a number, text, None, array, or a list, tuple or mapping of these.
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
