"""The loops of context-tree weighting, for one binary decision after the other.

A record is what one context has seen of one decision: counts of both bits, and the logarithm of the odds ``P_e / P_w``
of predicting by its counts to predicting by the context one symbol longer. Records are in open-addressing hash tables:
those of the fit, which are never written to when sequences are scored, and those of the sequence that is read.

Estimate of the context of d symbols, for a bit of 1 with counts ``c_0, c_1`` and ``n = c_0 + c_1``::

    e_d = (c_1 + inherited e_{d-1} + pseudocount) / (n + inherited + 2 pseudocount)

Mixture, from the longest context to the shortest, where ``g`` is the gate of both contexts' confidence::

    p_D = e_D,    p_d = b_d e_d + (1 - b_d) p_{d+1},    b_d = sigmoid(log_odds_d + g)

and after the bit ``log_odds_d += weight_rate log(e_d(bit) / p_{d+1}(bit))``. With ``inherited`` and ``g`` 0, a rate of
1 and a pseudocount of 1/2 that is context-tree weighting exactly (Willems, Shtarkov & Tjalkens 1995).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.compiled import compiled
from seqmodels.context_tree.decomposition import DecisionPaths

EMPTY = -1  # no record at this place of a table
N_CLASSES = 25  # of a record by its counts: none; 12 sizes where one bit came only; 12 where both did
MAX_LOAD = 0.7  # of a table


class Table(NamedTuple):
    """``keys (S,)`` int64, S a power of two; ``values (S, 3)`` float32: two counts, log-odds; ``n_used (1,)``."""

    keys: np.ndarray
    values: np.ndarray
    n_used: np.ndarray


class Rule(NamedTuple):
    """The constants of estimates and updates."""

    root_pseudocount: float  # of each bit, in the empty context
    pseudocount: float  # in longer ones
    inherited: float  # pseudo-observations that are predicted by the context one shorter
    max_count: float  # of a record: with more, both of its counts are halved
    weight_rate: float
    max_log_odds: float
    gate_rate: float  # of gradient steps of the gates during the fit


class Steps(NamedTuple):
    """Events ``outcomes (T,)`` and the ``hashes (T, D + 1)`` of their contexts, of which there are ``n_contexts``."""

    outcomes: np.ndarray
    hashes: np.ndarray
    n_contexts: np.ndarray


class Buffers(NamedTuple):
    """Of the decision at hand, for each depth: record, class, estimate, mixture and its weight, of a bit of 1."""

    records: np.ndarray  # (D + 1, 3)
    classes: np.ndarray  # (D + 1,)
    estimates: np.ndarray
    mixtures: np.ndarray
    weights: np.ndarray


class Undo(NamedTuple):
    """What records of the sequence were before the last step: ``n (1,)`` of ``keys (L,)`` and ``values (L, 3)``."""

    keys: np.ndarray
    values: np.ndarray
    n: np.ndarray


@compiled
def place(keys: np.ndarray, key: int) -> int:
    """Where a key is in a table, or would be."""
    mask = len(keys) - 1
    i = key & mask
    while keys[i] != EMPTY and keys[i] != key:
        i = (i + 1) & mask
    return i


@compiled
def confidence(zeros: float, ones: float) -> int:
    """The class of a record, by its counts."""
    n = zeros + ones
    if n == 0.0:
        return 0
    size = min(int(math.log2(n + 1e-9) * 2.0 + 1e-6), 11)
    if size < 0:
        size = 0
    if zeros > 0.0 and ones > 0.0:
        return 13 + size
    return 1 + size


@compiled
def predict(
    hashes: np.ndarray,
    n_contexts: int,
    node_hash: int,
    fitted: Table,
    read: Table,
    gates: np.ndarray,
    rule: Rule,
    buffers: Buffers,
) -> float:
    """The probability that the bit at a node is 1; ``buffers`` hold how it came about."""
    for d in range(n_contexts):
        key = hashes[d] ^ node_hash
        i = place(read.keys, key)
        if read.keys[i] != EMPTY:
            for k in range(3):
                buffers.records[d, k] = read.values[i, k]
        else:
            i = place(fitted.keys, key)
            is_there = fitted.keys[i] != EMPTY
            for k in range(3):
                buffers.records[d, k] = fitted.values[i, k] if is_there else 0.0
        zeros = buffers.records[d, 0]
        ones = buffers.records[d, 1]
        buffers.classes[d] = confidence(zeros, ones)
        if d == 0:
            buffers.estimates[d] = (ones + rule.root_pseudocount) / (zeros + ones + 2.0 * rule.root_pseudocount)
        else:
            buffers.estimates[d] = (ones + rule.inherited * buffers.estimates[d - 1] + rule.pseudocount) / (
                zeros + ones + rule.inherited + 2.0 * rule.pseudocount
            )
    last = n_contexts - 1
    buffers.mixtures[last] = buffers.estimates[last]
    for d in range(last - 1, -1, -1):
        log_odds = buffers.records[d, 2] + gates[d, buffers.classes[d], buffers.classes[d + 1]]
        weight = 1.0 / (1.0 + math.exp(-log_odds))
        buffers.weights[d] = weight
        buffers.mixtures[d] = weight * buffers.estimates[d] + (1.0 - weight) * buffers.mixtures[d + 1]
    return float(buffers.mixtures[0])


@compiled
def update(
    bit: int,
    hashes: np.ndarray,
    n_contexts: int,
    node_hash: int,
    read: Table,
    gates: np.ndarray,
    rule: Rule,
    buffers: Buffers,
    undo: Undo,
) -> None:
    """Learn from the bit that was predicted last; ``read`` gets the records, the gates a step if they have a rate."""
    sign = 1.0 if bit == 1 else -1.0
    p = buffers.mixtures[0] if bit == 1 else 1.0 - buffers.mixtures[0]
    reached = 1.0  # the weight with which the contexts from here on are mixed
    for d in range(n_contexts):
        key = hashes[d] ^ node_hash
        i = place(read.keys, key)
        if undo.keys.shape[0] > 0:
            undo.keys[undo.n[0]] = key
            for k in range(3):
                undo.values[undo.n[0], k] = buffers.records[d, k]
            undo.n[0] += 1
        if read.keys[i] == EMPTY:
            read.keys[i] = key
            read.n_used[0] += 1
        if d < n_contexts - 1:
            estimate = buffers.estimates[d] if bit == 1 else 1.0 - buffers.estimates[d]
            longer = buffers.mixtures[d + 1] if bit == 1 else 1.0 - buffers.mixtures[d + 1]
            if rule.gate_rate > 0.0:
                weight = buffers.weights[d]
                difference = sign * (buffers.estimates[d] - buffers.mixtures[d + 1])
                slope = reached * weight * (1.0 - weight) * difference / p
                gates[d, buffers.classes[d], buffers.classes[d + 1]] += rule.gate_rate * slope
                reached *= 1.0 - weight
            log_odds = buffers.records[d, 2] + rule.weight_rate * math.log(estimate / longer)
            read.values[i, 2] = min(max(log_odds, -rule.max_log_odds), rule.max_log_odds)
        zeros = buffers.records[d, 0] + (1.0 - bit)
        ones = buffers.records[d, 1] + bit
        if zeros + ones > rule.max_count:
            zeros *= 0.5
            ones *= 0.5
        read.values[i, 0] = zeros
        read.values[i, 1] = ones


@compiled
def read_steps(
    begin: int,
    steps: Steps,
    is_adaptive: bool,
    end: int,
    paths: DecisionPaths,
    node_hashes: np.ndarray,
    fitted: Table,
    read: Table,
    gates: np.ndarray,
    rule: Rule,
    buffers: Buffers,
    undo: Undo,
    log_probs: np.ndarray,
) -> int:
    """Predict each event from ``begin`` on, and learn from it; ``log_probs (T,)`` are written to.

    ``end`` is the outcome that cannot be the first event, or -1.

    Returns:
        The number of the next event: less than T where ``read`` may be too small for it.
    """
    room = MAX_LOAD * len(read.keys)
    n_depths = steps.hashes.shape[1]
    for t in range(begin, len(steps.outcomes)):
        outcome = steps.outcomes[t]
        first, last = paths.first[outcome], paths.first[outcome + 1]
        if is_adaptive and read.n_used[0] + (last - first) * n_depths > room:
            return t
        hashes = steps.hashes[t]
        n_contexts = steps.n_contexts[t]
        log_prob = 0.0
        if t == 0 and end >= 0:
            log_end = 0.0
            for j in range(paths.first[end], paths.first[end + 1]):
                p = predict(hashes, n_contexts, node_hashes[paths.nodes[j]], fitted, read, gates, rule, buffers)
                log_end += math.log(p if paths.bits[j] == 1 else 1.0 - p)
            log_prob = -math.log(-math.expm1(log_end))
        for j in range(first, last):
            node_hash = node_hashes[paths.nodes[j]]
            bit = paths.bits[j]
            p = predict(hashes, n_contexts, node_hash, fitted, read, gates, rule, buffers)
            log_prob += math.log(p if bit == 1 else 1.0 - p)
            if is_adaptive:
                update(bit, hashes, n_contexts, node_hash, read, gates, rule, buffers, undo)
        log_probs[t] = log_prob
    return len(steps.outcomes)


@compiled
def outcome_log_probs(
    hashes: np.ndarray,
    n_contexts: int,
    children: np.ndarray,
    node_hashes: np.ndarray,
    fitted: Table,
    read: Table,
    gates: np.ndarray,
    rule: Rule,
    buffers: Buffers,
    log_probs: np.ndarray,
) -> None:
    """The log-probability of every outcome, ``(V,)`` or ``(V + 1,)``."""
    reached = np.zeros(len(children))
    for node in range(len(children)):
        p = predict(hashes, n_contexts, node_hashes[node], fitted, read, gates, rule, buffers)
        for bit in range(2):
            log_prob = reached[node] + math.log(p if bit == 1 else 1.0 - p)
            child = children[node, bit]
            if child >= 0:
                reached[child] = log_prob
            else:
                log_probs[-1 - child] = log_prob


@compiled
def insert_all(keys: np.ndarray, values: np.ndarray, table: Table) -> None:
    """Put records into a table that has none of them; ``EMPTY`` keys are left out."""
    for j in range(len(keys)):
        if keys[j] != EMPTY:
            i = place(table.keys, keys[j])
            table.keys[i] = keys[j]
            for k in range(3):
                table.values[i, k] = values[j, k]
            table.n_used[0] += 1


@compiled
def take_back(undo: Undo, read: Table) -> None:
    """Undo a step: records are what they were before it."""
    for j in range(undo.n[0] - 1, -1, -1):
        i = place(read.keys, undo.keys[j])
        for k in range(3):
            read.values[i, k] = undo.values[j, k]
