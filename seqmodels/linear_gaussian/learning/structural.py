"""Fits of structural time series: the maximum of the diffuse likelihood over their few numbers, by L-BFGS.

Derivatives in the elements of the matrices come from ``inference.gaussian.diffuse_gradient``. The elements are
polynomials of numbers, of hyperbolic tangents and of exponentials, whose own derivatives are central differences. A
single ARIMA without noise is evaluated by banded products in the place of the filter (``banded_arima``) where that is
faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from seqmodels.common.distributed import all_reduce_sum, is_distributed, of_rank_zero
from seqmodels.inference.gaussian.diffuse import diffuse_moments, split_by_length
from seqmodels.inference.gaussian.diffuse_gradient import UnivariateSystem, diffuse_gradient
from seqmodels.linear_gaussian.learning.banded_arima import BandedARIMA, DifferencedData
from seqmodels.linear_gaussian.learning.em import SystemObjective
from seqmodels.linear_gaussian.learning.statistics import SystemData, check_determined, e_step, rows_of
from seqmodels.linear_gaussian.parameters import ON_FLOOR, Form, SystemParameters, stationary_covariance
from seqmodels.linear_gaussian.structures import ContinuousProcess, Structure
from seqmodels.training import Callback, Checkpoints, FitResult, Row, StopRule, interruptible

START_NOISE = 0.7  # deviation of the noise of observations that a fit begins with, that of the series being 1
DEVIATIONS = (1e-3, 1e-2, 0.1)  # that are tried in the place of 0
N_TRIED, LARGEST_TRIED = 9, 3.0  # values of another number of the component, and how far from 0 they are at most
RISE = 1e-6  # nats, by which a fit goes on from there
SPREAD = 0.5  # of the numbers of later starts around those of the first
Likelihood = Callable[[np.ndarray], tuple[float, np.ndarray]]  # of numbers: nats, and the gradient


@dataclass(frozen=True)
class StructuralNumbers:
    """A structural model's fitted parameters as one array, its numbers, with conversions to a system.

    The array has the numbers of the components, then the standard deviation of the observation noise, the intercept and
    the effects of inputs, as far as these are free.

    Attributes:
        structure: the components.
        form: which other parameters are free.
    """

    structure: Structure
    form: Form

    @property
    def has_noise(self) -> bool:
        """True if one of the fitted numbers is the standard deviation of the observation noise."""
        return self.form.observation_noise != "none"

    @property
    def n_of_structure(self) -> int:
        """The number of fitted numbers that belong to the components; the others follow them."""
        return int(self.structure.numbers[-1].stop)

    def start(self, number: int, seed: int) -> np.ndarray:
        """Return the fitted numbers with which optimisation begins, ``(n,)``.

        Args:
            number: number of the start; 0 has the components' own values, others are random around these.
            seed: seed of the random values.
        """
        rest = [START_NOISE] * self.has_noise + [0.0] * (self.form.intercept + len(self.form.observation_inputs))
        numbers = np.append(self.structure.start(), rest)
        if number:
            numbers = numbers + SPREAD * np.random.default_rng([seed, number]).normal(size=len(numbers))
        return np.asarray(np.clip(numbers, *np.array(self.bounds()).T))

    def bounds(self) -> list[tuple[float, float]]:
        """Return the smallest and the largest value of each fitted number.

        The floor of variances bounds the standard deviation of the observation noise or, if there is none, of the last
        component.
        """
        bounds, floor = self.structure.bounds(), np.sqrt(self.form.min_covariance)
        if self.has_noise:
            bounds = [*bounds, (floor, np.inf)]
        else:
            bounds[-1] = floor, np.inf
        return bounds + [(-np.inf, np.inf)] * (self.form.intercept + len(self.form.observation_inputs))

    def parameters(self, numbers: np.ndarray) -> SystemParameters:
        """Return the system that the given fitted numbers make.

        Its distribution of the first state is only a placeholder.
        """
        K, n = self.structure.n_states, self.n_of_structure
        transition, covariance = self.structure.matrices(numbers[:n])
        noise = numbers[n] ** 2 if self.has_noise else 0.0
        rest = numbers[n + self.has_noise :]
        intercept = rest[: int(self.form.intercept)] if self.form.intercept else np.zeros(1)
        slopes = rest[int(self.form.intercept) :].reshape(1, -1)
        return SystemParameters(
            *(transition, covariance, self.structure.observation(), np.array(intercept), np.full((1, 1), noise)),
            *(np.zeros(K), np.eye(K), np.zeros((K, 0)), slopes.copy()),
            process=self.process(numbers),
        )

    def process(self, numbers: np.ndarray) -> ContinuousProcess | None:
        """Return the process in continuous time with the given fitted numbers.

        It is None if a component is defined in whole steps only.
        """
        return (
            ContinuousProcess(self.structure, numbers[: self.n_of_structure]) if self.structure.is_continuous else None
        )

    def with_start(self, numbers: np.ndarray) -> SystemParameters:
        """Return the system that the given fitted numbers make, with zeros for unknown (diffuse) first states.

        Other first states have their stationary distribution.
        """
        return self.form.without_start(self.parameters(numbers))

    def floor_hits(self, numbers: np.ndarray) -> int:
        """Return 1 if the variance of the observation noise is at its floor, else 0.

        Without observation noise, the variance of the last component's innovations takes its place.
        """
        deviation = numbers[self.n_of_structure - (not self.has_noise)]
        return int(deviation**2 <= ON_FLOOR * self.form.min_covariance)


def diffuse_log_prob(parameters: SystemParameters, form: Form, corpus: SystemData) -> float:
    """Return the weighted sum of the diffuse log-probabilities of all sequences, in nats.

    Under a diffuse start nothing is known of the first states that ``form`` names.

    Args:
        parameters: parameters of the system.
        form: which first states are unknown, and which inputs are read.
        corpus: encoded sequences.
    """
    at, total = form.without_start(parameters), 0.0
    directions = form.directions(len(at.transition))
    for whole, _ in corpus.groups(parameters, form):
        system = at.system_over(whole.gaps)
        for group in split_by_length(whole):
            moments = diffuse_moments(system, group, directions, smooths=False)
            total += float(corpus.weights[group.numbers] @ moments.log_prob)
    return total


def check_starts(all_numbers: StructuralNumbers, numbers: np.ndarray, corpus: SystemData) -> None:
    """Raise ``ValueError`` if a sequence has too few values to determine its unknown (diffuse) first state.

    Args:
        all_numbers: structural model.
        numbers: its fitted numbers, ``(n,)``.
        corpus: encoded sequences.
    """
    form, parameters = all_numbers.form, all_numbers.parameters(numbers)
    banded = BandedARIMA.of(all_numbers.structure, form)
    if banded is not None and banded.is_faster(corpus.values):
        banded.first_states(numbers, parameters, corpus)
        return
    at, directions = form.without_start(parameters), form.directions(len(parameters.transition))
    for whole, _ in corpus.groups(parameters, form):
        system = at.system_over(whole.gaps)
        for group in split_by_length(whole):
            rank = diffuse_moments(system, group, directions, smooths=False).rank
            check_determined(rank, int(group.numbers[0]), group.packing.n_steps, len(directions))


def first_moments(
    all_numbers: StructuralNumbers, numbers: np.ndarray, corpus: SystemData
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean ``(K,)`` and covariance ``(K, K)`` of first states given all values, over all sequences.

    The data of all processes are used. Only elements of diffuse states are meaningful; the caller replaces the others,
    which are stationary.

    Args:
        all_numbers: structural model.
        numbers: its fitted numbers, ``(n,)``.
        corpus: encoded sequences of this process.
    """
    form, parameters = all_numbers.form, all_numbers.parameters(numbers)
    banded = BandedARIMA.of(all_numbers.structure, form)
    if banded is not None and banded.is_faster(corpus.values):
        first = banded.first_states(numbers, parameters, corpus)
    else:
        first = e_step(parameters, form, corpus).first_states
    return first.summed_over_processes().moments()


def likelihood_of(all_numbers: StructuralNumbers, corpus: SystemData) -> Likelihood:
    """Return a function of a model's fitted numbers: the diffuse log-probability of all data and its gradient.

    The sums are taken over the data of all processes.

    Args:
        all_numbers: structural model.
        corpus: encoded sequences of this process.
    """
    banded = BandedARIMA.of(all_numbers.structure, all_numbers.form)
    if banded is not None and banded.is_faster(corpus.values, has_gradient=True):
        of_share: Likelihood = DifferencedData.of(banded, corpus).with_gradient
    else:
        of_share = partial(_by_filter, all_numbers, corpus)

    def of_all(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        log_prob, gradient = of_share(numbers)
        if not is_distributed():
            return log_prob, gradient
        (sums,), _ = all_reduce_sum([torch.tensor([log_prob, *gradient], dtype=torch.float64)])
        return float(sums[0]), sums[1:].numpy()

    return of_all


def _by_filter(all_numbers: StructuralNumbers, corpus: SystemData, numbers: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the diffuse log-probability of the sequences and its gradient, ``(n,)``, by the Kalman filter.

    Args:
        all_numbers: structural model.
        corpus: encoded sequences.
        numbers: fitted numbers of the model, ``(n,)``.
    """
    form, at = all_numbers.form, all_numbers.with_start(numbers)
    by_number = all_numbers.structure.slopes(numbers)  # of A and Q, both (n, K, K)
    in_steps = [np.argwhere(each.any(0)) for each in by_number]  # elements that the numbers change
    rest = at.observation, np.diagonal(at.observation_covariance).copy(), at.initial_mean, at.initial_covariance
    K, V = len(at.transition), at.observation_slopes.shape[1]
    directions, log_prob, by_noise, by_start = form.directions(K), 0.0, 0.0, np.zeros((K, K))
    by_matrices, by_offsets, over_gaps = np.zeros((2, K, K)), np.zeros(1 + V), np.zeros(all_numbers.n_of_structure)
    for whole, inputs in corpus.groups(at, form):
        moves = (at.transition[None], at.state_covariance[None])
        slopes_over, changing = None, in_steps
        if whole.gaps is not None:
            assert at.process is not None, "only a process in continuous time is given gaps"
            moves, slopes_over = at.process.over(whole.gaps), at.process.slopes_over(whole.gaps)
            changing = [np.argwhere(each.any((0, 1))) for each in slopes_over]
        system = UnivariateSystem(*moves, *rest)
        for group in split_by_length(whole):
            weights = corpus.weights[group.numbers]
            derivatives = diffuse_gradient(system, group, weights, directions, *changing)
            log_prob += derivatives.log_prob
            by_moves = derivatives.transition, derivatives.state_covariance
            for i, (elements, by_move) in enumerate(zip(changing, by_moves, strict=True)):
                if slopes_over is None:
                    by_matrices[i][tuple(elements.T)] += by_move[0]
                else:
                    slopes = slopes_over[i][:, :, elements[:, 0], elements[:, 1]]
                    over_gaps += np.einsum("ntm,tm->n", slopes, by_move)
            by_noise += derivatives.noise[0]
            by_start += derivatives.initial_covariance
            by_value = np.tile(weights, group.packing.n_steps) * derivatives.values[:, 0]  # (N,)
            by_offsets[0] += by_value.sum()
            if inputs is not None:
                by_offsets[1:] += by_value @ rows_of(whole, group, inputs)[:, form.observation_inputs]
    by_matrices += _through_start(form, at, by_start)
    gradient = np.concatenate(
        [
            over_gaps + sum((slopes * by).sum((1, 2)) for slopes, by in zip(by_number, by_matrices, strict=True)),
            [2 * numbers[all_numbers.n_of_structure] * by_noise] if all_numbers.has_noise else [],
            by_offsets[0 if form.intercept else 1 :],
        ]
    )
    return log_prob, gradient


def _through_start(form: Form, at: SystemParameters, by_start: np.ndarray) -> np.ndarray:
    """Return derivatives in A and Q, ``(2, K, K)``, of a quantity that depends on them through the first state.

    The covariance P of stationary first states solves ``P = A P Aᵀ + Q``.

    Args:
        form: which first states are stationary.
        at: parameters of the system.
        by_start: derivatives in P, ``(K, K)``.
    """
    derivatives = np.zeros((2, *by_start.shape))
    if form.diffuse is not None and not form.diffuse.all():
        known = np.ix_(~form.diffuse, ~form.diffuse)
        A, P = at.transition[known], at.initial_covariance[known]
        adjoint = stationary_covariance(A.T, by_start[known])  # all that P adds to later steps of the sum
        derivatives[0][known], derivatives[1][known] = 2 * adjoint @ A @ P, adjoint
    return derivatives


@dataclass
class Evaluations:
    """A record of all log-probabilities that a fit has computed, with gradients and times.

    A checkpoint holds the record. L-BFGS is deterministic, so a resumed fit runs again from its start and looks up what
    has been computed before. ``of`` is the function that computes log-probability and gradient, ``began`` the time at
    which the fit began, and ``known`` the record by the bytes of the numbers.
    """

    of: Likelihood
    began: float = field(default_factory=time.perf_counter)
    known: dict[bytes, tuple[float, np.ndarray, float]] = field(default_factory=dict)

    @classmethod
    def from_state(cls, of: Likelihood, state: Mapping[str, Any] | None) -> Evaluations:
        """Return the record that a checkpoint holds in ``state``, or an empty one if that is None.

        ``of`` is the function that computes a log-probability and its gradient.
        """
        if state is None:
            return cls(of)
        columns = (np.array(state[name]) for name in ("points", "log_probs", "gradients", "seconds"))
        known = {x.tobytes(): (float(p), g.copy(), float(s)) for x, p, g, s in zip(*columns, strict=True)}
        return cls(of, time.perf_counter() - max(s for _, _, s in known.values()), known)

    def at(self, numbers: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Return log-probability, gradient and seconds since the start of the fit for the given fitted numbers.

        They are computed if the record does not have them.
        """
        key = numbers.tobytes()
        if key not in self.known:
            log_prob, gradient = self.of(numbers)
            self.known[key] = log_prob, gradient, of_rank_zero(time.perf_counter() - self.began)
        return self.known[key]

    def state(self) -> dict[str, Any]:
        """Return the record as arrays by name, in the form in which a checkpoint stores it."""
        log_probs, gradients, seconds = (np.array(each) for each in zip(*self.known.values(), strict=True))
        points = np.array([np.frombuffer(key) for key in self.known])
        return {"points": points, "log_probs": log_probs, "gradients": gradients, "seconds": seconds}


def _above_zero(all_numbers: StructuralNumbers, numbers: np.ndarray, evaluations: Evaluations) -> np.ndarray | None:
    """Return numbers of a higher likelihood, with one standard deviation raised from 0, or None if there are none.

    At 0 the derivative in a standard deviation is 0 even where the derivative in the variance is positive. Whether the
    latter is positive depends on the component's other numbers, such as the rate of a cycle, which have no effect while
    the deviation is 0. So each deviation is also tried with other values of those numbers.

    Args:
        all_numbers: structural model.
        numbers: its fitted numbers at a maximum, ``(n,)``.
        evaluations: record of log-probabilities.
    """
    least = evaluations.at(numbers)[0]
    higher: list[tuple[float, np.ndarray]] = []
    for i, beside in _of_zero_deviations(all_numbers, numbers):
        for size in DEVIATIONS:
            moved = np.where(np.arange(len(numbers)) == i, size, beside)
            log_prob, gradient, _ = evaluations.at(moved)
            if log_prob > least + RISE:
                higher.append((log_prob, moved))
            elif not gradient[i] > 0:
                break
    return max(higher, key=lambda pair: pair[0])[1] if higher else None


def _of_zero_deviations(all_numbers: StructuralNumbers, numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index of each standard deviation that is 0, with numbers from which to try to increase it.

    These are the given numbers, then numbers in which one other number of the same component differs.
    """
    bounds = all_numbers.bounds()
    for which in all_numbers.structure.numbers:
        places = range(which.start, which.stop)
        for i in places:
            if bounds[i][0] != 0 or numbers[i] >= DEVIATIONS[0]:
                continue
            yield i, numbers
            for j in places:
                low, high = np.clip(bounds[j], -LARGEST_TRIED, LARGEST_TRIED)
                for value in np.linspace(low, high, N_TRIED) if bounds[j][0] < 0 else ():
                    yield i, np.where(np.arange(len(numbers)) == j, value, numbers)


def run_structural(
    all_numbers: StructuralNumbers,
    start: np.ndarray,
    objective: SystemObjective,
    data: SystemData,
    stop: StopRule,
    callback: Callback,
    checkpoints: Checkpoints | None = None,
) -> FitResult[SystemParameters]:
    """Maximize the diffuse likelihood of a structural model from one start by L-BFGS.

    Args:
        all_numbers: structural model.
        start: fitted numbers to begin with, ``(n,)``; those of the earlier run if ``checkpoints`` resume one.
        objective: what the rows of the history report.
        data: encoded sequences of this process.
        stop: when the fit ends.
        callback: function that is called with each new row of the history, one for each step.
        checkpoints: where to write progress, and what to resume from; None writes nothing.

    Returns:
        The result of the fit, with its parameters, rows, and the fitted numbers.

    Raises:
        ValueError: a sequence that does not determine its first state; the message has its number.
    """
    from scipy.optimize import minimize  # lazily: scipy is slow to import

    first, checkpoints, rows = all_numbers.parameters(start), checkpoints or Checkpoints(), list[Row]()
    check_starts(all_numbers, start, data)
    evaluations = Evaluations.from_state(likelihood_of(all_numbers, data), checkpoints.state)

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        log_prob, gradient, _ = evaluations.at(numbers)
        return -log_prob / objective.n_units, -gradient / objective.n_units

    with interruptible() as interruption:

        def is_over(numbers: np.ndarray) -> bool:
            """Add a row for the given fitted numbers to the history, and return True if the fit is to end with them."""
            log_prob, _, seconds = evaluations.at(numbers)
            row = objective.row(len(rows), seconds, log_prob, first)
            rows.append({**row, "floor_hits": all_numbers.floor_hits(numbers)})
            callback(rows[-1])
            interruption.hold()
            if checkpoints.due:
                checkpoints.write({"start": start, **evaluations.state()})
            return interruption.requested or stop.out_of_time(seconds)

        def after_step(xk: np.ndarray) -> None:
            if is_over(xk):
                raise StopIteration

        best, converged, following = start, False, None if is_over(start) or not stop.max_iter else start
        while following is not None:
            result = minimize(
                loss,
                following,
                jac=True,
                method="L-BFGS-B",
                bounds=all_numbers.bounds(),
                callback=after_step,
                options={"maxiter": stop.max_iter + 1 - len(rows), "ftol": stop.tol, "gtol": 1e-9},
            )
            best, converged = np.asarray(result.x), bool(result.success) and not interruption.requested
            following = _above_zero(all_numbers, best, evaluations) if converged else None
            if following is not None and (is_over(following) or len(rows) > stop.max_iter):
                best, converged, following = following, False, None
        is_interrupted = interruption.requested
    checkpoints.write({"start": start, **evaluations.state()})
    return FitResult(all_numbers.parameters(best), rows, converged, best, is_interrupted)
