"""A level of the ladder while EM fits it: which counts there are, the M-step, and what the objective adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

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
    """One block's cells, all ``(N, S')``: ``index`` in the level's counts, ``coarser`` the probability on the level below, ``place`` of
    their contexts in the level's table."""

    index: np.ndarray
    coarser: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, pair: np.ndarray, place: np.ndarray, coarser: np.ndarray, n_pairs: int, n_contexts: int) -> Self:
        """Where each cell's pair stands, or its context, or neither."""
        rest = np.where(place == NONE, n_pairs + n_contexts, n_pairs + place)
        return cls(np.where(pair == NONE, rest, pair).astype(np.int32), coarser, place)

    def probability(self, values: np.ndarray, n_pairs: int) -> np.ndarray:
        """``(N, S')`` of the steps, given those of the pairs and factors of the rest."""
        found = values[self.index]
        return np.where(self.index < n_pairs, found, found * self.coarser)


@dataclass(frozen=True)
class Site:
    """One block as a new level finds it: ``code (N, S')`` of its contexts, posteriors ``gamma``, and probabilities ``now``."""

    block: Block
    code: np.ndarray
    gamma: np.ndarray
    now: np.ndarray

    @classmethod
    def of(cls, block: Block, ladder: Ladder, place: np.ndarray, gamma: np.ndarray, now: np.ndarray) -> Self:
        """For the next level of the ladder, given the places of contexts in its last."""
        rung = ladder.rungs[len(ladder.levels)]
        code = ladder.codes(rung, place, block.around, block.previous[:, None])
        return cls(block, code, gamma, now)

    @cached_property
    def counted(self) -> np.ndarray:
        """``(N, S')`` bool: the cells that give their contexts and symbols probabilities of their own."""
        return (self.gamma >= KEPT * self.gamma.max(1, keepdims=True)) & (self.code != NONE)

    def pairs(self, place: np.ndarray, n_target: int) -> np.ndarray:
        """``(N, S')`` codes of contexts and symbols."""
        return np.where(place == NONE, NONE, place * n_target + self.block.y[:, None])


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
    def begin(cls, sites: Sequence[Site], n_target: int, strength: Strength) -> Self:
        """A level that at first says what the coarser one says."""
        contexts = np.unique(np.concatenate([site.code[site.counted] for site in sites]))
        places = [find(contexts, site.code) for site in sites]
        codes = [site.pairs(place, n_target) for site, place in zip(sites, places, strict=True)]
        seen = np.concatenate([code[site.counted] for site, code in zip(sites, codes, strict=True)])
        pairs, first = np.unique(seen, return_index=True)
        own = np.concatenate([site.now[site.counted] for site in sites])[first]
        n_pairs, n_contexts = len(pairs), len(contexts)
        owner = np.concatenate([pairs // n_target, np.arange(n_contexts)])
        left = np.maximum(1 - np.bincount(owner[:n_pairs], own, n_contexts), 0.0)
        cells = [
            Cells.of(find(pairs, code), place, site.now, n_pairs, n_contexts)
            for site, place, code in zip(sites, places, codes, strict=True)
        ]
        values, mass = np.concatenate([own, np.ones(n_contexts + 1)]), np.concatenate([own, left])
        climb = cls(contexts, pairs, owner, mass, 1.0 if strength == "auto" else strength, values, cells)
        if strength != "auto":
            return climb
        counts = climb.count([site.block for site in sites], [site.gamma for site in sites])
        return replace(climb, strength=climb.likeliest_strength(counts))

    def arrays(self) -> dict[str, Any]:
        """To be stored, without the cells, which ``again`` finds."""
        kept = {"contexts": self.contexts, "pairs": self.pairs, "owner": self.owner, "mass": self.mass}
        return {**kept, "values": self.values, "strength": float(self.strength)}

    @classmethod
    def again(cls, sites: Sequence[Site], arrays: Mapping[str, Any], n_target: int) -> Self:
        """What ``arrays`` returned, on the same sites; their posteriors are not looked at."""
        contexts, pairs = arrays["contexts"], arrays["pairs"]
        places = [find(contexts, site.code) for site in sites]
        cells = [
            Cells.of(find(pairs, site.pairs(place, n_target)), place, site.now, len(pairs), len(contexts))
            for site, place in zip(sites, places, strict=True)
        ]
        return cls(contexts, pairs, arrays["owner"], arrays["mass"], arrays["strength"], arrays["values"], cells)

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
        return replace(self, values=values)

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
