"""Scores of sequences that are read from disk one block at a time, in which equal n-grams are looked up once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqmodels.counts.ngram.stream_counts import EventStream, Run, in_blocks, packed, packed_run, packs, unpacked
from seqmodels.counts.ngram.tables import Tables
from seqmodels.sequences.mapped import Steps, write_steps

SCORED_AT_ONCE = 1 << 20


def write_stream_steps(tables: Tables, stream: EventStream, steps: Steps) -> None:
    """Write the log-probability of each event of a sequence on disk into ``steps``, block by block, in float64 nats.

    Args:
        tables: fitted tables of an n-gram model.
        stream: the events of the sequence: its symbols and perhaps its end.
        steps: array of one number for each event, or an object that sums them.
    """
    n = len(tables.levels) - 1
    for a, b in in_blocks(stream, 0, SCORED_AT_ONCE):
        contexts, event = stream.contexts(a, b, n)
        log_p = _log_p(tables, contexts, event)
        if a == 0:
            log_p[0] -= _log_going_on(tables)
        write_steps(steps, a, log_p)


def log_prob_of_training(tables: Tables, streams: Sequence[EventStream]) -> float:
    """Return the log-probability of all events of sequences on disk in nats, each multiplied by its sequence's weight.

    Each different n-gram is looked up only once if n-grams fit into numbers of 63 bits.

    Args:
        tables: fitted tables of an n-gram model.
        streams: the sequences.
    """
    n = len(tables.levels) - 1
    total = 0.0
    for stream in streams:
        first = min(max(0, n - 1), len(stream))  # the first events have shorter contexts
        if first:
            total += stream.example.weight * float(_log_p(tables, *stream.contexts(0, first, n)).sum())
        total -= stream.example.weight * _log_going_on(tables)
    if packs(n + 1, tables.size):
        return total + _log_prob_of_run(tables, packed_run(streams, n), n)
    for stream in streams:
        for a, b in in_blocks(stream, min(max(0, n - 1), len(stream)), SCORED_AT_ONCE):
            total += stream.example.weight * float(_log_p(tables, *stream.contexts(a, b, n)).sum())
    return total


def _log_prob_of_run(tables: Tables, run: Run, n: int) -> float:
    total = 0.0
    for a in range(0, len(run.codes), SCORED_AT_ONCE):
        contexts, event = unpacked(run.codes[a : a + SCORED_AT_ONCE], n, tables.size + 1)
        log_p = np.log(tables.probability(_context_ids(tables, contexts, len(event)), event))
        total += float(log_p @ run.counts[a : a + SCORED_AT_ONCE])
    return total


def _log_p(tables: Tables, contexts: list[np.ndarray], event: np.ndarray) -> np.ndarray:
    """Return the log-probability of each of N events in nats, ``(N,)``.

    ``contexts`` are arrays ``(N,)`` of the symbols before each event, last first. If n-grams fit into numbers, each
    different one is looked up once.
    """
    base = tables.size + 1
    # With NONE among the symbols, at a sequence's beginning, numbers are shifted by one.
    if contexts and not packs(len(contexts) + 1, base):
        return _log_p_in_order(tables, contexts, event)
    codes = packed([symbols + 1 for symbols in contexts], event, base + 1)
    codes, inverse = np.unique(codes, return_inverse=True)
    symbols, different = unpacked(codes, len(contexts), base + 1)
    ids = _context_ids(tables, [each - 1 for each in symbols], len(different))
    return np.asarray(np.log(tables.probability(ids, different))[inverse])


def _log_p_in_order(tables: Tables, contexts: list[np.ndarray], event: np.ndarray) -> np.ndarray:
    """Return the log-probability of each of N events in nats, ``(N,)``, looked up in the order of contexts.

    In that order neighbouring lookups are near each other in the tables, and so in the processor's caches.
    """
    n = next((n for n in range(len(contexts), 1, -1) if packs(n, tables.size + 1)), 1)  # symbols that pack
    order = np.argsort(packed([symbols + 1 for symbols in contexts[: n - 1]], contexts[n - 1] + 1, tables.size + 2))
    ids = _context_ids(tables, [symbols[order] for symbols in contexts], len(event))
    log_p = np.empty(len(event))
    log_p[order] = np.log(tables.probability(ids, event[order]))
    return log_p


def _context_ids(tables: Tables, contexts: list[np.ndarray], n: int) -> list[np.ndarray]:
    return tables.context_ids(contexts) if contexts else [np.zeros(n, np.int64)]


def _log_going_on(tables: Tables) -> float:
    """Return the log-probability in nats that the first event is not the end of the sequence.

    The first event's probability is divided by it, because sequences are not empty. It is 0 if ends are no events.
    """
    if not tables.has_end:
        return 0.0
    start = np.array([tables.size])
    contexts = [start, *(np.array([-1]) for _ in tables.levels[2:])] if len(tables.levels) > 1 else []
    return float(np.log1p(-tables.probability(_context_ids(tables, contexts, 1), start)[0]))
