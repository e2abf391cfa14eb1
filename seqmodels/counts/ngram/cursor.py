"""An n-gram one step at a time: the state of its cursor is the last symbols."""

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
    """``recent (n, k)``: the last symbols, oldest first, the start among them; ``is_first``: nothing was scored yet."""

    recent: np.ndarray
    is_first: bool

    def contexts(self) -> Iterator[np.ndarray]:
        """The last symbol of each, the one before, and so on without end; ``NONE`` beyond the start."""
        yield from self.recent.T[::-1]
        while True:
            yield np.full(len(self.recent), NONE)


@dataclass(frozen=True)
class NGramCursor:
    """Tables as a chain of one-step predictions, which are on ``device`` in ``dtype``."""

    tables: Tables
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> NGramState:
        """Before the first scored step of ``n`` sequences, each after its ``source``."""
        start, sources = np.full((n, 1), self.tables.size), stacked_sources(source, n)
        symbols = start if sources is None else np.concatenate([start, sources.numpy()], axis=1)
        return NGramState(self._last(symbols), True)

    def advance(self, state: NGramState, x: Tensor) -> NGramState:
        """The contexts of what comes after symbols ``x (n,)``."""
        symbols = x.cpu().numpy().astype(np.int64)
        return NGramState(self._last(np.column_stack([state.recent, symbols])), False)

    def distribution(self, state: NGramState) -> Prediction:
        """The next symbol, given that there is one, and the end."""
        context_ids = [ids[:, None] for ids in self.tables.context_ids(state.contexts())]
        n, size = len(state.recent), self.tables.size
        events = np.tile(np.arange(size + self.tables.has_end), (n, 1))
        p = torch.as_tensor(self.tables.probability(context_ids, events), device=self.device)  # (n, V or V + 1)
        return prediction_of_symbols(self.observation, p.log(), state.is_first, size, self.dtype)

    def single_steps(self) -> WalkedSteps:
        """One sequence, of which only the probability of each event that comes is looked up."""
        return WalkedSteps(self)

    def select(self, state: NGramState, index: Tensor) -> NGramState:
        """Of sequences ``index (m,)``."""
        return NGramState(state.recent[index.cpu().numpy()], state.is_first)

    def _last(self, symbols: np.ndarray) -> np.ndarray:
        """The last that any context can hold."""
        return symbols[:, max(0, symbols.shape[1] - (len(self.tables.levels) - 1)) :]


class WalkedSteps:
    """Single steps of an n-gram (``SingleSteps``)."""

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
        """The last symbols ``(k,)``, and whether nothing was scored yet."""
        return np.ascontiguousarray(state.recent[0]), state.is_first

    def leave(self, at: tuple[np.ndarray, bool]) -> NGramState:
        """The state of the cursor."""
        return NGramState(at[0][None], at[1])

    def advance(self, at: tuple[np.ndarray, bool], x: np.ndarray) -> tuple[tuple[np.ndarray, bool], float]:
        """After symbol ``x ()``, and its log-probability, nats."""
        recent, is_first = at
        p = self._probability(recent, int(x))
        nats = math.log(p) if p > 0 else -math.inf
        if is_first and self._has_end:  # which is no end
            nats -= math.log1p(-self._probability(recent, self._end))
        n_kept = min(len(recent), self._n_recent - 1)
        after = np.empty(min(len(recent) + 1, self._n_recent), np.int64)
        if len(after):
            after[:n_kept], after[n_kept] = recent[len(recent) - n_kept :], x
        return (after, False), nats


def adaptive_log_probs(
    tables: Tables, interpolation: Interpolation, histories: Sequence[ReadHistory], counts: np.ndarray
) -> np.ndarray:
    """``(n, V)`` or, the end last, ``(n, V + 1)`` nats after each history, with its ``counts (n, order, V + 1)``."""
    recent = np.full((len(histories), len(tables.levels) - 1), NONE)
    for row, history in zip(recent, histories, strict=True):
        row[len(row) - len(history.recent) :] = history.recent
    events = np.arange(tables.size + tables.has_end)[None]
    read = [ReadCounts(c.sum(-1), (c > 0).sum(-1), c[:, : events.shape[1]]) for c in counts.transpose(1, 0, 2)]
    levels = components(tables, tables.context_ids(NGramState(recent, False).contexts()), events, read)
    log_p: np.ndarray = np.log(interpolation.probability(levels, tables.uniform))
    return log_p
