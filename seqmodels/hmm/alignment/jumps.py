"""Where an alignment goes next: ``p(a_t = j | a_t-1 = i, x) = w[j - i] v_j / Σ_k w[k - i] v_k`` over the S places there are, and the end.

A chain of Vogel, Ney and Tillmann (1996), with the null of Och and Ney (2003): a step that is aligned with nothing comes with one
probability from everywhere, and the place that the next jump is measured from stays what it was. ``v``, the pull of a place, is one
everywhere or learned from the source around it (``seqmodels.hmm.alignment.pull``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.array_checks import array_of, check_between


@dataclass(frozen=True)
class Chain:
    """Over K states: ``initial (K,)`` or ``(n, K)``, ``transition (K, K)``, ``final (K,)`` or None; or their expected counts.

    The states are the S places; with a null 2 S + 1: then come the nulls after no place, after the first, ..., after the last.
    """

    initial: np.ndarray
    transition: np.ndarray
    final: np.ndarray | None

    def __add__(self, other: Chain) -> Chain:
        """Of expected counts."""
        final = None if self.final is None or other.final is None else self.final + other.final
        return Chain(self.initial + other.initial, self.transition + other.transition, final)

    def weighted(self, weight: float) -> Chain:
        """Of pairs that each count ``weight``."""
        final = None if self.final is None else weight * self.final
        return Chain(weight * self.initial, weight * self.transition, final)


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
        """All places alike, as in IBM's model 1 (Brown et al. 1993)."""
        n = (4 if stops else 3) * max_jump + 1
        return cls(np.full(n, 1 / n), max_jump, stops, 0.1 if null else None)

    @property
    def n_parameters(self) -> int:
        """Free ones: first places have a factor of their own, jumps and ends share one."""
        return len(self.weights) - 2 + (self.null is not None)

    def features(self, n_places: int) -> np.ndarray:
        """``(S + 2, S + 1)``: the weight that each way takes, -1 where there is none.

        Rows: the start, a null before any place, the S places. Columns: the S places, and the end.
        """
        far, origin = self.max_jump, np.arange(n_places + 1)[:, None]
        jumps = np.clip(np.arange(1, n_places + 1) - origin, -far, far) + 2 * far  # behind the far first places
        first = np.minimum(np.arange(1, n_places + 1), far) - 1
        ends = np.minimum(n_places + 1 - origin, far) + 3 * far if self.stops else np.full_like(origin, -1)
        return np.column_stack([np.vstack([first, first, jumps[1:]]), np.vstack([[[-1]], ends])])

    def table(self, n_places: int) -> np.ndarray:
        """``(S + 2, S + 1)``: the weights themselves."""
        features = self.features(n_places)
        return np.where(features < 0, 0.0, self.weights[features])

    def sums(self, pull: np.ndarray) -> np.ndarray:
        """``(n, S + 2)``: what the ways from each row are divided by, given the pulls ``(n, S + 1)`` of places and the end."""
        return pull @ self.table(pull.shape[1] - 1).T

    def chain(self, sums: np.ndarray) -> Chain:
        """Of n sources of like length, all but what each place has of its own: its pull, and its sum (see ``of_states``).

        ``initial (n, K)`` lacks the pulls, the rows of ``transition`` and ``final`` the pulls and the sums.
        """
        n_places, null = sums.shape[1] - 2, self.null or 0.0
        table = (1 - null) * self.table(n_places)
        initial = table[0, :-1] / sums[:, :1]
        final = table[:, -1]
        if self.null is None:
            return Chain(initial, table[2:, :-1], final[2:] if self.stops else None)
        origins = np.concatenate([np.arange(2, n_places + 2), np.arange(1, n_places + 2)])
        nulls = null * np.eye(n_places + 2, n_places + 1, -1)
        never = np.zeros((len(sums), n_places))
        initial = np.concatenate([initial, null / sums[:, 1:2], never], axis=1)
        transition = np.concatenate([table[:, :-1], nulls], axis=1)[origins]
        return Chain(initial, transition, final[origins] if self.stops else None)

    def of_states(self, sums: np.ndarray) -> np.ndarray:
        """``(n, S + 2)`` sums of rows -> ``(n, K)`` those of the states."""
        return sums[:, 2:] if self.null is None else np.concatenate([sums[:, 2:], sums[:, 1:]], axis=1)

    def counted(self, expected: Chain, n_places: int) -> tuple[np.ndarray, float]:
        """Expected starts, transitions and ends -> ``(S + 2, S + 1)`` by rows and columns of ``features``, and nulls."""
        counts = np.zeros((n_places + 2, n_places + 1))
        counts[0, :-1] = expected.initial[:n_places]
        final = np.zeros(len(expected.initial)) if expected.final is None else expected.final
        rows = np.column_stack([expected.transition[:, :n_places], final])
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

    def maximised(self, expected: Mapping[int, Chain], pressure: Mapping[int, np.ndarray], pseudocount: float) -> Jumps:
        """A better fit: exact of the null, of the weights a step of Hunter's (2004) majorisation.

        Args:
            expected: chains of expected counts, by number of places.
            pressure: ``(S + 2, S + 1)`` the sum over sources of ``departures from a row / its sum · pull of a column``.
            pseudocount: of every weight.
        """
        n, made, n_null, total = len(self.weights), np.zeros(len(self.weights)), 0.0, 0.0
        divisor = np.zeros(n)
        for n_places, chain in expected.items():
            counts, nulls = self.counted(chain, n_places)
            features = self.features(n_places)
            real = features >= 0
            made += np.bincount(features[real], counts[real], n)
            divisor += np.bincount(features[real], pressure[n_places][real], n)
            n_null, total = n_null + nulls, total + nulls + float(counts.sum())
        weights = (made + pseudocount) / (divisor + n * pseudocount / self.weights.sum())
        null = None if self.null is None else (n_null + pseudocount) / (total + 2 * pseudocount)
        return replace(self, weights=weights / weights.sum(), null=null)

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, to be stored."""
        return {"weights": self.weights, "null": np.array([] if self.null is None else [self.null])}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], max_jump: int, *, stops: bool) -> Self:
        """What ``arrays`` returned; ``ValueError`` for what are no weights of so many jumps."""
        null, n = array_of(arrays, "null", np.float64, (None,)), (4 if stops else 3) * max_jump + 1
        check_between("null", null[:1], 0, 1)
        return cls(
            check_between("weights", array_of(arrays, "weights", np.float64, (n,)), 0),
            max_jump,
            stops,
            float(null[0]) if len(null) else None,
        )
