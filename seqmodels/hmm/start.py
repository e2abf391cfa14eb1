"""Where EM starts: states guessed by clustering, transitions from how the guesses follow one another."""

from __future__ import annotations

import torch

from seqmodels.hmm.baum_welch import Parameters
from seqmodels.hmm.blocks import Block
from seqmodels.hmm.emissions import Emission


def start(
    emission: Emission,
    blocks: list[Block],
    n_states: int,
    *,
    stops: bool,
    generator: torch.Generator,
) -> Parameters:
    """A first guess: states from clustering, transitions from how the guessed states follow one another."""
    x = torch.cat([b.packing.unpack(b.x) for b in blocks])
    past = (
        None if blocks[0].past is None else torch.cat([b.packing.unpack(b.past) for b in blocks if b.past is not None])
    )
    lengths = torch.cat([b.packing.lengths for b in blocks])
    labels = emission.labels(x, n_states, generator)
    table = emission.from_labels(x, past, labels, n_states, generator)
    last = lengths.cumsum(0) - 1
    follows = torch.ones(len(x), dtype=torch.bool, device=x.device)
    follows[last] = False
    origin = torch.nonzero(follows).squeeze(1)
    arcs = torch.zeros(n_states, n_states + 1, dtype=torch.float64, device=x.device)
    flat = arcs.view(-1)
    flat.index_add_(
        0, labels[origin] * (n_states + 1) + labels[origin + 1], torch.ones_like(origin, dtype=torch.float64)
    )
    flat.index_add_(0, labels[last] * (n_states + 1) + n_states, torch.ones_like(last, dtype=torch.float64))
    begins = torch.bincount(labels[last - lengths + 1], minlength=n_states).double()
    # Guesses are unsure: every arc stays possible, and no two states start alike.
    noise = 0.5 + torch.rand(arcs.shape, generator=generator, dtype=torch.float64).to(x.device)
    arcs = (arcs + 0.1 * arcs.sum(1, keepdim=True) / (n_states + 1) + 1e-2) * noise
    if not stops:
        arcs = arcs[:, :n_states]
    arcs = arcs / arcs.sum(1, keepdim=True)
    begins = (begins + 0.1 * len(lengths) / n_states) / (1.1 * len(lengths))
    final = arcs[:, n_states].contiguous() if stops else None
    return Parameters(begins, arcs[:, :n_states].contiguous(), final, table)
