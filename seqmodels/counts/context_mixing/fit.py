"""Fitting of context mixing to training sequences, which are read once, in their order."""

from __future__ import annotations

import numpy as np

from seqmodels.counts.base import EventRow
from seqmodels.counts.context_mixing.mixing import changes_per_step, new_decisions, read
from seqmodels.counts.context_mixing.reader import NO_STEPS
from seqmodels.counts.context_mixing.reading_state import N_LEARNED, N_REGISTERS, POSITION, begin
from seqmodels.counts.context_mixing.tables import MixingTables
from seqmodels.counts.context_mixing.undo import new_log


def learn_from(tables: MixingTables, rows: list[EventRow]) -> tuple[int, float]:
    """Fill the arrays of a context-mixing model by reading training sequences once.

    Each step is predicted before it is learned, so the sum of log-probabilities is minus the length, in nats, of an
    adaptive code that starts from nothing.

    Args:
        tables: arrays in which nothing is learned yet, which are changed.
        rows: the sequences.

    Returns:
        The number of steps learned, and the sum of their log-probabilities in nats.
    """
    decisions = new_decisions(tables)
    log = new_log(0, changes_per_step(tables))
    registers = np.zeros(N_REGISTERS, dtype=np.int64)
    recent = np.zeros(1, dtype=np.int64)
    total = 0.0
    for row in rows:
        begin(tables, registers)
        read(tables, registers, recent, row.source, 0, True, decisions, log, False, NO_STEPS)
        log_prob = np.empty(len(row.events))
        first_end = 1 if row.has_end else len(row.events)
        read(tables, registers, recent, row.events, first_end, True, decisions, log, False, log_prob)
        total += float(log_prob.sum())
        tables.symbols[registers[POSITION]] = tables.n_symbols
        registers[POSITION] += 1
    return int(registers[N_LEARNED]), total
