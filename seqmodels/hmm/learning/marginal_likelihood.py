"""Variances of penalised coefficients by maximum marginal likelihood, in Laplace's approximation.

Given log-likelihood plus log-prior ``l(u)`` and blocks of coefficients ``b ~ N(0, 1 / λ_b)``, the marginal likelihood with
the *inner* numbers I of u integrated out is ::

    V(φ, λ) = l(u) - ½ Σ_b λ_b |b|² + ½ Σ_b n_b log λ_b - ½ log|H_II|     at the I that maximise the first two terms

up to a constant; H is minus the Hessian of these, and φ are the other numbers of u, which are maximised with the λ (Wood
2011; Kristensen et al. 2016). If I are the penalised coefficients alone this is maximum likelihood, with all coefficients
of the regressions it is restricted maximum likelihood (REML).

Updates of Fellner and Schall (Wood and Fasiolo 2017) give the start, and BFGS the maximum. The gradient of V is exact:
``log|H_II|`` changes with u by ``tr(H_II⁻¹ ∂H)``, a sum of second differences of the gradient of ``l`` along a factor of
``H_II⁻¹``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.newton import newton_maximum, uphill

FIRST_SHARE = 0.1  # first precision of a block, relative to the information of its coefficients
MOST_UPDATES = 50  # updates of Fellner and Schall
SETTLED = 0.05  # largest change of a log-precision at which they end
LARGEST, SMALLEST = 1e7, 1e-7  # of a precision relative to the information: no effects, and effects without a penalty
LONGEST_STEP = 5.0  # most that a number changes in one step
ALONG = 1e-3  # of the second differences, in standard errors
GRADIENT = 1e-4  # of V by scaled numbers, at which its maximum is reached
MOST_STEPS = 100  # of BFGS


class Objective(Protocol):
    """A log-likelihood plus log-prior as a function of P unconstrained numbers ``u (P,)``."""

    def value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        """Return the value in nats, and the gradient ``(P,)``."""

    def derivatives(self, u: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the value in nats, the gradient ``(P,)``, and minus the Hessian ``(P, P)``."""


class Maximum(NamedTuple):
    """The maximum of the marginal likelihood.

    Attributes:
        u: the P numbers at it, ``(P,)``.
        log_precision: logarithms of the precisions λ of the B blocks, ``(B,)``.
        value: the marginal log-likelihood V in nats, with its constant.
        information: minus the Hessian of the penalised log-likelihood, ``(P, P)``.
        edf: effective degrees of freedom of each block, ``(B,)``: from 0 to the number of its coefficients.
        converged: True if the gradient of V is negligible there.
    """

    u: Tensor
    log_precision: Tensor
    value: float
    information: Tensor
    edf: Tensor
    converged: bool


@dataclass(frozen=True)
class MarginalLikelihood:
    """The marginal likelihood ``V(φ, log λ)`` of an objective with penalised blocks of coefficients.

    Attributes:
        objective: log-likelihood plus log-prior of P numbers u.
        blocks: for each block the places of its coefficients among the P numbers.
        inner: places of the numbers that are integrated out, with those of all blocks among them, ``(I,)``.
        base: what the coefficients are at ``u = 0``, ``(P,)``.
    """

    objective: Objective
    blocks: Sequence[Tensor]
    inner: Tensor
    base: Tensor

    @property
    def outer(self) -> Tensor:
        """Places of the numbers φ that are not integrated out."""
        is_outer = torch.ones(len(self.base), dtype=torch.bool)
        is_outer[self.inner] = False
        return is_outer.nonzero()[:, 0]

    def precision(self, log_precision: Tensor) -> Tensor:
        """Return the precision of each of the P numbers, ``(P,)``, given those of blocks; 0 without a penalty."""
        each = torch.zeros_like(self.base)
        for block, value in zip(self.blocks, log_precision.exp(), strict=True):
            each[block] = value
        return each

    def maximum_over(self, which: Tensor, u: Tensor, log_precision: Tensor) -> tuple[Tensor, tuple[float, Tensor, Tensor]]:
        """Return the u that maximise the penalised log-likelihood over the numbers ``which``, and its derivatives there.

        Args:
            which: places of the numbers that may change.
            u: numbers to start from, ``(P,)``.
            log_precision: logarithms of the precisions of blocks, ``(B,)``.
        """
        precision, last = self.precision(log_precision), {}

        def terms(at: Tensor) -> tuple[float, Tensor, Tensor]:
            whole = u.clone()
            whole[which] = at
            value, gradient, information = last[tuple(at.tolist())] = self._penalised(whole, precision)
            return value, gradient[which], information[which[:, None], which]

        best = newton_maximum(terms, u[which], uphill, _bounded)
        at = u.clone()
        at[which] = best
        return at, last[tuple(best.tolist())]

    def _penalised(self, u: Tensor, precision: Tensor) -> tuple[float, Tensor, Tensor]:
        value, gradient, information = self.objective.derivatives(u)
        coefficients = self.base + u
        penalised = value - 0.5 * float((precision * coefficients.square()).sum())
        if not np.isfinite(penalised):
            return -np.inf, torch.zeros_like(u), torch.eye(len(u), dtype=u.dtype)
        return penalised, gradient - precision * coefficients, information + torch.diag(precision)

    def maximise(self, u: Tensor) -> Maximum:
        """Return the maximum of V, found from the numbers ``u (P,)``."""
        from scipy.optimize import minimize

        u, log_precision, unit = self._started(u)
        outer, start = self.outer, torch.cat([u[self.outer], log_precision])
        state = {"u": u}

        def loss(at: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient, state["u"] = self.value_and_gradient(start + unit @ torch.as_tensor(at), state["u"])
            return -value, -(unit.T @ gradient).numpy()

        found = minimize(
            loss, np.zeros(len(start)), jac=True, method="BFGS", options={"gtol": GRADIENT, "maxiter": MOST_STEPS}
        )
        at = start + unit @ torch.as_tensor(found.x)
        u = state["u"].clone()
        u[outer], log_precision = at[: len(outer)], at[len(outer) :]
        u, (value, _, information) = self.maximum_over(self.inner, u, log_precision)
        inverse = torch.linalg.inv(information[self.inner[:, None], self.inner])
        whole = torch.zeros_like(information)
        whole[self.inner[:, None], self.inner] = inverse
        edf = torch.stack([
            len(block) - lam * whole[block, block].sum() for block, lam in zip(self.blocks, log_precision.exp(), strict=True)
        ])  # fmt: skip
        return Maximum(u, log_precision, -float(found.fun), information, edf, float(np.abs(found.jac).max()) < 10 * GRADIENT)

    def value_and_gradient(self, at: Tensor, u: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return V in nats, its gradient, and the numbers u at which the penalised log-likelihood is largest, ``(P,)``.

        Args:
            at: the numbers φ, then the log-precisions of the B blocks.
            u: numbers to start from, ``(P,)``.
        """
        inner, outer, u = self.inner, self.outer, u.clone()
        u[outer], log_precision = at[: len(outer)], at[len(outer) :]
        u, (value, gradient, information) = self.maximum_over(inner, u, log_precision)
        factor, info = torch.linalg.cholesky_ex(information[inner[:, None], inner])
        if not np.isfinite(value) or int(info):
            return -np.inf, torch.zeros_like(at), u
        sizes = torch.tensor([len(block) for block in self.blocks], dtype=u.dtype)
        n_penalised = float(sizes.sum())
        log_det = 2 * factor.diagonal().log().sum()
        value += float(0.5 * sizes @ log_precision - 0.5 * log_det)
        value += 0.5 * (len(inner) - n_penalised) * float(np.log(2 * np.pi))
        root = torch.linalg.solve_triangular(factor.T, torch.eye(len(inner), dtype=u.dtype), upper=True)  # R R' = H⁻¹
        by_u = self._log_det_gradient(u, root)
        back = torch.cholesky_solve(by_u[inner, None], factor)[:, 0]  # H⁻¹ of it, for changes of I with φ and λ
        by_outer = gradient[outer] - 0.5 * (by_u[outer] - information[outer[:, None], inner] @ back)
        variances = torch.zeros_like(u)
        variances[inner] = root.square().sum(1)
        moved = torch.zeros_like(u)
        moved[inner] = back
        coefficients, by_precision = self.base + u, []
        for block, lam in zip(self.blocks, log_precision.exp(), strict=True):
            b = coefficients[block]
            by_precision.append(
                0.5 * (len(block) - lam * (b @ b + variances[block].sum() - moved[block] @ b))
            )  # fmt: skip
        return value, torch.cat([by_outer, torch.stack(by_precision)]), u

    def _log_det_gradient(self, u: Tensor, root: Tensor) -> Tensor:
        """Return the derivatives of ``log|H_II|`` by all P numbers, ``(P,)``.

        Args:
            u: the numbers, ``(P,)``.
            root: a matrix R with ``R R' = H_II⁻¹``, ``(I, I)``.
        """
        centre, total = self.objective.value_and_gradient(u)[1], torch.zeros_like(u)
        for column in root.T:
            step = torch.zeros_like(u)
            step[self.inner] = ALONG * column
            both = self.objective.value_and_gradient(u + step)[1] + self.objective.value_and_gradient(u - step)[1]
            total -= both - 2 * centre
        return total / ALONG**2

    def _started(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return numbers and log-precisions near the maximum, and units of φ and log-precisions for BFGS.

        The updates of Fellner and Schall treat all numbers as if they were integrated out.

        Returns:
            The numbers ``(P,)``, the log-precisions ``(B,)``, and a matrix whose columns are the units.
        """
        every = torch.arange(len(u))
        _, _, information = self.objective.derivatives(u)
        scale = torch.stack([information.diagonal()[block].abs().mean() for block in self.blocks])
        scale = torch.where(scale > 0, scale, 1.0).log()
        log_precision = scale + float(np.log(FIRST_SHARE))
        low, high = scale + float(np.log(SMALLEST)), scale + float(np.log(LARGEST))
        for _ in range(MOST_UPDATES):
            u, (_, _, information) = self.maximum_over(every, u, log_precision)
            values, vectors = torch.linalg.eigh(information)
            inverse = (vectors / values.abs().clamp(min=1e-12 * float(values.abs().max()))) @ vectors.T
            new = []
            for block, lam in zip(self.blocks, log_precision.exp(), strict=True):
                edf = (len(block) - lam * inverse[block, block].sum()).clamp(min=1e-10)
                new.append((edf / (self.base + u)[block].square().sum().clamp(min=1e-300)).log())
            updated = torch.minimum(torch.maximum(torch.stack(new), low), high)
            change = (updated - log_precision).clamp(-LONGEST_STEP, LONGEST_STEP)
            log_precision = log_precision + change
            if float(change.abs().max()) < SETTLED:
                break
        outer, b = self.outer, len(self.blocks)
        unit = torch.zeros(len(outer) + b, len(outer) + b, dtype=u.dtype)
        values, vectors = torch.linalg.eigh(inverse[outer[:, None], outer])
        unit[: len(outer), : len(outer)] = vectors * values.clamp(min=0.0).sqrt()
        unit[len(outer) :, len(outer) :] = torch.eye(b, dtype=u.dtype)
        return u, log_precision, unit


def _bounded(step: Tensor) -> Tensor:
    return step * (LONGEST_STEP / step.abs().max()).clamp(max=1.0) if len(step) else step
