"""A cursor of n-gram models, whose state is the last symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.counts.base import ReadHistory, prediction_of_symbols
from seqmodels.counts.ngram.events import NONE
from seqmodels.counts.ngram.interpolation import Interpolation, components
from seqmodels.counts.ngram.read_counts import ReadCounts
from seqmodels.counts.ngram.tables import Tables
from seqmodels.generation import Prediction, Source, stacked_sources
from seqmodels.observations import Observation


@dataclass(frozen=True)
class NGramState:
    """The state of an n-gram cursor for n sequences.

    Attributes:
        recent: the last k symbols of each, oldest first, including the start, ``(n, k)``.
        is_first: True if nothing has been scored yet.
    """

    recent: np.ndarray
    is_first: bool

    def contexts(self) -> Iterator[np.ndarray]:
        """Yield the last symbol of each of n sequences ``(n,)``, then the one before it, and so on without end.

        Before the start of a sequence the symbol is ``NONE``, -1.
        """
        yield from self.recent.T[::-1]
        while True:
            yield np.full(len(self.recent), NONE)


@dataclass(frozen=True)
class NGramCursor:
    """A cursor of a fitted n-gram model, which reads sequences step by step and predicts the next symbol.

    Attributes:
        tables: the fitted tables.
        observation: the model's distribution of symbols, which the predictions contain.
        device, dtype: device and precision of the predictions.
    """

    tables: Tables
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> NGramState:
        start, sources = np.full((n, 1), self.tables.size), stacked_sources(source, n)
        symbols = start if sources is None else np.concatenate([start, sources.numpy()], axis=1)
        return NGramState(self._last(symbols), True)

    def advance(self, state: NGramState, x: Tensor) -> NGramState:
        symbols = x.cpu().numpy().astype(np.int64)
        return NGramState(self._last(np.column_stack([state.recent, symbols])), False)

    def distribution(self, state: NGramState) -> Prediction:
        context_ids = [ids[:, None] for ids in self.tables.context_ids(state.contexts())]
        n, size = len(state.recent), self.tables.size
        events = np.tile(np.arange(size + self.tables.has_end), (n, 1))
        p = torch.as_tensor(self.tables.probability(context_ids, events), device=self.device)  # (n, V or V + 1)
        return prediction_of_symbols(self.observation, p.log(), state.is_first, size, self.dtype)

    def single_steps(self) -> WalkedSteps:
        """Return a scorer of one sequence, step by step, which looks up only the event that occurs and is so faster."""
        return WalkedSteps(self)

    def select(self, state: NGramState, index: Tensor) -> NGramState:
        return NGramState(state.recent[index.cpu().numpy()], state.is_first)

    def _last(self, symbols: np.ndarray) -> np.ndarray:
        return symbols[:, max(0, symbols.shape[1] - (len(self.tables.levels) - 1)) :]


class WalkedSteps:
    """A scorer of one sequence by an n-gram model, step by step, which looks up one event's probability at a time.

    Its state is a pair: the last symbols ``(k,)``, and True if nothing has been scored yet. It is faster than the
    cursor, which computes the probabilities of all events at each step.

    Args:
        cursor: the cursor whose predictions it gives.
    """

    def __init__(self, cursor: NGramCursor) -> None:
        from seqmodels.counts.ngram.compiled_walk import probability

        tables, self._n_recent = cursor.tables, len(cursor.tables.levels) - 1
        levels = tuple((level.contexts, level.grams, level.backoff, level.share) for level in tables.levels)
        base, uniform = tables.size + 1, tables.uniform
        self._has_end, self._end = tables.has_end, tables.size
        self._probability: Callable[[np.ndarray, int], float] = lambda recent, event: probability(
            levels, recent, event, base, uniform
        )

    def enter(self, state: NGramState) -> tuple[np.ndarray, bool]:
        """Return this scorer's state for the cursor's ``state`` of one sequence.

        It is a pair: the last symbols ``(k,)``, and True if nothing has been scored yet.
        """
        return np.ascontiguousarray(state.recent[0]), state.is_first

    def leave(self, at: tuple[np.ndarray, bool]) -> NGramState:
        """Return the cursor's state of one sequence for a state of this scorer.

        Args:
            at: a pair: the last symbols ``(k,)``, and True if nothing has been scored yet.
        """
        return NGramState(at[0][None], at[1])

    def advance(self, at: tuple[np.ndarray, bool], x: np.ndarray) -> tuple[tuple[np.ndarray, bool], float]:
        """Return the state after one more symbol, and the log-probability of this symbol in nats.

        Args:
            at: the state before: the last symbols ``(k,)``, and True if nothing has been scored yet.
            x: the symbol, ``()``.
        """
        recent, is_first = at
        p = self._probability(recent, int(x))
        nats = math.log(p) if p > 0 else -math.inf
        if is_first and self._has_end:  # the first step is certain not to be the end
            nats -= math.log1p(-self._probability(recent, self._end))
        n_kept = min(len(recent), self._n_recent - 1)
        after = np.empty(min(len(recent) + 1, self._n_recent), np.int64)
        if len(after):
            after[:n_kept], after[n_kept] = recent[len(recent) - n_kept :], x
        return (after, False), nats


def adaptive_log_probs(
    tables: Tables, interpolation: Interpolation, histories: Sequence[ReadHistory], counts: np.ndarray
) -> np.ndarray:
    """Return the log-probabilities of the next event after each of n histories in nats, ``(n, V)``.

    They are ``(n, V + 1)`` with the end last if ends of sequences are events. V is the number of symbols.

    Args:
        tables: fitted tables.
        interpolation: weights of trained counts and of counts in the sequence.
        histories: the sequences read.
        counts: counts of each event after the contexts of each history, by length of context, ``(n, order, V + 1)``.
    """
    recent = np.full((len(histories), len(tables.levels) - 1), NONE)
    for row, history in zip(recent, histories, strict=True):
        row[len(row) - len(history.recent) :] = history.recent
    events = np.arange(tables.size + tables.has_end)[None]
    read = [ReadCounts(c.sum(-1), (c > 0).sum(-1), c[:, : events.shape[1]]) for c in counts.transpose(1, 0, 2)]
    levels = components(tables, tables.context_ids(NGramState(recent, False).contexts()), events, read)
    log_p: np.ndarray = np.log(interpolation.probability(levels, tables.uniform))
    return log_p
