"""The maximum of the diffuse likelihood of a structure, in its few numbers, by L-BFGS.

Derivatives in the elements of the matrices are exact (``inference.score``); those of the matrices in the numbers are
central differences, of polynomials and hyperbolic tangents.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch

from seqmodels.common.distributed import all_reduce_sum, is_distributed, of_rank_zero
from seqmodels.linear_gaussian.inference.diffuse import diffuse_moments, split_by_length
from seqmodels.linear_gaussian.inference.score import UnivariateSystem, diffuse_score
from seqmodels.linear_gaussian.learning.em import Row, StopAfter, SystemFit, SystemObjective
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step, rows_of
from seqmodels.linear_gaussian.parameters import ON_FLOOR, Form, SystemParameters
from seqmodels.linear_gaussian.structures import Structure
from seqmodels.training import interruptible

DIFFERENCE = 1e-5  # of a number, in central differences
START_NOISE = 0.7  # deviation of the noise of observations that a fit begins with, that of the series being 1
SPREAD = 0.5  # of the numbers of later starts around those of the first


@dataclass(frozen=True)
class StructuralNumbers:
    """All numbers of a structural model: those of its components, then the standard deviation of the noise, the
    intercept and the slopes of inputs, as far as they are free.
    """

    structure: Structure
    form: Form

    @property
    def _has_noise(self) -> bool:
        return self.form.observation_noise != "none"

    def start(self, number: int, seed: int) -> np.ndarray:
        """Of start ``number``: the first is that of the components, others are around it."""
        rest = [START_NOISE] * self._has_noise + [0.0] * (self.form.intercept + len(self.form.observation_inputs))
        numbers = np.append(self.structure.start(), rest)
        if number:
            numbers = numbers + SPREAD * np.random.default_rng([seed, number]).normal(size=len(numbers))
        return np.asarray(np.clip(numbers, *np.array(self.bounds()).T))

    def bounds(self) -> list[tuple[float, float]]:
        """Of each; the deviation of the noise, or where there is none of the last component, is above its floor."""
        bounds, floor = self.structure.bounds(), np.sqrt(self.form.min_covariance)
        if self._has_noise:
            bounds = [*bounds, (floor, np.inf)]
        else:
            bounds[-1] = floor, np.inf
        return bounds + [(-np.inf, np.inf)] * (self.form.intercept + len(self.form.observation_inputs))

    def parameters(self, numbers: np.ndarray) -> SystemParameters:
        """The system of these numbers; its first state is not that of a diffuse start."""
        K, n = self.structure.n_states, len(self.structure.start())
        transition, covariance = self.structure.matrices(numbers[:n])
        noise = numbers[n] ** 2 if self._has_noise else 0.0
        rest = numbers[n + self._has_noise :]
        intercept = rest[: int(self.form.intercept)] if self.form.intercept else np.zeros(1)
        slopes = rest[int(self.form.intercept) :].reshape(1, -1)
        return SystemParameters(
            *(transition, covariance, self.structure.observation(), np.array(intercept), np.full((1, 1), noise)),
            *(np.zeros(K), np.eye(K), np.zeros((K, 0)), slopes.copy()),
        )

    def with_start(self, numbers: np.ndarray) -> SystemParameters:
        """The system of these numbers, where all of which nothing is known is 0."""
        return self.form.without_start(self.parameters(numbers))

    def floor_hits(self, numbers: np.ndarray) -> int:
        """How many variances are on the floor: of the noise, or where there is none of the innovations."""
        deviation = numbers[len(self.structure.start()) - (not self._has_noise)]
        return int(deviation**2 <= ON_FLOOR * self.form.min_covariance)


def diffuse_log_prob(parameters: SystemParameters, form: Form, corpus: SystemData) -> float:
    """Nats of all sequences, by weight, where nothing is known of first states."""
    system, total = form.without_start(parameters).system, 0.0
    directions = form.directions(len(system.transition))
    for whole, _ in corpus.groups(parameters, form):
        for group in split_by_length(whole):
            moments = diffuse_moments(system, group, directions, smooths=False)
            total += float(corpus.weights[group.numbers] @ moments.log_prob)
    return total


def _with_gradient(all_numbers: StructuralNumbers, numbers: np.ndarray, corpus: SystemData) -> tuple[float, np.ndarray]:
    """The log-probability and its gradient."""
    form, at = all_numbers.form, all_numbers.with_start(numbers)
    slopes = [_slopes(all_numbers, numbers, i) for i in range(len(numbers))]
    moving, disturbed = (
        np.argwhere(np.any([getattr(each, name) != 0 for each in slopes], axis=0))
        for name in ("transition", "state_covariance")
    )
    system = UnivariateSystem(
        *(at.transition, at.state_covariance, at.observation, np.diagonal(at.observation_covariance).copy()),
        *(at.initial_mean, at.initial_covariance),
    )
    directions = form.directions(len(at.transition))
    sums = np.zeros(1 + len(numbers))  # the log-probability, then its derivatives
    for whole, inputs in corpus.groups(at, form):
        for group in split_by_length(whole):
            weights = corpus.weights[group.numbers]
            score = diffuse_score(system, group, weights, directions, moving, disturbed)
            by_value = np.tile(weights, group.packing.n_steps)[:, None] * score.values  # (N, D)
            by_slope = np.zeros(at.observation_slopes.shape)
            if inputs is not None:
                by_slope = by_value.T @ rows_of(whole, group, inputs)[:, form.observation_inputs]
            sums[0] += score.log_prob
            for i, slope in enumerate(slopes):
                sums[1 + i] += (
                    score.transition @ slope.transition[tuple(moving.T)]
                    + score.state_covariance @ slope.state_covariance[tuple(disturbed.T)]
                    + score.noise @ np.diagonal(slope.observation_covariance)
                    + (score.initial_covariance * slope.initial_covariance).sum()
                    + by_value.sum(0) @ slope.intercept
                    + (by_slope * slope.observation_slopes).sum()
                )
    if is_distributed():
        sums = all_reduce_sum([torch.from_numpy(sums)])[0][0].numpy()
    return float(sums[0]), sums[1:]


def _slopes(all_numbers: StructuralNumbers, numbers: np.ndarray, i: int) -> SystemParameters:
    """The derivatives of the parameters in number i."""
    step = DIFFERENCE * (np.arange(len(numbers)) == i)
    above, below = (all_numbers.with_start(numbers + sign * step) for sign in (1, -1))
    return SystemParameters(
        *((getattr(above, f.name) - getattr(below, f.name)) / (2 * DIFFERENCE) for f in fields(SystemParameters))
    )


def run_structural(
    all_numbers: StructuralNumbers,
    start: np.ndarray,
    objective: SystemObjective,
    data: SystemData,
    stop: StopAfter,
    callback: Callable[[Row], None],
) -> tuple[SystemFit, np.ndarray]:
    """L-BFGS from one start, and the numbers where it ends; a row of the history for each of its steps.

    Raises:
        ValueError: a sequence that does not determine its first state, by number.
    """
    from scipy.optimize import minimize  # lazily: scipy is slow to import

    run, began = SystemFit(all_numbers.parameters(start)), time.perf_counter()
    e_step(run.parameters, all_numbers.form, data)  # which refuses what does not determine its first state
    known: dict[bytes, tuple[float, np.ndarray]] = {}

    def evaluated(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        key = numbers.tobytes()
        if key not in known:
            known[key] = _with_gradient(all_numbers, numbers, data)
        return known[key]

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        log_prob, gradient = evaluated(numbers)
        return -log_prob / objective.n_units, -gradient / objective.n_units

    with interruptible() as interruption:

        def is_over(numbers: np.ndarray) -> bool:
            """Notes the figures of these numbers; whether the fit is to end with them."""
            seconds = of_rank_zero(time.perf_counter() - began)
            row = objective.row(len(run.rows), seconds, evaluated(numbers)[0], run.parameters)
            run.rows.append({**row, "floor_hits": all_numbers.floor_hits(numbers)})
            callback(run.rows[-1])
            interruption.hold()
            run.interrupted = interruption.requested
            return run.interrupted or stop.out_of_time(seconds)

        def after_step(xk: np.ndarray) -> None:
            if is_over(xk):
                raise StopIteration

        best = start
        if not is_over(start) and stop.max_iter:
            result = minimize(
                loss,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=all_numbers.bounds(),
                callback=after_step,
                options={"maxiter": stop.max_iter, "ftol": stop.tol, "gtol": 1e-9},
            )
            best, run.converged = np.asarray(result.x), bool(result.success) and not run.interrupted
    run.parameters = all_numbers.parameters(best)
    run.statistics = e_step(run.parameters, all_numbers.form, data).summed_over_processes()
    return run, best
