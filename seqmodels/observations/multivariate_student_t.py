"""Multivariate Student t densities of vectors, whose features have a common scale matrix and degrees of freedom."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.common.parameters import Floor, refuse_wrong_arguments
from seqmodels.observations import gaussian, multivariate_t
from seqmodels.observations.base import Observation
from seqmodels.observations.special_functions import log_gamma_step, student_t_cdf
from seqmodels.observations.student_t import LEAST_DEGREES, MOST_DEGREES


@dataclass(eq=False, repr=False)
class MultivariateStudentT(Observation):
    """A multivariate Student t density of D features, which a large value of one feature makes likely in all others::

        p(x) = Γ((ν + D)/2) / Γ(ν/2) |π ν S|^(-1/2) (1 + q/ν)^(-(ν + D)/2),  q = (x - μ)ᵀ S⁻¹ (x - μ)

    The D output parameters of the location μ come first, then the D (D + 1) / 2 numbers of the scale matrix S, those of
    a full covariance (``seqmodels.observations.gaussian``), and the logarithm of the degrees of freedom ν, which is
    bounded to 0.5 to 1e6. Missing values (NaN) are marginalised out: what is left is a t density with the same ν.
    Networks and linear-Gaussian systems predict with it; EM does not fit it. See Kotz and Nadarajah (2004),
    *Multivariate t distributions and their applications*.

    Args:
        min_covariance: lower bound of the squared scale of each feature given the later ones, in units of the
            standardised data.
    """

    min_covariance: Floor = 1e-4
    emits = "vectors"

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)

    @property
    def sums_out_missing(self) -> bool:
        return True

    def has_heavy_tails(self, size: int) -> tuple[bool, ...]:
        return (True,) * size

    def n_output_parameters(self, size: int) -> int:
        return size + gaussian.n_shape_parameters("full", size) + 1

    def unpack(self, output_parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split the parameters of a density into its location, scale matrix and degrees of freedom.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.

        Returns:
            Locations ``(..., D)``; the numbers that describe each scale matrix, ``(..., D (D + 1) / 2)``; and degrees
                of freedom, ``(...)``.
        """
        size = math.isqrt(2 * output_parameters.shape[-1] + 1) - 1  # P = D (D + 3) / 2 + 1
        degrees = output_parameters[..., -1].clamp(math.log(LEAST_DEGREES), math.log(MOST_DEGREES)).exp()
        return output_parameters[..., :size], output_parameters[..., size:-1], degrees

    def scaled(self, output_parameters: Tensor, log_scale: Tensor) -> Tensor:
        """Return the parameters of densities whose scale matrices are multiplied by ``e^(2 log_scale)``, ``(..., P)``.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            log_scale: half the logarithm of each factor, ``(...)``.
        """
        location, shape, _ = self.unpack(output_parameters)
        size, log_scale = location.shape[-1], log_scale.unsqueeze(-1)
        shape = torch.cat([shape[..., :size] - log_scale, shape[..., size:] * torch.exp(-log_scale)], -1)
        return torch.cat([location, shape, output_parameters[..., -1:]], -1)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """Return the parameters ``(..., P)`` of the normalised powers ``p^(1/temperature)`` of t densities p.

        They are t densities with ``(ν + D) / temperature - D`` degrees of freedom, where ν are the degrees of freedom
        before and D is the number of features.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            temperature: a number above 0; below 1 densities become sharper, above 1 flatter.

        Raises:
            ValueError: if fewer than 0.5 degrees of freedom would be left.
        """
        location, _, nu = self.unpack(output_parameters)
        size = location.shape[-1]
        degrees = (nu + size) / temperature - size
        if not bool((degrees >= LEAST_DEGREES).all()):
            raise ValueError(
                f"temperature {temperature:g} leaves a t density of {size} features and {float(nu.min()):.3g} degrees "
                f"of freedom {float(degrees.min()):.3g}, and fewer than {LEAST_DEGREES} are not supported; pass a "
                "lower one"
            )
        moved = self.scaled(output_parameters, 0.5 * (nu.log() - degrees.log()))
        return torch.cat([moved[..., :-1], degrees.log().unsqueeze(-1).to(moved)], -1)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        location, shape, nu = self.unpack(output_parameters)
        spread = multivariate_t.Spread(nu.double(), torch.ones_like(nu), torch.ones_like(nu, dtype=torch.bool))
        return multivariate_t.log_density(x, location, shape, "full", self.min_covariance, spread).to(nu)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        location, shape, nu = self.unpack(output_parameters)
        noise = torch.randn(location.shape, generator=generator, dtype=location.dtype, device=location.device)
        half = 0.5 * nu
        # A gamma variable of shape k is one of shape k + 1 times U^(1/k), in logarithms as small shapes underflow.
        uniform = torch.rand(half.shape, generator=generator, dtype=half.dtype, device=half.device)
        log_u = torch._standard_gamma(half + 1, generator=generator).log() + (1 - uniform).log() / half - half.log()
        wide = noise * torch.exp(-0.5 * log_u).unsqueeze(-1)
        return gaussian.draw(location, shape, "full", self.min_covariance, wide)

    # -- features by themselves ----------------------------------------------------------------------------

    def _marginals(self, output_parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the location and scale of each feature, ``(..., D)``, and ν, ``(..., 1)``, float64 on the CPU."""
        location, shape, nu = self.unpack(output_parameters.double().cpu())
        factor = gaussian.covariance_cholesky(shape, location.shape[-1], self.min_covariance)
        return location, factor.square().sum(-1).sqrt(), nu.unsqueeze(-1)

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        location, scale, nu = self._marginals(output_parameters)
        z = (x.double().cpu() - location) / scale
        return student_t_cdf(z, nu.expand_as(z))

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        location, scale, nu = self._marginals(output_parameters)
        squares = ((x.double().cpu() - location) / scale).square()
        constant = log_gamma_step(0.5 * nu) - 0.5 * (math.pi * nu).log() - scale.log()
        return constant - 0.5 * (nu + 1) * torch.log1p(squares / nu)

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        location, _, nu = self._marginals(output_parameters)
        return torch.where(nu > 1, location, torch.nan)

    # -- floors, starts and raw units ----------------------------------------------------------------------

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the parameters ``(P,)`` of a standard t density with 10 degrees of freedom, where training starts.

        Args:
            size: number of features D.
            generator: not used.
        """
        start = torch.zeros(self.n_output_parameters(size))
        start[-1] = math.log(10.0)
        return start

    def with_floor(self, factor: float) -> MultivariateStudentT:
        return replace(self, min_covariance=factor * self.min_covariance)

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        shape = gaussian.on_floor(output_parameters[..., size:-1], size, "full", self.min_covariance, factor)
        return torch.cat([output_parameters[..., :size], shape, output_parameters[..., -1:]], -1)

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        return gaussian.at_floor(output_parameters[..., size:-1], size, "full", self.min_covariance)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        location, shape, nu = self.unpack(output_parameters)
        factor = scale.unsqueeze(-1) * gaussian.covariance_cholesky(shape, len(shift), self.min_covariance)
        each = dist.MultivariateStudentT(nu, shift + scale * location, factor, validate_args=True)
        return dist.MixtureSameFamily(dist.Categorical(logits=log_weights, validate_args=True), each)
