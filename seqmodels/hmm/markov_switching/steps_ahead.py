"""The distribution of several steps ahead in closed form, with a Gaussian for every path of states.

Given the states of the last p steps and of those to come, deviations from their means are an autoregression, whose
means and covariances follow from those of the p steps before (Lütkepohl 2005, *New introduction to multiple time series
analysis*, section 2.2). Step h ahead is then a mixture of ``K^(p + h)`` Gaussians.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.inference.chains.lagged_states import tuples
from seqmodels.inference.chains.log_weights import finite


@dataclass(frozen=True)
class StepAhead:
    """The distribution of one future step of n sequences: a Gaussian and a weight for each of C paths of hidden states.

    Attributes:
        log_weights: log p(the path, and there is such a step | there are all steps before it), ``(n, C)``.
        mean: means of the step, ``(n, C, D)``.
        variance: variances of the step, ``(C, D)``.
        log_last: log-probabilities of the state before the step, ``(n, K)``.
    """

    log_weights: Tensor
    mean: Tensor
    variance: Tensor
    log_last: Tensor


def steps_ahead(
    log_last_states: Tensor, log_a: Tensor, past: Tensor, mean: Tensor, coefficients: Tensor, variance: Tensor
) -> Iterator[StepAhead]:
    """Yield the distributions of the 1st, 2nd, ... step ahead of n sequences, without end; all numbers are float64.

    Args:
        log_last_states: log-probabilities of the states of the last p steps, the newest first, ``(n, K^p)``.
        log_a: log-transitions, ``(K, K)``.
        past: the last p steps, the oldest first, ``(n, p, D)``.
        mean: means of the states, ``(K, D)``.
        coefficients: coefficients by the state of a step, one step back first, ``(K, p, D)``.
        variance: variances of the innovations, ``(K, D)``.
    """
    k, order, size = coefficients.shape
    states = tuples(k, order - 1, mean.device)  # (C, p)
    newest, log_belief = states[:, 0], log_last_states
    deviation = past.flip(1).unsqueeze(1) - mean[states]  # (n, C, p, D), the newest first
    covariance = mean.new_zeros(len(states), size, order, order)
    by_feature = coefficients.mT  # (K, D, p)
    while True:
        is_newest = torch.nn.functional.one_hot(newest, k).bool()
        log_last = torch.stack([torch.logsumexp(log_belief[:, of_state], 1) for of_state in is_newest.T], 1)
        log_weights = (log_belief.unsqueeze(2) + log_a[newest]).flatten(1)  # (n, C K)
        expected = torch.einsum("ncpd,kpd->nckd", deviation, coefficients)
        across = torch.einsum("kdp,cdpq->ckdq", by_feature, covariance)  # (C, K, D, p)
        spread = (across * by_feature).sum(3) + variance  # (C, K, D)
        yield StepAhead(log_weights, (mean + expected).flatten(1, 2), spread.flatten(0, 1), log_last)
        older = deviation[:, :, None, : order - 1].expand(-1, -1, k, -1, -1)
        deviation = torch.cat([expected.unsqueeze(3), older], 3).flatten(1, 2)
        first = torch.cat([spread.unsqueeze(3), across[..., : order - 1]], 3)  # (C, K, D, p)
        rest = covariance[:, None, :, : order - 1, : order - 1].expand(-1, k, -1, -1, -1)
        lower = torch.cat([across[..., : order - 1].unsqueeze(4), rest], 4)
        covariance = torch.cat([first.unsqueeze(3), lower], 3).flatten(0, 1)
        newest = torch.arange(k, device=mean.device).repeat(len(newest))
        log_belief = log_weights - finite(torch.logsumexp(log_weights, 1, keepdim=True))
