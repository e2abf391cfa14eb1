"""Step-by-step filtering of a linear-Gaussian system; a cursor's state holds the Gaussian of the hidden state."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, select_rows, stacked_sources
from seqmodels.generation.given_inputs import refuse_without_inputs
from seqmodels.inference.gaussian.kalman import Gains, SequenceGroup, System, filter_group
from seqmodels.inference.gaussian.packing import StepPacking
from seqmodels.linear_gaussian.innovations import StudentTInnovations
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.observations import GaussianMixture, MultivariateStudentT, Observation
from seqmodels.observations.gaussian import shape_of_factor

SMALLEST_VARIANCE = 1e-300  # a floor that no variance of a prediction comes near


def predicted_by(*, is_gaussian: bool = True) -> Observation:
    """Return the observation model of a system's predictions: a Gaussian with full covariance, or a multivariate t."""
    if is_gaussian:
        return GaussianMixture(1, "full", min_covariance=SMALLEST_VARIANCE)
    return MultivariateStudentT(min_covariance=SMALLEST_VARIANCE)


State = TypeVar("State")


@dataclass(frozen=True)
class SystemState:
    """The state of a ``SystemCursor``: the predicted Gaussian of the hidden state of n sequences at their next step.

    Attributes:
        mean: mean of the K hidden states given the steps so far, ``(n, K)``, without what inputs add.
        factor: upper triangular u with ``uᵀu`` the covariance, ``(n, K, K)``; ``(1, K, K)`` if all sequences share one,
            and ``(f, K, K)`` if there are f different ones and ``rows`` says which.
        filtered: mean of the state at the last step given all steps so far, ``(n, K)``; None before the first step.
        inputs: standardised inputs of the next step, ``(n, U)``; None until they are given.
        rows: index of the factor of each sequence, ``(n,)``, if there are only f < n different factors; None if each
            sequence has its own or all share one.
        log_scale: logarithm of the scale of the Student t innovation of the next step, ``(n,)``; None if innovations
            are Gaussian.
    """

    mean: Tensor
    factor: Tensor
    filtered: Tensor | None = None
    inputs: Tensor | None = None
    rows: Tensor | None = None
    log_scale: Tensor | None = None

    @property
    def each_factor(self) -> Tensor:
        """The factor u of each sequence's covariance ``uᵀu``, ``(n, K, K)``; ``(1, K, K)`` if all share one."""
        return self.factor if self.rows is None else self.factor[self.rows]

    def of_each(self, computed: Tensor) -> Tensor:
        """Return a result for each of n sequences, ``(n, ...)``, from one for each of f covariance factors.

        The latter are ``computed (f, ...)``. If all sequences share one factor, it is ``(1, ...)`` and is returned as
        it is.
        """
        return computed if self.rows is None else computed[self.rows]


class UnseenSteps(ABC, Generic[State]):
    """A base class of cursors that can move past a step without observing it, and so predict several steps ahead.

    To add one, define ``is_gaussian``, ``distribution`` and ``unseen``.
    """

    @property
    @abstractmethod
    def is_gaussian(self) -> bool:
        """True if predictions are Gaussian, and so those of several steps ahead too."""

    @abstractmethod
    def distribution(self, state: State) -> Prediction:
        """Return the prediction of the next step, given the steps that ``state`` has read."""

    @abstractmethod
    def unseen(self, state: State) -> State:
        """Return the state after the next step, if that step is not observed."""

    def predictions_ahead(self, state: State, k: int) -> list[Prediction] | None:
        """Return predictions of the next k steps given only the steps that ``state`` has read; None if not Gaussian."""
        if not self.is_gaussian:
            return None
        predictions = []
        for _ in range(k):
            predictions.append(self.distribution(state))
            state = self.unseen(state)
        return predictions


@dataclass(frozen=True)
class SystemCursor(UnseenSteps[SystemState]):
    """The step-by-step Kalman filter of a linear-Gaussian system, in square-root form and float64.

    Attributes:
        matrices: arrays of ``SystemParameters`` by name, and the factors u of its covariances ``uᵀu``, as tensors.
        form: which inputs the system reads.
        innovations: density of the innovations; None if it is the Gaussian of the filter.
    """

    matrices: dict[str, Tensor]
    form: Form
    innovations: StudentTInnovations | None = None

    @classmethod
    def of(
        cls,
        parameters: SystemParameters,
        form: Form,
        device: torch.device,
        innovations: StudentTInnovations | None = None,
    ) -> SystemCursor:
        """Return the cursor of a linear-Gaussian system, with its matrices on ``device``.

        Args:
            parameters: matrices of the system.
            form: which inputs the system reads.
            device: device of the tensors.
            innovations: density of the innovations; None if it is the Gaussian of the filter.
        """
        system = parameters.system
        factors = {
            "state_factor": system.state_factor,
            "noise_factor": system.noise_factor,
            "initial_factor": system.initial_factor,
        }
        arrays = {**parameters.arrays(), **factors}
        return cls({name: torch.tensor(array, device=device) for name, array in arrays.items()}, form, innovations)

    @property
    def is_gaussian(self) -> bool:
        return self.innovations is None

    @property
    def _reads_inputs(self) -> bool:
        return bool(self.form.state_inputs or self.form.observation_inputs)

    def start(self, source: Source = None, n: int = 1) -> SystemState:
        """Return the state of n sequences before their first scored step.

        Args:
            source: steps before the first, which are read but not scored; None if there are none.
            n: number of sequences.
        """
        m = self.matrices
        mean, t = m["initial_mean"].expand(n, -1), self.innovations
        log_scale = None if t is None else mean.new_full((n,), math.log(t.scale))
        state = SystemState(mean, m["initial_factor"][None], log_scale=log_scale)
        rows = stacked_sources(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        return state

    def given(self, state: SystemState, inputs: Tensor) -> SystemState:
        """Return the state with U standardised inputs of the next step of n sequences, ``inputs (n, U)``."""
        return replace(state, inputs=inputs.to(state.mean))

    def advance(self, state: SystemState, x: Tensor) -> SystemState:
        """Return the state after n sequences have read their next steps, ``x (n, D)``, NaN where a value is missing."""
        m, mean = self.matrices, self._mean(state)
        x = x.to(mean)
        observed = ~torch.isnan(x)
        residual = torch.where(observed, x - self._expected(state, mean), 0.0)
        if not bool(observed.all()):
            state = replace(state, factor=state.each_factor, rows=None)
        seen = None if bool(observed.all()) else observed.to(mean).unsqueeze(-2)  # (n, 1, D)
        s, gain, filtered = self._updated(state.factor, seen)
        s, gain = state.of_each(s), state.of_each(gain)
        white = torch.linalg.solve_triangular(s.mT, residual.unsqueeze(-1), upper=False)  # sᵀ white = e
        here = mean + (gain.mT @ white).squeeze(-1)
        log_scale = state.log_scale
        if self.innovations is not None and log_scale is not None:
            log_scale = self.innovations.after(log_scale, white.square().sum((-2, -1)), observed.to(mean).sum(-1))
        predicted = self._predicted(filtered)
        return SystemState(here @ m["transition"].mT, predicted, here, rows=state.rows, log_scale=log_scale)

    def read(self, state: SystemState, x: Tensor) -> SystemState:
        """Return the state after each of n sequences has read T steps of D features, ``x (n, T, D)``, at once.

        NaN stands for a missing value. On a CPU, sequences that share a covariance at each step are filtered together;
        others are read step by step.
        """
        observed = ~torch.isnan(x).numpy() if x.device.type == "cpu" else None
        is_shared = len(state.factor) == 1 and state.rows is None and state.mean.device.type == "cpu"
        if observed is None or self._reads_inputs or not is_shared or not (observed.all() or len(x) == 1):
            for step in x.unbind(1):
                state = self.advance(state, step)
            return state
        n, n_steps, size = x.shape
        mask = None if observed.all() else observed[0]
        system = replace(self._system, initial_factor=state.factor[0].numpy())
        gains = Gains.of(system, n_steps, mask)
        residual = torch.nan_to_num(x.to(state.mean) - self.matrices["intercept"]).transpose(0, 1).reshape(-1, size)
        group = SequenceGroup(np.arange(n), StepPacking.of([n_steps] * n), residual.numpy(), mask)
        means = filter_group(system, gains, group, np.ascontiguousarray(state.mean.numpy()))
        here, log_scale = torch.from_numpy(means.filtered[-n:].copy()), state.log_scale
        if self.innovations is not None and log_scale is not None:
            for squares, n_observed in zip(means.squares.reshape(-1, n), group.n_observed.reshape(-1, n), strict=True):
                each = torch.from_numpy(squares), torch.from_numpy(n_observed)
                log_scale = self.innovations.after(log_scale, *each)
        mean, factor = here @ self.matrices["transition"].mT, torch.from_numpy(gains.following)[None]
        return SystemState(mean, factor, here, log_scale=log_scale)

    @cached_property
    def _system(self) -> System:
        m = {name: matrix.numpy() for name, matrix in self.matrices.items()}
        moves, seen = (m["transition"], m["state_factor"]), (m["observation"], m["noise_factor"])
        return System(*moves, *seen, m["initial_mean"], m["initial_factor"])

    def unseen(self, state: SystemState) -> SystemState:
        mean, predicted = self._mean(state), self._predicted(state.factor)
        moved = mean @ self.matrices["transition"].mT
        return SystemState(moved, predicted, mean, rows=state.rows, log_scale=state.log_scale)

    def distribution(self, state: SystemState) -> Prediction:
        """Return the prediction of the next step, a Gaussian or a t density, given the steps that ``state`` has read.

        Raises:
            ValueError: the system reads inputs, and those of the next step have not been given (``given``).
        """
        mean = self._mean(state)
        expected = self._expected(state, mean)
        s = self._innovation(state.factor)  # the covariance is sᵀs, its inverse s⁻¹ s⁻ᵀ
        unit = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
        upper = torch.linalg.qr(torch.linalg.solve_triangular(s, unit, upper=True).mT).R
        lower = (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT
        shape = state.of_each(shape_of_factor(lower)).expand(len(expected), -1)
        if self.innovations is None or state.log_scale is None:
            table = torch.cat([expected.new_zeros(len(expected), 1), expected, shape], 1)
        else:
            log_degrees = expected.new_full((len(expected), 1), math.log(self.innovations.degrees_of_freedom))
            unscaled = torch.cat([expected, shape, log_degrees], 1)
            table = MultivariateStudentT().scaled(unscaled, state.log_scale)
        return Prediction(self._observation, table.unsqueeze(1), None, None, None)

    def predictions_ahead(self, state: SystemState, k: int) -> list[Prediction] | None:
        if not self.is_gaussian or self._reads_inputs or len(state.factor) > 1:
            return super().predictions_ahead(state, k)
        n, each = len(state.mean), [state]
        for _ in range(k - 1):
            each.append(self.unseen(each[-1]))
        means, factors = torch.cat([s.mean for s in each]), torch.cat([s.factor for s in each])
        step = torch.arange(k, device=means.device).repeat_interleave(n)
        tables = self.distribution(SystemState(means, factors, rows=step)).output_parameters
        return [Prediction(self._observation, table, None, None, None) for table in tables.split(n)]

    def select(self, state: SystemState, index: Tensor) -> SystemState:
        """Return the state of the m sequences with the indices ``index (m,)``, in this order."""
        rest: SystemState = select_rows(replace(state, factor=state.mean, rows=None), index)
        if len(state.factor) == 1:
            return replace(rest, factor=state.factor)
        chosen, rows = torch.unique(index if state.rows is None else state.rows[index], return_inverse=True)
        if len(chosen) < len(index):
            return replace(rest, factor=state.factor[chosen], rows=rows)
        return replace(rest, factor=state.each_factor[index])

    @cached_property
    def _observation(self) -> Observation:
        return predicted_by(is_gaussian=self.is_gaussian)

    def _mean(self, state: SystemState) -> Tensor:
        """Return the mean of the next hidden state of n sequences, ``(n, K)``, with the effect of inputs.

        Inputs do not affect the first state.
        """
        if self._reads_inputs:
            refuse_without_inputs(state.inputs)
        if not self.form.state_inputs or state.inputs is None or state.filtered is None:
            return state.mean
        return state.mean + state.inputs[:, self.form.state_inputs] @ self.matrices["state_slopes"].mT

    def _expected(self, state: SystemState, mean: Tensor) -> Tensor:
        """Return the mean of the next observation, ``(n, D)``, given the ``mean (n, K)`` of its hidden state."""
        expected = mean @ self.matrices["observation"].mT + self.matrices["intercept"]
        if not self.form.observation_inputs or state.inputs is None:
            return expected
        return expected + state.inputs[:, self.form.observation_inputs] @ self.matrices["observation_slopes"].mT

    def _innovation(self, factor: Tensor) -> Tensor:
        """Return the upper triangular factor s of the covariance ``sᵀs`` of the next observation, ``(n, D, D)``.

        ``factor (n, K, K)`` is the factor of the covariance of the next hidden state.
        """
        noise = self.matrices["noise_factor"].expand(len(factor), -1, -1)
        upper: Tensor = torch.linalg.qr(torch.cat([noise, factor @ self.matrices["observation"].mT], 1)).R
        return upper

    def _updated(self, factor: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the results of observing a step: the innovation's factor, the gain and the filtered factor.

        Args:
            factor: factor u of the predicted covariance ``uᵀu`` of the K hidden states, ``(n, K, K)``.
            seen: 1 where one of D features is observed, ``(n, 1, D)``; None if all are.

        Returns:
            The factor s of the covariance of the innovation (prediction error) e, ``(n, D, D)``; the gain, ``(n, D,
                K)``, with which ``e s⁻¹ gain`` is added to the mean; and the factor of the filtered covariance, ``(n,
                K, K)``.
        """
        noise, by_state = self.matrices["noise_factor"], factor @ self.matrices["observation"].mT
        D, K = by_state.shape[-1], factor.shape[-1]
        left = [noise.expand(len(factor), -1, -1), by_state]
        if seen is not None:
            factor = factor.expand(len(seen), -1, -1)
            left = [noise * seen, torch.diag_embed(1 - seen.squeeze(-2)), by_state * seen]
        left_columns = torch.cat(left, 1)
        zeros = left_columns.new_zeros(len(left_columns), left_columns.shape[1] - K, K)
        upper = torch.linalg.qr(torch.cat([left_columns, torch.cat([zeros, factor], 1)], 2)).R
        return upper[:, :D, :D], upper[:, :D, D:], upper[:, D:, D:]

    def _predicted(self, factor: Tensor) -> Tensor:
        """Return the factor of the covariance of the next hidden state, ``(n, K, K)``, from that of the present one.

        A factor u stands for the covariance ``uᵀu``.
        """
        noise = self.matrices["state_factor"].expand(len(factor), -1, -1)
        upper: Tensor = torch.linalg.qr(torch.cat([factor @ self.matrices["transition"].mT, noise], 1)).R
        return upper
