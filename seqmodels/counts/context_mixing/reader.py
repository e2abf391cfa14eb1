"""Readers, which predict and learn one sequence at a time in their own tables and then go back to the fitted model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import numpy as np

from seqmodels.counts.base import EventRow
from seqmodels.counts.context_mixing.mixing import (
    changes_per_step,
    log_odds_of_decisions,
    log_probs_of_all,
    new_decisions,
    read,
)
from seqmodels.counts.context_mixing.reading_state import N_LEARNED, N_REGISTERS, POSITION, begin
from seqmodels.counts.context_mixing.tables import MixingTables
from seqmodels.counts.context_mixing.undo import IS_INCOMPLETE, STEPS, UndoLog, new_log, roll_back

LOG_BYTES = 64 * 2**20  # size of the log; after a sequence with more changes the tables are copied anew
MAX_LOG_STEPS = 4096
NO_STEPS = np.zeros(0)


def copied(tables: MixingTables) -> MixingTables:
    """Return the arrays of a context-mixing model with copies of those that learning changes."""
    return tables._replace(
        counters=tables.counters.copy(), floats=tables.floats.copy(), integers=tables.integers.copy()
    )


class Reader:
    """A reader, which predicts the symbols of one sequence at a time, and may learn from them.

    Each sequence begins with the fitted model.

    Args:
        fitted: arrays of the fitted model, which are not changed.
        n_learned: number of steps that the model has learned from.
        is_learning: True if the model learns from the sequence, in copies of the arrays.
    """

    def __init__(self, fitted: MixingTables, n_learned: int, is_learning: bool) -> None:
        self.fitted, self.n_learned, self.is_learning = fitted, n_learned, is_learning
        self.tables = copied(fitted) if is_learning else fitted
        self.decisions = new_decisions(fitted)
        self.log = _log_of(fitted)
        self.registers = np.zeros(N_REGISTERS, dtype=np.int64)
        self.recent = np.zeros(64, dtype=np.int64)
        self.begin()

    def begin(self) -> None:
        """Undo everything learned from the last sequence and go to the start of a new one."""
        if self.log.used[IS_INCOMPLETE]:
            if self.is_learning:
                for name in ("counters", "floats", "integers"):
                    np.copyto(getattr(self.tables, name), getattr(self.fitted, name))
            self.log.used[:] = 0
        else:
            self.roll_back(int(self.log.used[STEPS]))
        self.registers[:] = _start(self.fitted, self.n_learned)

    @property
    def n_bytes(self) -> int:
        return self.tables.counters.nbytes + self.tables.floats.nbytes + self.tables.integers.nbytes

    def can_roll_back(self) -> bool:
        """Return True if every change since the start of the sequence was saved, so that ``roll_back`` is possible."""
        return not self.log.used[IS_INCOMPLETE]

    def roll_back(self, n: int) -> None:
        """Take back the last n symbols read, including those of a source (symbols read but not predicted).

        Call it only if ``can_roll_back()`` is True.
        """
        if n:
            roll_back(self.log, self.tables, self.registers, int(self.log.used[STEPS]) - n)

    def read_source(self, symbols: np.ndarray) -> None:
        """Read the symbols of a source (the x of a model of y given x), which become contexts, unpredicted."""
        if len(symbols):  # else nothing is compiled for it
            self._read(symbols, 0, NO_STEPS)

    def read(self, symbols: np.ndarray, first_end: int) -> np.ndarray:
        """Read symbols and return the log-probability of each, ``(T,)`` nats.

        Args:
            symbols: the symbols, ``(T,)``; V, the number of symbols, is the end.
            first_end: index of the first of them that may be the end; T or more if none may.
        """
        log_prob = np.empty(len(symbols))
        self._read(symbols, first_end, log_prob)
        return log_prob

    def read_all(self, symbols: np.ndarray, first_end: int) -> np.ndarray:
        """Read T symbols and return the log-probabilities of all V symbols and the end at each, ``(T, V + 1)`` nats.

        Args:
            symbols: the symbols, ``(T,)``; V is the end.
            first_end: index of the first of them that may be the end; before it the end has -inf.
        """
        all_log_probs = np.empty((len(symbols), self.fitted.n_symbols + 1))
        for t in range(len(symbols)):
            all_log_probs[t] = self.next_log_probs(t >= first_end)
            self.read(symbols[t : t + 1], first_end - t)
        return all_log_probs

    def read_decisions(self, symbols: np.ndarray, first_end: int) -> np.ndarray:
        """Read T symbols and return the log-odds of their binary decisions, ``(T, n_bits + 1)``.

        The columns are the decision whether the sequence ends and the bits of the symbol, highest first.

        Args:
            symbols: the symbols, ``(T,)``; V, the number of symbols, is the end.
            first_end: index of the first of them that may be the end.
        """
        log_odds = np.empty((len(symbols), self.fitted.n_bits + 1))
        for t in range(len(symbols)):
            self._set_log_odds(int(symbols[t]), int(t >= first_end), log_odds[t])
            self.read(symbols[t : t + 1], first_end - t)
        return log_odds

    def next_log_probs(self, has_end: bool) -> np.ndarray:
        """Return the log-probabilities of each of V next symbols and of the end, ``(V + 1,)`` nats.

        Args:
            has_end: True if the end can occur here; otherwise it has -inf.
        """
        log_probs = np.empty(self.fitted.n_symbols + 1)
        log_probs_of_all(self.tables, self.registers, self.recent, int(has_end), self.decisions, log_probs)
        return log_probs

    def _set_log_odds(self, symbol: int, end: int, log_odds: np.ndarray) -> None:
        log_odds_of_decisions(self.tables, self.registers, self.recent, symbol, end, self.decisions, log_odds)

    def make_room(self, n: int) -> None:
        needed = int(self.registers[POSITION]) - len(self.fitted.symbols) + n
        if needed > len(self.recent):
            grown = np.zeros(2 * needed, dtype=np.int64)
            grown[: len(self.recent)] = self.recent
            self.recent = grown

    def _read(self, symbols: np.ndarray, first_end: int, log_prob: np.ndarray) -> None:
        self.make_room(len(symbols))
        read(
            self.tables,
            self.registers,
            self.recent,
            np.ascontiguousarray(symbols, dtype=np.int64),
            first_end,
            self.is_learning,
            self.decisions,
            self.log,
            True,
            log_prob,
        )


def _start(tables: MixingTables, n_learned: int) -> np.ndarray:
    registers = np.zeros(N_REGISTERS, dtype=np.int64)
    registers[POSITION], registers[N_LEARNED] = len(tables.symbols), n_learned
    begin(tables, registers)
    return registers


def _log_of(tables: MixingTables) -> UndoLog:
    per_step = changes_per_step(tables)
    n_buckets, n_ranges, n_floats, n_integers = per_step
    n_bytes = 40 * n_buckets + 16 * n_ranges + 8 * n_floats + 16 * n_integers + 8 * N_REGISTERS
    return new_log(min(MAX_LOG_STEPS, max(1, LOG_BYTES // n_bytes)), per_step)


class Readers:
    """A store that lends readers of a context-mixing model to any thread and keeps one for reuse.

    Args:
        fitted: arrays of the fitted model, which are not changed.
        n_learned: number of steps that the model has learned from.
        is_learning: True if the readers learn from the sequences that they read.
    """

    def __init__(self, fitted: MixingTables, n_learned: int, is_learning: bool) -> None:
        self.fitted, self.n_learned, self.is_learning = fitted, n_learned, is_learning

    def at_each(self, rows: Iterable[EventRow]) -> Iterator[tuple[Reader, np.ndarray, int]]:
        """Yield, for each sequence, a reader that has read its source, and the events that it is to read next.

        Args:
            rows: the sequences.

        Returns:
            An iterator over the reader, the events (symbols and perhaps the end), and the index of the first that may
                be the end.
        """
        for row in rows:
            reader = self.take()
            reader.read_source(row.source)
            yield reader, row.events, 1 if row.has_end else len(row.events)
            self.give(reader)  # unless it failed

    def take(self) -> Reader:
        """Return a reader of the fitted model at the start of a sequence: the kept one, if any, or a new one."""
        reader = IDLE.pop(self, None)
        if reader is None:
            return Reader(self.fitted, self.n_learned, self.is_learning)
        reader.begin()
        return reader

    def give(self, reader: Reader) -> None:
        """Keep a reader for later use.

        No lock is used, because the method may be called while ``take`` runs, in another thread or by a finaliser.
        """
        IDLE[self] = reader


# Idle readers are not stored in the model, because scoring must not change it.
IDLE: WeakKeyDictionary[Readers, Reader] = WeakKeyDictionary()
