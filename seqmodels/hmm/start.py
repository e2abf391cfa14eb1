"""Where EM starts: states guessed by clustering, transitions from how the guesses follow one another."""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.hmm.blocks import Block
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters

SMOOTHING = 0.1  # the share of a first guess that is spread evenly: every arc stays possible


def start(
    emission: Emission, blocks: list[Block], n_states: int, *, stops: bool, generator: torch.Generator
) -> Parameters:
    """A first guess; every sequence counts once, whatever its weight."""
    x = torch.cat([b.cutting.packing.unpack(b.x) for b in blocks])
    pasts = [b.cutting.packing.unpack(b.past) for b in blocks if b.past is not None]
    lengths = torch.cat([b.cutting.lengths for b in blocks])
    labels = emission.labels(x, n_states, generator)
    table = emission.from_labels(x, torch.cat(pasts) if pasts else None, labels, n_states, generator)
    begins, arcs = _counts(labels, lengths, n_states)
    # No two states start alike, even if their emissions do.
    noise = 0.5 + torch.rand(arcs.shape, generator=generator, dtype=torch.float64).to(x.device)
    arcs = _smoothed(arcs) * noise
    if not stops:
        arcs = arcs[:, :n_states]
    rows = arcs / arcs.sum(1, keepdim=True)
    final = rows[:, n_states].contiguous() if stops else None
    return Parameters(_smoothed(begins), rows[:, :n_states].contiguous(), final, table)


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
