"""A context tree one step at a time: its state is what was read, as a node of a tree of histories."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from seqmodels.context_tree import kernels
from seqmodels.context_tree.contexts import context_hashes
from seqmodels.context_tree.kernels import Steps, Table, Undo
from seqmodels.context_tree.tables import FittedTree, Reader
from seqmodels.generation import MergedStates, Prediction, Source, source_of_each
from seqmodels.observations import Observation

MAX_STEPS_BACK = 4  # that are undone in the place of a copy
MAX_UNDO = 256  # steps that can be undone; from further back a sequence is read again


@dataclass(frozen=True, eq=False)
class History:
    """A sequence as its last event and the history before it.

    ``recent`` are the last symbols, the start among them; ``n`` events were read.
    """

    recent: np.ndarray
    n: int = 0
    parent: History | None = None
    event: int = -1


@dataclass
class Learned:
    """What was learned from one history, until it is moved on, or back by some steps, to another."""

    reader: Reader
    at: History
    undo: deque[Undo] = field(default_factory=lambda: deque(maxlen=MAX_UNDO))  # of each of the last steps

    def steps_to(self, history: History) -> tuple[int, list[History]]:
        """How many steps to undo to come to a history on the way to ``history``; what is to be read from there on."""
        here, n_back, ahead = self.at, 0, []
        while here is not history:
            if here.n >= history.n:
                assert here.parent is not None
                here, n_back = here.parent, n_back + 1
            else:
                assert history.parent is not None
                ahead.append(history)
                history = history.parent
        return n_back, ahead[::-1]

    def move(self, n_back: int, ahead: list[History]) -> None:
        """Undo and read these steps."""
        for _ in range(n_back):
            assert self.at.parent is not None
            kernels.take_back(self.undo.pop(), self.reader.table)
            self.at = self.at.parent
        log = self.reader.undo
        for history in ahead:
            hashes, n_contexts = hashes_after(self.at, self.reader.tree.depth)
            log.n[0] = 0
            self.reader.read(Steps(np.array([history.event]), hashes, n_contexts))
            n = int(log.n[0])
            self.undo.append(Undo(log.keys[:n].copy(), log.values[:n].copy(), log.n.copy()))
            self.at = history

    def copy(self) -> Learned:
        """The same, apart from what becomes of this one."""
        table = Table(*(array.copy() for array in self.reader.table))
        undo = Undo(*(array.copy() for array in self.reader.undo))
        return Learned(Reader(self.reader.tree, table, undo), self.at, self.undo.copy())


def hashes_after(history: History, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the contexts of the event after ``history``: ``(1, depth + 1)``, and how many they are, ``(1,)``."""
    at = len(history.recent)
    return context_hashes(history.recent, at, at + 1, depth)


@dataclass(frozen=True)
class ContextTreeState:
    """The history of each sequence, and where what was learned from it can be had, if nothing has moved it on."""

    histories: list[History]
    learned: list[Learned]


@dataclass(frozen=True)
class ContextTreeCursor:
    """A fitted tree as a chain of one-step predictions, which are on ``device`` in ``dtype``."""

    tree: FittedTree
    is_adaptive: bool
    observation: Observation
    device: torch.device
    dtype: torch.dtype
    moving: Lock = field(default_factory=Lock, repr=False, compare=False)

    def start(self, source: Source = None, n: int = 1) -> ContextTreeState:
        """Before the first event of ``n`` sequences, each after its ``source``."""
        start = np.array([self.tree.size])
        rows = [start if each is None else np.append(start, each) for each in source_of_each(source, n)]
        histories = [History(row[-self.tree.depth - 1 :]) for row in rows]
        return ContextTreeState(histories, [Learned(self.tree.reader(can_undo=True), each) for each in histories])

    def advance(self, state: ContextTreeState, x: Tensor) -> ContextTreeState:
        """After each sequence's next symbol, ``x (n,)``."""
        histories = [
            History(np.append(before.recent, symbol)[-self.tree.depth - 1 :], before.n + 1, before, symbol)
            for before, symbol in zip(state.histories, x.tolist(), strict=True)
        ]
        return ContextTreeState(histories, [*state.learned])

    def distribution(self, state: ContextTreeState) -> Prediction:
        """The next symbol, given that there is one, and the end."""
        rows = [self._outcomes(state, i) for i in range(len(state.histories))]
        log_p = torch.as_tensor(np.stack(rows), device=self.device)  # (n, V or V + 1)
        size, log_end = self.tree.size, None
        if self.tree.has_end:
            is_first = torch.tensor([each.n == 0 for each in state.histories], device=self.device)
            log_end = torch.where(is_first, -torch.inf, log_p[:, size])
        log_weights = torch.zeros(len(rows), 1, dtype=self.dtype, device=self.device)
        return Prediction(self.observation, log_p[:, None, :size].to(self.dtype), log_weights, None, log_end)

    def select(self, state: ContextTreeState, index: Tensor) -> ContextTreeState:
        """Of sequences ``index (m,)``."""
        rows = index.tolist()
        return ContextTreeState([state.histories[i] for i in rows], [state.learned[i] for i in rows])

    def _outcomes(self, state: ContextTreeState, i: int) -> np.ndarray:
        history = state.histories[i]
        hashes, n_contexts = hashes_after(history, self.tree.depth)
        with self.moving:  # states share what was learned, also between threads
            if self.is_adaptive:
                self._move(state.learned, i, history)
            return self.tree.outcome_log_probs(hashes[0], int(n_contexts[0]), state.learned[i].reader.table)

    def _move(self, learned: list[Learned], i: int, history: History) -> None:
        """Bring ``learned[i]`` to ``history``; what others may ask of it again soon is left to them, and copied."""
        n_back, ahead = learned[i].steps_to(history)
        if n_back > len(learned[i].undo):
            first = history
            while first.parent is not None:
                first = first.parent
            learned[i] = Learned(self.tree.reader(can_undo=True), first)
            n_back, ahead = learned[i].steps_to(history)
        elif n_back > MAX_STEPS_BACK:
            learned[i] = learned[i].copy()
        learned[i].move(n_back, ahead)


def merged_states(states: Sequence[ContextTreeState], *, is_adaptive: bool) -> MergedStates:
    """Where nothing is learned, histories that end in the same symbols are one: their futures are the same."""
    groups: dict[tuple[object, bool], list[int]] = {}
    for i, state in enumerate(states):
        (history,) = state.histories
        same = i if is_adaptive else history.recent.tobytes()
        groups.setdefault((same, history.n == 0), []).append(i)
    return [(group, states[group[0]]) for group in groups.values()]
