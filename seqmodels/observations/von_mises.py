"""Von Mises densities of angles, ``p(x) = Π_d e^{κ_d cos(x_d - μ_d)} / (2π I_0(κ_d))`` for x from -π to π."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqmodels.common.parameters import Floor
from seqmodels.observations.independent_features import FeatureMoments
from seqmodels.observations.special_functions import bessel_ratios, concentration_of_von_mises

LEAST_CONCENTRATION = 1e-12  # practically a uniform density
MOST_RESOLVED = 1e8  # largest κ for trigonometric moments, a standard deviation of 1e-4
NEGLIGIBLE = 80.0  # moments below exp(-NEGLIGIBLE / 2) are left out


@dataclass(eq=False, repr=False)
class VonMises(FeatureMoments):
    """Independent von Mises densities of angles in radians with period 2π: directions, phases, times of the day.

    Values outside -π to π are refused, so that each direction has one representation. The output parameters of a state
    are the natural parameters: D values of κ cos μ, then D values of κ sin μ. The M-step is exact: μ is the direction
    of the mean resultant, and κ is the inverse of ``I_1/I_0`` at its length (Mardia and Jupp 2000, *Directional
    statistics*).

    Args:
        min_scale: lower bound of ``1/√κ`` in radians, because repeated values would make the density unbounded. For a
            narrow density ``1/√κ`` is the standard deviation.

    Forecasts are directions: the mean is the direction of the mean resultant, and bands are the shortest arcs, which
    may cross π.

    NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``locations_`` (μ) and
    ``concentrations_`` (κ), each ``(K, D)``.
    """

    min_scale: Floor = 1e-2
    n_per_feature = 2
    kind = "angles"

    def locations(self, size: int) -> list[slice]:
        return [slice(0, 2 * size)]

    def location_labels(self, names: Sequence[Any]) -> list[Any]:
        return [(part, name) for part in ("cos", "sin") for name in names]

    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        a, b = self.floored(theta).unbind(-2)
        kappa = _length(a, b)
        # log I_0(κ) = log(e^{-κ} I_0(κ)) + κ, of which the first stays near 1.
        log_bessel = torch.special.i0e(kappa).log() + kappa
        log_prob: Tensor = a * x.cos() + b * x.sin() - log_bessel - math.log(2 * math.pi)
        return log_prob

    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Draw angles ``(n, D)`` from von Mises densities, by rejection from wrapped Cauchy densities.

        The method is that of Best and Fisher (1979). At least two of three proposals are accepted.

        Args:
            theta: κ cos μ and κ sin μ of the density of each of D angles, ``(n, 2, D)``.
            generator: source of random numbers.
        """
        a, b = self.floored(theta).unbind(-2)
        kappa = _length(a, b)
        tau = 1 + (1 + 4 * kappa.square()).sqrt()
        rho = ((tau - (2 * tau).sqrt()) / (2 * kappa)).clamp(min=1e-9)
        r = (1 + rho.square()) / (2 * rho)
        deviation, is_missing = torch.zeros_like(kappa), torch.ones_like(kappa, dtype=torch.bool)
        while bool(is_missing.any()):
            u, v, sign = (torch.rand_like(kappa, generator=generator) for _ in range(3))
            z = (math.pi * u).cos()
            f = (1 + r * z) / (r + z)
            c = kappa * (r - f)
            accepted = (c * (2 - c) > v) | ((c / v.clamp(min=1e-300)).log() + 1 - c >= 0)
            drawn = torch.where(sign < 0.5, -1.0, 1.0) * f.clamp(-1, 1).acos()
            deviation = torch.where(is_missing & accepted, drawn, deviation)
            is_missing &= ~accepted
        x = torch.atan2(b, a) + deviation
        return torch.atan2(x.sin(), x.cos())

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def trigonometric_moments(self, output_parameters: Tensor) -> Tensor:
        """Return the moments ``E exp(i j x_d) = I_j(κ) / I_0(κ) e^{i j μ}`` of each angle for j = 1 to J.

        The result is complex, ``(..., J, D)``. J is so large that later moments are negligible. The concentration κ is
        taken to be at most ``MOST_RESOLVED``.

        Args:
            output_parameters: D values of κ cos μ, then D values of κ sin μ, ``(..., 2D)``.
        """
        a, b = self.floored(self.unpack(output_parameters).cpu()).unbind(-2)
        kappa, direction = _length(a, b).clamp(max=MOST_RESOLVED), torch.atan2(b, a)
        n = math.ceil(math.sqrt(NEGLIGIBLE * float(kappa.max()))) + 40  # the ratios fall as exp(-j² / 2κ)
        order = torch.arange(1.0, n + 1, dtype=torch.float64).view(-1, *[1] * kappa.ndim)
        return (bessel_ratios(kappa, n) * torch.exp(1j * order * direction)).movedim(0, -2)

    def feature_mean(self, theta: Tensor) -> Tensor:
        """Return the mean direction μ of each angle, ``(..., D)``, from -π to π.

        Args:
            theta: κ cos μ and κ sin μ of the density of each of D angles, ``(..., 2, D)``.
        """
        a, b = self.floored(theta).unbind(-2)
        return torch.atan2(b, a)

    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return cos x and sin x, the sufficient statistics of von Mises densities, stacked to ``(..., 2, D)``.

        Args:
            theta: parameters of the densities, which have no influence, ``(..., 2, D)``.
            x: angles in radians, ``(..., D)``.
        """
        return torch.stack([x.cos(), x.sin()], -2)

    def from_averages(self, averages: Tensor) -> Tensor:
        resultant = averages.square().sum(-2).sqrt()
        kappa = concentration_of_von_mises(resultant, self.min_scale**-2)
        return averages * (kappa / resultant.clamp(min=1e-300)).unsqueeze(-2)

    def log_scale(self, theta: Tensor) -> Tensor:
        return -0.5 * _length(*theta.unbind(-2)).log()

    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        return theta * torch.exp(-2 * log_scale - _length(*theta.unbind(-2)).log()).unsqueeze(-2)

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the parameters ``(2D,)`` from which training starts: nearly uniform densities.

        Exactly uniform ones have no gradient.

        Args:
            size: number of angles D.
            generator: not used.
        """
        return torch.full((2 * size,), 0.1)

    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        a, b = self.floored(theta).unbind(-2)
        return {"locations_": torch.atan2(b, a), "concentrations_": _length(a, b)}

    def of_raw_parameters(self, raw: Mapping[str, Tensor], shift: Tensor, scale: Tensor) -> Tensor:
        location, concentration = raw["locations_"], raw["concentrations_"]
        return torch.stack([concentration * location.cos(), concentration * location.sin()], -2)


def _length(a: Tensor, b: Tensor) -> Tensor:
    """Return ``√(a² + b²)``, kept slightly above zero so that its gradient is finite."""
    return (a.square() + b.square() + LEAST_CONCENTRATION**2).sqrt()
