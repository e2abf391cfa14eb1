"""An n-gram one step at a time: the state of its cursor is the last symbols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import MergedStates, Prediction, Source, stacked_sources
from seqmodels.ngram.events import NONE
from seqmodels.ngram.tables import Tables
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
