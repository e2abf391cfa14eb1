"""What the parameters of an HMM say of a batch of sequences: beliefs, posteriors and paths of its states."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.inference import scaled
from seqmodels.hmm.inference.densities import Densities, LogDensities, clamped
from seqmodels.hmm.inference.forward_backward import forward_backward_pass, forward_pass
from seqmodels.hmm.inference.log_space import log_alpha_and_steps
from seqmodels.hmm.inference.sampling import sample_paths
from seqmodels.hmm.inference.segments import Segments
from seqmodels.hmm.inference.trellis import Posterior, Trellis
from seqmodels.hmm.inference.viterbi import best_paths
from seqmodels.hmm.parameters import Parameters


def batch_trellis(parameters: Parameters, densities: Densities, batch: PackedBatch) -> Trellis:
    """The inference problem of a batch, for one chain or several; where states are known, others have no density."""
    clamped_densities = densities if batch.states is None else clamped(densities, batch.states)
    p = parameters
    return Trellis.of(p.initial, p.transition, clamped_densities, batch.segments, p.final, batch.scratch)


@torch.no_grad()
def batch_posterior(parameters: Parameters, densities: Densities, batch: PackedBatch) -> Posterior:
    """Forward-backward; raises ``ValueError`` naming an impossible sequence by its place among all of them."""
    posterior = forward_backward_pass(batch_trellis(parameters, densities, batch))
    refuse_impossible(posterior.log_prob, batch)
    return posterior


@torch.no_grad()
def batch_beliefs(parameters: Parameters, densities: Densities, batch: PackedBatch) -> list[Tensor]:
    """p(z_t | x_<=t) of each sequence, ``(T, K)``; zeros once it is impossible."""
    return batch.segments.split(forward_pass(batch_trellis(parameters, densities, batch)).alpha)


@torch.no_grad()
def batch_last_log_beliefs(parameters: Parameters, densities: Densities, batch: PackedBatch) -> list[Tensor]:
    """log p(z_T | x) of each sequence, ``(K,)`` float64, exact in every state; -inf everywhere if it is impossible."""
    trellis = batch_trellis(parameters, densities, batch)
    ran = scaled.forward(trellis)
    if not ran.failed.any() and scaled.loss_is_negligible(trellis, ran.scale):
        return list(ran.alpha[batch.segments.last].double().log())
    whole, _ = trellis.take(torch.arange(batch.segments.n_sequences, device=densities.device))
    return list(log_alpha_and_steps(whole)[0][whole.segments.last])


@torch.no_grad()
def batch_paths(parameters: Parameters, densities: Densities, batch: PackedBatch) -> list[Tensor]:
    """The best path of each sequence, ``(T,)``."""
    paths, log_prob = best_paths(batch_trellis(parameters, densities, batch))
    refuse_impossible(log_prob, batch)
    return list(paths.split(batch.segments.lengths.tolist()))


def batch_draws(
    parameters: Parameters, densities: Densities, batch: PackedBatch, n: int, generator: torch.Generator
) -> list[Tensor]:
    """``n`` paths of each sequence drawn from p(z | x), ``(T, n)``."""
    whole = Segments.whole(batch.segments.lengths, densities.device)
    log_b = LogDensities(whole.packing.pack(batch.segments.packing.unpack(densities.log())))
    trellis = Trellis.of(parameters.initial, parameters.transition, log_b, whole, parameters.final)
    paths, log_prob = sample_paths(trellis, n, generator)
    refuse_impossible(log_prob, batch)
    return whole.packing.split(paths)


def refuse_impossible(log_prob: Tensor, batch: PackedBatch) -> None:
    """Raise ``ValueError``, naming it by its place in the corpus, if a sequence has -inf under any chain."""
    impossible = [batch.indices[i] for i in (log_prob == -math.inf).nonzero()[:, -1].tolist()]
    if impossible:
        raise ValueError(
            f"sequence {min(impossible)} has probability zero under this HMM, so its states have no posterior; "
            "leave it out, or keep emissions and transitions from being exactly zero (pseudocount, topology, states)"
        )
