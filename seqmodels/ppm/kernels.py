"""The loops of prediction by partial matching, over the contexts in a suffix automaton.

A state of the automaton (Blumer et al. 1985) is a set of contexts that ended at the same places of what was read, so
that they have one set of counts; its link is the next shorter context that ended at more places. All contexts of the
next event, however long, are thus the states on the way from the last one along the links to the root, the empty
context. Each event that is read adds one state, and splits one at most, in constant time on average.

Of what one state has seen: edges, one for each symbol that followed, with a count. A count of 0 is an edge that is
there for the automaton alone (symbols of a source, which are not predicted).

There are the arrays of the fit, which are never written to when sequences are scored, and those of the sequence that is
read: states below ``n_fitted`` are those of the fit until the sequence changes them, in a copy of its own; states from
there on are new. ``slot_of`` tells which.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.compiled import compiled

NONE = -1
ROOT, ANCHOR = 0, 1  # the empty context; the one at the start of a sequence, which no other reaches back beyond
FIRST, LINK, LENGTH = 0, 1, 2  # of a state: its first edge, the next shorter state, symbols of its longest context
SYMBOL, TARGET, NEXT = 0, 1, 2  # of an edge: what followed, the state after it, the next edge of the same state
N_STATES, N_EDGES, N_LOGGED, IS_FULL = 0, 1, 2, 3  # of the sizes
OF_STATE, OF_EDGE, OF_COUNT, OF_COPY = 0, 1, 2, 3  # what a logged change was of
N_TABLES, N_CLASSES = 4, 16  # of escape estimates
MAX_LOG_ODDS = 12.0  # of an escape

# What compiled functions take: plain tuples of the fields of the classes below. The machine code that is kept on disk
# would refer to the classes by name, and could not be read by a version of this module that calls them otherwise.
Arrays = tuple[np.ndarray, ...]
Numbers = tuple[float, ...]


class Fitted(NamedTuple):
    """The automaton of the fit: ``states (S, 3)``, ``edges (E, 3)`` int32, ``counts (E,)``."""

    states: np.ndarray
    edges: np.ndarray
    counts: np.ndarray


class Read(NamedTuple):
    """What a sequence adds, in arrays that have room for all of it; ``sizes (4,)`` int64 say what is used.

    ``copies (S,)`` int32 of the states of the fit: 0, or one more than the slot of the sequence's copy. ``log_of (L,
    3)`` int64 and ``log_values (L,)`` tell what changed places were before; more than L changes are counted only.
    """

    states: np.ndarray
    edges: np.ndarray
    counts: np.ndarray
    copies: np.ndarray
    log_of: np.ndarray
    log_values: np.ndarray
    sizes: np.ndarray


class EventBuffers(NamedTuple):
    """Of the event at hand.

    ``marks (N, 2)`` int64: for each outcome the number of the event at which it was excluded last, and by which
    context. ``shorter (N,)`` float64: its count in the next shorter context. ``chain (C,)``: the states tried so far,
    and ``reached (C + 1,)`` the log-probability of coming to each. ``clock (1,)``: the number of the event.
    """

    marks: np.ndarray
    shorter: np.ndarray
    chain: np.ndarray
    reached: np.ndarray
    clock: np.ndarray


class PPMRule(NamedTuple):
    """The constants of estimates and updates."""

    first_count: float  # of a symbol that is new in a context
    inherited: float  # what its probability there adds to that
    shorter_update: float  # of the context one shorter than the one that predicted
    shorter_weight: float  # of the next shorter context's shares, in counts
    max_count: float  # in a state: with more, all of its counts are halved
    max_depth: float  # symbols of the longest context that predicts
    escape_rate: float  # of gradient steps of escape estimates during the fit


# -- the arrays of a sequence ------------------------------------------------------------------------------------


@compiled
def slot_of(state: int, n_fitted: int, copies: np.ndarray) -> int:
    """Where a state is among those of the sequence; -1: it is as the fit left it."""
    if state >= n_fitted:
        return state - n_fitted
    return int(copies[state]) - 1


@compiled
def link_of(state: int, fitted: Arrays, read: Arrays) -> int:
    """The next shorter context that ended at more places; -1 for the root."""
    slot = slot_of(state, len(fitted[0]), read[3])
    return int(fitted[0][state, LINK]) if slot < 0 else int(read[0][slot, LINK])


@compiled
def length_of(state: int, fitted: Arrays, read: Arrays) -> int:
    """Symbols of the longest context of a state."""
    slot = slot_of(state, len(fitted[0]), read[3])
    return int(fitted[0][state, LENGTH]) if slot < 0 else int(read[0][slot, LENGTH])


@compiled
def target_of(state: int, symbol: int, fitted: Arrays, read: Arrays) -> int:
    """The state after a symbol; -1 where none has followed, or it was the end."""
    slot = slot_of(state, len(fitted[0]), read[3])
    states, edges, _ = fitted if slot < 0 else read[:3]
    e = states[state if slot < 0 else slot, FIRST]
    while e >= 0 and edges[e, SYMBOL] != symbol:
        e = edges[e, NEXT]
    return int(edges[e, TARGET]) if e >= 0 else NONE


@compiled
def edge_of(slot: int, symbol: int, read: Arrays) -> int:
    """The edge by which a symbol leaves a state of the sequence; -1: there is none."""
    states, edges = read[0], read[1]
    e = int(states[slot, FIRST])
    while e >= 0 and edges[e, SYMBOL] != symbol:
        e = int(edges[e, NEXT])
    return e


@compiled
def keep(kind: int, index: int, column: int, value: float, read: Arrays) -> None:
    """Log what a place was, where changes are logged."""
    log_of, log_values, sizes = read[4], read[5], read[6]
    n = sizes[N_LOGGED]
    if n < len(log_of):
        log_of[n, 0] = kind
        log_of[n, 1] = index
        log_of[n, 2] = column
        log_values[n] = value
    sizes[N_LOGGED] = n + 1


@compiled
def new_state(of: int, link: int, length: int, fitted: Arrays, read: Arrays) -> int:
    """The slot of a new state, with copies of the edges of state ``of``, in their order; -1: with none."""
    states, edges, counts, copies, _, _, sizes = read
    if sizes[N_STATES] == len(states):
        sizes[IS_FULL] = 1
        return 0
    slot = int(sizes[N_STATES])
    sizes[N_STATES] = slot + 1
    states[slot, FIRST] = NONE
    states[slot, LINK] = link
    states[slot, LENGTH] = length
    if of < 0:
        return slot
    here = slot_of(of, len(fitted[0]), copies)
    source_states, source, source_counts = fitted if here < 0 else read[:3]
    e = source_states[of if here < 0 else here, FIRST]
    before = NONE
    while e >= 0:
        j = int(sizes[N_EDGES])
        if j == len(edges):
            sizes[IS_FULL] = 1
            return slot
        sizes[N_EDGES] = j + 1
        edges[j, SYMBOL] = source[e, SYMBOL]
        edges[j, TARGET] = source[e, TARGET]
        edges[j, NEXT] = NONE
        counts[j] = source_counts[e]
        if before < 0:
            states[slot, FIRST] = j
        else:
            edges[before, NEXT] = j
        before = j
        e = source[e, NEXT]
    return slot


@compiled
def copy_of(state: int, fitted: Arrays, read: Arrays) -> int:
    """The slot of a state; one of the fit is copied, so that it can be changed."""
    copies = read[3]
    slot = slot_of(state, len(fitted[0]), copies)
    if slot >= 0:
        return slot
    slot = new_state(state, fitted[0][state, LINK], fitted[0][state, LENGTH], fitted, read)
    keep(OF_COPY, state, 0, 0.0, read)
    copies[state] = slot + 1
    return slot


@compiled
def take_back(log_of: np.ndarray, log_values: np.ndarray, n_states: int, n_edges: int, read: Arrays) -> None:
    """StepUndo what was logged: the arrays are what they were with these sizes."""
    states, edges, counts, copies, _, _, sizes = read
    for j in range(len(log_of) - 1, -1, -1):
        kind, index, column = log_of[j, 0], log_of[j, 1], log_of[j, 2]
        if kind == OF_STATE:
            states[index, column] = int(log_values[j])
        elif kind == OF_EDGE:
            edges[index, column] = int(log_values[j])
        elif kind == OF_COUNT:
            counts[index] = log_values[j]
        else:
            copies[index] = 0
    sizes[N_STATES] = n_states
    sizes[N_EDGES] = n_edges


# -- prediction --------------------------------------------------------------------------------------------------


@compiled
def size_class(count: float) -> int:
    """Half octaves of a count, 0 to 15."""
    if count <= 0.0:
        return 0
    return min(max(int(math.log2(count) * 2.0 + 2.001), 0), N_CLASSES - 1)


@compiled
def share_class(among: float, outside: float) -> int:
    """The log-odds, coarsely, with which the next shorter context predicts a symbol of this one: 0 to 15."""
    octaves = math.log2((among + 0.1) / (outside + 0.1))
    return min(max(math.floor(octaves * 1.5 + 8.5), 0), N_CLASSES - 1)


@compiled
def depth_class(depth: int) -> int:
    """Symbols of the shortest context of a state, coarsely above ten: 0 to 15."""
    if depth < 10:
        return depth
    return min(10 + (depth - 10) // 2, N_CLASSES - 1)


@compiled
def predict(
    outcome: int,
    last: int,
    cannot_be: int,
    fitted: Arrays,
    read: Arrays,
    escapes: np.ndarray,
    rule: Numbers,
    buffers: Arrays,
    log_probs: np.ndarray,
) -> tuple[int, float]:
    """The log-probability of an outcome in the contexts from state ``last`` on, or of all.

    Args:
        outcome: the event; -1: ``log_probs (N,)`` of all are written.
        last: state of the longest context.
        cannot_be: an outcome that is excluded from the beginning, or -1.
        fitted, read: the automaton.
        escapes: ``(N_TABLES, N_CLASSES, N_CLASSES, N_CLASSES)`` log-odds, which get a gradient step of an event if
            the rule has a rate.
        rule: constants.
        buffers: hold how the prediction came about.
        log_probs: written to where all outcomes are asked for.

    Returns:
        level: how many contexts escaped before the one that predicted; -1: all.
        log_prob: of the outcome.
    """
    marks, shorter, chain, reached, clock = buffers
    _, _, _, shorter_weight, _, max_depth, escape_rate = rule
    n_outcomes = len(marks)
    clock[0] += 1
    now = clock[0]
    n_excluded = 0
    if cannot_be >= 0:
        marks[cannot_be, 0] = now
        marks[cannot_be, 1] = NONE
        n_excluded = 1
        if outcome < 0:
            log_probs[cannot_be] = -np.inf
    log_reached = 0.0
    n_before = 0  # symbols of the context that escaped last
    k = 0
    state = last
    while state >= 0 and n_excluded < n_outcomes:
        slot = slot_of(state, len(fitted[0]), read[3])
        states, edges, counts = fitted if slot < 0 else read[:3]
        row = state if slot < 0 else slot
        link = states[row, LINK]
        depth = length_of(link, fitted, read) + 1 if link >= 0 else 0
        if depth > max_depth:
            state = link
            continue
        if k + 1 >= len(chain):
            read[6][IS_FULL] = 1
            break
        chain[k] = state
        reached[k] = log_reached
        # What followed here and is not excluded by a longer context: from now on it is.
        n_here = 0
        total = 0.0
        count = 0.0
        first = states[row, FIRST]
        e = first
        while e >= 0:
            symbol = edges[e, SYMBOL]
            if counts[e] > 0.0 and marks[symbol, 0] != now:
                marks[symbol, 0] = now
                marks[symbol, 1] = k
                shorter[symbol] = 0.0
                n_here += 1
                total += counts[e]
                if symbol == outcome:
                    count = counts[e]
            e = edges[e, NEXT]
        if n_here == 0:
            state = link
            k += 1
            continue
        # What the next shorter context says of it, and of what did not follow here.
        among = 0.0
        outside = 0.0
        n_outside = 0
        if link >= 0:
            link_slot = slot_of(link, len(fitted[0]), read[3])
            link_states, link_edges, link_counts = fitted if link_slot < 0 else read[:3]
            e = link_states[link if link_slot < 0 else link_slot, FIRST]
            while e >= 0:
                symbol = link_edges[e, SYMBOL]
                if link_counts[e] > 0.0:
                    if marks[symbol, 0] != now:
                        outside += link_counts[e]
                        n_outside += 1
                    elif marks[symbol, 1] == k:
                        among += link_counts[e]
                        shorter[symbol] = link_counts[e]
                e = link_edges[e, NEXT]
        escape = 0.0  # where no other outcome is left
        if n_excluded + n_here < n_outcomes:
            a0 = min(n_here, N_CLASSES - 1)
            a1 = size_class(total * 2.0)
            a2 = depth_class(depth)
            b0 = share_class(among, outside)
            b1 = min(n_here, 3) * 4 + min(size_class(total) // 2, 3)
            c0 = size_class(float(n_outside))
            c1 = size_class(among + outside)
            d0 = min(n_before, N_CLASSES - 1)
            log_odds = escapes[0, a0, a1, a2] + escapes[1, b0, b1, a2]
            log_odds += escapes[2, c0, c1, a0] + escapes[3, d0, a0, a2]
            log_odds = min(max(log_odds, -MAX_LOG_ODDS), MAX_LOG_ODDS)
            escape = 1.0 / (1.0 + math.exp(-log_odds))
            if escape_rate > 0.0:
                step = escape_rate * ((0.0 if count > 0.0 else 1.0) - escape)
                escapes[0, a0, a1, a2] += step
                escapes[1, b0, b1, a2] += step
                escapes[2, c0, c1, a0] += step
                escapes[3, d0, a0, a2] += step
        weight = shorter_weight if n_here > 1 and among > 0.0 else 0.0
        log_stays = log_reached + math.log(1.0 - escape)
        scale = weight / among if weight > 0.0 else 0.0
        if count > 0.0:
            share = (count + scale * shorter[outcome]) / (total + weight)
            return k, log_stays + math.log(share)
        if outcome < 0:
            e = first
            while e >= 0:
                symbol = edges[e, SYMBOL]
                if counts[e] > 0.0 and marks[symbol, 1] == k and marks[symbol, 0] == now:
                    share = (counts[e] + scale * shorter[symbol]) / (total + weight)
                    log_probs[symbol] = log_stays + math.log(share)
                e = edges[e, NEXT]
        n_excluded += n_here
        n_before = n_here
        if escape > 0.0:
            log_reached += math.log(escape)
        k += 1
        state = link
    reached[k] = log_reached
    chain[k] = NONE
    if n_excluded < n_outcomes:
        log_rest = log_reached - math.log(n_outcomes - n_excluded)
        if outcome < 0:
            for symbol in range(n_outcomes):
                if marks[symbol, 0] != now:
                    log_probs[symbol] = log_rest
        return NONE, log_rest
    return NONE, -np.inf


# -- learning ----------------------------------------------------------------------------------------------------


@compiled
def follow(last: int, symbol: int, fitted: Arrays, read: Arrays) -> int:
    """The state of the longest context after one more symbol, of those that are there."""
    state = last
    while state >= 0:
        target = target_of(state, symbol, fitted, read)
        if target >= 0:
            return target
        state = link_of(state, fitted, read)
    return ROOT


@compiled
def add_edges(last: int, symbol: int, end: int, fitted: Arrays, read: Arrays) -> tuple[int, int]:
    """Begin to add one more symbol to the automaton: a new state, and edges to it, of a count of 0.

    Returns:
        newest: the new state; -1 where the symbol has followed the longest context before, or it is the ``end``.
        state: the first context from ``last`` on that it has followed before, or -1.
    """
    states, edges, counts, _, _, _, sizes = read
    n_fitted = len(fitted[0])
    newest = NONE
    if symbol != end and target_of(last, symbol, fitted, read) < 0:
        newest = n_fitted + new_state(NONE, ROOT, length_of(last, fitted, read) + 1, fitted, read)
    state = last
    while state >= 0:
        slot = slot_of(state, n_fitted, read[3])
        some_states, some_edges, _ = fitted if slot < 0 else read[:3]
        e = some_states[state if slot < 0 else slot, FIRST]
        while e >= 0 and some_edges[e, SYMBOL] != symbol:
            e = some_edges[e, NEXT]
        if e >= 0:
            break
        slot = copy_of(state, fitted, read)
        j = int(sizes[N_EDGES])
        if j == len(edges):
            sizes[IS_FULL] = 1
            break
        sizes[N_EDGES] = j + 1
        edges[j, SYMBOL] = symbol
        edges[j, TARGET] = newest
        edges[j, NEXT] = states[slot, FIRST]
        counts[j] = 0.0
        keep(OF_STATE, slot, FIRST, float(states[slot, FIRST]), read)
        states[slot, FIRST] = j
        state = int(states[slot, LINK])
    return newest, state


@compiled
def split_state(newest: int, state: int, symbol: int, fitted: Arrays, read: Arrays) -> int:
    """Complete what ``add_edges`` began: the link of the new state; returns the state of all that was read.

    A state that is split passes its counts on, so those of the event come before.
    """
    if state < 0:
        return newest
    states, edges, _, _, _, _, _ = read
    n_fitted = len(fitted[0])
    target = target_of(state, symbol, fitted, read)
    longest = length_of(state, fitted, read) + 1
    if length_of(target, fitted, read) != longest:
        # Its shorter contexts ended at one more place than its longer ones: from now on they are a state of their own.
        split = n_fitted + new_state(target, link_of(target, fitted, read), longest, fitted, read)
        slot = copy_of(target, fitted, read)
        keep(OF_STATE, slot, LINK, float(states[slot, LINK]), read)
        states[slot, LINK] = split
        while state >= 0 and target_of(state, symbol, fitted, read) == target:
            slot = copy_of(state, fitted, read)
            e = edge_of(slot, symbol, read)
            if e < 0:  # the arrays are full
                return target
            keep(OF_EDGE, e, TARGET, float(target), read)
            edges[e, TARGET] = split
            state = int(states[slot, LINK])
        target = split
    if newest < 0:
        return target
    states[newest - n_fitted, LINK] = target
    return newest


@compiled
def count_event(
    outcome: int, level: int, log_prob: float, fitted: Arrays, read: Arrays, rule: Numbers, buffers: Arrays
) -> None:
    """Count an event in the contexts that predicted it: those up to ``level``, and a little the one after.

    Contexts in which it is new inherit from what the shorter ones gave to it.
    """
    first_count, inherited, shorter_update, _, max_count, _, _ = rule
    states, edges, counts, _, _, _, _ = read
    _, _, chain, reached, _ = buffers
    k = 0
    while chain[k] >= 0 and (level < 0 or k <= level):
        slot = copy_of(chain[k], fitted, read)
        e = edge_of(slot, outcome, read)
        if e < 0:  # the arrays are full
            return
        keep(OF_COUNT, e, 0, float(counts[e]), read)
        if k != level:
            counts[e] = first_count + inherited * math.exp(min(log_prob - reached[k + 1], 0.0))
        else:
            counts[e] += 1.0
            if counts[e] > max_count:
                e = int(states[slot, FIRST])
                while e >= 0:
                    keep(OF_COUNT, e, 0, float(counts[e]), read)
                    counts[e] *= 0.5
                    e = int(edges[e, NEXT])
        k += 1
    if level >= 0:
        link = link_of(chain[level], fitted, read)
        if link >= 0:
            slot = copy_of(link, fitted, read)
            e = edge_of(slot, outcome, read)
            if e >= 0 and counts[e] > 0.0:
                keep(OF_COUNT, e, 0, float(counts[e]), read)
                counts[e] += shorter_update


@compiled
def read_steps(
    last: int,
    outcomes: np.ndarray,
    is_adaptive: bool,
    first_cannot_be: int,
    end: int,
    fitted: Arrays,
    read: Arrays,
    escapes: np.ndarray,
    rule: Numbers,
    buffers: Arrays,
    log_probs: np.ndarray,
    of_all: bool,
) -> int:
    """Predict each event and learn from it; ``log_probs`` are written to.

    Args:
        last: the state before the first.
        outcomes: ``(T,)``.
        is_adaptive: whether the sequence is learned from.
        first_cannot_be: an outcome that cannot be the first, or -1.
        end: the outcome after which nothing follows, or -1.
        fitted, read, escapes, rule, buffers: as of ``predict``.
        log_probs: ``(T, 1)``, or ``(T, N)`` if ``of_all``.

    Returns:
        The state after the last.
    """
    for t in range(len(outcomes)):
        outcome = outcomes[t]
        cannot_be = first_cannot_be if t == 0 else NONE
        asked_for = log_probs[t]
        if of_all:
            predict(NONE, last, cannot_be, fitted, read, escapes, rule, buffers, asked_for)
        if is_adaptive or not of_all:
            level, log_prob = predict(outcome, last, cannot_be, fitted, read, escapes, rule, buffers, asked_for)
            if not of_all:
                log_probs[t, 0] = log_prob
        if is_adaptive:
            newest, state = add_edges(last, outcome, end, fitted, read)
            count_event(outcome, level, log_prob, fitted, read, rule, buffers)
            if outcome != end:
                last = split_state(newest, state, outcome, fitted, read)
        elif outcome != end:
            last = follow(last, outcome, fitted, read)
    return last


@compiled
def read_source(last: int, symbols: np.ndarray, is_adaptive: bool, fitted: Arrays, read: Arrays) -> int:
    """Go on to the contexts after symbols that are not predicted."""
    for symbol in symbols:
        if is_adaptive:
            newest, state = add_edges(last, symbol, NONE, fitted, read)
            last = split_state(newest, state, symbol, fitted, read)
        else:
            last = follow(last, symbol, fitted, read)
    return last


@compiled
def owners(states: np.ndarray, edges: np.ndarray, owner: np.ndarray) -> None:
    """Write to ``owner (E,)`` the state of each edge."""
    for state in range(len(states)):
        e = states[state, FIRST]
        while e >= 0:
            owner[e] = state
            e = edges[e, NEXT]


def initial_escapes() -> np.ndarray:
    """Log-odds of an escape before anything was learned: those of symbols that followed, to how often they did."""
    escapes = np.zeros((N_TABLES, N_CLASSES, N_CLASSES, N_CLASSES))
    n_here = np.maximum(np.arange(N_CLASSES), 1)[:, None, None]
    total = 2.0 ** (0.5 * np.arange(N_CLASSES) - 1.75)[:, None]  # the middle of a class of twice the count
    escapes[0] = np.log(n_here / total)
    return escapes
