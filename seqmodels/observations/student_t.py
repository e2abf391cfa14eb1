"""Student t densities of vectors with outliers, ``p(x) = Π_d t((x_d - μ_d) / σ_d; ν_d) / σ_d``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.common.parameters import Floor
from seqmodels.observations.line_densities import LineDensity
from seqmodels.observations.special_functions import log_gamma_step, shape_of_gamma, student_t_cdf

LEAST_DEGREES, MOST_DEGREES = 0.5, 1e6  # at the latter the fourth moment is a Gaussian's to six digits
ONE_IS_LOST_FROM = 1e8  # from this z on, 1 + z² equals z² in float64


@dataclass(eq=False, repr=False)
class StudentT(LineDensity):
    """Independent Student t densities of features, for data with outliers.

    An outlier loses log-probability in proportion to the logarithm of its distance; under a Gaussian, in proportion to
    its square. The output parameters of a state are D locations μ, D log-scales log σ and D logarithms of the degrees
    of freedom ν. ν is learned between 0.5 and 1e6: below 1 there is no mean, below 2 no variance, and at 1e6 the
    density is practically Gaussian.

    EM uses the scale mixture ``x | u ~ N(μ, σ²/u)`` with ``u ~ Gamma(ν/2, ν/2)``. The expected value of u is a free
    parameter too, which reaches the same maximum in fewer steps (Liu, Rubin and Wu 1998, *Parameter expansion to
    accelerate EM*). ν is the root of an equation in one unknown (Liu and Rubin 1995, *ML estimation of the t
    distribution using EM and its extensions*).

    Args:
        min_scale: lower bound of σ in units of the standardised data, because repeated values would make the density
            unbounded. 1 is the standard deviation of a feature over the training frames or, if outliers dominate it,
            that of the feature's middle values (``Standardize(robust=True)``).

    NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``locations_``, ``scales_`` and
    ``degrees_of_freedom_``, each ``(K, D)``.
    """

    min_scale: Floor = 1e-2
    n_per_feature = 3
    location_block = 0
    is_of_state = True

    def has_heavy_tails(self, size: int) -> tuple[bool, ...]:
        return (True,) * size

    def location_units(self, scale: Tensor) -> Tensor:
        return scale

    def _location_scale_degrees(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        location, log_scale, log_degrees = self.floored(theta).unbind(-2)
        degrees = log_degrees.clamp(math.log(LEAST_DEGREES), math.log(MOST_DEGREES)).exp()
        return location, log_scale.exp(), degrees

    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        location, scale, nu = self._location_scale_degrees(theta)
        deviation = x - location
        # Not abs(), whose second derivative makes torch load its compiler, for seconds.
        z = torch.where(deviation < 0, -deviation, deviation) / (scale * nu.sqrt())
        # Both branches are clamped so that z² neither overflows nor makes the gradient of the unused branch infinite.
        near, far = z.clamp(max=ONE_IS_LOST_FROM), z.clamp(min=ONE_IS_LOST_FROM)
        log_kernel = torch.where(z > ONE_IS_LOST_FROM, 2 * far.log(), torch.log1p(near.square()))
        constant = log_gamma_step(0.5 * nu) - 0.5 * (math.pi * nu).log() - scale.log()
        return constant - 0.5 * (nu + 1) * log_kernel

    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        location, scale, nu = self._location_scale_degrees(theta)
        half = 0.5 * nu
        noise, uniform = torch.randn_like(half, generator=generator), torch.rand_like(half, generator=generator)
        # A gamma variable of shape k is one of shape k + 1 times U^(1/k), in logarithms as small shapes underflow.
        log_u = torch._standard_gamma(half + 1, generator=generator).log() + (1 - uniform).log() / half - half.log()
        return location + scale * noise * torch.exp(-0.5 * log_u)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """Return the parameters ``(..., P)`` of the normalised powers ``p^(1/temperature)`` of t densities p.

        They are t densities with ``(ν + 1) / temperature - 1`` degrees of freedom, where ν are the degrees of freedom
        before.

        Args:
            output_parameters: the P parameters of each vector's densities, ``(..., P)``.
            temperature: a number above 0; below 1 densities become sharper, above 1 flatter.

        Raises:
            ValueError: if fewer than 0.5 degrees of freedom would be left.
        """
        location, scale, nu = self._location_scale_degrees(self.unpack(output_parameters))
        degrees = (nu + 1) / temperature - 1
        if not bool((degrees >= LEAST_DEGREES).all()):
            raise ValueError(
                f"temperature {temperature:g} leaves a t density of {float(nu.min()):.3g} degrees of freedom "
                f"{float(degrees.min()):.3g}, and fewer than {LEAST_DEGREES} are not supported; pass a lower one"
            )
        log_scale = scale.log() + 0.5 * (nu.log() - degrees.log())
        return torch.cat([location, log_scale, degrees.log()], -1).to(output_parameters.dtype)

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        location, scale, nu = self._location_scale_degrees(theta)
        return student_t_cdf((x - location) / scale, nu)

    def feature_mean(self, theta: Tensor) -> Tensor:
        """Return the mean of each feature, the location μ, ``(..., D)``; NaN for at most one degree of freedom.

        Args:
            theta: μ, log σ and log ν of the t density of each of D features, ``(..., 3, D)``.
        """
        location, _, nu = self._location_scale_degrees(theta)
        return torch.where(nu > 1, location, torch.nan)

    # -- x = μ + σ √ν sinh y, on the line ------------------------------------------------------------------

    def to_line(self, theta: Tensor, x: Tensor) -> Tensor:
        location, scale, nu = self._location_scale_degrees(theta)
        return torch.asinh((x - location) / (scale * nu.sqrt()))

    def line_mode(self, theta: Tensor) -> Tensor:
        return torch.zeros_like(theta[..., 0, :])

    def line_log_prob(self, theta: Tensor, y: Tensor) -> Tensor:
        nu = self._location_scale_degrees(theta)[2]
        return log_gamma_step(0.5 * nu) - 0.5 * math.log(math.pi) - nu * _log_cosh(y)

    def log_prob_along(self, theta: Tensor, fixed: Tensor, y: Tensor) -> Tensor:
        location, scale, nu = self._location_scale_degrees(fixed)
        unit = scale * nu.sqrt()
        return self.feature_log_prob(theta, location + unit * y.sinh()) + unit.log() + _log_cosh(y)

    def line_moments(self, theta: Tensor, y: Tensor) -> Tensor:
        location, scale, nu = self._location_scale_degrees(theta)
        return self.moments(theta, location + scale * nu.sqrt() * y.sinh())

    # -- EM ------------------------------------------------------------------------------------------------

    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return ``E[u] x²``, ``E[u] x``, ``E[u]`` and ``E[log u]`` given x, stacked to ``(..., 4, D)``.

        u is the latent precision of the scale mixture ``x | u ~ N(μ, σ²/u)``, ``u ~ Gamma(ν/2, ν/2)``.

        Args:
            theta: μ, log σ and log ν of the t density of each of D features, ``(..., 3, D)``.
            x: encoded vectors without missing values, ``(..., D)``.
        """
        location, scale, nu = self._location_scale_degrees(theta)
        z = (x - location) / scale
        u = (nu + 1) / (nu + z.square())
        log_u = torch.digamma(0.5 * (nu + 1)) - (0.5 * (nu + z.square())).log()
        return torch.stack([(u.sqrt() * x).square(), u * x, u, log_u], -2)

    def from_averages(self, averages: Tensor) -> Tensor:
        second, first, u, log_u = averages.unbind(-2)
        location = first / u
        spread = (second - first * location).clamp(min=0.0)  # variance of √u (x - μ)
        floor = self.min_scale**2
        # The expected u is free, and its scale is put into σ; where σ is at its floor u has the mean 1 that it has in
        # the model: the M-step of plain EM, exact within the floor.
        is_free = spread / u >= floor
        variance = torch.where(is_free, spread / u, spread.clamp(min=floor))
        gap = torch.where(is_free, u.log(), u - 1) - log_u
        degrees = 2 * shape_of_gamma(gap, LEAST_DEGREES / 2, MOST_DEGREES / 2)
        return torch.stack([location, 0.5 * variance.log(), degrees.log()], -2)

    def log_scale(self, theta: Tensor) -> Tensor:
        return theta[..., 1, :]

    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        return torch.stack([theta[..., 0, :], log_scale, theta[..., 2, :]], -2)

    # -- starts and raw units ------------------------------------------------------------------------------

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the parameters ``(3D,)`` of standard t densities with 10 degrees of freedom, where training starts.

        Args:
            size: number of features D.
            generator: not used.
        """
        return torch.cat([torch.zeros(2 * size), torch.full((size,), math.log(10.0))])

    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        location, own_scale, nu = self._location_scale_degrees(theta)
        return {"locations_": shift + scale * location, "scales_": scale * own_scale, "degrees_of_freedom_": nu}

    def of_raw_parameters(self, raw: Mapping[str, Tensor], shift: Tensor, scale: Tensor) -> Tensor:
        location = (raw["locations_"] - shift) / scale
        return torch.stack([location, (raw["scales_"] / scale).log(), raw["degrees_of_freedom_"].log()], -2)


def _log_cosh(y: Tensor) -> Tensor:
    near, far = y.abs().clamp(max=1.0), y.abs().clamp(min=1.0)
    large = far + torch.log1p((-2 * far).exp()) - math.log(2)
    return torch.where(y.abs() < 1, 0.5 * torch.log1p(near.sinh().square()), large)
