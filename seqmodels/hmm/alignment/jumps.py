"""Jumps of an alignment: ``p(a_t = j | a_t-1 = i, x) = w[j - i] v_j / Σ_k w[k - i] v_k`` over S positions and the end.

The chain follows Vogel, Ney and Tillmann (1996), and the null Och and Ney (2003): a step that is aligned with no
position has the same probability everywhere, and the next jump is measured from the position before it. The weights
``w`` of jumps by distance are ``Jumps``. The prior weight ``v`` of a position is one everywhere or learned from the
source around it (``JumpPrior``): ``v_j = Π_k v_k(context_k of position j)``, over ever wider contexts. A silent letter,
for example, is jumped over, and its neighbours determine whether it is silent. The end has a prior weight too, which
depends on the symbols before it.
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
    """A Markov chain over the K states of an alignment, or expected counts of its starts, transitions and ends.

    The states are the S positions of a source. If steps may be aligned with no position (the null), there are 2 S + 1
    states: after the positions come the null before any position, and the nulls after the first, ..., last position.

    Attributes:
        initial: probabilities or counts of first states, ``(K,)``, or ``(n, K)`` for n sources.
        transition: probabilities or counts of transitions from the row's state to the column's, ``(K, K)``.
        final: probabilities or counts of the end after each state, ``(K,)``; None if the end is not an event.
    """

    initial: np.ndarray
    transition: np.ndarray
    final: np.ndarray | None

    def __add__(self, other: PositionChain) -> PositionChain:
        """Return the sum of two sets of expected counts of starts, transitions and ends."""
        final = None if self.final is None or other.final is None else self.final + other.final
        return PositionChain(self.initial + other.initial, self.transition + other.transition, final)

    def weighted(self, weight: float) -> PositionChain:
        """Return the expected counts of starts, transitions and ends multiplied by ``weight``."""
        final = None if self.final is None else weight * self.final
        return PositionChain(weight * self.initial, weight * self.transition, final)


@dataclass(frozen=True)
class Jumps:
    """The weights of jumps between source positions by distance, and the probability of aligning a step with no
    position.

    Attributes:
        weights: weights of first positions 1 .. D, of jumps -D .. D, and of ends 1 .. D positions ahead, one after the
            other; ``of_first``, ``of_jumps`` and ``of_ends`` are their slices.
        max_jump: the distance D; larger distances count as D.
        has_end: True if the end of the target is an event.
        null: probability that a step is aligned with no position; None means that this cannot happen.
    """

    weights: np.ndarray
    max_jump: int
    has_end: bool
    null: float | None

    @classmethod
    def flat(cls, max_jump: int, *, has_end: bool, null: bool) -> Self:
        """Return equal weights for all jumps between source positions, as in IBM's model 1 (Brown et al. 1993).

        Args:
            max_jump: largest distance with a weight of its own.
            has_end: True if the end of the target is an event.
            null: True if a step may be aligned with no position, which then starts with probability 0.1.
        """
        n_weights = _n_weights(max_jump, has_end=has_end)
        return cls(np.full(n_weights, 1 / n_weights), max_jump, has_end, 0.1 if null else None)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of the weights of jumps and of the probability of no position.

        A common factor of the weights of first positions changes nothing, and neither does one of the weights of jumps
        and ends.
        """
        return len(self.weights) - 2 + (self.null is not None)

    @property
    def of_first(self) -> slice:
        """Slice of ``weights`` with the weights of the first target step being aligned with position 1 .. D."""
        return slice(0, self.max_jump)

    @property
    def of_jumps(self) -> slice:
        """Slice of ``weights`` with the weights of jumps by -D .. D positions; D is ``max_jump``."""
        return slice(self.of_first.stop, self.of_first.stop + 2 * self.max_jump + 1)

    @property
    def of_ends(self) -> slice:
        """Slice of ``weights`` with the weights of jumps to the end, 1 .. D positions ahead; needs ``has_end``."""
        return slice(self.of_jumps.stop, self.of_jumps.stop + self.max_jump)

    def weight_index(self, n_positions: int) -> np.ndarray:
        """Return the index in ``weights`` of each jump's weight, ``(S + 2, S + 1)``; -1 where no jump is possible.

        Rows are where a jump begins: the start, the state of no position before any position, and the S =
        ``n_positions`` positions. Columns are where it leads: the S positions and the end.
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
        """Return the weight of each jump between S = ``n_positions`` positions, ``(S + 2, S + 1)``; 0 if impossible.

        Rows are where a jump begins: the start, the state of no position before any position, and the S positions.
        Columns are where it leads: the S positions and the end.
        """
        index = self.weight_index(n_positions)
        return np.where(index < 0, 0.0, self.weights[index])

    def sums(self, prior: np.ndarray) -> np.ndarray:
        """Return for each of n sources the sums that normalise the jumps from each origin, ``(n, S + 2)``.

        The origins are the start, the state of no position before any position, and the S positions.

        Args:
            prior: prior weights of the S positions and of the end of each source, ``(n, S + 1)``.
        """
        sums: np.ndarray = prior @ self.table(prior.shape[1] - 1).T
        return sums

    def chain(self, sums: np.ndarray) -> PositionChain:
        """Return the part of the Markov chain over positions that n sources of one length S share.

        The chain has K states: the S positions or, if steps may be aligned with no position (null), 2 S + 1. Its
        ``initial (n, K)`` is divided by ``sums`` but not yet multiplied by the prior weights of positions. Its
        ``transition`` and ``final`` are neither multiplied by the prior weights nor divided by the sums.

        Args:
            sums: the sums that normalise the jumps of each source, as the method ``sums`` returns them, ``(n, S + 2)``.
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
        """Return the normalising sums of jumps from each of the K states of the chain over positions, ``(n, K)``.

        Args:
            sums: for each of n sources the sums for jumps from the start, from the null (no position) before any
                position, and from the S positions, as the method ``sums`` returns them, ``(n, S + 2)``.
        """
        return sums[:, 2:] if self.null is None else np.concatenate([sums[:, 2:], sums[:, 1:]], axis=1)

    def counts_by_jump(self, expected: PositionChain, n_positions: int) -> tuple[np.ndarray, float]:
        """Return the expected counts of jumps, ``(S + 2, S + 1)``, and the expected number of steps without position.

        Rows are where a jump begins: the start, the state of no position before any position, and the S positions.
        Columns are where it leads: the S positions and the end.

        Args:
            expected: expected counts of starts, transitions and ends by state of the chain.
            n_positions: number of positions S of a source.
        """
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
        """Return the log-density in nats of the prior of jump weights and of the null (no position), up to a constant.

        The prior is a Dirichlet distribution with ``pseudocount`` counts of each weight, and a Beta distribution with
        as many counts of null and of no null.
        """
        total = float(np.log(self.weights / self.weights.sum()).sum())
        if self.null is not None:
            total += float(np.log(self.null) + np.log1p(-self.null))
        return pseudocount * total

    def maximised(
        self, expected: Mapping[int, PositionChain], majoriser_slopes: Mapping[int, np.ndarray], pseudocount: float
    ) -> Jumps:
        """Return the jump weights and the probability of the null (no position) after an M-step.

        The null is at its exact maximum; the weights make one step of majorization (Hunter 2004). Counts ``n_w`` of a
        weight w add ``n_w log w`` to the objective, and the sum s that divides the jumps from a row subtracts ``log s``
        for each departure. With s' the sum under the current weights, ``log s <= log s' + (s - s') / s'``. This bound
        is linear in each w, with a slope c_w, and ``n_w log w - c_w w`` is largest at ``w = n_w / c_w``.

        Args:
            expected: expected counts of starts, transitions and ends, by number S of source positions.
            majoriser_slopes: the slopes c by number of positions, each ``(S + 2, S + 1)`` with a row for each origin of
                a jump and a column for each target: the sum over sources of ``departures from a row / its sum · prior
                weight of a column``.
            pseudocount: pseudocount of every weight.
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
        """Return the jump weights and the probability of the null (no position) as arrays by name, for a file."""
        return {"weights": self.weights, "null": np.array([] if self.null is None else [self.null])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], max_jump: int, *, has_end: bool) -> Self:
        """Return the jumps that a file stores as ``arrays``, which the method ``arrays`` returned.

        Args:
            arrays: the jump weights and the probability of no position, by name.
            max_jump: largest distance with a weight of its own.
            has_end: True if the end of the target is an event.

        Raises:
            ValueError: if the arrays are not weights of jumps up to ``max_jump``.
        """
        null, n_weights = array_of(arrays, "null", np.float64, (None,)), _n_weights(max_jump, has_end=has_end)
        check_between("null", null[:1], 0, 1)
        return cls(
            check_between("weights", array_of(arrays, "weights", np.float64, (n_weights,)), 0),
            max_jump,
            has_end,
            float(null[0]) if len(null) else None,
        )


def _n_weights(max_jump: int, *, has_end: bool) -> int:
    """Return the number of weights of first positions and jumps, and if ``has_end`` of ends."""
    return (4 if has_end else 3) * max_jump + 1


@dataclass(frozen=True)
class PositionContexts:
    """The contexts of each of the S positions and of the end of n sources, looked up in a ``JumpPrior``.

    A context is the source symbols around a position; a finer one includes more of them.

    Attributes:
        coarser: product of the prior factors of all contexts but the finest, ``(n, S + 1)``.
        ids: ids of the finest contexts, ``(n, S + 1)``; ``UNKNOWN`` for one that the prior does not have.
    """

    coarser: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True)
class JumpPrior:
    """The prior weight of each position of a source and of its end, ``v_j = Π_k v_k(context_k of position j)``.

    A context is the source symbols around a position.

    Attributes:
        contexts: sorted integer codes of the C contexts of each order, ``(C,)`` each. An order is a level of contexts,
            from coarse to fine.
        factors: factors ``v_k`` of the contexts of each order, ``(C,)`` each.
        orders: all orders of contexts, including those that have no factors yet.
        n_source: number of source symbols.
    """

    contexts: tuple[np.ndarray, ...]
    factors: tuple[np.ndarray, ...]
    orders: tuple[ContextOrder, ...]
    n_source: int

    @property
    def n_parameters(self) -> int:
        """Number of prior factors, one for each context (source symbols around a position), over all levels of
        contexts.
        """
        return sum(map(len, self.factors))

    def look_up(self, windows: np.ndarray) -> PositionContexts:
        """Return the contexts (surrounding source symbols) of each position and of the end of n sources.

        Args:
            windows: source symbols around each of the S positions and the end, ``(n, S + 1, window)``.
        """
        coarser = np.ones(windows.shape[:-1])
        ids = np.zeros(windows.shape[:-1], np.int64)
        before = np.ones(1)
        for order, contexts, factors in zip(self.orders, self.contexts, self.factors, strict=False):
            coarser = coarser * np.where(ids == UNKNOWN, 1.0, before[ids])
            ids = find(contexts, order.codes(ids, windows, self.n_source))
            before = factors
        return PositionContexts(coarser, ids)

    def weights(self, contexts: PositionContexts) -> np.ndarray:
        """Return the prior weights of S positions and the end of n sources, ``(n, S + 1)``, divided by that of the end.

        Args:
            contexts: contexts (surrounding source symbols) of positions and end, as ``look_up`` returns them.
        """
        finest = self.factors[-1] if self.factors else np.ones(1)
        weights: np.ndarray = contexts.coarser * np.where(contexts.ids == UNKNOWN, 1.0, finest[contexts.ids])
        normalised: np.ndarray = weights / weights[:, -1:]
        return normalised

    def __call__(self, windows: np.ndarray) -> np.ndarray:
        """Return the prior weights of S positions and the end of n sources, ``(n, S + 1)``, divided by that of the end.

        Args:
            windows: source symbols around each position and the end, ``(n, S + 1, window)``.
        """
        return self.weights(self.look_up(windows))

    def with_order(self, windows: Sequence[np.ndarray]) -> JumpPrior:
        """Return the jump prior with one more level of contexts, the next finer one, whose factors are one.

        Args:
            windows: source symbols around each of S positions and the end of n sources, arrays ``(n, S + 1, window)``;
                all contexts that occur in them are added.
        """
        order = self.orders[len(self.contexts)]
        codes = [np.unique(order.codes(self.look_up(each).ids, each, self.n_source)) for each in windows]
        contexts = np.unique(np.concatenate(codes))
        return replace(self, contexts=(*self.contexts, contexts), factors=(*self.factors, np.ones(len(contexts))))

    def maximised(self, arrivals: np.ndarray, predicted: np.ndarray, pseudocount: float) -> JumpPrior:
        """Return the jump prior after an M-step of the factors of the finest contexts by majorization (Hunter 2004).

        Args:
            arrivals: expected number of jumps to each of the C finest contexts, ``(C,)``.
            predicted: number of jumps to each context that the current factors predict, ``(C,)``.
            pseudocount: number added to both.
        """
        factors = self.factors[-1]
        better = (arrivals + pseudocount) / (predicted / factors + pseudocount)
        return replace(self, factors=(*self.factors[:-1], better))

    def log_prior(self, pseudocount: float) -> float:
        """Return the log-density in nats of the prior on the factors v of the finest contexts, ``pseudocount · Σ (log v
        - v + 1)``.
        """
        return pseudocount * float((np.log(self.factors[-1]) - self.factors[-1] + 1).sum()) if self.factors else 0.0

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the contexts and factors as arrays by level of contexts and name, for a file."""
        pairs = zip(self.contexts, self.factors, strict=True)
        return {str(i): {"contexts": c, "factors": f} for i, (c, f) in enumerate(pairs)}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Mapping[str, np.ndarray]], orders: tuple[ContextOrder, ...], n_source: int
    ) -> Self:
        """Return the jump prior that a file stores as ``arrays``, which the method ``arrays`` returned.

        Args:
            arrays: contexts and factors, by level of contexts and name.
            orders: all levels of contexts, from coarse to fine.
            n_source: number of source symbols.

        Raises:
            ValueError: if the arrays cannot be contexts and factors.
        """
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
