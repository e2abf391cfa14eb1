"""Special functions and inverses that densities need, without the cancellation of their definitions; float64."""

from __future__ import annotations

import torch
from torch import Tensor

LARGE = 20.0  # from where asymptotic series have all digits of float64


def log_gamma_step(z: Tensor) -> Tensor:
    """``log Γ(z + ½) - log Γ(z)``, which for large z is the small difference of large numbers.

    The series is that of Tricomi and Erdélyi (1951): ``½ log z - 1/(8 z) + 1/(192 z³) - ...``.
    """
    is_large = z > LARGE
    small, large = torch.where(is_large, 1.0, z), torch.where(is_large, z, LARGE)
    r = 1 / large**2
    series = (-1 / 8 + r * (1 / 192 + r * (-1 / 640 + r * (17 / 14336 - r * 31 / 18432)))) / large
    return torch.where(is_large, 0.5 * large.log() + series, torch.lgamma(small + 0.5) - torch.lgamma(small))


def stirling_rest(z: Tensor) -> Tensor:
    """``log Γ(z) - ((z - ½) log z - z + ½ log 2π)``, about ``1 / (12 z)``; z at least ``LARGE``."""
    r = 1 / z**2
    return (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r / 1680))) / z


def shape_of_gamma(gap: Tensor, low: float, high: float) -> Tensor:
    """k in ``low .. high`` at which ``log k - ψ(k)`` is nearest to ``gap``: the most likely shape of a gamma density.

    ``gap`` is the logarithm of the mean minus the mean of the logarithms. By Newton's method in 1/k, which from Minka's
    start (2002, *Estimating a gamma distribution*) takes four steps.
    """
    s = gap.clamp(min=1e-300)
    k = ((3 - s + ((s - 3).square() + 24 * s).sqrt()) / (12 * s)).clamp(low, high)
    for _ in range(8):
        slope = 1 / k - torch.polygamma(1, k)  # < 0
        inverse = 1 / k + (k.log() - torch.digamma(k) - s) / (k.square() * slope)
        k = torch.where(inverse > 0, 1 / inverse.clamp(min=1e-300), high).clamp(low, high)
    return k
