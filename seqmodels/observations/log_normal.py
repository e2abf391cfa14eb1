"""Log-normal densities of positive values, ``p(x) = Π_d N(log x_d; μ_d, σ_d²) / x_d``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.common.parameters import Floor
from seqmodels.observations.independent_features import FeatureMoments, log_of_positive, positive_of_log
from seqmodels.observations.interval_probabilities import gaussian_moments, log_gaussian_probability
from seqmodels.observations.special_functions import gaussian_cdf


@dataclass(eq=False, repr=False)
class LogNormal(FeatureMoments):
    """Independent log-normal densities of values above 0 with heavy tails, such as incomes, sizes and latencies.

    The tails are heavier than those of gamma densities. The output parameters of a state are D means μ of log x, then D
    logarithms of the standard deviations σ of log x. Features are scaled by their standard deviation over the training
    frames and not shifted. The M-step is in closed form.

    Args:
        min_scale: lower bound of σ, which has no unit, because repeated values would make the density unbounded.

    NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``locations_``, the means of log
    x, and ``scales_``, σ, each ``(K, D)`` for K states and D features.
    """

    min_scale: Floor = 1e-2
    n_per_feature = 2
    location_block = 0
    kind = "positive"

    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        location, log_scale = self.floored(theta).unbind(-2)
        log_x = log_of_positive(x)
        z = (log_x - location) * torch.exp(-log_scale)
        return -0.5 * (z.square() + math.log(2 * math.pi)) - log_scale - log_x

    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        location, log_scale = self.floored(theta).unbind(-2)
        return positive_of_log(location + log_scale.exp() * torch.randn_like(location, generator=generator))

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        location, log_scale = self.floored(theta).unbind(-2)
        return gaussian_cdf((x.clamp(min=0.0).log() - location) * torch.exp(-log_scale))

    def feature_mean(self, theta: Tensor) -> Tensor:
        """Return the mean ``exp(μ + σ²/2)`` of each feature, ``(..., D)``; infinite if it exceeds the largest float.

        Args:
            theta: μ and log σ of the log-normal density of each of D features, ``(..., 2, D)``.
        """
        location, log_scale = self.floored(theta).unbind(-2)
        return (location + 0.5 * (2 * log_scale).exp()).exp()

    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return log x and its square, the sufficient statistics of log-normal densities, stacked to ``(..., 2, D)``.

        Args:
            theta: parameters of the densities, which have no influence, ``(..., 2, D)``.
            x: positive values of D features, ``(..., D)``.
        """
        log_x = log_of_positive(x)
        return torch.stack([log_x, log_x.square()], -2)

    def from_averages(self, averages: Tensor) -> Tensor:
        location, second = averages.unbind(-2)
        variance = (second - location.square()).clamp(min=self.min_scale**2)
        return torch.stack([location, 0.5 * variance.log()], -2)

    @property
    def has_interval_probabilities(self) -> bool:
        return True

    def feature_interval_log_prob(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        location, log_scale = self.floored(theta).unbind(-2)
        return log_gaussian_probability(low.clamp(min=0.0).log(), high.log(), location, log_scale)

    def interval_moments(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        location, log_scale = self.floored(theta).unbind(-2)
        return torch.stack(gaussian_moments(low.clamp(min=0.0).log(), high.log(), location, log_scale), -2)

    def log_scale(self, theta: Tensor) -> Tensor:
        return theta[..., 1, :]

    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        return torch.stack([theta[..., 0, :], log_scale], -2)

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return parameters ``(2D,)`` with σ = 1 and the mean of the training frames, where gradient training starts.

        Args:
            start: a starting point, of which only dtype and device are used, ``(2D,)``.
            total: sum of the training frames, ``(D,)``.
            n: number of training frames.
        """
        return torch.cat([(total / n).log().cpu() - 0.5, torch.zeros(len(total))]).to(start)

    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        location, log_scale = self.floored(theta).unbind(-2)
        return {"locations_": location + scale.log(), "scales_": log_scale.exp()}

    def of_raw_parameters(self, raw: Mapping[str, Tensor], shift: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([raw["locations_"] - scale.log(), raw["scales_"].log()], -2)
