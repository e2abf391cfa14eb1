"""The fitted tables, and how a sequence is read with them: predicted step by step, and learned from on the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between
from seqmodels.common.compiled import warn_if_slow
from seqmodels.counts.base import EventRow, ReadHistory, StepLearner
from seqmodels.counts.context_tree import kernels
from seqmodels.counts.context_tree.contexts import context_hashes
from seqmodels.counts.context_tree.decomposition import DecisionPaths, Decomposition
from seqmodels.counts.context_tree.kernels import Buffers, Records, Rule, Steps, Undo

SMALLEST = 64  # places of a table
STEPS_AT_ONCE = 65_536  # whose contexts are in memory together


def empty_table(n_places: int) -> Records:
    """With so many places, a power of two."""
    return Records(
        np.full(n_places, kernels.EMPTY, np.int64), np.zeros((n_places, 3), np.float32), np.zeros(1, np.int64)
    )


def table_of(keys: np.ndarray, values: np.ndarray) -> Records:
    """Records as a table, with room for as few as may be."""
    n_places = SMALLEST
    while n_places * kernels.MAX_LOAD < len(keys):
        n_places *= 2
    table = empty_table(n_places)
    kernels.insert_all(keys, values, tuple(table))
    return table


@dataclass(eq=False)
class TreeLearner(StepLearner):
    """What one sequence, or all of a fit, has taught so far; ``table`` grows with it.

    Args:
        tree: what was fitted.
        table: records that were changed since.
        changes: what records were before the last event, where there is room for it.
    """

    tree: FittedTree
    table: Records
    changes: Undo

    def read(self, steps: Steps, *, first_cannot_be: int = -1) -> np.ndarray:
        """``(T,)`` the log-probability of each event, before it is learned from."""
        tree, log_probs, t = self.tree, np.zeros(len(steps.outcomes)), 0
        while True:
            t = kernels.read_steps(
                t,
                tuple(steps),
                self.is_adaptive,
                first_cannot_be,
                tuple(tree.paths),
                tree.node_hashes,
                tuple(tree.fitted),
                tuple(self.table),
                tree.gates,
                tuple(tree.rule),
                tuple(tree.buffers()),
                tuple(self.changes),
                log_probs,
            )
            if t == len(log_probs):
                return log_probs
            self._grow()

    def _grow(self) -> None:
        larger = empty_table(2 * len(self.table.keys))
        kernels.insert_all(self.table.keys, self.table.values, tuple(larger))
        self.table = larger

    def read_row(self, row: EventRow) -> np.ndarray:
        """As ``read``, of all events of a row."""
        parts = []
        for t in range(0, len(row.events), STEPS_AT_ONCE):
            some = row.events[t : t + STEPS_AT_ONCE]
            begin = row.begin + t
            steps = Steps(some, *context_hashes(row.symbols, begin, begin + len(some), self.tree.depth))
            parts.append(self.read(steps, first_cannot_be=self.tree.size if row.has_end and t == 0 else -1))
        return np.concatenate(parts)

    def read_all(self, row: EventRow) -> np.ndarray:
        """``(T, V)``, or with ends ``(T, V + 1)``, of all events at each step."""
        n = len(row.events)
        hashes, n_contexts = context_hashes(row.symbols, row.begin, row.begin + n, self.tree.depth)
        log_probs = np.zeros((n, self.tree.size + self.tree.has_end))
        for t in range(n):
            log_probs[t] = self.tree.outcome_log_probs(hashes[t], int(n_contexts[t]), self.table)
            if self.is_adaptive:
                self.read(Steps(row.events[t : t + 1], hashes[t : t + 1], n_contexts[t : t + 1]))
        if self.tree.has_end:  # the conditional of the first event given that it is not the end
            log_probs[0] -= np.log1p(-np.exp(log_probs[0, -1]))
            log_probs[0, -1] = -np.inf
        return log_probs

    # -- one event at a time -------------------------------------------------------------------------------

    def clear(self) -> None:
        self.table = self.tree.smallest_table()

    def learn_event(self, before: ReadHistory, event: int) -> Undo:
        """Returns what the records that it changes were."""
        self.changes.n[0] = 0
        self.read(Steps(np.array([event]), *self._hashes_after(before)))
        keys, values, n = self.changes
        return Undo(keys[: n[0]].copy(), values[: n[0]].copy(), n.copy())

    def undo_event(self, step: Undo) -> None:
        kernels.take_back(tuple(step), tuple(self.table))

    def copy(self) -> TreeLearner:
        other = self.tree.learner(is_adaptive=self.is_adaptive, can_undo=True)
        other.table = Records(*(array.copy() for array in self.table))
        return other

    def predict(self, history: ReadHistory) -> np.ndarray:
        hashes, n_contexts = self._hashes_after(history)
        return self.tree.outcome_log_probs(hashes[0], int(n_contexts[0]), self.table)

    def _hashes_after(self, history: ReadHistory) -> tuple[np.ndarray, np.ndarray]:
        """Of the contexts of the event after ``history``: ``(1, depth + 1)``, and how many they are, ``(1,)``."""
        at = len(history.recent)
        return context_hashes(history.recent, at, at + 1, self.tree.depth)


@dataclass(frozen=True)
class FittedTree:
    """Records of all contexts, and the gates: ``(depth + 1, N_CLASSES, N_CLASSES)`` log-odds that were learned.

    Args:
        size: V, of the alphabet; V is also the start symbol of contexts, and the end as an outcome.
        has_end: whether ends are events.
        depth: symbols of the longest context.
        rule: constants of estimates and updates.
        decomposition: of an outcome into binary decisions.
        gates: one for each depth, and for the classes of a context and of the one a symbol longer.
        fitted: the records.
    """

    size: int
    has_end: bool
    depth: int
    rule: Rule
    decomposition: Decomposition
    gates: np.ndarray
    fitted: Records

    @classmethod
    def fit(cls, rows: list[EventRow], size: int, has_end: bool, depth: int, rule: Rule) -> tuple[Self, np.ndarray]:
        """Read training sequences one after the other, learning all the time; also the log-probability of each.

        Args:
            rows: the sequences.
            size, has_end, depth, rule: see the class.
        """
        warn_if_slow("ContextTree.fit", sum(len(row.events) for row in rows))
        n_outcomes = size + has_end
        counts = np.zeros(n_outcomes)
        for row in rows:
            counts += np.bincount(row.events, minlength=n_outcomes)
        gates = np.zeros((depth + 1, kernels.N_CLASSES, kernels.N_CLASSES))
        tree = cls(size, has_end, depth, rule, Decomposition.of_counts(counts), gates, empty_table(1))
        learner = tree.learner(is_adaptive=True)
        log_prob = [learner.read_row(row).sum() for row in rows]
        is_record = learner.table.keys != kernels.EMPTY
        scoring = rule._replace(gate_rate=0.0)
        fitted = table_of(learner.table.keys[is_record], learner.table.values[is_record])
        return cls(size, has_end, depth, scoring, tree.decomposition, gates, fitted), np.array(log_prob)

    @property
    def n_records(self) -> int:
        """Pairs of a context and a decision that were seen."""
        return int(self.fitted.n_used[0])

    def __post_init__(self) -> None:
        """Derive what scoring looks up, so that scoring changes nothing, not even by keeping it."""
        _ = self.paths, self.node_hashes, self.max_records_of_step

    @property
    def paths(self) -> DecisionPaths:
        """The binary decisions of each outcome."""
        return self.decomposition.paths

    @cached_property
    def node_hashes(self) -> np.ndarray:
        """What tells decisions apart in the keys of records."""
        return self.decomposition.node_hashes()

    @cached_property
    def max_records_of_step(self) -> int:
        """How many records one event can touch."""
        return int(np.diff(self.paths.first).max()) * (self.depth + 1)

    def smallest_table(self) -> Records:
        """Of a sequence that nothing was learned from; there is room for one event."""
        n_places = SMALLEST
        while n_places * kernels.MAX_LOAD < self.max_records_of_step:
            n_places *= 2
        return empty_table(n_places)

    def buffers(self) -> Buffers:
        """What a kernel writes on, of one thread."""
        n = self.depth + 1
        return Buffers(np.zeros((n, 3)), np.zeros(n, np.int64), np.zeros(n), np.zeros(n), np.zeros(n))

    def learner(self, *, is_adaptive: bool, can_undo: bool = False) -> TreeLearner:
        """At the start of a sequence."""
        n = self.max_records_of_step if can_undo else 0
        changes = Undo(np.zeros(n, np.int64), np.zeros((n, 3), np.float32), np.zeros(1, np.int64))
        return TreeLearner(is_adaptive, self, self.smallest_table(), changes)

    def outcome_log_probs(self, hashes: np.ndarray, n_contexts: int, read: Records) -> np.ndarray:
        """``(V,)`` or, the end last, ``(V + 1,)`` of the next event, after what ``read`` was learned from."""
        log_probs = np.zeros(self.size + self.has_end)
        kernels.outcome_log_probs(
            hashes,
            n_contexts,
            self.decomposition.children,
            self.node_hashes,
            tuple(self.fitted),
            tuple(read),
            self.gates,
            tuple(self.rule),
            tuple(self.buffers()),
            log_probs,
        )
        return log_probs

    def to_state(self) -> dict[str, Any]:
        """Arrays; records in the order of their keys."""
        is_record = self.fitted.keys != kernels.EMPTY
        keys, values = self.fitted.keys[is_record], self.fitted.values[is_record]
        order = np.argsort(keys)
        return {
            "record_keys": keys[order],
            "values": values[order],
            "gates": self.gates,
            "children": self.decomposition.children,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], size: int, has_end: bool, depth: int, rule: Rule) -> Self:
        """What ``to_state`` gave; ``ValueError`` for what no fit could have found.

        Earlier versions wrote ``keys`` by which contexts of one symbol shared the records of others. Counts that were
        added up cannot be told apart; only at depth 0, where there are no such contexts, are those keys as they should.
        """
        name = "keys" if "keys" in state else "record_keys"
        keys = array_of(state, name, np.int64, (None,))
        if name == "keys" and depth > 0 and len(keys):
            raise ValueError(
                "this ContextTree was saved by a version in which different contexts of one symbol could share their "
                "counts by mistake, which cannot be told apart any more; fit it again, and save it"
            )
        if len(keys) and (keys[0] < 0 or (np.diff(keys) <= 0).any()):
            raise ValueError(f"'{name}' should rise, from 0 on")
        values = array_of(state, "values", np.float32, (len(keys), 3))
        check_between("values", values[:, :2], 0)
        check_between("values", values[:, 2], -rule.max_log_odds, rule.max_log_odds)
        shape = (depth + 1, kernels.N_CLASSES, kernels.N_CLASSES)
        gates = check_between("gates", array_of(state, "gates", np.float64, shape), -MAX_GATE, MAX_GATE)
        decomposition = Decomposition.from_state(state, size + has_end)
        return cls(size, has_end, depth, rule, decomposition, gates, table_of(keys, values))


MAX_GATE = 1e3  # far more than gradient steps come to
