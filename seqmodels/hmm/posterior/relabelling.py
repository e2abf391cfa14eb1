"""States of draws under the numbers of one model: a permutation of states changes no probability, so a sampler may
change them.

Each draw's states are matched to those of the model by how often both are at the same frame, ``Σ_t γ_t(i) γ'_t(j)``
(compare the pivot of Marin, Mengersen and Robert 2005, *Bayesian modelling and inference on mixtures*).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.forward_backward import forward_backward_pass


@torch.no_grad()
def posteriors(parameters: Parameters, emission: Emission, batches: Sequence[PackedBatch]) -> list[Tensor]:
    """``(N, K)`` float64 p(z_t | x) of the frames of each batch."""
    result = []
    for batch in batches:
        densities = batch.densities(emission, parameters, torch.float64)
        result.append(forward_backward_pass(batch.trellis(parameters, densities)).gamma.clone())
    return result


def matching_order(reference: Sequence[Tensor], gammas: Sequence[Tensor]) -> Tensor:
    """``(K,)`` order of states, for ``Parameters.take``, in which they agree with the reference at most frames."""
    from scipy.optimize import linear_sum_assignment

    agreement = torch.stack([a.T @ b for a, b in zip(reference, gammas, strict=True)]).sum(0)
    return torch.as_tensor(linear_sum_assignment(agreement.numpy(), maximize=True)[1])
