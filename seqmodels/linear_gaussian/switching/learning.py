"""Variational EM of a switching linear-Gaussian system: its E-step, its M-step, and both as a problem of EM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from seqmodels.linear_gaussian.learning.em import copied, regression
from seqmodels.linear_gaussian.switching.parameters import SwitchingForm, SwitchingParameters
from seqmodels.linear_gaussian.switching.variational import (
    RegimeBatch,
    RegimeTables,
    StateChain,
    SwitchingStatistics,
    regimes_given_states,
    statistics_of,
    variational_step,
)
from seqmodels.training import Interruption, Row

FEWEST_STEPS = 2.0  # expected, times the regressors, of a regime whose regression is learned


def m_step(p: SwitchingParameters, form: SwitchingForm, s: SwitchingStatistics) -> SwitchingParameters:
    """Return the parameters that maximise the expected log-probability under the sums of an E-step.

    A regime with hardly any expected steps keeps its parameters.

    Args:
        p: present parameters.
        form: which parameters are free.
        s: sums of expectations from the E-step.
    """
    return _with_start(_with_dynamics(_with_observation(p, form, s), form, s), form, s)


def _with_observation(p: SwitchingParameters, form: SwitchingForm, s: SwitchingStatistics) -> SwitchingParameters:
    _, K, D = p.sizes
    seen, seen_x, squares = s.seen, s.seen_x, s.squares
    if not form.observation_switches:
        seen, seen_x, squares = (each.sum(0, keepdims=True) for each in (seen, seen_x, squares))
    C, d, R = p.observation.copy(), p.intercept.copy(), p.observation_covariance.copy()
    for r in range(len(seen)):
        here = slice(r, r + 1) if form.observation_switches else slice(None)
        is_free = np.ones((1, K + 1), dtype=bool)
        counts = np.broadcast_to(seen[r, :, K, K], D)
        if counts.min() < FEWEST_STEPS * (K + 1) and len(seen) > 1:
            continue
        if seen.shape[1] == 1:
            slopes = regression(seen_x[r], seen[r, 0], np.repeat(is_free, D, 0))
            cross = slopes @ seen_x[r].T
            residual = squares[r] - cross - cross.T + slopes @ seen[r, 0] @ slopes.T
            residual = residual / max(counts[0], 1e-300)
        else:
            slopes, residual = np.empty((D, K + 1)), np.zeros((D, D))
            for f in range(D):
                slopes[f] = regression(seen_x[r, f : f + 1], seen[r, f], is_free)[0]
                cross = slopes[f] @ seen_x[r, f]
                left = squares[r, f, f] - 2 * cross + slopes[f] @ seen[r, f] @ slopes[f]
                residual[f, f] = left / max(counts[f], 1e-300)
        C[here], d[here], R[here] = slopes[:, :K], slopes[:, K], form.of_one.floored(residual)
    return replace(p, observation=C, intercept=d, observation_covariance=R)


def _with_dynamics(p: SwitchingParameters, form: SwitchingForm, s: SwitchingStatistics) -> SwitchingParameters:
    S, K, _ = p.sizes
    moves = s.moves if form.dynamics_switch else s.moves.sum(0, keepdims=True)
    A, b, Q = p.transition.copy(), p.drift.copy(), p.state_covariance.copy()
    is_free = np.ones((K, K + 1), dtype=bool)
    is_free[:, K] = form.dynamics_switch and S > 1
    for r in range(len(moves)):
        here, n = slice(r, r + 1) if form.dynamics_switch else slice(None), moves[r, 2 * K, 2 * K]
        if not n > 0 or (len(moves) > 1 and n < FEWEST_STEPS * (K + 1)):
            continue
        now, cross, before = moves[r, :K, :K], moves[r, :K, K:], moves[r, K:, K:]
        slopes = regression(cross, before, is_free)
        both = slopes @ cross.T
        residual = (now - both - both.T + slopes @ before @ slopes.T) / n
        A[here], b[here], Q[here] = slopes[:, :K], slopes[:, K], floored(residual, form.min_covariance)
    return replace(p, transition=A, drift=b, state_covariance=Q)


def _with_start(p: SwitchingParameters, form: SwitchingForm, s: SwitchingStatistics) -> SwitchingParameters:
    mean = s.first / s.n_first
    covariance = s.first_square / s.n_first - np.outer(mean, mean)
    rows = s.regime_transition.sum(1, keepdims=True)
    transition = np.where(rows > 0, s.regime_transition / np.where(rows > 0, rows, 1.0), p.regime_transition)
    return replace(
        p,
        initial=s.initial / s.initial.sum(),
        regime_transition=transition,
        initial_mean=mean,
        initial_covariance=floored(covariance, form.min_covariance),
    )


def floored(covariance: np.ndarray, floor: float) -> np.ndarray:
    """Return a covariance ``(K, K)`` with its eigenvalues raised to ``floor`` where they are below it."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    if values[0] >= floor:
        return np.asarray(0.5 * (covariance + covariance.T))
    raised = (vectors * np.maximum(values, floor)) @ vectors.T
    return np.asarray(0.5 * (raised + raised.T))


def e_step(
    p: SwitchingParameters, batches: Sequence[RegimeBatch], regimes: Sequence[np.ndarray]
) -> tuple[SwitchingStatistics, list[np.ndarray]]:
    """Run one step of mean field on each batch (a variational E-step).

    Args:
        p: parameters of the switching system.
        batches: packed sequences.
        regimes: for each batch the probability of each regime at each packed row to begin with, ``(N, S)``.

    Returns:
        The sums of expectations over all batches, and the new probabilities of regimes, with which the next E-step
            begins.
    """
    tables, parts, gammas = RegimeTables.of(p), [], []
    by_feature = not all(batch.is_complete for batch in batches)
    for batch, gamma in zip(batches, regimes, strict=True):
        step = variational_step(tables, batch, gamma)
        parts.append(statistics_of(batch, step, by_feature=by_feature))
        gammas.append(step.regimes.gamma)
    return reduce(add, parts), gammas


def given_states(
    p: SwitchingParameters,
    form: SwitchingForm,
    batches: Sequence[RegimeBatch],
    states: Sequence[StateChain],
    n_steps: int,
) -> tuple[SwitchingParameters, list[np.ndarray]]:
    """Fit regimes and matrices by EM to hidden states whose distribution is fixed.

    This is an autoregressive HMM of the states.

    Args:
        p: parameters to begin with.
        form: which parameters are free.
        batches: packed sequences.
        states: for each batch the distribution of its hidden states.
        n_steps: number of EM steps.

    Returns:
        The parameters, and for each batch the probability of each regime at each packed row, ``(N, S)``.
    """
    by_feature = not all(batch.is_complete for batch in batches)
    gammas: list[np.ndarray] = []
    for _ in range(n_steps):
        tables, parts, gammas = RegimeTables.of(p), [], []
        for batch, chain in zip(batches, states, strict=True):
            step = regimes_given_states(tables, batch, chain)
            parts.append(statistics_of(batch, step, by_feature=by_feature))
            gammas.append(step.regimes.gamma)
        p = m_step(p, form, reduce(add, parts))
    return p, gammas


@dataclass(frozen=True)
class SwitchingObjective:
    """The objective of a fit, the lower bound in nats per raw unit, and its rows of the training history.

    Attributes:
        form: which parameters are free.
        n_units: weighted number of raw units in the data.
        log_det: weighted log-determinant of the encoding of the data, in nats.
    """

    form: SwitchingForm
    n_units: float
    log_det: float

    def row(self, step: int, seconds: float, bound: float, p: SwitchingParameters) -> Row:
        """Return a row of the training history.

        Args:
            step: number of the step.
            seconds: time since the start of the fit.
            bound: lower bound of the log-probability of the encoded data under ``p``, in nats.
            p: parameters of this step.
        """
        per_unit = (bound + self.log_det) / self.n_units
        covariances = p.observation_covariance if self.form.observation_switches else p.observation_covariance[:1]
        hits = sum(self.form.of_one.floor_hits(each) for each in covariances)
        return {"step": step, "seconds": seconds, "log_prob": per_unit, "objective": per_unit, "floor_hits": hits}


@dataclass(frozen=True)
class SwitchingStart:
    """The parameters and the probabilities of regimes with which a variational E-step begins.

    Attributes:
        parameters: parameters of the switching system.
        regimes: for each batch the probability of each regime at each packed row, ``(N, S)``.
    """

    parameters: SwitchingParameters
    regimes: list[np.ndarray]


@dataclass(frozen=True)
class VariationalEM:
    """The E-step, M-step and history rows of variational EM, as ``training.run_em`` calls them.

    Attributes:
        objective: what the rows report, and which parameters are free.
        batches: packed sequences.
    """

    objective: SwitchingObjective
    batches: Sequence[RegimeBatch]

    def e_step(
        self, parameters: Sequence[SwitchingStart], interruption: Interruption
    ) -> list[tuple[SwitchingStatistics, list[np.ndarray]]]:
        """Return for each start the sums of expectations, and the probabilities of regimes for the next E-step."""
        return [e_step(each.parameters, self.batches, each.regimes) for each in parameters]

    def row(
        self,
        step: int,
        seconds: float,
        parameters: SwitchingStart,
        expectations: tuple[SwitchingStatistics, list[np.ndarray]],
    ) -> Row:
        return self.objective.row(step, seconds, float(expectations[0].bound), parameters.parameters)

    def m_step(
        self, parameters: SwitchingStart, expectations: tuple[SwitchingStatistics, list[np.ndarray]]
    ) -> SwitchingStart:
        statistics, regimes = expectations
        return SwitchingStart(m_step(parameters.parameters, self.objective.form, statistics), regimes)

    def ended(
        self,
        parameters: SwitchingStart,
        expectations: tuple[SwitchingStatistics, list[np.ndarray]],
        n_rows: int,
    ) -> tuple[SwitchingStart, None]:
        return SwitchingStart(parameters.parameters, []), None


class SwitchingStore:
    """The conversion of a ``SwitchingStart`` to arrays and back, for checkpoints."""

    def arrays(self, parameters: SwitchingStart, kept: None) -> dict[str, Any]:
        regimes = {str(i): gamma for i, gamma in enumerate(parameters.regimes)}
        return {"parameters": parameters.parameters.arrays(), "regimes": regimes}

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[SwitchingStart, None]:
        stored = arrays.get("regimes", {})  # a start that has ended had none in earlier checkpoints
        regimes = [np.array(stored[str(i)]) for i in range(len(stored))]
        return SwitchingStart(SwitchingParameters(**copied(arrays["parameters"])), regimes), None
