"""The fitted tables of an n-gram model, in which contexts are looked up and all orders interpolated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqmodels.common.array_checks import ROUNDING, array_of, check_between, check_codes, check_sums
from seqmodels.counts.ngram.counts import Counts
from seqmodels.counts.ngram.events import NONE
from seqmodels.counts.ngram.smoothing import Smoothing, smooth


@dataclass(frozen=True)
class Level:
    """The fitted probabilities of the C contexts of one length and of the G n-grams of such a context and an event.

    The parent of a context is the context without its oldest symbol, and the id of a context is its row. V is the
    number of symbols.

    Attributes:
        contexts: sorted codes ``id of the parent * (V + 1) + oldest symbol`` of the contexts, ``(C,)``.
        grams: sorted codes ``id of the context * (V + 1) + event`` of the n-grams, ``(G,)``.
        backoff: probability that each context leaves to shorter ones, ``(C,)``.
        share: probability of each n-gram's event in its context, without what shorter contexts add, ``(G,)``.
    """

    contexts: np.ndarray
    grams: np.ndarray
    backoff: np.ndarray
    share: np.ndarray

    def pruned(self, is_kept: np.ndarray, new_parents: np.ndarray, base: int) -> tuple[Level, np.ndarray]:
        """Return the level with only the n-grams of a mask, and the contexts that still have one.

        The shares of the others go to shorter contexts. The parent of a context (the context without its oldest symbol)
        stays whenever the context does, because an n-gram occurs at least as often without its oldest symbol.

        Args:
            is_kept: mask of the n-grams that stay, ``(G,)``.
            new_parents: new id of each context one symbol shorter.
            base: number of symbols plus one, V + 1.

        Returns:
            The level, and the new id of each context, ``(C,)``, ``NONE`` for contexts without an n-gram.
        """
        context = self.grams // base
        left_over = np.bincount(context[~is_kept], self.share[~is_kept], len(self.contexts))
        has_gram = np.bincount(context[is_kept], minlength=len(self.contexts)) > 0
        new_ids = np.where(has_gram, np.cumsum(has_gram) - 1, NONE)
        contexts, grams = self.contexts[has_gram], self.grams[is_kept]
        level = Level(
            new_parents[contexts // base] * base + contexts % base,
            new_ids[grams // base] * base + grams % base,
            (self.backoff + left_over)[has_gram],
            self.share[is_kept],
        )
        return level, new_ids


@dataclass(frozen=True)
class Tables:
    """The conditional distributions ``p(event | symbols before)`` of an n-gram model; an event is a symbol or the end.

    Attributes:
        levels: tables for contexts of 0, 1, ... symbols.
        size: number of symbols V.
        has_end: True if the end is an event, whose code is V.
    """

    levels: list[Level]
    size: int
    has_end: bool

    @classmethod
    def from_counts(
        cls, counts: list[Counts], size: int, has_end: bool, smoothing: Smoothing, min_count: float = 1
    ) -> Self:
        """Return tables with the smoothed counts of every order, without rare n-grams.

        Args:
            counts: counts of n-grams for each length of context from 0 on.
            size: number of symbols V.
            has_end: True if the end of a sequence is an event, whose code is V.
            smoothing: method of smoothing.
            min_count: n-grams of two or more symbols that occur less often are left out; single symbols never are.
        """
        levels: list[Level] = []
        new_ids = np.zeros(1, np.int64)  # new ids of the contexts that are one symbol shorter
        for n, counts_of_order in enumerate(counts):
            share, backoff = smooth(counts_of_order, size + 1, smoothing)
            level = Level(counts_of_order.contexts, counts_of_order.grams, backoff, share)
            if n and min_count > 1 and counts_of_order.totals is None:
                level, new_ids = level.pruned(counts_of_order.counts >= min_count, new_ids, size + 1)
            if n and not len(level.grams):
                break
            levels.append(level)
        return cls(levels, size, has_end)

    @property
    def n_grams(self) -> int:
        """The number of different n-grams of all orders."""
        return sum(len(level.grams) for level in self.levels)

    @property
    def uniform(self) -> float:
        """The probability of each event under the uniform distribution, with which the first order is interpolated."""
        return 1 / (self.size + self.has_end)

    def context_ids(self, contexts: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return, for each length, the row of the context of each of N histories, ``(N,)``; -1 if it was never seen.

        Args:
            contexts: arrays ``(N,)``: the last symbol of each history, then the one before it, and so on; -1 before the
                start.
        """
        ids: list[np.ndarray] = []
        for level, symbols in zip(self.levels[1:], contexts, strict=False):
            parent = ids[-1] if ids else np.zeros(len(symbols), np.int64)
            has_parent = (parent != NONE) & (symbols != NONE)
            ids.append(_find(level.contexts, np.where(has_parent, parent * (self.size + 1) + symbols, NONE)))
        n_histories = len(ids[0]) if ids else len(next(iter(contexts)))
        return [np.zeros(n_histories, np.int64), *ids]

    def probability(self, context_ids: list[np.ndarray], event: np.ndarray) -> np.ndarray:
        """Return the probability of each event after its context, in the shape of ``event``.

        Args:
            context_ids: for each length of context, ids (rows in the tables) that broadcast to that shape; -1 if never
                seen.
            event: the events: symbols, or V (the number of symbols) for the end.
        """
        p = np.full(event.shape, 1 / (self.size + self.has_end))  # below the first order: uniform
        for level, context_id in zip(self.levels, context_ids, strict=False):
            seen = context_id != NONE
            gram = _find(level.grams, np.where(seen, context_id * (self.size + 1) + event, NONE))
            p = np.where(gram == NONE, 0.0, level.share[gram]) + np.where(seen, level.backoff[context_id], 1.0) * p
        return p

    def share(self, level: Level, context_ids: np.ndarray, event: np.ndarray) -> np.ndarray:
        """Return the probability of each event in contexts of one length, without what shorter contexts add.

        It is 0 if the context or the n-gram was never seen.

        Args:
            level: table for contexts of this length.
            context_ids: ids (rows) of the contexts, which broadcast to the shape of ``event``; -1 if never seen.
            event: the events: symbols, or V (the number of symbols) for the end.
        """
        code = np.where(context_ids == NONE, NONE, context_ids * (self.size + 1) + event)
        gram = _find(level.grams, code)
        return np.where(gram == NONE, 0.0, level.share[gram])

    def probability_of_all(self, context_ids: list[np.ndarray]) -> np.ndarray:
        """Return the probability of every event after each of N contexts, ``(N, V)``, or ``(N, V + 1)`` with the end.

        V is the number of symbols.

        Args:
            context_ids: for each length of context, ids (rows in the tables) of the contexts, ``(N,)``; -1 if never
                seen.
        """
        n, size = len(context_ids[0]), self.size + self.has_end
        p = np.full((n, size), 1 / size)
        for level, context_id in zip(self.levels, context_ids, strict=False):
            seen = np.flatnonzero(context_id != NONE)
            ids = context_id[seen]
            p[seen] *= level.backoff[ids, None]
            first, stop = (np.searchsorted(level.grams, (ids + end) * (self.size + 1)) for end in (0, 1))
            n_grams = stop - first
            row = np.repeat(seen, n_grams)
            gram = np.arange(len(row)) - np.repeat(np.cumsum(n_grams) - n_grams - first, n_grams)
            p[row, level.grams[gram] % (self.size + 1)] += level.share[gram]  # each event once in a context
        return p

    def to_state(self) -> dict[str, Any]:
        """Return the arrays of each level by name, under the level's number, as ``from_state`` takes them."""
        return {str(i): vars(level) for i, level in enumerate(self.levels)}

    @classmethod
    def from_state(cls, state: dict[str, Any], size: int, has_end: bool) -> Self:
        """Return the tables that ``to_state`` described.

        Args:
            state: arrays of each length of context, by name under its number.
            size: number of symbols V.
            has_end: True if the end of a sequence is an event, whose code is V.

        Raises:
            ValueError: if the numbers are not probabilities.
        """
        levels: list[Level] = []
        for i in range(len(state)):
            n_before = len(levels[-1].contexts) if levels else 1
            levels.append(_checked(state[str(i)], n_before, size + 1))
        if not levels:
            raise ValueError("the file has no n-grams")
        return cls(levels, size, has_end)


def _checked(state: dict[str, Any], n_before: int, base: int) -> Level:
    """Return the table for contexts of one length that a file holds, after checking its numbers.

    Args:
        state: arrays of the table by name.
        n_before: number of contexts one symbol shorter.
        base: number of symbols plus one, V + 1.
    """
    contexts = check_codes("contexts", array_of(state, "contexts", np.int64, (None,)), n_before, base)
    grams = check_codes("grams", array_of(state, "grams", np.int64, (None,)), len(contexts), base)
    backoff = check_between("backoff", array_of(state, "backoff", np.float64, contexts.shape), 0, 1 + ROUNDING)
    share = check_between("share", array_of(state, "share", np.float64, grams.shape), 0, 1 + ROUNDING)
    check_sums("share", np.bincount(grams // base, share, len(contexts)) + backoff)
    return Level(contexts, grams, backoff, share)


def _find(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the row of each of ``codes`` in the sorted array ``table``; ``NONE`` if it is not there."""
    row = np.minimum(np.searchsorted(table, codes), len(table) - 1)
    return np.where(table[row] == codes, row, NONE)
