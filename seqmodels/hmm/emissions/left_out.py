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

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum

LARGEST_INVERSE = 0.4  # of degrees of freedom: a t density of 2.5 has a variance
LOG_FACTORS = (-8.0, 2.0)  # range of log f, as far as variances stay above their floor
N_POINTS, N_ROUNDS = 15, 4  # of the grid over 1/ν and log f, which closes in on the mass of each round
FRAMES_OF_FIRST = 500  # of about so many frames are the first two rounds, which only find where the mass is
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

    def some(self, n: int) -> LeftOut:
        """Return about n of the frames, evenly spread over all of them; all if there are no more."""
        every = slice(None, None, max(1, len(self.squares) // n))
        return LeftOut(self.squares[every], self.weights[every])


def degrees_and_scale(frames: Sequence[LeftOut], size: int, most: float, least: float) -> tuple[float, float]:
    """Return the degrees of freedom ν and the factor f of t densities that agree with the distances of frames.

    They are the inverse of the mean of 1/ν and the mean of f, given the frames of all processes.

    Args:
        frames: distances of the frames of this process.
        size: number of features D of each t density.
        most: most degrees of freedom.
        least: smallest factor f, at most 1.
    """
    ranges = (1 / most, max(LARGEST_INVERSE, 1 / most)), (max(LOG_FACTORS[0], math.log(least)), LOG_FACTORS[1])
    inverse, log_factor = ranges
    nodes, weights = (torch.as_tensor(each) for each in np.polynomial.legendre.leggauss(N_POINTS))
    some = [each.some(max(1, FRAMES_OF_FIRST // len(frames))) for each in frames]
    for number in range(N_ROUNDS):
        x, g = (0.5 * (high + low + (high - low) * nodes) for low, high in (inverse, log_factor))
        (log_prob,), _ = all_reduce_sum([_log_likelihood(some if number < 2 else frames, size, x, g)])
        share = weights.outer(weights) * (log_prob - log_prob.max()).exp()
        share = share / share.sum()
        mean = float(share.sum(1) @ x), float(share.sum(0) @ g.exp())
        inverse, log_factor = _around(x, share.sum(1), ranges[0]), _around(g, share.sum(0), ranges[1])
    return 1 / mean[0], mean[1]


def _log_likelihood(frames: Sequence[LeftOut], size: int, inverse: Tensor, log_factor: Tensor) -> Tensor:
    """Return the summed log-density of frames in nats, up to a constant, at each 1/ν and each log f, ``(I, J)``."""
    log_prob = torch.zeros(len(inverse), len(log_factor), dtype=torch.float64)
    half = 0.5 / inverse
    constant = torch.lgamma(half + 0.5 * size) - torch.lgamma(half) + 0.5 * size * inverse.log()
    for each in frames:
        weights = each.weights.expand_as(each.squares).flatten().to("cpu", torch.float64)
        scaled = each.squares.flatten().to("cpu", torch.float64)[:, None] * torch.exp(-log_factor)  # (N, J)
        tails = torch.stack([weights @ torch.log1p(scaled * x) for x in inverse])
        log_prob += weights.sum() * (constant[:, None] - 0.5 * size * log_factor) - (half + 0.5 * size)[:, None] * tails
    return log_prob


def _around(points: Tensor, share: Tensor, limits: tuple[float, float]) -> tuple[float, float]:
    """Return the range of the next grid: some standard deviations around the mean, and at least two points wide."""
    mean = share @ points
    apart = max(SDS * float((share @ (points - mean).square()).sqrt()), float(points.diff().max()))
    return max(limits[0], float(mean) - apart), min(limits[1], float(mean) + apart)
