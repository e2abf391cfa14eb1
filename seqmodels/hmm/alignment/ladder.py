"""``p(y | context)`` on a ladder of ever finer contexts, each leaning on the one before.

``p_k(y | c) = (n(c, y) + τ p_k-1(y | c')) / (n(c) + τ)``: counts, and as many pseudocounts as τ that lie as the coarser context c' says
(MacKay and Peto 1995, *A hierarchical Dirichlet language model*). Symbols that hardly ever came in a context share one count there and
are told apart as in the coarser one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.array_checks import ROUNDING, array_of, check_between, check_codes

NONE = -1  # no place in a table


@dataclass(frozen=True)
class Rung:
    """What one context knows beyond the coarser one: columns of the window, or the previous symbol."""

    columns: tuple[int, ...] = ()
    previous: bool = False

    def codes(self, place: np.ndarray, around: np.ndarray, n_source: int) -> np.ndarray:
        """Of contexts, as far as they are of the source, given the places of the coarser ones; ``NONE`` where these have none.

        ``around (..., window)`` are source symbols, and above them the codes of the edge and the null.
        """
        code = place
        for column in self.columns:
            code = code * (n_source + 2) + around[..., column]
        return np.where(place == NONE, NONE, code)


def rungs(window: int, previous: bool) -> list[Rung]:
    """From the symbol at the place outwards, one more at a time, the next one first; after the neighbours the target symbol before."""
    centre = window // 2
    wider = [Rung((centre + k,)) for distance in range(1, centre + 1) for k in (distance, -distance)]
    return [Rung((centre,)), *wider[:2], *([Rung((), True)] if previous else []), *wider[2:]]


@dataclass(frozen=True)
class Level:
    """One rung's table.

    Attributes:
        contexts: (C,) sorted codes: the coarser context's place, and what is new.
        pairs: (G,) sorted codes of a context's place and a symbol.
        p: (G,) probability of the symbol there.
        rest: (C,) for other symbols: a factor of their probability in the coarser context.
    """

    contexts: np.ndarray
    pairs: np.ndarray
    p: np.ndarray
    rest: np.ndarray


@dataclass(frozen=True)
class Ladder:
    """Levels, coarse to fine, over ``n_target`` symbols; below them all symbols are alike."""

    levels: tuple[Level, ...]
    rungs: tuple[Rung, ...]
    n_source: int
    n_target: int

    @property
    def n_parameters(self) -> int:
        """Symbols that have a probability of their own in some context, and shares of the rest."""
        return sum(len(level.pairs) + len(level.contexts) for level in self.levels)

    def codes(self, rung: Rung, place: np.ndarray, around: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Of contexts, given the places of the coarser ones; ``NONE`` where these have none."""
        code = rung.codes(place, around, self.n_source)
        return np.where(code == NONE, NONE, code * (self.n_target + 1) + previous) if rung.previous else code

    def places(self, around: np.ndarray, previous: np.ndarray) -> Iterator[np.ndarray]:
        """Where each context stands in the table of each level."""
        place = np.zeros(np.broadcast_shapes(around.shape[:-1], previous.shape), np.int64)
        for level, rung in zip(self.levels, self.rungs, strict=False):
            place = find(level.contexts, self.codes(rung, place, around, previous))
            yield place

    def probability(self, around: np.ndarray, previous: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of symbols ``y``; all shapes broadcast, ``around`` with a last axis more."""
        p = np.full(np.broadcast_shapes(around.shape[:-1], previous.shape, y.shape), 1 / self.n_target)
        for level, place in zip(self.levels, self.places(around, previous), strict=True):
            p = stepped(level, place, y, p, self.n_target)
        return p

    def with_level(self, level: Level) -> Ladder:
        """One more."""
        return replace(self, levels=(*self.levels, level))

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """By level and name, to be stored."""
        return {str(i): dict(vars(level)) for i, level in enumerate(self.levels)}

    @classmethod
    def of(
        cls, arrays: Mapping[str, Mapping[str, np.ndarray]], rungs: Sequence[Rung], n_source: int, n_target: int
    ) -> Self:
        """What ``arrays`` returned; ``ValueError`` for what are no probabilities."""
        if len(arrays) > len(rungs):
            raise ValueError(
                f"the file has {len(arrays)} levels of contexts, but window and previous allow for {len(rungs)}"
            )
        levels: list[Level] = []
        for i, rung in zip(range(len(arrays)), rungs, strict=False):
            n_before = len(levels[-1].contexts) if levels else 1
            base = (n_source + 2) ** len(rung.columns) * (n_target + 1 if rung.previous else 1)
            levels.append(_checked(arrays[str(i)], n_before, base, n_target))
        return cls(tuple(levels), tuple(rungs), n_source, n_target)


def _checked(arrays: Mapping[str, np.ndarray], n_before: int, base: int, n_target: int) -> Level:
    contexts = check_codes("contexts", array_of(arrays, "contexts", np.int64, (None,)), n_before, base)
    pairs = check_codes("pairs", array_of(arrays, "pairs", np.int64, (None,)), len(contexts), n_target)
    p = check_between("p", array_of(arrays, "p", np.float64, pairs.shape), 0, 1 + ROUNDING)
    rest = check_between("rest", array_of(arrays, "rest", np.float64, contexts.shape), 0)
    if (np.bincount(pairs // n_target, p, len(contexts)) > 1 + ROUNDING).any():
        raise ValueError("'p' are probabilities, but those of a context sum to more than one")
    return Level(contexts, pairs, p, rest)


def stepped(level: Level, place: np.ndarray, y: np.ndarray, coarser: np.ndarray, n_target: int) -> np.ndarray:
    """From probabilities in coarser contexts to those in contexts that stand at ``place``."""
    pair = find(level.pairs, np.where(place == NONE, NONE, place * n_target + y))
    rest = np.where(place == NONE, 1.0, level.rest[place]) * coarser
    return np.where(pair == NONE, rest, level.p[pair])


DENSE = 4  # a table of all codes may be as many times as large as what is looked up


def find(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The place of each code in a sorted table, ``NONE`` where it is not there."""
    size = int(table[-1]) + 1
    if size < DENSE * codes.size:
        index = np.full(size + 1, NONE, np.int32)  # the last for what is below or beyond
        index[table] = np.arange(len(table), dtype=np.int32)
        return index[np.where((codes < 0) | (codes >= size), size, codes)]
    place = np.minimum(np.searchsorted(table, codes), len(table) - 1)
    return np.where(table[place] == codes, place, NONE)
