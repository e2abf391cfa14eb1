"""ARIMA models by products with banded matrices: the figures of the filter, much faster at long seasons.

With ``Δ(B) = (1 - B)^d (1 - B^s)^D`` the diffuse density of a series y is that of the stationary process ``Δ(B) y``,
whose Cholesky factor is banded but for its first rows (``inference.gaussian.banded``). Missing values are coefficients
of a regression, and so are the values before the first step, which the diffuse states are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seqmodels.common.constants import LOG_2PI
from seqmodels.inference.gaussian.banded import ARMAFactor, filtered_columns, log_probs_given_prior, missing_columns
from seqmodels.inference.gaussian.diffuse import UNDETERMINED
from seqmodels.inference.gaussian.kalman import factor_of
from seqmodels.inference.gaussian.lag_polynomials import difference, differences, product
from seqmodels.linear_gaussian.learning.statistics import FirstStates, SystemData, check_determined
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.linear_gaussian.structures import ARIMA, Structure

STEP = 1e-5  # of a number, in central differences
FEWEST_STATES = 8  # from which on products may be faster than the filter
# Seconds as measured on one core, whose proportions decide what is faster: of a product, of the first steps of an
# autoregression in it, and for each step and missing value of it; of a gradient by the filter, and for each step and
# state of it.
OF_PRODUCT, OF_AUTOREGRESSION, OF_MISSING, OF_FILTER, OF_STATE = 2.5e-4, 2e-4, 1e-7, 1.2e-3, 5e-7


@dataclass(frozen=True)
class BandedARIMA:
    """An ARIMA model without observation noise, whose likelihood is computed with banded matrices.

    This takes the place of the Kalman filter. An intercept and inputs may be added to the model.

    Attributes:
        component: the ARIMA component.
        form: which other parameters are free.
    """

    component: ARIMA
    form: Form

    @classmethod
    def of(cls, structure: Structure | None, form: Form) -> BandedARIMA | None:
        """Return the model if ``structure`` is a single ARIMA and ``form`` has no observation noise, else None."""
        components = () if structure is None else structure.components
        if len(components) != 1 or not isinstance(components[0], ARIMA) or form.observation_noise != "none":
            return None
        return cls(components[0], form)

    def is_faster(self, values: Sequence[np.ndarray], *, has_gradient: bool = False) -> bool:
        """Return True if banded matrices are faster than the Kalman filter for the given sequences.

        The time of the filter grows with the number of states. That of banded matrices grows with the number of missing
        values and, for a gradient, with the number of coefficients.

        Args:
            values: sequences, each ``(T, 1)``, NaN where a value is missing.
            has_gradient: True if the gradient of the likelihood is needed too.
        """
        n_states, n_steps = self.component.n_differenced + self.component.n_lags, max(map(len, values), default=0)
        n_missing = sum(int(np.isnan(each).sum()) for each in values)
        n_products = 2 * len(self.component.start()) - 1 if has_gradient else 1
        of_product = OF_PRODUCT + OF_AUTOREGRESSION * (self.component.p + self.component.seasonal_p > 0)
        by_products = n_products * (of_product + OF_MISSING * n_steps * n_missing)
        return n_states >= FEWEST_STATES and n_steps > 0 and by_products < OF_FILTER + OF_STATE * n_steps * n_states

    def inputs_of(self, data: SystemData, i: int) -> np.ndarray:
        """Return the V inputs that the values of sequence number ``i`` of ``data`` are regressed on, ``(T, V)``."""
        if data.inputs is None:
            return np.zeros((len(data.values[i]), 0))
        return np.asarray(data.inputs[i][:, self.form.observation_inputs])

    @cached_property
    def differences(self) -> np.ndarray:
        """The coefficients of the differencing polynomial ``(1 - B)^d (1 - B^s)^D``, from lag 0 on, ``(q + 1,)``.

        Here B is the lag operator and q the degree, d + s D.
        """
        c = self.component
        return differences(c.d, c.seasonal_d, c.season)

    def factor(self, numbers: np.ndarray, n_steps: int) -> ARMAFactor:
        """Return the Cholesky factor of the covariance of ``n_steps`` steps of the differenced series.

        It is for innovations of variance 1. ``numbers`` are the fitted numbers of the ARIMA.
        """
        return ARMAFactor.of(*self.component.polynomials(numbers), n_steps)

    def log_prob_steps(
        self, numbers: np.ndarray, parameters: SystemParameters, values: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return the log-probability of each step given those before, in nats, ``(T,)`` for each sequence.

        Args:
            numbers: fitted numbers of the ARIMA, ``(n,)``.
            parameters: the same model as a system, whose Gaussian distribution of the first state is used.
            values: sequences without missing values, each ``(T, 1)``, less their intercept and what inputs add.
        """
        q, deviation = len(self.differences) - 1, float(numbers[len(self.component.start()) - 1])
        lengths = [len(each) for each in values]
        factor = self.factor(numbers, max(lengths))
        padded = np.zeros((q + max(lengths), len(values)))  # with zeros for the values before the first
        for i, each in enumerate(values):
            padded[q : q + len(each), i] = each[:, 0]
        columns = np.concatenate([_differenced(padded, self.differences), self._of_first_states(max(lengths))], 1)
        white = factor.whitened(columns) / deviation
        mean, root = parameters.initial_mean[:q], factor_of(parameters.initial_covariance[:q, :q]).T
        squares, log_deviations = log_probs_given_prior(white[:, : len(values)], white[:, len(values) :], mean, root)
        log_deviations = log_deviations + np.log(factor.diagonal) + np.log(deviation)
        steps = -0.5 * (squares + LOG_2PI) - log_deviations[:, None]
        return [steps[:n, i].copy() for i, n in enumerate(lengths)]

    def _of_first_states(self, n_steps: int) -> np.ndarray:
        """Return regressors for the q unknown (diffuse) first states, ``(n_steps, q)``.

        These states stand for the values before the first step. A column is what a unit of one of these states
        subtracts from the differenced series, when values before the first step are taken as zero.
        """
        c, q = self.component, len(self.differences) - 1
        by_values = np.zeros((q, q))  # the states in the values before the first step, the last value first
        states = [(product(*[difference(1)] * i), 0) for i in range(c.d)]
        for j in range(c.seasonal_d):
            states += [(differences(c.d, j, c.season), k) for k in range(c.season)]
        for row, (polynomial, lag) in zip(by_values, states, strict=True):
            row[lag : lag + len(polynomial)] = polynomial
        columns = missing_columns(self.differences, q + n_steps, np.arange(q)[::-1])
        return np.asarray(np.linalg.solve(by_values.T, columns.T).T) if q else columns

    # -- fitting -------------------------------------------------------------------------------------------

    def first_states(self, numbers: np.ndarray, parameters: SystemParameters, data: SystemData) -> FirstStates:
        """Return weighted sums of the moments of first states given all values, where first states are unknown.

        Elements of stationary states stay 0.

        Args:
            numbers: fitted numbers of the ARIMA, ``(n,)``.
            parameters: the same model as a system.
            data: encoded sequences of one feature.

        Raises:
            ValueError: a sequence that does not determine its first states; the message has its number.
        """
        K, q = len(parameters.transition), len(self.differences) - 1
        deviation = float(numbers[len(self.component.start()) - 1])
        sums, squares = np.zeros(K), np.zeros((K, K))
        factor = self.factor(numbers, max(map(len, data.values), default=0))
        for i, (x, weight) in enumerate(zip(data.values, data.weights, strict=True)):
            added = parameters.intercept + self.inputs_of(data, i) @ parameters.observation_slopes.T
            y = np.concatenate([np.zeros(q), (x - added)[:, 0]])
            missing = np.flatnonzero(np.isnan(y))
            of_missing = missing_columns(self.differences, len(y), missing)
            target = _differenced(np.nan_to_num(y)[:, None], self.differences)
            columns = np.zeros((len(factor.diagonal), len(missing) + q + 1))
            columns[: len(x)] = np.concatenate([of_missing, self._of_first_states(len(x)), target], axis=1)
            upper = np.asarray(np.linalg.qr(factor.whitened(columns)[: len(x)], mode="r"))[
                len(missing) :, len(missing) :
            ]
            singular = np.linalg.svd(upper[:, :q], compute_uv=False)
            rank = int((singular > UNDETERMINED * singular.max(initial=0.0)).sum())
            check_determined(rank, i, len(x), q)
            inverse = np.linalg.inv(upper[:q, :q])
            mean = inverse @ upper[:q, q]
            sums[:q] += weight * mean
            squares[:q, :q] += weight * (deviation**2 * inverse @ inverse.T + np.outer(mean, mean))
        return FirstStates(np.array(data.weights.sum()), sums, squares)


def _differenced(columns: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return the lag polynomial ``a(B)`` applied to each of C series, ``(T - q, C)``.

    Args:
        columns: the series, ``(T, C)``.
        a: coefficients of the polynomial from lag 0 on, ``(q + 1,)``.
    """
    q = len(a) - 1
    result = np.zeros((max(len(columns) - q, 0), columns.shape[1]))
    for lag in np.flatnonzero(a).tolist() if len(result) else []:
        result += a[lag] * columns[q - lag : len(columns) - lag]
    return result


@dataclass(frozen=True)
class DifferencedData:
    """The training data of an ARIMA fit after differencing, computed once because no fitted number changes them.

    There are N sequences, V series added to each (a constant and inputs) and M missing values in all.

    Attributes:
        model: the model that is fitted.
        weights: weight of each sequence, ``(N,)``.
        n_steps: number of differences of each sequence, ``(N,)``.
        columns: differences of the sequences, of the series added to them and of their missing values, ``(n, N + V N +
            M)``; 0 beyond the end of shorter sequences.
        missing: the number of each sequence that misses values, with the slice of their columns.
    """

    model: BandedARIMA
    weights: np.ndarray
    n_steps: np.ndarray
    columns: np.ndarray
    missing: list[tuple[int, slice]]

    @classmethod
    def of(cls, model: BandedARIMA, data: SystemData) -> DifferencedData:
        """Return the differenced data of a model.

        Each sequence must have at least as many steps as differencing takes.
        """
        a, n_sequences = model.differences, len(data.values)
        n_steps = np.array([len(x) for x in data.values]) - len(a) + 1
        added = [
            np.concatenate([np.ones((len(x), int(model.form.intercept))), model.inputs_of(data, i)], 1)
            for i, x in enumerate(data.values)
        ]
        start = first_missing = n_sequences * (1 + added[0].shape[1])
        gone = [np.flatnonzero(np.isnan(x[:, 0])) for x in data.values]
        columns = np.zeros((n_steps.max(), start + sum(map(len, gone))))
        missing = []
        for i, (x, n) in enumerate(zip(data.values, n_steps.tolist(), strict=True)):
            columns[:n, i] = _differenced(np.nan_to_num(x), a)[:, 0]
            columns[:n, n_sequences + i : first_missing : n_sequences] = filtered_columns(added[i], a)
            if len(gone[i]):
                here = slice(start, start + len(gone[i]))
                columns[:n, here] = missing_columns(a, len(x), gone[i])
                missing.append((i, here))
                start = here.stop
        return cls(model, data.weights, n_steps, columns, missing)

    def with_gradient(self, numbers: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the weighted diffuse log-probability of all sequences, in nats, and its gradient ``(n,)``.

        Derivatives in the ARIMA's coefficients are central differences.

        Args:
            numbers: fitted numbers ``(n,)``: those of the ARIMA, the intercept if there is one, and effects of inputs.
        """
        n = len(self.model.component.start())
        log_prob, by_rest = self._with_derivatives(numbers)
        gradient = np.concatenate([np.zeros(n - 1), by_rest])
        for i in range(n - 1):
            step = STEP * (np.arange(len(numbers)) == i)
            above, below = (self._with_derivatives(numbers + s)[0] for s in (step, -step))
            gradient[i] = (above - below) / (2 * STEP)
        return log_prob, gradient

    def _with_derivatives(self, numbers: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the weighted diffuse log-probability and its exact derivatives in some of the fitted numbers.

        These are the standard deviation of the innovations, the intercept and the effects of inputs.
        """
        n, n_sequences = len(self.model.component.start()), len(self.weights)
        deviation, added = float(numbers[n - 1]), numbers[n:]
        factor = self.model.factor(numbers, len(self.columns))
        white = factor.whitened(self.columns)
        first_missing = n_sequences * (1 + len(added))
        slopes = white[:, n_sequences:first_missing].reshape(len(white), len(added), n_sequences)
        errors = white[:, :n_sequences] - np.tensordot(slopes, added, (1, 0))
        errors[np.arange(len(white))[:, None] >= self.n_steps] = 0.0
        log_dets = np.cumsum(np.concatenate([[0.0], np.log(factor.diagonal)]))[self.n_steps]
        n_values = self.n_steps.astype(np.float64)
        for i, columns in self.missing:
            here = slice(int(self.n_steps[i]))
            basis, upper = np.linalg.qr(white[here, columns])
            errors[here, i] -= basis @ (basis.T @ errors[here, i])
            log_dets[i] += np.log(np.abs(np.diagonal(upper))).sum()
            n_values[i] -= columns.stop - columns.start
        squares, w = np.square(errors).sum(0), self.weights
        n_seen = n_values + len(self.model.differences) - 1
        log_probs = -0.5 * (squares / deviation**2 + LOG_2PI * n_seen) - n_values * np.log(deviation) - log_dets
        by_deviation = w @ (squares / deviation**3 - n_values / deviation)
        by_added = np.einsum("tvs,ts,s->v", slopes, errors, w) / deviation**2
        return float(w @ log_probs), np.append(by_deviation, by_added)
