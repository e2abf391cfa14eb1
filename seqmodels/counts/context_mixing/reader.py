"""``Reader``: tables that follow one sequence at a time, and become those of the fitted model again for the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import numpy as np

from seqmodels.counts.base import EventRow
from seqmodels.counts.context_mixing.coding import (
    changes_per_step,
    log_odds_of_decisions,
    log_probs_of_all,
    new_decisions,
    read,
)
from seqmodels.counts.context_mixing.registers import N_LEARNED, N_REGISTERS, POSITION, begin
from seqmodels.counts.context_mixing.tables import MixingTables
from seqmodels.counts.context_mixing.undo import IS_INCOMPLETE, STEPS, UndoLog, new_log, roll_back

LOG_BYTES = 64 * 2**20  # of changes that can be undone; after a longer sequence the tables are copied anew
MAX_LOG_STEPS = 4096
NO_STEPS = np.zeros(0)


def copied(tables: MixingTables) -> MixingTables:
    """With arrays of its own of what learning changes."""
    return tables._replace(
        counters=tables.counters.copy(), floats=tables.floats.copy(), integers=tables.integers.copy()
    )


class Reader:
    """One sequence at a time, after a fitted model.

    Args:
        fitted: the tables of the model, which stay as they are.
        n_learned: steps that it has learned from.
        is_learning: whether the tables follow the sequence.
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
        """Undo what was read, and stand before the first step of a sequence."""
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
        """Of the tables that learning changes."""
        return self.tables.counters.nbytes + self.tables.floats.nbytes + self.tables.integers.nbytes

    def can_roll_back(self) -> bool:
        """Whether every change since the start of the sequence is in the log."""
        return not self.log.used[IS_INCOMPLETE]

    def roll_back(self, n: int) -> None:
        """Take back the last n steps of those that were read, sources among them; only if it can."""
        if n:
            roll_back(self.log, self.tables, self.registers, int(self.log.used[STEPS]) - n)

    def read_source(self, symbols: np.ndarray) -> None:
        """Symbols that are known: contexts for what follows."""
        if len(symbols):  # else nothing is compiled for it
            self._read(symbols, 0, NO_STEPS)

    def read(self, symbols: np.ndarray, first_end: int) -> np.ndarray:
        """``(T,)`` log-probabilities; the end, V, is an event from step ``first_end`` on."""
        log_prob = np.empty(len(symbols))
        self._read(symbols, first_end, log_prob)
        return log_prob

    def read_all(self, symbols: np.ndarray, first_end: int) -> np.ndarray:
        """``(T, V + 1)`` log-probabilities of all symbols, and the end, at each step."""
        all_log_probs = np.empty((len(symbols), self.fitted.n_symbols + 1))
        for t in range(len(symbols)):
            all_log_probs[t] = self.next_log_probs(t >= first_end)
            self.read(symbols[t : t + 1], first_end - t)
        return all_log_probs

    def read_decisions(self, symbols: np.ndarray, first_end: int) -> np.ndarray:
        """``(T, n_bits + 1)`` log-odds of the end and of each bit of the symbols at each step."""
        log_odds = np.empty((len(symbols), self.fitted.n_bits + 1))
        for t in range(len(symbols)):
            self._set_log_odds(int(symbols[t]), int(t >= first_end), log_odds[t])
            self.read(symbols[t : t + 1], first_end - t)
        return log_odds

    def next_log_probs(self, has_end: bool) -> np.ndarray:
        """``(V + 1,)`` log-probabilities of what may come next."""
        log_probs = np.empty(self.fitted.n_symbols + 1)
        log_probs_of_all(self.tables, self.registers, self.recent, int(has_end), self.decisions, log_probs)
        return log_probs

    def _set_log_odds(self, symbol: int, end: int, log_odds: np.ndarray) -> None:
        log_odds_of_decisions(self.tables, self.registers, self.recent, symbol, end, self.decisions, log_odds)

    def make_room(self, n: int) -> None:
        """Make room in ``recent`` for so many symbols more."""
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
    """Readers of one model that are idle, one at most, for whoever needs one next; in any thread."""

    def __init__(self, fitted: MixingTables, n_learned: int, is_learning: bool) -> None:
        self.fitted, self.n_learned, self.is_learning = fitted, n_learned, is_learning

    def at_each(self, rows: Iterable[EventRow]) -> Iterator[tuple[Reader, np.ndarray, int]]:
        """For each row a reader that has read its source; the events to read, and from which on the end is one."""
        for row in rows:
            reader = self.take()
            reader.read_source(row.source)
            yield reader, row.events, 1 if row.has_end else len(row.events)
            self.give(reader)  # unless it failed

    def take(self) -> Reader:
        """A reader at the start of a sequence."""
        reader = IDLE.pop(self, None)
        if reader is None:
            return Reader(self.fitted, self.n_learned, self.is_learning)
        reader.begin()
        return reader

    def give(self, reader: Reader) -> None:
        """Keep a reader for the next; without a lock, for it may be called while another thread takes one."""
        IDLE[self] = reader


IDLE: WeakKeyDictionary[Readers, Reader] = WeakKeyDictionary()  # not kept with a model, which scoring does not change
