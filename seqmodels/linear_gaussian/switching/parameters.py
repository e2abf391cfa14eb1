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
    """The matrices of each regime s of a switching system, and the Markov chain of regimes; float64 arrays.

        z_t = A[s] z_t-1 + b[s] + w_t,  x_t = C[s] z_t + d[s] + v_t

    A matrix that does not switch is repeated for all S regimes.

    Attributes:
        initial, regime_transition: probabilities of the chain of regimes, ``(S,)`` and ``(S, S)``.
        transition, drift, state_covariance: A ``(S, K, K)``, b ``(S, K)`` and Q ``(S, K, K)``.
        observation, intercept, observation_covariance: C ``(S, D, K)``, d ``(S, D)`` and R ``(S, D, D)``.
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
        """Return ``n_regimes`` regimes that are all the given system, each equally probable after each."""
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
        """The numbers of regimes S, states K and features D."""
        S, D, K = self.observation.shape
        return S, K, D

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters as arrays by name, in the form in which files store them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def shapes(cls, n_regimes: int, n_states: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array by its name."""
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
        """Return the parameters that ``arrays`` stored.

        Raises:
            ValueError: arrays of other shapes, or numbers that no fit could have found.
        """
        shapes = cls.shapes(n_regimes, n_states, n_features)
        parameters = cls(**{name: array_of(state, name, np.float64, shape) for name, shape in shapes.items()})
        parameters.check()
        return parameters

    def check(self) -> None:
        """Raise ``ValueError`` if a number is not finite, a matrix is no covariance, or a row has no probabilities."""
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
        """Return the parameters with the eigenvalues of R that lie on ``floor`` set to ``moved``."""
        values, vectors = np.linalg.eigh(self.observation_covariance)
        values = np.where(values <= (1 + 1e-6) * floor, moved, values)
        R = np.einsum("sij,sj,skj->sik", vectors, values, vectors)
        return replace(self, observation_covariance=0.5 * (R + R.swapaxes(1, 2)))


@dataclass(frozen=True)
class SwitchingForm:
    """The form of a switching system: which of its parameters are free, and the floors that bound them.

    Attributes:
        switching: what differs between regimes: ``"dynamics"`` (A, b and Q), ``"observation"`` (C, d and R) or
            ``"both"``.
        observation_noise: form of R.
        min_covariance: floor of the variances of R in encoded units (of its eigenvalues if R is full), and of the
            eigenvalues of Q in units of the states.
    """

    switching: Switching
    observation_noise: Literal["diag", "full"]
    min_covariance: float

    @property
    def dynamics_switch(self) -> bool:
        """True if A, b and Q differ between regimes; else b is 0."""
        return self.switching != "observation"

    @property
    def observation_switches(self) -> bool:
        """True if C, d and R differ between regimes."""
        return self.switching != "dynamics"

    @property
    def of_one(self) -> Form:
        """The form of a system without regimes and the same noise."""
        return Form("learned", "full", "full", self.observation_noise, True, self.min_covariance)

    def n_parameters(self, n_regimes: int, n_states: int, n_features: int) -> int:
        """Return the number of free parameters.

        Changes of basis and origin of the states that leave p(x) as it is are not counted.
        """
        S, K, D = n_regimes, n_states, n_features
        of_state = K * K + K * (K + 1) // 2
        of_observation = D * K + D + (D if self.observation_noise == "diag" else D * (D + 1) // 2)
        n = S - 1 + S * (S - 1) + K + K * (K + 1) // 2 - K * K
        n += of_state * (S if self.dynamics_switch else 1) + of_observation * (S if self.observation_switches else 1)
        return n + (S * K - K if self.dynamics_switch and S > 1 else 0)
