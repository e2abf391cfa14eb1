"""The parameters of a linear-Gaussian system whose matrices switch, in encoded units, and which of them are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from seqmodels.common.array_checks import array_of
from seqmodels.linear_gaussian.parameters import Form, SystemParameters, check_covariance

Switching = Literal["dynamics", "observation", "both"]


@dataclass(frozen=True)
class SwitchingParameters:
    """The matrices of each of S regimes of a switching system, and the Markov chain of regimes, as float64 arrays::

        z_t = A[s] z_t-1 + b[s] + w_t,  x_t = C[s] z_t + d[s] + v_t

    Here z are K hidden states, x are D features, and s_t is the regime. A matrix that is the same in all regimes is
    repeated.

    Attributes:
        initial, regime_transition: probabilities of the first regime, ``(S,)``, and of the next regime after each,
            ``(S, S)``.
        transition, drift, state_covariance: A ``(S, K, K)``, b ``(S, K)``, and the covariance Q of the noise w ``(S, K,
            K)``.
        observation, intercept, observation_covariance: C ``(S, D, K)``, d ``(S, D)``, and the covariance R of the noise
            v ``(S, D, D)``.
        initial_mean, initial_covariance: mean ``(K,)`` and covariance ``(K, K)`` of z_1.
    """

    initial: np.ndarray
    regime_transition: np.ndarray
    transition: np.ndarray
    drift: np.ndarray
    state_covariance: np.ndarray
    observation: np.ndarray
    intercept: np.ndarray
    observation_covariance: np.ndarray
    initial_mean: np.ndarray
    initial_covariance: np.ndarray

    @classmethod
    def repeated(cls, system: SystemParameters, n_regimes: int) -> SwitchingParameters:
        """Return parameters of ``n_regimes`` equally probable regimes that all have the matrices of ``system``."""
        uniform = np.full((n_regimes, n_regimes), 1 / n_regimes)
        each = {
            "transition": system.transition,
            "drift": np.zeros(len(system.transition)),
            "state_covariance": system.state_covariance,
            "observation": system.observation,
            "intercept": system.intercept,
            "observation_covariance": system.observation_covariance,
        }
        arrays = {name: np.repeat(array[None], n_regimes, 0) for name, array in each.items()}
        return cls(
            initial=uniform[0],
            regime_transition=uniform,
            **arrays,
            initial_mean=system.initial_mean,
            initial_covariance=system.initial_covariance,
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of regimes, the number of hidden states and the number of features, as a tuple."""
        S, D, K = self.observation.shape
        return S, K, D

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters as arrays by name, in the form in which files store them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def shapes(cls, n_regimes: int, n_states: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of parameters by its name, for the given sizes."""
        S, K, D = n_regimes, n_states, n_features
        return {
            **{"initial": (S,), "regime_transition": (S, S), "transition": (S, K, K), "drift": (S, K)},
            **{"state_covariance": (S, K, K), "observation": (S, D, K), "intercept": (S, D)},
            **{"observation_covariance": (S, D, D), "initial_mean": (K,), "initial_covariance": (K, K)},
        }

    @classmethod
    def from_arrays(
        cls, state: Mapping[str, Any], n_regimes: int, n_states: int, n_features: int
    ) -> SwitchingParameters:
        """Return the parameters whose arrays a file holds, after checking them.

        ``state`` has the arrays by name, as the method ``arrays`` returns them.

        Raises:
            ValueError: arrays of other shapes, numbers that are not finite, matrices that are not covariances, or rows
                that are not probabilities.
        """
        shapes = cls.shapes(n_regimes, n_states, n_features)
        parameters = cls(**{name: array_of(state, name, np.float64, shape) for name, shape in shapes.items()})
        parameters.check()
        return parameters

    def check(self) -> None:
        """Raise ``ValueError`` if the parameters are not those of a switching system.

        Numbers must be finite, covariances symmetric and positive semidefinite (R positive definite), and rows of
        probabilities must sum to 1.
        """
        for name, array in self.arrays().items():
            if not np.isfinite(array).all():
                raise ValueError(f"{name!r} has numbers that are not finite")
        for name in ("state_covariance", "observation_covariance", "initial_covariance"):
            for each in np.reshape(getattr(self, name), (-1, *getattr(self, name).shape[-2:])):
                check_covariance(repr(name), each)
        for row in (self.initial, *self.regime_transition):
            if row.min() < 0 or abs(row.sum() - 1) > 1e-6:
                raise ValueError(f"probabilities of regimes are {row.tolist()}; pass numbers from 0 on that sum to 1")
        if np.linalg.eigvalsh(self.observation_covariance).min() <= 0:
            raise ValueError("an observation covariance is singular, so that there is no density; add some noise")

    def with_floor(self, floor: float, moved: float) -> SwitchingParameters:
        """Return the parameters with a new floor of the noise: eigenvalues of R at ``floor`` are set to ``moved``.

        R is the covariance of the observation noise.
        """
        values, vectors = np.linalg.eigh(self.observation_covariance)
        values = np.where(values <= (1 + 1e-6) * floor, moved, values)
        R = np.einsum("sij,sj,skj->sik", vectors, values, vectors)
        return replace(self, observation_covariance=0.5 * (R + R.swapaxes(1, 2)))


@dataclass(frozen=True)
class SwitchingForm:
    """The form of a switching system: which of its parameters are free, and the floors that bound them.

    Attributes:
        switching: what differs between regimes: ``"dynamics"`` (transition matrix, drift and state noise),
            ``"observation"`` (observation matrix, intercept and observation noise R) or ``"both"``.
        observation_noise: form of the covariance R of the observation noise.
        min_covariance: floor of the variances of R in encoded units (of its eigenvalues if R is full), and of the
            eigenvalues of the state noise's covariance, in units of the states.
    """

    switching: Switching
    observation_noise: Literal["diag", "full"]
    min_covariance: float

    @property
    def dynamics_switch(self) -> bool:
        """True if transition matrix, drift and state noise differ between regimes; else the drift is 0."""
        return self.switching != "observation"

    @property
    def observation_switches(self) -> bool:
        """True if observation matrix, intercept and observation noise differ between regimes."""
        return self.switching != "dynamics"

    @property
    def of_one(self) -> Form:
        """The form of a linear-Gaussian system with the same kind of noise but without regimes."""
        return Form("learned", "full", "full", self.observation_noise, True, self.min_covariance)

    def n_parameters(self, n_regimes: int, n_states: int, n_features: int) -> int:
        """Return the number of free parameters of a system with this form.

        Changes of the states' coordinates and origin that leave p(x) unchanged are not counted.
        """
        S, K, D = n_regimes, n_states, n_features
        of_state = K * K + K * (K + 1) // 2
        of_observation = D * K + D + (D if self.observation_noise == "diag" else D * (D + 1) // 2)
        n = S - 1 + S * (S - 1) + K + K * (K + 1) // 2 - K * K
        n += of_state * (S if self.dynamics_switch else 1) + of_observation * (S if self.observation_switches else 1)
        return n + (S * K - K if self.dynamics_switch and S > 1 else 0)
