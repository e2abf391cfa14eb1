"""A fitted model walked over held-out sequences: what it predicted at each step, and what came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source
from seqmodels.model import SequenceModel
from seqmodels.preparation import Data, Example
from seqmodels.sequences import Sequences

WARM_UP = 64  # steps of a piece cut out of a long sequence that are read before any is judged
AT_ONCE = 24  # sequences
SOURCE_LENGTHS = 4  # a walk for each: sources of one length are read together


@dataclass(frozen=True)
class Walk:
    """Sequences that a model reads side by side: ``values (n, T, ...)`` encoded, of which the first ``lengths (n,)`` steps are
    real, and those before ``warm_up`` only read.
    """

    values: Tensor
    lengths: np.ndarray
    source: Source
    warm_up: int

    @classmethod
    def of(cls, examples: list[Example], n_steps: int, warm_up: int) -> Walk:
        """The first ``n_steps`` of each, shorter ones filled up with their last step."""
        values = [example.values[:n_steps] for example in examples]
        longest = max(map(len, values))
        filled = [np.concatenate([v, np.repeat(v[-1:], longest - len(v), axis=0)]) for v in values]
        given = [example.source for example in examples if example.source is not None]
        return cls(torch.as_tensor(np.stack(filled)), np.array(list(map(len, values))), given or None, warm_up)

    @torch.inference_mode()
    def steps(self, model: SequenceModel) -> Iterator[tuple[Prediction, Tensor, np.ndarray]]:
        """At each judged step what was predicted for n sequences, what came ``(n, ...)``, and which rows are real ``(m,)``."""
        cursor = model.cursor()
        state = cursor.start(self.source, len(self.lengths))
        for t in range(self.values.shape[1]):
            if t >= self.warm_up:
                yield cursor.distribution(state), self.values[:, t], np.flatnonzero(t < self.lengths)
            state = cursor.advance(state, self.values[:, t])


def walks(model: SequenceModel, X: Any, y: Any, n_steps: int, random_state: int) -> list[Walk]:
    """About ``n_steps`` steps to judge: 24 sequences at random, or 24 pieces from all over the only one.

    A piece is read from its own start, as if nothing had come before it, and is judged after ``WARM_UP`` steps. Of pairs those
    with one of the four commonest lengths of the source take part.
    """
    data, each = Data.of(X, y), -(-n_steps // AT_ONCE)
    pieces = _pieces(data, each + WARM_UP)
    if pieces is not None:
        return [Walk.of(model._setting().examples(pieces), each + WARM_UP, WARM_UP)]
    groups = _by_source_length(model._setting().examples(_drawn(data, random_state)))
    return [Walk.of(group, each, 0) for group in groups]


def _pieces(data: Data, length: int) -> Data | None:
    """Of one long sequence; None if there are several, or there are sources, or it is short."""
    item = data.scored.items[0]
    if len(data.scored) > 1 or data.y is not None or len(item) < 2 * length:
        return None
    starts = np.linspace(0, len(item) - length, min(AT_ONCE, len(item) // length)).astype(int)
    return Data.of(Sequences([item[a : a + length] for a in starts]))


def _drawn(data: Data, random_state: int) -> Data:
    lengths = [0 if data.y is None else len(x) for x in data.X]
    common = [length for length, _ in Counter(lengths).most_common(SOURCE_LENGTHS)]
    usable = np.flatnonzero(np.isin(lengths, common))
    chosen = np.random.default_rng(random_state).permutation(usable)[:AT_ONCE]
    return data.take(np.isin(np.arange(len(lengths)), chosen))


def _by_source_length(examples: list[Example]) -> list[list[Example]]:
    groups: dict[int, list[Example]] = {}
    for example in examples:
        groups.setdefault(0 if example.source is None else len(example.source), []).append(example)
    return list(groups.values())
