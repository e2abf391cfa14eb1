"""``Example``: one encoded sequence, as models fit and score it."""

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
    """One encoded sequence: ``values`` are scored, ``source`` is what they are conditioned on.

    ``log_det`` (the sum over its steps) and ``n_units`` turn a sum of encoded log-probabilities into nats per raw unit.
    ``states`` are hidden states that are known, for each step of the source and then the values, -1 where not.
    The first ``n_past`` steps of ``values`` are what came before the sequence: models read them as they read all steps
    before another, and whatever scores leaves them out (``without_past``). ``log_det`` and ``n_units`` are of the rest.
    ``inputs`` ``(S, U)``, standardised, are known at each of the S steps of ``values``; None: the model reads none.
    The first ``n_initial`` frames of a series, of which no difference can be taken, are no steps of ``values``.
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
        """The sequence as one that begins where it does."""
        if not self.n_past:
            return self
        values: Any = self.values
        rest = OnDisk(values.encoding, values.item) if isinstance(values, OnDisk) else values[self.n_past :]
        inputs = None if self.inputs is None else self.inputs[self.n_past :]
        return replace(self, values=cast(np.ndarray, rest), n_past=0, inputs=inputs)


def without_past(examples: Sequence[Example], steps: list[np.ndarray]) -> list[np.ndarray]:
    """What is known of the steps of each example, less what is of its past."""
    if not any(example.n_past for example in examples):
        return steps
    return [each[example.n_past :] for example, each in zip(examples, steps, strict=True)]


def of_each_frame(
    examples: Sequence[Example], steps: list[np.ndarray], first: np.ndarray | None = None
) -> list[np.ndarray]:
    """``without_past``, with a row for each frame of a series: its first ones, which are no steps, have ``first``, or
    what the first step has.
    """
    return [
        np.concatenate([np.repeat(each[:1] if first is None else first[None], example.n_initial, axis=0), each])
        if example.n_initial
        else each
        for example, each in zip(examples, without_past(examples, steps), strict=True)
    ]


def n_states_of(encoding: Encoding, item: Item) -> int:
    """How many hidden states an item has: one for each frame of vectors, and for each encoded step of anything else."""
    return len(item) if encoding.reads == "vectors" else len(encoding.encode(item))


@dataclass(frozen=True)
class TargetLengths:
    """How long the targets of a fit were, in encoded steps: what bounds the search for another.

    Args:
        longest: steps of the longest target.
        ratio: steps of all targets over those of all sources; 0 where sources are not read.
    """

    longest: int
    ratio: float

    @classmethod
    def of(cls, examples: Sequence[Example]) -> TargetLengths:
        """Those of encoded pairs."""
        targets = [len(example.values) for example in examples]
        n_source = sum(len(example.source) for example in examples if example.source is not None)
        return cls(max(targets), sum(targets) / n_source if n_source else 0.0)

    def max_steps(self, n_source: int) -> int:
        """Most steps that are searched for a source: the longest seen, and besides what so long a source has mostly.

        >>> TargetLengths(longest=30, ratio=1.5).max_steps(10)
        45
        """
        return self.longest + math.ceil(self.ratio * n_source)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Put off the search for cycles while very many objects are made: it looks at all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
