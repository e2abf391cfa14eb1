"""Variances of penalised coefficients by maximum marginal likelihood, in Laplace's approximation.

Given log-likelihood plus log-prior ``l(u)`` and blocks of coefficients ``b ~ N(0, 1 / λ_b)``, the marginal likelihood
with the *inner* numbers I of u integrated out is ::

    V(φ, λ) = l(u) - ½ Σ_b λ_b |b|² + ½ Σ_b n_b log λ_b - ½ log|H_II| + ½ (|I| - Σ_b n_b) log 2π

at the I that maximise the first two terms; H is minus their Hessian, and φ are the other numbers of u, which are
maximised with the λ (Kristensen et al. 2016; Wood 2011). If I are the penalised coefficients alone this is maximum
likelihood, with all coefficients of the regressions it is restricted maximum likelihood (REML).

Where ``l`` is quadratic, V is that of a linear mixed model, which costs no pass over the data. So V is maximised by a
sequence of such models, with ``l`` expanded at the last maximum (penalised quasi-likelihood, Breslow and Clayton
1993), each within a box that shrinks where V does not rise as its model does (Nocedal and Wright 2006, *Numerical
Optimisation*, chapter 4). Their V lacks the change of ``log|H_II|`` with u, so a quadratic function of φ and spreads is
added that makes its gradient that of V here and at the point before: where the sequence ends, V has its maximum.

Where data are few, V may have no maximum. Log-odds of events that never happen go to infinity, where the information of
integrated numbers vanishes, so that V does not end to rise: they have a weak normal prior. Standard deviations have an
upper bound. And where the mode of coefficients is about to split into two, ``|H_II|`` vanishes and V is infinite, but
the integral is not: there the posterior of a block is wider than its prior, and such points do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.newton import uphill

FIRST_SHARE = 1.0  # first precision of a block, relative to the information of its coefficients
LARGEST = 1e7  # of a precision relative to the information: no effects
LEAST_INFORMATION = 1.0  # counted for a coefficient, that of one observation of which one unit is the width
FLAT = 10.0  # precision relative to the information from which on V is nearly linear in the variance
NEGLIGIBLE = 0.1  # nats that V changes with a variance; less is flat
WEAK = 1e-4  # precision of the prior of unpenalised numbers: a deviation of 100 log-odds or widths of a density
LONGEST = 4.0  # first half width of the box of a step: standard errors of φ up to 1, and log-precisions
LEAST_RADIUS = 1e-4  # of the box, relative to its first, at which no step raises V
SHORTEST, LEAST_COSINE = 1e-2, 0.1  # of a step from which the curvature of the correction is learned
LONGEST_STEP = 5.0  # most that a number changes in one step
NEAR = 0.3  # length of a step from which on the gradient of V is computed, because before it decides nothing
GAIN = 1e-5  # nats that another step can still gain where the sequence ends: half a hundredth of a standard error
MOST_MODELS = 60  # of the sequence
MOST_UNCORRECTED = 20  # of the sequence without a correction, where no maximum of V was found
MOST_SEARCH = 200  # steps of the search for the maximum of a model
MOST_HESSIANS = 30  # of the search for the inner numbers
HALVINGS = 8  # of a step that does not raise V
DECREMENT = 1e-12  # twice what Newton's method can still gain, in nats, where the inner numbers have converged
LEAST_EDF = -0.1  # of a block: with less its posterior is wider than its prior, and Laplace's approximation has poles
BRACKET, LOG_ACCURACY = 1.5, 1e-3  # of the logarithm of a standard deviation, in the search for a value of V
AT_BOUND = 0.1  # of a log-precision
ROUNDING = 1e-9  # the same, where steps no longer make it smaller
CONTRACTION = 0.3  # of the decrement by a step with the last Hessian, at least; else a new one is computed


class TwiceDifferentiable(Protocol):
    """A log-likelihood plus log-prior as a function of P unconstrained numbers ``u (P,)``."""

    def value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        """Return the value in nats, and the gradient ``(P,)``."""

    def derivatives(self, u: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the value in nats, the gradient ``(P,)``, and minus the Hessian ``(P, P)``."""

    def information_gradient(self, u: Tensor, covariance: Tensor) -> Tensor:
        """Return the gradient of ``tr(covariance @ information)`` by u, ``(P,)``, where information is minus the
        Hessian.
        """


class Maximum(NamedTuple):
    """The maximum of the marginal likelihood.

    Attributes:
        u: the P numbers at it, ``(P,)``.
        log_precision: logarithms of the precisions λ of the B blocks, ``(B,)``.
        value: the marginal log-likelihood V in nats.
        information: minus the Hessian of the penalised log-likelihood, ``(P, P)``.
        edf: effective degrees of freedom of each block, ``(B,)``: from 0 to the number of its coefficients.
        converged: True if a further step gains less than ``GAIN`` nats.
        is_largest: True for blocks whose standard deviation is at its upper bound, ``(B,)``.
        is_flat: True for blocks whose standard deviation the data do not determine: V is within ``NEGLIGIBLE`` nats of
            its maximum where it is zero and where it is at its bound, ``(B,)``.
        is_quasi: True if no maximum of V was found, and this is the end of the sequence of models without a correction.
    """

    u: Tensor
    log_precision: Tensor
    value: float
    information: Tensor
    edf: Tensor
    converged: bool
    is_largest: Tensor
    is_flat: Tensor
    is_quasi: bool = False


class Correction(NamedTuple):
    """A quadratic function of φ and log λ that is added to the model of V, whose gradient it makes that of V.

    Attributes:
        gradient: its gradient at the point of expansion, ``(F + B,)``.
        curvature: its Hessian, ``(F + B, F + B)``, with which the gradient is that of V at the point before too.
    """

    gradient: Tensor
    curvature: Tensor


class ModelMaximum(NamedTuple):
    """The maximum of a model of V in a box.

    Attributes:
        phi: the numbers φ there.
        log_precision: log-precisions there, ``(B,)``.
        gain: nats by which the model is larger there than where the search began.
        radius: distance from there, relative to ``LONGEST``.
        is_inside: True if the box does not bound it.
    """

    phi: Tensor
    log_precision: Tensor
    gain: float
    radius: float
    is_inside: bool


@dataclass(frozen=True)
class Expansion:
    """The objective ``l`` to second order at a point.

    Attributes:
        u: the point, ``(P,)``.
        value: ``l`` there.
        gradient: its gradient, ``(P,)``.
        information: minus its Hessian, ``(P, P)``.
    """

    u: Tensor
    value: float
    gradient: Tensor
    information: Tensor


@dataclass(frozen=True)
class MarginalLikelihood:
    """The marginal likelihood ``V(φ, log λ)`` of an objective with penalised blocks of coefficients.

    Attributes:
        objective: log-likelihood plus log-prior of P numbers u.
        blocks: for each block the places of its coefficients among the P numbers.
        inner: places of the numbers that are integrated out, with those of all blocks among them, ``(I,)``.
        base: what the coefficients are at ``u = 0``, ``(P,)``.
        weak: precision of a normal prior of mean zero of the coefficients, ``(P,)``; 0 for none. A weak one keeps
            log-odds finite that would go to infinity, where the information of the inner numbers would vanish and V
            would have no maximum.
        largest: upper bound of the standard deviation of each block, ``(B,)``.
    """

    objective: TwiceDifferentiable
    blocks: Sequence[Tensor]
    inner: Tensor
    base: Tensor
    weak: Tensor
    largest: Tensor

    @property
    def outer(self) -> Tensor:
        """Places of the numbers φ that are not integrated out."""
        is_outer = torch.ones(len(self.base), dtype=torch.bool)
        is_outer[self.inner] = False
        return is_outer.nonzero()[:, 0]

    def maximise(self, u: Tensor, start: Tensor | None = None, held: tuple[int, float] | None = None) -> Maximum:
        """Return the maximum of V.

        Args:
            u: numbers to start from, ``(P,)``.
            start: log-precisions to start from, ``(B,)``; None for those of ``FIRST_SHARE``.
            held: number of a block and the log-precision that it keeps; None to maximise over all.
        """
        at = self._expanded(u)
        diagonal = at.information.diagonal()
        scale = torch.stack([diagonal[block].abs().mean() for block in self.blocks]).clamp(min=LEAST_INFORMATION)
        low = -2 * self.largest.log()
        high = torch.maximum((scale * LARGEST).log(), low)
        if held is not None:
            low[held[0]] = high[held[0]] = held[1]
        spread = VarianceScale(low, high, (scale * FLAT).log().clamp(low, high))
        log_precision = (scale * FIRST_SHARE).log() if start is None else start
        phi, log_precision = u[self.outer], log_precision.clamp(low, high)
        at = self._maximum_over(self.inner, u, log_precision, at)
        while not np.isfinite(last := self._value(at, log_precision)) and bool((log_precision < high).any()):
            log_precision = (log_precision + LONGEST).minimum(high)
            at = self._maximum_over(self.inner, u, log_precision, at)
        radius, converged = 1.0, False
        uncorrected: tuple[Expansion, Tensor] | None = None  # where models without a correction nearly end
        correction: Correction | None = None
        of_last: Tensor | None = None  # the gradient of V at the last point
        for _ in range(MOST_MODELS if np.isfinite(last) else 0):
            model = self._maximum_of_model(at, phi, log_precision, spread, correction, radius)
            step = torch.cat([model.phi - phi, model.log_precision - log_precision])
            is_near = self._length(at, step, log_precision) < NEAR
            outer = torch.cat([model.phi, model.log_precision])
            tried = self._at(outer, self._solved(at, model.phi, model.log_precision)[0], at)
            value = self._value(tried, model.log_precision)
            before, gain = torch.cat([phi, log_precision]), value - last
            has_gained = gain > -1e-9 * abs(last)
            if has_gained:
                phi, log_precision, at, last = model.phi, model.log_precision, tried, value
            if correction is None and is_near and has_gained:
                uncorrected = at, log_precision
            if correction is not None:
                if model.gain < GAIN and (has_gained or model.is_inside):
                    converged = model.is_inside
                    break
                if gain < 0.25 * model.gain:
                    radius = 0.25 * model.radius
                elif gain > 0.75 * model.gain:
                    radius = max(radius, 2 * model.radius)
                if radius < LEAST_RADIUS:
                    break
            if (has_gained and correction is not None) or (correction is None and (is_near or not has_gained)):
                gradient, now, n = self._gradient(at, log_precision), torch.cat([phi, log_precision]), len(phi)
                lacking = spread.gradient(gradient - self._model(at, phi, log_precision)[1], now)
                if correction is None:
                    curvature = torch.zeros(len(outer), len(outer), dtype=torch.float64)
                else:
                    assert of_last is not None
                    there = spread.gradient(of_last - self._model(at, before[:n], before[n:])[1], before) - lacking
                    back = spread.of(before) - spread.of(now)
                    curvature = symmetric_rank_one(correction.curvature, back, there)
                correction, of_last = Correction(lacking, curvature), gradient
        quasi = None if uncorrected is None or converged else self._by_quasi_likelihood(*uncorrected, spread)
        if quasi is not None:
            at, log_precision, last = quasi
            phi = at.u[self.outer]
        information, edf = at.information + torch.diag(self.precision(log_precision)), self._edf(at, log_precision)
        is_flat = self._is_flat(at, phi, log_precision, (low, high))
        is_largest = log_precision < low + AT_BOUND
        of_blocks = is_largest & ~is_flat, is_flat
        return Maximum(at.u, log_precision, last, information, edf, converged, *of_blocks, quasi is not None)

    def _by_quasi_likelihood(
        self, at: Expansion, log_precision: Tensor, spread: VarianceScale
    ) -> tuple[Expansion, Tensor, float] | None:
        """Return where the sequence of models without a correction ends, and V there; None if it does not end.

        Args:
            at: the expansion to start from.
            log_precision: the log-precisions to start from, ``(B,)``.
            spread: scale of the log-precisions, with their bounds.
        """
        for _ in range(MOST_UNCORRECTED):
            model = self._maximum_of_model(at, at.u[self.outer], log_precision, spread, None, 1.0)
            outer, log_precision = torch.cat([model.phi, model.log_precision]), model.log_precision
            at = self._at(outer, self._solved(at, model.phi, log_precision)[0], at)
            value = self._value(at, log_precision)
            if not np.isfinite(value):
                return None
            if model.gain < GAIN:
                return at, log_precision, value
        return None

    def _is_flat(self, at: Expansion, phi: Tensor, log_precision: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Return a mask of the blocks on whose precision V of the expansion does not depend, ``(B,)``.

        Args:
            at: the expansion.
            phi: the numbers φ.
            log_precision: log-precisions of the blocks, ``(B,)``.
            bounds: their smallest and largest values.
        """
        value = self._model(at, phi, log_precision)[0]
        is_flat = torch.ones_like(log_precision, dtype=torch.bool)
        for i in range(len(log_precision)):
            for bound in bounds:
                moved = log_precision.clone()
                moved[i] = bound[i]
                is_flat[i] &= abs(self._model(at, phi, moved)[0] - value) < NEGLIGIBLE
        return is_flat

    def value_and_gradient(self, outer: Tensor, u: Tensor) -> tuple[float, Tensor]:
        """Return V in nats, and its gradient.

        Args:
            outer: the numbers φ, then the log-precisions of the B blocks.
            u: numbers to start from, ``(P,)``, of which the φ are not read.
        """
        log_precision = outer[len(self.outer) :]
        at = self._at(outer, u)
        return self._value(at, log_precision), self._gradient(at, log_precision)

    def precision(self, log_precision: Tensor) -> Tensor:
        """Return the precision of each of the P numbers, ``(P,)``, given those of blocks; 0 without a penalty."""
        each = torch.zeros_like(self.base)
        for block, value in zip(self.blocks, log_precision.exp(), strict=True):
            each[block] = value
        return each

    def largest_likely(self, log_precision: Tensor, i: int, fall: float) -> float:
        """Return the largest standard deviation of block i at which V, maximised over all else, has not fallen too far.

        It is infinite if V is as large at the bound of the deviation.

        Args:
            log_precision: log-precisions of the blocks at the maximum of V, where the numbers are zero, ``(B,)``.
            i: the block.
            fall: nats by which V may fall from its maximum.
        """
        from scipy.optimize import brentq

        u, values = torch.zeros_like(self.base), {}

        def left(log_sd: float) -> float:
            if log_sd not in values:
                values[log_sd] = self.maximise(u, log_precision, (i, -2 * log_sd)).value
            return values[log_sd] - values[zero] + fall

        zero, bound = -0.5 * float(log_precision[i]), float(self.largest[i].log())
        left(zero)
        diagonal = self._expanded(u).information.diagonal()
        information = float(diagonal[self.blocks[i]].mean().clamp(min=LEAST_INFORMATION))
        low = high = min(max(zero, -0.5 * np.log(information)), bound)  # about where V begins to fall
        while left(high) > 0:
            if high == bound:
                return np.inf
            low, high = high, min(high + BRACKET, bound)
        while left(low) <= 0:
            low, high = max(low - BRACKET, zero), low
        return float(np.exp(brentq(left, low, high, xtol=LOG_ACCURACY)))

    # -- the penalised likelihood ----------------------------------------------------------------------------

    def _at(self, outer: Tensor, u: Tensor, near: Expansion | None = None) -> Expansion:
        """Return the objective expanded at the inner numbers that maximise the penalised likelihood, given φ and λ.

        Args:
            outer: the numbers φ, then the log-precisions of the B blocks.
            u: numbers to start from, ``(P,)``.
            near: an expansion near by, or None.
        """
        u = u.clone()
        u[self.outer] = outer[: len(self.outer)]
        return self._maximum_over(self.inner, u, outer[len(self.outer) :], self._expanded(u) if near is None else near)

    def _value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        """Return ``l`` with the weak prior at ``u (P,)``, and its gradient, ``(P,)``."""
        value, gradient = self.objective.value_and_gradient(u)
        pull = self.weak * (self.base + u)
        return value - 0.5 * float(pull @ (self.base + u)), gradient - pull

    def _expanded(self, u: Tensor) -> Expansion:
        """Return ``l`` with the weak prior to second order at ``u (P,)``."""
        value, gradient, information = self.objective.derivatives(u)
        pull = self.weak * (self.base + u)
        value, information = value - 0.5 * float(pull @ (self.base + u)), information + torch.diag(self.weak)
        return Expansion(u, value, gradient - pull, information)

    def _maximum_over(self, which: Tensor, u: Tensor, log_precision: Tensor, at: Expansion) -> Expansion:
        """Return the objective expanded where the penalised likelihood is largest over the numbers ``which``.

        It is Newton's method, with steps that gain something. A Hessian serves as long as its steps converge fast,
        because a gradient costs little beside it.

        Args:
            which: places of the numbers that may change.
            u: numbers to start from, ``(P,)``.
            log_precision: logarithms of the precisions of blocks, ``(B,)``.
            at: an expansion near by.
        """
        precision = self.precision(log_precision)

        def penalised(u: Tensor) -> tuple[float, Tensor]:
            value, gradient = self._value_and_gradient(u)
            coefficients = self.base + u
            value -= 0.5 * float((precision * coefficients.square()).sum())
            return value if np.isfinite(value) else -np.inf, (gradient - precision * coefficients)[which]

        value, gradient = penalised(u)
        for _ in range(MOST_HESSIANS):
            before, is_new = np.inf, torch.equal(at.u, u)
            matrix = (at.information + torch.diag(precision))[which[:, None], which]
            factor, failed = torch.linalg.cholesky_ex(matrix)
            while True:
                step = (
                    uphill(matrix, gradient) if int(failed) else torch.cholesky_solve(gradient[:, None], factor)[:, 0]
                )
                decrement = float(gradient @ step)
                is_slow = not decrement < CONTRACTION * before
                if decrement < DECREMENT or (is_slow and decrement < ROUNDING):
                    return at if torch.equal(at.u, u) else self._expanded(u)
                if is_slow or (int(failed) and not is_new):
                    break
                step, before = _bounded(step), decrement
                for _ in range(HALVINGS if is_new else 1):
                    moved = u.index_add(0, which, step)
                    new_value, new_gradient = penalised(moved)
                    has_gained = new_value > value - 1e-12 * abs(value)
                    if has_gained:
                        u, value, gradient, is_new = moved, new_value, new_gradient, False
                        break
                    step = 0.5 * step
                if not has_gained:
                    break
            if torch.equal(at.u, u):
                break
            at = self._expanded(u)
        return at

    # -- V, exact and of the model ---------------------------------------------------------------------------

    def _covariance(self, at: Expansion, log_precision: Tensor) -> Tensor:
        """Return the inverse of ``H_II`` among zeros, ``(P, P)``."""
        covariance, inner = torch.zeros_like(at.information), self.inner
        covariance[inner[:, None], inner] = torch.cholesky_inverse(self._cholesky(at, log_precision))
        return covariance

    def _cholesky(self, at: Expansion, log_precision: Tensor) -> Tensor:
        """Return the factor L of ``H_II = L L'``; where that is not positive definite, of the matrix of its absolute
        eigenvalues.
        """
        inner = self.inner
        matrix = (at.information + torch.diag(self.precision(log_precision)))[inner[:, None], inner]
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            values, vectors = torch.linalg.eigh(matrix)
            size = values.abs().clamp(min=1e-10 * float(values.abs().max()))
            factor = torch.linalg.cholesky((vectors * size) @ vectors.T)
        assert isinstance(factor, Tensor)
        return factor

    def _log_marginal(self, value: float, coefficients: Tensor, factor: Tensor, log_precision: Tensor) -> float:
        sizes = torch.tensor([len(block) for block in self.blocks], dtype=torch.float64)
        penalty = (self.precision(log_precision) * coefficients.square()).sum()
        total = sizes @ log_precision - penalty - 2 * factor.diagonal().log().sum()
        return value + 0.5 * float(total + (len(self.inner) - sizes.sum()) * np.log(2 * np.pi))

    def _value(self, at: Expansion, log_precision: Tensor) -> float:
        inner, matrix = self.inner, at.information + torch.diag(self.precision(log_precision))
        factor, failed = torch.linalg.cholesky_ex(matrix[inner[:, None], inner])
        if int(failed) or not np.isfinite(at.value):  # the inner numbers are at no maximum
            return -np.inf
        if float(self._edf(at, log_precision).min()) < LEAST_EDF:
            return -np.inf
        return self._log_marginal(at.value, self.base + at.u, factor, log_precision)

    def _gradient(self, at: Expansion, log_precision: Tensor) -> Tensor:
        """Return the gradient of V by φ and log λ at inner numbers that maximise the penalised likelihood."""
        outer, covariance = self.outer, self._covariance(at, log_precision)
        by_u = self.objective.information_gradient(at.u, covariance)
        back = covariance @ by_u  # because the inner numbers change by H⁻¹ times the change of the gradient
        by_outer = at.gradient[outer] - 0.5 * (by_u[outer] - at.information[outer] @ back)
        coefficients = self.base + at.u
        by_precision = [
            0.5 * (len(b) - lam * ((coefficients[b] - back[b]) @ coefficients[b] + covariance.diagonal()[b].sum()))
            for b, lam in zip(self.blocks, log_precision.exp(), strict=True)
        ]
        return torch.cat([by_outer, torch.stack(by_precision)])

    def _solved(self, at: Expansion, phi: Tensor, log_precision: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers at which the expansion less the penalty is largest, given φ, ``(P,)``, and the factor."""
        inner, outer, factor = self.inner, self.outer, self._cholesky(at, log_precision)
        precision = self.precision(log_precision)
        moved = torch.zeros_like(at.u)
        moved[outer] = phi - at.u[outer]
        right = at.gradient - at.information @ moved - precision * (self.base + at.u)
        moved[inner] = torch.cholesky_solve(right[inner, None], factor)[:, 0]
        return at.u + moved, factor

    def _model(self, at: Expansion, phi: Tensor, log_precision: Tensor) -> tuple[float, Tensor]:
        """Return V of the expansion as if it were ``l``, and its gradient by φ and log λ."""
        u, factor = self._solved(at, phi, log_precision)
        moved, coefficients = u - at.u, self.base + u
        value = at.value + float(at.gradient @ moved - 0.5 * moved @ at.information @ moved)
        variances = torch.zeros_like(u)
        variances[self.inner] = torch.cholesky_inverse(factor).diagonal()
        by_phi = (at.gradient - at.information @ moved)[self.outer]
        by_precision = [
            0.5 * (len(b) - lam * (coefficients[b] @ coefficients[b] + variances[b].sum()))
            for b, lam in zip(self.blocks, log_precision.exp(), strict=True)
        ]
        return self._log_marginal(value, coefficients, factor, log_precision), torch.cat(
            [by_phi, torch.stack(by_precision)]
        )

    def _units(self, at: Expansion) -> Tensor:
        """Return standard deviations of the φ, up to 1, along principal axes in the columns of a matrix, ``(F, F)``."""
        outer = self.outer
        values, vectors = torch.linalg.eigh(at.information[outer[:, None], outer])
        units: Tensor = vectors / values.abs().clamp(min=1.0).sqrt()
        return units

    def _length(self, at: Expansion, step: Tensor, log_precision: Tensor) -> float:
        """Return the length of a step of φ and log λ, the largest of its entries.

        Those of φ are in standard deviations. Those of log λ count less for blocks with less than one effective degree
        of freedom, because V is flat where a variance is zero.
        """
        n = len(self.outer)
        scaled = torch.linalg.solve(self._units(at), step[:n]) if n else step[:n]
        weights = self._edf(at, log_precision).clamp(0.0, 1.0).sqrt()
        return float(torch.cat([scaled, weights * step[n:]]).abs().max())

    def _edf(self, at: Expansion, log_precision: Tensor) -> Tensor:
        """Return the effective degrees of freedom of each block, ``(B,)``."""
        variances = self._covariance(at, log_precision).diagonal()
        each = zip(self.blocks, log_precision.exp(), strict=True)
        return torch.stack([len(block) - lam * variances[block].sum() for block, lam in each])

    def _maximum_of_model(
        self,
        at: Expansion,
        phi: Tensor,
        log_precision: Tensor,
        spread: VarianceScale,
        correction: Correction | None,
        radius: float,
    ) -> ModelMaximum:
        """Return the maximum of V of the expansion, corrected by a quadratic function, not far from φ and log λ.

        Args:
            at: the expansion.
            phi: the φ to start from.
            log_precision: the log-precisions to start from, ``(B,)``.
            spread: scale of the log-precisions, with their bounds.
            correction: the quadratic function, or None.
            radius: half width of the box around φ and the spreads in which V is maximised, relative to ``LONGEST``.
        """
        from scipy.optimize import minimize

        units, n = self._units(at), len(phi)
        centre = spread.of(torch.cat([phi, log_precision]))
        lowest, highest = spread.ends
        low, high = torch.maximum(lowest, centre[n:] - (width := radius * LONGEST)), highest.minimum(centre[n:] + width)
        start = torch.cat([torch.zeros_like(phi), centre[n:]])

        def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
            moved = torch.tensor(numbers)
            outer = torch.cat([phi + units @ moved[:n], spread.log_precision(moved[n:])])
            value, gradient = self._model(at, outer[:n], outer[n:])
            gradient = spread.gradient(gradient, outer)
            if correction is not None:
                step = torch.cat([units @ moved[:n], moved[n:] - centre[n:]])
                by_step = correction.gradient + correction.curvature @ step
                value += float(0.5 * step @ (correction.gradient + by_step))
                gradient = gradient + by_step
            return -value, -torch.cat([units.T @ gradient[:n], gradient[n:]]).numpy()

        result = minimize(
            loss,
            start.numpy(),
            jac=True,
            method="L-BFGS-B",
            bounds=[*[(-width, width)] * n, *zip(low.tolist(), high.tolist(), strict=True)],
            options={"ftol": 1e-13, "gtol": 1e-4, "maxiter": MOST_SEARCH},
        )
        moved = torch.tensor(result.x)
        gain, length = loss(start.numpy())[0] - float(result.fun), float((moved - start).abs().max())
        is_inside = not bool(((moved - start).abs() >= (1 - 1e-9) * width).any())
        return ModelMaximum(phi + units @ moved[:n], spread.log_precision(moved[n:]), gain, length / LONGEST, is_inside)


class VarianceScale(NamedTuple):
    """A scale of the spread of the coefficients of B blocks, on which V is smooth where a variance vanishes.

    It is a multiple of the variance where that is small, ``exp(flat - log λ)``, and ``1 + flat - log λ`` from 1 on.

    Attributes:
        low: smallest log-precision of each block, ``(B,)``.
        high: largest log-precision, ``(B,)``.
        flat: log-precision at which the scale changes, ``(B,)``.
    """

    low: Tensor
    high: Tensor
    flat: Tensor

    def of(self, outer: Tensor) -> Tensor:
        """Return ``outer (F + B,)``, numbers φ and then log-precisions, with spreads in place of the latter."""
        n = len(outer) - len(self.flat)
        above = self.flat - outer[n:]
        return torch.cat([outer[:n], torch.where(above > 0, 1 + above, above.clamp(max=0).exp())])

    def log_precision(self, spread: Tensor) -> Tensor:
        """Return the log-precisions of blocks, ``(B,)``, given their spreads."""
        each = torch.where(spread > 1, self.flat + 1 - spread, self.flat - spread.clamp(max=1.0).log())
        return each.clamp(self.low, self.high)

    def gradient(self, gradient: Tensor, outer: Tensor) -> Tensor:
        """Return a gradient by φ and spreads, given that by φ and log-precisions, ``(F + B,)``.

        ``outer (F + B,)`` are the φ and log-precisions at which it is.
        """
        n = len(outer) - len(self.flat)
        return torch.cat([gradient[:n], -gradient[n:] / self.of(outer)[n:].clamp(max=1.0)])

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest spread of each block."""
        return self.of(self.high), self.of(self.low)


def symmetric_rank_one(matrix: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """Return the symmetric matrix nearest to ``matrix (n, n)`` by rank one that takes a step to a change.

    It is the SR1 update (Nocedal and Wright 2006, *Numerical Optimisation*, section 6.2). Where its denominator is
    small, or the step so short that the change is rounding, the matrix stays.

    Args:
        matrix: a symmetric matrix.
        step: a step, ``(n,)``.
        change: the change of the gradient along it, ``(n,)``.
    """
    rest = change - matrix @ step
    denominator = float(rest @ step)
    if float(step.norm()) < SHORTEST or abs(denominator) < LEAST_COSINE * float(rest.norm() * step.norm()):
        return matrix
    return matrix + torch.outer(rest, rest) / denominator


def _bounded(step: Tensor) -> Tensor:
    return step * (LONGEST_STEP / step.abs().max()).clamp(max=1.0) if len(step) else step
