"""Sequences that stand in two parts of the data at once: what was learned by heart says nothing of what is to come."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np

from seqmodels.preparation import Data
from seqmodels.sequences import Item


def n_shared(part: Data, other: Data) -> int:
    """How many sequences of ``part`` (with their targets, if there are any) also are in ``other``, exactly."""
    seen = set(_keys(other))
    return sum(key in seen for key in _keys(part))


def warn_of_overlap(train: Data, validation: Data | None, test: Data) -> int:
    """Warn where parts of the data share sequences; how many of the test part are in the training part."""
    shared = n_shared(test, train)
    _warn(shared, test, "test", "training", "their scores may be of memory")
    if validation is not None:
        _warn(
            n_shared(validation, test), validation, "validation", "test", "training stops where it suits the test part"
        )
        _warn(n_shared(validation, train), validation, "validation", "training", "training may stop too late")
    return shared


def _warn(n: int, part: Data, name: str, other: str, harm: str) -> None:
    if n:
        warnings.warn(
            f"{n} of the {len(part.X)} {name} sequences also occur in the {other} part, so {harm}; leave duplicates out of one",
            stacklevel=5,
        )


def _keys(data: Data) -> list[Any]:
    targets = [None] * len(data.X) if data.y is None else list(data.y)
    return [(_key(x), None if y is None else _key(y)) for x, y in zip(data.X, targets, strict=True)]


def _key(item: Item) -> Any:
    if isinstance(item, str):
        return item
    return item.shape, hashlib.blake2b(np.ascontiguousarray(item).data, digest_size=16).digest()
