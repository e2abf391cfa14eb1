"""An n-gram one step at a time: the state of its cursor is the last symbols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from seqmodels.counts.ngram.events import NONE
from seqmodels.counts.ngram.interpolation import Interpolation, components
from seqmodels.counts.ngram.read_counts import CountLearner, ReadCounts
from seqmodels.counts.ngram.tables import Tables
from seqmodels.generation import MergedStates, Prediction, Source, stacked_sources
from seqmodels.generation.histories import Histories, ReadHistory
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


def merged_states(states: list[NGramState]) -> MergedStates:
    """Histories that end in the same symbols are one: their futures are the same."""
    groups: dict[tuple[bytes, bool], list[int]] = {}
    for i, state in enumerate(states):
        groups.setdefault((state.recent.tobytes(), state.is_first), []).append(i)
    return [(group, states[group[0]]) for group in groups.values()]


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
        log_weights = torch.zeros(n, 1, dtype=self.dtype, device=self.device)
        log_end = None
        if self.tables.has_end:
            log_end = torch.full_like(p[:, -1], -torch.inf) if state.is_first else p[:, -1].log()
        return Prediction(self.observation, p[:, None, :size].log().to(self.dtype), log_weights, None, log_end)

    def select(self, state: NGramState, index: Tensor) -> NGramState:
        """Of sequences ``index (m,)``."""
        return NGramState(state.recent[index.cpu().numpy()], state.is_first)

    def _last(self, symbols: np.ndarray) -> np.ndarray:
        """The last that any context can hold."""
        return symbols[:, max(0, symbols.shape[1] - (len(self.tables.levels) - 1)) :]


@dataclass(frozen=True)
class AdaptiveNGramCursor:
    """Tables and the counts of each sequence so far as a chain of one-step predictions."""

    tables: Tables
    interpolation: Interpolation
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> Histories[CountLearner]:
        """Before the first scored step of ``n`` sequences, each after its ``source``."""
        start, sources = np.full((n, 1), self.tables.size), stacked_sources(source, n)
        symbols = start if sources is None else np.concatenate([start, sources.numpy()], axis=1)
        n_recent = self._n_recent()
        return Histories.start([ReadHistory(row[max(0, len(row) - n_recent) :]) for row in symbols], self._learner)

    def advance(self, state: Histories[CountLearner], x: Tensor) -> Histories[CountLearner]:
        """After each sequence's next symbol, ``x (n,)``."""
        return state.advance(x.tolist(), self._n_recent())

    def distribution(self, state: Histories[CountLearner]) -> Prediction:
        """The next symbol, given that there is one, and the end."""
        tables, histories = self.tables, state.histories
        n, size = len(histories), tables.size
        events = np.arange(size + tables.has_end)[None]
        counts = np.stack(
            [
                state.with_learner(i, self._learner, partial(CountLearner.after, history=each, base=size + 1))
                for i, each in enumerate(histories)
            ]
        )  # (n, order, V + 1)
        read = [ReadCounts(c.sum(-1), (c > 0).sum(-1), c[:, : events.shape[1]]) for c in counts.transpose(1, 0, 2)]
        contexts = NGramState(np.stack([each.recent for each in histories]), False).contexts()
        levels = components(tables, tables.context_ids(contexts), events, read)
        p = torch.as_tensor(self.interpolation.probability(levels, 1 / events.shape[1]), device=self.device)
        log_weights = torch.zeros(n, 1, dtype=self.dtype, device=self.device)
        log_end = None
        if tables.has_end:
            is_first = torch.tensor([each.n == 0 for each in histories], device=self.device)
            log_end = torch.where(is_first, -torch.inf, p[:, size].log())
        return Prediction(self.observation, p[:, None, :size].log().to(self.dtype), log_weights, None, log_end)

    def select(self, state: Histories[CountLearner], index: Tensor) -> Histories[CountLearner]:
        """Of sequences ``index (m,)``."""
        return state.select(index.tolist())

    def _learner(self) -> CountLearner:
        return CountLearner(len(self.tables.levels))

    def _n_recent(self) -> int:
        return len(self.tables.levels) - 1
