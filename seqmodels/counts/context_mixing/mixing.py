"""Prediction of binary decisions by many contexts at once, and learning from each symbol.

Each context i gives ``stretch(p) = log(p / (1 - p))`` for the probability of its counter and for the probability
learned for its bit history. A mixer sums them, ``logistic(w · x)``, with weights ``w`` that are selected by a part of
the context and follow the gradient of ``log p``. Several such sums are mixed once more, and refined by tables of
earlier predictions and their outcomes (Mahoney 2005; Knoll and de Freitas 2012).

All decisions of a symbol are predicted from what is known before the symbol, and then learned. So the probabilities of
all symbols can be computed without learning anything.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.counts.context_mixing import tables as tables_
from seqmodels.counts.context_mixing.byte_layout import BINARY, is_time_to_look
from seqmodels.counts.context_mixing.contexts import context_hashes, find_matches, match_slot, push
from seqmodels.counts.context_mixing.histories import N_HISTORIES
from seqmodels.counts.context_mixing.picture_and_sound import (
    HASHES,
    choose_kind,
    expect,
    learn_number,
    new_number,
    note_error,
    set_input,
)
from seqmodels.counts.context_mixing.reading_state import (
    CLASS,
    INDIRECT_ROW_1,
    INDIRECT_ROW_2,
    KIND,
    LAST_CLASS,
    LAYOUT,
    MATCH,
    N_LEARNED,
    N_READ,
    POSITION,
    RECENT,
    WORD_LENGTH,
    combined,
    symbol_at,
)
from seqmodels.counts.context_mixing.records import CHOSEN_EVERY, choose_period
from seqmodels.counts.context_mixing.tables import (
    BITS_PER_BUCKET,
    BUCKET,
    FIRST_SAMPLE_CONTEXT,
    INPUTS_PER_CONTEXT,
    INPUTS_PER_EXPERT,
    INPUTS_PER_MATCH,
    LARGEST_LOGIT,
    N_EXPERTS,
    N_FEATURES,
    N_FITS,
    N_MATCH_LENGTHS,
    N_REFINEMENTS,
    N_SAMPLE_CONTEXTS,
    N_STRETCH,
    NEW_COUNTER,
    NODE_DEPTHS,
    REFINEMENT_POINTS,
    SYMBOL_ROWS,
    MixingTables,
)
from seqmodels.counts.context_mixing.undo import UndoLog, begin_step, keep_bucket, keep_floats, keep_integer

BIAS = 0.3  # the input that is always there
CONFIDENCE_SCALE = 4.0
SYMBOLS_IN_INDIRECT = 1 << 16


class Decisions(NamedTuple):
    """Buffers for the binary decisions that code one symbol: their predictions, and the numbers behind them.

    A symbol's bits are decided from the highest on, and perhaps, after symbol 0, whether it is the end. There are at
    most D decisions (``n_bits + 1``), N contexts, M inputs of a mixer, K mixers (each a weighted sum of the inputs) and
    Q match lengths. A bucket is a slot of the hash table with the counters of one context.

    Attributes:
        hashes: hash of each context, ``(N,)``.
        buckets: bucket of each context for each group of 3 decisions, ``(groups, N)``; -1 if the context is new.
        inputs: inputs of the mixers, ``(D, M)``.
        rows: index of the weight vector of each mixer, ``(D, K + 1)``; last, that of the second final mixer.
        logits: output of each mixer, ``(D, K)``.
        node: node of each decision in the tree of bits, ``(D,)``; 0 if the decision was not needed.
        expected: bit that each match predicts, ``(D, Q)``; -1 if it predicts none.
        mixed: mixed probability of bit 1 before it is refined, ``(D,)``.
        refined_at: indices in ``tables.floats`` of the refinements used, ``(D, N_REFINEMENTS)``.
        above: interpolation weight of the entry after each of these, ``(D,)``.
        p: final probability of bit 1, ``(D,)``.
        what: integers that describe the number that the symbol is part of (``picture_and_sound``).
        expected_number: real numbers that describe the expectation of that number (``picture_and_sound``).
    """

    hashes: np.ndarray
    buckets: np.ndarray
    inputs: np.ndarray
    rows: np.ndarray
    logits: np.ndarray
    node: np.ndarray
    expected: np.ndarray
    mixed: np.ndarray
    refined_at: np.ndarray
    above: np.ndarray
    p: np.ndarray
    what: np.ndarray
    expected_number: np.ndarray


def new_decisions(tables: MixingTables) -> Decisions:
    """Return zeroed buffers for the binary decisions of one symbol, of the sizes that the model's ``tables`` need."""
    depth = tables.n_bits + 1
    n_contexts, n_selectors, n_matches = len(tables.first_bucket), len(tables.selectors), len(tables.match_lengths)
    return Decisions(
        np.zeros(n_contexts, dtype=np.int64),
        np.zeros((depth // BITS_PER_BUCKET + 1, n_contexts), dtype=np.int64),
        np.zeros((depth, tables.n_inputs)),
        np.zeros((depth, n_selectors + 1), dtype=np.int64),
        np.zeros((depth, n_selectors)),
        np.zeros(depth, dtype=np.int64),
        np.zeros((depth, n_matches), dtype=np.int64),
        np.zeros(depth),
        np.zeros((depth, N_REFINEMENTS), dtype=np.int64),
        np.zeros(depth),
        np.zeros(depth),
        *new_number(),
    )


@compiled(allocates=False, inner=True)
def begin_symbol(tables: MixingTables, registers: np.ndarray, recent: np.ndarray, decisions: Decisions) -> None:
    """Prepare the prediction of the next symbol: write the hashes of its contexts to ``decisions``.

    If bytes are samples of a picture or of sound, the expectation of the next number is written too.

    Args:
        tables: learned arrays of the model.
        registers: integers that describe the sequence so far, such as its last symbols.
        recent: symbols of the sequence so far.
        decisions: buffers that are written.
    """
    context_hashes(tables, registers, recent, decisions.hashes)
    if tables.n_experts > 0:
        expect(tables, registers, recent, decisions.what, decisions.expected_number)
        if registers[KIND] > 0:
            for j in range(N_SAMPLE_CONTEXTS):
                decisions.hashes[FIRST_SAMPLE_CONTEXT + j] = decisions.what[HASHES + j]


@compiled(allocates=False)
def logistic(x: float) -> float:
    """Return ``1 / (1 + exp(-x))``."""
    return 1.0 / (1.0 + math.exp(-x))


@compiled(allocates=False, inner=True)
def clipped(x: float) -> float:
    """Return ``x``, log-odds, clipped to the range of mixed predictions, ``-LARGEST_LOGIT .. LARGEST_LOGIT``."""
    return max(-LARGEST_LOGIT, min(LARGEST_LOGIT, x))


@compiled(allocates=False, inner=True)
def is_decided(n_bits: int, n_symbols: int, node: int, bit: int) -> bool:
    """Return True if bit 0 is certain at a node of the tree of a symbol's bits, because no symbol has bit 1 there.

    Args:
        n_bits: number of bits of a symbol.
        n_symbols: number of symbols V.
        node: node of the tree; the root is 1, and nodes 2 n and 2 n + 1 are below node n.
        bit: its depth, 0 for the highest bit.
    """
    return (2 * node + 1) << (n_bits - bit - 1) >= n_symbols + (1 << n_bits)


# -- counters ----------------------------------------------------------------------------------------------


@compiled(allocates=False, inner=True)
def find_bucket(counters: np.ndarray, first: int, mask: int, key: int) -> int:
    """Return the index of the hash-table slot (bucket) with this key; -1 if there is none.

    Args:
        counters: buckets of 8 integers: the key, then the counters of 3 successive decisions in one context.
        first: first bucket of the context.
        mask: number of the context's buckets minus one, a power of two minus one.
        key: hash of the context and of the tree node of the first decision.
    """
    for j in range(2):
        bucket = first + ((key & mask) ^ j)
        if counters[bucket * BUCKET] == key + 1:
            return int(bucket)
    return -1


@compiled(allocates=False, inner=True)
def bucket_to_replace(counters: np.ndarray, first: int, mask: int, key: int) -> int:
    """Return which of the two hash-table slots (buckets) of a key it may take over: an empty one, else the less used.

    Args:
        counters: buckets of 8 integers: the key, then the counters of 3 successive decisions in one context.
        first: first bucket of the context.
        mask: number of the context's buckets minus one, a power of two minus one.
        key: hash of the context and of the tree node of the first decision.
    """
    chosen, least = -1, 1 << 40
    for j in range(2):
        bucket = first + ((key & mask) ^ j)
        level = 0
        if counters[bucket * BUCKET] != 0:
            level = 1 + ((int(counters[bucket * BUCKET + 1]) >> 9) & 63)
        if level < least:
            chosen, least = bucket, level
    return chosen


@compiled(allocates=False, inner=True)
def n_in_use(tables: MixingTables, registers: np.ndarray) -> int:
    """Return the number of contexts that predict the next symbol, which is smaller if bytes are samples (numbers).

    Args:
        tables: learned arrays of the model.
        registers: integers that describe the sequence so far.
    """
    return int(tables.n_number_contexts) if registers[KIND] > 0 else len(tables.first_bucket)


@compiled(allocates=False, inner=True)
def find_buckets(
    tables: MixingTables, registers: np.ndarray, hashes: np.ndarray, node: int, buckets: np.ndarray
) -> None:
    """Write to ``buckets (N,)`` the hash-table slot in which each context keeps the counters of the next 3 decisions.

    Args:
        tables: learned arrays of the model.
        registers: integers that describe the sequence so far.
        hashes: hash of each of N contexts, ``(N,)``.
        node: node of the first of the decisions in the tree of a symbol's bits.
        buckets: output; -1 for a context that has no slot.
    """
    counters, first, mask = tables.counters, tables.first_bucket, tables.bucket_mask
    for i in range(n_in_use(tables, registers)):
        buckets[i] = find_bucket(counters, first[i], mask[i], combined(hashes[i], node))


# -- prediction --------------------------------------------------------------------------------------------


@compiled(allocates=False, inner=True)
def expected_bits(
    tables: MixingTables, registers: np.ndarray, recent: np.ndarray, node: int, bit: int, expected: np.ndarray
) -> None:
    """Write to ``expected (Q,)`` the bit that each of Q matches predicts at a node; -1 if it predicts none.

    A match is an earlier string equal to the last symbols; it predicts that the symbol after it comes again.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        node, bit: node of the tree of a symbol's bits, and its depth.
        expected: output.
    """
    for q in range(len(tables.match_lengths)):
        expected[q] = -1
        if registers[MATCH + 2 * q + 1] > 0:
            symbol = symbol_at(tables.symbols, recent, registers[MATCH + 2 * q])
            # The end is below symbol 0.
            is_end = symbol == tables.n_symbols
            leaf = (1 << tables.n_bits) + (0 if is_end else symbol)
            if bit < tables.n_bits:
                if leaf >> (tables.n_bits - bit) == node:
                    expected[q] = (leaf >> (tables.n_bits - bit - 1)) & 1
            elif leaf == node:
                expected[q] = 1 if is_end else 0


@compiled(allocates=False, inner=True)
def node_row(node: int, bit: int) -> int:
    """Return the index of the weight vector of a mixer for the decision at a node of the tree of a symbol's bits.

    Each node has its own; beyond ``NODE_ROWS`` nodes, those of one depth share one.

    Args:
        node, bit: node of the tree, and its depth.
    """
    return node if node < tables_.NODE_ROWS else tables_.NODE_ROWS - 1 - bit


@compiled(allocates=False, inner=True)
def selected_row(
    registers: np.ndarray, selector: int, node: int, bit: int, n_hits: int, match: int, what: np.ndarray
) -> int:
    """Return which of its weight vectors a mixer uses for a decision.

    A selector is a rule that chooses the vector by the node, the last symbol, the match (an earlier equal string) and
    the like.

    Args:
        registers: integers that describe the sequence so far.
        selector: number of the rule, such as ``BY_NODE``.
        node, bit: node of the decision in the tree of a symbol's bits, and its depth.
        n_hits: number of contexts that were seen before.
        match: length and expected bit of the longest match, as one number.
        what: integers that describe the number (sample) that the symbol is part of.
    """
    depth = min(bit, NODE_DEPTHS - 1)
    if selector == tables_.BY_NODE:
        return node_row(node, bit)
    if selector == tables_.BY_SYMBOL:
        return int(registers[RECENT]) % SYMBOL_ROWS * NODE_DEPTHS + depth
    if selector == tables_.BY_MATCH:
        return min(n_hits, tables_.MAX_HITS) * tables_.N_MATCH_STATES + match
    if selector == tables_.BY_SECOND_SYMBOL:
        return int(registers[RECENT + 1]) % SYMBOL_ROWS * NODE_DEPTHS + depth
    if selector == tables_.BY_WORD and registers[KIND] > 0:
        part = what[1] if what[0] == 1 else 2 * (what[1] & 1) + what[2]
        return int((part * 16 + min(15, what[5])) * NODE_DEPTHS + depth + 512 * (what[0] - 1))
    if selector == tables_.BY_WORD:
        length = min(registers[WORD_LENGTH], tables_.N_WORD_LENGTHS - 1)
        return int((length * tables_.N_CLASSES + registers[LAST_CLASS]) * tables_.N_CLASSES + registers[CLASS])
    if selector == tables_.BY_CLASS:
        return int(registers[CLASS]) * NODE_DEPTHS + depth
    return 0


@compiled(allocates=False, inner=True)
def mixed_logit(
    tables: MixingTables,
    registers: np.ndarray,
    buckets: np.ndarray,
    node: int,
    bit: int,
    expected: np.ndarray,
    what: np.ndarray,
    expected_number: np.ndarray,
    inputs: np.ndarray,
    rows: np.ndarray,
    logits: np.ndarray,
) -> float:
    """Return ``log(p / (1 - p))`` of bit 1 at a node as the mixers predict it, before refinement.

    A mixer is a weighted sum of the predictions (log-odds) of all contexts and matches.

    Args:
        tables, registers: learned arrays of the model, and integers that describe the sequence so far.
        buckets: hash-table slot of each of N contexts, ``(N,)``; -1 for a new context.
        node, bit: node of the tree of a symbol's bits, and its depth.
        expected: bit that each of Q matches (earlier equal strings) predicts, or -1, ``(Q,)``.
        what, expected_number: description and expectation of the number (sample) that the symbol is part of.
        inputs, rows, logits: outputs: the inputs, the selected weight vectors and the outputs of the K mixers.
    """
    floats, counters, stretch = tables.floats, tables.counters, tables.stretch
    n_contexts, n_used = len(tables.first_bucket), n_in_use(tables, registers)
    # Within its bucket, a node is numbered as if the bucket's first node were the root.
    depth = bit % BITS_PER_BUCKET
    entry = (1 << depth) | (node & ((1 << depth) - 1))
    n_hits = 0
    chained = 0.0
    for i in range(n_used):
        counter = NEW_COUNTER
        if buckets[i] >= 0:
            counter = int(counters[buckets[i] * BUCKET + entry])
        history = counter & (N_HISTORIES - 1)
        at = INPUTS_PER_CONTEXT * i
        if history == 0:
            inputs[at] = 0.0
            inputs[at + 1] = 0.0
            inputs[at + 2] = 0.0
            inputs[at + 3] = chained
        else:
            p = floats[i * N_HISTORIES + history]
            inputs[at] = stretch[int(p * (N_STRETCH - 1))]
            inputs[at + 1] = stretch[counter >> 19]
            inputs[at + 2] = (p - 0.5) * CONFIDENCE_SCALE
            pair = tables.chain_at + 2 * (i * N_HISTORIES + history)
            chained = clipped(floats[pair] * chained + floats[pair + 1])
            inputs[at + 3] = chained
            if tables.contexts[0, i] < 10:
                n_hits += 1
    for j in range(INPUTS_PER_CONTEXT * n_used, INPUTS_PER_CONTEXT * n_contexts):
        inputs[j] = 0.0
    inputs[INPUTS_PER_CONTEXT * n_contexts - 1] = chained
    at = INPUTS_PER_CONTEXT * n_contexts
    match = 0
    for q in range(len(tables.match_lengths)):
        inputs[at] = 0.0
        inputs[at + 1] = 0.0
        if expected[q] >= 0:
            length = min(registers[MATCH + 2 * q + 1], N_MATCH_LENGTHS - 1)
            p = floats[tables.match_maps_at + q * N_MATCH_LENGTHS + length]
            sign = 1.0 if expected[q] == 1 else -1.0
            inputs[at] = sign * stretch[int(p * (N_STRETCH - 1))]
            inputs[at + 1] = sign * (p - 0.5) * CONFIDENCE_SCALE
            if match == 0:
                match = 2 * (1 + (8 if length > 24 else min(length, 15) // 2)) + expected[q]
        at += INPUTS_PER_MATCH
    for e in range(tables.n_experts):
        inputs[at] = 0.0
        if registers[KIND] > 0 and bit < 8:
            set_input(what, expected_number, e, node, bit, inputs, at)
        at += INPUTS_PER_EXPERT
    inputs[at] = BIAS

    result = 0.0
    n_selectors = len(tables.selectors)
    final = tables.final_weights_at + node_row(node, bit) * n_selectors
    for k in range(n_selectors):
        row = tables.first_row[k] + selected_row(registers, tables.selectors[k], node, bit, n_hits, match, what)
        rows[k] = row
        start = tables.weights_at + row * tables.n_inputs
        sum_0, sum_1, sum_2, sum_3 = 0.0, 0.0, 0.0, 0.0  # four sums, so that a processor can add them in parallel
        for j in range(0, tables.n_inputs, 4):
            sum_0 += floats[start + j] * inputs[j]
            sum_1 += floats[start + j + 1] * inputs[j + 1]
            sum_2 += floats[start + j + 2] * inputs[j + 2]
            sum_3 += floats[start + j + 3] * inputs[j + 3]
        logits[k] = clipped((sum_0 + sum_1) + (sum_2 + sum_3))
        result += floats[final + k] * logits[k]
    rows[n_selectors] = 0
    if tables.second_final_at > 0:
        result *= 0.5
        row = selected_row(registers, tables_.BY_MATCH, node, bit, n_hits, match, what)
        second = tables.second_final_at + row * n_selectors
        rows[n_selectors] = second
        for k in range(n_selectors):
            result += 0.5 * floats[second + k] * logits[k]
    return clipped(result)


@compiled(allocates=False)
def refined(
    tables: MixingTables,
    registers: np.ndarray,
    node: int,
    logit: float,
    refined_at: np.ndarray,
    above: np.ndarray,
    bit: int,
) -> float:
    """Return the final probability of bit 1: the mean of the mixed one and of outcomes after similar predictions.

    The outcomes are looked up by the prediction, the node and the last 0, 1, ... symbols.

    Args:
        tables, registers: learned arrays of the model, and integers that describe the sequence so far.
        node, bit: node of the tree of a symbol's bits, and its depth.
        logit: mixed log-odds of bit 1.
        refined_at: output: indices of the entries used, ``(N_REFINEMENTS,)``.
        above: output: interpolation weight of the entry after each, at index ``bit``.
    """
    floats = tables.floats
    place = (logit + LARGEST_LOGIT) * ((REFINEMENT_POINTS - 1) / (2 * LARGEST_LOGIT))
    point = min(int(place), REFINEMENT_POINTS - 2)
    above[bit] = place - point
    h = 7
    total = 2.0 * logistic(logit)
    for a in range(N_REFINEMENTS):
        row = combined(h, node) & tables.refinement_mask
        at = tables.refinements_at + (a * (tables.refinement_mask + 1) + row) * REFINEMENT_POINTS + point
        refined_at[a] = at
        total += floats[at] * (1 - above[bit]) + floats[at + 1] * above[bit]
        h = combined(h, registers[RECENT + a])
    return total / (2.0 + N_REFINEMENTS)


@compiled(allocates=False, inner=True)
def log_prob_of_symbol(
    tables: MixingTables, registers: np.ndarray, recent: np.ndarray, symbol: int, end: int, decisions: Decisions
) -> float:
    """Return ``log p(symbol)`` in nats, the sum over its binary decisions, which are written to ``decisions``.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        symbol: the symbol, or V (the number of symbols) for the end.
        end: 1 if the end can occur here, 0 if it cannot yet or is no event.
        decisions: buffers that are written; ``node`` is 0 for a decision that was certain or not needed.
    """
    n_bits = tables.n_bits
    begin_symbol(tables, registers, recent, decisions)
    leaf = (1 << n_bits) + (0 if symbol == tables.n_symbols else symbol)
    log_prob = 0.0
    for bit in range(n_bits + 1):
        decisions.node[bit] = 0
        node = leaf >> (n_bits - bit)
        if bit == n_bits:
            if end == 0 or node != 1 << n_bits:
                continue
            y = 1 if symbol == tables.n_symbols else 0
        else:
            y = (leaf >> (n_bits - bit - 1)) & 1
        group = bit // BITS_PER_BUCKET
        if bit % BITS_PER_BUCKET == 0:
            find_buckets(tables, registers, decisions.hashes, node, decisions.buckets[group])
        if bit < n_bits and is_decided(tables.n_bits, tables.n_symbols, node, bit):
            continue
        decisions.node[bit] = node
        p = probability(tables, registers, recent, decisions.buckets[group], node, bit, decisions)
        log_prob += math.log(p if y == 1 else 1.0 - p)
    return log_prob


@compiled(allocates=False, inner=True)
def probability(
    tables: MixingTables,
    registers: np.ndarray,
    recent: np.ndarray,
    buckets: np.ndarray,
    node: int,
    bit: int,
    decisions: Decisions,
) -> float:
    """Return the probability of bit 1 at a node, and write the numbers it was computed from to ``decisions``.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        buckets: hash-table slot of each of N contexts, ``(N,)``; -1 for a new context.
        node, bit: node of the tree of a symbol's bits, and its depth.
        decisions: buffers that are written.
    """
    expected_bits(tables, registers, recent, node, bit, decisions.expected[bit])
    logit = mixed_logit(
        tables,
        registers,
        buckets,
        node,
        bit,
        decisions.expected[bit],
        decisions.what,
        decisions.expected_number,
        decisions.inputs[bit],
        decisions.rows[bit],
        decisions.logits[bit],
    )
    decisions.mixed[bit] = logistic(logit)
    p = refined(tables, registers, node, logit, decisions.refined_at[bit], decisions.above, bit)
    decisions.p[bit] = p
    return p


@compiled(allocates=False)
def log_odds_of_decisions(
    tables: MixingTables,
    registers: np.ndarray,
    recent: np.ndarray,
    symbol: int,
    end: int,
    decisions: Decisions,
    log_odds: np.ndarray,
) -> None:
    """Write the log-odds of the end, and of each bit of a symbol given that it is not the end, to ``log_odds``.

    In this model the decision on the end is below symbol 0, so the path to symbol 0 is evaluated to compute the odds of
    the end.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        symbol: the symbol, or V (the number of symbols) for the end.
        end: 1 if the end can occur here, 0 if it cannot yet or is no event.
        decisions: buffers that are written.
        log_odds: output, ``(n_bits + 1,)``: of the end, then of the bits, highest first; 0 for a decision that was
            certain or not needed.
    """
    n_bits = tables.n_bits
    for bit in range(n_bits + 1):
        log_odds[bit] = 0.0
    if end == 1:
        log_prob_of_symbol(tables, registers, recent, tables.n_symbols, 1, decisions)
        log_end = math.log(decisions.p[n_bits])
        log_symbols = math.log(1.0 - decisions.p[n_bits])  # symbols below a node on the path to symbol 0
        for bit in range(n_bits - 1, -1, -1):
            if decisions.node[bit] == 0:
                continue
            log_zero, log_one = math.log(1.0 - decisions.p[bit]), math.log(decisions.p[bit])
            log_end += log_zero
            log_odds[bit + 1] = log_one - (log_zero + log_symbols)
            high, low = max(log_one, log_zero + log_symbols), min(log_one, log_zero + log_symbols)
            log_symbols = high + math.log1p(math.exp(low - high))
        log_odds[0] = log_end - log_symbols
    log_prob_of_symbol(tables, registers, recent, symbol, end, decisions)
    for bit in range(n_bits):
        if symbol == tables.n_symbols or decisions.node[bit] == 0:
            log_odds[bit + 1] = 0.0
        elif end == 0 or decisions.node[bit] != 1 << bit:
            log_odds[bit + 1] = math.log(decisions.p[bit]) - math.log(1.0 - decisions.p[bit])


@compiled
def log_probs_of_all(
    tables: MixingTables,
    registers: np.ndarray,
    recent: np.ndarray,
    end: int,
    decisions: Decisions,
    log_probs: np.ndarray,
) -> None:
    """Write the log-probabilities in nats of every next symbol and of the end to ``log_probs``.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far.
        end: 1 if the end can occur here; 0 if not, which makes its log-probability -inf.
        decisions: buffers that are written.
        log_probs: output, ``(V + 1,)`` for V symbols, with the end last.
    """
    n_bits, n_symbols = tables.n_bits, tables.n_symbols
    begin_symbol(tables, registers, recent, decisions)
    at_node = np.full(2 << n_bits, -np.inf)
    at_node[1] = 0.0
    for first_bit in range(0, n_bits, BITS_PER_BUCKET):
        for first in range(1 << first_bit, 2 << first_bit):
            if at_node[first] == -np.inf:
                continue
            group = first_bit // BITS_PER_BUCKET
            find_buckets(tables, registers, decisions.hashes, first, decisions.buckets[group])
            for bit in range(first_bit, min(first_bit + BITS_PER_BUCKET, n_bits)):
                depth = bit - first_bit
                for node in range(first << depth, (first + 1) << depth):
                    if at_node[node] == -np.inf:
                        continue
                    if is_decided(tables.n_bits, tables.n_symbols, node, bit):
                        at_node[2 * node] = at_node[node]
                        continue
                    p = probability(tables, registers, recent, decisions.buckets[group], node, bit, decisions)
                    at_node[2 * node] = at_node[node] + math.log(1.0 - p)
                    at_node[2 * node + 1] = at_node[node] + math.log(p)
    for symbol in range(n_symbols):
        log_probs[symbol] = at_node[(1 << n_bits) + symbol]
    log_probs[n_symbols] = -np.inf
    if end == 1:
        group = n_bits // BITS_PER_BUCKET
        node = 1 << n_bits
        first = node >> (n_bits % BITS_PER_BUCKET)
        find_buckets(tables, registers, decisions.hashes, first, decisions.buckets[group])
        p = probability(tables, registers, recent, decisions.buckets[group], node, n_bits, decisions)
        log_probs[n_symbols] = log_probs[0] + math.log(p)
        log_probs[0] += math.log(1.0 - p)


# -- learning ----------------------------------------------------------------------------------------------


@compiled(allocates=False, inner=True)
def learn(
    tables: MixingTables, registers: np.ndarray, symbol: int, decisions: Decisions, log: UndoLog, is_logged: bool
) -> None:
    """Update counters and weights with a symbol whose decisions ``log_prob_of_symbol`` has written.

    Args:
        tables, registers: learned arrays of the model, which are changed, and integers that describe the sequence so
            far.
        symbol: the symbol, or V (the number of symbols) for the end.
        decisions: what was predicted.
        log, is_logged: log in which changed numbers are saved first if ``is_logged`` is True, so that the step can be
            undone.
    """
    floats, options = tables.floats, tables.options
    n_bits = tables.n_bits
    leaf = (1 << n_bits) + (0 if symbol == tables.n_symbols else symbol)
    registers[N_LEARNED] += 1
    if tables.n_experts > 0:
        learn_number(tables, registers, decisions.what, decisions.expected_number, symbol, log, is_logged)
    decay = 1.0 + registers[N_LEARNED] * options[tables_.LR_DECAY]
    lr = max(options[tables_.LAST_LR], options[tables_.LR] / decay)
    final_lr = max(options[tables_.LAST_FINAL_LR], options[tables_.FINAL_LR] / decay)
    prepared = -1
    for bit in range(n_bits + 1):
        node = decisions.node[bit]
        if node == 0:
            continue
        y = (leaf >> (n_bits - bit - 1)) & 1 if bit < n_bits else (1 if symbol == tables.n_symbols else 0)
        group = bit // BITS_PER_BUCKET
        if group != prepared:
            prepared = group
            first = node >> (bit % BITS_PER_BUCKET)
            prepare_buckets(tables, registers, decisions.hashes, first, decisions.buckets[group], log, is_logged)
        learn_counters(tables, registers, decisions.buckets[group], node, bit, y, decisions, log, is_logged)
        for q in range(len(tables.match_lengths)):
            if decisions.expected[bit, q] >= 0:
                length = min(registers[MATCH + 2 * q + 1], N_MATCH_LENGTHS - 1)
                at = tables.match_maps_at + q * N_MATCH_LENGTHS + length
                if is_logged:
                    keep_floats(log, floats, at, 1)
                target = 1.0 if decisions.expected[bit, q] == y else 0.0
                floats[at] += (target - floats[at]) * options[tables_.MATCH_RATE]
        learn_weights(tables, node, bit, y, lr, final_lr, decisions, log, is_logged)
        for a in range(N_REFINEMENTS):
            at, above = decisions.refined_at[bit, a], decisions.above[bit]
            rate = options[tables_.REFINEMENT_RATE]
            if is_logged:
                keep_floats(log, floats, at, 2)
            floats[at] += (y - floats[at]) * rate * (1 - above)
            floats[at + 1] += (y - floats[at + 1]) * rate * above


@compiled(allocates=False, inner=True)
def prepare_buckets(
    tables: MixingTables,
    registers: np.ndarray,
    hashes: np.ndarray,
    first: int,
    buckets: np.ndarray,
    log: UndoLog,
    is_logged: bool,
) -> None:
    """Give each context that has no hash-table slot (bucket) for the next 3 decisions a new one.

    It may be taken from another context.

    Args:
        tables, registers: learned arrays of the model, and integers that describe the sequence so far.
        hashes: hash of each of N contexts, ``(N,)``.
        first: node of the first of the decisions in the tree of a symbol's bits.
        buckets: slot of each context, or -1, ``(N,)``; the new ones are written.
        log, is_logged: log in which changed slots are saved first if ``is_logged`` is True.
    """
    counters = tables.counters
    for i in range(n_in_use(tables, registers)):
        is_new = buckets[i] < 0
        if is_new:
            key = combined(hashes[i], first)
            buckets[i] = bucket_to_replace(counters, tables.first_bucket[i], tables.bucket_mask[i], key)
        if is_logged:
            keep_bucket(log, counters, buckets[i])
        if is_new:
            counters[buckets[i] * BUCKET] = combined(hashes[i], first) + 1
            for j in range(1, BUCKET):
                counters[buckets[i] * BUCKET + j] = NEW_COUNTER


@compiled(allocates=False, inner=True)
def learn_counters(
    tables: MixingTables,
    registers: np.ndarray,
    buckets: np.ndarray,
    node: int,
    bit: int,
    y: int,
    decisions: Decisions,
    log: UndoLog,
    is_logged: bool,
) -> None:
    """Update the counter of every context at a node with the outcome ``y``, and the probability of its bit history.

    A bit history is a summary of the bits seen after a context.

    Args:
        tables, registers: learned arrays of the model, and integers that describe the sequence so far.
        buckets: hash-table slot of each of N contexts, ``(N,)``.
        node, bit: node of the tree of a symbol's bits, and its depth.
        y: outcome of the decision, 0 or 1.
        decisions: what was predicted.
        log, is_logged: log in which changed numbers are saved first if ``is_logged`` is True.
    """
    floats, counters, rates, level_steps = tables.floats, tables.counters, tables.rates, tables.level_steps
    depth = bit % BITS_PER_BUCKET
    entry = (1 << depth) | (node & ((1 << depth) - 1))
    for i in range(n_in_use(tables, registers)):
        at = buckets[i] * BUCKET + entry
        counter = int(counters[at])
        history, level, p = counter & (N_HISTORIES - 1), (counter >> 9) & 63, counter >> 15
        if history > 0:
            meaning = i * N_HISTORIES + history
            count = floats[tables.map_counts_at + meaning]
            if is_logged:
                keep_floats(log, floats, meaning, 1)
                keep_floats(log, floats, tables.map_counts_at + meaning, 1)
            floats[meaning] += (y - floats[meaning]) / (count + 1.5)
            pair = tables.chain_at + 2 * (i * N_HISTORIES + history)
            if is_logged:
                keep_floats(log, floats, pair, 2)
            error = (y - logistic(decisions.inputs[bit, INPUTS_PER_CONTEXT * i + 3])) * tables.options[tables_.CHAIN_LR]
            if i > 0:
                floats[pair] += error * decisions.inputs[bit, INPUTS_PER_CONTEXT * i - 1]
            floats[pair + 1] += error
            if count < tables.options[tables_.MAP_LIMIT]:
                floats[tables.map_counts_at + meaning] = count + 1.0
        if y == 1:
            p = min(65_535, p + max(1, int((65_535 - p) * rates[level])))
        else:
            p = max(0, p - max(1, int(p * rates[level])))
        # One in level_steps observations raises the level; the low bits of p select it, instead of a random draw.
        if level < tables_.N_LEVELS - 1 and ((p * 40_503) >> 3) % level_steps[level] == 0:
            level += 1
        counters[at] = (p << 15) | (level << 9) | tables.history_after[history, y]


@compiled(allocates=False, inner=True)
def learn_weights(
    tables: MixingTables,
    node: int,
    bit: int,
    y: int,
    lr: float,
    final_lr: float,
    decisions: Decisions,
    log: UndoLog,
    is_logged: bool,
) -> None:
    """Move each weight vector that predicted a decision along the gradient of ``log p`` of its outcome ``y``.

    Args:
        tables: learned arrays of the model.
        node, bit: node of the tree of a symbol's bits, and its depth.
        y: outcome of the decision, 0 or 1.
        lr: learning rate of the mixers in files of earlier versions; in others it falls with the updates of each
            vector.
        final_lr: learning rate of the final mixer.
        decisions: what was predicted.
        log, is_logged: log in which changed numbers are saved first if ``is_logged`` is True.
    """
    floats, options = tables.floats, tables.options
    n_selectors, n_inputs = len(tables.selectors), tables.n_inputs
    final = tables.final_weights_at + node_row(node, bit) * n_selectors
    final_error = (y - decisions.mixed[bit]) * final_lr
    second = decisions.rows[bit, n_selectors]
    if is_logged:
        keep_floats(log, floats, final, n_selectors)
        if second > 0:
            keep_floats(log, floats, second, n_selectors)
    for k in range(n_selectors):
        logit = decisions.logits[bit, k]
        floats[final + k] += final_error * logit
        if second > 0:
            floats[second + k] += final_error * logit
        start = tables.weights_at + decisions.rows[bit, k] * n_inputs
        if is_logged:
            keep_floats(log, floats, start, n_inputs)
        row_lr = lr
        if tables.row_counts_at > 0:
            at = tables.row_counts_at + decisions.rows[bit, k]
            decay = 1.0 + floats[at] * options[tables_.ROW_LR_DECAY]
            row_lr = max(options[tables_.LAST_LR], options[tables_.LR] / decay)
            if is_logged:
                keep_floats(log, floats, at, 1)
            floats[at] += 1.0
        error = (y - logistic(logit)) * row_lr
        for j in range(n_inputs):
            floats[start + j] += error * decisions.inputs[bit, j]


def changes_per_step(tables: MixingTables) -> tuple[int, int, int, int]:
    """Return the largest numbers of changes that learning from one symbol may make, which size an undo log.

    They are the numbers of changed hash-table slots, ranges of floats, floats and integers of ``tables``.
    """
    depth, n_contexts = tables.n_bits + 1, len(tables.first_bucket)
    n_selectors, n_matches = len(tables.selectors), len(tables.match_lengths)
    ranges = depth * (3 * n_contexts + n_matches + 2 + 2 * n_selectors + N_REFINEMENTS)
    per_decision = 4 * n_contexts + n_matches + n_selectors * (3 + tables.n_inputs) + 2 * N_REFINEMENTS
    n_groups = depth // BITS_PER_BUCKET + 1
    if tables.n_experts > 0:
        ranges += N_EXPERTS + N_FITS
        per_decision += (N_EXPERTS + N_FITS * N_FEATURES * (N_FEATURES + 2)) // depth + 1
    return n_groups * n_contexts, ranges, depth * per_decision, n_matches + 2


# -- sequences ---------------------------------------------------------------------------------------------


@compiled(allocates=False, inner=True)
def advance(
    tables: MixingTables,
    registers: np.ndarray,
    recent: np.ndarray,
    symbol: int,
    is_learned: bool,
    log: UndoLog,
    is_logged: bool,
) -> None:
    """Update the description of a sequence, ``registers``, after reading one more symbol.

    Args:
        tables: learned arrays of the model.
        registers: integers that describe the sequence so far, which are changed.
        recent: symbols of the sequence so far, to which the symbol is added.
        symbol: the symbol.
        is_learned: True to update also the tables of which symbols followed a context and where strings occurred.
        log, is_logged: log in which changed numbers are saved first if ``is_logged`` is True.
    """
    if is_learned:
        for order in range(2):
            row = registers[INDIRECT_ROW_1] if order == 0 else registers[INDIRECT_ROW_2]
            at = tables.indirect_at + order * (tables.indirect_mask + 1) + row
            if is_logged:
                keep_integer(log, tables.integers, at)
            tables.integers[at] = (tables.integers[at] * 256 + symbol + 1) % SYMBOLS_IN_INDIRECT
    push(tables, registers, recent, symbol)
    if tables.n_experts > 0 and registers[LAYOUT] == BINARY and registers[N_READ] % CHOSEN_EVERY == 0:
        choose_period(tables, registers, recent)
    if tables.n_experts > 0 and is_time_to_look(registers[N_READ]):
        choose_kind(tables, registers, recent)
    find_matches(tables, registers, recent)
    if is_learned:
        for q in range(len(tables.match_lengths)):
            slot = match_slot(tables, registers, recent, q)
            if slot >= 0:
                if is_logged:
                    keep_integer(log, tables.integers, slot)
                tables.integers[slot] = registers[POSITION]


@compiled(allocates=False)
def read(
    tables: MixingTables,
    registers: np.ndarray,
    recent: np.ndarray,
    symbols: np.ndarray,
    first_end: int,
    is_learned: bool,
    decisions: Decisions,
    log: UndoLog,
    is_logged: bool,
    log_prob: np.ndarray,
) -> None:
    """Read T symbols of one sequence: write the log-probability of each to ``log_prob``, then learn from it.

    Args:
        tables, registers, recent: learned arrays, integers that describe the sequence, and its symbols so far, which
            are all changed.
        symbols: the symbols, ``(T,)``; the last may be V (the number of symbols), the end.
        first_end: index of the first symbol that may be the end.
        is_learned: True if the model learns from each symbol.
        decisions, log: buffers for the decisions of a symbol, and for the changes of each step.
        is_logged: True if changes are saved in the log while there is room.
        log_prob: output in nats, ``(T,)``. If its length is 0, nothing is predicted, and only the tables of symbols
            that followed a context, and of strings, are updated.
    """
    for t in range(len(symbols)):
        symbol = int(symbols[t])
        end = 1 if t >= first_end else 0
        is_kept = is_logged and begin_step(log, registers)
        if len(log_prob) > 0:
            log_prob[t] = log_prob_of_symbol(tables, registers, recent, symbol, end, decisions)
            if is_learned:
                learn(tables, registers, symbol, decisions, log, is_kept)
            if tables.n_experts > 0:
                note_error(registers, decisions.what, decisions.expected_number, symbol)
        if symbol < tables.n_symbols:
            advance(tables, registers, recent, symbol, is_learned, log, is_kept)
