"""Where an alignment goes next, by distance: ``p(a_t = j | a_t-1 = i, S) = w[j - i] / Σ_k w[k - i]`` over the S places there are.

A chain of Vogel, Ney and Tillmann (1996), with the null of Och and Ney (2003): a step that is aligned with nothing comes with one
probability from everywhere, and the place that the next jump is measured from stays what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

ROUNDS = 10  # of the majorisation in an M-step: each betters the objective


@dataclass(frozen=True)
class Chain:
    """Over K states: ``initial (K,)``, ``transition (K, K)``, ``final (K,)`` or None; their rows with ``final`` sum to one.

    The states are the S places; with a null 2 S + 1: then come the nulls after no place, after the first, ..., after the last.
    """

    initial: np.ndarray
    transition: np.ndarray
    final: np.ndarray | None

    def __add__(self, other: Chain) -> Chain:
        """Of expected counts."""
        final = None if self.final is None or other.final is None else self.final + other.final
        return Chain(self.initial + other.initial, self.transition + other.transition, final)


@dataclass(frozen=True)
class Jumps:
    """``weights``: of first places 1 .. D, of jumps -D .. D, of ends 1 .. D beyond; what is farther than D counts as D.

    ``null``: the probability that a step is aligned with nothing; None: never.
    """

    weights: np.ndarray
    max_jump: int
    stops: bool
    null: float | None

    @classmethod
    def flat(cls, max_jump: int, *, stops: bool, null: bool) -> Self:
        """All places alike, as in IBM's model 1."""
        n = max_jump + 2 * max_jump + 1 + (max_jump if stops else 0)
        return cls(np.full(n, 1 / n), max_jump, stops, 0.1 if null else None)

    @property
    def n_parameters(self) -> int:
        """Free ones: each kind of weight up to a factor, and the null; ends share theirs with jumps."""
        return len(self.weights) - 2 + (self.null is not None)

    def features(self, n_places: int) -> np.ndarray:
        """``(S + 2, S + 1)``: the weight that each way takes, -1 where there is none.

        Rows: the start, a null before any place, the S places. Columns: the S places, and the end.
        """
        far, origin = self.max_jump, np.arange(n_places + 1)[:, None]
        places = np.clip(np.arange(1, n_places + 1) - origin, -far, far) + 2 * far  # after the far first places
        first = np.minimum(np.arange(1, n_places + 1), far) - 1
        ends = np.minimum(n_places + 1 - origin, far) + 3 * far if self.stops else np.full_like(origin, -1)
        rows = np.column_stack([np.vstack([first, first, places[1:]]), np.vstack([[[-1]], ends])])
        return rows

    def chain(self, n_places: int) -> Chain:
        """The Markov chain over the places of a source of this length."""
        features = self.features(n_places)
        p = np.where(features < 0, 0.0, self.weights[features])
        p /= p.sum(1, keepdims=True)
        if self.null is None:
            return Chain(p[0, :-1], p[2:, :-1], p[2:, -1] if self.stops else None)
        places, nulls = p * (1 - self.null), np.full((n_places + 2, n_places + 1), 0.0)
        nulls[0, 0], nulls[1:] = self.null, self.null * np.eye(n_places + 1)
        rows = np.concatenate([places[:, :-1], nulls], axis=1)  # (S + 2, K)
        origins = np.concatenate([np.arange(2, n_places + 2), np.arange(1, n_places + 2)])
        return Chain(rows[0], rows[origins], places[origins, -1] if self.stops else None)

    def counted(self, expected: Chain, n_places: int) -> tuple[np.ndarray, float]:
        """Expected starts, transitions and ends of a chain -> ``(S + 2, S + 1)`` by rows and columns of ``features``, and nulls."""
        counts = np.zeros((n_places + 2, n_places + 1))
        counts[0, :-1] = expected.initial[:n_places]
        rows = np.column_stack(
            [expected.transition[:, :n_places], 0.0 * expected.initial if expected.final is None else expected.final]
        )
        counts[2:] = rows[:n_places]
        if self.null is None:
            return counts, 0.0
        counts[1:] += rows[n_places:]
        return counts, float(expected.transition[:, n_places:].sum() + expected.initial[n_places:].sum())

    def log_prior(self, pseudocount: float) -> float:
        """Nats that the objective adds: ``pseudocount`` of every weight where there is a choice of all, and of the null's two sides."""
        total = float(np.log(self.weights / self.weights.sum()).sum())
        if self.null is not None:
            total += float(np.log(self.null) + np.log1p(-self.null))
        return pseudocount * total

    def maximised(self, ways: Ways, pseudocount: float) -> Jumps:
        """A better fit to expected counts: exact of the null, of the weights ``ROUNDS`` of Hunter's (2004) MM steps."""
        null = self.null
        if null is not None:
            null = (ways.n_null + pseudocount) / (ways.n_null + float(ways.counts.sum()) + 2 * pseudocount)
        return replace(self, weights=ways.climbed(self.weights, pseudocount), null=null)

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, to be stored."""
        return {"weights": self.weights, "null": np.array([] if self.null is None else [self.null])}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], max_jump: int, *, stops: bool) -> Self:
        """What ``arrays`` returned."""
        null = arrays["null"]
        return cls(np.asarray(arrays["weights"]), max_jump, stops, float(null[0]) if len(null) else None)


@dataclass(frozen=True)
class Ways:
    """All ways on from all rows of all lengths of source, in one list: ``feature (E,)``, ``row (E,)``, expected ``counts (E,)``."""

    feature: np.ndarray
    row: np.ndarray
    counts: np.ndarray
    n_null: float

    @classmethod
    def of(cls, jumps: Jumps, expected: Mapping[int, Chain]) -> Self:
        """Of expected chains by number of places."""
        features, rows, counts, n_rows, n_null = [], [], [], 0, 0.0
        for n_places, chain in expected.items():
            found, nulls = jumps.counted(chain, n_places)
            feature = jumps.features(n_places)
            real = feature >= 0
            features.append(feature[real])
            rows.append(np.nonzero(real)[0] + n_rows)
            counts.append(found[real])
            n_rows, n_null = n_rows + len(feature), n_null + nulls
        return cls(np.concatenate(features), np.concatenate(rows), np.concatenate(counts), n_null)

    @cached_property
    def departures(self) -> np.ndarray:
        """How often each row is left."""
        return np.bincount(self.row, self.counts)

    def climbed(self, weights: np.ndarray, pseudocount: float) -> np.ndarray:
        """Weights of a higher ``Σ c log(w / Σ w) + pseudocount Σ log(w / Σ w)``, normalised."""
        n = len(weights)
        wanted = np.bincount(self.feature, self.counts, n) + pseudocount
        for _ in range(ROUNDS):
            sums = np.bincount(self.row, weights[self.feature])
            pressure = self.departures / np.where(sums > 0, sums, 1.0)
            weights = wanted / (np.bincount(self.feature, pressure[self.row], n) + n * pseudocount / weights.sum())
            weights = weights / weights.sum()
        return weights
