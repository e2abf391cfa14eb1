"""Fitting of context mixing to training sequences, which are read once, in their order."""

from __future__ import annotations

import numpy as np

from seqmodels.counts.context_mixing.coding import changes_per_step, new_decisions, read
from seqmodels.counts.context_mixing.contexts import N_LEARNED, N_REGISTERS, POSITION, begin
from seqmodels.counts.context_mixing.reader import NO_ROWS, NO_STEPS
from seqmodels.counts.context_mixing.tables import MixingTables
from seqmodels.counts.context_mixing.undo import new_log

Row = tuple[np.ndarray, np.ndarray]  # a source, of no length where there is none; the symbols that are scored


def n_positions(rows: list[Row]) -> int:
    """Symbols of sources and values, and a separator after each sequence."""
    return sum(len(source) + len(values) + 1 for source, values in rows)


def learn_from(tables: MixingTables, rows: list[Row], has_end: bool) -> tuple[int, float]:
    """Fill tables by reading each row; the number of steps learned from, and the sum of their log-probabilities.

    Each step is predicted before it is learned from, so the sum is that of an adaptive code from nothing.
    """
    decisions = new_decisions(tables)
    log = new_log(0, changes_per_step(tables))
    registers = np.zeros(N_REGISTERS, dtype=np.int64)
    recent = np.zeros(1, dtype=np.int64)
    total = 0.0
    for source, values in rows:
        begin(tables, registers)
        read(tables, registers, recent, source, 0, True, decisions, log, False, NO_STEPS, NO_ROWS, NO_ROWS)
        events = np.append(values, tables.n_symbols) if has_end else values
        log_prob = np.empty(len(events))
        first_end = 1 if has_end else len(events)
        read(tables, registers, recent, events, first_end, True, decisions, log, False, log_prob, NO_ROWS, NO_ROWS)
        total += float(log_prob.sum())
        tables.symbols[registers[POSITION]] = tables.n_symbols
        registers[POSITION] += 1
    return int(registers[N_LEARNED]), total
