"""The Kalman filter and the Rauch-Tung-Striebel smoother, of arrays::

    z_1 ~ N(m, P),  z_t = A z_t-1 + w_t,  w_t ~ N(0, Q)
    x_t = C z_t + v_t,  v_t ~ N(0, R)

in square-root form (Kaminski, Bryson and Schmidt 1971; Kailath, Sayed and Hassibi 2000, *Linear estimation*, ch. 12):
factors of covariances are updated by orthogonal triangularisation, which never subtracts one covariance from another,
so that they stay positive semidefinite with half the digits of a condition number lost. Q, and the covariance of a
predicted state, may be singular.

Covariances do not depend on what is observed, only on what is missing. Sequences without missing values therefore share
them, whatever their lengths: they are computed once, up to the longest, and only until nothing changes any more
(``Gains``). Values that are missing are left out, each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.gaussian.packing import StepPacking

BLOCK_STEPS = 16  # between two looks at whether covariances still change
UNCHANGED = 1e-18  # of the covariance: by how much the first one may still matter where they are taken to be constant
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Moves:
    """How the state gets from a step to the next.

    Attributes:
        transition, state_factor: (G, K, K) A, and the factor of Q; the last is that of all steps that follow.
    """

    transition: np.ndarray
    state_factor: np.ndarray


@dataclass(frozen=True)
class System:
    """The matrices of a model; float64. A factor ``u`` of a covariance has ``uᵀu`` equal to it.

    Attributes:
        transition: A (K, K).
        state_factor: (K, K), of Q.
        observation: C (D, K).
        noise_factor: (D, D), of R.
        initial_mean: m (K,).
        initial_factor: (K, K), of P.
        moves: A and factors of Q where they differ from step to step; None: they are the above.
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
        """Of one step for all, or of each."""
        return Moves(self.transition[None], self.state_factor[None]) if self.moves is None else self.moves


def factor_of(covariance: np.ndarray) -> np.ndarray:
    """``(K, K)`` u with ``uᵀu`` the covariance, which may be singular; diagonal where that is.

    Eigenvalues below zero, which are rounding, are taken for zero.
    """
    diagonal = np.diagonal(covariance)
    if not (covariance - np.diag(diagonal)).any():
        return np.diag(np.sqrt(np.maximum(diagonal, 0.0)))
    scale = np.sqrt(np.maximum(diagonal, 0.0))  # states of different units keep their digits
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.ascontiguousarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T * scale)


def factors_of(covariances: np.ndarray) -> np.ndarray:
    """``(n, K, K)`` of each, as ``factor_of``."""
    scale = np.sqrt(np.maximum(np.diagonal(covariances, axis1=1, axis2=2), 0.0))  # (n, K)
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(covariances / scale[:, :, None] / scale[:, None])
    return np.ascontiguousarray(np.sqrt(np.maximum(values, 0.0))[:, :, None] * vectors.swapaxes(1, 2) * scale[:, None])


@dataclass(frozen=True)
class Gains:
    """What the filter and the smoother need of covariances; arrays as in ``compiled_kalman.covariances``.

    They have G steps, as many as the longest sequence or fewer: then the last stays for all that follow. ``following``
    (K, K) is the factor of the covariance of the state after the last step, given all of them.
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
        """Of so many steps.

        Args:
            system: the model.
            n_steps: T.
            observed: ``(T, D)`` bool, where values are missing; None: none are.
            smooths: whether there is to be smoothing.
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
        return cls(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)), factor)


def _transposed(matrices: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(matrices.swapaxes(1, 2))


def _is_constant(first: np.ndarray, factor: np.ndarray, moved: np.ndarray, closed_loop: np.ndarray) -> bool:
    """Whether the predicted covariance is where it will stay, also beside what of it is not new noise, ``moved``.

    Two solutions of the Riccati equation differ by ``Φ (P - P') Φᵀ`` after steps of closed loop Φ, so that the limit is
    as far as what Φ leaves of the first covariance and of the limit itself.
    """
    now = factor.T @ factor
    scale = np.sqrt(np.maximum(np.minimum(np.diagonal(now), np.diagonal(moved)), 0.0))
    left = sum(np.abs(closed_loop.T @ covariance @ closed_loop) for covariance in (first, now))
    return bool((left <= UNCHANGED * np.outer(scale, scale)).all())


@dataclass(frozen=True)
class SequenceGroup:
    """Sequences of one pattern of missing values, packed.

    Attributes:
        numbers: (n,) of the sequences among all of them.
        packing: of their steps.
        x: (N, D) packed, less what does not come from the state; 0 where missing.
        observed: (T, D) bool; None: nothing is missing, and lengths may differ.
        drive: (N, K) packed, what is added to the state on its way into each step but the first; None: nothing.
        gaps: (T,) time from each step to the next, 0 after the last; None: one step of the system.
    """

    numbers: np.ndarray
    packing: StepPacking
    x: np.ndarray
    observed: np.ndarray | None
    drive: np.ndarray | None = None
    gaps: np.ndarray | None = None

    @property
    def mask(self) -> np.ndarray:
        """``(T, D)`` 1 where observed, else 0; no rows where all are."""
        return np.zeros((0, self.x.shape[1])) if self.observed is None else self.observed.astype(np.float64)

    @property
    def n_observed(self) -> np.ndarray:
        """``(N,)`` observed values of each row."""
        if self.observed is None:
            return np.full(len(self.x), float(self.x.shape[1]))
        return np.repeat(self.observed.sum(1).astype(np.float64), self.packing.counts)


def grouped(
    values: Sequence[np.ndarray],
    drives: Sequence[np.ndarray] | None = None,
    gaps: Sequence[np.ndarray] | None = None,
) -> list[SequenceGroup]:
    """Sequences ``(T_i, D)``, NaN where values are missing, by their pattern of missing values and ``gaps (T_i,)``."""
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
    """Means of the packed rows of a group.

    Attributes:
        innovations: (N, D) standardised, ``e s⁻¹``.
        predicted: (N, K) E[z_t | x_1 .. x_t-1].
        filtered: (N, K) E[z_t | x_1 .. x_t].
        log_prob: (N,) nats of each step given those before.
    """

    innovations: np.ndarray
    predicted: np.ndarray
    filtered: np.ndarray
    log_prob: np.ndarray


def filter_group(system: System, gains: Gains, group: SequenceGroup, mean: np.ndarray | None = None) -> FilteredMeans:
    """The filter over a group; ``mean (n, K)`` of the first states, packed; None: the system's."""
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
    return FilteredMeans(innovations, predicted, filtered, -0.5 * (squares + LOG_2PI * group.n_observed) - log_det)


def smooth_group(gains: Gains, group: SequenceGroup, filtered: FilteredMeans) -> np.ndarray:
    """``(N, K)`` E[z_t | x_1 .. x_T], packed."""
    from seqmodels.inference.gaussian.compiled_kalman import smooth_means, smooth_means_of_one

    smoothed = np.empty_like(filtered.filtered)
    if len(group.numbers) == 1 and is_compiling():
        smooth_means_of_one(gains.backward, filtered.predicted, filtered.filtered, smoothed)
    else:
        smooth_means(gains.backward, group.packing.offsets, filtered.predicted, filtered.filtered, smoothed)
    return smoothed


def smooth_group_by_adjoints(system: System, gains: Gains, group: SequenceGroup, filtered: FilteredMeans) -> np.ndarray:
    """As ``smooth_group``, without the covariance of a state given the next, for which that of predicted states is
    inverted: where it is singular, as without noise of observations, rounding would grow from step to step.
    """
    from seqmodels.inference.gaussian.compiled_kalman import smooth_means_by_adjoints

    smoothed = np.empty_like(filtered.filtered)
    matrices = np.ascontiguousarray(system.every_move.transition), np.ascontiguousarray(system.observation)
    rows = (group.packing.offsets, filtered.innovations, filtered.filtered)
    smooth_means_by_adjoints(*matrices, gains.white, gains.gain, gains.filtered, *rows, smoothed)
    return smoothed


@dataclass(frozen=True)
class CovarianceSums:
    """Weighted sums over sequences of covariances given all of each.

    Attributes:
        now: (T, K, K) of Cov[z_t].
        across: (T, K, K) of Cov[z_t+1, z_t]; zeros at the last.
        before: (K, K) of Cov[z_t] over all steps but the last of each sequence.
    """

    now: np.ndarray
    across: np.ndarray
    before: np.ndarray

    def scaled(self, factor: float) -> CovarianceSums:
        """Those of ``factor`` times the sequences."""
        return CovarianceSums(factor * self.now, factor * self.across, factor * self.before)


def summed_covariances(gains: Gains, packing: StepPacking, weights: np.ndarray) -> CovarianceSums:
    """Over packed sequences, by ``weights (n,)``."""
    from seqmodels.inference.gaussian.compiled_kalman import smooth_covariances

    counts, n_steps = packing.counts, packing.n_steps
    reaching = np.concatenate([[0.0], np.cumsum(weights[packing.order])])  # by how many of the longest
    going_on = np.append(reaching[counts[1:]], 0.0)
    ending = reaching[counts] - going_on
    shape = (n_steps, *gains.filtered.shape[1:])
    sums = CovarianceSums(np.empty(shape), np.zeros(shape), np.zeros(shape[1:]))
    arrays = (gains.backward, gains.rest, gains.filtered, ending, going_on, UNCHANGED)
    smooth_covariances(*arrays, sums.now, sums.across, sums.before)
    return sums


def covariances_by_adjoints(system: System, gains: Gains, group: SequenceGroup) -> CovarianceSums:
    """Of one sequence of a group of one length, by the adjoints of ``smooth_group_by_adjoints``."""
    from seqmodels.inference.gaussian.compiled_kalman import smooth_covariances_by_adjoints

    shape = (group.packing.n_steps, *gains.filtered.shape[1:])
    now, across = np.empty(shape), np.zeros(shape)
    moves = system.every_move
    state_covariance = _transposed(moves.state_factor) @ moves.state_factor
    matrices = (np.ascontiguousarray(moves.transition), state_covariance, np.ascontiguousarray(system.observation))
    smooth_covariances_by_adjoints(*matrices, gains.white, gains.gain, gains.filtered, group.mask, now, across)
    return CovarianceSums(now, across, now[:-1].sum(0))
