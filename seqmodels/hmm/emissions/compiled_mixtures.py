"""Mixtures of few diagonal Gaussians in compiled loops: densities and expected sums, some frames at a time.

As matrix products they are so small that reading and writing intermediate results takes most of the time. Here these
stay in the cache nearest to the processor, and components are computed twice: for the densities, and for the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_powers import power
from seqmodels.inference.chains.densities import LOG2E, LogDensities
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.threads import Part, run_parts

PART = 1 << 15  # frames of a part, which one thread takes and whose sums are kept apart
FRAMES = 512  # frames of a block, whose sums are in the precision of computation


@compiled(any_order=True)
def _components(
    theta: np.ndarray,
    k: int,
    features: np.ndarray,
    frames: tuple[int, int],
    smallest: Any,
    values: np.ndarray,
    peak: np.ndarray,
    total: np.ndarray,
    wide: bool | None,
) -> None:
    """Compute the weighted component densities of state ``k`` for some frames, relative to each frame's largest.

    Args:
        theta: coefficients of the log2 of weight times density, ``(M, R·K, F)``, for M components in each of the K
            states of R chains, and F features of a frame.
        k: index of the state among the R·K.
        features: features of the frames, ``(F, N)``.
        frames: first frame, and the frame after the last, at most ``FRAMES`` together.
        smallest: components are at least ``2^smallest`` times the largest.
        values: filled with the components over the largest, ``(M, FRAMES)``; if M is 1, with the same as ``peak``.
        peak: filled with the log2 of the largest component, ``(FRAMES,)``.
        total: filled with the sum of ``values`` over the components, ``(FRAMES,)``; left alone if M is 1.
        wide: None computes in float32, True in float64.
    """
    M, F, n = len(theta), len(features), frames[1] - frames[0]
    for m in range(M):
        value, weights = values[m], theta[m, k]
        weight, row = weights[0], features[0, frames[0] : frames[1]]
        for i in range(n):
            value[i] = weight * row[i]
        for f in range(1, F):
            weight, row = weights[f], features[f, frames[0] : frames[1]]
            for i in range(n):
                value[i] += weight * row[i]
    value = values[0]
    for i in range(n):
        peak[i] = value[i]
    if M == 1:
        return
    for m in range(1, M):
        value = values[m]
        for i in range(n):
            peak[i] = peak[i] if value[i] <= peak[i] else value[i]
    for m in range(M):
        value = values[m]
        for i in range(n):
            relative = value[i] - peak[i]
            value[i] = power(smallest if relative < smallest else relative, wide)
    value = values[0]
    for i in range(n):
        total[i] = value[i]
    for m in range(1, M):
        value = values[m]
        for i in range(n):
            total[i] += value[i]


@compiled(any_order=True)
def _scaled(
    theta: np.ndarray,
    features: np.ndarray,
    part: tuple[int, int],
    smallest: Any,
    least: Any,
    flush: Any,
    b: np.ndarray,
    log_peak: np.ndarray,
    wide: bool | None,
) -> None:
    """Fill ``b (R, K, N)`` with the densities of a part of the frames, relative to the largest of each frame and chain.

    Args:
        theta: coefficients of F features in the log2 of weight times density, ``(M, R·K, F)``, for M components in K
            states.
        features: features of N frames, ``(F, N)``.
        smallest: components count as at least ``2^smallest`` times the largest.
        wide: None computes in float32, True in float64.
        part: first frame, and the frame after the last.
        least: lowest finite number, which is the log of the largest density in a frame where all densities are zero.
        flush: relative densities of at most this become zero.
        b: relative densities to fill.
        log_peak: filled with the log of the largest density in nats, ``(R, N)``.
    """
    R, K, _ = b.shape
    M, zero = len(theta), b.dtype.type(0)
    values = np.empty((M, FRAMES), b.dtype)
    peak, total, largest = np.empty((K, FRAMES), b.dtype), np.empty((K, FRAMES), b.dtype), np.empty(FRAMES, b.dtype)
    for start in range(part[0], part[1], FRAMES):
        stop = min(start + FRAMES, part[1])
        n = stop - start
        for r in range(R):
            for i in range(n):
                largest[i] = least
            for k in range(K):
                of_state = peak[k]
                _components(theta, r * K + k, features, (start, stop), smallest, values, of_state, total[k], wide)
                for i in range(n):
                    largest[i] = of_state[i] if of_state[i] > largest[i] else largest[i]
            for k in range(K):
                of_state, sums, to = peak[k], total[k], b[r, k, start:stop]
                if M == 1:
                    for i in range(n):
                        sums[i] = 1
                for i in range(n):
                    density = power(of_state[i] - largest[i], wide) * sums[i]
                    to[i] = zero if density <= flush else density
            to_peak = log_peak[r, start:stop]
            for i in range(n):
                to_peak[i] = np.float64(largest[i]) / LOG2E


@compiled(any_order=True)
def _log_densities(
    theta: np.ndarray, features: np.ndarray, n_chains: int, smallest: Any, wide: bool | None, log_b: np.ndarray
) -> None:
    """Fill ``log_b (R, N, K)`` with the log-density of each frame in each state of R chains, in nats, float64.

    Args:
        theta: coefficients of F features in the log2 of weight times density, ``(M, R·K, F)``, for M components in K
            states.
        features: features of N frames, ``(F, N)``.
        n_chains: number of chains, R.
        smallest: components count as at least ``2^smallest`` times the largest.
        wide: None computes in float32, True in float64.
        log_b: log-densities to fill.
    """
    K, N, M = theta.shape[1] // n_chains, features.shape[1], len(theta)
    values = np.empty((M, FRAMES), theta.dtype)
    peak, total = np.empty(FRAMES, theta.dtype), np.empty(FRAMES, theta.dtype)
    for start in range(0, N, FRAMES):
        stop = min(start + FRAMES, N)
        for state in range(theta.shape[1]):
            _components(theta, state, features, (start, stop), smallest, values, peak, total, wide)
            r, k = state // K, state % K
            for i in range(stop - start):
                log_b[r, start + i, k] = np.float64(peak[i]) / LOG2E
            if M > 1:
                for i in range(stop - start):
                    log_b[r, start + i, k] += np.log(np.float64(total[i]))


@compiled(any_order=True)
def _add_up(
    theta: np.ndarray,
    features: np.ndarray,
    part: tuple[int, int],
    smallest: Any,
    gamma: np.ndarray,
    sums: np.ndarray,
    wide: bool | None,
) -> None:
    """Add the features of a part of the frames, weighted by posteriors of states and components, to ``sums (M, K, F)``.

    Args:
        theta: coefficients of F features in the log2 of weight times density, ``(M, K, F)``, for M components in K
            states.
        features: features of N frames, ``(F, N)``.
        part: first frame, and the frame after the last.
        smallest: components count as at least ``2^smallest`` times the largest.
        gamma: posteriors of the states, ``(K, N)``.
        sums: sums to add to.
        wide: None computes in float32, True in float64.
    """
    K = len(gamma)
    M, F = len(theta), len(features)
    values = np.empty((M, FRAMES), gamma.dtype)
    peak, total, weight = np.empty(FRAMES, gamma.dtype), np.empty(FRAMES, gamma.dtype), np.empty(FRAMES, gamma.dtype)
    for start in range(part[0], part[1], FRAMES):
        stop = min(start + FRAMES, part[1])
        n = stop - start
        for k in range(K):
            of_state = gamma[k, start:stop]
            if M > 1:
                _components(theta, k, features, (start, stop), smallest, values, peak, total, wide)
                for i in range(n):
                    weight[i] = of_state[i] / total[i]
            for m in range(M):
                resp = values[m]
                if M > 1:
                    for i in range(n):
                        resp[i] *= weight[i]
                else:
                    for i in range(n):
                        resp[i] = of_state[i]
                f = 0
                while f + 2 <= F:
                    x, y = features[f, start:stop], features[f + 1, start:stop]
                    sum_x, sum_y = resp[0] * x[0], resp[0] * y[0]
                    for i in range(1, n):
                        sum_x += resp[i] * x[i]
                        sum_y += resp[i] * y[i]
                    sums[m, k, f] += sum_x
                    sums[m, k, f + 1] += sum_y
                    f += 2
                if f < F:
                    x = features[f, start:stop]
                    sum_x = resp[0] * x[0]
                    for i in range(1, n):
                        sum_x += resp[i] * x[i]
                    sums[m, k, f] += sum_x


@dataclass(frozen=True)
class CompiledMixtures:
    """Densities of N frames under Gaussian mixtures of M components in K states, or in K states of each of R chains.

    The methods are those of ``Densities``, computed in compiled loops.

    Attributes:
        theta: coefficients of F features of a frame in the log2 of weight times density, ``(M, R·K, F)``.
        features: features of the frames, ``(F, N)``.
        smallest: components count as at least ``2^smallest`` times the largest of their state.
        n_chains: number of chains R; None means one chain, and arrays without a leading axis.
    """

    theta: Tensor
    features: Tensor
    smallest: float
    n_chains: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        lead = () if self.n_chains is None else (self.n_chains,)
        return (*lead, self.features.shape[1], self.theta.shape[1] // (self.n_chains or 1))

    @property
    def dtype(self) -> torch.dtype:
        return self.theta.dtype

    @property
    def device(self) -> torch.device:
        return self.theta.device

    def scaled(self, scratch: Scratch, flush: float) -> tuple[Tensor, Tensor]:
        n, K, R = self.features.shape[1], self.shape[-1], self.n_chains or 1
        b = scratch.buffer("b", (R, K, n), self.dtype, self.device)
        log_peak = scratch.buffer("peak", (R, n), torch.float64, self.device)
        theta, features = self.theta.contiguous().numpy(), self.features.contiguous().numpy()
        limits = [self._number(value) for value in (self.smallest, torch.finfo(self.dtype).min, flush)]
        results = b.numpy(), log_peak.numpy()

        def run(part: Part) -> None:
            _scaled(theta, features, part, limits[0], limits[1], limits[2], results[0], results[1], self._wide)

        run_parts(self._parts, run, is_worth_sharing=True)
        return (b[0].mT, log_peak[0]) if self.n_chains is None else (b.mT, log_peak)

    def log(self) -> Tensor:
        n, K, R = self.features.shape[1], self.shape[-1], self.n_chains or 1
        log_b = torch.empty(R, n, K, dtype=torch.float64)
        theta, features = self.theta.contiguous().numpy(), self.features.contiguous().numpy()
        _log_densities(theta, features, R, self._number(self.smallest), self._wide, log_b.numpy())
        log_b = log_b.to(self.dtype)
        return log_b[0] if self.n_chains is None else log_b

    def take(self, rows: Tensor) -> LogDensities:
        return LogDensities(replace(self, features=self.features[:, rows]).log())

    def double(self) -> LogDensities:
        return LogDensities(self.log().double())

    def chains(self, n: int) -> CompiledMixtures:
        return replace(self, n_chains=n)

    def chain(self, i: int) -> CompiledMixtures:
        K = self.shape[-1]
        return replace(self, theta=self.theta[:, i * K : (i + 1) * K].contiguous(), n_chains=None)

    def expected_sums(self, gamma: Tensor) -> Tensor:
        """Return posterior-weighted sums of F features over N frames for each component, ``(M, R·K, F)`` float64.

        There are M components in each of K states of R chains. ``gamma (N, R·K)`` are the posteriors of all these
        states.
        """
        theta, features = self.theta.contiguous().numpy(), self.features.contiguous().numpy()
        weights, smallest = gamma.T.contiguous().numpy(), self._number(self.smallest)
        sums = np.zeros((len(self._parts), *self.theta.shape))

        def run(part: Part) -> None:
            _add_up(theta, features, part, smallest, weights, sums[part[0] // PART], self._wide)

        run_parts(self._parts, run, is_worth_sharing=True)
        return torch.from_numpy(sums.sum(0))

    @property
    def _parts(self) -> list[Part]:
        """The first frame, and the frame after the last, of each part of the frames that one thread computes."""
        n = self.features.shape[1]
        return [(start, min(start + PART, n)) for start in range(0, n, PART)]

    def _number(self, value: float) -> Any:
        return self.theta.new_tensor(value).numpy()[()]

    @property
    def _wide(self) -> bool | None:
        return None if self.dtype == torch.float32 else True
