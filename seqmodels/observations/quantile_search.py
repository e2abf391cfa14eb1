"""Quantiles of distributions with a known cdf, the least x at which the cdf reaches a level, by a bracketed search.

If the density is known too, the search takes Newton steps as long as they converge. Any other step halves the number of
floats between both ends of the bracket. So a quantile of 1e-200 or 1e200 takes no longer than any other, and the jump
of a distribution of whole numbers is found to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MAX_ITERATIONS = 200
RELATIVE_STEP = 1e-14  # relative to x, because smaller Newton steps are rounding errors
RELATIVE_EXCESS = 1e-14  # relative to a level
LARGEST = float(np.finfo(np.float64).max)
SIGN_BIT = np.int64(-(2**63))

CdfAndDensity = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def quantiles_by_search(
    cdf_and_density: CdfAndDensity, levels: np.ndarray, shape: tuple[int, ...], low: float = -LARGEST
) -> np.ndarray:
    """Return quantiles of distributions, the least x at which each cdf reaches each level, ``(Q, *shape)``.

    Args:
        cdf_and_density: function that takes values x, ``(Q, *shape)``, and returns the cdf and the density at them in
            the same shape; the density is 0 where it is not known or the cdf jumps.
        levels: levels of the quantiles, above 0 and below 1, ``(Q,)``.
        shape: shape of the array of distributions.
        low: a lower bound of all quantiles.
    """
    level = np.asarray(levels, dtype=np.float64).reshape(-1, *[1] * len(shape))
    tolerance = RELATIVE_EXCESS * np.minimum(level, 1 - level)
    below = np.full((len(level), *shape), low)
    above = np.full_like(below, LARGEST)
    x, step = halfway(below, above), np.full_like(below, np.inf)
    with np.errstate(all="ignore"):
        for _ in range(MAX_ITERATIONS):
            cdf, density = cdf_and_density(x)
            excess = cdf - level
            below, above = np.where(excess < 0, x, below), np.where(excess >= 0, x, above)
            newton = x - excess / density
            converges = (newton > below) & (newton < above) & (2 * np.abs(excess) <= step * density)
            following = np.where(converges, newton, halfway(below, above))
            step = np.abs(following - x)
            is_exact = (density > 0) & (
                (np.abs(excess) <= tolerance) | (converges & (step <= RELATIVE_STEP * np.abs(x)))
            )
            is_done = is_exact | (halfway(below, above) == below)
            if is_done.all():
                break
            x = np.where(is_done, x, following)
    return np.where((density > 0) & (cdf > 0), np.where(is_exact, x, above), above)


def halfway(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a float between a and b with equally many floats below and above it, elementwise; a if none is between.

    Args:
        a, b: lower and upper numbers, a below b.
    """
    i, j = _ranks(a), _ranks(b)
    middle = (i >> 1) + (j >> 1) + (i & j & 1)
    return np.asarray(np.where(middle >= 0, middle, SIGN_BIT - middle).view(np.float64))


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return an integer for each float, such that the integers have the order of the floats and 0.0 has 0."""
    bits = np.asarray(x, dtype=np.float64).view(np.int64)
    return np.where(bits >= 0, bits, SIGN_BIT - bits)
