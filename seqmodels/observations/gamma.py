"""Gamma densities of positive values, ``p(x) = Π_d r_d^{k_d} x_d^{k_d - 1} e^{-r_d x_d} / Γ(k_d)``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.common.parameters import Floor
from seqmodels.observations.independent_features import log_of_positive, positive_of_log
from seqmodels.observations.line_densities import LineDensity
from seqmodels.observations.special_functions import ASYMPTOTIC_FROM, gamma_cdf, shape_of_gamma, stirling_rest

LEAST_SHAPE = 1e-2
LARGEST_LOG_MEAN = 60.0
LARGEST_LOG_RATIO = 600.0  # of a value to the mean; the density is practically zero there


@dataclass(eq=False, repr=False)
class Gamma(LineDensity):
    """Independent gamma densities of values above 0: durations, amounts, magnitudes.

    With shapes k and rates r, the output parameters of a state are D log-shapes log k, then D log-means log(k/r).
    Features are scaled by their standard deviation over the training frames and not shifted. The M-step is exact, by
    Newton's method for the shape (Minka 2002, *Estimating a gamma distribution*).

    Args:
        min_scale: lower bound of ``1/√k``, the standard deviation of a state as a fraction of its mean, because
            repeated values would make the density unbounded. In addition, shapes are at least 0.01.

    NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``shapes_`` and ``rates_``, each
    ``(K, D)``.
    """

    min_scale: Floor = 1e-2
    n_per_feature = 2
    location_block = 1
    kind = "positive"

    def _shape_log_mean(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        log_shape, log_mean = self.floored(theta).unbind(-2)
        shape = log_shape.clamp(min=math.log(LEAST_SHAPE)).exp()
        return shape, log_mean.clamp(-LARGEST_LOG_MEAN, LARGEST_LOG_MEAN)

    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        log_x = log_of_positive(x)
        return self.line_log_prob(theta, log_x) - log_x

    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        shape, log_mean = self._shape_log_mean(theta)
        uniform = 1 - torch.rand_like(shape, generator=generator)
        # A gamma variable of shape k is one of shape k + 1 times U^(1/k), in logarithms as small shapes underflow.
        log_x = torch._standard_gamma(shape + 1, generator=generator).log() + uniform.log() / shape
        return positive_of_log(log_x - shape.log() + log_mean)

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        shape, log_mean = self._shape_log_mean(theta)
        return gamma_cdf(shape * (-log_mean).exp() * x, shape)

    def feature_mean(self, theta: Tensor) -> Tensor:
        return self._shape_log_mean(theta)[1].exp()

    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return x and log x, the sufficient statistics of gamma densities, stacked to ``(..., 2, D)``.

        Args:
            theta: parameters of the densities, which have no influence, ``(..., 2, D)``.
            x: positive values of D features, ``(..., D)``.
        """
        return torch.stack([x, log_of_positive(x)], -2)

    # -- the logarithm, on the line ------------------------------------------------------------------------

    def to_line(self, theta: Tensor, x: Tensor) -> Tensor:
        return x.clamp(min=0.0).log()

    def line_mode(self, theta: Tensor) -> Tensor:
        return self._shape_log_mean(theta)[1]

    def line_log_prob(self, theta: Tensor, y: Tensor) -> Tensor:
        shape, log_mean = self._shape_log_mean(theta)
        log_ratio = y - log_mean
        # k log k - k - log Γ(k), by Stirling's formula where it is the small difference of large numbers.
        is_large = shape > ASYMPTOTIC_FROM
        small, large = torch.where(is_large, 1.0, shape), torch.where(is_large, shape, ASYMPTOTIC_FROM)
        constant = torch.where(
            is_large,
            0.5 * (large / (2 * math.pi)).log() - stirling_rest(large),
            small * small.log() - small - torch.lgamma(small),
        )
        return constant + shape * (log_ratio - torch.expm1(log_ratio.clamp(max=LARGEST_LOG_RATIO)))

    def line_moments(self, theta: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y.exp(), y], -2)

    # -- EM ------------------------------------------------------------------------------------------------

    def from_averages(self, averages: Tensor) -> Tensor:
        mean, mean_log = averages.unbind(-2)
        shape = shape_of_gamma(mean.log() - mean_log, LEAST_SHAPE, max(self.min_scale**-2, LEAST_SHAPE))
        return torch.stack([shape.log(), mean.log()], -2)

    def log_scale(self, theta: Tensor) -> Tensor:
        return -0.5 * theta[..., 0, :]

    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        return torch.stack([-2 * log_scale, theta[..., 1, :]], -2)

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return parameters ``(2D,)`` from which training starts: exponential densities with the mean of the frames.

        Args:
            start: a starting point, of which only dtype and device are used, ``(2D,)``.
            total: sum of the training frames, ``(D,)``.
            n: number of training frames.
        """
        return torch.cat([torch.zeros(len(total)), (total / n).log().cpu()]).to(start)

    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        shape, log_mean = self._shape_log_mean(theta)
        return {"shapes_": shape, "rates_": shape / (scale * log_mean.exp())}

    def of_raw_parameters(self, raw: Mapping[str, Tensor], shift: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([raw["shapes_"], raw["shapes_"] / (scale * raw["rates_"])], -2).log()
