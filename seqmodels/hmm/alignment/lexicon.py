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
    """One level of contexts of a target symbol: the surrounding symbols that it adds to the coarser level before.

    Attributes:
        columns: indices, in the window of source symbols around a position, of the symbols that are added.
        previous: True if the target symbol before is added.
    """

    columns: tuple[int, ...] = ()
    previous: bool = False

    def codes(self, ids: np.ndarray, windows: np.ndarray, n_source: int) -> np.ndarray:
        """Return an integer code for each context, made of the coarser context and the source symbols that this level
        adds.

        The target symbol before is not part of the code. The code of an ``UNKNOWN`` context is ``UNKNOWN``.

        Args:
            ids: ids of the coarser contexts, ``(...)``.
            windows: source symbols around each position, ``(..., window)``; outside of the source they are
                ``n_source``, and ``n_source + 1`` for no position.
            n_source: number of source symbols.
        """
        codes = ids
        for column in self.columns:
            codes = codes * np.int64(n_source + 2) + windows[..., column]
        return np.where(ids == UNKNOWN, UNKNOWN, codes)


def context_orders(window: int, previous: bool) -> list[ContextOrder]:
    """Return the levels of contexts of a target symbol, from coarse to fine.

    Each adds one more source symbol of the window, from its center outwards.

    Args:
        window: number of source symbols around a position, odd.
        previous: True if one level, after both neighbours of the position, adds the target symbol before.
    """
    centre = window // 2
    wider = [ContextOrder((centre + k,)) for distance in range(1, centre + 1) for k in (distance, -distance)]
    return [ContextOrder((centre,)), *wider[:2], *([ContextOrder((), True)] if previous else []), *wider[2:]]


@dataclass(frozen=True)
class ContextTable:
    """The contexts (surrounding symbols) of one level of detail with their distributions over target symbols.

    There are C contexts, whose ids are indices from 0 to C - 1, and G pairs of a context and a symbol seen in it.

    Attributes:
        contexts: sorted integer codes, each made of the id of the coarser context and the symbols that this level adds,
            ``(C,)``.
        pairs: sorted integer codes, each made of a context's id and a target symbol, ``(G,)``.
        p: probability of the symbol of each pair in its context, ``(G,)``.
        rest: for all other symbols, the factor that multiplies the probability in the coarser context, ``(C,)``.
    """

    contexts: np.ndarray
    pairs: np.ndarray
    p: np.ndarray
    rest: np.ndarray


@dataclass(frozen=True)
class BackoffLexicon:
    """The distributions of target symbols in contexts, as tables from coarse to fine, each backing off to the one
    before.

    A context consists of source symbols around a position and perhaps the target symbol before. Without tables all
    symbols are equally probable.

    Attributes:
        tables: the tables estimated so far.
        orders: the level of contexts of each table, including tables not yet estimated.
        n_source, n_target: number of source and of target symbols.
    """

    tables: tuple[ContextTable, ...]
    orders: tuple[ContextOrder, ...]
    n_source: int
    n_target: int

    @property
    def n_parameters(self) -> int:
        """Number of free parameters: pairs of context and symbol with a probability, plus one for each context."""
        return sum(len(table.pairs) + len(table.contexts) for table in self.tables)

    def codes(self, order: ContextOrder, ids: np.ndarray, windows: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Return an integer code for each context of the level ``order``, ``UNKNOWN`` where the coarser context is
        ``UNKNOWN``.

        Args:
            order: the symbols that this level of contexts adds.
            ids: ids of the coarser contexts, ``(...)``.
            windows: source symbols around each position, ``(..., window)``.
            previous: target symbol before each step, of a shape that broadcasts with ``ids``.
        """
        codes = order.codes(ids, windows, self.n_source)
        if not order.previous:
            return codes
        return np.where(codes == UNKNOWN, UNKNOWN, codes * np.int64(self.n_target + 1) + previous)

    @property
    def n_of_source(self) -> int:
        """Number of tables, from the coarsest on, before contexts also depend on the target symbol before."""
        orders = self.orders[: len(self.tables)]
        return next((k for k, order in enumerate(orders) if order.previous), len(orders))

    def context_ids(
        self, windows: np.ndarray, previous: np.ndarray, known: Sequence[np.ndarray] = ()
    ) -> Iterator[np.ndarray]:
        """Yield the ids of the contexts in each table, from coarse to fine; ``UNKNOWN`` for a context that a table does
        not have.

        Args:
            windows: source symbols around each position, ``(..., window)``.
            previous: target symbol before each step, of a shape that broadcasts with ``windows`` without its last axis.
            known: ids in the first tables, which are not looked up again.
        """
        ids = np.zeros(np.broadcast_shapes(windows.shape[:-1], previous.shape), np.int32)
        for k, (table, order) in enumerate(zip(self.tables, self.orders, strict=False)):
            ids = known[k] if k < len(known) else find(table.contexts, self.codes(order, ids, windows, previous))
            yield ids

    def probability(self, windows: np.ndarray, previous: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the probability of target symbols given the source symbols around a position and the target symbol
        before.

        The shapes of ``previous``, ``y`` and ``windows`` without its last axis broadcast.

        Args:
            windows: source symbols around each position, ``(..., window)``.
            previous: target symbol before each step.
            y: target symbols.
        """
        shape = np.broadcast_shapes(windows.shape[:-1], previous.shape)
        return self.probability_in(self.context_ids(windows, previous), y, shape)

    def probability_in(self, contexts: Iterable[np.ndarray], y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the probability of target symbols in contexts whose ids are given.

        Args:
            contexts: ids of the contexts in each table, from coarse to fine, arrays of one shape.
            y: target symbols, of a shape that broadcasts with the ids.
            shape: the shape of the ids.
        """
        p: np.ndarray = np.full(np.broadcast_shapes(shape, y.shape), 1 / self.n_target)
        for table, ids in zip(self.tables, contexts, strict=True):
            p = refined(table, ids, y, p, self.n_target)
        return p

    def bases(self) -> list[int]:
        """Return for each table the divisor by which a context's code gives the id of its coarser context."""
        return [_base(order, self.n_source, self.n_target) for order, _ in zip(self.orders, self.tables, strict=False)]

    def with_table(self, table: ContextTable) -> BackoffLexicon:
        """Return the lexicon with one more table of contexts, finer than all others."""
        return replace(self, tables=(*self.tables, table))

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the tables of contexts as arrays by number of the table and name, for a file."""
        return {str(i): dict(vars(table)) for i, table in enumerate(self.tables)}

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, Mapping[str, np.ndarray]],
        orders: Sequence[ContextOrder],
        n_source: int,
        n_target: int,
    ) -> Self:
        """Return the lexicon that a file stores as ``arrays``, which the method ``arrays`` returned.

        Args:
            arrays: arrays by number of the table and name.
            orders: all levels of contexts, from coarse to fine.
            n_source: number of source symbols.
            n_target: number of target symbols.

        Raises:
            ValueError: if the arrays cannot be contexts and probabilities.
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

    With weights w of contexts s and ``p_k(y | c) = rest_k(c) p_k-1(y | c') + d_k(c, y)``, where d is zero except for
    the few pairs of context and symbol in table k, the time depends on the number of such pairs and not on the number
    of symbols.

    Attributes:
        lexicon: distributions of target symbols in contexts.
        excess: the numbers d of the G pairs of each table, ``(G,)`` each.
        ends: index of the first pair of each context in each table, and after the last context the number of pairs,
            ``(C + 1,)`` each for C contexts.
    """

    lexicon: BackoffLexicon
    excess: tuple[np.ndarray, ...]
    ends: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, lexicon: BackoffLexicon) -> SummedLexicon:
        """Return ``lexicon`` prepared for sums over all target symbols at once."""
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
        """Return weighted sums of the distributions of contexts over V target symbols, ``(n, V)`` float64.

        Args:
            contexts: ids of S contexts in each table, from coarse to fine, ``(n, S)`` each.
            weights: weight of each context, ``(n, S)``.
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
    """Return the probability of symbols in the contexts of a table, which refines a coarser distribution.

    Args:
        table: contexts and distributions of one level.
        ids: ids of the contexts in the table, ``UNKNOWN`` for a context that it does not have.
        y: target symbols, of a shape that broadcasts with ``ids``.
        coarser: probability of ``y`` in the coarser contexts, which is kept where a context is ``UNKNOWN``.
        n_target: number of target symbols.
    """
    pair = find(table.pairs, np.where(ids == UNKNOWN, UNKNOWN, ids * np.int64(n_target) + y))
    rest = np.where(ids == UNKNOWN, 1.0, table.rest[ids]) * coarser
    p: np.ndarray = np.where(pair == UNKNOWN, rest, table.p[pair])
    return p


def find(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the index, int32, of each of ``codes`` in ``table``, a sorted array; ``UNKNOWN`` for one that is not
    there.
    """
    size = int(table[-1]) + 1
    if size < DENSE * codes.size:
        index = np.full(size + 1, UNKNOWN, np.int32)  # the last is for codes below zero or beyond the table
        index[table] = np.arange(len(table), dtype=np.int32)
        return index[np.where((codes < 0) | (codes >= size), size, codes)]
    index = np.minimum(np.searchsorted(table, codes), len(table) - 1).astype(np.int32)
    return np.where(table[index] == codes, index, np.int32(UNKNOWN))
