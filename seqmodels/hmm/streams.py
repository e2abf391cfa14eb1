"""The E-step on pieces of long sequences, as if each whole sequence had been read.

A piece's states depend on what comes before and after it, but a chain forgets: the forward message is warmed up on ``WARM_UP``
frames before the piece, the backward message on as many after it, and none of those frames count. The transition into a piece
counts with the piece, so the statistics of all pieces sum to those of the sequence, to the accuracy of forgetting.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from seqmodels.hmm.baum_welch import Expectations
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.inference.densities import Densities
from seqmodels.hmm.inference.forward_backward import forward_backward_pass, forward_pass
from seqmodels.hmm.inference.packing import Packing
from seqmodels.hmm.inference.scratch import Scratch
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.pieces import Corpus, Piece
from seqmodels.hmm.posterior import block_trellis


@torch.no_grad()
def expect_pieces(parameters: Parameters, emission: Emission, corpus: Corpus, pieces: list[Piece]) -> Expectations:
    """The E-step on these pieces; raises ``ValueError`` naming a sequence that is impossible."""
    block = corpus.block(pieces)
    handed, starts = _starts(parameters, emission, corpus, pieces)
    ends = _ends(parameters, emission, corpus, pieces)
    densities, memo = emission.evaluate(parameters.table, block.x, block.past, corpus.dtype, block.scratch)
    trellis = replace(block_trellis(parameters, densities, block), initial=starts, final=ends)
    found = forward_backward_pass(trellis)
    _refuse_impossible(found.log_prob, pieces)
    sums = emission.statistics(parameters.table, block.x, block.past, found.gamma, memo)
    first, last = (found.gamma[rows].double() for rows in (block.segments.first, block.segments.last))
    begins = torch.tensor([p.first == 0 for p in pieces], device=first.device)
    stops = torch.tensor([p.last == p.length for p in pieces], device=first.device)
    crossing = torch.where(starts > 0, first / starts, 0.0)[~begins]
    xi = found.xi + parameters.transition * (handed[~begins].T @ crossing)
    # What follows an inner piece is no part of its own probability: p(after | last state) is taken out again.
    outside = torch.where(ends > 0, last / ends, 0.0).sum(1).log()[~stops].sum()
    w = block.weight
    return Expectations(
        w * float(found.log_prob.sum() + outside),
        w * first[begins].sum(0),
        w * xi,
        w * last[stops].sum(0),
        tuple(w * s for s in sums),
    )


def _starts(parameters: Parameters, emission: Emission, corpus: Corpus, pieces: list[Piece]) -> tuple[Tensor, Tensor]:
    """``(n, K)`` the belief before each piece, and what it predicts for the first frame: ``initial`` at a sequence's start."""
    begun = [i for i, p in enumerate(pieces) if p.first > 0]
    starts = parameters.initial.repeat(len(pieces), 1)
    handed = torch.zeros_like(starts)
    if begun:
        block = corpus.block([pieces[i].before for i in begun])
        densities, _ = emission.evaluate(parameters.table, block.x, block.past, corpus.dtype, block.scratch)
        trellis = replace(block_trellis(parameters, densities, block), final=torch.ones_like(starts[:1]))
        even = torch.full_like(starts[:1], 1 / starts.shape[1])
        initial = [starts[:1] if pieces[i].before.first == 0 else even for i in begun]
        ran = forward_pass(replace(trellis, initial=torch.cat(initial)))
        handed[begun] = ran.alpha[block.segments.last].double()
        starts[begun] = handed[begun] @ parameters.transition
    return handed, starts


def _ends(parameters: Parameters, emission: Emission, corpus: Corpus, pieces: list[Piece]) -> Tensor:
    """``(n, K)`` proportional to p(what comes after the piece | its last state)."""
    final = torch.ones_like(parameters.initial) if parameters.final is None else parameters.final
    ends = final.repeat(len(pieces), 1)
    going = [i for i, p in enumerate(pieces) if p.last < p.length]
    if going:
        after = [pieces[i].after for i in going]
        block = corpus.block(after)
        densities, _ = emission.evaluate(parameters.table, block.x, block.past, corpus.dtype, block.scratch)
        beyond = [final if p.last == p.length else torch.ones_like(final) for p in after]
        seen = block_trellis(parameters, densities, block).densities
        ends[going] = _look_back(parameters.transition, seen, block.segments.packing, torch.stack(beyond))
    return ends


def _look_back(transition: Tensor, densities: Densities, packing: Packing, beyond: Tensor) -> Tensor:
    """``(n, K)``: backward messages into the frame before each sequence's first, the largest of each 1; float64."""
    assert packing.n_sequences == len(beyond), "what comes after a piece is too short to be cut"
    b = densities.scaled(Scratch())[0]
    beta, step = beyond[packing.order].to(b.dtype), transition.T.to(b.dtype).contiguous()
    for low, high in reversed(packing.blocks):
        here = (b[low:high] * beta[: high - low]) @ step
        beta[: high - low] = here / here.amax(1, keepdim=True).clamp(min=torch.finfo(here.dtype).tiny)
    return beta[packing.rank].double()


def _refuse_impossible(log_prob: Tensor, pieces: list[Piece]) -> None:
    impossible = (log_prob == -torch.inf).nonzero()[:, 0].tolist()
    if impossible:
        piece = pieces[impossible[0]]
        raise ValueError(
            f"sequence {piece.sequence} has probability zero under this HMM between steps {piece.first} and {piece.last}; "
            "leave it out, or keep emissions and transitions from being exactly zero (pseudocount, topology, states)"
        )
