"""The M-step of a chain that starts in its stationary distribution, as compiled loops.

The objective and the direction of a step are explained in ``first_state``. Systems of equations are solved by Gaussian
elimination with partial pivoting (Golub and Van Loan 2013, *Matrix computations*, section 3.4).
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled(inner=True)
def solve(matrix: np.ndarray, right: np.ndarray) -> bool:
    """Solve ``matrix x = right`` and write the solution into ``right``, ``(K,)``; return False if the matrix is
    singular.

    The contents of ``matrix``, ``(K, K)``, are destroyed.
    """
    K = len(right)
    for column in range(K):
        pivot = column
        for i in range(column + 1, K):
            if abs(matrix[i, column]) > abs(matrix[pivot, column]):
                pivot = i
        if not abs(matrix[pivot, column]) > 0.0:
            return False
        if pivot != column:
            for j in range(K):
                matrix[column, j], matrix[pivot, j] = matrix[pivot, j], matrix[column, j]
            right[column], right[pivot] = right[pivot], right[column]
        for i in range(column + 1, K):
            factor = matrix[i, column] / matrix[column, column]
            for j in range(column + 1, K):
                matrix[i, j] -= factor * matrix[column, j]
            right[i] -= factor * right[column]
    for i in range(K - 1, -1, -1):
        for j in range(i + 1, K):
            right[i] -= matrix[i, j] * right[j]
        right[i] /= matrix[i, i]
    return True


@compiled(inner=True)
def objective(
    rows: np.ndarray, counts: np.ndarray, first: np.ndarray, system: np.ndarray, pi: np.ndarray
) -> tuple[float, bool]:
    """Compute the stationary distribution of a chain, and the expected log-probability of transitions and first states.

    The latter is ``Σ counts log rows + Σ first log pi``, the objective of the M-step.

    Args:
        rows: transition probabilities, ``(K, K)``.
        counts: expected transitions, ``(K, K)``.
        first: expected first states, ``(K,)``.
        system: scratch memory, ``(K, K)``.
        pi: is filled with the stationary distribution, ``(K,)``.

    Returns:
        The objective in nats, and True; or -inf and False if the chain has no unique stationary distribution.
    """
    K = len(first)
    for i in range(K):
        pi[i] = 1.0 / K
        for j in range(K):
            system[j, i] = (1.0 if i == j else 0.0) - rows[i, j] + 1.0 / K
    if not solve(system, pi):
        return -np.inf, False
    total, value = 0.0, 0.0
    for i in range(K):
        pi[i] = max(pi[i], 0.0)
        total += pi[i]
    for i in range(K):
        pi[i] /= total
        if first[i] > 0.0:
            value += first[i] * np.log(pi[i])
        for j in range(K):
            if counts[i, j] > 0.0:
                value += counts[i, j] * np.log(rows[i, j])
    return value, True


@compiled
def ascend(
    counts: np.ndarray,
    previous: np.ndarray,
    first: np.ndarray,
    is_free: np.ndarray,
    rounds: int,
    halvings: int,
    negligible: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return transition probabilities with a larger expected log-probability, and their stationary distribution.

    The objective is ``Σ counts log rows + Σ first log pi``, with pi the stationary distribution of the transitions.
    Each round takes one step uphill. The step is halved until the objective increases, and a round that gains too
    little is the last.

    Args:
        counts: expected transitions, ``(K, K)``.
        previous: transition probabilities to start from, ``(K, K)``.
        first: expected first states, ``(K,)``.
        is_free: True for rows that may change, ``(K,)``.
        rounds: most steps to take.
        halvings: most halvings of one step.
        negligible: a round ends the search if it gains less than this many nats per expected transition.

    Returns:
        Transition probabilities ``(K, K)`` whose objective is at least that at ``previous``, and their stationary
        distribution ``(K,)``. If ``previous`` has no unique stationary distribution it is returned as it is, with NaN.
    """
    K = len(first)
    rows, step, candidate = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    system, y, pi, new_pi = np.empty((K, K)), np.empty(K), np.empty(K), np.empty(K)
    n_first, n_all = 0.0, 0.0
    for i in range(K):
        n_first += first[i]
        for j in range(K):
            rows[i, j] = previous[i, j]
            n_all += counts[i, j]
    value, has_one = objective(rows, counts, first, system, pi)
    if not has_one:
        for i in range(K):
            pi[i] = np.nan
    if not has_one or value == -np.inf:
        return rows, pi
    for _ in range(rounds):
        for i in range(K):
            y[i] = (first[i] / pi[i] if first[i] > 0.0 else 0.0) - n_first
            for j in range(K):
                system[i, j] = (1.0 if i == j else 0.0) - rows[i, j] + pi[j]
        if not solve(system, y):
            break
        for i in range(K):
            along, least, total = 0.0, np.inf, 0.0
            for j in range(K):
                along += rows[i, j] * y[j]
                total += counts[i, j]
                least = y[j] if rows[i, j] > 0.0 and y[j] < least else least
            room = pi[i] * max(along - least, 0.0)  # keeps probabilities above zero
            for j in range(K):
                step[i, j] = 0.0
                if is_free[i] and total + room > 0.0:
                    gain = counts[i, j] - total * rows[i, j] + rows[i, j] * pi[i] * (y[j] - along)
                    step[i, j] = gain / (total + room)
        before, factor = value, 1.0
        for _ in range(halvings):
            for i in range(K):
                total = 0.0
                for j in range(K):
                    candidate[i, j] = max(rows[i, j] + factor * step[i, j], 0.0)
                    total += candidate[i, j]
                for j in range(K):
                    candidate[i, j] = candidate[i, j] / total if is_free[i] else rows[i, j]
            new_value, has_one = objective(candidate, counts, first, system, new_pi)
            if has_one and new_value > value:
                rows, candidate, pi, new_pi, value = candidate, rows, new_pi, pi, new_value
                break
            factor *= 0.5
        if value - before <= negligible * max(n_all, 1.0):
            break
    return rows, pi
