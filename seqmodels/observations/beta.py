"""Beta densities of values between 0 and 1, ``p(x) = Π_d x_d^{a - 1} (1 - x_d)^{b - 1} / B(a, b)``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from seqmodels.common.parameters import Floor
from seqmodels.observations.line_densities import LineDensity
from seqmodels.observations.special_functions import beta_cdf, log_beta, shapes_of_beta

LEAST_SHAPE = 1e-2
EDGE = 1e-37  # values nearer to 0 are replaced by this one


@dataclass(eq=False, repr=False)
class Beta(LineDensity):
    """Independent beta densities of proportions, which lie above 0 and below 1.

    The output parameters of a state are D values of log a, then D values of log b. The M-step is exact, by Newton's
    method in a and b (Minka 2000, *Estimating a Dirichlet distribution*).

    Args:
        min_scale: lower bound of ``1/√(a + b)``, because repeated values would make the density unbounded. For a mean
            of one half, this number is about twice the standard deviation. In addition, a and b are at least 0.01.

    float32 resolves proportions near 1 only to 6e-8 and rounds closer values to 1; fit with ``dtype="float64"`` if the
    data contain them. NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``a_`` and
    ``b_``, each ``(K, D)`` for K states and D features.
    """

    min_scale: Floor = 1e-2
    n_per_feature = 2
    location_block = 0
    kind = "proportions"

    def _shapes(self, theta: Tensor) -> Tensor:
        """Return the parameters a and b of beta densities, kept within their lower bounds, stacked to ``(..., 2, D)``.

        Args:
            theta: log a and log b of each of D features, ``(..., 2, D)``.
        """
        return self.floored(theta).clamp(min=math.log(LEAST_SHAPE)).exp()

    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        a, b = self._shapes(theta).unbind(-2)
        log_x, log_rest = _logarithms(x)
        return (a - 1) * log_x + (b - 1) * log_rest - log_beta(a, b)

    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        shapes = self._shapes(theta)
        uniform = 1 - torch.rand_like(shapes, generator=generator)
        # Two gamma variables, in logarithms as small shapes underflow.
        logs = torch._standard_gamma(shapes + 1, generator=generator).log() + uniform.log() / shapes
        x = torch.sigmoid(logs[..., 0, :] - logs[..., 1, :])
        return x.clamp(EDGE, 1 - torch.finfo(torch.float32).eps / 2)

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        return beta_cdf(x, *self._shapes(theta).unbind(-2))

    def feature_mean(self, theta: Tensor) -> Tensor:
        a, b = self._shapes(theta).unbind(-2)
        return a / (a + b)

    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the sufficient statistics of beta densities, log x and log(1 - x), stacked to ``(..., 2, D)``.

        Args:
            theta: parameters of the densities, which have no influence, ``(..., 2, D)``.
            x: proportions of D features, ``(..., D)``.
        """
        return torch.stack(_logarithms(x), -2)

    # -- the logit, on the line ----------------------------------------------------------------------------

    def to_line(self, theta: Tensor, x: Tensor) -> Tensor:
        return torch.logit(x.clamp(0.0, 1.0))

    def line_mode(self, theta: Tensor) -> Tensor:
        a, b = self._shapes(theta).unbind(-2)
        return a.log() - b.log()

    def line_log_prob(self, theta: Tensor, y: Tensor) -> Tensor:
        a, b = self._shapes(theta).unbind(-2)
        return a * logsigmoid(y) + b * logsigmoid(-y) - log_beta(a, b)

    def line_moments(self, theta: Tensor, y: Tensor) -> Tensor:
        return torch.stack([logsigmoid(y), logsigmoid(-y)], -2)

    # -- EM ------------------------------------------------------------------------------------------------

    def from_averages(self, averages: Tensor) -> Tensor:
        return shapes_of_beta(averages, LEAST_SHAPE, self.min_scale**-2).log()

    def log_scale(self, theta: Tensor) -> Tensor:
        return -0.5 * theta.logsumexp(-2)

    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        return theta - (2 * log_scale + theta.logsumexp(-2)).unsqueeze(-2)

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return parameters ``(2D,)`` from which training starts: ``a + b = 2`` and the mean of the training frames.

        Args:
            start: a starting point, of which only dtype and device are used, ``(2D,)``.
            total: sum of the training frames, ``(D,)``.
            n: number of training frames.
        """
        mean = (total / n).cpu()
        return torch.cat([(2 * mean).log(), (2 - 2 * mean).log()]).to(start)

    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        a, b = self._shapes(theta).unbind(-2)
        return {"a_": a, "b_": b}

    def of_raw_parameters(self, raw: Mapping[str, Tensor], shift: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([raw["a_"], raw["b_"]], -2).log()


def _logarithms(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return log x and log(1 - x), with x clamped so that neither is minus infinity."""
    return x.clamp(min=EDGE).log(), torch.log1p(-x.clamp(max=1 - torch.finfo(torch.float64).eps))
