"""Newton's method for the concave objectives of regressions, with steps that are halved until they gain something."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MOST_STEPS = 50  # few are needed, and the next EM step continues from their result
HALVINGS = 30  # most halvings of a step that does not raise the objective
NEGLIGIBLE_GAIN = 1e-12  # gain, relative to the objective, below which no other step is made
FLATTEST = 1e-12  # directions with less curvature, relative to the largest, are left out: data do not determine them


def newton_maximum(
    terms: Callable[[Tensor], tuple[float, Tensor, Tensor]],
    start: Tensor,
    direction: Callable[[Tensor, Tensor], Tensor],
    change: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return coefficients that maximise an objective by Newton's method, or a point that is no worse than ``start``.

    Args:
        terms: function of the coefficients that returns the objective, its gradient ``(P,)`` in P free coefficients,
            and its negative Hessian ``(P, P)``.
        start: coefficients to start from, of any shape.
        direction: function of negative Hessian and gradient that returns the step ``(P,)``.
        change: function of the step that returns what is added to the coefficients, in their shape.
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
    """Return ``matrix⁻¹ right`` for a symmetric positive semi-definite matrix ``(P, P)`` and ``right (P, n)``.

    The result is zero along directions in which the matrix is numerically zero.
    """
    values, vectors = torch.linalg.eigh(matrix)
    known = values > FLATTEST * values[-1].clamp(min=torch.finfo(values.dtype).tiny)
    inverse = torch.where(known, 1 / torch.where(known, values, 1.0), 0.0)
    result: Tensor = vectors @ (inverse.unsqueeze(1) * (vectors.T @ right))
    return result


def uphill(curvature: Tensor, gradient: Tensor) -> Tensor:
    """Return the step ``(P,)`` of Newton's method for a maximum, reversed along directions in which the objective is
    convex.

    The objective then rises along the step, whatever the signs of its curvatures (Nocedal and Wright 2006, *Numerical
    Optimisation*, section 3.4).

    Args:
        curvature: negative Hessian, ``(P, P)``, of any signs.
        gradient: gradient, ``(P,)``.
    """
    values, vectors = torch.linalg.eigh(curvature)
    size = values.abs()
    known = size > FLATTEST * size.max().clamp(min=torch.finfo(values.dtype).tiny)
    inverse = torch.where(known, 1 / torch.where(known, size, 1.0), 0.0)
    result: Tensor = vectors @ (inverse * (vectors.T @ gradient))
    return result
