"""Arithmetic coding of symbols by the binary decisions of a context-mixing model, in compiled loops.

One function both encodes and decodes, so that both use exactly the same probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.common.compiled_range_coder import follow, narrow, share_at
from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.common.range_interval import ROOM, TOTAL
from seqmodels.counts.base import EventRow
from seqmodels.counts.context_mixing.mixing import (
    Decisions,
    advance,
    begin_symbol,
    find_buckets,
    is_decided,
    learn,
    probability,
)
from seqmodels.counts.context_mixing.picture_and_sound import note_error
from seqmodels.counts.context_mixing.reader import Reader, Readers
from seqmodels.counts.context_mixing.tables import BITS_PER_BUCKET, MixingTables
from seqmodels.counts.context_mixing.undo import UndoLog, begin_step
from seqmodels.encodings.examples import Example
from seqmodels.generation.coding import ToDecode

SYMBOLS_AT_ONCE = 4096  # symbols between two checks of the remaining room


@compiled(allocates=False, inner=True)
def code_bit(state: np.ndarray, data: np.ndarray, p: float, bit: int, is_decoding: bool) -> int:
    """Encode or decode one bit with a range coder, and return the bit.

    Args:
        state: the range coder's interval and position in ``data``, which are changed.
        data: bytes that are written or read.
        p: probability of bit 1; both bits always stay possible.
        bit: the bit to encode; ignored when decoding.
        is_decoding: True to decode, False to encode.
    """
    size = max(1, min(TOTAL - 1, int(p * TOTAL)))
    if is_decoding:
        bit = 1 if share_at(state) < size else 0
        if bit == 1:
            follow(state, data, 0, size)
        else:
            follow(state, data, size, TOTAL - size)
    elif bit == 1:
        narrow(state, data, 0, size)
    else:
        narrow(state, data, size, TOTAL - size)
    return bit


@compiled(allocates=False, inner=True)
def code_symbol(
    tables: MixingTables,
    registers: np.ndarray,
    recent: np.ndarray,
    symbol: int,
    end: int,
    decisions: Decisions,
    state: np.ndarray,
    data: np.ndarray,
    is_decoding: bool,
) -> int:
    """Encode or decode a symbol as binary decisions with a range coder, and return it.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        symbol: the symbol to encode, V (the number of symbols) for the end; ignored when decoding.
        end: 1 if the end can occur here, 0 if it cannot yet or is no event.
        decisions: buffers for the decisions and their predictions, which are written.
        state, data: state and bytes of the range coder.
        is_decoding: True to decode, False to encode.
    """
    n_bits = tables.n_bits
    begin_symbol(tables, registers, recent, decisions)
    leaf = (1 << n_bits) + (0 if symbol == tables.n_symbols else symbol)
    node = leaf >> n_bits  # 1, written so that numba compiles the functions called below for one type only
    for bit in range(n_bits):
        decisions.node[bit] = 0
        group = bit // BITS_PER_BUCKET
        if bit % BITS_PER_BUCKET == 0:
            find_buckets(tables, registers, decisions.hashes, node, decisions.buckets[group])
        y = 0
        if not is_decided(tables.n_bits, tables.n_symbols, node, bit):
            decisions.node[bit] = node
            p = probability(tables, registers, recent, decisions.buckets[group], node, bit, decisions)
            y = code_bit(state, data, p, (leaf >> (n_bits - bit - 1)) & 1, is_decoding)
        node = 2 * node + y
    decisions.node[n_bits] = 0
    if end == 1 and node == 1 << n_bits:
        group = n_bits // BITS_PER_BUCKET
        if n_bits % BITS_PER_BUCKET == 0:
            find_buckets(tables, registers, decisions.hashes, node, decisions.buckets[group])
        decisions.node[n_bits] = node
        p = probability(tables, registers, recent, decisions.buckets[group], node, n_bits, decisions)
        if code_bit(state, data, p, 1 if symbol == tables.n_symbols else 0, is_decoding) == 1:
            return tables.n_symbols
    return node - (1 << n_bits)


@compiled(allocates=False)
def code_symbols(
    tables: MixingTables,
    registers: np.ndarray,
    recent: np.ndarray,
    symbols: np.ndarray,
    first_end: int,
    is_learned: bool,
    decisions: Decisions,
    log: UndoLog,
    state: np.ndarray,
    data: np.ndarray,
    is_decoding: bool,
) -> int:
    """Encode or decode the symbols of a sequence, learning from each, and return how many symbols were coded.

    Coding stops after the end, if it occurs.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far, which
            are all changed.
        symbols: symbols to encode, or the output when decoding, ``(T,)``; the last may be V (the number of symbols),
            the end.
        first_end: index of the first symbol that may be the end.
        is_learned: True if the model learns from each symbol.
        decisions, log: buffers for the decisions of a symbol, and for the changes of a step.
        state, data: state and bytes of the range coder; ``data`` has room for ``ROOM`` bytes for each decision.
        is_decoding: True to decode, False to encode.
    """
    for t in range(len(symbols)):
        is_kept = begin_step(log, registers)
        end = 1 if t >= first_end else 0
        symbol = code_symbol(tables, registers, recent, int(symbols[t]), end, decisions, state, data, is_decoding)
        symbols[t] = symbol
        if is_learned:
            learn(tables, registers, symbol, decisions, log, is_kept)
        if tables.n_experts > 0:
            note_error(registers, decisions.what, decisions.expected_number, symbol)
        if symbol == tables.n_symbols:
            return t + 1
        advance(tables, registers, recent, symbol, is_learned, log, is_kept)
    return len(symbols)


class BitCoder:
    """An arithmetic coder of symbol sequences, one after another, each starting from the fitted context-mixing model.

    Args:
        readers: store of objects that predict sequences with the fitted model.
        has_end: True if the end of a sequence is coded too.
    """

    def __init__(self, readers: Readers, has_end: bool) -> None:
        self.readers, self.has_end = readers, has_end

    def encode(self, examples: Sequence[Example], encoder: RangeEncoder) -> None:
        """Encode the values of each sequence, followed by its end if ends are coded.

        Args:
            examples: the encoded sequences (as symbols), perhaps with sources, which are read but not coded.
            encoder: range coder to which the decisions are written.
        """
        rows = (EventRow.of(example, self.readers.fitted.n_symbols, self.has_end) for example in examples)
        for reader, events, first_end in self.readers.at_each(rows):
            n_bytes = ROOM * (self.readers.fitted.n_bits + 1)
            for first in range(0, len(events), SYMBOLS_AT_ONCE):
                part = events[first : first + SYMBOLS_AT_ONCE].copy()
                encoder.reserve(n_bytes * len(part))
                _code(reader, part, first_end - first, encoder.state, encoder.buffer, is_decoding=False)

    def decode(self, known: Sequence[ToDecode], decoder: RangeDecoder) -> list[np.ndarray]:
        """Return the decoded values of each sequence, int64 arrays ``(S,)``.

        Args:
            known: what is known of each sequence: its source, and its length if the end is not coded.
            decoder: range decoder from which the decisions are read.

        Raises:
            ValueError: if the data end too early.
        """
        nothing = np.zeros(0, dtype=np.int64)
        rows = (EventRow.of(Example(nothing, each.source), self.readers.fitted.n_symbols, False) for each in known)
        values = []
        for each, (reader, _, _) in zip(known, self.readers.at_each(rows), strict=True):
            values.append(np.concatenate([nothing, *self._parts(reader, each.n_steps, decoder)]))
        return values

    def _parts(self, reader: Reader, n_steps: int | None, decoder: RangeDecoder) -> Iterator[np.ndarray]:
        """Yield the decoded values of one sequence in consecutive arrays.

        ``n_steps`` is the length of the sequence; None if its end is decoded.
        """
        first, end = 0, self.readers.fitted.n_symbols
        while n_steps is None or first < n_steps:
            size = SYMBOLS_AT_ONCE if n_steps is None else min(SYMBOLS_AT_ONCE, n_steps - first)
            part = np.zeros(size, dtype=np.int64)
            first_end = 1 - first if n_steps is None else size
            n = _code(reader, part, first_end, decoder.state, decoder.data, is_decoding=True)
            decoder.check()
            if part[n - 1] == end:
                yield part[: n - 1]
                return
            yield part
            first += size


def _code(
    reader: Reader, symbols: np.ndarray, first_end: int, state: np.ndarray, data: np.ndarray, *, is_decoding: bool
) -> int:
    reader.make_room(len(symbols))
    return int(
        code_symbols(
            reader.tables,
            reader.registers,
            reader.recent,
            symbols,
            first_end,
            reader.is_learning,
            reader.decisions,
            reader.log,
            state,
            data,
            is_decoding,
        )
    )
