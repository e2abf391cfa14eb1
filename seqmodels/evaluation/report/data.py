"""The test data of a comparison as its models take them, and as a reader sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.encodings.text import Text
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

ENOUGH, LONGEST = 500, 10_000  # sequences, and frames of each, that set a colour scale


def pair_of(comparison: Comparison, index: np.ndarray | None = None) -> tuple[Sequences, Sequences | None] | None:
    """``(X, y)`` of the test sequences at ``index`` (None: all), y None for p(x); None if sources were not kept."""
    test = comparison.test if index is None else comparison.test.take(index)
    if not comparison.measure.conditional:
        return test, None
    if comparison.source is None:
        return None
    return comparison.source if index is None else comparison.source.take(index), test


def pieces(item: Item) -> list[str]:
    """What a reader sees of each step: a text's characters, or numbers."""
    return list(item) if isinstance(item, str) else [str(symbol) for symbol in item.tolist()]


def by_piece(item: Item, steps: np.ndarray) -> np.ndarray:
    """Nats of each piece: of a text's bytes summed over characters; the end, if it is scored, is left out."""
    if not isinstance(item, str):
        return np.asarray(steps[: len(item)], dtype=float)
    sizes = np.array([len(character.encode()) for character in item])
    return np.add.reduceat(np.asarray(steps[: sizes.sum()], dtype=float), np.cumsum(sizes) - sizes)


def spelled(encoding: Encoding, item: Item) -> list[str]:
    """What a reader sees of each encoded step; a byte inside a longer character shows as a dot, its last as the character."""
    if not isinstance(encoding, Text):
        return [str(value) for value in np.asarray(item).tolist()]
    spelling, shown, waiting = encoding.spelling(), [], b""
    for step in encoding.encode(item).tolist():
        waiting += spelling[step]
        text = waiting.decode(errors="ignore")
        shown.append(text or "·")
        waiting = b"" if text else waiting
    return shown


def named(sequences: Sequences, i: int) -> str:
    """Of one sequence, in headings: its name, and its number where several have that name."""
    name = sequences.names[i]
    return f"sequence {name}" if sequences.names.count(name) == 1 else f"sequence {i} ({name})"


def scale_of(sequences: Sequences) -> Any:
    """The colour scale that all images of a page share."""
    from seqmodels.evaluation.plots.frames import Scale  # lazily: matplotlib is slow to import

    return Scale([np.asarray(item[:LONGEST]) for item in sequences.items[:ENOUGH]])
