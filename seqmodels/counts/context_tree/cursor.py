"""A context tree one step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from seqmodels.counts.context_tree import kernels
from seqmodels.counts.context_tree.contexts import context_hashes
from seqmodels.counts.context_tree.kernels import Records, Steps, Undo
from seqmodels.counts.context_tree.tables import FittedTree, TreeReader
from seqmodels.generation import MergedStates, Prediction, Source, source_of_each
from seqmodels.generation.histories import Histories, ReadHistory
from seqmodels.observations import Observation


def hashes_after(history: ReadHistory, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the contexts of the event after ``history``: ``(1, depth + 1)``, and how many they are, ``(1,)``."""
    at = len(history.recent)
    return context_hashes(history.recent, at, at + 1, depth)


@dataclass
class TreeLearner:
    """The records of one sequence, for a tree that is adaptive; else they stay empty."""

    reader: TreeReader
    is_adaptive: bool

    def learn(self, before: ReadHistory, event: int) -> Undo:
        """Read the event after ``before``; returns what the records that it changes were."""
        log = self.reader.undo
        log.n[0] = 0
        if self.is_adaptive:
            self.reader.read(Steps(np.array([event]), *hashes_after(before, self.reader.tree.depth)))
        n = int(log.n[0])
        return Undo(log.keys[:n].copy(), log.values[:n].copy(), log.n.copy())

    def undo(self, step: Undo) -> None:
        """Put back what the records were."""
        kernels.take_back(tuple(step), tuple(self.reader.table))

    def copy(self) -> TreeLearner:
        """With a table that is a copy."""
        table = Records(*(array.copy() for array in self.reader.table))
        undo = Undo(*(array.copy() for array in self.reader.undo))
        return TreeLearner(TreeReader(self.reader.tree, table, undo), self.is_adaptive)


TreeState = Histories[TreeLearner]


@dataclass(frozen=True)
class ContextTreeCursor:
    """A fitted tree as a chain of one-step predictions, which are on ``device`` in ``dtype``."""

    tree: FittedTree
    is_adaptive: bool
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> TreeState:
        """Before the first event of ``n`` sequences, each after its ``source``."""
        start = np.array([self.tree.size])
        rows = [start if each is None else np.append(start, each) for each in source_of_each(source, n)]
        return Histories.start([ReadHistory(row[-self.tree.depth - 1 :]) for row in rows], self._learner)

    def advance(self, state: TreeState, x: Tensor) -> TreeState:
        """After each sequence's next symbol, ``x (n,)``."""
        return state.advance(x.tolist(), self.tree.depth + 1)

    def distribution(self, state: TreeState) -> Prediction:
        """The next symbol, given that there is one, and the end."""
        rows = [
            state.with_learner(i, self._learner, partial(self._log_probs, history))
            for i, history in enumerate(state.histories)
        ]
        log_p = torch.as_tensor(np.stack(rows), device=self.device)  # (n, V or V + 1)
        size, log_end = self.tree.size, None
        if self.tree.has_end:
            is_first = torch.tensor([each.n == 0 for each in state.histories], device=self.device)
            log_end = torch.where(is_first, -torch.inf, log_p[:, size])
        log_weights = torch.zeros(len(rows), 1, dtype=self.dtype, device=self.device)
        return Prediction(self.observation, log_p[:, None, :size].to(self.dtype), log_weights, None, log_end)

    def select(self, state: TreeState, index: Tensor) -> TreeState:
        """Of sequences ``index (m,)``."""
        return state.select(index.tolist())

    def _learner(self) -> TreeLearner:
        return TreeLearner(self.tree.reader(can_undo=True), self.is_adaptive)

    def _log_probs(self, history: ReadHistory, learner: TreeLearner) -> np.ndarray:
        hashes, n_contexts = hashes_after(history, self.tree.depth)
        return self.tree.outcome_log_probs(hashes[0], int(n_contexts[0]), learner.reader.table)


def merged_states(states: list[TreeState], *, is_adaptive: bool) -> MergedStates:
    """Where nothing is learned, histories that end in the same symbols are one: their futures are the same."""
    groups: dict[tuple[object, bool], list[int]] = {}
    for i, state in enumerate(states):
        (history,) = state.histories
        same = i if is_adaptive else history.recent.tobytes()
        groups.setdefault((same, history.n == 0), []).append(i)
    return [(group, states[group[0]]) for group in groups.values()]
