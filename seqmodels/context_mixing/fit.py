"""MixingTables from training sequences, which are read once, in their order; for a frozen model the last part twice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmodels.context_mixing.coding import COUNTS, EVERYTHING, MEANINGS, changes_per_step, new_decisions, read
from seqmodels.context_mixing.contexts import N_LEARNED, N_REGISTERS, POSITION, begin
from seqmodels.context_mixing.reader import NO_ROWS, NO_STEPS
from seqmodels.context_mixing.tables import MixingTables
from seqmodels.context_mixing.undo import new_log

Row = tuple[np.ndarray, np.ndarray]  # a source, of no length where there is none; the symbols that are scored

FOR_MEANINGS = 0.1  # of the steps, from which a frozen model learns what its counters mean


def n_positions(rows: list[Row]) -> int:
    """Symbols of sources and values, and a separator after each sequence."""
    return sum(len(source) + len(values) + 1 for source, values in rows)


class Part(NamedTuple):
    """A sequence, or one side of where it is cut."""

    source: np.ndarray
    events: np.ndarray
    first_end: int  # of the events, the first at which the end is an event
    is_first: bool
    is_last: bool


def learn_from(tables: MixingTables, rows: list[Row], has_end: bool, is_frozen: bool) -> tuple[int, float]:
    """Fill tables by reading each row; the number of steps learned from, and the sum of their log-probabilities.

    Each step is predicted before it is learned from, so the sum is that of an adaptive code from nothing. For a model
    that ``is_frozen`` afterwards the last tenth of the steps is read twice: first counters stay as they are, so that
    weights, and what bit histories mean, are learned for counters that do not follow what is read; then they count it.
    """
    parts = [_part(source, values, has_end, tables.n_symbols) for source, values in rows]
    registers = np.zeros(N_REGISTERS, dtype=np.int64)
    if not is_frozen:
        total = _read_parts(tables, registers, parts, EVERYTHING)
    else:
        head, tail = _cut(parts, round((1 - FOR_MEANINGS) * sum(len(part.events) for part in parts)))
        total = _read_parts(tables, registers, head, EVERYTHING)
        at_tail = registers.copy()
        total += _read_parts(tables, registers, tail, MEANINGS)
        n_learned = registers[N_LEARNED]
        registers[:] = at_tail
        _read_parts(tables, registers, tail, COUNTS)
        registers[N_LEARNED] = n_learned
    return int(registers[N_LEARNED]), total


def _part(source: np.ndarray, values: np.ndarray, has_end: bool, end: int) -> Part:
    events = np.append(values, end) if has_end else values
    return Part(source, events, 1 if has_end else len(events), True, True)


def _cut(parts: list[Part], at: int) -> tuple[list[Part], list[Part]]:
    """The first ``at`` events, and the others."""
    head, tail = [], []
    for part in parts:
        if at >= len(part.events):
            head.append(part)
        elif at <= 0:
            tail.append(part)
        else:
            head.append(part._replace(events=part.events[:at], is_last=False))
            tail.append(part._replace(events=part.events[at:], first_end=max(0, part.first_end - at), is_first=False))
        at -= len(part.events)
    return head, tail


def _read_parts(tables: MixingTables, registers: np.ndarray, parts: list[Part], learned: int) -> float:
    decisions = new_decisions(tables)
    log = new_log(0, changes_per_step(tables))
    recent = np.zeros(1, dtype=np.int64)

    def _read(symbols: np.ndarray, first_end: int, log_prob: np.ndarray) -> None:
        read(tables, registers, recent, symbols, first_end, learned, decisions, log, False, log_prob, NO_ROWS, NO_ROWS)

    total = 0.0
    for part in parts:
        if part.is_first:
            begin(tables, registers)
            _read(part.source, 0, NO_STEPS)
        log_prob = np.empty(len(part.events))
        _read(part.events, part.first_end, log_prob)
        total += float(log_prob.sum())
        if part.is_last:
            tables.symbols[registers[POSITION]] = tables.n_symbols
            registers[POSITION] += 1
    return total
