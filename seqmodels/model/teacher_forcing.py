"""Predictions of a model for each step of held-out sequences given the true steps before it (teacher forcing)."""

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

WARM_UP = 64  # steps of a window of a long sequence that are read before any is evaluated
BATCH = 24  # sequences that are read together
SOURCE_LENGTHS = 4  # different lengths of sources, because each length needs a pass of its own


@dataclass(frozen=True)
class ForcedBatch:
    """A batch of held-out sequences in which each step is predicted from the true steps before it (teacher forcing).

    Attributes:
        values: encoded steps of n sequences, padded, ``(n, T, D)`` for vectors or ``(n, T)`` for symbols.
        lengths: number of real steps of each sequence, ``(n,)``.
        source: encoded source of each target; None if the model has none.
        warm_up: number of first steps that are read but not evaluated.
        n_past: number of first steps of each sequence that came before it (its past) and are not evaluated, ``(n,)``.
        inputs: standardised inputs of each step, padded, ``(n, T, U)``; None if the model reads none.
    """

    values: Tensor
    lengths: np.ndarray
    source: Source
    warm_up: int
    n_past: np.ndarray
    inputs: Tensor | None = None

    @classmethod
    def from_examples(cls, examples: list[Example], n_steps: int, warm_up: int) -> ForcedBatch:
        """Return a batch of the first ``n_steps`` steps of each encoded sequence, besides its past.

        The past are ``Example.n_past`` steps that came before the sequence. Shorter sequences are padded with their
        last step. The first ``warm_up`` steps are read but not evaluated.
        """
        values = [example.values[: example.n_past + n_steps] for example in examples]
        padded = _padded(values)
        inputs = [e.inputs[: len(v)] for e, v in zip(examples, values, strict=True) if e.inputs is not None]
        sources = [example.source for example in examples if example.source is not None]
        lengths, n_past = np.array(list(map(len, values))), np.array([example.n_past for example in examples])
        known = torch.as_tensor(_padded(inputs)) if inputs else None
        return cls(torch.as_tensor(padded), lengths, sources or None, warm_up, n_past, known)

    @torch.inference_mode()
    def steps(self, model: SequenceModel) -> Iterator[tuple[Prediction, Tensor, np.ndarray]]:
        """Yield the prediction of each evaluated step, its true values, and the sequences that have this step.

        Yields:
            The prediction for n sequences, the true values of the step, ``(n, D)`` or ``(n,)``, and the indices
            ``(m,)`` of the sequences for which the step is neither padding nor past.
        """
        inputs, time_column = self.inputs, None if model._input_scaling is None else model._input_scaling.time_column
        if inputs is not None and time_column is not None:  # NaN stands for one step after the time before
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
    """Return the arrays stacked to ``(n, T, ...)``, the shorter ones padded with their last step."""
    longest = max(map(len, values))
    return np.stack([np.concatenate([v, np.repeat(v[-1:], longest - len(v), axis=0)]) for v in values])


def forced_batches(model: SequenceModel, X: Any, y: Any, n_steps: int, random_state: int) -> list[ForcedBatch]:
    """Return batches of sequences, chosen from ``X`` (and ``y``), with about ``n_steps`` steps to evaluate.

    They come from ``BATCH`` (24) random sequences or, if there is only one long sequence, from as many windows (parts
    of equal length) spread over it. A window is read from its own start as if nothing had come before it, and is
    evaluated after ``WARM_UP`` (64) steps; of the past of a sequence, at most as many steps are read. Only pairs whose
    source has one of the ``SOURCE_LENGTHS`` (4) commonest lengths are used.

    Args:
        model: fitted model, which encodes the sequences.
        X: held-out sequences, in any form that ``fit`` accepts.
        y: targets, one for each item of ``X``, if the model is of p(y | x); else None.
        n_steps: number of steps to evaluate, summed over all batches.
        random_state: seed of the choice of sequences.
    """
    data = Data.of(X, y)
    steps_each = -(-n_steps // BATCH)
    windows = _windows(data, steps_each + WARM_UP)
    if windows is not None:
        return [ForcedBatch.from_examples(model._setting().examples(windows), steps_each + WARM_UP, WARM_UP)]
    groups = _by_source_length(model._setting().examples(_random_sequences(data, random_state)))
    return [ForcedBatch.from_examples(group, steps_each, 0) for group in groups]


def _windows(data: Data, length: int) -> Data | None:
    """Return evenly spaced parts of ``length`` steps of one long sequence.

    Return None for pairs, for several sequences, and if the sequence is short.
    """
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
