"""Tails and scale of a regression's t density, estimated from the density of each training frame given all others.

A posterior under Gaussian innovations of one covariance is too sure of itself after few frames: real series have heavy
tails, and variances that change. Given all others, each frame has the density ``t_ν(x; m, f S)``, with the location m
and the scale matrix S of the posterior without it. The degrees of freedom ν and the factor f are estimated by their
means under the product of these densities (Geisser and Eddy 1979, *A predictive approach to model selection*), with
1/ν and log f uniform (Gelman et al. 2013, *Bayesian data analysis*, chapter 17) and ν at most that of the posterior. No
model is fitted again, because m and S without a frame follow from its residual and its leverage (Cook and Weisberg
1982, *Residuals and influence in regression*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum

LARGEST_INVERSE = 0.4  # of degrees of freedom: a t density of 2.5 has a variance
LOG_FACTORS = (-8.0, 2.0)  # range of log f, as far as variances stay above their floor
N_POINTS, N_ROUNDS = 31, 4  # of the grid over 1/ν and log f, which closes in on the mass of each round
SDS = 5.0  # standard deviations around the mean that the next grid has


@dataclass(frozen=True)
class LeftOut:
    """Distances of m frames from their predictions, each given all other frames.

    Attributes:
        squares: squared distances ``(x - m)ᵀ S⁻¹ (x - m)``, ``(m, 1)``; under a diagonal covariance one of each
            feature, ``(m, D)``.
        weights: weight of each frame, ``(m, 1)``.
    """

    squares: Tensor
    weights: Tensor

    @classmethod
    def of(cls, squares: Tensor, leverage: Tensor, share: Tensor, copies: float, degrees: float) -> LeftOut:
        """Return the distances of frames given all others, from residuals of a fit to all.

        With the inverse Q of the regressors' weighted products, the weighted scatter A of all residuals and the weight
        c of the frame, which has the residual r and the regressors z, the distance is
        ``(ν - c) a / ((1 - c h - c a) (1 - c h + h))``, where ``h = zᵀ Q z`` and ``a = rᵀ A⁻¹ r``.

        Args:
            squares: a of each frame, ``(m, 1)``, or of each feature of each frame, ``(m, D)``.
            leverage: h of each frame, ``(m, 1)``.
            share: probability that each frame follows the regression and is no jump, ``(m, 1)``.
            copies: weight of each frame among those that follow the regression; one copy at most is left out.
            degrees: degrees of freedom ν given all frames.
        """
        c = min(copies, 1.0) * share
        rest = (1 - c * leverage - c * squares).clamp(min=torch.finfo(squares.dtype).eps)
        return cls((degrees - c) * squares / (rest * (1 - c * leverage + leverage)), copies * share)


def degrees_and_scale(frames: Sequence[LeftOut], size: int, most: float, least: float) -> tuple[float, float]:
    """Return the degrees of freedom ν and the factor f of t densities that agree with the distances of frames.

    They are the inverse of the mean of 1/ν and the mean of f, given the frames of all processes.

    Args:
        frames: distances of the frames of this process.
        size: number of features D of each t density.
        most: most degrees of freedom.
        least: smallest factor f, at most 1.
    """
    inverse_range = (1 / most, max(LARGEST_INVERSE, 1 / most))
    log_range = (max(LOG_FACTORS[0], math.log(least)), LOG_FACTORS[1])
    inverse, log_factor = inverse_range, log_range
    edges = torch.ones(N_POINTS, dtype=torch.float64)  # of the trapezoidal rule
    edges[0] = edges[-1] = 0.5
    for _ in range(N_ROUNDS):
        x, g = (torch.linspace(*each, N_POINTS, dtype=torch.float64) for each in (inverse, log_factor))
        (log_prob,), _ = all_reduce_sum([_log_likelihood(frames, size, x, g)])
        share = edges.outer(edges) * (log_prob - log_prob.max()).exp()
        share = share / share.sum()
        mean = float(share.sum(1) @ x), float(share.sum(0) @ g.exp())
        inverse = _around(x, share.sum(1), inverse_range)
        log_factor = _around(g, share.sum(0), log_range)
    return 1 / mean[0], mean[1]


def _log_likelihood(frames: Sequence[LeftOut], size: int, inverse: Tensor, log_factor: Tensor) -> Tensor:
    """Return the summed log-density of frames in nats, up to a constant, at each 1/ν and each log f, ``(I, J)``."""
    total_log_prob = torch.zeros(len(inverse), len(log_factor), dtype=torch.float64)
    for each in frames:
        weights = each.weights.expand_as(each.squares).flatten().to("cpu", torch.float64)
        squares, total = each.squares.flatten().to("cpu", torch.float64), weights.sum()
        for i, x in enumerate(inverse):
            half = 0.5 / x
            constant = torch.lgamma(half + 0.5 * size) - torch.lgamma(half) + 0.5 * size * x.log()
            tails = weights @ torch.log1p(squares[:, None] * x * torch.exp(-log_factor))
            total_log_prob[i] += total * (constant - 0.5 * size * log_factor) - (half + 0.5 * size) * tails
    return total_log_prob


def _around(points: Tensor, share: Tensor, limits: tuple[float, float]) -> tuple[float, float]:
    """Return the range of the next grid: some standard deviations around the mean, and at least two points wide."""
    mean = share @ points
    apart = max(SDS * float((share @ (points - mean).square()).sqrt()), float(points[1] - points[0]))
    return max(limits[0], float(mean) - apart), min(limits[1], float(mean) + apart)
