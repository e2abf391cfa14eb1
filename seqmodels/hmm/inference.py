"""What parameters say of a block of sequences: beliefs, posteriors, paths."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.blocks import Block
from seqmodels.hmm.densities import Densities, clamped
from seqmodels.hmm.forward_backward import posterior_of
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.trellis import Posterior, Trellis
from seqmodels.hmm.viterbi import viterbi


def block_trellis(parameters: Parameters, densities: Densities, block: Block) -> Trellis:
    """The problem that one block poses; where states are known, no others are possible."""
    seen = densities if block.states is None else clamped(densities, block.states)
    return Trellis.of(parameters.initial, parameters.transition, seen, block.cutting, parameters.final)


@torch.no_grad()
def block_posterior(parameters: Parameters, densities: Densities, block: Block) -> Posterior:
    """The E-step of the chain; raises ``ValueError`` naming an impossible sequence by its place among all of them."""
    found = posterior_of(block_trellis(parameters, densities, block))
    impossible = [block.indices[i] for i in (found.log_prob == -math.inf).nonzero()[:, 0].tolist()]
    if impossible:
        raise ValueError(
            f"sequence {min(impossible)} has probability zero under this HMM, so its states have no posterior; leave it "
            "out, or keep emissions and transitions from being exactly zero (pseudocount, topology, states)"
        )
    return found


def block_paths(parameters: Parameters, densities: Densities, block: Block) -> list[Tensor]:
    """The best path of each sequence; it is followed from end to end, so what was cut is joined."""
    whole = Packing.of(block.cutting.lengths, densities.device)
    log_b = whole.pack(block.cutting.packing.unpack(densities.log()))
    return whole.split(viterbi(parameters.initial, parameters.transition, log_b, whole, parameters.final)[0])


def scored_steps(
    steps: Tensor, beliefs: Tensor, end: float | None, final: Tensor | None, source: np.ndarray | None
) -> np.ndarray:
    """The steps that are scored, and the end. After a source the sequence cannot end at once: its first step is renormalised."""
    first = 0 if source is None else len(source)
    scored = steps[first:].cpu().numpy().copy()
    if final is not None and first and scored[0] > -np.inf:
        scored[0] -= float(torch.log1p(-(beliefs[first - 1].double() @ final)))
    return scored if end is None else np.append(scored, end)
