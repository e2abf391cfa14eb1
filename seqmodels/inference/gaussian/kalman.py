"""The Kalman filter and the Rauch-Tung-Striebel smoother, as functions of arrays::

    z_1 ~ N(m, P),  z_t = A z_t-1 + w_t,  w_t ~ N(0, Q)
    x_t = C z_t + v_t,  v_t ~ N(0, R)

Both are in square-root form (Kaminski, Bryson and Schmidt 1971; Kailath, Sayed and Hassibi 2000, *Linear estimation*,
ch. 12). Factors of covariances are updated by orthogonal triangularisation, which never subtracts one covariance from
another, so that covariances stay positive semidefinite and only half the digits of a condition number are lost. Q, and
the covariance of a predicted state, may be singular.

Covariances depend on which values are missing, but not on the values. Sequences without missing values therefore share
them, whatever their lengths: they are computed once, up to the longest, and only until they stop changing (``Gains``).
A missing value is left out by itself; the other values of its step are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.common.compiled import is_compiling
from seqmodels.common.constants import LOG_2PI
from seqmodels.inference.gaussian.packing import StepPacking

BLOCK_STEPS = 16  # number of steps between two checks for whether covariances still change
UNCHANGED = 1e-18  # largest relative effect of the first covariance where they are taken to be constant


@dataclass(frozen=True)
class Moves:
    """The matrices of the moves from each step to the next, for linear-Gaussian systems whose steps differ.

    Attributes:
        transition: transition matrix of each of G moves, ``(G, K, K)``; the last holds for all later moves.
        state_factor: factor u of the covariance ``uᵀu`` of each move's noise, ``(G, K, K)``.
    """

    transition: np.ndarray
    state_factor: np.ndarray


@dataclass(frozen=True)
class System:
    """The matrices of a linear-Gaussian system, float64, with factors ``u`` in the place of covariances ``uᵀu``.

    There are K hidden states and D features.

    Attributes:
        transition: transition matrix A, ``(K, K)``.
        state_factor: factor of the covariance Q of the states' noise, ``(K, K)``.
        observation: observation matrix C, ``(D, K)``.
        noise_factor: factor of the covariance R of the observations' noise, ``(D, D)``.
        initial_mean: mean of the first state, ``(K,)``.
        initial_factor: factor of the covariance of the first state, ``(K, K)``.
        moves: A and the factors of Q if they differ from step to step; None if the fields above hold at all steps.
    """

    transition: np.ndarray
    state_factor: np.ndarray
    observation: np.ndarray
    noise_factor: np.ndarray
    initial_mean: np.ndarray
    initial_factor: np.ndarray
    moves: Moves | None = None

    @property
    def every_move(self) -> Moves:
        """The transition matrix and noise factor of each move between steps, or of one that holds for all."""
        return Moves(self.transition[None], self.state_factor[None]) if self.moves is None else self.moves


def factor_of(covariance: np.ndarray) -> np.ndarray:
    """Return a factor u of a covariance, with ``uᵀu = covariance``, both ``(K, K)``; the covariance may be singular.

    The factor of a diagonal covariance is diagonal. Negative eigenvalues are taken for rounding errors and set to zero.
    """
    diagonal = np.diagonal(covariance)
    if not (covariance - np.diag(diagonal)).any():
        return np.diag(np.sqrt(np.maximum(diagonal, 0.0)))
    scale = np.sqrt(np.maximum(diagonal, 0.0))  # states of different units keep their digits
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.ascontiguousarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T * scale)


def factors_of(covariances: np.ndarray) -> np.ndarray:
    """Return a factor u with ``uᵀu = covariance`` of each of n covariances, ``(n, K, K)``; they may be singular."""
    scale = np.sqrt(np.maximum(np.diagonal(covariances, axis1=1, axis2=2), 0.0))  # (n, K)
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(covariances / scale[:, :, None] / scale[:, None])
    return np.ascontiguousarray(np.sqrt(np.maximum(values, 0.0))[:, :, None] * vectors.swapaxes(1, 2) * scale[:, None])


@dataclass(frozen=True)
class Gains:
    """The parts of the Kalman filter and smoother that do not depend on the observed values.

    The arrays have G steps, as many as the longest sequence or fewer; the last step then holds for all that follow.
    There are D features and K states.

    Attributes:
        white: ``s⁻¹``, with ``sᵀs`` the covariance of the innovation (prediction error), ``(G, D, D)``.
        gain: matrix that turns standardised innovations into the correction of the mean, ``(G, D, K)``.
        log_det: logarithm of the determinant of s, ``(G,)``.
        filtered: covariance of z_t given x_1 .. x_t, ``(G, K, K)``.
        backward: matrix of the smoother's step from z_t+1 to z_t, ``(G, K, K)``; no rows without smoothing.
        rest: covariance of z_t given z_t+1 and x_1 .. x_t, ``(G, K, K)``; no rows without smoothing.
        following: factor u of the covariance ``uᵀu`` of the state after the last step, given all steps, ``(K, K)``.
    """

    white: np.ndarray
    gain: np.ndarray
    log_det: np.ndarray
    filtered: np.ndarray
    backward: np.ndarray
    rest: np.ndarray
    following: np.ndarray

    @classmethod
    def of(cls, system: System, n_steps: int, observed: np.ndarray | None = None, *, smooths: bool = False) -> Gains:
        """Return the gains for sequences of up to ``n_steps`` steps, or for fewer steps if they become constant.

        Args:
            system: matrices of the system.
            n_steps: T, the number of steps of the longest sequence.
            observed: True where a value is observed, ``(T, D)`` bool; None if none is missing.
            smooths: True to compute ``backward`` and ``rest``, which only smoothing needs.
        """
        from seqmodels.inference.gaussian.compiled_kalman import covariances  # lazily: numba takes a while

        K, D = len(system.transition), len(system.observation)
        mask = np.zeros((0, D)) if observed is None else np.ascontiguousarray(observed, dtype=np.float64)
        factor, closed_loop, blocks = np.ascontiguousarray(system.initial_factor), np.eye(K), []
        first = factor.T @ factor
        moves = system.every_move
        constants = (
            _transposed(moves.transition),
            np.ascontiguousarray(moves.state_factor),
            np.ascontiguousarray(system.observation.T),
            np.ascontiguousarray(system.noise_factor),
        )
        may_settle = observed is None and system.moves is None
        size = BLOCK_STEPS if may_settle else n_steps
        for start in range(0, n_steps, size):
            n = min(size, n_steps - start)
            block = (np.empty((n, D, D)), np.empty((n, D, K)), np.empty(n), np.empty((n, K, K)))
            both = (np.empty((n if smooths else 0, K, K)), np.empty((n if smooths else 0, K, K)))
            factor = covariances(*constants, factor, mask, smooths, *block, *both, closed_loop)
            blocks.append((*block, *both))
            moved = system.transition @ block[3][-1] @ system.transition.T
            if may_settle and start + n < n_steps and _is_constant(first, factor, moved, closed_loop):
                break
        white, gain, log_det, filtered, backward, rest = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return cls(white, gain, log_det, filtered, backward, rest, factor)


def _transposed(matrices: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(matrices.swapaxes(1, 2))


def _is_constant(first: np.ndarray, factor: np.ndarray, moved: np.ndarray, closed_loop: np.ndarray) -> bool:
    """Return True if the predicted covariance of the Kalman filter has converged.

    Two solutions of the Riccati equation differ by ``Φ (P - P') Φᵀ``. The distance to the limit is therefore estimated
    from what Φ leaves of the first covariance and of the present one. It must be small also relative to ``moved``.

    Args:
        first: first predicted covariance, ``(K, K)``.
        factor: factor u of the present predicted covariance ``uᵀu``, ``(K, K)``.
        moved: present predicted covariance without the noise of its last step, ``(K, K)``.
        closed_loop: Φ, the product of the matrices that take a predicted mean to the next, ``(K, K)``.
    """
    now = factor.T @ factor
    scale = np.sqrt(np.maximum(np.minimum(np.diagonal(now), np.diagonal(moved)), 0.0))
    left = sum(np.abs(closed_loop.T @ covariance @ closed_loop) for covariance in (first, now))
    return bool((left <= UNCHANGED * np.outer(scale, scale)).all())


@dataclass(frozen=True)
class SequenceGroup:
    """A group of n sequences that miss the same values, packed: all first steps, then all second steps, and so on.

    Attributes:
        numbers: number of each sequence among all sequences, ``(n,)``.
        packing: order of the sequences and number of them at each of T steps.
        x: packed values less everything that does not come from the state, ``(N, D)``; 0 where missing.
        observed: True where a value is observed, ``(T, D)`` bool; None if nothing is missing, and lengths may then
            differ.
        drive: packed vectors that are added to the state on its way into each step but the first, ``(N, K)``; None for
            none.
        gaps: time from each step to the next, ``(T,)``, 0 after the last; None if steps are one apart.
    """

    numbers: np.ndarray
    packing: StepPacking
    x: np.ndarray
    observed: np.ndarray | None
    drive: np.ndarray | None = None
    gaps: np.ndarray | None = None

    @property
    def mask(self) -> np.ndarray:
        """1 where a value is observed and 0 where it is missing, ``(T, D)``; no rows if nothing is missing."""
        return np.zeros((0, self.x.shape[1])) if self.observed is None else self.observed.astype(np.float64)

    @property
    def n_observed(self) -> np.ndarray:
        """The number of observed values in each packed row (a step of a sequence), ``(N,)``."""
        if self.observed is None:
            return np.full(len(self.x), float(self.x.shape[1]))
        return np.repeat(self.observed.sum(1).astype(np.float64), self.packing.counts)


def grouped(
    values: Sequence[np.ndarray],
    drives: Sequence[np.ndarray] | None = None,
    gaps: Sequence[np.ndarray] | None = None,
) -> list[SequenceGroup]:
    """Divide sequences into groups that miss the same values and have the same gaps of time.

    Args:
        values: values of each sequence, ``(T_i, D)``, NaN where missing. The sequences of a group share covariances.
        drives: vectors that are added to the state of each step, ``(T_i, K)`` for each sequence; None for none.
        gaps: time from each step to the next, ``(T_i,)`` for each sequence; None if steps are one apart.
    """
    patterns: dict[tuple[int, bytes, bytes], list[int]] = {}
    for i, each in enumerate(values):
        missing = np.isnan(each)
        key = (len(each), missing.tobytes()) if missing.any() else (0, b"")
        patterns.setdefault((*key, b"" if gaps is None else gaps[i].tobytes()), []).append(i)
    groups = []
    for (length, _, _), numbers in patterns.items():
        observed = ~np.isnan(values[numbers[0]]) if length else None
        packing = StepPacking.of([len(values[i]) for i in numbers])
        x = packing.pack([np.asarray(values[i], dtype=np.float64) for i in numbers])
        drive = None if drives is None else packing.pack([drives[i] for i in numbers])
        x = np.nan_to_num(x) if length else x
        gaps_of_all = None if gaps is None else gaps[numbers[0]]
        groups.append(SequenceGroup(np.array(numbers), packing, x, observed, drive, gaps_of_all))
    return groups


@dataclass(frozen=True)
class FilteredMeans:
    """The means that the Kalman filter computes for the N packed rows (steps of sequences) of a group.

    Attributes:
        innovations: standardised innovations (prediction errors) ``e s⁻¹``, ``(N, D)``.
        predicted: E[z_t | x_1 .. x_t-1], ``(N, K)``.
        filtered: E[z_t | x_1 .. x_t], ``(N, K)``.
        log_prob: log p(x_t | x_<t) in nats, ``(N,)``.
        squares: sum of the squares of the standardised innovations, ``(N,)``.
        log_det: logarithm of the determinant of s, where ``sᵀs`` is the covariance of the innovation, ``(N,)``.
    """

    innovations: np.ndarray
    predicted: np.ndarray
    filtered: np.ndarray
    log_prob: np.ndarray
    squares: np.ndarray
    log_det: np.ndarray


def filter_group(system: System, gains: Gains, group: SequenceGroup, mean: np.ndarray | None = None) -> FilteredMeans:
    """Return the means and log-probabilities that the Kalman filter computes for a group of sequences.

    Args:
        system: matrices of the system.
        gains: gains of the filter for this system and the group's missing values.
        group: packed sequences.
        mean: means of the first states, ``(n, K)`` in packed order; None stands for that of the system.
    """
    from seqmodels.inference.gaussian.compiled_kalman import filter_means, filter_means_of_one

    K, (N, D), offsets = len(system.transition), group.x.shape, group.packing.offsets
    if mean is None:
        mean = np.tile(system.initial_mean, (len(group.numbers), 1))
    innovations, predicted, filtered = np.empty((N, D)), np.empty((N, K)), np.empty((N, K))
    drive = np.zeros((0, K)) if group.drive is None else group.drive
    matrices = _transposed(system.every_move.transition), np.ascontiguousarray(system.observation.T)
    given, means = (group.x, group.mask, drive), (innovations, predicted, filtered)
    if len(group.numbers) == 1 and is_compiling():
        filter_means_of_one(*matrices, gains.white, gains.gain, *given, mean[0].copy(), *means)
    else:
        filter_means(*matrices, gains.white, gains.gain, offsets, *given, np.ascontiguousarray(mean), *means)
    squares = np.einsum("nd,nd->n", innovations, innovations)
    steps = np.minimum(np.arange(group.packing.n_steps), len(gains.log_det) - 1)
    log_det = np.repeat(gains.log_det[steps], group.packing.counts)
    log_prob = -0.5 * (squares + LOG_2PI * group.n_observed) - log_det
    return FilteredMeans(innovations, predicted, filtered, log_prob, squares, log_det)


def predicted_variances(system: System, gains: Gains) -> np.ndarray:
    """Return the variances of the D features of each step given the steps before it, ``(G + 1, D)``.

    The last row holds for all later steps; G is the number of steps of ``gains``.

    Args:
        system: matrices of the system.
        gains: gains of the filter for this system.
    """
    moves, n = system.every_move, len(gains.filtered)
    at = np.minimum(np.arange(n), len(moves.transition) - 1)
    transition, noise = moves.transition[at], moves.state_factor[at]
    moved = transition @ gains.filtered @ transition.swapaxes(1, 2) + noise.swapaxes(1, 2) @ noise
    states = np.concatenate([(system.initial_factor.T @ system.initial_factor)[None], moved])
    of_states = np.einsum("dk,tkl,dl->td", system.observation, states, system.observation)
    return np.asarray(of_states + np.square(system.noise_factor).sum(0))


def smooth_group(gains: Gains, group: SequenceGroup, filtered: FilteredMeans) -> np.ndarray:
    """Return the smoothed means of the states given each whole sequence, ``(N, K)`` packed.

    Args:
        gains: gains that were computed with ``smooths=True``.
        group: packed sequences.
        filtered: result of ``filter_group``.
    """
    from seqmodels.inference.gaussian.compiled_kalman import smooth_means, smooth_means_of_one

    smoothed = np.empty_like(filtered.filtered)
    if len(group.numbers) == 1 and is_compiling():
        smooth_means_of_one(gains.backward, filtered.predicted, filtered.filtered, smoothed)
    else:
        smooth_means(gains.backward, group.packing.offsets, filtered.predicted, filtered.filtered, smoothed)
    return smoothed


def smooth_group_by_adjoints(system: System, gains: Gains, group: SequenceGroup, filtered: FilteredMeans) -> np.ndarray:
    """Return the smoothed means of the states given each whole sequence, by adjoints, ``(N, K)`` packed.

    Adjoints run the filter's equations backwards. Unlike ``smooth_group`` it does not need the covariance of a state
    given the next, and so does not invert the covariance of predicted states: where that is singular, as without
    observation noise, rounding would grow from step to step.
    """
    from seqmodels.inference.gaussian.compiled_kalman import smooth_means_by_adjoints

    smoothed = np.empty_like(filtered.filtered)
    matrices = np.ascontiguousarray(system.every_move.transition), np.ascontiguousarray(system.observation)
    rows = (group.packing.offsets, filtered.innovations, filtered.filtered)
    smooth_means_by_adjoints(*matrices, gains.white, gains.gain, gains.filtered, *rows, smoothed)
    return smoothed


@dataclass(frozen=True)
class CovarianceSums:
    """Weighted sums over sequences of the smoothed covariances of K states, given all of each sequence.

    Attributes:
        now: sums of Cov[z_t] at each of T steps, ``(T, K, K)``.
        across: sums of Cov[z_t+1, z_t], ``(T, K, K)``; zeros at the last step.
        before: sum of Cov[z_t] over all steps but the last of each sequence, ``(K, K)``.
    """

    now: np.ndarray
    across: np.ndarray
    before: np.ndarray

    def scaled(self, factor: float) -> CovarianceSums:
        """Return the sums multiplied by ``factor``, as for ``factor`` times as many sequences."""
        return CovarianceSums(factor * self.now, factor * self.across, factor * self.before)


def summed_covariances(gains: Gains, packing: StepPacking, weights: np.ndarray) -> CovarianceSums:
    """Return the sums of smoothed covariances over n packed sequences, weighted by ``weights (n,)``.

    Args:
        gains: gains that were computed with ``smooths=True``, for sequences without missing values or with the same
            ones.
        packing: packing of the sequences.
        weights: weight of each sequence, in their original order.
    """
    from seqmodels.inference.gaussian.compiled_kalman import smooth_covariances

    counts, n_steps = packing.counts, packing.n_steps
    reaching = np.concatenate([[0.0], np.cumsum(weights[packing.order])])  # total weight of the n longest
    going_on = np.append(reaching[counts[1:]], 0.0)
    ending = reaching[counts] - going_on
    shape = (n_steps, *gains.filtered.shape[1:])
    sums = CovarianceSums(np.empty(shape), np.zeros(shape), np.zeros(shape[1:]))
    arrays = (gains.backward, gains.rest, gains.filtered, ending, going_on, UNCHANGED)
    smooth_covariances(*arrays, sums.now, sums.across, sums.before)
    return sums


def covariances_by_adjoints(system: System, gains: Gains, group: SequenceGroup) -> CovarianceSums:
    """Return the smoothed covariances of one sequence, by the adjoints of the Kalman filter.

    All sequences of ``group`` must have one length; their covariances are the same.
    """
    from seqmodels.inference.gaussian.compiled_kalman import smooth_covariances_by_adjoints

    shape = (group.packing.n_steps, *gains.filtered.shape[1:])
    now, across = np.empty(shape), np.zeros(shape)
    moves = system.every_move
    state_covariance = _transposed(moves.state_factor) @ moves.state_factor
    matrices = (np.ascontiguousarray(moves.transition), state_covariance, np.ascontiguousarray(system.observation))
    smooth_covariances_by_adjoints(*matrices, gains.white, gains.gain, gains.filtered, group.mask, now, across)
    return CovarianceSums(now, across, now[:-1].sum(0))
