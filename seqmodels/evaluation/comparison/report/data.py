"""The test data of a comparison, as arguments of its models and as text for a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.plot.drawn_frames import Scale
from seqmodels.plot.style import time_label
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison.comparison_data import ComparisonData

SCALE_SEQUENCES, SCALE_FRAMES = 500, 10_000  # most sequences, and most frames of each, that set a colour scale


def pair_of(comparison: ComparisonData, index: np.ndarray | None = None) -> tuple[Sequences, Sequences | None] | None:
    """Return the test data of a comparison as the arguments ``(X, y)`` of its models.

    ``y`` is None for p(x). Return None instead of the pair if the scores are of p(y | x) and the sources were not kept.

    Args:
        comparison: the comparison.
        index: indices of test sequences, ``(n,)``; None means all sequences.
    """
    test = comparison.test if index is None else comparison.test.take(index)
    if not comparison.measure.conditional:
        return test, None
    if comparison.source is None:
        return None
    return comparison.source if index is None else comparison.source.take(index), test


def readable_steps(item: Item) -> list[str]:
    """Return the steps of a sequence as text for a reader: the characters of a text, or numbers."""
    return list(item) if isinstance(item, str) else [str(symbol) for symbol in item.tolist()]


def readable_nats(item: Item, steps: np.ndarray) -> np.ndarray:
    """Return the log-probability of each of T steps as a reader sees it, ``(T,)`` in nats, without the end.

    For a text those of the bytes of a character are summed.

    Args:
        item: the sequence.
        steps: log-probability of each scored unit (byte, symbol or frame), in nats.
    """
    if not isinstance(item, str):
        return np.asarray(steps[: len(item)], dtype=float)
    sizes = np.array([len(character.encode()) for character in item])
    return np.add.reduceat(np.asarray(steps[: sizes.sum()], dtype=float), np.cumsum(sizes) - sizes)


def sequence_label(sequences: Sequences, i: int) -> str:
    """Return a label of sequence ``i`` for headings: its name, and its number if several sequences have that name."""
    name = sequences.names[i]
    return f"sequence {name}" if sequences.names.count(name) == 1 else f"sequence {i} ({name})"


def times_of(sequences: Sequences, i: int, start: int, end: int) -> dict[str, Any]:
    """Return times and axis label of some frames of a sequence, as keyword arguments for plots.

    The dictionary is empty if the sequences have no times.

    Args:
        sequences: the sequences.
        i: index of the sequence.
        start, end: indices of the first frame and after the last.
    """
    if sequences.times is None:
        return {}
    times = np.asarray(sequences.times[i])[start:end]
    return {"times": times, "time_label": time_label(sequences.time_name, sequences.time_unit, times)}


def scale_of(sequences: Sequences) -> Scale:
    """Return the color scale for all images of a report, estimated from the first frames of the first sequences."""
    some = [np.asarray(item[:SCALE_FRAMES]) for item in sequences.items[:SCALE_SEQUENCES]]
    return Scale(some, sequences.features)
