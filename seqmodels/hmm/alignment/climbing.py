"""A level of the ladder while EM fits it: which counts there are, the M-step, and what the objective adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from scipy.special import gammaln, xlogy

from seqmodels.hmm.alignment.blocks import Block
from seqmodels.hmm.alignment.ladder import NONE, Ladder, Level, find

Strength = float | Literal["auto"]

KEPT = 0.01  # of the likeliest place of a step: what is less likely gives a symbol no probability of its own
STRENGTHS = np.geomspace(0.05, 200.0, 25)  # pseudocounts that "auto" chooses from
ENOUGH = 100_000  # counts that it looks at


@dataclass(frozen=True)
class Cells:
    """One block's cells: ``index (N, S')`` in the level's counts, ``coarser (N, S')`` the probability on the level below, ``place``
    of their contexts in the level's table."""

    index: np.ndarray
    coarser: np.ndarray
    place: np.ndarray

    def probability(self, values: np.ndarray, n_pairs: int) -> np.ndarray:
        """``(N, S')`` of the steps, given those of the pairs and factors of the rest."""
        found = values[self.index]
        return np.where(self.index < n_pairs, found, found * self.coarser)


@dataclass(frozen=True)
class Climb:
    """One level: G pairs of a context and a symbol, then for each of C contexts the other symbols, then what no context is of.

    Attributes:
        contexts, pairs: as of ``Level``.
        owner: (G + C,) the context of each.
        mass: (G + C,) what the coarser context gives them.
        strength: τ.
        values: (G + C + 1,) as of ``Level.p`` and ``Level.rest``, and one.
    """

    contexts: np.ndarray
    pairs: np.ndarray
    owner: np.ndarray
    mass: np.ndarray
    strength: float
    values: np.ndarray
    cells: list[Cells]

    @classmethod
    def begin(
        cls,
        blocks: Sequence[Block],
        gammas: Sequence[np.ndarray],
        coarser: Sequence[Cells],
        now: Sequence[np.ndarray],
        ladder: Ladder,
        strength: Strength,
    ) -> Self:
        """The next level of a ladder that has probabilities ``now`` at all cells: at first it says what the coarser one says."""
        rung, n = ladder.rungs[len(ladder.levels)], ladder.n_target
        codes = [
            ladder.codes(rung, c.place, block.around, block.previous[:, None])
            for block, c in zip(blocks, coarser, strict=True)
        ]
        counted = [(g >= KEPT * g.max(1, keepdims=True)) & (c != NONE) for g, c in zip(gammas, codes, strict=True)]
        contexts = np.unique(np.concatenate([c[k] for c, k in zip(codes, counted, strict=True)]))
        places = [find(contexts, code) for code in codes]
        kinds = [np.where(p == NONE, NONE, p * n + b.y[:, None]) for p, b in zip(places, blocks, strict=True)]
        pairs, first = np.unique(
            np.concatenate([kind[k] for kind, k in zip(kinds, counted, strict=True)]), return_index=True
        )
        own = np.concatenate([p[k] for p, k in zip(now, counted, strict=True)])[first]
        return cls._of(contexts, pairs, own, places, kinds, now, gammas, blocks, n, strength)

    @classmethod
    def _of(
        cls,
        contexts: np.ndarray,
        pairs: np.ndarray,
        own: np.ndarray,
        places: Sequence[np.ndarray],
        kinds: Sequence[np.ndarray],
        now: Sequence[np.ndarray],
        gammas: Sequence[np.ndarray],
        blocks: Sequence[Block],
        n_target: int,
        strength: Strength,
    ) -> Self:
        n_pairs, n_contexts = len(pairs), len(contexts)
        owner = np.concatenate([pairs // n_target, np.arange(n_contexts)])
        left = np.maximum(1 - np.bincount(owner[:n_pairs], own, n_contexts), 0.0)
        cells = []
        for place, kind, p in zip(places, kinds, now, strict=True):
            pair = find(pairs, kind)
            rest = np.where(place == NONE, n_pairs + n_contexts, n_pairs + place)
            cells.append(Cells(np.where(pair == NONE, rest, pair).astype(np.int32), p, place.astype(np.int32)))
        mass = np.concatenate([own, left])
        values = np.concatenate([own, np.ones(n_contexts + 1)])
        climb = cls(contexts, pairs, owner, mass, 0.0, values, cells)
        chosen = climb.likeliest_strength(climb.count(blocks, gammas)) if strength == "auto" else strength
        return cls(contexts, pairs, owner, mass, chosen, values, cells)

    @property
    def level(self) -> Level:
        """As it is now."""
        n = len(self.pairs)
        return Level(self.contexts, self.pairs, self.values[:n], self.values[n:-1])

    def probability(self, i: int) -> np.ndarray:
        """``(N, S')`` of the steps of block i at each place."""
        return self.cells[i].probability(self.values, len(self.pairs))

    def count(self, blocks: Sequence[Block], gammas: Sequence[np.ndarray]) -> np.ndarray:
        """``(G + C,)`` expected counts."""
        total = np.zeros(len(self.values))
        for cells, block, gamma in zip(self.cells, blocks, gammas, strict=True):
            total += block.weight * np.bincount(cells.index.ravel(), gamma.ravel(), len(total))
        return total[:-1]

    def maximised(self, counts: np.ndarray) -> Climb:
        """The exact M-step, given expected counts."""
        wanted = counts + self.strength * self.mass
        found = wanted / np.bincount(self.owner, wanted, len(self.contexts))[self.owner]
        n, left = len(self.pairs), self.mass[len(self.pairs) :]
        # Where nothing is left, no other symbol is ever asked for.
        rest = np.divide(found[n:], left, out=np.ones_like(left), where=left > 0)
        values = np.concatenate([found[:n], rest, [1.0]])
        return Climb(self.contexts, self.pairs, self.owner, self.mass, self.strength, values, self.cells)

    def log_prior(self) -> float:
        """``-τ Σ_c KL(coarser || here)`` nats."""
        n = len(self.pairs)
        ratio = np.concatenate([self.values[:n] / self.mass[:n], self.values[n:-1]])
        return self.strength * float(xlogy(self.mass, ratio).sum())

    def likeliest_strength(self, counts: np.ndarray) -> float:
        """The τ under which the counts, rounded to no whole numbers, are most probable with the distributions summed out.

        ``Σ_c log Γ(τ) / Γ(n_c + τ) + Σ_y log Γ(n_cy + τ m_cy) / Γ(τ m_cy)``, the likelihood of Pólya's urns, over enough contexts.
        """
        every = max(1, len(counts) // ENOUGH)
        seen = (self.owner % every == 0) & (self.mass > 0)
        n, m = counts[seen], self.mass[seen]
        totals = np.bincount(self.owner, counts, len(self.contexts))[::every]
        scores = [
            float((gammaln(t) - gammaln(totals + t)).sum() + (gammaln(n + t * m) - gammaln(t * m)).sum())
            for t in STRENGTHS
        ]
        return float(STRENGTHS[int(np.argmax(scores))])
