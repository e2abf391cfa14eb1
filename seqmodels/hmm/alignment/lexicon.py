"""The lexicon ``p(y | context)``, estimated in ever finer contexts that back off to coarser ones.

``p_k(y | c) = (n(c, y) + τ p_k-1(y | c')) / (n(c) + τ)`` is estimated from counts and τ pseudocounts in the proportions
of the coarser context c' (MacKay and Peto 1995, *A hierarchical Dirichlet language model*). Symbols that are rare in a
context share one count there, which is divided as in the coarser context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.common.array_checks import ROUNDING, array_of, check_between, check_codes

UNKNOWN = -1  # id of a context, or of a pair, that no table has
DENSE = 4  # an index of all codes is used if it is at most so many times as large as what is looked up


@dataclass(frozen=True)
class ContextOrder:
    """One level of contexts of a target symbol, by what it adds to the coarser level before.

    Attributes:
        columns: columns of the window of source symbols whose symbols are added.
        previous: True if the target symbol before is added.
    """

    columns: tuple[int, ...] = ()
    previous: bool = False

    def codes(self, ids: np.ndarray, windows: np.ndarray, n_source: int) -> np.ndarray:
        """Return an integer code for each context, given the ids of the coarser contexts and the source symbols.

        The code leaves out the target symbol before. ``windows (..., window)`` are source symbols, and outside of the
        source the codes of the edge and the null. The code of an ``UNKNOWN`` context is ``UNKNOWN``.
        """
        codes = ids
        for column in self.columns:
            codes = codes * np.int64(n_source + 2) + windows[..., column]
        return np.where(ids == UNKNOWN, UNKNOWN, codes)


def context_orders(window: int, previous: bool) -> list[ContextOrder]:
    """Return the levels of contexts, coarse to fine.

    Each adds one more source symbol of the window, from its centre outwards, and if ``previous`` one adds the target
    symbol before, after both neighbours.
    """
    centre = window // 2
    wider = [ContextOrder((centre + k,)) for distance in range(1, centre + 1) for k in (distance, -distance)]
    return [ContextOrder((centre,)), *wider[:2], *([ContextOrder((), True)] if previous else []), *wider[2:]]


@dataclass(frozen=True)
class ContextTable:
    """The contexts of one level with their distributions over target symbols.

    There are C contexts, whose ids are indices from 0 to C - 1, and G pairs of a context and a symbol seen in it.

    Attributes:
        contexts: sorted codes, each of the id of the coarser context and the added part, ``(C,)``.
        pairs: sorted codes, each of a context's id and a target symbol, ``(G,)``.
        p: probability of the symbol of each pair in its context, ``(G,)``.
        rest: for all other symbols, the factor that multiplies the probability in the coarser context, ``(C,)``.
    """

    contexts: np.ndarray
    pairs: np.ndarray
    p: np.ndarray
    rest: np.ndarray


@dataclass(frozen=True)
class BackoffLexicon:
    """The lexicon as tables of contexts over ``n_target`` symbols, coarse to fine.

    Without tables all symbols are equally probable.

    Attributes:
        tables: the tables estimated so far.
        orders: the orders of all tables, including those not yet estimated.
        n_source, n_target: number of source and of target symbols.
    """

    tables: tuple[ContextTable, ...]
    orders: tuple[ContextOrder, ...]
    n_source: int
    n_target: int

    @property
    def n_parameters(self) -> int:
        """Number of pairs with a probability of their own, plus one for the other symbols of each context."""
        return sum(len(table.pairs) + len(table.contexts) for table in self.tables)

    def codes(self, order: ContextOrder, ids: np.ndarray, windows: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Return the codes of contexts of the level ``order``, given the ids of the coarser contexts.

        ``windows`` are source symbols around a position, ``previous`` the target symbols before. The code is
        ``UNKNOWN`` where the id is ``UNKNOWN``.
        """
        codes = order.codes(ids, windows, self.n_source)
        if not order.previous:
            return codes
        return np.where(codes == UNKNOWN, UNKNOWN, codes * np.int64(self.n_target + 1) + previous)

    @property
    def n_of_source(self) -> int:
        """Number of leading tables whose contexts depend on the source alone."""
        orders = self.orders[: len(self.tables)]
        return next((k for k, order in enumerate(orders) if order.previous), len(orders))

    def context_ids(
        self, windows: np.ndarray, previous: np.ndarray, known: Sequence[np.ndarray] = ()
    ) -> Iterator[np.ndarray]:
        """Yield the ids of the contexts in each table.

        ``windows``: source symbols, ``(..., window)``; ``previous``: target symbols before; ``known``: ids in the first
        tables, which are not looked up again.
        """
        ids = np.zeros(np.broadcast_shapes(windows.shape[:-1], previous.shape), np.int32)
        for k, (table, order) in enumerate(zip(self.tables, self.orders, strict=False)):
            ids = known[k] if k < len(known) else find(table.contexts, self.codes(order, ids, windows, previous))
            yield ids

    def probability(self, windows: np.ndarray, previous: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the probability of target symbols ``y`` given the source symbols around them and the symbols before.

        The shapes of ``previous``, ``y`` and ``windows`` without its last axis, the window, broadcast.
        """
        shape = np.broadcast_shapes(windows.shape[:-1], previous.shape)
        return self.probability_in(self.context_ids(windows, previous), y, shape)

    def probability_in(self, contexts: Iterable[np.ndarray], y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the probability of target symbols ``y`` in contexts whose ids in each table are given.

        ``shape`` is the shape of the ids; the result has this shape broadcast with the shape of ``y``.
        """
        p: np.ndarray = np.full(np.broadcast_shapes(shape, y.shape), 1 / self.n_target)
        for table, ids in zip(self.tables, contexts, strict=True):
            p = refined(table, ids, y, p, self.n_target)
        return p

    def bases(self) -> list[int]:
        """Return for each table the divisor that takes a context's code to the id of its coarser context."""
        return [_base(order, self.n_source, self.n_target) for order, _ in zip(self.orders, self.tables, strict=False)]

    def with_table(self, table: ContextTable) -> BackoffLexicon:
        """Return the lexicon with one more table, the finest."""
        return replace(self, tables=(*self.tables, table))

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the tables as arrays by table and name, in the form in which a file stores them."""
        return {str(i): dict(vars(table)) for i, table in enumerate(self.tables)}

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, Mapping[str, np.ndarray]],
        orders: Sequence[ContextOrder],
        n_source: int,
        n_target: int,
    ) -> Self:
        """Return the lexicon stored as ``arrays``.

        Raises:
            ValueError: the arrays cannot be contexts and probabilities.
        """
        if len(arrays) > len(orders):
            raise ValueError(
                f"the file has {len(arrays)} levels of contexts, but window and previous allow for {len(orders)}"
            )
        tables: list[ContextTable] = []
        for i, order in zip(range(len(arrays)), orders, strict=False):
            n_before = len(tables[-1].contexts) if tables else 1
            tables.append(_checked(arrays[str(i)], n_before, _base(order, n_source, n_target), n_target))
        return cls(tuple(tables), tuple(orders), n_source, n_target)


@dataclass(frozen=True)
class SummedLexicon:
    """A lexicon prepared for weighted sums ``Σ_s w_s p(y | context s)`` of all target symbols y at once.

    With ``p_k(y | c) = rest_k(c) p_k-1(y | c') + d_k(c, y)``, where d is zero but for the few pairs of the table, the
    time depends on the number of such pairs and not on the number of symbols.

    Attributes:
        lexicon: the lexicon.
        excess: the numbers d of each table, ``(G,)`` each.
        ends: index of the first pair of each context in each table, and after the last context the number of pairs,
            ``(C + 1,)`` each.
    """

    lexicon: BackoffLexicon
    excess: tuple[np.ndarray, ...]
    ends: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, lexicon: BackoffLexicon) -> SummedLexicon:
        """Return the prepared form of a lexicon."""
        bases, n = lexicon.bases(), lexicon.n_target
        excess, ends = [], []
        for k, table in enumerate(lexicon.tables):
            ids, y = np.divmod(table.pairs, n)
            chain = [ids]  # ids of the contexts, from this table down to the coarsest
            for finer, base in zip(lexicon.tables[k:0:-1], bases[k:0:-1], strict=True):
                chain.append(finer.contexts[chain[-1]] // base)
            p = np.full(len(ids), 1 / n)
            for coarser, of_coarser in zip(lexicon.tables[:k], chain[:0:-1], strict=True):
                p = refined(coarser, of_coarser, y, p, n)
            excess.append(table.p - table.rest[ids] * p)
            ends.append(np.searchsorted(table.pairs, np.arange(len(table.contexts) + 1) * n))
        return cls(lexicon, tuple(excess), tuple(ends))

    def sums(self, contexts: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum of the distributions of some contexts over V target symbols, ``(n, V)`` float64.

        ``contexts``: ids of S contexts in each table, ``(n, S)`` each; ``weights``: weight of each context, ``(n, S)``.
        """
        n_target = self.lexicon.n_target
        factor, total = weights.astype(np.float64), np.zeros(len(weights) * n_target)
        for k in range(len(contexts) - 1, -1, -1):
            table, ids = self.lexicon.tables[k], contexts[k]
            row, position = np.nonzero(ids != UNKNOWN)
            known = ids[row, position]
            first = self.ends[k][known]
            count = self.ends[k][known + 1] - first
            pair = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
            cell = np.repeat(row, count) * n_target + table.pairs[pair] % n_target
            value = np.repeat(factor[row, position], count) * self.excess[k][pair]
            total += np.bincount(cell, value, len(total))
            factor[row, position] *= table.rest[known]
        total += np.repeat(factor.sum(1) / n_target, n_target)
        return total.reshape(len(weights), n_target)


def _base(order: ContextOrder, n_source: int, n_target: int) -> int:
    """Return the number by which the coarser context's id is multiplied in the code of a context of ``order``."""
    base: int = (n_source + 2) ** len(order.columns)
    return base * (n_target + 1) if order.previous else base


def _checked(arrays: Mapping[str, np.ndarray], n_before: int, base: int, n_target: int) -> ContextTable:
    contexts = check_codes("contexts", array_of(arrays, "contexts", np.int64, (None,)), n_before, base)
    pairs = check_codes("pairs", array_of(arrays, "pairs", np.int64, (None,)), len(contexts), n_target)
    p = check_between("p", array_of(arrays, "p", np.float64, pairs.shape), 0, 1 + ROUNDING)
    rest = check_between("rest", array_of(arrays, "rest", np.float64, contexts.shape), 0)
    if (np.bincount(pairs // n_target, p, len(contexts)) > 1 + ROUNDING).any():
        raise ValueError("'p' should be probabilities, but in some context they sum to more than one")
    return ContextTable(contexts, pairs, p, rest)


def refined(table: ContextTable, ids: np.ndarray, y: np.ndarray, coarser: np.ndarray, n_target: int) -> np.ndarray:
    """Return the probability of ``y`` in the contexts ``ids`` of a table.

    ``coarser``: probability of ``y`` in the coarser contexts, which remains where a context is ``UNKNOWN``.
    """
    pair = find(table.pairs, np.where(ids == UNKNOWN, UNKNOWN, ids * np.int64(n_target) + y))
    rest = np.where(ids == UNKNOWN, 1.0, table.rest[ids]) * coarser
    p: np.ndarray = np.where(pair == UNKNOWN, rest, table.p[pair])
    return p


def find(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the index of each of ``codes`` in a sorted ``table``, int32; ``UNKNOWN`` for a code that is not there."""
    size = int(table[-1]) + 1
    if size < DENSE * codes.size:
        index = np.full(size + 1, UNKNOWN, np.int32)  # the last is for codes below zero or beyond the table
        index[table] = np.arange(len(table), dtype=np.int32)
        return index[np.where((codes < 0) | (codes >= size), size, codes)]
    index = np.minimum(np.searchsorted(table, codes), len(table) - 1).astype(np.int32)
    return np.where(table[index] == codes, index, np.int32(UNKNOWN))
