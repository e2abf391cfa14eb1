"""Special functions and their inverses for densities, computed in float64 without the cancellation of their
definitions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

N_NEWTON, N_HALVINGS = 40, 12  # steps, and halvings of each
LAST_STEP = 1e-7  # relative: a step of Newton's leaves an error of about its square, which no likelihood shows
ASYMPTOTIC_FROM = 20.0  # from where asymptotic series have all digits of float64


def log_gamma_step(z: Tensor) -> Tensor:
    """Return ``log Γ(z + ½) - log Γ(z)``, elementwise, to full precision.

    For large z, where this is a small difference of large numbers, it uses the series of Tricomi and Erdélyi (1951):
    ``½ log z - 1/(8 z) + 1/(192 z³) - ...``.
    """
    is_large = z > ASYMPTOTIC_FROM
    small, large = torch.where(is_large, 1.0, z), torch.where(is_large, z, ASYMPTOTIC_FROM)
    r = 1 / large**2
    series = (-1 / 8 + r * (1 / 192 + r * (-1 / 640 + r * (17 / 14336 - r * 31 / 18432)))) / large
    return torch.where(is_large, 0.5 * large.log() + series, torch.lgamma(small + 0.5) - torch.lgamma(small))


def stirling_rest(z: Tensor) -> Tensor:
    """Return the error of Stirling's formula, ``log Γ(z) - ((z - ½) log z - z + ½ log 2π)``, elementwise.

    It is about ``1 / (12 z)``.

    Args:
        z: numbers of at least 20, from where the series has all digits of float64.
    """
    r = 1 / z**2
    return (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r / 1680))) / z


def shape_of_gamma(gap: Tensor, low: float, high: float) -> Tensor:
    """Return the maximum-likelihood shape k of gamma densities, elementwise.

    It is the k for which ``log k - ψ(k)`` equals ``gap``, with the digamma function ψ. Newton's method in 1/k takes
    about four steps from Minka's start (2002, *Estimating a gamma distribution*).

    Args:
        gap: logarithm of the mean of the data minus the mean of their logarithms.
        low, high: bounds of k.
    """
    s = gap.clamp(min=1e-300)
    k = ((3 - s + ((s - 3).square() + 24 * s).sqrt()) / (12 * s)).clamp(low, high)
    for _ in range(8):
        slope = 1 / k - torch.polygamma(1, k)  # < 0
        inverse = 1 / k + (k.log() - torch.digamma(k) - s) / (k.square() * slope)
        k = torch.where(inverse > 0, 1 / inverse.clamp(min=1e-300), high).clamp(low, high)
    return k


def concentration_of_von_mises(resultant: Tensor, high: float) -> Tensor:
    """Return the maximum-likelihood concentration κ of von Mises densities, elementwise.

    It is the κ at which the ratio of Bessel functions ``A = I_1(κ) / I_0(κ)`` equals ``resultant``. It is found by
    Newton's method from the start of Banerjee et al. (2005), *Clustering on the unit hypersphere*; the slope of the
    ratio is ``1 - A² - A/κ`` (Mardia and Jupp 2000, 3.6).

    Args:
        resultant: length of the mean of the unit vectors, from 0 to 1.
        high: upper bound of κ.
    """
    r = resultant.clamp(0.0, 1 - 1e-15)
    kappa = (r * (2 - r.square()) / (1 - r.square())).clamp(1e-12, high)
    for _ in range(12):
        ratio = torch.special.i1e(kappa) / torch.special.i0e(kappa)
        slope = torch.where(kappa < 1e-4, 0.5, 1 - ratio.square() - ratio / kappa)
        moved = kappa - (ratio - r) / slope.clamp(min=1e-300)
        kappa = torch.minimum(torch.maximum(moved, kappa / 10), kappa * 10).clamp(1e-12, high)
    return kappa


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """Return the log beta function ``log Γ(a) + log Γ(b) - log Γ(a + b)``, elementwise, without cancellation."""
    small, large = torch.minimum(a, b), torch.maximum(a, b)
    is_large = large > ASYMPTOTIC_FROM
    m, big = torch.where(is_large, 1.0, large), torch.where(is_large, large, ASYMPTOTIC_FROM)
    plain = torch.lgamma(small) + torch.lgamma(m) - torch.lgamma(small + m)
    # log Γ(large) - log Γ(large + small), by Stirling's formula.
    total = big + small
    falling = -(big - 0.5) * torch.log1p(small / big) - small * total.log() + small
    series = falling + stirling_rest(big) - stirling_rest(total)
    return torch.where(is_large, torch.lgamma(small) + series, plain)


def shapes_of_beta(averages: Tensor, low: float, high: float) -> Tensor:
    """Return the maximum-likelihood parameters a and b of beta densities, stacked to ``(..., 2, D)``.

    The likelihood is concave in a and b, so Newton's method is used, with steps halved until the likelihood increases.
    If the sum of a and b would exceed ``high``, bisection finds the best point with that sum.

    Args:
        averages: averages of log x and of log(1 - x) for each of D features, ``(..., 2, D)``.
        low: lower bound of a and of b.
        high: upper bound of a + b.
    """

    def likelihood(shapes: Tensor) -> Tensor:
        return (shapes * averages).sum(-2) - log_beta(*shapes.unbind(-2))

    shapes = torch.ones_like(averages)
    value = likelihood(shapes)
    for _ in range(N_NEWTON):
        total = shapes.sum(-2, keepdim=True)
        gradient = averages - torch.digamma(shapes) + torch.digamma(total)
        # The Hessian is -diag(q) + z 1 1ᵀ, inverted in closed form.
        q, z = torch.polygamma(1, shapes), torch.polygamma(1, total)
        pull = (gradient / q).sum(-2, keepdim=True) / (1 / z - (1 / q).sum(-2, keepdim=True))
        step = (gradient + pull) / q
        moved = (shapes + step).clamp(low, high)
        if ((moved - shapes).abs() <= LAST_STEP * shapes).all():
            shapes = moved
            break
        length = torch.ones_like(value)
        for _ in range(N_HALVINGS):
            moved = (shapes + length.unsqueeze(-2) * step).clamp(low, high)
            goes_up = likelihood(moved) >= value
            if goes_up.all():
                break
            length = torch.where(goes_up, length, 0.5 * length)
        shapes = torch.where(goes_up.unsqueeze(-2), moved, shapes)
        value = likelihood(shapes)
    is_inside = shapes.sum(-2) <= high
    if is_inside.all():
        return shapes
    # On the edge a = c - b the slope in a falls: log x less log(1 - x) is then what it is expected to be.
    below = torch.full_like(averages[..., 0, :], low)
    above = torch.full_like(below, high - low)
    for _ in range(100):
        a = 0.5 * (below + above)
        slope = averages[..., 0, :] - torch.digamma(a) - averages[..., 1, :] + torch.digamma(high - a)
        below, above = torch.where(slope > 0, a, below), torch.where(slope > 0, above, a)
    edge = torch.stack([0.5 * (below + above), high - 0.5 * (below + above)], -2)
    return torch.where(is_inside.unsqueeze(-2), shapes, edge)


# -- cdfs, by SciPy on the CPU ---------------------------------------------------------------------------------


def gaussian_cdf(z: Tensor) -> Tensor:
    """Return the standard normal cdf ``Φ(z)``; 0 at -inf and 1 at inf."""
    result: Tensor = torch.special.ndtr(z)
    return result


def student_t_cdf(t: Tensor, degrees: Tensor) -> Tensor:
    """Return ``P(T <= t)`` of Student's t distribution, elementwise, for tensors on the CPU.

    It uses the incomplete beta function, in ``1 / (1 + t²/ν)`` far from zero and in ``1 / (1 + ν/t²)`` near zero,
    because SciPy's ``stdtr`` has only eight digits there.

    Args:
        t: the values, float64.
        degrees: degrees of freedom ν.
    """
    from scipy import special

    nu = np.broadcast_to(degrees.numpy(), t.shape)
    z = np.abs(t.numpy()) / np.sqrt(nu)
    is_far = z > 1
    lower = np.empty(t.shape)
    with np.errstate(over="ignore", divide="ignore"):
        lower[is_far] = 0.5 * special.betainc(0.5 * nu[is_far], 0.5, 1 / (1 + z[is_far] ** 2))
        lower[~is_far] = 0.5 - 0.5 * special.betainc(0.5, 0.5 * nu[~is_far], 1 / (1 + z[~is_far] ** -2))
    return torch.from_numpy(np.where(t.numpy() < 0, lower, 1 - lower))


def gamma_cdf(x: Tensor, shape: Tensor) -> Tensor:
    """Return ``P(X <= x)`` of a gamma distribution with a given shape and rate 1, elementwise; 0 for x below zero."""
    from scipy import special

    return torch.from_numpy(np.asarray(special.gammainc(shape.numpy(), x.clamp(min=0.0).numpy())))


def beta_cdf(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return ``P(X <= x)`` of a beta distribution with parameters a and b, elementwise; 0 below zero, 1 above one."""
    from scipy import special

    return torch.from_numpy(np.asarray(special.betainc(a.numpy(), b.numpy(), x.clamp(0.0, 1.0).numpy())))


def poisson_cdf(x: Tensor, rate: Tensor) -> Tensor:
    """Return ``P(X <= x)`` of a Poisson distribution with mean ``rate`` of 0 or more, elementwise; 0 below zero."""
    from scipy import special

    at_least = special.gammaincc(x.clamp(min=0.0).numpy() + 1, rate.numpy())
    return torch.from_numpy(np.where(x.numpy() < 0, 0.0, at_least))


def bessel_ratios(kappa: Tensor, n: int) -> Tensor:
    """Return the ratios ``I_j(κ) / I_0(κ)`` of modified Bessel functions for orders j = 1 to n, ``(n, ...)``.

    Args:
        kappa: the arguments κ, ``(...)``.
        n: largest order.
    """
    from scipy import special

    order = np.arange(1.0, n + 1).reshape(-1, *[1] * kappa.ndim)
    return torch.from_numpy(np.asarray(special.ive(order, kappa.numpy()) / special.ive(0, kappa.numpy())))
