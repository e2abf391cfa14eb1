"""The parameters of a linear-Gaussian system, in encoded units, and the form that says which of them are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from seqmodels.common.array_checks import array_of
from seqmodels.inference.gaussian.kalman import Moves, System, factor_of, factors_of
from seqmodels.linear_gaussian.structures import ContinuousProcess

Start = Literal["learned", "stationary", "diffuse"]
TransitionType = Literal["full", "diag"]
NoiseType = Literal["full", "diag", "none"]
StateNoiseType = Literal["full", "diag", "identity"]
DOUBLINGS = 60  # of the steps summed for a stationary covariance
ON_FLOOR = 1 + 1e-6


@dataclass(frozen=True)
class SystemParameters:
    """The parameters of a linear-Gaussian system with K states z, D features x and inputs u, as float64 arrays::

        z_t = A z_t-1 + B u_t + w_t,  x_t = C z_t + D u_t + d + v_t

    Attributes:
        transition, state_covariance: A, and the covariance Q of the noise w, both ``(K, K)``.
        observation, intercept, observation_covariance: C ``(D, K)``, d ``(D,)``, and the covariance R of the noise v
            ``(D, D)``.
        initial_mean, initial_covariance: mean ``(K,)`` and covariance ``(K, K)`` of z_1.
        state_slopes, observation_slopes: B ``(K, U)`` and D ``(D, V)``, the effects of standardised inputs; without
            columns if no inputs are read.
        process: the process in continuous time of which A and Q are the matrices over a time of 1; None if there is
            none. Files do not store it.
    """

    transition: np.ndarray
    state_covariance: np.ndarray
    observation: np.ndarray
    intercept: np.ndarray
    observation_covariance: np.ndarray
    initial_mean: np.ndarray
    initial_covariance: np.ndarray
    state_slopes: np.ndarray
    observation_slopes: np.ndarray
    process: ContinuousProcess | None = field(default=None, kw_only=True)

    @property
    def system(self) -> System:
        """The matrices in the form that the Kalman filter takes, with factors u in the place of covariances ``uᵀu``."""
        return System(
            self.transition,
            factor_of(self.state_covariance),
            self.observation,
            factor_of(self.observation_covariance),
            self.initial_mean,
            factor_of(self.initial_covariance),
        )

    def system_over(self, gaps: np.ndarray | None) -> System:
        """Return the matrices for the Kalman filter of a sequence with gaps of time between its T steps.

        ``gaps (T,)`` are the times from each step to the next, in steps; None stands for gaps of one step.
        """
        if gaps is None:
            return self.system
        assert self.process is not None, "only a process in continuous time is given gaps"
        transition, covariance = self.process.over(gaps)
        return replace(self.system, moves=Moves(transition, factors_of(covariance)))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters but ``process`` as arrays by name, in the form that files and checkpoints store."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "process"}

    @classmethod
    def named(cls, arrays: Mapping[str, np.ndarray], process: ContinuousProcess | None = None) -> SystemParameters:
        """Return parameters with the given arrays, by field name, without any check.

        ``process`` is the process in continuous time that the matrices belong to, or None.
        """
        return cls(*(arrays[f.name] for f in fields(cls) if f.name != "process"), process=process)

    @classmethod
    def from_arrays(
        cls, state: Mapping[str, Any], n_states: int, n_features: int, n_inputs: tuple[int, int]
    ) -> SystemParameters:
        """Return the parameters whose arrays a file holds, after checking them.

        Args:
            state: arrays by name, as the method ``arrays`` returns them.
            n_states: number of states.
            n_features: number of features.
            n_inputs: number of inputs that states read, and number that observations read.

        Raises:
            ValueError: arrays of other shapes, numbers that are not finite, or matrices that are not covariances.
        """
        K, D = n_states, n_features
        shapes = {
            **{"transition": (K, K), "state_covariance": (K, K), "observation": (D, K), "intercept": (D,)},
            **{"observation_covariance": (D, D), "initial_mean": (K,), "initial_covariance": (K, K)},
            **{"state_slopes": (K, n_inputs[0]), "observation_slopes": (D, n_inputs[1])},
        }
        arrays = {name: array_of(state, name, np.float64, shape) for name, shape in shapes.items()}
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{name!r} has numbers that are not finite")
            if name.endswith("covariance"):
                check_covariance(repr(name), array)
        return cls.named(arrays)


def check_covariance(name: str, array: np.ndarray) -> None:
    """Raise ``ValueError`` if a matrix is not symmetric or has an eigenvalue below zero.

    Args:
        name: what the error message calls the matrix.
        array: the matrix, ``(K, K)``.
    """
    largest = float(np.abs(array).max(initial=0.0))
    if not np.allclose(array, array.T, rtol=1e-9, atol=1e-12 * largest):
        raise ValueError(f"{name} is no covariance: it is not symmetric")
    if np.linalg.eigvalsh(array).min() < -1e-9 * largest:
        raise ValueError(f"{name} is no covariance: an eigenvalue is below zero")


def stationary_covariance(transition: np.ndarray, state_covariance: np.ndarray) -> np.ndarray:
    """Return the stationary covariance P ``(K, K)`` of states that move by ``z_t = A z_t-1 + w_t``.

    It solves ``P = A P Aᵀ + Q``, by a sum of covariances whose number of terms doubles (Anderson and Moore 1979,
    section 6.7).

    Args:
        transition: A, ``(K, K)``.
        state_covariance: Q, the covariance of the noise w, ``(K, K)``.

    Raises:
        ValueError: the transition has an eigenvalue of magnitude 1 or more.
    """
    if not np.abs(np.linalg.eigvals(transition)).max() < 1:
        raise ValueError("the transition has an eigenvalue of magnitude 1 or more, so no distribution is stationary")
    total, power = state_covariance, transition
    for _ in range(DOUBLINGS):
        added = power @ total @ power.T
        total = total + added
        if np.abs(added).max() <= 1e-17 * np.abs(total).max():
            break
        power = power @ power
    return np.asarray(0.5 * (total + total.T))


@dataclass(frozen=True)
class Form:
    """The constraints of a linear-Gaussian system: which of its parameters are free, and what bounds them.

    Attributes:
        start: distribution of the first state: ``"learned"``, ``"stationary"`` or ``"diffuse"`` (unknown).
        transition, state_noise, observation_noise: forms of the transition matrix A, of the covariance Q of state noise
            and of the covariance R of observation noise, such as ``"full"`` or ``"diag"``.
        intercept: True if the intercept of the observations is learned.
        min_covariance: smallest variance in R, in encoded units; smallest eigenvalue if R is full.
        diffuse: True for each of K states that is unknown at first under a diffuse start, ``(K,)``; the others start
            stationary. None stands for all states.
        state_inputs, observation_inputs: columns of the inputs that states and observations are regressed on.
    """

    start: Start
    transition: TransitionType
    state_noise: StateNoiseType
    observation_noise: NoiseType
    intercept: bool
    min_covariance: float
    diffuse: np.ndarray | None = None
    state_inputs: tuple[int, ...] = ()
    observation_inputs: tuple[int, ...] = ()

    def n_parameters(self, n_states: int, n_features: int) -> int:
        """Return the number of free parameters of a system with this form.

        Changes of the states' coordinates that leave p(x) unchanged are not counted.
        """
        K, D = n_states, n_features
        triangle = K * (K + 1) // 2
        noise = {"full": triangle, "diag": K, "identity": 0}
        n = noise[self.state_noise] + (D if self.observation_noise == "diag" else D * (D + 1) // 2)
        n += D * self.intercept + K * len(self.state_inputs) + D * len(self.observation_inputs)
        n += {"learned": K + triangle, "diffuse": K, "stationary": 0}[self.start]
        if self.transition == "diag":
            return n + K + D * K - (0 if self.state_noise == "identity" else K)
        basis = {"full": K * K, "diag": triangle, "identity": K * (K - 1) // 2}
        return n + K * K + D * K - basis[self.state_noise]

    def directions(self, n_states: int) -> np.ndarray:
        """Return the rows of the ``(K, K)`` identity matrix for the q states whose first value is unknown, ``(q, K)``.

        ``n_states`` is K.
        """
        return np.eye(n_states) if self.diffuse is None else np.eye(n_states)[self.diffuse]

    def without_start(self, parameters: SystemParameters) -> SystemParameters:
        """Return the parameters with zeros as the mean and covariance of unknown (diffuse) first states.

        Other first states are stationary.
        """
        K = len(parameters.transition)
        covariance = np.zeros((K, K))
        if self.diffuse is not None and not self.diffuse.all():
            known = np.ix_(~self.diffuse, ~self.diffuse)
            covariance[known] = stationary_covariance(parameters.transition[known], parameters.state_covariance[known])
        return replace(parameters, initial_mean=np.zeros(K), initial_covariance=covariance)

    def learned_start(self, parameters: SystemParameters, mean: np.ndarray, covariance: np.ndarray) -> SystemParameters:
        """Return the parameters after a diffuse fit, with the given distribution of the first states that were unknown.

        Args:
            parameters: parameters of the fit.
            mean: mean of the first state, ``(K,)``.
            covariance: covariance of the first state, ``(K, K)``.
        """
        if self.diffuse is None:
            return replace(parameters, initial_mean=mean, initial_covariance=covariance)
        start, unknown = self.without_start(parameters), np.ix_(self.diffuse, self.diffuse)
        start.initial_covariance[unknown] = covariance[unknown]
        return replace(start, initial_mean=np.where(self.diffuse, mean, 0.0))

    def floored(self, covariance: np.ndarray) -> np.ndarray:
        """Return the maximum-likelihood noise covariance R ``(D, D)`` that this form and its floor of variances allow.

        ``covariance (D, D)`` is the covariance of the residuals of the observations.
        """
        if self.observation_noise == "diag":
            return np.asarray(np.diag(np.maximum(np.diagonal(covariance), self.min_covariance)))
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        if values[0] >= self.min_covariance:
            return np.asarray(0.5 * (covariance + covariance.T))
        floored = (vectors * np.maximum(values, self.min_covariance)) @ vectors.T
        return np.asarray(0.5 * (floored + floored.T))

    def floor_hits(self, covariance: np.ndarray) -> int:
        """Return how many variances of ``covariance (D, D)`` are at the floor ``min_covariance``.

        Eigenvalues are counted in the place of variances if the form of observation noise is ``"full"``.
        """
        if self.observation_noise == "none":
            return 0
        values = np.diagonal(covariance) if self.observation_noise == "diag" else np.linalg.eigvalsh(covariance)
        return int((values <= ON_FLOOR * self.min_covariance).sum())
