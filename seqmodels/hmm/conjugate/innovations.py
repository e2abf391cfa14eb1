"""Distributions of the precision of a regression's innovations: Gamma for each feature, or Wishart for all together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.conjugate.distributions import (
    draw_gamma,
    draw_wishart,
    expected_log_det,
    gamma_divergence,
    log_gamma_log_density,
    wishart_divergence,
    wishart_log_density,
)
from seqmodels.hmm.conjugate.gaussian_mixture import NO_FLOOR
from seqmodels.observations import gaussian


class Innovations(ABC):
    """A family of distributions of the precision of innovations with D features, in each of K states.

    A distribution is given by ``hyper (K, N)``, the N hyperparameters of each state.

    Args:
        size: number of features D.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    @abstractmethod
    def n_hyper(self) -> int:
        """The number of hyperparameters of a state, N."""

    @abstractmethod
    def prior(self, counts: Tensor, variances: Tensor) -> Tensor:
        """Return the prior that is worth ``counts (K, 1)`` innovations of ``variances (K, D)``, ``(K, N)``."""

    @abstractmethod
    def updated(self, prior: Tensor, scatter: Tensor, counts: Tensor) -> Tensor:
        """Return the posterior after ``counts (K,)`` innovations whose products sum to ``scatter (K, D, D)``."""

    @abstractmethod
    def covariance(self, hyper: Tensor) -> Tensor:
        """Return the inverse of the mean precision, ``(K, D, D)``."""

    @abstractmethod
    def shapes(self, covariance: Tensor) -> Tensor:
        """Return the numbers of a table that describe covariances ``(K, D, D)``: log-variances, or a whole matrix."""

    @abstractmethod
    def log_det_gap(self, hyper: Tensor) -> Tensor:
        """Return ``½ (E log|Λ| - log|E Λ|)`` of the precision Λ, ``(K,)``, which is not positive."""

    @abstractmethod
    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        """Return ``KL(posterior || prior)`` of each state in nats, ``(K,)``."""

    @abstractmethod
    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        """Return covariances ``(K, D, D)``, the inverses of precisions drawn from the distribution."""

    @abstractmethod
    def log_density(self, shapes: Tensor, hyper: Tensor) -> Tensor:
        """Return the log-density of the numbers that ``shapes`` returns in nats, ``(K,)``."""

    @abstractmethod
    def raw(self, hyper: Tensor, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return the hyperparameters by name, for features that are in raw units after multiplication by ``scale``."""


class GammaInnovations(Innovations):
    """Gamma distributions of the precision of each feature; ``hyper`` holds D shapes, then D rates."""

    @property
    def n_hyper(self) -> int:
        return 2 * self.size

    def prior(self, counts: Tensor, variances: Tensor) -> Tensor:
        shape = (0.5 * counts).expand_as(variances)
        return torch.cat([shape, shape * variances], 1)

    def updated(self, prior: Tensor, scatter: Tensor, counts: Tensor) -> Tensor:
        more = counts.unsqueeze(1).expand(-1, self.size), scatter.diagonal(dim1=-2, dim2=-1)
        return prior + 0.5 * torch.cat(more, 1)

    def covariance(self, hyper: Tensor) -> Tensor:
        shape, rate = hyper.chunk(2, 1)
        return torch.diag_embed(rate / shape)

    def shapes(self, covariance: Tensor) -> Tensor:
        return covariance.diagonal(dim1=-2, dim2=-1).log()

    def log_det_gap(self, hyper: Tensor) -> Tensor:
        shape, _ = hyper.chunk(2, 1)
        return 0.5 * (torch.digamma(shape) - shape.log()).sum(1)

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        return gamma_divergence(*hyper.chunk(2, 1), *prior.chunk(2, 1)).sum(1)

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        shape, rate = hyper.chunk(2, 1)
        return torch.diag_embed(rate / draw_gamma(shape, generator))

    def log_density(self, shapes: Tensor, hyper: Tensor) -> Tensor:
        return log_gamma_log_density(-shapes, *hyper.chunk(2, 1)).sum(1)

    def raw(self, hyper: Tensor, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        shape, rate = (t.numpy() for t in hyper.chunk(2, 1))
        return {"precision_shape": shape, "precision_rate": rate * scale**2}


class WishartInnovations(Innovations):
    """Wishart distributions of the precision; ``hyper`` holds the degrees of freedom, then the inverse scale matrix."""

    @property
    def n_hyper(self) -> int:
        return 1 + self.size * self.size

    def _split(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        """Return degrees of freedom ``(K,)`` and inverse scale matrices ``(K, D, D)``."""
        return hyper[:, 0], hyper[:, 1:].unflatten(1, (self.size, self.size))

    def prior(self, counts: Tensor, variances: Tensor) -> Tensor:
        freedom = counts + self.size - 1
        return torch.cat([freedom, torch.diag_embed(freedom * variances).flatten(1)], 1)

    def updated(self, prior: Tensor, scatter: Tensor, counts: Tensor) -> Tensor:
        return prior + torch.cat([counts.unsqueeze(1), scatter.flatten(1)], 1)

    def covariance(self, hyper: Tensor) -> Tensor:
        freedom, scatter = self._split(hyper)
        return scatter / freedom[:, None, None]

    def shapes(self, covariance: Tensor) -> Tensor:
        return gaussian.shape_of_covariance(covariance)

    def log_det_gap(self, hyper: Tensor) -> Tensor:
        freedom, scatter = self._split(hyper)
        return 0.5 * (expected_log_det(freedom, scatter) + torch.logdet(scatter) - self.size * freedom.log())

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        return wishart_divergence(*self._split(hyper), *self._split(prior))

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        drawn: Tensor = torch.linalg.inv(draw_wishart(*self._split(hyper), generator))
        return drawn

    def log_density(self, shapes: Tensor, hyper: Tensor) -> Tensor:
        return wishart_log_density(gaussian.precision_cholesky(shapes, self.size, NO_FLOOR), *self._split(hyper))

    def raw(self, hyper: Tensor, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        freedom, scatter = (t.numpy() for t in self._split(hyper))
        return {"degrees_of_freedom": freedom, "inverse_scale": scatter * np.outer(scale, scale)}
