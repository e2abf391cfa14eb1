"""The passes of ``semi_markov`` as compiled loops, for few sequences of many steps on a CPU.

For each open segment, the loops keep the logarithm of its weight, and its weight relative to a reference of its state.
A step then takes a scalar product and no exponentials. Where a product is so small that underflow could matter, the
reference is set anew; if the product is still too small, the sum is computed from logarithms.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_log_sum import log_dot

Arrays = tuple[np.ndarray, ...]

LARGEST = 300.0  # largest logarithm of a weight relative to its reference
COLUMNS = 64  # spare columns at least, and so the number of steps between two moves of the columns


@compiled(any_order=True, inner=True)
def _product(weights: np.ndarray, table: np.ndarray) -> float:
    total = 0.0
    for c in range(len(weights)):
        total += weights[c] * table[c]
    return total


@compiled(any_order=True, inner=True)
def _add_scaled(sums: np.ndarray, weights: np.ndarray, factor: float) -> None:
    for c in range(len(weights)):
        sums[c] += factor * weights[c]


@compiled(inner=True)
def _add_durations(
    sums: np.ndarray,
    log_weights: np.ndarray,
    weights: np.ndarray,
    factor: float,
    reference: float,
    table: np.ndarray,
    log_table: np.ndarray,
) -> float:
    """Add the expected numbers of the segments of one first step by their durations, and return their sum of steps.

    Args:
        sums: expected number of segments of each duration, ``(D,)``, the longest first; is added to.
        log_weights, weights: log-weights of the segments' ends, and their exponentials less ``reference``, ``(c,)``.
        factor: log-factor of all of them.
        reference: log-weight that ``weights`` are relative to.
        table, log_table: probabilities of the durations, ``(D,)``, the longest first, and their logarithms.

    Returns:
        The expected number of steps but the first of each segment.
    """
    total, n = 0.0, len(weights)
    first = len(table) - n
    is_exact = factor + reference <= LARGEST  # else the reference comes from segments too long to be possible
    scale = np.exp(factor + reference) if is_exact else 0.0
    for c in range(n):
        if is_exact:
            share = scale * weights[c] * table[first + c]
        else:
            share = np.exp(factor + log_weights[c] + log_table[first + c])
        sums[first + c] += share
        total += share * (n - 1 - c)
    return total


@compiled(inner=True)
def _log_add(a: float, b: float) -> float:
    largest, smallest = max(a, b), min(a, b)
    if smallest == -np.inf:
        return float(largest)
    return float(largest + np.log1p(np.exp(smallest - largest)))


@compiled(inner=True)
def _referred(log_weights: np.ndarray, weights: np.ndarray) -> float:
    """Fill ``weights`` with ``exp(log_weights)`` divided by its largest entry, and return the log of that largest.

    If all log-weights are -inf, the weights are zero and -inf is returned.
    """
    peak = -np.inf
    for c in range(len(weights)):
        peak = max(peak, log_weights[c])
    for c in range(len(weights)):
        weights[c] = 0.0 if peak == -np.inf else np.exp(log_weights[c] - peak)
    return peak


@compiled(inner=True)
def _step(rows: np.ndarray, matrix: np.ndarray, log_matrix: np.ndarray, least: float, result: np.ndarray) -> None:
    """Multiply K weights by a matrix in log space: fill ``result`` with ``log Σ_i exp(rows[i]) matrix[j, i]``.

    A sum of at most ``least``, relative to the largest weight, is computed again from ``log_matrix``, the logarithm of
    the matrix.
    """
    K = len(rows)
    scaled = np.empty(K)
    peak = _referred(rows, scaled)
    for j in range(K):
        total = 0.0
        for i in range(K):
            total += scaled[i] * matrix[j, i]
        result[j] = np.log(total) + peak if total > least else log_dot(rows, log_matrix[j])


@compiled(inner=True)
def _begin(
    log_new: np.ndarray,
    stop: int,
    longest: int,
    log_weights: np.ndarray,
    weights: np.ndarray,
    level: np.ndarray,
    reference: np.ndarray,
) -> int:
    """Begin a segment in each of K states, as a new column of the buffers, and return the new number of columns.

    If the buffers are full, the columns that still matter are first moved to their beginning.

    Args:
        log_new: log-weights of the new segments, ``(K,)``.
        stop: number of columns in use.
        longest: longest duration of a segment, and so the number of columns that matter.
        log_weights: log-weights of the open segments less ``level``, ``(K, columns)``.
        weights: exponentials of ``log_weights`` less ``reference``, ``(K, columns)``.
        level: log-factor that all open segments of a state have in common, ``(K,)``.
        reference: log-weight that ``weights`` of a state are relative to, ``(K,)``.
    """
    K, width = weights.shape
    if stop == width:
        kept = longest - 1
        for k in range(K):
            for c in range(kept):
                log_weights[k, c] = log_weights[k, width - kept + c] + level[k]
                weights[k, c] = weights[k, width - kept + c]
            reference[k] += level[k]
            level[k] = 0.0
        stop = kept
    low = max(0, stop + 1 - longest)
    for k in range(K):
        log_weight = log_new[k] - level[k]
        log_weights[k, stop] = log_weight
        if log_weight == -np.inf:
            weights[k, stop] = 0.0
        elif log_weight - reference[k] > LARGEST:
            reference[k] = _referred(log_weights[k, low : stop + 1], weights[k, low : stop + 1])
        else:
            weights[k, stop] = np.exp(log_weight - reference[k])
    return stop + 1


@compiled(inner=True)
def _multiply(
    factor: np.ndarray, low: int, stop: int, log_weights: np.ndarray, weights: np.ndarray, level: np.ndarray
) -> None:
    for k in range(len(level)):
        if factor[k] == -np.inf:
            for c in range(low, stop):
                log_weights[k, c], weights[k, c] = -np.inf, 0.0
        else:
            level[k] += factor[k]


@compiled
def forward(given: Arrays, results: Arrays, least: float) -> None:
    """Run the forward pass of a hidden semi-Markov chain on all sequences, one after the other.

    Args:
        given: ``matrices`` (2, 1, K, K), the transposed transition and its logarithm, or (2, N, K, K) with one for each
            row; ``log_initial`` (n, K) by rank; ``pmf`` and ``log_pmf`` (2, R, K, D), R tables of the probabilities
            that a segment ends after d steps and that it lasts longer, the longest first; ``of_row`` (N,), which table
            is that of segments that begin at each row, or (1,) for all rows; ``log_first`` (2, 1, K, D) or (2, n, K, D)
            by rank, the same for the first segment, the shortest first; ``log_b`` (N, K) in packed rows; ``offsets``
            (T + 1,), the first row of each time; ``lengths`` (n,) by rank (longest first).
        results: ``log_start``, ``log_ended``, ``log_continues`` and ``log_scale``, the fields of
            ``SemiMarkovFiltered``, which are filled.
        least: smallest product that is trusted in scaled numbers; a smaller one is computed from logarithms.
    """
    matrices, log_initial, pmf, log_pmf, of_row, log_first, log_b, offsets, lengths = given
    log_start, log_ended, log_continues, log_scale = results
    K, D = pmf.shape[2], pmf.shape[3]
    log_weights, weights = np.empty((K, D + max(D, COLUMNS))), np.empty((K, D + max(D, COLUMNS)))
    level, reference, first = np.empty(K), np.empty(K), np.empty(K)
    differs, into, log_into = matrices.shape[1] > 1, matrices[0, 0], matrices[1, 0]
    tables, entries = np.zeros(D, np.int64), np.empty((2, D))
    for rank in range(len(lengths)):
        of_first = log_first[:, rank if log_first.shape[1] > 1 else 0]
        stop, before, g, n_alike = 0, 0, of_row[0], 0
        for k in range(K):
            level[k], reference[k], first[k] = 0.0, -np.inf, log_initial[rank, k]
        for t in range(lengths[rank]):
            row = offsets[t] + rank
            if t > 0:
                if differs:
                    into, log_into = matrices[0, row], matrices[1, row]
                _step(log_ended[before], into, log_into, least, log_start[row])
                stop = _begin(log_start[row], stop, D, log_weights, weights, level, reference)
                n_alike, g = _of_newest(of_row, row, g, n_alike)
            else:
                for k in range(K):
                    log_start[row, k] = first[k]
            low, total = max(0, stop - D), -np.inf
            _multiply(log_b[row], low, stop, log_weights, weights, level)
            is_one_table = n_alike >= stop - low
            if not is_one_table:
                for lasted in range(stop - low):
                    tables[D - 1 - lasted] = of_row[offsets[t - lasted] + rank]
            for k in range(K):
                first[k] += log_b[row, k]
                for which in range(2):
                    value = first[k] + of_first[which, k, t] if t < D else -np.inf
                    if stop > 0:
                        table, log_table = pmf[which, g, k], log_pmf[which, g, k]
                        if not is_one_table:
                            table, log_table = entries[0], entries[1]
                            oldest = D - (stop - low)
                            for c in range(oldest, D):
                                table[c] = pmf[which, tables[c], k, c]
                            if _product(weights[k, low:stop], table[oldest:]) <= least:  # else no logarithm is read
                                for c in range(oldest, D):
                                    log_table[c] = log_pmf[which, tables[c], k, c]
                        of_open = _log_product(
                            log_weights[k], weights[k], low, stop, table, log_table, reference, k, least
                        )
                        value = _log_add(value, of_open + level[k])
                    if which == 0:
                        log_ended[row, k] = value
                    else:
                        log_continues[row, k] = value
                    total = _log_add(total, value)
            log_scale[row] = total
            if total > -np.inf:
                for k in range(K):
                    log_ended[row, k] -= total
                    log_continues[row, k] -= total
                    level[k] -= total
                    first[k] -= total
            before = row


@compiled(inner=True)
def _of_newest(of_row: np.ndarray, row: int, g: int, n_alike: int) -> tuple[int, int]:
    """Return how many of the newest segments have the same table of durations after one begins at ``row``, and which.

    Args:
        of_row: which table is that of segments that begin at each row, ``(N,)``, or ``(1,)`` for all rows.
        row: the row.
        g, n_alike: the table of the newest segment before, and how many have it.
    """
    newest = of_row[row if len(of_row) > 1 else 0]
    return (n_alike + 1 if newest == g else 1), newest


@compiled(inner=True)
def _log_product(
    log_weights: np.ndarray,
    weights: np.ndarray,
    low: int,
    stop: int,
    table: np.ndarray,
    log_table: np.ndarray,
    reference: np.ndarray,
    k: int,
    least: float,
) -> float:
    """Return ``log Σ_c exp(log_weights[k, c]) table[c]`` over the open segments ``low .. stop - 1`` of state k.

    Args:
        log_weights, weights: log-weights of the open segments, and exponentials of these less ``reference``, ``(K,
            columns)``.
        low, stop: first column of the sum, and the first after the last.
        table, log_table: probabilities that the segments are multiplied by, and their logarithms. The last entry
            belongs to the segment that was opened last.
        reference: log-weight that ``weights`` of each state are relative to, ``(K,)``.
        k: the state.
        least: smallest sum of ``weights`` that is trusted; a smaller one is computed from logarithms.
    """
    part = table[len(table) - (stop - low) :]
    total = _product(weights[low:stop], part)
    if total > least:
        return float(np.log(total) + reference[k])
    reference[k] = _referred(log_weights[low:stop], weights[low:stop])
    if reference[k] == -np.inf:
        return -np.inf
    total = _product(weights[low:stop], part)
    if total > least:
        return float(np.log(total) + reference[k])
    return log_dot(log_weights[low:stop], log_table[len(table) - (stop - low) :])


@compiled
def backward(tables: Arrays, given: Arrays, results: Arrays, least: float, is_cut_off: bool) -> None:
    """Run the backward pass of a hidden semi-Markov chain on all sequences, one after the other.

    Args:
        tables: ``pmf`` and ``log_pmf`` (R, K, D), R tables of durations, the longest first.
        given: ``matrices`` (2, 1, K, K), the transition and its logarithm, or (2, N, K, K) with one for the transitions
            into each row; ``at_end`` (n, K) by rank (longest first), the log-weight of a segment that ends with the
            sequence; ``first_pmf`` and ``log_first`` (1, K, D) or (n, K, D) by rank, those of first segments;
            ``log_longer`` and ``log_first_longer``, of the shapes of ``pmf`` and ``first_pmf``, the log-probability of
            lasting more steps, the shortest first; ``of_row`` (N,), which table is that of segments that begin at each
            row, or (1,) for all rows; ``factors`` (N, K), log-densities less the log-probability of their step;
            ``offsets`` and ``lengths`` as in ``forward``; and ``log_start``, ``log_ended`` and ``log_continues``, the
            results of ``forward``.
        results: ``gamma``, the field of ``SemiMarkovPosterior``; ``xi`` (1, K, K), or (N, K, K) with one for the
            transitions into each row; ``counts`` (2, K, D), the expected number of segments of each duration, the
            longest first; ``first_counts`` (n, K, D), those of first segments by rank if durations differ; ``cut_off``
            (2, K, D), the expected number of segments that go on after so many steps, the shortest first; ``of_rows``
            (3, N, K) if durations differ: the expected number of segments that begin at each row, the steps but the
            first of those that end, and the number of those that go on. They come as zeros and are added to.
        least: smallest product that is trusted in scaled numbers; a smaller one is computed from logarithms.
        is_cut_off: True if the last segment of a sequence may go on after its end.
    """
    matrices, at_end, first_pmf, log_first, log_longer, log_first_longer, of_row, factors, offsets = given[:9]
    lengths, log_start, log_ended, log_continues = given[9:]
    pmf, log_pmf = tables
    gamma, xi, counts, first_counts, cut_off, of_rows = results
    K, D = pmf.shape[1], pmf.shape[2]
    log_weights, weights = np.empty((K, D + max(D, COLUMNS))), np.empty((K, D + max(D, COLUMNS)))
    level, reference, to_end = np.empty(K), np.empty(K), np.empty(K)
    later, log_beta = np.empty(K), np.empty(K)
    begun, after = np.empty(K), np.empty(K)
    in_scale = np.zeros((2, K, D))  # counts over their probabilities
    differs, a, log_a, moves = matrices.shape[1] > 1, matrices[0, 0], matrices[1, 0], xi[0]
    durations_differ = len(first_counts) > 0
    for rank in range(len(lengths)):
        stop = 0
        for k in range(K):
            level[k], reference[k], to_end[k] = 0.0, -np.inf, (0.0 if is_cut_off else -np.inf)
        for t in range(lengths[rank] - 1, -1, -1):
            row, left = offsets[t] + rank, lengths[rank] - t
            which = 1 if t == 0 else 0
            g = of_row[row if durations_differ else 0]
            of_begins = pmf[g], log_pmf[g], log_longer[g]
            if t == 0:
                g = rank if durations_differ else 0
                of_begins = first_pmf[g], log_first[g], log_first_longer[g]
            if left == 1:
                for k in range(K):
                    log_beta[k] = at_end[rank, k]
            else:
                if differs:
                    after_row = offsets[t + 1] + rank
                    a, log_a, moves = matrices[0, after_row], matrices[1, after_row], xi[after_row]
                _step(later, a, log_a, least, log_beta)
                for i in range(K):
                    if log_ended[row, i] > -np.inf:
                        for j in range(K):
                            moves[i, j] += np.exp(log_ended[row, i] + log_a[i, j] + later[j])
            for k in range(K):
                share = np.exp(log_ended[row, k] + log_beta[k])
                if left > 1:
                    share += after[k] - begun[k]
                elif is_cut_off:
                    share += np.exp(log_continues[row, k])
                gamma[row, k] = max(share, 0.0) if factors[row, k] > -np.inf else 0.0
                after[k] = gamma[row, k]
            stop = _begin(log_beta, stop, D, log_weights, weights, level, reference)
            low = max(0, stop - D)
            _multiply(factors[row], low, stop, log_weights, weights, level)
            for k in range(K):
                to_end[k] += factors[row, k]
                table, log_table = of_begins[0][k], of_begins[1][k]
                value = level[k] + _log_product(
                    log_weights[k], weights[k], low, stop, table, log_table, reference, k, least
                )
                if left <= D:
                    beyond = to_end[k] + of_begins[2][k, left - 1]
                    if durations_differ:
                        of_rows[2, row, k] = np.exp(log_start[row, k] + beyond)
                    else:
                        cut_off[which, k, left - 1] += np.exp(log_start[row, k] + beyond)
                    value = _log_add(value, beyond)
                later[k] = value
                begun[k] = np.exp(log_start[row, k] + value)
                if durations_differ:
                    of_rows[0, row, k] = begun[k]
                factor = log_start[row, k] + level[k]
                if factor == -np.inf or reference[k] == -np.inf:
                    continue
                first_column = D - (stop - low)
                if durations_differ:
                    sums = first_counts[rank, k] if t == 0 else counts[0, k]
                    of_rows[1, row, k] = _add_durations(
                        sums, log_weights[k, low:stop], weights[k, low:stop], factor, reference[k], table, log_table
                    )
                elif factor + reference[k] <= LARGEST:
                    _add_scaled(in_scale[which, k, first_column:], weights[k, low:stop], np.exp(factor + reference[k]))
                else:  # the reference comes from segments too long to be possible
                    for c in range(low, stop):
                        counts[which, k, first_column + c - low] += np.exp(
                            factor + log_weights[k, c] + log_table[first_column + c - low]
                        )
    for which in range(0 if durations_differ else 2):
        for k in range(K):
            for c in range(D):
                counts[which, k, c] += in_scale[which, k, c] * (first_pmf if which else pmf)[0, k, c]


@compiled
def advance(given: Arrays, log_predicted: np.ndarray, log_b: np.ndarray, results: Arrays) -> None:
    """Read one step of n sequences of a hidden semi-Markov chain in the forward pass.

    Args:
        given: ``log_into`` (K, K), the logarithm of the transposed transition, and ``log_pmf`` (K, D) of durations.
        log_predicted: log-probabilities of the state and of the number of steps that its segment has left, this step
            included, before the step is read, (n, K, D).
        log_b: log-densities of the step, (n, K), of any magnitude.
        results: arrays to fill: ``after`` (n, K, D), ``log_predicted`` of the next step; ``log_ended`` (n, K), the
            log-probability that the segment of each state ended with this step, and ``log_belief`` (n, K), the
            log-probability of the states, both given the step; ``log_prob`` (n,), the log-probability of the step in
            nats.
    """
    (log_into, log_pmf), (after, log_ended, log_belief, log_prob) = given, results
    K, D = log_pmf.shape
    peaks = np.empty(K)
    for row in range(len(log_b)):
        level, peak, total = -np.inf, -np.inf, 0.0
        for k in range(K):
            level = log_b[row, k] if not log_b[row, k] <= level else level  # NaN, where one is
        level = level if level != -np.inf else 0.0
        for k in range(K):
            peaks[k] = -np.inf
            for d in range(D):
                value = log_predicted[row, k, d]
                peaks[k] = value if not value <= peaks[k] else peaks[k]
            value = peaks[k] + (log_b[row, k] - level)
            peak = value if not value <= peak else peak
        for k in range(K):
            of_state = 0.0
            if peaks[k] != -np.inf:
                for d in range(D):
                    of_state += np.exp(log_predicted[row, k, d] - peaks[k])
            log_belief[row, k] = peaks[k] + np.log(of_state) + (log_b[row, k] - level) if of_state != 0.0 else -np.inf
            if peak != -np.inf:
                total += np.exp(log_belief[row, k] - peak)
        log_total = peak + np.log(total) if peak != -np.inf else -np.inf
        log_prob[row] = level + log_total
        shift = log_total if log_total != -np.inf else 0.0
        for k in range(K):
            log_belief[row, k] -= shift
            log_ended[row, k] = log_predicted[row, k, 0] + (log_b[row, k] - level) - shift
        for k in range(K):
            start, factor = log_dot(log_ended[row], log_into[k]), log_b[row, k] - level - shift
            for d in range(D):
                going_on = log_predicted[row, k, d + 1] + factor if d + 1 < D else -np.inf
                after[row, k, d] = _log_add(going_on, start + log_pmf[k, d])


@compiled
def best_segments(given: Arrays, results: Arrays) -> None:
    """Find the most probable segmentation of each sequence of a hidden semi-Markov chain (Viterbi).

    Args:
        given: ``log_a`` (1, K, K), log-probabilities of transitions, or (N, K, K) of those into each row;
            ``log_initial`` (n, K), those of the first segment's state by rank; ``log_final`` (K,), those of the end;
            ``log_pmf`` (2, R, K, D), R tables of log-probabilities of a duration and of lasting at least as long, the
            shortest first; ``of_row`` (N,), which table is that of segments that begin at each row, or (1,) for all
            rows; ``log_first`` (2, 1, K, D) or (2, n, K, D) by rank, the same for the first segment; ``log_b`` (N, K)
            in packed rows; ``offsets`` (T + 1,), the first row of each time; ``lengths`` (n,) by rank (longest first);
            and ``firsts`` (n,), where each path begins.
        results: arrays to fill: ``path`` (N,), one sequence after the other; ``best`` (n,) nats by rank; the buffers
            ``lasted`` (N, K), the duration of the best segment that ends in each row and state, and ``state_before``
            (N, K), the state before the best segment that begins in it. The last array, ``is_cut_off`` (1,), is read:
            True if the last segment may go on after the end.
    """
    log_a, log_initial, log_final, log_pmf, of_row, log_first, log_b, offsets, lengths, firsts = given
    path, best, lasted, state_before, is_cut_off = results
    K, D = log_pmf.shape[2], log_pmf.shape[3]
    width = D + max(D, COLUMNS)
    weights, level, first, ended = np.empty((K, width)), np.empty(K), np.empty(K), np.empty(K)
    tables, entries = np.zeros(D, np.int64), np.empty(D)
    for rank in range(len(lengths)):
        n_steps, stop, last_state, last_lasted, g, n_alike = lengths[rank], 0, 0, 1, of_row[0], 0
        best[rank] = -np.inf
        of_first = log_first[:, rank if log_first.shape[1] > 1 else 0]
        for k in range(K):
            level[k], first[k] = 0.0, log_initial[rank, k]
        for t in range(n_steps):
            row = offsets[t] + rank
            if t > 0:
                if stop == width:
                    for k in range(K):
                        for c in range(D - 1):
                            weights[k, c] = weights[k, width - D + 1 + c] + level[k]
                        level[k] = 0.0
                    stop = D - 1
                into = log_a[row if len(log_a) > 1 else 0]
                for j in range(K):
                    start, state = ended[0] + into[0, j], 0
                    for i in range(1, K):
                        if ended[i] + into[i, j] > start:
                            start, state = ended[i] + into[i, j], i
                    weights[j, stop], state_before[row, j] = start - level[j], state
                stop += 1
                n_alike, g = _of_newest(of_row, row, g, n_alike)
            low, is_last = max(0, stop - D), t == n_steps - 1
            is_one_table = n_alike >= stop - low
            if not is_one_table:
                for d in range(stop - low):
                    tables[d] = of_row[offsets[t - d] + rank]
            for k in range(K):
                if log_b[row, k] == -np.inf:
                    for c in range(low, stop):
                        weights[k, c] = -np.inf
                else:
                    level[k] += log_b[row, k]
                first[k] += log_b[row, k]
                for which in range(2 if is_last and is_cut_off[0] else 1):
                    score, duration = first[k] + of_first[which, k, t] if t < D else -np.inf, t + 1
                    top, column, table = -np.inf, low, log_pmf[which, g, k]
                    if not is_one_table:
                        table = entries
                        for d in range(stop - low):
                            table[d] = log_pmf[which, tables[d], k, d]
                    for c in range(low, stop):
                        value = weights[k, c] + table[stop - 1 - c]
                        if value > top:
                            top, column = value, c
                    if top + level[k] > score:
                        score, duration = top + level[k], stop - column
                    if which == 0:
                        ended[k], lasted[row, k] = score, duration
                if is_last:
                    score += 0.0 if is_cut_off[0] else log_final[k]
                    if score > best[rank]:
                        best[rank], last_state, last_lasted = score, k, duration
        state, duration, end = last_state, last_lasted, n_steps
        while end > 0:
            begin = max(end - duration, 0)
            for t in range(begin, end):
                path[firsts[rank] + t] = state
            if begin > 0:
                state = state_before[offsets[begin] + rank, state]
                duration = lasted[offsets[begin - 1] + rank, state]
            end = begin
