"""EM for linear-Gaussian systems (Shumway and Stoffer 1982; Ghahramani and Hinton 1996).

The E-step is the smoother. The M-step regresses states on the states before them and observations on states, in closed
form; only under a stationary start it takes numerical steps (``learning.stationary``). The log-probability never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqmodels.linear_gaussian.learning.stationary import increased
from seqmodels.linear_gaussian.learning.statistics import Statistics, SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.training import Interruption, Row

UNDETERMINED = 1e-13  # of the largest eigenvalue: directions of regressors below leave their coefficients open


def m_step(parameters: SystemParameters, form: Form, statistics: Statistics) -> SystemParameters:
    """Return the parameters that maximise the expected log-probability of states and observations together.

    Parameters about which the data say nothing keep their values.

    Args:
        parameters: present parameters.
        form: which parameters are free.
        statistics: sums of expectations from the E-step.
    """
    moved = _with_dynamics(_with_observation(parameters, form, statistics), form, statistics)
    return _with_start(moved, form, statistics, parameters)


def _with_observation(parameters: SystemParameters, form: Form, statistics: Statistics) -> SystemParameters:
    (D, K), s = parameters.observation.shape, statistics
    G = s.seen_state.shape[1]
    is_free = np.ones((D, G), dtype=bool)
    is_free[:, K] = form.intercept
    if not s.n_seen.any():
        return parameters
    slopes, covariance = np.zeros((D, G)), np.zeros((D, D))
    is_one = bool((s.state_state == s.state_state[0]).all() and (s.n_seen == s.n_seen[0]).all())
    if form.observation_noise == "full" or is_one:  # the same states for all features
        slopes = regression(s.seen_state, s.state_state[0], is_free)
        covariance = _residual(s.seen_seen, s.seen_state, s.state_state[0], slopes) / s.n_seen[0]
    else:
        for d in range(D):
            if not s.n_seen[d] > 0:  # never observed
                slopes[d, :K], covariance[d, d] = parameters.observation[d], parameters.observation_covariance[d, d]
                continue
            row = slice(d, d + 1)
            slopes[row] = regression(s.seen_state[row], s.state_state[d], is_free[row])
            residual = _residual(s.seen_seen[row, row], s.seen_state[row], s.state_state[d], slopes[row])
            covariance[d, d] = residual[0, 0] / s.n_seen[d]
    return replace(
        parameters,
        observation=np.ascontiguousarray(slopes[:, :K]),
        intercept=parameters.intercept + slopes[:, K],
        observation_slopes=parameters.observation_slopes + slopes[:, K + 1 :],
        observation_covariance=form.floored(covariance),
    )


def _with_dynamics(parameters: SystemParameters, form: Form, statistics: Statistics) -> SystemParameters:
    K, s = len(parameters.transition), statistics
    if not s.n_moves > 0:
        return parameters
    is_free = np.ones(s.now_before.shape, dtype=bool)
    if form.transition == "diag":
        is_free[:, :K] = np.eye(K, dtype=bool)
    slopes = regression(s.now_before, s.before_before, is_free)
    covariance = _residual(s.now_now, s.now_before, s.before_before, slopes) / s.n_moves
    if form.state_noise == "identity":
        covariance = np.eye(K)
    elif form.state_noise == "diag":
        covariance = np.diag(np.maximum(np.diagonal(covariance), 0.0))
    transition, state_slopes = np.ascontiguousarray(slopes[:, :K]), slopes[:, K:].copy()
    return replace(parameters, transition=transition, state_covariance=covariance, state_slopes=state_slopes)


def _with_start(
    parameters: SystemParameters, form: Form, statistics: Statistics, before: SystemParameters
) -> SystemParameters:
    """Return the parameters with a new distribution of the first state, as the M-step of the kind of start in ``form``.

    Args:
        parameters: parameters whose other matrices are updated already.
        form: which parameters are free.
        statistics: sums of expectations from the E-step under ``before``.
        before: parameters before the M-step.
    """
    if form.start == "stationary":
        return increased(parameters, form, statistics, before)
    if form.start == "diffuse" or not statistics.n_first > 0:
        return parameters
    mean, covariance = statistics.first_states.moments()
    return replace(parameters, initial_mean=mean, initial_covariance=covariance)


def regression(now_before: np.ndarray, before_before: np.ndarray, is_free: np.ndarray) -> np.ndarray:
    """Return least-squares coefficients of I targets on H regressors, ``(I, H)``, from their cross products.

    Coefficients that are not free are 0. Where the regressors leave coefficients undetermined, the solution of least
    norm is returned. Rows with the same free coefficients are solved together.

    Args:
        now_before: sums of target times regressor, ``(I, H)``.
        before_before: sums of regressor times regressor, ``(H, H)``.
        is_free: True for each coefficient to estimate, ``(I, H)``.
    """
    slopes = np.zeros_like(now_before)
    patterns = is_free[:1] if (is_free == is_free[0]).all() else np.unique(is_free, axis=0)
    for pattern in patterns:
        if pattern.all() and len(patterns) == 1:
            return _least_squares(now_before, before_before)
        rows = (is_free == pattern).all(1)
        if not pattern.any():
            continue
        target, inner = now_before[np.ix_(rows, pattern)], before_before[np.ix_(pattern, pattern)]
        slopes[np.ix_(rows, pattern)] = _least_squares(target, inner)
    return slopes


def _least_squares(target: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return ``target @ inner⁻¹``, with the pseudoinverse if ``inner`` is singular.

    ``target`` is ``(I, H)``, and ``inner``, which is symmetric, ``(H, H)``.
    """
    scale = np.sqrt(np.diagonal(inner))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(inner / np.outer(scale, scale))
    is_determined = np.abs(values) > UNDETERMINED * np.abs(values).max(initial=0.0)
    inverse = np.where(is_determined, 1 / np.where(is_determined, values, 1.0), 0.0)
    return np.asarray(((target / scale @ vectors) * inverse) @ vectors.T / scale)


def _residual(now_now: np.ndarray, now_before: np.ndarray, before_before: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return the expected sums of products of residuals of a regression of x on h, ``(I, I)``.

    They are ``Σ E[(x - slopes h) (x - slopes h)ᵀ]``. The expected sums of x xᵀ, x hᵀ and h hᵀ are ``now_now``,
    ``now_before`` and ``before_before``.
    """
    cross = slopes @ now_before.T
    residual = now_now - cross - cross.T + slopes @ before_before @ slopes.T
    return np.asarray(0.5 * (residual + residual.T))


# -- as a problem of EM -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SystemObjective:
    """The objective of a fit, the log-probability in nats per raw unit, and its rows of the training history.

    Attributes:
        form: which parameters are free.
        n_units: weighted number of raw units in the data.
        log_det: weighted log-determinant of the encoding of the data, in nats.
    """

    form: Form
    n_units: float
    log_det: float

    def row(self, step: int, seconds: float, log_prob: float, parameters: SystemParameters) -> Row:
        """Return a row of the training history.

        Args:
            step: number of the step.
            seconds: time since the start of the fit.
            log_prob: log-probability of the encoded data under ``parameters``, in nats.
            parameters: parameters of this step.
        """
        per_unit = (log_prob + self.log_det) / self.n_units
        hits = self.form.floor_hits(parameters.observation_covariance)
        return {"step": step, "seconds": seconds, "log_prob": per_unit, "objective": per_unit, "floor_hits": hits}


@dataclass(frozen=True)
class SystemEM:
    """The E-step, M-step and history rows of EM for a linear-Gaussian system, as ``training.run_em`` calls them.

    Attributes:
        objective: what the rows report, and which parameters are free.
        data: encoded sequences of this process.
    """

    objective: SystemObjective
    data: SystemData

    def e_step(self, parameters: Sequence[SystemParameters], interruption: Interruption) -> list[Statistics]:
        """Return the sums of expectations under each of the given parameters, over the data of all processes."""
        return [e_step(each, self.objective.form, self.data).summed_over_processes() for each in parameters]

    def row(self, step: int, seconds: float, parameters: SystemParameters, expectations: Statistics) -> Row:
        return self.objective.row(step, seconds, float(expectations.log_prob), parameters)

    def m_step(self, parameters: SystemParameters, expectations: Statistics) -> SystemParameters:
        return m_step(parameters, self.objective.form, expectations)

    def ended(
        self, parameters: SystemParameters, expectations: Statistics, n_rows: int
    ) -> tuple[SystemParameters, None]:
        return parameters, None


@dataclass(frozen=True)
class SystemStore:
    """The conversion of parameters to arrays and back for checkpoints, together with the fitted numbers of a structure.

    Attributes:
        process: function that makes the process in continuous time from the numbers of a structure; None without one.
    """

    process: Callable[[np.ndarray], Any] | None = None

    def arrays(self, parameters: SystemParameters, kept: np.ndarray | None) -> dict[str, Any]:
        return {"parameters": parameters.arrays(), "numbers": kept}

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[SystemParameters, np.ndarray | None]:
        stored = arrays.get("numbers")
        numbers = None if stored is None else np.array(stored)
        process = None if numbers is None or self.process is None else self.process(numbers)
        return SystemParameters.named(copied(arrays["parameters"]), process), numbers


def copied(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return copies of arrays by name, in newly allocated memory.

    Results of products may depend on how memory is aligned, and that of arrays from a file may differ.
    """
    return {name: np.array(array) for name, array in arrays.items()}
