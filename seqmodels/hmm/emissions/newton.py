"""Newton's method for the concave objectives of regressions, with steps that are halved until they gain something."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MOST_STEPS = 50  # few are needed, and EM goes on from where they end
HALVINGS = 30
NEGLIGIBLE_GAIN = 1e-12  # of the objective, that another step would gain
FLATTEST = 1e-12  # curvature, as a share of the largest: in directions that are flatter nothing is known


def newton_maximum(
    terms: Callable[[Tensor], tuple[float, Tensor, Tensor]],
    start: Tensor,
    direction: Callable[[Tensor, Tensor], Tensor],
    change: Callable[[Tensor], Tensor],
) -> Tensor:
    """Where steps from ``start`` end: at the maximum, or at a value that is no lower than that of the start.

    Args:
        terms: of coefficients, the objective, its gradient ``(P,)`` and its negative Hessian ``(P, P)``.
        start: coefficients of any shape.
        direction: of the Hessian and the gradient, the step ``(P,)``.
        change: of a step, what is added to the coefficients.
    """
    at = start
    value, gradient, curvature = terms(at)
    for _ in range(MOST_STEPS):
        step = direction(curvature, gradient)
        if not float(gradient @ step) > NEGLIGIBLE_GAIN * max(1.0, abs(value)):
            break
        added = change(step)
        for _ in range(HALVINGS):
            better = terms(at + added)
            if better[0] > value:
                break
            added = 0.5 * added
        else:
            break
        at = at + added
        value, gradient, curvature = better
    return at


def solved(matrix: Tensor, right: Tensor) -> Tensor:
    """``matrix⁻¹ right`` of a symmetric matrix ``(P, P)`` without negative eigenvalues and ``(P, n)``; zero along
    directions of which nothing is known.
    """
    values, vectors = torch.linalg.eigh(matrix)
    known = values > FLATTEST * values[-1].clamp(min=torch.finfo(values.dtype).tiny)
    inverse = torch.where(known, 1 / torch.where(known, values, 1.0), 0.0)
    result: Tensor = vectors @ (inverse.unsqueeze(1) * (vectors.T @ right))
    return result
