"""Negative binomial distributions of counts that vary more than Poisson counts, with mean m and size r.

``p(x) = Γ(x + r) / (Γ(r) x!) · (r / (r + m))^r · (m / (r + m))^x``, with variance ``m + m² / r``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.observations.independent_features import IndependentFeatures
from seqmodels.observations.special_functions import ASYMPTOTIC_FROM, beta_cdf, stirling_rest

LEAST_SIZE, MOST_SIZE = 1e-4, 1e8  # bounds of r; at the larger one it is a Poisson distribution
LEAST_LOG_MEAN, LARGEST_LOG_MEAN = -40.0, 30.0


@dataclass(eq=False, repr=False)
class NegativeBinomial(IndependentFeatures):
    """Independent negative binomial distributions of counts: Poisson distributions whose rate has a gamma density.

    The output parameters of a state are D logarithms of means m, then D logarithms of sizes r. Sizes are learned within
    1e-4 to 1e8. The variance is ``m + m²/r``: counts that vary no more than Poisson counts get the largest size, at
    which the distribution is practically a Poisson distribution. A state that has seen only zeros has a mean of e^-40,
    so that other counts are improbable but possible.

    NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``means_`` and ``dispersions_``,
    which is 1/r, each ``(K, D)`` for K states and D features.
    """

    n_per_feature = 2
    location_block = 0
    kind = "counts"

    def _log_mean_size(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        log_mean, log_size = theta.unbind(-2)
        size = log_size.clamp(math.log(LEAST_SIZE), math.log(MOST_SIZE)).exp()
        return log_mean.clamp(LEAST_LOG_MEAN, LARGEST_LOG_MEAN), size

    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        log_mean, r = self._log_mean_size(theta)
        log_ratio = torch.log1p(log_mean.exp() / r)  # log((r + m) / r)
        # log Γ(x + r) - log Γ(r) - x log r: by Stirling's formula where it is the small difference of large numbers.
        is_large = r > ASYMPTOTIC_FROM
        small, large = torch.where(is_large, 1.0, r), torch.where(is_large, r, ASYMPTOTIC_FROM)
        rising = torch.where(
            is_large,
            (large + x - 0.5) * torch.log1p(x / large) - x + stirling_rest(large + x) - stirling_rest(large),
            torch.lgamma(small + x) - torch.lgamma(small) - x * small.log(),
        )
        return rising - torch.lgamma(x + 1) + x * log_mean - (r + x) * log_ratio

    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        log_mean, r = self._log_mean_size(theta)
        uniform = 1 - torch.rand_like(r, generator=generator)
        # A gamma variable of size r is one of r + 1 times U^(1/r), in logarithms as small sizes underflow.
        log_rate = torch._standard_gamma(r + 1, generator=generator).log() + uniform.log() / r - r.log() + log_mean
        return torch.poisson(log_rate.clamp(max=LARGEST_LOG_MEAN).exp(), generator=generator)

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        log_mean, r = self._log_mean_size(theta)
        log_ratio = torch.log1p(log_mean.exp() / r)  # log((r + m) / r)
        at_least = beta_cdf((-log_ratio).exp(), r, x.clamp(min=0.0) + 1)
        return torch.where(x < 0, 0.0, at_least)

    def feature_mean(self, theta: Tensor) -> Tensor:
        return self._log_mean_size(theta)[0].exp()

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return parameters ``(2D,)`` with size 1 and the mean of the training frames, where gradient training starts.

        One more frame of mean 1 is added to the training frames, so that no mean is 0.

        Args:
            start: a starting point, of which only dtype and device are used, ``(2D,)``.
            total: sum of the training frames, ``(D,)``.
            n: number of training frames.
        """
        return torch.cat([((total + 1) / (n + 1)).log().cpu(), torch.zeros(len(total))]).to(start)

    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        log_mean, r = self._log_mean_size(theta)
        return {"means_": log_mean.exp(), "dispersions_": 1 / r}

    def of_raw_parameters(self, raw: Mapping[str, Tensor], shift: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([raw["means_"].log(), -raw["dispersions_"].log()], -2)
