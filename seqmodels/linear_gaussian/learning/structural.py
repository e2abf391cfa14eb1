"""The maximum of the diffuse likelihood of a structure, in its few numbers, by L-BFGS.

Gradients are of central differences, each two passes of the filter. That of the expected log-probability (Fisher's
identity) would be one pass, but near a variance of zero, where maxima often are, it is a difference of what is almost
equal over what is almost zero; the likelihood itself is smooth there in the standard deviation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seqmodels.common.distributed import of_rank_zero, sum_of
from seqmodels.linear_gaussian.inference.diffuse import diffuse_moments, split_by_length
from seqmodels.linear_gaussian.learning.em import Row, StopAfter, SystemFit, SystemObjective
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.parameters import ON_FLOOR, Form, SystemParameters
from seqmodels.linear_gaussian.structures import Structure
from seqmodels.training import interruptible

DIFFERENCE = 1e-4  # of a number, in central differences
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
    form = all_numbers.form
    total = sum_of(diffuse_log_prob(all_numbers.parameters(numbers), form, corpus))
    gradient = np.empty(len(numbers))
    for i in range(len(numbers)):
        step = DIFFERENCE * (np.arange(len(numbers)) == i)
        sides = [diffuse_log_prob(all_numbers.parameters(numbers + sign * step), form, corpus) for sign in (1, -1)]
        gradient[i] = sum_of(sides[0] - sides[1]) / (2 * DIFFERENCE)
    return total, gradient


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
