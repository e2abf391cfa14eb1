"""A context-mixing model one step at a time: the state of its cursor is what was read; readers stand where they were.

Tables that follow a sequence are too large to be a state, so a state is the symbols themselves. A reader stands after
those of one state, mostly the newest, and goes on from there; to reach another state it undoes what the two do not have
in common, and reads the rest.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.counts.context_mixing.reader import Reader, Readers
from seqmodels.generation import Prediction, Source, source_of_each
from seqmodels.observations import Observation

READER_BYTES = 2**28  # of readers for several sequences at once
MAX_READERS = 64
MAX_PREDICTIONS = 256  # of states that were asked for last


@dataclass(frozen=True, eq=False)
class Past:
    """What was read of one sequence, as its last symbol and what was before it; told apart by identity."""

    before: Past | None
    symbol: int
    n_read: int
    source: np.ndarray | None


@dataclass(frozen=True)
class ContextMixingState:
    """What was read of each of n sequences."""

    pasts: tuple[Past, ...]


class PlacedReader:
    """A reader, and the pasts of the sequence that it reads, from its start on."""

    def __init__(self, reader: Reader, has_end: bool) -> None:
        self.reader, self.has_end = reader, has_end
        self.path: list[Past] = []

    def go_to(self, past: Past) -> None:
        """Roll back and read on until the reader has read ``past`` and nothing else."""
        unread = []
        node: Past | None = past
        while node is not None and not (node.n_read < len(self.path) and self.path[node.n_read] is node):
            unread.append(node)
            node = node.before
        if node is None:
            self._start(unread.pop())
        elif node.n_read < len(self.path) - 1:
            n_source = 0 if node.source is None else len(node.source)
            if self.reader.can_roll_back():
                self.reader.roll_back(n_source + node.n_read)
                del self.path[node.n_read + 1 :]
            else:
                unread += reversed(self.path[1 : node.n_read + 1])
                self._start(self.path[0])
        if unread:
            unread.reverse()
            symbols = np.array([each.symbol for each in unread], dtype=np.int64)
            # What is predicted is for learning alone; the end cannot have come first.
            first_end = len(symbols) if not self.has_end else 1 if len(self.path) == 1 else 0
            self.reader.read(symbols, first_end)
            self.path += unread

    def _start(self, root: Past) -> None:
        self.reader.begin()
        if root.source is not None:
            self.reader.read_source(root.source)
        self.path = [root]


class ContextMixingCursor:
    """Context mixing as a chain of one-step predictions, which are on ``device`` in ``dtype``.

    Args:
        readers: of the fitted model.
        has_end: whether the end is an event.
        observation: how a step is emitted: symbols.
        device, dtype: of predictions.
    """

    def __init__(
        self, readers: Readers, has_end: bool, observation: Observation, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.readers, self.has_end, self.observation = readers, has_end, observation
        self.device, self.dtype = device, dtype
        self._placed: list[PlacedReader] = []  # the one used last is the last
        self._predictions: dict[Past, np.ndarray] = {}
        self._lock = threading.Lock()

    def start(self, source: Source = None, n: int = 1) -> ContextMixingState:
        """Before the first scored step of ``n`` sequences, each after its ``source``."""
        if not isinstance(source, list):  # one root, so that what they have in common is read once
            return ContextMixingState((Past(None, -1, 0, source),) * n)
        return ContextMixingState(tuple(Past(None, -1, 0, each) for each in source_of_each(source, n)))

    def advance(self, state: ContextMixingState, x: Tensor) -> ContextMixingState:
        """What was read once symbols ``x (n,)`` are."""
        symbols = x.cpu().numpy().astype(np.int64).tolist()
        following: dict[tuple[int, int], Past] = {}  # rows that are alike stay so
        pasts = []
        for past, symbol in zip(state.pasts, symbols, strict=True):
            key = (id(past), symbol)
            if key not in following:
                following[key] = Past(past, symbol, past.n_read + 1, past.source)
            pasts.append(following[key])
        return ContextMixingState(tuple(pasts))

    def distribution(self, state: ContextMixingState) -> Prediction:
        """The next symbol, given that there is one, and the end."""
        with self._lock:
            log_probs = torch.as_tensor(np.stack([self._predicted(past) for past in state.pasts]), device=self.device)
        log_weights = torch.zeros(len(log_probs), 1, dtype=self.dtype, device=self.device)
        log_end = log_probs[:, -1] if self.has_end else None
        return Prediction(self.observation, log_probs[:, None, :-1].to(self.dtype), log_weights, None, log_end)

    def select(self, state: ContextMixingState, index: Tensor) -> ContextMixingState:
        """Of sequences ``index (m,)``."""
        return ContextMixingState(tuple(state.pasts[i] for i in index.cpu().tolist()))

    def _predicted(self, past: Past) -> np.ndarray:
        """``(V + 1,)`` log-probabilities of what comes after a past."""
        if past not in self._predictions:
            placed = self._reader_near(past)
            placed.go_to(past)
            if len(self._predictions) >= MAX_PREDICTIONS:
                self._predictions.clear()
            self._predictions[past] = placed.reader.next_log_probs(self.has_end and past.n_read > 0)
        return self._predictions[past]

    def _reader_near(self, past: Past) -> PlacedReader:
        """One that stands there or just before; else a new one while there is memory, else the one not used longest."""
        near = next((p for p in reversed(self._placed) if p.path and p.path[-1] in (past, past.before)), None)
        if near is None:
            fitted = self.readers.fitted
            n_bytes = fitted.counters.nbytes + fitted.floats.nbytes + fitted.integers.nbytes
            if len(self._placed) < max(1, min(MAX_READERS, READER_BYTES // n_bytes)):
                near = PlacedReader(self.readers.take(), self.has_end)
            else:
                near = self._placed.pop(0)
        else:
            self._placed.remove(near)
        self._placed.append(near)
        return near
