"""Relabelling of the states in posterior draws, so that they have the numbers of one model's states.

A permutation of states changes no probability, so a sampler may permute them between draws. Each draw's states are
matched to the model's by how often both are at the same frame, ``Σ_t γ_t(i) γ'_t(j)`` (compare the pivot of Marin,
Mengersen and Robert 2005, *Bayesian modelling and inference on mixtures*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqmodels.hmm.chains.base import HiddenChain
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters


@torch.no_grad()
def posteriors(
    chain: HiddenChain[Any], parameters: Parameters, emission: Emission, batches: Sequence[PackedBatch]
) -> list[Tensor]:
    """Return p(z_t | x), the probabilities of the states given the whole sequence, for each frame of each batch.

    Args:
        chain: the hidden chain.
        parameters: parameters of the chain and its emissions.
        emission: the emission of the states.
        batches: the data.

    Returns:
        For each batch the probabilities of K states at its N frames, sequence by sequence, ``(N, K)`` float64.
    """
    result = []
    for batch in batches:
        trellis = chain.trellis(parameters, emission, batch, torch.float64)
        result.append(torch.cat(chain.posteriors(trellis)[0]).double())
    return result


def matching_order(reference: Sequence[Tensor], gammas: Sequence[Tensor]) -> Tensor:
    """Return the renumbering of states that agrees best with a reference, ``(K,)`` integers.

    The new state i is the old state with the i-th number. It agrees best if the expected number of frames with the same
    state is largest.

    Args:
        reference: posteriors of the states under the reference model, ``(N, K)`` for each batch.
        gammas: posteriors of the states to be renumbered, in the same shapes.
    """
    from scipy.optimize import linear_sum_assignment

    agreement = torch.stack([a.T @ b for a, b in zip(reference, gammas, strict=True)]).sum(0)
    return torch.as_tensor(linear_sum_assignment(agreement.numpy(), maximize=True)[1])
