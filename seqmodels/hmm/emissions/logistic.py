"""Multinomial logistic and Poisson regression on expected counts, by Newton's method (reweighted least squares).

The objective ``Σ_n Σ_j counts_nj log p_nj - ½ ridge Σ_u Σ_j (w_ju - mean_j w_ju)²`` with
``p_n = softmax_j(b_j + w_j · u_n)`` is concave. Under distributed training each process has a share of the frames, and
sums over frames are summed over all processes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum
from seqmodels.hmm.emissions.newton import newton_maximum, solved

NUMBERS_AT_ONCE = 1 << 22  # terms of the Hessian that are held at once
# The most that a coefficient changes in one step, because outcomes that the inputs separate have no finite optimum.
MOST_LOGITS = 10.0


def multinomial_logistic(
    counts: Tensor, design: Tensor, coefficients: Tensor, *, ridge: float = 0.0, at_zero: Tensor | None = None
) -> Tensor:
    """Return the coefficients ``(J, F)`` of a multinomial logistic regression on expected counts, by Newton's method.

    They maximise the penalised log-likelihood, or are at least better than those given. The first row, of the reference
    outcome, is not changed.

    Args:
        counts: expected count of each of J outcomes in each frame, ``(N, J)`` float64, none negative.
        design: ones in the first column, then inputs, ``(N, F)`` float64.
        coefficients: coefficients to start from, ``(J, F)``; a vector added to all rows changes nothing.
        ridge: penalty of the slopes; intercepts have none.
        at_zero: additional counts of the outcomes where all inputs are zero, ``(J,)``, the same in every process; None
            means no additional counts.
    """
    if len(coefficients) < 2:
        return coefficients
    n_outcomes, width = coefficients.shape
    penalty = _penalty(n_outcomes, width, ridge).to(coefficients)

    def terms(at: Tensor) -> tuple[float, Tensor, Tensor]:
        sums, _ = all_reduce_sum(list(_terms(counts, design, at)))
        if at_zero is not None:
            of_prior = _terms(at_zero[None], torch.eye(1, design.shape[1]).to(design), at)
            sums = [a + b for a, b in zip(sums, of_prior, strict=True)]
        value, gradient, curvature = sums
        free = (at - at[:1])[1:].reshape(-1)
        return float(value - 0.5 * free @ penalty @ free), gradient - penalty @ free, curvature + penalty

    def change(step: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(coefficients[:1]), step.view(-1, width)])

    return newton_maximum(terms, coefficients, _newton_step, change)


def poisson_regression(
    counts: Tensor, exposure: Tensor, design: Tensor, coefficients: Tensor, *, ridge: float = 0.0
) -> Tensor:
    """Return the coefficients ``(F,)`` of a Poisson regression on expected counts, by Newton's method.

    They maximise the penalised log-likelihood, or are at least better than those given. The objective ``Σ_n (counts_n
    η_n - exposure_n exp η_n) - ½ ridge Σ_u w_u²`` with ``η_n = b + w · u_n`` is concave.

    Args:
        counts: expected counts, ``(N,)`` float64, none negative.
        exposure: expected time in which they occur, ``(N,)``, none negative.
        design: ones in the first column, then inputs, ``(N, F)`` float64.
        coefficients: coefficients to start from, ``(F,)``.
        ridge: penalty of the slopes; the intercept has none.
    """
    penalty = torch.full_like(coefficients, ridge)
    penalty[0] = 0.0

    def terms(at: Tensor) -> tuple[float, Tensor, Tensor]:
        natural = design @ at
        expected = exposure * natural.exp()
        value, gradient = (counts * natural - expected).sum(), design.T @ (counts - expected)
        (value, gradient, curvature), _ = all_reduce_sum([value, gradient, (design.T * expected) @ design])
        penalised = float(value - 0.5 * (penalty * at.square()).sum())
        return penalised, gradient - penalty * at, curvature + torch.diag(penalty)

    return newton_maximum(terms, coefficients, _newton_step, lambda step: step)


def _terms(counts: Tensor, design: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-likelihood, a scalar, its gradient ``((J - 1) F,)`` and its negative Hessian, for Newton's method.

    The arguments are those of ``multinomial_logistic``; the first outcome's coefficients are fixed, so they are left
    out.
    """
    n_free, width = len(coefficients) - 1, coefficients.shape[1]
    value = design.new_zeros(())
    gradient, curvature = design.new_zeros(n_free, width), design.new_zeros(n_free, width, n_free, width)
    size = max(1, NUMBERS_AT_ONCE // (n_free * width) ** 2)
    for count, z in zip(counts.split(size), design.split(size), strict=True):
        log_p = torch.log_softmax(z @ coefficients.T, 1)
        value = value + (count * log_p).sum()
        total, p = count.sum(1, keepdim=True), log_p.exp()[:, 1:]
        gradient += (count[:, 1:] - total * p).T @ z
        spread = torch.diag_embed(total * p) - total.unsqueeze(-1) * p.unsqueeze(2) * p.unsqueeze(1)  # (n, J-1, J-1)
        curvature += torch.einsum("njl,na,nb->jalb", spread, z, z)
    return value, gradient.reshape(-1), curvature.reshape(n_free * width, n_free * width)


def _penalty(n_outcomes: int, width: int, ridge: float) -> Tensor:
    """Return the ridge penalty's matrix for the coefficients of outcomes 2 to J, ``((J - 1) F, (J - 1) F)``.

    ``n_outcomes`` is J, ``width`` the number F of columns of the design. Which outcome is the first makes no
    difference.
    """
    between = torch.eye(n_outcomes - 1, dtype=torch.float64) - 1 / n_outcomes
    slopes = torch.ones(width, dtype=torch.float64)
    slopes[0] = 0.0
    return torch.kron(between, torch.diag(ridge * slopes))


def _newton_step(curvature: Tensor, gradient: Tensor) -> Tensor:
    step = solved(curvature, gradient.unsqueeze(1))[:, 0]
    return step * (MOST_LOGITS / step.abs().max()).clamp(max=1.0) if bool(step.any()) else step
