"""How long a chain stays in each of its states."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components


def stationary(initial: np.ndarray, transition: np.ndarray, final: np.ndarray | None) -> np.ndarray:
    """``(K,)`` shares of the steps spent in each state; sums to one.

    Without ``final``: ``lim 1/n Σ_t initial A^t``: the chance of ending up in each closed class of states, times the one
    ``π = π A`` of the class. With it: expected visits ``initial (I - A)^-1``, as shares; where some state that is reached never
    leads to an end, such a sequence outweighs all others and the limit is taken.

    >>> stationary(np.array([1.0, 0.0]), np.array([[0.9, 0.1], [0.3, 0.7]]), None)
    array([0.75, 0.25])
    """
    classes = _closed_classes(transition, final)
    result = np.zeros(len(initial))
    transient = np.ones(len(initial), dtype=bool)
    transient[[state for states in classes for state in states]] = False
    visits = _visits(initial[transient], transition[np.ix_(transient, transient)])
    for states in classes:
        reached = initial[states].sum() + (visits @ transition[np.ix_(transient, states)]).sum()
        result[states] = reached * _invariant(transition[np.ix_(states, states)])
    if not result.any():  # every sequence ends
        result[transient] = visits
    return result / result.sum()


def _closed_classes(transition: np.ndarray, final: np.ndarray | None) -> list[np.ndarray]:
    """The sets of states that lead to one another and to nothing else."""
    n, label = connected_components(transition > 0, directed=True, connection="strong")
    members = [np.flatnonzero(label == i) for i in range(n)]
    ends = np.zeros(len(transition)) if final is None else final
    leaves = [ends[s].any() or transition[np.ix_(s, np.setdiff1d(np.arange(len(label)), s))].any() for s in members]
    return [states for states, left in zip(members, leaves, strict=True) if not left]


def _visits(initial: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Expected visits of transient states, ``initial (I - A)^-1``."""
    return np.linalg.solve(np.eye(len(initial)) - transition.T, initial)


def _invariant(transition: np.ndarray) -> np.ndarray:
    """The one ``π = π A`` of an irreducible chain."""
    k = len(transition)
    balance = np.vstack([(np.eye(k) - transition).T, np.ones(k)])
    return np.linalg.lstsq(balance, np.append(np.zeros(k), 1.0), rcond=None)[0].clip(min=0)
