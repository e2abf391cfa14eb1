"""The oracle: every path of hidden states written out, its probability multiplied up, and sums taken over the list."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Enumerated:
    """All about one sequence; ``steps`` (T,), ``end``, ``log_prob``, ``gamma`` (T, K), ``xi`` (K, K), ``best_path``,
    ``best``."""

    steps: Array
    end: float
    log_prob: float
    gamma: Array
    xi: Array
    alpha: Array
    best_path: tuple[int, ...]
    best: float


def path_probabilities(initial: Array, transition: Array, b: Array) -> dict[tuple[int, ...], float]:
    """p(path, x) without the end; ``b`` (T, K) holds p(x_t | state)."""
    paths = {}
    for path in itertools.product(range(len(initial)), repeat=len(b)):
        p = initial[path[0]] * b[0, path[0]]
        for t in range(1, len(b)):
            p *= transition[path[t - 1], path[t]] * b[t, path[t]]
        paths[path] = float(p)
    return paths


def enumerate_paths(initial: Array, transition: Array, b: Array, final: Array | None = None) -> Enumerated:
    """Every quantity by brute force, K^T paths for each prefix."""
    T, K = b.shape
    prefixes = [sum(path_probabilities(initial, transition, b[: t + 1]).values()) for t in range(T)]
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.diff(np.log(prefixes), prepend=0.0)
    ends = np.ones(K) if final is None else final
    open_paths = path_probabilities(initial, transition, b)
    paths = {path: p * ends[path[-1]] for path, p in open_paths.items()}
    total = sum(paths.values())
    gamma, xi, alpha = np.zeros((T, K)), np.zeros((K, K)), np.zeros((T, K))
    for path, p in paths.items():
        for t, state in enumerate(path):
            gamma[t, state] += p / total if total else 0.0
            if t:
                xi[path[t - 1], state] += p / total if total else 0.0
    for t in range(T):
        for path, p in path_probabilities(initial, transition, b[: t + 1]).items():
            alpha[t, path[-1]] += p / prefixes[t] if prefixes[t] else 0.0
    best_path = max(paths, key=lambda path: (paths[path], tuple(-state for state in reversed(path))))
    with np.errstate(divide="ignore"):
        end = float(np.log(total) - np.log(prefixes[-1])) if prefixes[-1] else -np.inf
        return Enumerated(
            steps, end, float(np.log(total)), gamma, xi, alpha, best_path, float(np.log(paths[best_path]))
        )


def random_model(rng: np.random.Generator, K: int, with_final: bool, sparse: bool) -> tuple[Array, Array, Array | None]:
    """``initial``, ``transition`` and ``final``, with about a third of the entries exactly zero if ``sparse``."""
    initial, table = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K + 1), size=K)
    if sparse:
        initial, table = initial * (rng.random(K) > 0.3), table * (rng.random((K, K + 1)) > 0.3)
        initial[rng.integers(K)] += 0.1
        table[np.arange(K), rng.integers(K + 1, size=K)] += 0.1
        if not with_final:
            table[np.arange(K), rng.integers(K, size=K)] += 0.1
    if not with_final:
        table[:, K] = 0.0
    initial, table = initial / initial.sum(), table / table.sum(1, keepdims=True)
    return initial, table[:, :K], table[:, K] if with_final else None
