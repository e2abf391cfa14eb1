"""The predictions of a model for each step of held-out sequences, given the true steps before it (teacher forcing)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import Data
from seqmodels.generation import Prediction, Source
from seqmodels.generation.given_inputs import with_inputs
from seqmodels.model.model import SequenceModel

WARM_UP = 64  # steps of a window out of a long sequence that are read before any is evaluated
BATCH = 24  # sequences that are read together
SOURCE_LENGTHS = 4  # a pass for each: sources of one length are read together


@dataclass(frozen=True)
class ForcedBatch:
    """Held-out sequences of which a model predicts each step from the true steps before it (teacher forcing).

    Attributes:
        values: ``(n, T, ...)`` encoded steps, padded.
        lengths: ``(n,)`` real steps of each.
        source: what each target is given, if anything.
        warm_up: first steps, which are read but not evaluated.
        n_past: ``(n,)`` first steps of each that are its past, and not evaluated either.
        inputs: ``(n, T, U)`` standardised inputs of each step, padded; None: the model reads none.
    """

    values: Tensor
    lengths: np.ndarray
    source: Source
    warm_up: int
    n_past: np.ndarray
    inputs: Tensor | None = None

    @classmethod
    def from_examples(cls, examples: list[Example], n_steps: int, warm_up: int) -> ForcedBatch:
        """The first ``n_steps`` of each example after its past, shorter ones padded with their last step."""
        values = [example.values[: example.n_past + n_steps] for example in examples]
        padded = _padded(values)
        inputs = [e.inputs[: len(v)] for e, v in zip(examples, values, strict=True) if e.inputs is not None]
        sources = [example.source for example in examples if example.source is not None]
        lengths, n_past = np.array(list(map(len, values))), np.array([example.n_past for example in examples])
        known = torch.as_tensor(_padded(inputs)) if inputs else None
        return cls(torch.as_tensor(padded), lengths, sources or None, warm_up, n_past, known)

    @torch.inference_mode()
    def steps(self, model: SequenceModel) -> Iterator[tuple[Prediction, Tensor, np.ndarray]]:
        """For each evaluated step n predictions, the true steps ``(n, ...)``, and the rows that are real ``(m,)``."""
        inputs, time_column = self.inputs, None if model._input_scaling is None else model._input_scaling.time_column
        if inputs is not None and time_column is not None:  # NaN is one step after the one before
            is_padding = torch.arange(inputs.shape[1]) >= torch.as_tensor(self.lengths)[:, None]
            inputs = inputs.clone()
            inputs[is_padding, time_column] = torch.nan
        cursor = with_inputs(model.cursor(), inputs)
        state = cursor.start(self.source, len(self.lengths))
        for t in range(self.values.shape[1]):
            if t >= max(self.warm_up, self.n_past.min()):
                is_evaluated = (t >= self.n_past) & (t < self.lengths)
                yield cursor.distribution(state), self.values[:, t], np.flatnonzero(is_evaluated)
            state = cursor.advance(state, self.values[:, t])


def _padded(values: list[np.ndarray]) -> np.ndarray:
    """``(n, T, ...)``: the shorter ones are padded with their last step."""
    longest = max(map(len, values))
    return np.stack([np.concatenate([v, np.repeat(v[-1:], longest - len(v), axis=0)]) for v in values])


def forced_batches(model: SequenceModel, X: Any, y: Any, n_steps: int, random_state: int) -> list[ForcedBatch]:
    """About ``n_steps`` steps to evaluate: of 24 sequences at random, or of 24 windows spread over the only one.

    A window is read from its own start, as if nothing had come before it, and is evaluated after ``WARM_UP`` steps; a
    sequence that has a past is read from so many steps before it. Of
    pairs those with one of the four commonest lengths of the source take part.
    """
    data = Data.of(X, y)
    steps_each = -(-n_steps // BATCH)
    windows = _windows(data, steps_each + WARM_UP)
    if windows is not None:
        return [ForcedBatch.from_examples(model._setting().examples(windows), steps_each + WARM_UP, WARM_UP)]
    groups = _by_source_length(model._setting().examples(_random_sequences(data, random_state)))
    return [ForcedBatch.from_examples(group, steps_each, 0) for group in groups]


def _windows(data: Data, length: int) -> Data | None:
    """Windows of one long sequence; None if there are several sequences, or targets, or it is short."""
    item = data.scored.items[0]
    if len(data.scored) > 1 or data.y is not None or len(item) < 2 * length:
        return None
    starts = np.linspace(0, len(item) - length, min(BATCH, len(item) // length)).astype(int)
    return Data.of(data.scored.segments((0, int(a), int(a) + length) for a in starts))


def _random_sequences(data: Data, random_state: int) -> Data:
    lengths = [0 if data.y is None else len(x) for x in data.X]
    common = [length for length, _ in Counter(lengths).most_common(SOURCE_LENGTHS)]
    usable = np.flatnonzero(np.isin(lengths, common))
    chosen = np.random.default_rng(random_state).permutation(usable)[:BATCH]
    some = data.take(np.isin(np.arange(len(lengths)), chosen))
    return some.without_past() if some.y is not None else replace(some, X=some.X.with_past_of(WARM_UP))


def _by_source_length(examples: list[Example]) -> list[list[Example]]:
    groups: dict[int, list[Example]] = {}
    for example in examples:
        groups.setdefault(0 if example.source is None else len(example.source), []).append(example)
    return list(groups.values())
