"""The fitted tables of a context tree, and a learner that reads a sequence with them."""

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
STEPS_AT_ONCE = 65_536  # steps whose contexts are in memory at once


def empty_table(n_places: int) -> Records:
    """Return an empty hash table of records (counts by context and decision) of ``n_places`` places, a power of two."""
    return Records(
        np.full(n_places, kernels.EMPTY, np.int64), np.zeros((n_places, 3), np.float32), np.zeros(1, np.int64)
    )


def table_of(keys: np.ndarray, values: np.ndarray) -> Records:
    """Return a hash table, as small as possible, with given records of what was seen of a decision in a context.

    Args:
        keys: hash of each of S pairs of a context and a decision, ``(S,)``.
        values: counts of bit 0 and of bit 1, and log-odds of stopping at the context, ``(S, 3)``.
    """
    n_places = SMALLEST
    while n_places * kernels.MAX_LOAD < len(keys):
        n_places *= 2
    table = empty_table(n_places)
    kernels.insert_all(keys, values, tuple(table))
    return table


@dataclass(eq=False)
class TreeLearner(StepLearner):
    """A learner of the counts of one sequence, or of all sequences of a fit, in a hash table that grows.

    Args:
        tree: the fitted tree.
        table: records (counts by context and decision) that have changed since the fit.
        changes: records as they were before the last event; of length 0 if events need not be taken back.
    """

    tree: FittedTree
    table: Records
    changes: Undo

    def read(self, steps: Steps, *, first_cannot_be: int = -1) -> np.ndarray:
        """Read T events and return the log-probability of each before it is learned, ``(T,)`` nats.

        Args:
            steps: the events (symbols and perhaps the end) and the hashes of their contexts.
            first_cannot_be: event that cannot be the first; -1 if there is none.
        """
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
        """Read one sequence of T events, and return the log-probability of each before it is learned, ``(T,)`` nats."""
        parts = []
        for t in range(0, len(row.events), STEPS_AT_ONCE):
            some = row.events[t : t + STEPS_AT_ONCE]
            begin = row.begin + t
            steps = Steps(some, *context_hashes(row.symbols, begin, begin + len(some), self.tree.depth))
            parts.append(self.read(steps, first_cannot_be=self.tree.size if row.has_end and t == 0 else -1))
        return np.concatenate(parts)

    def read_all(self, row: EventRow) -> np.ndarray:
        """Read one sequence, and return the log-probabilities of all V symbols at each of T steps, ``(T, V)`` nats.

        They are ``(T, V + 1)`` with the end last if ends of sequences are events.
        """
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
        """Return the hashes of the contexts after ``history``, ``(1, depth + 1)``, and their number, ``(1,)``."""
        at = len(history.recent)
        return context_hashes(history.recent, at, at + 1, self.tree.depth)


@dataclass(frozen=True)
class FittedTree:
    """A fitted context tree: the counts of all contexts and decisions, and the constants of their use.

    A symbol, or the end, is an outcome of a path of binary decisions.

    Args:
        size: number of symbols V; V is also the start symbol of contexts, and the end as an outcome.
        has_end: True if ends are events.
        depth: number of symbols of the longest context.
        rule: constants of estimates and updates.
        decomposition: decomposition of an outcome into binary decisions.
        gates: learned log-odds of stopping at a context, by its length, its class of confidence and that of the context
            one symbol longer, ``(depth + 1, N_CLASSES, N_CLASSES)``.
        fitted: counts and log-odds of each context and decision.
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
        """Return the tree learned from training sequences in their order, and the log-probability of each in nats.

        Args:
            rows: the sequences.
            size: number of symbols V.
            has_end: True if the end of a sequence is an event, with the code V.
            depth: number of symbols of the longest context.
            rule: constants of estimates and updates.
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
        """The number of pairs of a context and a binary decision that were seen in training."""
        return int(self.fitted.n_used[0])

    def __post_init__(self) -> None:
        """Compute the cached properties now, so that scoring changes nothing in the object."""
        _ = self.paths, self.node_hashes, self.max_records_of_step

    @property
    def paths(self) -> DecisionPaths:
        return self.decomposition.paths

    @cached_property
    def node_hashes(self) -> np.ndarray:
        return self.decomposition.node_hashes()

    @cached_property
    def max_records_of_step(self) -> int:
        """The largest number of records (counts by context and decision) that one event can change."""
        return int(np.diff(self.paths.first).max()) * (self.depth + 1)

    def smallest_table(self) -> Records:
        """Return an empty hash table for the counts of a sequence, with room for those that one event changes."""
        n_places = SMALLEST
        while n_places * kernels.MAX_LOAD < self.max_records_of_step:
            n_places *= 2
        return empty_table(n_places)

    def buffers(self) -> Buffers:
        n = self.depth + 1
        return Buffers(np.zeros((n, 3)), np.zeros(n, np.int64), np.zeros(n), np.zeros(n), np.zeros(n))

    def learner(self, *, is_adaptive: bool, can_undo: bool = False) -> TreeLearner:
        """Return a learner of the counts of one sequence, at its start.

        Args:
            is_adaptive: if False, it learns nothing.
            can_undo: if True, it keeps what it needs to take events back.
        """
        n = self.max_records_of_step if can_undo else 0
        changes = Undo(np.zeros(n, np.int64), np.zeros((n, 3), np.float32), np.zeros(1, np.int64))
        return TreeLearner(is_adaptive, self, self.smallest_table(), changes)

    def outcome_log_probs(self, hashes: np.ndarray, n_contexts: int, read: Records) -> np.ndarray:
        """Return the log-probabilities of the next symbol in nats, ``(V,)``, or ``(V + 1,)`` with the end last.

        Args:
            hashes: hashes of the contexts of 0 to ``depth`` symbols before it, ``(depth + 1,)``.
            n_contexts: number of contexts to use.
            read: records (counts by context and decision) learned from the sequence so far.
        """
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
        """Return the tree as arrays by name, to be saved, with the records in the order of their keys."""
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
        """Return the tree that ``to_state`` described.

        Files of earlier versions have the entry ``keys``, under which contexts of one symbol could share the records of
        others. Such added counts cannot be separated, so these files are refused, except at depth 0, where there are no
        such contexts.

        Args:
            state: the arrays of the tree by name.
            size: number of symbols V.
            has_end: True if the end of a sequence is an event, with the code V.
            depth: number of symbols of the longest context.
            rule: constants of estimates and updates.

        Raises:
            ValueError: if the arrays cannot be the result of a fit.
        """
        name = "keys" if "keys" in state else "record_keys"
        keys = array_of(state, name, np.int64, (None,))
        if name == "keys" and depth > 0 and len(keys):
            raise ValueError(
                "this ContextTree was saved by a version in which different contexts of one symbol could share their "
                "counts by mistake, which cannot be told apart any more; fit it again, and save it"
            )
        if len(keys) and (keys[0] < 0 or (np.diff(keys) <= 0).any()):
            raise ValueError(f"'{name}' should be increasing, from 0 on")
        values = array_of(state, "values", np.float32, (len(keys), 3))
        check_between("values", values[:, :2], 0)
        check_between("values", values[:, 2], -rule.max_log_odds, rule.max_log_odds)
        shape = (depth + 1, kernels.N_CLASSES, kernels.N_CLASSES)
        gates = check_between("gates", array_of(state, "gates", np.float64, shape), -MAX_GATE, MAX_GATE)
        decomposition = Decomposition.from_state(state, size + has_end)
        return cls(size, has_end, depth, rule, decomposition, gates, table_of(keys, values))


MAX_GATE = 1e3  # far more than gradient steps reach
