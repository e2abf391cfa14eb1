"""The compiled loops of context-tree weighting, one binary decision after another.

A record holds what one context has seen of one decision: the counts of both bits, and the logarithm of the odds ``P_e /
P_w`` of predicting by these counts to predicting by the context one symbol longer. Records are in open-addressing hash
tables: one from the fit, which scoring never changes, and one for the sequence that is read.

The estimate of the context of d symbols for bit 1, with counts ``c_0, c_1`` and ``n = c_0 + c_1``, is::

    e_d = (c_1 + inherited e_{d-1} + pseudocount) / (n + inherited + 2 pseudocount)

The mixture goes from the longest context to the shortest, where ``g`` is the gate for the confidence of both contexts::

    p_D = e_D,    p_d = b_d e_d + (1 - b_d) p_{d+1},    b_d = sigmoid(log_odds_d + g)

After the bit, ``log_odds_d += weight_rate log(e_d(bit) / p_{d+1}(bit))``. With ``inherited`` and ``g`` 0, a rate of 1
and a pseudocount of 1/2, this is context-tree weighting exactly (Willems, Shtarkov and Tjalkens 1995).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled

EMPTY = -1  # key of an unused place in a hash table
N_CLASSES = 25  # classes of records by their counts: none; 12 sizes with a single bit seen; 12 sizes with both seen
MAX_LOAD = 0.7  # largest used share of a hash table


# Compiled functions take plain tuples of the fields of the classes below, because cached machine code refers to classes
# by name and could not be loaded after a class has been renamed.
Arrays = tuple[np.ndarray, ...]
Numbers = tuple[float, ...]


class Records(NamedTuple):
    """An open-addressing hash table that maps a pair (context, binary decision) to what was seen of it.

    A symbol is a path of binary decisions, and each context counts the bits of each decision.

    Attributes:
        keys: hashes of the pairs, int64 ``(S,)``, with S a power of two; ``EMPTY`` at unused places.
        values: counts of bit 0 and of bit 1, and log-odds of stopping at this context, float32 ``(S, 3)``.
        n_used: number of records, ``(1,)``.
    """

    keys: np.ndarray
    values: np.ndarray
    n_used: np.ndarray


class Rule(NamedTuple):
    """The constants by which context-tree weighting estimates a bit's probability from counts, and updates them.

    Attributes:
        root_pseudocount: pseudocount of each bit in the empty context.
        pseudocount: pseudocount of each bit in longer contexts.
        inherited: number of observations that the prediction of the context one symbol shorter counts as.
        max_count: both counts of a record are halved when their sum exceeds this.
        weight_rate: step size of the log-odds of a record, by which its context is weighted against longer ones.
        max_log_odds: largest magnitude of these log-odds.
        gate_rate: step size, during the fit, of the gates, which are learned initial values of log-odds.
    """

    root_pseudocount: float
    pseudocount: float
    inherited: float
    max_count: float
    weight_rate: float
    max_log_odds: float
    gate_rate: float


class Steps(NamedTuple):
    """The T events of a sequence (symbols, perhaps the end), and hashes of the contexts of 0 to D symbols before each.

    Attributes:
        outcomes: the events, ``(T,)``.
        hashes: hashes of the contexts of each event, shortest first, ``(T, D + 1)``.
        n_contexts: number of contexts of each event, ``(T,)``, fewer near the start.
    """

    outcomes: np.ndarray
    hashes: np.ndarray
    n_contexts: np.ndarray


class Buffers(NamedTuple):
    """The numbers from which the current binary decision was predicted, for contexts of 0 to D symbols.

    Attributes:
        records: two counts and log-odds of each context, ``(D + 1, 3)``.
        classes: class of each context by the size of its counts and whether both bits were seen, ``(D + 1,)``.
        estimates: estimated probability of bit 1 by each context alone, ``(D + 1,)``.
        mixtures: probability of bit 1 by each context mixed with all longer ones, ``(D + 1,)``.
        weights: weight of each context against longer ones, ``(D + 1,)``.
    """

    records: np.ndarray
    classes: np.ndarray
    estimates: np.ndarray
    mixtures: np.ndarray
    weights: np.ndarray


class Undo(NamedTuple):
    """The records of counts that the last step changed, as they were before, so that the step can be taken back.

    Attributes:
        keys: keys of the changed records, as in ``Records``, ``(L,)``.
        values: their earlier values (two counts and log-odds), ``(L, 3)``.
        n: number of entries in use, ``(1,)``.
    """

    keys: np.ndarray
    values: np.ndarray
    n: np.ndarray


@compiled(inner=True)
def place(keys: np.ndarray, key: int) -> int:
    """Return the index of a key in a hash table with linear probing, or of the free place where it would stand.

    Args:
        keys: keys of the table, ``(S,)``, with S a power of two; -1 at free places.
        key: the key, at least 0.
    """
    mask = len(keys) - 1
    i = key & mask
    while keys[i] != EMPTY and keys[i] != key:
        i = (i + 1) & mask
    return i


@compiled(inner=True)
def confidence(zeros: float, ones: float) -> int:
    """Return a number from 0 to ``N_CLASSES - 1`` for how much a context has seen, and whether one bit only.

    Args:
        zeros, ones: counts of both bits in the context.
    """
    n = zeros + ones
    if n == 0.0:
        return 0
    size = min(int(math.log2(n + 1e-9) * 2.0 + 1e-6), 11)
    if size < 0:
        size = 0
    if zeros > 0.0 and ones > 0.0:
        return 13 + size
    return 1 + size


@compiled(inner=True)
def predict(
    hashes: np.ndarray,
    n_contexts: int,
    node_hash: int,
    fitted: Arrays,
    read: Arrays,
    gates: np.ndarray,
    rule: Numbers,
    buffers: Arrays,
) -> float:
    """Return the probability of bit 1 at a binary decision, and write the numbers it was computed from to ``buffers``.

    Args:
        hashes: hashes of the contexts of 0 to D symbols, ``(D + 1,)``.
        n_contexts: number of contexts to use.
        node_hash: hash of the decision's node in the tree of decisions.
        fitted, read: ``Records`` (counts by context and decision) of the fit and of the sequence; the latter take
            precedence.
        gates: learned log-odds of stopping at a context, by its length, its class of confidence and that of the context
            one symbol longer, ``(D + 1, N_CLASSES, N_CLASSES)``.
        rule: constants, see ``Rule``.
        buffers: arrays that are written, see ``Buffers``.
    """
    read_keys, read_values, _ = read
    fitted_keys, fitted_values, _ = fitted
    root_pseudocount, pseudocount, inherited, _, _, _, _ = rule
    records, classes, estimates, mixtures, weights = buffers
    for d in range(n_contexts):
        key = hashes[d] ^ node_hash
        i = place(read_keys, key)
        if read_keys[i] != EMPTY:
            for k in range(3):
                records[d, k] = read_values[i, k]
        else:
            i = place(fitted_keys, key)
            is_there = fitted_keys[i] != EMPTY
            for k in range(3):
                records[d, k] = fitted_values[i, k] if is_there else 0.0
        zeros = records[d, 0]
        ones = records[d, 1]
        classes[d] = confidence(zeros, ones)
        if d == 0:
            estimates[d] = (ones + root_pseudocount) / (zeros + ones + 2.0 * root_pseudocount)
        else:
            estimates[d] = (ones + inherited * estimates[d - 1] + pseudocount) / (
                zeros + ones + inherited + 2.0 * pseudocount
            )
    last = n_contexts - 1
    mixtures[last] = estimates[last]
    for d in range(last - 1, -1, -1):
        log_odds = records[d, 2] + gates[d, classes[d], classes[d + 1]]
        weight = 1.0 / (1.0 + math.exp(-log_odds))
        weights[d] = weight
        mixtures[d] = weight * estimates[d] + (1.0 - weight) * mixtures[d + 1]
    return float(mixtures[0])


@compiled(inner=True)
def update(
    bit: int,
    hashes: np.ndarray,
    n_contexts: int,
    node_hash: int,
    read: Arrays,
    gates: np.ndarray,
    rule: Numbers,
    buffers: Arrays,
    undo: Arrays,
) -> None:
    """Learn one bit after ``predict`` predicted it: update the counts and log-odds of its contexts in ``read``.

    The gates take a gradient step if ``rule`` has a rate for them.

    Args:
        bit: the bit that came.
        hashes, n_contexts, node_hash: hashes of the contexts, how many to use, and hash of the decision, as for
            ``predict``.
        read: ``Records`` (counts by context and decision) of the sequence, which are changed.
        gates: learned log-odds of stopping at a context, ``(D + 1, N_CLASSES, N_CLASSES)``.
        rule: constants, see ``Rule``.
        buffers: numbers of the prediction, as ``predict`` wrote them.
        undo: arrays in which earlier values are saved if they have room, see ``Undo``.
    """
    keys, values, n_used = read
    undo_keys, undo_values, n_undo = undo
    _, _, _, max_count, weight_rate, max_log_odds, gate_rate = rule
    records, classes, estimates, mixtures, weights = buffers
    sign = 1.0 if bit == 1 else -1.0
    p = mixtures[0] if bit == 1 else 1.0 - mixtures[0]
    reached = 1.0  # weight of the contexts from here on in the mixture
    for d in range(n_contexts):
        key = hashes[d] ^ node_hash
        i = place(keys, key)
        if undo_keys.shape[0] > 0:
            undo_keys[n_undo[0]] = key
            for k in range(3):
                undo_values[n_undo[0], k] = records[d, k]
            n_undo[0] += 1
        if keys[i] == EMPTY:
            keys[i] = key
            n_used[0] += 1
        if d < n_contexts - 1:
            estimate = estimates[d] if bit == 1 else 1.0 - estimates[d]
            longer = mixtures[d + 1] if bit == 1 else 1.0 - mixtures[d + 1]
            if gate_rate > 0.0:
                weight = weights[d]
                difference = sign * (estimates[d] - mixtures[d + 1])
                slope = reached * weight * (1.0 - weight) * difference / p
                gates[d, classes[d], classes[d + 1]] += gate_rate * slope
                reached *= 1.0 - weight
            log_odds = records[d, 2] + weight_rate * math.log(estimate / longer)
            values[i, 2] = min(max(log_odds, -max_log_odds), max_log_odds)
        zeros = records[d, 0] + (1.0 - bit)
        ones = records[d, 1] + bit
        if zeros + ones > max_count:
            zeros *= 0.5
            ones *= 0.5
        values[i, 0] = zeros
        values[i, 1] = ones


@compiled
def read_steps(
    begin: int,
    steps: Arrays,
    is_adaptive: bool,
    end: int,
    paths: Arrays,
    node_hashes: np.ndarray,
    fitted: Arrays,
    read: Arrays,
    gates: np.ndarray,
    rule: Numbers,
    buffers: Arrays,
    undo: Arrays,
    log_probs: np.ndarray,
) -> int:
    """Predict each event from index ``begin`` on, write its log-probability, and learn from it if ``is_adaptive``.

    An event, or outcome, is a symbol or the end of the sequence, and is coded as a path of binary decisions.

    Args:
        begin: index of the first event to read.
        steps: T events and hashes of their contexts, see ``Steps``.
        is_adaptive: True if the events are learned.
        end: outcome that cannot be the first event, or -1.
        paths: binary decisions of each outcome, see ``DecisionPaths``.
        node_hashes: hash of each node of the tree of decisions.
        fitted, read: ``Records`` (counts by context and decision) of the fit and of the sequence.
        gates: learned log-odds of stopping at a context, ``(D + 1, N_CLASSES, N_CLASSES)``.
        rule, buffers, undo: constants, and arrays that are written; see ``Rule``, ``Buffers`` and ``Undo``.
        log_probs: output in nats, ``(T,)``.

    Returns:
        The index of the next event; less than T if the table ``read`` may be too small for it.
    """
    outcomes, all_hashes, all_n_contexts = steps
    path_starts, nodes, bits = paths
    read_keys, _, n_used = read
    room = MAX_LOAD * len(read_keys)
    n_depths = all_hashes.shape[1]
    for t in range(begin, len(outcomes)):
        outcome = outcomes[t]
        first, last = path_starts[outcome], path_starts[outcome + 1]
        if is_adaptive and n_used[0] + (last - first) * n_depths > room:
            return t
        hashes = all_hashes[t]
        n_contexts = all_n_contexts[t]
        log_prob = 0.0
        if t == 0 and end >= 0:
            log_end = 0.0
            for j in range(path_starts[end], path_starts[end + 1]):
                p = predict(hashes, n_contexts, node_hashes[nodes[j]], fitted, read, gates, rule, buffers)
                log_end += math.log(p if bits[j] == 1 else 1.0 - p)
            log_prob = -math.log(-math.expm1(log_end))
        for j in range(first, last):
            node_hash = node_hashes[nodes[j]]
            bit = bits[j]
            p = predict(hashes, n_contexts, node_hash, fitted, read, gates, rule, buffers)
            log_prob += math.log(p if bit == 1 else 1.0 - p)
            if is_adaptive:
                update(bit, hashes, n_contexts, node_hash, read, gates, rule, buffers, undo)
        log_probs[t] = log_prob
    return len(outcomes)


@compiled
def outcome_log_probs(
    hashes: np.ndarray,
    n_contexts: int,
    children: np.ndarray,
    node_hashes: np.ndarray,
    fitted: Arrays,
    read: Arrays,
    gates: np.ndarray,
    rule: Numbers,
    buffers: Arrays,
    log_probs: np.ndarray,
) -> None:
    """Write the log-probability in nats of every next event, ``(V,)``, or ``(V + 1,)`` with the end, to ``log_probs``.

    Args:
        hashes, n_contexts: hashes of the contexts of 0 to D symbols, ``(D + 1,)``, and how many to use.
        children: tree of binary decisions: both children of each node, ``(N, 2)``, see ``Decomposition``.
        node_hashes: hash of each node, ``(N,)``.
        fitted, read: ``Records`` (counts by context and decision) of the fit and of the sequence.
        gates: learned log-odds of stopping at a context, ``(D + 1, N_CLASSES, N_CLASSES)``.
        rule, buffers: constants, and arrays that are written; see ``Rule`` and ``Buffers``.
        log_probs: output.
    """
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
def insert_all(keys: np.ndarray, values: np.ndarray, table: Arrays) -> None:
    """Insert records into a hash table, in place, that has none of them yet, and has room for them.

    Args:
        keys: keys of the records, ``(S,)``; those that are ``EMPTY`` are skipped.
        values: two counts and log-odds of each record, ``(S, 3)``.
        table: keys, values and number of records of the table, see ``Records``.
    """
    new_keys, new_values, n_used = table
    for j in range(len(keys)):
        if keys[j] != EMPTY:
            i = place(new_keys, keys[j])
            new_keys[i] = keys[j]
            for k in range(3):
                new_values[i, k] = values[j, k]
            n_used[0] += 1


@compiled
def take_back(undo: Arrays, read: Arrays) -> None:
    """Restore the records that the last step changed to their values before it.

    Args:
        undo: keys and earlier values of these records, see ``Undo``.
        read: ``Records`` (counts by context and decision) of the sequence, which are changed.
    """
    undo_keys, undo_values, n_undo = undo
    keys, values, _ = read
    for j in range(n_undo[0] - 1, -1, -1):
        i = place(keys, undo_keys[j])
        for k in range(3):
            values[i, k] = undo_values[j, k]
