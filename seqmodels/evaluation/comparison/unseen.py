"""Symbols of the test part that the training part lacks: count them, and give models an alphabet that allows them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqmodels.encodings import OpenSymbols
from seqmodels.encodings.symbols import symbol_counts, takes_alphabet_from_data
from seqmodels.evaluation.comparison.plan import DataParts
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences
from seqmodels.sequences.mapped import parts_of


def n_unseen(parts: DataParts) -> int:
    """Count the symbols of the scored test sequences that do not occur in the training part.

    The count is 0 for text and vectors, and without a training part.

    Args:
        parts: training, validation and test data.
    """
    if parts.train is None or not _are_symbols(parts.train.scored, parts.test.scored):
        return 0
    known = _symbols(parts.train.scored)
    each = (part for item in parts.test.scored for _, part in parts_of(np.asanyarray(item)))
    return sum(int((~np.isin(part, known)).sum()) for part in each)


def open_alphabets(models: Mapping[str, SequenceModel], parts: DataParts) -> list[str]:
    """Give models an open alphabet (``OpenSymbols``) if held-out sequences have symbols that the training part lacks.

    All models that take their alphabet from the data (``encoding="auto"`` or ``Symbols()``) get the same one, before
    they are fitted. A model whose alphabet is stated keeps it. Without new symbols nothing changes.

    Args:
        models: models by name, which are changed in place.
        parts: training, validation and test data.

    Returns:
        The names of the models whose alphabet of scored symbols was opened.
    """
    train = parts.train
    if train is None:
        return []
    held_out = [part for part in (parts.held_out, parts.test) if part is not None]
    scored = any(_has_unseen(train.scored, part.scored) for part in held_out)
    sources = train.y is not None and any(_has_unseen(train.X, part.X) for part in held_out)
    opened = []
    for name, model in models.items():
        reads_sources = sources and not model.ignore_source
        shares = train.y is None or model._source_shares_encoding()
        if (
            (scored or (reads_sources and shares))
            and takes_alphabet_from_data(model.encoding)
            and model._stated_encoding() is None
        ):
            model.set_params(encoding=OpenSymbols())
            opened.append(name)
        if reads_sources and not shares and takes_alphabet_from_data(model.source_encoding):
            model.set_params(source_encoding=OpenSymbols())
    return opened


def _has_unseen(train: Sequences, part: Sequences) -> bool:
    """Return True if a part of the data has symbols that the training part lacks and that should open the alphabet.

    It is False if the symbols have names (``Sequences.symbols``), because the names are the alphabet, and if no symbol
    repeats in ``train``, because then none could be known.

    Args:
        train: sequences of the training part.
        part: sequences of the other part.
    """
    if (
        not _are_symbols(train, part)
        or train.symbols is not None
        or not np.isin(symbol_counts(part.after_past())[0], _symbols(train), invert=True).any()
    ):
        return False
    return len(_symbols(train)) < sum(len(item) for item in train)


def _are_symbols(*sequences: Sequences) -> bool:
    return all(each.kind == "symbols" for each in sequences)


def _symbols(sequences: Sequences) -> np.ndarray:
    return symbol_counts(sequences)[0]
