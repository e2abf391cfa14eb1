"""Encoded sequences in the form in which models fit and score them (``Example``)."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from seqmodels.encodings.on_disk import OnDisk

if TYPE_CHECKING:
    from seqmodels.encodings.base import Encoding
    from seqmodels.sequences import Item


@dataclass(slots=True)  # not frozen: that takes four times as long, and there may be millions
class Example:
    """One encoded sequence, as models fit and score it.

    Attributes:
        values: encoded steps that are scored, ``(S, D)`` or ``(S,)``, with the steps of the past before them.
        source: encoded steps that the values are conditioned on; None if there are none.
        weight: weight of the sequence in the objective.
        log_det: log-determinant summed over the steps, in nats, which converts log-probabilities to raw units.
        n_units: number of raw units.
        states: known hidden states for each step of the source and then of the values, -1 where unknown; None if all
            are unknown.
        n_past: number of first steps of ``values`` that came before the sequence. Models read them like any earlier
            steps, and scores leave them out (``without_past``). ``log_det`` and ``n_units`` do not include them.
        inputs: standardised inputs of the S steps, ``(S, U)``; None if the model reads none.
        n_initial: number of first frames of a series that have no difference and are not among ``values``.
    """

    values: np.ndarray
    source: np.ndarray | None = None
    weight: float = 1.0
    log_det: float = 0.0
    n_units: int = 0
    states: np.ndarray | None = None
    n_past: int = 0
    inputs: np.ndarray | None = None
    n_initial: int = 0

    def alone(self) -> Example:
        if not self.n_past:
            return self
        values: Any = self.values
        rest = OnDisk(values.encoding, values.item) if isinstance(values, OnDisk) else values[self.n_past :]
        inputs = None if self.inputs is None else self.inputs[self.n_past :]
        return replace(self, values=cast(np.ndarray, rest), n_past=0, inputs=inputs)


def without_past(examples: Sequence[Example], steps: list[np.ndarray]) -> list[np.ndarray]:
    """Return an array for each example without the entries of its past, the first ``n_past``.

    ``steps`` are arrays with one entry for each encoded step of each example.
    """
    if not any(example.n_past for example in examples):
        return steps
    return [each[example.n_past :] for example, each in zip(examples, steps, strict=True)]


def of_each_frame(
    examples: Sequence[Example], steps: list[np.ndarray], first: np.ndarray | None = None
) -> list[np.ndarray]:
    """Return arrays with one row per raw frame of a series, given ``steps`` with one row per encoded step.

    The rows of the past are dropped. Rows are added for the first ``n_initial`` frames, which have no difference.

    Args:
        examples: encoded sequences.
        steps: arrays with one row for each encoded step of each example, including its past.
        first: row for the frames without a difference; None repeats the row of the first step.
    """
    return [
        np.concatenate([np.repeat(each[:1] if first is None else first[None], example.n_initial, axis=0), each])
        if example.n_initial
        else each
        for example, each in zip(examples, without_past(examples, steps), strict=True)
    ]


def n_states_of(encoding: Encoding, item: Item) -> int:
    """Return the number of hidden states of an item: one for each frame, or each encoded step of others."""
    return len(item) if encoding.reads == "vectors" else len(encoding.encode(item))


@dataclass(frozen=True)
class TargetLengths:
    """The lengths of the targets in a fit, in encoded steps, which bound the length of a decoded target.

    Args:
        longest: number of steps of the longest target.
        ratio: number of steps of all targets divided by that of all sources; 0 if sources are not read.
    """

    longest: int
    ratio: float

    @classmethod
    def of(cls, examples: Sequence[Example]) -> TargetLengths:
        targets = [len(example.values) for example in examples]
        n_source = sum(len(example.source) for example in examples if example.source is not None)
        return cls(max(targets), sum(targets) / n_source if n_source else 0.0)

    def max_steps(self, n_source: int) -> int:
        """Return the largest number of steps at which decoding stops, for a source with ``n_source`` encoded steps.

        It is the length of the longest target plus the average target length for such a source.

        >>> TargetLengths(longest=30, ratio=1.5).max_steps(10)
        45
        """
        return self.longest + math.ceil(self.ratio * n_source)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch off the garbage collector's search for cycles within a ``with`` block.

    It is used where very many objects are made, because the collector would scan all of them again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
