"""Where EM starts: states known, guessed by clustering or by cutting into equal parts; transitions from how they follow one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.blocks import Block
from seqmodels.hmm.constraints import Tying
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.jitter import MANY, jitter
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Banded, Topology, restrict

SMOOTHING = 0.1  # the share of a first guess that is spread evenly: every arc stays possible
SCORED = 1 << 16  # frames whose densities are compared at once


def starts(
    emission: Emission,
    blocks: list[Block],
    n_states: int,
    *,
    stops: bool,
    generators: Sequence[torch.Generator],
    topology: Topology | None = None,
    tying: Tying | None = None,
) -> Iterator[Parameters]:
    """A first guess from each generator; every sequence counts once, whatever its weight. Tied states begin with one emission."""
    shape, ties, seen = topology or Banded(), tying or Tying.of(None, n_states), _Seen.of(blocks)
    for generator in generators:
        yield _start(emission, seen, shape, ties, generator, stops=stops)


def start(
    emission: Emission,
    blocks: list[Block],
    n_states: int,
    *,
    stops: bool,
    generator: torch.Generator,
    topology: Topology | None = None,
    tying: Tying | None = None,
) -> Parameters:
    """One of ``starts``."""
    return next(starts(emission, blocks, n_states, stops=stops, generators=[generator], topology=topology, tying=tying))


def _start(
    emission: Emission, seen: _Seen, shape: Topology, ties: Tying, generator: torch.Generator, *, stops: bool
) -> Parameters:
    n_states = len(ties.group)
    labels = _labels(emission, seen, shape, ties, generator)
    group = ties.group.to(labels.device)
    table = ties.spread(emission.from_labels(seen.x, seen.past, group[labels], ties.n_groups, generator))
    begins, arcs = _counts(labels, seen.lengths, n_states)
    # No two states start alike, even if their emissions do.
    strong = emission.observation.emits == "symbols" and n_states >= MANY
    arcs = _smoothed(arcs) * jitter(arcs.shape, generator, strong=strong).to(seen.x.device)
    if not stops:
        arcs = arcs[:, :n_states]
    rows = arcs / arcs.sum(1, keepdim=True)
    final = rows[:, n_states].contiguous() if stops else None
    return restrict(Parameters(_smoothed(begins), rows[:, :n_states].contiguous(), final, table), shape)


@dataclass(frozen=True)
class _Seen:
    """All frames, sequence after sequence; ``known (N,)`` states, -1 where unknown, or None."""

    x: Tensor
    past: Tensor | None
    lengths: Tensor
    known: Tensor | None

    @classmethod
    def of(cls, blocks: list[Block]) -> _Seen:
        pasts = [b.segments.packing.unpack(b.past) for b in blocks if b.past is not None]
        known = [_only(b.segments.packing.unpack(b.states)) for b in blocks if b.states is not None]
        return cls(
            torch.cat([b.segments.packing.unpack(b.x) for b in blocks]),
            torch.cat(pasts) if pasts else None,
            torch.cat([b.segments.lengths for b in blocks]),
            torch.cat(known) if known else None,
        )


def _only(states: Tensor) -> Tensor:
    """``(N,)`` the state of each frame where it is known, from that, or from the states ``(N, K)`` bool that are possible."""
    if states.dim() == 1:
        return states
    return torch.where(states.sum(1) == 1, states.long().argmax(1), -1)


def _labels(emission: Emission, seen: _Seen, topology: Topology, tying: Tying, generator: torch.Generator) -> Tensor:
    """``(N,)`` a first guess of each frame's state; where it is known, that."""
    known, k = seen.known, len(tying.group)
    if topology.is_ordered:
        guess = _equal_parts(seen.lengths, k)
    elif known is not None and bool((known >= 0).any()):
        guess = _like_known(emission, seen, known, tying, generator)
    elif tying.is_free:
        guess = emission.labels(seen.x, k, generator)
    else:
        guess = _members(emission.labels(seen.x, tying.n_groups, generator), tying, generator)
    return guess if known is None else torch.where(known >= 0, known, guess)


def _equal_parts(lengths: Tensor, n_states: int) -> Tensor:
    """The k-th of K equal parts of each sequence is in state k (a flat start, as in speech)."""
    first = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    time = torch.arange(int(lengths.sum()), device=lengths.device) - first
    return time * n_states // torch.repeat_interleave(lengths, lengths)


def _like_known(emission: Emission, seen: _Seen, known: Tensor, tying: Tying, generator: torch.Generator) -> Tensor:
    """The state under whose labelled frames each frame is most probable."""
    rows, group = (known >= 0).nonzero()[:, 0], tying.group.to(known.device)
    past = None if seen.past is None else seen.past[rows]
    distinct = emission.from_labels(seen.x[rows], past, group[known[rows]], tying.n_groups, generator)
    table, dtype = tying.spread(distinct), seen.x.dtype if seen.x.is_floating_point() else torch.float32
    parts = []
    for part in torch.arange(len(known), device=known.device).split(SCORED):
        past = None if seen.past is None else seen.past[part]
        parts.append(emission.log_prob(table, seen.x[part], past, dtype).argmax(1))
    return torch.cat(parts)


def _members(groups: Tensor, tying: Tying, generator: torch.Generator) -> Tensor:
    """Groups -> states, each of a group's as likely."""
    size = torch.bincount(tying.group)
    order, first = torch.argsort(tying.group, stable=True), size.cumsum(0) - size
    choice = torch.rand(len(groups), generator=generator, dtype=torch.float64)
    group = groups.cpu()
    return order[first[group] + (choice * size[group]).long()].to(groups.device)


def _counts(labels: Tensor, lengths: Tensor, n_states: int) -> tuple[Tensor, Tensor]:
    """How often each state begins, ``(K,)``, and goes on to each other or to the end, ``(K, K + 1)``; float64."""
    last = lengths.cumsum(0) - 1
    after = torch.full_like(labels, n_states)
    after[:-1] = labels[1:]
    after[last] = n_states
    arcs = torch.bincount(labels * (n_states + 1) + after, minlength=n_states * (n_states + 1))
    begins = torch.bincount(labels[last - lengths + 1], minlength=n_states)
    return begins.double(), arcs.view(n_states, n_states + 1).double()


def _smoothed(counts: Tensor) -> Tensor:
    """Counts -> probabilities along the last axis, none zero; a row without counts is uniform."""
    total = counts.sum(-1, keepdim=True)
    even = torch.full_like(counts, 1 / counts.shape[-1])
    return torch.where(total > 0, (1 - SMOOTHING) * counts / total + SMOOTHING * even, even)
