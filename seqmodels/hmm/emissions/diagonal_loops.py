"""Mixtures of diagonal Gaussians in compiled loops, for so few frames that each tensor operation would cost more.

Densities are computed from deviations in float64, so that neither the level of the data nor the width of a component
costs precision::

    log w_m N(x; μ_m, v_m) = log w_m - ½ Σ_d [ (x_d - μ_md)² / v_md + log 2π v_md ]

over the features d that are observed. Parameters have the form that ``GaussianMixture.unpack`` returns: log-weights
``(K, M)``, means and log-variances ``(K, M, D)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.common.constants import LOG_2PI
from seqmodels.hmm.emissions.pseudo_frames import Believed
from seqmodels.observations import GaussianMixture

LEAST_COUNT = 1e-10  # fewest expected frames from which a mean is learned
FRAMES = 512  # frames of a block, whose intermediate values stay in the nearest cache


@compiled(any_order=True)
def log_densities(
    x: np.ndarray,
    has_missing: bool,
    log_weights: np.ndarray,
    means: np.ndarray,
    log_variances: np.ndarray,
    log_floor: float,
    log_b: np.ndarray,
    responsibilities: np.ndarray,
) -> None:
    """Compute log-densities of N frames in K states, mixtures of M diagonal Gaussians, and posteriors of the
    components.

    Args:
        x: frames of D features, ``(D, N)``, NaN where missing.
        has_missing: True if any value is missing.
        log_weights: log-weights of the components, ``(K, M)``.
        means, log_variances: means and log-variances of the components, ``(K, M, D)``; log-variances below
            ``log_floor`` count as ``log_floor``.
        log_floor: log of the smallest variance allowed.
        log_b: filled with log-densities in nats, ``(N, K)``.
        responsibilities: filled with p(m | x, k), ``(M, K, N)``, if M > 1.
    """
    K, M, D = means.shape
    N = x.shape[1]
    values, peak, total = np.empty((M, FRAMES)), np.empty(FRAMES), np.empty(FRAMES)
    for start in range(0, N, FRAMES):
        n = min(FRAMES, N - start)
        for k in range(K):
            for m in range(M):
                value = values[m]
                constant = log_weights[k, m]
                if not has_missing:
                    for d in range(D):
                        constant -= 0.5 * (max(log_variances[k, m, d], log_floor) + LOG_2PI)
                for i in range(n):
                    value[i] = constant
                for d in range(D):
                    mean, frames = means[k, m, d], x[d, start : start + n]
                    log_variance = max(log_variances[k, m, d], log_floor)
                    half, log_scale = 0.5 * np.exp(-log_variance), 0.5 * (log_variance + LOG_2PI)
                    if has_missing:
                        for i in range(n):
                            deviation = frames[i] - mean
                            term = half * deviation * deviation + log_scale
                            value[i] -= term if deviation == deviation else 0.0
                    else:
                        for i in range(n):
                            deviation = frames[i] - mean
                            value[i] -= half * deviation * deviation
            if M == 1:
                value = values[0]
                for i in range(n):
                    log_b[start + i, k] = value[i]
                continue
            for i in range(n):
                peak[i], total[i] = -np.inf, 0.0
            for m in range(M):
                value = values[m]
                for i in range(n):
                    peak[i] = value[i] if value[i] > peak[i] else peak[i]
            for m in range(M):
                value = values[m]
                for i in range(n):
                    value[i] = np.exp(value[i] - peak[i]) if value[i] > -np.inf else 0.0
                    total[i] += value[i]
            for m in range(M):
                value, share = values[m], responsibilities[m, k, start : start + n]
                for i in range(n):
                    share[i] = value[i] / total[i] if total[i] > 0.0 else 0.0
            for i in range(n):
                log_b[start + i, k] = np.log(total[i]) + peak[i]


@compiled(any_order=True)
def add_expected_sums(
    x: np.ndarray, has_missing: bool, gamma: np.ndarray, responsibilities: np.ndarray, times: float, sums: np.ndarray
) -> None:
    """Add posterior-weighted sums over N frames, the expected statistics of Gaussian mixtures, to ``sums``.

    Args:
        x: frames, ``(D, N)``, NaN where missing.
        has_missing: True if any value is missing.
        gamma: posteriors of K states, ``(N, K)``.
        responsibilities: posteriors of M components, p(m | x, k), ``(M, K, N)``; empty if M is 1.
        times: weight of all these frames.
        sums: array to add to, ``(K, M, 3 D + 1)``: for each state and component D sums of x, D of x², D of how often
            each feature was observed, and the number of frames.
    """
    K, M, _ = sums.shape
    D, N = x.shape
    weight = np.empty(FRAMES)
    for start in range(0, N, FRAMES):
        n = min(FRAMES, N - start)
        for k in range(K):
            for m in range(M):
                of_component, count = sums[k, m], 0.0
                for i in range(n):
                    weight[i] = times * gamma[start + i, k]
                if len(responsibilities) > 1:
                    share = responsibilities[m, k, start : start + n]
                    for i in range(n):
                        weight[i] *= share[i]
                for i in range(n):
                    count += weight[i]
                of_component[3 * D] += count
                for d in range(D):
                    frames, first, second, observed = x[d, start : start + n], 0.0, 0.0, 0.0
                    if has_missing:
                        for i in range(n):
                            is_here = frames[i] == frames[i]
                            value = frames[i] if is_here else 0.0
                            first += weight[i] * value
                            second += weight[i] * value * value
                            observed += weight[i] if is_here else 0.0
                    else:
                        for i in range(n):
                            first += weight[i] * frames[i]
                            second += weight[i] * frames[i] * frames[i]
                        observed = count
                    of_component[d] += first
                    of_component[D + d] += second
                    of_component[2 * D + d] += observed


@compiled
def count_on_floor(log_weights: np.ndarray, log_variances: np.ndarray, log_floor: float) -> int:
    """Return the number of states with a component that has weight and a variance at its lower bound.

    Args:
        log_weights: log-weights of M components in each of K states, ``(K, M)``.
        log_variances: log-variances of their D features, ``(K, M, D)``.
        log_floor: log of the bound; a log-variance is at it if it is at most ``log_floor + 1e-6``.
    """
    K, M, D = log_variances.shape
    hits = 0
    for k in range(K):
        is_hit = False
        for m in range(M):
            for d in range(D):
                is_hit |= log_weights[k, m] > -np.inf and log_variances[k, m, d] <= log_floor + 1e-6
        hits += is_hit
    return hits


@compiled
def maximise(
    sums: np.ndarray,
    is_spherical: bool,
    floor: float,
    prior: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    log_weights: np.ndarray,
    means: np.ndarray,
    log_variances: np.ndarray,
) -> int:
    """Do the M-step of diagonal Gaussian mixtures, in place: maximise the expected log-likelihood plus log-prior.

    Variances are at least ``floor``. A component without frames keeps its parameters, and a feature that was never
    observed keeps its mean and variance.

    Args:
        sums: expected statistics from ``add_expected_sums``, ``(K, M, 3 D + 1)`` for K states, M components and D
            features.
        is_spherical: True if each component has one variance for all features.
        floor: smallest variance.
        prior: number of frames that the prior adds for each component, ``(K, M)``, and for its mean, ``(K, M)``; the
            mean, ``(K, M, D)``, and the variance, ``(K, M, D)``, of these frames.
        log_weights, means, log_variances: the parameters, ``(K, M)`` and twice ``(K, M, D)``, which are overwritten.

    Returns:
        The number of states with a variance at the floor.
    """
    K, M, D = means.shape
    first, second, observed = np.empty(D), np.empty(D), np.empty(D)
    weights = np.empty(M)
    for k in range(K):
        total = 0.0
        for m in range(M):
            weights[m] = sums[k, m, 3 * D] + prior[0][k, m] if log_weights[k, m] > -np.inf else 0.0
            total += weights[m]
        for m in range(M):
            of_component, squares, values = sums[k, m], 0.0, 0.0
            is_there = log_weights[k, m] > -np.inf
            count, of_mean = (prior[0][k, m], prior[1][k, m]) if is_there else (0.0, 0.0)
            for d in range(D):
                first[d], second[d], observed[d] = of_component[d], of_component[D + d], of_component[2 * D + d]
                if count > 0.0 or of_mean > 0.0:
                    mean, seen = prior[2][k, m, d], observed[d] + of_mean
                    new_mean = (first[d] + of_mean * mean) / seen if seen > LEAST_COUNT else means[k, m, d]
                    first[d] += of_mean * mean + (count - of_mean) * new_mean
                    second[d] += of_mean * mean * mean + (count - of_mean) * new_mean * new_mean
                    second[d] += count * prior[3][k, m, d]
                    observed[d] += count
                values += observed[d]
                mean = first[d] / observed[d] if observed[d] > LEAST_COUNT else means[k, m, d]
                squares += second[d] - observed[d] * mean * mean
            for d in range(D):
                if observed[d] > LEAST_COUNT and (not is_spherical or values > LEAST_COUNT):
                    means[k, m, d] = first[d] / observed[d]
                    if not is_spherical:
                        variance = second[d] / observed[d] - means[k, m, d] * means[k, m, d]
                        log_variances[k, m, d] = np.log(max(variance, floor))
                if is_spherical and values > LEAST_COUNT:
                    log_variances[k, m, d] = np.log(max(squares / values, floor))
            if total > 0.0:
                log_weights[k, m] = np.log(weights[m] / total) if weights[m] > 0.0 else -np.inf
    return count_on_floor(log_weights, log_variances, math.log(floor))


@compiled
def log_prior(
    prior: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    log_weights: np.ndarray,
    means: np.ndarray,
    log_variances: np.ndarray,
    log_floor: float,
) -> float:
    """Return the log-density of the prior of diagonal Gaussian mixtures at the parameters in nats, up to a constant.

    Args:
        prior: number of frames that the prior adds for each component, ``(K, M)``, and for its mean, ``(K, M)``; the
            mean, ``(K, M, D)``, and the variance, ``(K, M, D)``, of these frames.
        log_weights, means, log_variances: parameters of M components in each of K states, ``(K, M)`` and twice ``(K, M,
            D)``.
        log_floor: log of the smallest variance; lower log-variances count as this.
    """
    K, M, D = means.shape
    total = 0.0
    for k in range(K):
        for m in range(M):
            if log_weights[k, m] > -np.inf:
                log_det, spread, distance = 0.0, 0.0, 0.0
                for d in range(D):
                    log_variance = max(log_variances[k, m, d], log_floor)
                    precision, deviation = np.exp(-log_variance), means[k, m, d] - prior[2][k, m, d]
                    log_det += log_variance
                    spread += prior[3][k, m, d] * precision
                    distance += deviation * deviation * precision
                total += prior[0][k, m] * (log_weights[k, m] - 0.5 * (log_det + spread))
                total -= 0.5 * prior[1][k, m] * distance
    return total


# -- tensors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FewFramesMemo:
    """The frames and responsibilities of an E-step, from which the expected sums for the M-step are computed.

    Attributes:
        x: N frames of D features, ``(D, N)``, NaN where missing.
        has_missing: True if any value is missing.
        responsibilities: posteriors of M components in K states, p(m | x, k), ``(M, K, N)``; empty if there is one
            component.
    """

    x: np.ndarray
    has_missing: bool
    responsibilities: np.ndarray

    def expected_sums(self, gamma: Tensor) -> Tensor:
        """Return the expected statistics of M components in K states, given state posteriors ``gamma (N, K)``.

        They are, as ``(M, K, 3 D + 1)``, sums of x, of x², of how often each of the D features was observed, and the
        number of frames.
        """
        sums = np.zeros((gamma.shape[1], max(1, len(self.responsibilities)), 3 * len(self.x) + 1))
        add_expected_sums(self.x, self.has_missing, gamma.double().numpy(), self.responsibilities, 1.0, sums)
        return torch.from_numpy(sums).transpose(0, 1)


def densities_of_few(
    x: np.ndarray, has_missing: bool, table: tuple[Tensor, Tensor, Tensor], floor: float
) -> tuple[Tensor, FewFramesMemo]:
    """Return log-densities under diagonal Gaussian mixtures, ``(N, K)`` in nats, and results that the M-step uses
    again.

    Args:
        x: N frames of D features, ``(D, N)`` float64, NaN where missing.
        has_missing: True if any value is missing.
        table: parameters of M components in each of K states: log-weights ``(K, M)``, means ``(K, M, D)`` and
            log-variances ``(K, M, D)``, float64.
        floor: smallest variance.
    """
    log_weights, means, log_variances = (np.ascontiguousarray(each.numpy()) for each in table)
    K, M = log_weights.shape
    log_b, responsibilities = np.empty((x.shape[1], K)), np.empty((M if M > 1 else 0, K, x.shape[1]))
    log_densities(x, has_missing, log_weights, means, log_variances, math.log(floor), log_b, responsibilities)
    return torch.from_numpy(log_b), FewFramesMemo(x, has_missing, responsibilities)


class DiagonalInLoops:
    """EM computations for diagonal Gaussian mixtures in compiled loops, which change the parameters in place.

    The methods are those of ``EmissionInLoops``.

    Args:
        observation: the mixture.
        table: its P parameters in each of K states, ``(K, P)``.
        frames: frames of each batch, ``(N, D)`` float64, NaN where missing.
    """

    def __init__(self, observation: GaussianMixture, table: Tensor, frames: Sequence[Tensor]) -> None:
        self.observation, size = observation, frames[0].shape[1]
        self.log_weights, self.means, self.log_variances = (
            each.numpy().copy() for each in observation.unpack(table, size)
        )
        self.all = [each.numpy().copy() for each in observation.unpack_all(table, size)]
        self.log_floor, self.prior = math.log(observation.min_covariance), self._prior()
        self.n_on_floor = int(count_on_floor(self.log_weights, self.log_variances, self.log_floor))
        self.sums = np.empty((*self.log_weights.shape, 3 * size + 1))
        self.frames = [np.ascontiguousarray(x.numpy().T) for x in frames]
        self.has_missing = [bool(np.isnan(x).any()) for x in self.frames]
        K, M = self.all[0].shape
        self.log_b = [np.empty((len(x), K)) for x in frames]
        self.responsibilities = [np.empty((M if M > 1 else 0, K, len(x))) for x in frames]

    def _prior(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return numbers of pseudo-frames of components and of their means, ``(K, M)``, and their means and variances.

        Means and variances are ``(K, M, D)``. The numbers are zero without a prior. ``maximise`` takes the four arrays.
        """
        if self.observation.prior is None:
            none = np.zeros(self.log_weights.shape)
            return none, none, np.zeros(self.means.shape), np.ones(self.means.shape)
        log_weights = torch.from_numpy(self.log_weights)
        believed = Believed.of(self.observation.prior, log_weights, self.means.shape[-1])
        count, mean_count = believed.count[..., 0], believed.mean_count[..., 0]
        of_all = (count, mean_count, believed.mean, believed.variance)
        first, second, third, fourth = (each.contiguous().numpy() for each in of_all)
        return first, second, third, fourth

    def log_densities(self, i: int) -> np.ndarray:
        log_weights, means, log_variances = self.all
        log_densities(
            self.frames[i], self.has_missing[i], log_weights, means, log_variances, self.log_floor, self.log_b[i],
            self.responsibilities[i],
        )  # fmt: skip
        return self.log_b[i]

    def forget(self) -> None:
        self.sums.fill(0.0)

    def add(self, i: int, gamma: np.ndarray, weight: float) -> None:
        add_expected_sums(self.frames[i], self.has_missing[i], gamma, self.responsibilities[i], weight, self.sums)

    def maximise(self) -> None:
        is_spherical, floor = self.observation.covariance_type == "spherical", self.observation.min_covariance
        parameters, M = (self.log_weights, self.means, self.log_variances), self.log_weights.shape[1]
        self.n_on_floor = int(maximise(self.sums, is_spherical, floor, self.prior, *parameters))
        for every, learned in zip(self.all, parameters, strict=True):
            every[:, :M] = learned
        if self.observation.background:
            self.all[0][:, :M] += math.log1p(-self.observation.background)

    def log_prior(self) -> float:
        if self.observation.prior is None:
            return 0.0
        return float(log_prior(self.prior, self.log_weights, self.means, self.log_variances, self.log_floor))

    def floor_hits(self) -> int:
        return self.n_on_floor

    def table(self) -> Tensor:
        arrays = (self.log_weights, self.means, self.log_variances)
        return self.observation.pack(*(torch.from_numpy(each) for each in arrays))

    def statistics(self) -> tuple[Tensor, ...]:
        return (torch.from_numpy(self.sums),)
