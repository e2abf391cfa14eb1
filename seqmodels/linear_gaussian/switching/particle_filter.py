"""The Rao-Blackwellised particle filter of a switching linear-Gaussian system.

A particle is a path of regimes; given it, the state is a Gaussian in closed form (Chen and Liu 2000; Doucet et al.
2000, *Rao-Blackwellised particle filtering*). At each step every particle is continued by every regime, so that none is
drawn, and n of these children are kept: those of a weight of ``c`` or more as they are, each other one with probability
``weight / c``, and then with weight ``c`` (Fearnhead and Clifford 2003). While there are no more than n paths it is
exact.

What it gives for ``p(x_t | x_<t)`` is a mixture of Gaussians, which integrates to one; the product over steps is an
unbiased estimate of ``p(x_1 .. x_T)``. Whether a child is kept depends on its weight and one uniform number a step,
the same for all sequences.

Loops are compiled by numba where it is installed. Observations are whitened: ``v_t`` has the covariance of identity, so
that features are read one after the other, and what is missing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from seqmodels.linear_gaussian.switching.parameters import SwitchingParameters

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class WhitenedSystem:
    """A switching system with whitened observations (noise of variance 1), as the particle filter reads it.

    Attributes:
        parameters: parameters in encoded units.
        is_diagonal: True if the noise covariance of every regime is diagonal, so that single features may be missing.
    """

    parameters: SwitchingParameters

    @cached_property
    def is_diagonal(self) -> bool:
        R = self.parameters.observation_covariance
        return not (R * (1 - np.eye(R.shape[1]))).any()

    @cached_property
    def noise_factors(self) -> np.ndarray:
        """Lower Cholesky factors of the covariance of the observation noise in each of S regimes, ``(S, D, D)``."""
        return np.linalg.cholesky(self.parameters.observation_covariance)

    @cached_property
    def log_dets(self) -> np.ndarray:
        """Logarithms of the diagonal of the noise factor of each of S regimes, ``(S, D)``."""
        return np.ascontiguousarray(np.log(np.diagonal(self.noise_factors, axis1=1, axis2=2)))

    @cached_property
    def observation(self) -> np.ndarray:
        """The observation matrix of each of S regimes for whitened observations, ``(S, D, K)``."""
        return np.ascontiguousarray(np.linalg.solve(self.noise_factors, self.parameters.observation))

    def whitened(self, x: np.ndarray) -> np.ndarray:
        """Return observations whitened under each of S regimes, ``(T, S, D)``; 0 where a value is missing.

        Raises:
            ValueError: a step with some but not all values missing, where the noise of features is correlated.
        """
        missing = np.isnan(x)
        if not self.is_diagonal and (missing.any(1) & ~missing.all(1)).any():
            raise ValueError("features are missing of a frame whose noise is correlated; pass observation_noise='diag'")
        off = np.where(missing[:, None], 0.0, x[:, None] - self.parameters.intercept)  # (T, S, D)
        white = np.linalg.solve(self.noise_factors[None], off[..., None])[..., 0]
        return np.ascontiguousarray(white)

    @cached_property
    def log_initial(self) -> np.ndarray:
        """The log-probability of each of S regimes at the first step, ``(S,)``; -inf where it cannot be first."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.parameters.initial))

    @cached_property
    def log_transition(self) -> np.ndarray:
        """The log-probability of the next regime (column) after each regime (row), ``(S, S)``.

        It is -inf where a regime cannot follow.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.parameters.regime_transition))

    @cached_property
    def matrices(self) -> Matrices:
        """The arrays of the chain of regimes and of the dynamics, in the order that ``compiled_filter`` takes.

        They are log-probabilities of first regimes and of transitions, transition matrices, drifts and state noise, and
        mean and covariance of the first state.
        """
        p, array = self.parameters, partial(np.ascontiguousarray, dtype=np.float64)
        dynamics = array(p.transition), array(p.drift), array(p.state_covariance)
        return (self.log_initial, self.log_transition, *dynamics, array(p.initial_mean), array(p.initial_covariance))


@dataclass(frozen=True)
class FilteredPaths:
    """The result of the particle filter over one sequence of T steps, for S regimes.

    Attributes:
        log_prob: log-probability of each step given those before, in nats, ``(T,)``.
        regimes: probability of each regime given the steps so far, ``(T, S)``.
        paths: regimes of the L paths that are left at the end, ``(L, T)``.
        log_weights: normalised log-weights of these paths, ``(L,)``.
    """

    log_prob: np.ndarray
    regimes: np.ndarray
    paths: np.ndarray
    log_weights: np.ndarray


def uniforms(seed: int, n: int) -> np.ndarray:
    """Return n uniform random numbers in [0, 1), ``(n,)``; with a larger n the first ones stay the same."""
    return np.random.default_rng(seed).random(n)


def n_paths(step: int, n_regimes: int, n_particles: int) -> int:
    """Return how many paths of regimes are kept after a number of steps.

    These are all possible paths, ``n_regimes ** step``, or ``n_particles`` if there are more.
    """
    n = 1
    for _ in range(step):
        n *= n_regimes
        if n >= n_particles:
            return n_particles
    return n


def filter_sequence(system: WhitenedSystem, x: np.ndarray, n_particles: int, seed: int) -> FilteredPaths:
    """Return the result of the particle filter over one sequence.

    Args:
        system: whitened switching system.
        x: sequence of T steps, ``(T, D)``, NaN where a value is missing.
        n_particles: largest number of paths of regimes to keep.
        seed: seed of the random numbers that decide which paths are kept.
    """
    from seqmodels.linear_gaussian.switching.compiled_filter import filter_steps  # lazily: numba takes a while

    T, S = len(x), len(system.log_initial)
    n = n_particles
    log_prob, regimes = np.empty(T), np.empty((T, S))
    parents, chosen = np.zeros((T, n), dtype=np.int64), np.zeros((T, n), dtype=np.int64)
    log_weights = np.empty(n)
    seen = (system.observation, system.log_dets, system.whitened(x), ~np.isnan(x), uniforms(seed, T))
    n_left = filter_steps(*system.matrices, *seen, n, log_prob, regimes, parents, chosen, log_weights)
    paths, at = np.empty((n_left, T), dtype=np.int64), np.arange(n_left)
    for t in range(T - 1, -1, -1):
        paths[:, t] = chosen[t, at]
        at = parents[t, at]
    return FilteredPaths(log_prob, regimes, paths, log_weights[:n_left])
