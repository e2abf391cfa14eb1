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
    """One encoded sequence in the form that models fit and score.

    The sequence has S encoded steps, which are vectors of D features or symbols.

    Attributes:
        values: encoded steps that are scored, ``(S, D)`` or ``(S,)``, with the steps of the past before them.
        source: encoded steps that the values are conditioned on; None if there are none.
        weight: weight of the sequence in the objective.
        log_det: the nats to add to the log-probability of all steps to convert it to raw units.
        n_units: number of raw units (frames, symbols or bytes).
        states: known hidden states for each step of the source and then of the values, -1 where unknown; None if all
            are unknown.
        n_past: number of first steps of ``values`` that came before the sequence. Models read them like any earlier
            steps, and scores leave them out (``without_past``). ``log_det`` and ``n_units`` do not include them.
        inputs: standardised inputs (covariates) of the S steps, ``(S, U)``; None if the model reads none.
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
    """Return results of encoded sequences without the entries for the steps of their past.

    Args:
        examples: encoded sequences, whose first ``n_past`` steps are the past.
        steps: for each, an array with one entry for each encoded step.
    """
    if not any(example.n_past for example in examples):
        return steps
    return [each[example.n_past :] for example, each in zip(examples, steps, strict=True)]


def of_each_frame(
    examples: Sequence[Example], steps: list[np.ndarray], first: np.ndarray | None = None
) -> list[np.ndarray]:
    """Convert results with one row per encoded step to one row per raw frame, for each sequence of a series.

    The rows of the past are dropped. Rows are added for the first ``n_initial`` frames, which have no difference and so
    no encoded step.

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
    """Return the number of hidden states of a raw sequence: one per frame of vectors, else one per encoded step."""
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
        """Return the number of steps at which the decoding of a target stops at the latest.

        It is the length of the longest target plus the average target length for such a source.

        Args:
            n_source: number of encoded steps of the source.

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
