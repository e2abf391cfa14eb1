"""What parameters say of a block of sequences: beliefs, posteriors, paths."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm import log_semiring, scaled
from seqmodels.hmm.backward_sampling import sample_paths
from seqmodels.hmm.blocks import Block
from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import Densities, LogDensities, clamped
from seqmodels.hmm.forward_backward import forward_of, posterior_of
from seqmodels.hmm.log_product import LogProduct
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.trellis import Posterior, Trellis
from seqmodels.hmm.viterbi import best_paths

SURE = 0.999  # probability of an end from which that of going on is summed up by itself


def block_trellis(parameters: Parameters, densities: Densities, block: Block) -> Trellis:
    """The problem that one block poses to a chain, or to several side by side; where states are known, no others are possible."""
    seen = densities if block.states is None else clamped(densities, block.states)
    return Trellis.of(parameters.initial, parameters.transition, seen, block.cutting, parameters.final, block.scratch)


@torch.no_grad()
def block_posterior(parameters: Parameters, densities: Densities, block: Block) -> Posterior:
    """The E-step of the chain; raises ``ValueError`` naming an impossible sequence by its place among all of them."""
    found = posterior_of(block_trellis(parameters, densities, block))
    refuse_impossible(found.log_prob, block)
    return found


@torch.no_grad()
def block_beliefs(parameters: Parameters, densities: Densities, block: Block) -> list[Tensor]:
    """p(z_t | x_<=t) of each sequence, ``(T, K)``; zeros once it is impossible."""
    return block.cutting.split(forward_of(block_trellis(parameters, densities, block)).alpha)


@torch.no_grad()
def block_last_log_beliefs(parameters: Parameters, densities: Densities, block: Block) -> list[Tensor]:
    """log p(z_T | x) of each sequence, ``(K,)`` float64, of a state far behind too; -inf everywhere if it is impossible."""
    trellis = block_trellis(parameters, densities, block)
    ran = scaled.forward(trellis)
    if not ran.failed.any() and scaled.refills(trellis, ran.scale):
        return list(ran.alpha[block.cutting.last].double().log())
    whole, _ = trellis.take(torch.arange(block.cutting.n_sequences, device=densities.device))
    return list(log_semiring.log_beliefs(whole)[whole.cutting.last])


@torch.no_grad()
def block_paths(parameters: Parameters, densities: Densities, block: Block) -> list[Tensor]:
    """The best path of each sequence, ``(T,)``."""
    paths, log_prob = best_paths(block_trellis(parameters, densities, block))
    refuse_impossible(log_prob, block)
    return list(paths.split(block.cutting.lengths.tolist()))


def block_draws(
    parameters: Parameters, densities: Densities, block: Block, n: int, generator: torch.Generator
) -> list[Tensor]:
    """``n`` paths of each sequence drawn from p(z | x), ``(T, n)``."""
    whole, log_b = _joined(densities, block)
    cutting = Cutting.whole(block.cutting.lengths, densities.device)
    trellis = Trellis.of(parameters.initial, parameters.transition, LogDensities(log_b), cutting, parameters.final)
    paths, log_prob = sample_paths(trellis, n, generator)
    refuse_impossible(log_prob, block)
    return whole.split(paths)


def refuse_impossible(log_prob: Tensor, block: Block) -> None:
    """Raise ``ValueError`` for a sequence of log-probability -inf under any chain, named by its place among all of them."""
    impossible = [block.indices[i] for i in (log_prob == -math.inf).nonzero()[:, -1].tolist()]
    if impossible:
        raise ValueError(
            f"sequence {min(impossible)} has probability zero under this HMM, so its states have no posterior; leave it "
            "out, or keep emissions and transitions from being exactly zero (pseudocount, topology, states)"
        )


def _joined(densities: Densities, block: Block) -> tuple[Packing, Tensor]:
    """The packing of whole sequences, and log-densities by its rows."""
    whole = Packing.of(block.cutting.lengths, densities.device)
    return whole, whole.pack(block.cutting.packing.unpack(densities.log()))


def scored_steps(steps: Tensor, end: float | None, first: int, log_going: float) -> np.ndarray:
    """The steps that are scored, from ``first`` on, and the end. After a source the sequence cannot end at once: its first step is
    renormalised by the probability ``exp(log_going)`` of going on."""
    scored = steps[first:].cpu().numpy().copy()
    if scored[0] > -np.inf:
        scored[0] -= log_going
    return scored if end is None else np.append(scored, end)


def log_going(trellis: Trellis, belief: Tensor, sequence: int, frame: int) -> float:
    """log p(there is a next frame | the frames up to and with ``frame``), given the ``belief (K,)`` after it."""
    end = belief.double() @ trellis.final[0]
    if end < SURE:
        return float(torch.log1p(-end))
    # What is left of one may be rounding, or in states that the belief has lost.
    whole, _ = trellis.take(torch.tensor([sequence], device=belief.device))
    exact = log_semiring.log_beliefs(whole)[frame : frame + 1]
    return float(torch.logsumexp(LogProduct(trellis.transition)(exact), 1))
