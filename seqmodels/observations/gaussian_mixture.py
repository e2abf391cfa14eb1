"""Vectors: ``p(x) = Σ_m w_m N(x; μ_m, Σ_m)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqmodels.observations import gaussian
from seqmodels.observations.base import Observation
from seqmodels.observations.gaussian import CovarianceType
from seqmodels.observations.pseudo_frames import PseudoFrames


@dataclass(eq=False, repr=False)
class GaussianMixture(Observation):
    """A mixture of Gaussians.

    Args:
        n_components: M.
        covariance_type: ``"diag"`` or ``"full"``.
        min_covariance: floor of the variances, in units of the standardised data (1 is the variance of a feature
            over the training frames). Under ``full``, in a network, of each feature's variance given the later ones.
        prior: what EM believes before it has seen any frames; None: nothing.

    The parameters of a state are M log-weights, M means and M shapes (``seqmodels.observations.gaussian``). Reference: Bishop (1994),
    *Mixture density networks*; Williams (1996) for the Cholesky factor of the precision.
    """

    n_components: int = 4
    covariance_type: CovarianceType = "diag"
    min_covariance: float = 1e-4
    prior: PseudoFrames | None = None
    emits = "vectors"

    @property
    def n_past(self) -> int:
        return 0

    @property
    def sums_out_missing(self) -> bool:
        return self.covariance_type == "diag"

    def n_parameters(self, size: int) -> int:
        return self.n_components * (1 + size + gaussian.n_shape_parameters(self.covariance_type, size))

    def unpack(self, parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """``(..., P)`` -> log-weights ``(..., M)``, means ``(..., M, D)``, shapes ``(..., M, S)``."""
        m, s = self.n_components, gaussian.n_shape_parameters(self.covariance_type, size)
        logits, means, shapes = parameters.split([m, m * size, m * s], dim=-1)
        return torch.log_softmax(logits, dim=-1), means.unflatten(-1, (m, size)), shapes.unflatten(-1, (m, s))

    def pack(self, log_weights: Tensor, means: Tensor, shapes: Tensor) -> Tensor:
        """The inverse of ``unpack``."""
        return torch.cat([log_weights, means.flatten(-2), shapes.flatten(-2)], dim=-1)

    def log_prob(self, parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        log_weights, means, shapes = self.unpack(parameters, x.shape[-1])
        density = gaussian.log_density(x.unsqueeze(-2), means, shapes, self.covariance_type, self.min_covariance)
        return torch.logsumexp(log_weights + density, dim=-1)

    def sample(self, parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        size = self._size(parameters.shape[-1])
        log_weights, means, shapes = self.unpack(parameters, size)
        chosen = torch.multinomial(log_weights.exp(), 1, generator=generator)  # (n, 1)
        rows = torch.arange(len(parameters), device=parameters.device).unsqueeze(-1)
        mean, shape = means[rows, chosen].squeeze(1), shapes[rows, chosen].squeeze(1)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return gaussian.draw(mean, shape, self.covariance_type, self.min_covariance, noise)

    def distribution(
        self, parameters: Tensor, weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        log_weights, means, shapes = self.unpack(parameters, len(shift))
        probs = (weights.unsqueeze(-1) * log_weights.exp()).flatten()  # (K * M,)
        loc = shift + scale * means.flatten(0, 1)
        if self.covariance_type == "diag":
            deviation = scale * gaussian.variances_of_shape(shapes, self.min_covariance).sqrt().flatten(0, 1)
            return dist.MixtureSameFamily(dist.Categorical(probs), dist.Normal(loc, deviation).to_event(1))
        factor = gaussian.covariance_cholesky(shapes, len(shift), self.min_covariance).flatten(0, 1)
        normal = dist.MultivariateNormal(loc, scale_tril=scale.unsqueeze(-1) * factor)
        return dist.MixtureSameFamily(dist.Categorical(probs), normal)

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        means = 0.5 * torch.randn(self.n_components, size, generator=generator)
        shapes = torch.zeros(self.n_components, gaussian.n_shape_parameters(self.covariance_type, size))
        return self.pack(torch.zeros(self.n_components), means, shapes)

    def floor_hits(self, parameters: Tensor, size: int) -> Tensor:
        shapes = self.unpack(parameters, size)[2]
        return gaussian.at_floor(shapes, size, self.covariance_type, self.min_covariance).any(-1)

    def _size(self, n_parameters: int) -> int:
        each = n_parameters // self.n_components
        return next(d for d in range(1, each) if 1 + d + gaussian.n_shape_parameters(self.covariance_type, d) == each)
