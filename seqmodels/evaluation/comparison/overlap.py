"""Count and warn of sequences that stand in two parts of the data exactly; ``near_duplicates`` finds similar ones."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.encodings.raw_data import Data
from seqmodels.sequences import Item
from seqmodels.sequences.mapped import parts_of


def warn_of_overlap(train: Data, validation: Data | None, test: Data) -> int:
    """Warn of sequences that stand in two parts of the data; return how many test sequences are in the training part.

    Args:
        train: the training part.
        validation: the validation part; None means that there is none.
        test: the test part.
    """
    n_duplicates = n_shared(test, train)
    pairs = [(n_duplicates, test, "test", "training", "their scores may show memory instead of generalisation")]
    if validation is not None:
        n_in_test = n_shared(validation, test)
        n_in_train = n_shared(validation, train)
        pairs.append((n_in_test, validation, "validation", "test", "training stops where it suits the test part"))
        pairs.append((n_in_train, validation, "validation", "training", "training may stop too late"))
    for n, part, name, other, harm in pairs:
        if n:
            warn_caller(
                f"{n} of the {len(part.X)} {name} sequences also occur in the {other} part, so {harm}; leave "
                "duplicates out of one of the two",
            )
    return n_duplicates


def n_shared(part: Data, other: Data) -> int:
    """Return how many sequences of ``part`` also occur in ``other``, exactly and with the same targets, if any.

    Args:
        part, other: two parts of the data, such as test and training part.
    """
    in_other = set(_hashable(other))
    return sum(key in in_other for key in _hashable(part))


def _hashable(data: Data) -> list[Any]:
    """Return a hashable key for each sequence with its target; equal keys mean equal data."""

    def key(item: Item | None) -> Any:
        if item is None or isinstance(item, str):
            return item
        digest = hashlib.blake2b(digest_size=16)
        for _, part in parts_of(item):
            digest.update(np.ascontiguousarray(part).data)
        return item.shape, digest.digest()

    targets = [None] * len(data.X) if data.y is None else list(data.y)
    return [(key(x), key(y)) for x, y in zip(data.X, targets, strict=True)]
