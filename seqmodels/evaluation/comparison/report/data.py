"""The test data of a comparison: as arguments of its models, and as a reader sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.plot.drawn_frames import Scale
from seqmodels.plot.style import time_label
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison.outcome import Outcome

SCALE_SEQUENCES, SCALE_FRAMES = 500, 10_000  # at most so many sequences, and frames of each, set a colour scale


def pair_of(comparison: Outcome, index: np.ndarray | None = None) -> tuple[Sequences, Sequences | None] | None:
    """``(X, y)`` of the test sequences at ``index`` (None: all), y None for p(x); None if sources were not kept."""
    test = comparison.test if index is None else comparison.test.take(index)
    if not comparison.measure.conditional:
        return test, None
    if comparison.source is None:
        return None
    return comparison.source if index is None else comparison.source.take(index), test


def readable_steps(item: Item) -> list[str]:
    """The steps of a sequence as a reader sees them: a text's characters, or numbers."""
    return list(item) if isinstance(item, str) else [str(symbol) for symbol in item.tolist()]


def readable_nats(item: Item, steps: np.ndarray) -> np.ndarray:
    """Nats of each of ``readable_steps``: a text's bytes summed over characters; without an end that is scored."""
    if not isinstance(item, str):
        return np.asarray(steps[: len(item)], dtype=float)
    sizes = np.array([len(character.encode()) for character in item])
    return np.add.reduceat(np.asarray(steps[: sizes.sum()], dtype=float), np.cumsum(sizes) - sizes)


def sequence_label(sequences: Sequences, i: int) -> str:
    """One sequence in headings: its name, and its number where several have that name."""
    name = sequences.names[i]
    return f"sequence {name}" if sequences.names.count(name) == 1 else f"sequence {i} ({name})"


def times_of(sequences: Sequences, i: int, start: int, end: int) -> dict[str, Any]:
    """The times of some frames of one sequence, and what they are, as the pictures of frames take them."""
    if sequences.times is None:
        return {}
    times = np.asarray(sequences.times[i])[start:end]
    return {"times": times, "time_label": time_label(sequences.time_name, sequences.time_unit, times)}


def scale_of(sequences: Sequences) -> Scale:
    """The colour scale that all images of a page share."""
    some = [np.asarray(item[:SCALE_FRAMES]) for item in sequences.items[:SCALE_SEQUENCES]]
    return Scale(some, sequences.features)
