"""All the ways to spell a text in pieces, summed: ``p(text) = Σ_spellings Π_i p(piece_i | pieces before)``, by a beam over its bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.special import logsumexp

from seqmodels.generation.cursor import Cursor, CursorState

# Numbers of the histories that are made one, and the state of them all: see ``Marginal._merged``.
Merged = list[tuple[list[int], CursorState]]


@dataclass(frozen=True)
class Lattice:
    """The pieces of a text of N bytes, by where they begin.

    Args:
        arcs: for each byte the ``(symbol, end)`` of all pieces that begin there and agree with the text.
        usual: for each byte at which the usual spelling has a piece, its symbol.
    """

    arcs: list[list[tuple[int, int]]]
    usual: dict[int, int]

    @classmethod
    def of(cls, usual: np.ndarray, spelling: Sequence[bytes]) -> Lattice:
        """Of the text whose usual spelling this is, in symbols of this ``spelling``."""
        parts = [spelling[symbol] for symbol in usual.tolist()]
        begins = np.cumsum([0, *map(len, parts)])[:-1].tolist()
        symbols: dict[bytes, list[int]] = {}
        for symbol, part in enumerate(spelling):
            symbols.setdefault(part, []).append(symbol)
        text, longest = b"".join(parts), max(map(len, spelling))
        arcs = [
            [(s, end) for end in range(at + 1, min(at + longest, len(text)) + 1) for s in symbols.get(text[at:end], ())]
            for at in range(len(text))
        ]
        return cls(arcs, dict(zip(begins, usual.tolist(), strict=True)))


@dataclass(frozen=True)
class Road:
    """A beginning of a spelling that ends with ``symbol``, or several made one; ``state`` is the cursor's before that symbol, and then after it.

    ``log_weight``: nats; where roads were drawn, of the roads that this one stands for. ``usual``: the usual spelling is among them.
    """

    log_weight: float
    state: CursorState
    symbol: int | None
    usual: bool


class Pruning(ABC):
    """Which of the roads that meet at a byte go on. To add one, define ``keep``: the usual spelling is not up for choice."""

    @abstractmethod
    def keep(self, roads: list[Road], n: int) -> list[Road]:
        """At most ``n`` of these."""

    def __call__(self, roads: list[Road], beam: int | None) -> list[Road]:
        """The usual spelling's, and ``beam`` of the others."""
        others = [road for road in roads if not road.usual]
        kept = others if beam is None or len(others) <= beam else self.keep(others, beam)
        return [road for road in roads if road.usual] + kept


class Best(Pruning):
    """The most probable: what comes out is a lower bound for certain."""

    def keep(self, roads: list[Road], n: int) -> list[Road]:
        return sorted(roads, key=lambda road: road.log_weight, reverse=True)[:n]


@dataclass
class Drawn(Pruning):
    """Drawn, so that the sum stays right in the mean (Fearnhead & Clifford 2003, *On-line inference for hidden Markov models via particle filters*).

    Roads of weight ``c`` or more go on as they are; of the others each goes on with probability ``weight / c``, as one of weight ``c``.
    """

    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def keep(self, roads: list[Road], n: int) -> list[Road]:
        ordered = sorted(roads, key=lambda road: road.log_weight, reverse=True)
        largest = ordered[0].log_weight
        weights = np.exp(np.array([road.log_weight for road in ordered]) - largest)
        rest = weights[::-1].cumsum()[::-1]  # (r,) of this one and those below
        sure = next(k for k in range(n) if weights[k] * (n - k) <= rest[k])
        threshold = rest[sure] / (n - sure)
        if threshold == 0:  # so improbable that they have no weight beside the largest
            return ordered[:n]
        marks = (self.rng.uniform() + np.arange(n - sure)) * threshold
        drawn = sure + np.searchsorted(weights[sure:].cumsum(), marks, side="right")
        as_drawn = largest + float(np.log(threshold))
        chosen = [replace(ordered[min(i, len(ordered) - 1)], log_weight=as_drawn) for i in drawn.tolist()]
        return ordered[:sure] + chosen


@torch.inference_mode()
def log_prob_of_spellings(
    cursor: Cursor,
    merged: Callable[[list[float], list[CursorState]], Merged],
    lattice: Lattice,
    pruning: Pruning,
    beam: int | None,
    *,
    stops: bool,
    source: np.ndarray | None = None,
) -> float:
    """Nats of a text, over the spellings that are followed; the usual one always is.

    Every spelling passes each byte at most once, so what is kept is a set of spellings, or, drawn, an unbiased estimate of the sum
    over all. A piece is shown to the model only when the road that ends with it is kept, so the cost is ``beam`` steps of the
    model for each byte.

    Args:
        cursor: over the lattice's symbols. merged: ``Marginal._merged``.
        beam: roads that go on from each byte besides the usual spelling; None: all.
        stops: whether the end is an event, which then counts.
        source: what the text is given, encoded.
    """
    waiting: list[list[Road]] = [[] for _ in range(len(lattice.arcs) + 1)]
    waiting[0] = [Road(0.0, cursor.start(source, 1), None, usual=True)]
    for at, arcs in enumerate(lattice.arcs):
        for road in _advanced(cursor, merged, pruning(waiting[at], beam)):
            log_probs = cursor.distribution(road.state).log_probs()[0].cpu()
            for symbol, end in arcs:
                log_weight = road.log_weight + float(log_probs[symbol])
                if log_weight > -np.inf:
                    usual = road.usual and lattice.usual.get(at) == symbol
                    waiting[end].append(Road(log_weight, road.state, symbol, usual))
        waiting[at] = []
    ends = waiting[-1]
    if stops:
        ends = [_ended(cursor, road) for road in _advanced(cursor, merged, pruning(ends, beam))]
    return float(logsumexp([road.log_weight for road in ends])) if ends else -np.inf


def _advanced(
    cursor: Cursor, merged: Callable[[list[float], list[CursorState]], Merged], roads: list[Road]
) -> list[Road]:
    """The model shown the last symbol of each road; those made one whose futures allow it."""
    states = [
        road.state if road.symbol is None else cursor.advance(road.state, torch.tensor([road.symbol])) for road in roads
    ]
    log_weights = [road.log_weight for road in roads]
    return [
        Road(float(logsumexp([log_weights[i] for i in group])), state, None, any(roads[i].usual for i in group))
        for group, state in merged(log_weights, states)
    ]


def _ended(cursor: Cursor, road: Road) -> Road:
    log_end = cursor.distribution(road.state).log_end
    assert log_end is not None, "ends are events"
    return replace(road, log_weight=road.log_weight + float(log_end))
