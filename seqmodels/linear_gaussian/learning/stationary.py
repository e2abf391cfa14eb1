"""The M-step of a stationary start, under which the first state's covariance solves ``P = A P Aᵀ + Q``.

The expected log-probability then has no closed maximum in A and Q. L-BFGS increases it from the better of two points:
the old parameters, and the closed-form maximum without the first states. EM remains monotone (generalised EM: Dempster,
Laird and Rubin 1977).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.linear_gaussian.learning.statistics import Statistics
from seqmodels.linear_gaussian.parameters import Form, SystemParameters, stationary_covariance

STEPS = 20  # of L-BFGS in an M-step
IMPOSSIBLE = 1e30  # the loss where no distribution is stationary
LARGEST_RADIUS = 1 - 1e-7  # of a transition's eigenvalues
DOUBLINGS = 28


def with_stationary_start(parameters: SystemParameters) -> SystemParameters:
    """Return the parameters with the first state distributed by the stationary distribution of the dynamics."""
    covariance = stationary_covariance(parameters.transition, parameters.state_covariance)
    return replace(parameters, initial_mean=np.zeros(len(covariance)), initial_covariance=covariance)


def increased(
    parameters: SystemParameters, form: Form, statistics: Statistics, before: SystemParameters
) -> SystemParameters:
    """Return the parameters with new dynamics and the stationary start that belongs to them (an M-step).

    Under the new dynamics the expected log-probability is no lower than under the parameters ``before``.

    Args:
        parameters: parameters that are updated already, but for the start; the candidate to begin with.
        form: which parameters are free.
        statistics: sums of expectations from the E-step under ``before``.
        before: parameters before the M-step.
    """
    from scipy.optimize import minimize  # lazily: scipy is slow to import

    loss = _Loss(form, statistics, len(before.transition))
    candidates = [loss.numbers_of(before), loss.numbers_of(parameters)]
    start = min(candidates, key=lambda numbers: loss(numbers)[0])
    result = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    best = min([candidates[0], start, result.x], key=lambda numbers: loss(numbers)[0])
    transition, factor = (each.numpy() for each in loss.matrices(torch.from_numpy(best)))
    dynamics = replace(parameters, transition=transition, state_covariance=factor @ factor.T)
    return with_stationary_start(dynamics)


class _Loss:
    """Minus the expected log-probability of the states, per sequence, as a function of numbers for A and Q.

    A is the transition matrix, and Q the covariance of the states' noise.
    """

    def __init__(self, form: Form, statistics: Statistics, n_states: int) -> None:
        self.form, self.n_states = form, n_states
        self.is_free = np.eye(n_states, dtype=bool) if form.transition == "diag" else np.ones((n_states,) * 2, bool)
        sums = (statistics.now_now, statistics.now_before, statistics.before_before, statistics.first_square)
        self.sums = [torch.from_numpy(np.asarray(each)) for each in sums]
        self.n_moves, self.n_first = float(statistics.n_moves), float(statistics.n_first)

    def numbers_of(self, parameters: SystemParameters) -> np.ndarray:
        """Return as one array the free elements of A and the numbers that make up the Cholesky factor of Q.

        A is the transition matrix, and Q the covariance of the states' noise. Of the factor come first the logarithms
        of the diagonal, then the entries below it.
        """
        numbers = [parameters.transition[self.is_free]]
        if self.form.state_noise == "diag":
            numbers.append(0.5 * np.log(np.maximum(np.diagonal(parameters.state_covariance), 1e-300)))
        elif self.form.state_noise == "full":
            scale = np.abs(parameters.state_covariance).max()
            ridge = 1e-14 * scale * np.eye(self.n_states)  # of a singular Q there is no density of states
            factor = np.linalg.cholesky(parameters.state_covariance + ridge)
            numbers += [np.log(np.diagonal(factor)), factor[np.tril_indices(self.n_states, -1)]]
        return np.concatenate(numbers)

    def matrices(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transition matrix A and the lower triangular factor of the noise covariance Q, both ``(K, K)``.

        ``numbers`` is an array of the form that ``numbers_of`` returns.
        """
        K, n = self.n_states, int(self.is_free.sum())
        transition = torch.zeros(K, K, dtype=torch.float64)
        transition[torch.from_numpy(self.is_free)] = numbers[:n]
        if self.form.state_noise == "identity":
            return transition, torch.eye(K, dtype=torch.float64)
        factor = torch.diag(numbers[n : n + K].exp())
        if self.form.state_noise == "full":
            rows, columns = torch.tril_indices(K, K, -1)
            factor = factor.index_put((rows, columns), numbers[n + K :])
        return transition, factor

    def __call__(self, numbers: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss and its gradient, ``(n,)``, at ``numbers (n,)``.

        Where no distribution is stationary, they are a large constant and zeros.
        """
        variable = torch.from_numpy(np.array(numbers)).requires_grad_()
        transition, factor = self.matrices(variable)
        impossible = IMPOSSIBLE, np.zeros_like(numbers)
        if not np.abs(np.linalg.eigvals(transition.detach().numpy())).max() < LARGEST_RADIUS:
            return impossible
        total, power = factor @ factor.mT, transition
        for _ in range(DOUBLINGS):
            total = total + power @ total @ power.mT
            power = power @ power
            if power.abs().max() < 1e-12:
                break
        start, info = torch.linalg.cholesky_ex(total)
        if int(info) or not bool(torch.isfinite(factor).all()):
            return impossible
        now_now, now_before, before_before, first_square = self.sums
        cross = transition @ now_before.mT
        residual = now_now - cross - cross.mT + transition @ before_before @ transition.mT
        loss = 0.5 * (_deviance(factor, residual, self.n_moves) + _deviance(start, first_square, self.n_first))
        loss = loss / max(self.n_first, 1e-300)
        loss.backward()
        gradient = variable.grad
        if gradient is None or not bool(torch.isfinite(gradient).all()) or not bool(torch.isfinite(loss)):
            return impossible
        return float(loss.detach()), gradient.numpy()


def _deviance(factor: Tensor, squares: Tensor, n: float) -> Tensor:
    """Return ``n log |S| + tr(S⁻¹ squares)`` for ``S = L Lᵀ``, where ``factor (K, K)`` is the lower triangular L."""
    half = torch.linalg.solve_triangular(factor, squares, upper=False)
    whitened = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    deviance: Tensor = 2 * n * factor.diagonal().log().sum() + whitened.diagonal().sum()
    return deviance
