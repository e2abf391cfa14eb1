"""Where an alignment goes next: ``p(a_t = j | a_t-1 = i, x) = w[j - i] v_j / Σ_k w[k - i] v_k`` over the S positions,
and the end.

A chain of Vogel, Ney and Tillmann (1996), with the null of Och and Ney (2003): a step that is aligned with nothing
comes with one probability from everywhere, and the position that the next jump is measured from stays what it was.
``w``, the weights of jumps by distance, are ``Jumps``; ``v``, the prior weight of a position, is one everywhere or
learned from the source around it (``JumpPrior``): ``v_j = Π_k v_k(context_k of position j)``, over ever wider
contexts. A letter that is not pronounced is jumped over; whether it is, its neighbours say. The end has a prior weight
too, by what stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between, check_codes
from seqmodels.hmm.alignment.lexicon import UNKNOWN, ContextOrder, find


@dataclass(frozen=True)
class PositionChain:
    """Over K states: ``initial (K,)`` or ``(n, K)``, ``transition (K, K)``, ``final (K,)`` or None; or counts.

    The states are the S positions; with a null 2 S + 1: then come the nulls after no position, after the first, ...,
    after the last.
    """

    initial: np.ndarray
    transition: np.ndarray
    final: np.ndarray | None

    def __add__(self, other: PositionChain) -> PositionChain:
        """The sum of expected counts."""
        final = None if self.final is None or other.final is None else self.final + other.final
        return PositionChain(self.initial + other.initial, self.transition + other.transition, final)

    def weighted(self, weight: float) -> PositionChain:
        """The expected counts of pairs that each count ``weight``."""
        final = None if self.final is None else weight * self.final
        return PositionChain(weight * self.initial, weight * self.transition, final)


@dataclass(frozen=True)
class Jumps:
    """``weights``: of first positions 1 .. D, of jumps -D .. D, of ends 1 .. D beyond; farther counts as D.

    ``null``: the probability that a step is aligned with nothing; None: never.

    The weights stand one after the other: ``of_first (D,)``, ``of_jumps (2 D + 1,)``, ``of_ends (D,)`` are where.
    """

    weights: np.ndarray
    max_jump: int
    has_end: bool
    null: float | None

    @classmethod
    def flat(cls, max_jump: int, *, has_end: bool, null: bool) -> Self:
        """All positions alike, as in IBM's model 1 (Brown et al. 1993)."""
        n_weights = _n_weights(max_jump, has_end=has_end)
        return cls(np.full(n_weights, 1 / n_weights), max_jump, has_end, 0.1 if null else None)

    @property
    def n_parameters(self) -> int:
        """Free parameters: first positions have a factor of their own, jumps and ends share one."""
        return len(self.weights) - 2 + (self.null is not None)

    @property
    def of_first(self) -> slice:
        """Where the weights of first positions 1 .. D stand."""
        return slice(0, self.max_jump)

    @property
    def of_jumps(self) -> slice:
        """Where those of jumps -D .. D stand."""
        return slice(self.of_first.stop, self.of_first.stop + 2 * self.max_jump + 1)

    @property
    def of_ends(self) -> slice:
        """Where those of ends 1 .. D beyond stand; under ``has_end`` alone."""
        return slice(self.of_jumps.stop, self.of_jumps.stop + self.max_jump)

    def weight_index(self, n_positions: int) -> np.ndarray:
        """``(S + 2, S + 1)``: the index of each jump's weight, -1 where there is none.

        Rows: the start, a null before any position, the S positions. Columns: the S positions, and the end.
        """
        max_jump = self.max_jump
        origin, target = np.arange(n_positions + 1)[:, None], np.arange(1, n_positions + 1)
        first_index = self.of_first.start + np.minimum(target, max_jump) - 1
        jump_index = self.of_jumps.start + np.clip(target - origin, -max_jump, max_jump) + max_jump
        end_index = self.of_ends.start + np.minimum(n_positions + 1 - origin, max_jump) - 1
        if not self.has_end:
            end_index = np.full_like(origin, -1)
        return np.column_stack([np.vstack([first_index, first_index, jump_index[1:]]), np.vstack([[[-1]], end_index])])

    def table(self, n_positions: int) -> np.ndarray:
        """``(S + 2, S + 1)``: the weight of each jump, 0 where there is none."""
        index = self.weight_index(n_positions)
        return np.where(index < 0, 0.0, self.weights[index])

    def sums(self, prior: np.ndarray) -> np.ndarray:
        """``(n, S + 2)``: what the jumps from each row are divided by, given the prior weights ``(n, S + 1)`` of
        positions and the end.
        """
        sums: np.ndarray = prior @ self.table(prior.shape[1] - 1).T
        return sums

    def chain(self, sums: np.ndarray) -> PositionChain:
        """Of n sources of one length, all but each position's prior weight and sum (see ``of_states``).

        ``initial (n, K)`` lacks the prior weights, the rows of ``transition`` and ``final`` the prior weights and the
        sums.
        """
        n_positions, null = sums.shape[1] - 2, self.null or 0.0
        table = (1 - null) * self.table(n_positions)
        initial = table[0, :-1] / sums[:, :1]
        final = table[:, -1]
        if self.null is None:
            return PositionChain(initial, table[2:, :-1], final[2:] if self.has_end else None)
        origins = np.concatenate([np.arange(2, n_positions + 2), np.arange(1, n_positions + 2)])
        nulls = null * np.eye(n_positions + 2, n_positions + 1, -1)
        never = np.zeros((len(sums), n_positions))
        initial = np.concatenate([initial, null / sums[:, 1:2], never], axis=1)
        transition = np.concatenate([table[:, :-1], nulls], axis=1)[origins]
        return PositionChain(initial, transition, final[origins] if self.has_end else None)

    def of_states(self, sums: np.ndarray) -> np.ndarray:
        """``(n, S + 2)`` sums of rows -> ``(n, K)`` those of the states."""
        return sums[:, 2:] if self.null is None else np.concatenate([sums[:, 2:], sums[:, 1:]], axis=1)

    def counts_by_jump(self, expected: PositionChain, n_positions: int) -> tuple[np.ndarray, float]:
        """Expected starts, transitions and ends -> ``(S + 2, S + 1)``, arranged as ``weight_index``, and nulls."""
        counts = np.zeros((n_positions + 2, n_positions + 1))
        counts[0, :-1] = expected.initial[:n_positions]
        final = np.zeros(len(expected.initial)) if expected.final is None else expected.final
        state_counts = np.column_stack([expected.transition[:, :n_positions], final])
        counts[2:] = state_counts[:n_positions]
        if self.null is None:
            return counts, 0.0
        counts[1:] += state_counts[n_positions:]
        return counts, float(expected.transition[:, n_positions:].sum() + expected.initial[n_positions:].sum())

    def log_prior(self, pseudocount: float) -> float:
        """Nats that the objective adds: ``pseudocount`` of every weight where there is a choice of all, and of the
        null's two sides.
        """
        total = float(np.log(self.weights / self.weights.sum()).sum())
        if self.null is not None:
            total += float(np.log(self.null) + np.log1p(-self.null))
        return pseudocount * total

    def maximised(
        self, expected: Mapping[int, PositionChain], majoriser_slopes: Mapping[int, np.ndarray], pseudocount: float
    ) -> Jumps:
        """The M-step: exact of the null, of the weights a step of Hunter's (2004) majorisation.

        Counts ``n_w`` of a weight w add ``n_w log w``, and the sum s that divides the jumps out of a row takes away
        ``log s`` for each departure. ``log s <= log s' + (s - s') / s'``, with s' the sum under the weights as they
        are: a bound that is linear in each w, with a slope c_w. ``n_w log w - c_w w`` is largest at ``w = n_w / c_w``.

        Args:
            expected: chains of expected counts, by number of positions.
            majoriser_slopes: the slopes c, ``(S + 2, S + 1)`` the sum over sources of
                ``departures from a row / its sum · prior weight of a column``, by number of positions.
            pseudocount: of every weight.
        """
        n_weights = len(self.weights)
        jump_counts = np.zeros(n_weights)
        slope = np.zeros(n_weights)
        n_null = 0.0
        n_steps = 0.0
        for n_positions, chain in expected.items():
            counts, nulls = self.counts_by_jump(chain, n_positions)
            index = self.weight_index(n_positions)
            mask = index >= 0
            jump_counts += np.bincount(index[mask], counts[mask], n_weights)
            slope += np.bincount(index[mask], majoriser_slopes[n_positions][mask], n_weights)
            n_null += nulls
            n_steps = n_steps + nulls + float(counts.sum())
        weights = (jump_counts + pseudocount) / (slope + n_weights * pseudocount / self.weights.sum())
        null = None if self.null is None else (n_null + pseudocount) / (n_steps + 2 * pseudocount)
        return replace(self, weights=weights / weights.sum(), null=null)

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, to be stored."""
        return {"weights": self.weights, "null": np.array([] if self.null is None else [self.null])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], max_jump: int, *, has_end: bool) -> Self:
        """The inverse of ``arrays``; ``ValueError`` for what are no weights of so many jumps."""
        null, n_weights = array_of(arrays, "null", np.float64, (None,)), _n_weights(max_jump, has_end=has_end)
        check_between("null", null[:1], 0, 1)
        return cls(
            check_between("weights", array_of(arrays, "weights", np.float64, (n_weights,)), 0),
            max_jump,
            has_end,
            float(null[0]) if len(null) else None,
        )


def _n_weights(max_jump: int, *, has_end: bool) -> int:
    """Of first positions and jumps, and under ``has_end`` of ends."""
    return (4 if has_end else 3) * max_jump + 1


@dataclass(frozen=True)
class PositionContexts:
    """Of positions, and the end: ``coarser (n, S + 1)`` factors of all contexts but the finest, and its ``ids``."""

    coarser: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True)
class JumpPrior:
    """``v_j = Π_k v_k(context_k of position j)``, the prior weight of each position of a source, and of its end.

    For each order k that looks at the source ``contexts (C,)``, sorted codes, and their ``factors v_k (C,)``.
    """

    contexts: tuple[np.ndarray, ...]
    factors: tuple[np.ndarray, ...]
    orders: tuple[ContextOrder, ...]
    n_source: int

    @property
    def n_parameters(self) -> int:
        """The number of factors."""
        return sum(map(len, self.factors))

    def look_up(self, windows: np.ndarray) -> PositionContexts:
        """The contexts of each position and the end, given the source symbols around them, ``(n, S + 1, window)``."""
        coarser = np.ones(windows.shape[:-1])
        ids = np.zeros(windows.shape[:-1], np.int64)
        before = np.ones(1)
        for order, contexts, factors in zip(self.orders, self.contexts, self.factors, strict=False):
            coarser = coarser * np.where(ids == UNKNOWN, 1.0, before[ids])
            ids = find(contexts, order.codes(ids, windows, self.n_source))
            before = factors
        return PositionContexts(coarser, ids)

    def weights(self, contexts: PositionContexts) -> np.ndarray:
        """``(n, S + 1)`` prior weights; that of the end is the unit."""
        finest = self.factors[-1] if self.factors else np.ones(1)
        weights: np.ndarray = contexts.coarser * np.where(contexts.ids == UNKNOWN, 1.0, finest[contexts.ids])
        normalised: np.ndarray = weights / weights[:, -1:]
        return normalised

    def __call__(self, windows: np.ndarray) -> np.ndarray:
        """``(n, S + 1)`` prior weights, given the source symbols around each position and the end,
        ``(n, S + 1, window)``.
        """
        return self.weights(self.look_up(windows))

    def with_order(self, windows: Sequence[np.ndarray]) -> JumpPrior:
        """With one order more, of all contexts there are in ``windows``, whose factors are one."""
        order = self.orders[len(self.contexts)]
        codes = [np.unique(order.codes(self.look_up(each).ids, each, self.n_source)) for each in windows]
        contexts = np.unique(np.concatenate(codes))
        return replace(self, contexts=(*self.contexts, contexts), factors=(*self.factors, np.ones(len(contexts))))

    def maximised(self, arrivals: np.ndarray, predicted: np.ndarray, pseudocount: float) -> JumpPrior:
        """The M-step of the finest factors (Hunter 2004), given arrivals ``(C,)``, expected and as predicted now."""
        factors = self.factors[-1]
        better = (arrivals + pseudocount) / (predicted / factors + pseudocount)
        return replace(self, factors=(*self.factors[:-1], better))

    def log_prior(self, pseudocount: float) -> float:
        """Nats that the objective adds for the finest factors: ``pseudocount · Σ (log v - v + 1)``."""
        return pseudocount * float((np.log(self.factors[-1]) - self.factors[-1] + 1).sum()) if self.factors else 0.0

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """By order and name, to be stored."""
        pairs = zip(self.contexts, self.factors, strict=True)
        return {str(i): {"contexts": c, "factors": f} for i, (c, f) in enumerate(pairs)}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Mapping[str, np.ndarray]], orders: tuple[ContextOrder, ...], n_source: int
    ) -> Self:
        """The inverse of ``arrays``; ``ValueError`` for what are no factors."""
        contexts: list[np.ndarray] = []
        factors: list[np.ndarray] = []
        n_before = 1
        for i, order in zip(range(len(arrays)), orders, strict=False):
            base = (n_source + 2) ** len(order.columns)
            codes = array_of(arrays[str(i)], "contexts", np.int64, (None,))
            contexts.append(check_codes("contexts", codes, n_before, base))
            factors.append(check_between("factors", array_of(arrays[str(i)], "factors", np.float64, codes.shape), 0))
            n_before = len(codes)
        if len(contexts) < len(arrays):
            raise ValueError(
                f"the file has jump priors of {len(arrays)} contexts, but window and jump_prior allow for {len(orders)}"
            )
        return cls(tuple(contexts), tuple(factors), orders, n_source)
