"""Bit histories: the bits seen after a context, as one of a few hundred states (Mahoney 2005).

Up to four bits are remembered exactly; longer histories are reduced to bounded counts ``(n0, n1)`` and the last bit. A
bit reduces the count of the opposite bit if that is above two, because recent bits matter more. The bounds of the
counts let a few hundred states cover long histories.
"""

from __future__ import annotations

from functools import cache

import numpy as np

N_HISTORIES = 512  # length of arrays over histories; fewer are in use
EXACT = 4  # number of bits that are remembered exactly
LARGEST = {0: 60, 1: 40, 2: 20, 3: 12, 4: 9, 5: 8, 6: 7, 7: 7}  # smaller count -> largest value of the larger count

# (True, bits) for a short history, (False, (n0, n1, last bit)) for a long one
History = tuple[bool, tuple[int, ...]]


@cache
def transitions() -> tuple[np.ndarray, np.ndarray]:
    """Return the state machine of bit histories, which summarise the bits seen after a context as one of S states.

    State 0 is the empty history.

    Returns:
        The state after each bit, ``(S, 2)``, and the initial probability of bit 1 in each state, ``(S,)``.

    >>> after, probability = transitions()
    >>> state = after[after[0, 1], 1]  # two ones
    >>> round(float(probability[0]), 2), round(float(probability[state]), 2)
    (0.5, 0.86)
    """
    start: History = (True, ())
    numbers = {start: 0}
    states = [start]
    after = []
    for state in states:  # grows
        row = []
        for bit in (0, 1):
            following = _after(state, bit)
            if following not in numbers:
                numbers[following] = len(numbers)
                states.append(following)
            row.append(numbers[following])
        after.append(row)
    assert len(states) <= N_HISTORIES
    counts = np.array([_counts(state) for state in states], dtype=np.float64)
    return np.array(after, dtype=np.int64), (counts[:, 1] + 0.4) / (counts.sum(1) + 0.8)


def _counts(state: History) -> tuple[int, int]:
    is_exact, entries = state
    return (len(entries) - sum(entries), sum(entries)) if is_exact else (entries[0], entries[1])


def _after(state: History, bit: int) -> History:
    is_exact, entries = state
    if is_exact and len(entries) < EXACT:
        return True, (*entries, bit)
    counts = list(_counts(state))
    counts[bit] += 1
    opposite = counts[1 - bit]
    if not is_exact and opposite > 2:
        counts[1 - bit] = (opposite + 3) // 2 if opposite < 6 else opposite // 2 + 1
    while max(counts) > LARGEST.get(min(counts), 0):  # the larger count is reduced, the new bit's if they are equal
        larger = bit if counts[bit] >= counts[1 - bit] else 1 - bit
        counts[larger] -= 1
    return False, (counts[0], counts[1], bit)
