"""What parameters say of a block of sequences: beliefs, posteriors, paths."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqmodels.hmm.blocks import Block
from seqmodels.hmm.densities import Densities
from seqmodels.hmm.forward_backward import posterior_of
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.trellis import Posterior, Trellis
from seqmodels.hmm.viterbi import viterbi


def block_trellis(parameters: Parameters, densities: Densities, block: Block) -> Trellis:
    """The problem that one block poses."""
    return Trellis.of(
        parameters.initial, parameters.transition, densities, block.cutting, parameters.final, block.scratch
    )


@torch.no_grad()
def block_posterior(parameters: Parameters, densities: Densities, block: Block) -> Posterior:
    """The E-step of the chain; raises ``ValueError`` naming an impossible sequence by its place among all of them."""
    found = posterior_of(block_trellis(parameters, densities, block))
    impossible = [block.indices[i] for i in (found.log_prob == -math.inf).nonzero()[:, 0].tolist()]
    if impossible:
        raise ValueError(
            f"sequence {min(impossible)} has probability zero under this HMM, so its states have no posterior; leave it "
            "out, or keep emissions and transitions from being exactly zero (pseudocount)"
        )
    return found


def block_paths(parameters: Parameters, densities: Densities, block: Block) -> list[Tensor]:
    """The best path of each sequence; it is followed from end to end, so what was cut is joined."""
    whole = Packing.of(block.cutting.lengths, densities.device)
    log_b = whole.pack(block.cutting.packing.unpack(densities.log()))
    return whole.split(viterbi(parameters.initial, parameters.transition, log_b, whole, parameters.final)[0])
