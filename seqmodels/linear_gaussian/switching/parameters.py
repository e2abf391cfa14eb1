"""``SwitchingParameters`` of a linear-Gaussian system whose matrices switch, in encoded units, and which are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from seqmodels.common.array_checks import array_of
from seqmodels.linear_gaussian.parameters import Form, SystemParameters, check_covariance

Switching = Literal["dynamics", "observation", "both"]
LEAST_PROBABILITY = -1e-9  # of a chain read from a file


@dataclass(frozen=True)
class SwitchingParameters:
    """``z_t = A[s] z_t-1 + b[s] + w_t``, ``x_t = C[s] z_t + d[s] + v_t``, ``s_t`` a Markov chain; float64 arrays.

    What does not switch is the same for all S regimes.

    Attributes:
        initial, regime_transition: (S,), (S, S) of the chain of regimes.
        transition, drift, state_covariance: A (S, K, K), b (S, K), Q (S, K, K).
        observation, intercept, observation_covariance: C (S, D, K), d (S, D), R (S, D, D).
        initial_mean, initial_covariance: of z_1, (K,), (K, K).
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
        """Regimes that are all the same system, one as probable after another as any."""
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
        """How many regimes S, states K and features D there are."""
        S, D, K = self.observation.shape
        return S, K, D

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, to be stored."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def shapes(cls, n_regimes: int, n_states: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """Of each array by name."""
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
        """The inverse of ``arrays``; raises ``ValueError`` for what no fit could have found."""
        shapes = cls.shapes(n_regimes, n_states, n_features)
        parameters = cls(**{name: array_of(state, name, np.float64, shape) for name, shape in shapes.items()})
        parameters.check()
        return parameters

    def check(self) -> None:
        """Raise ``ValueError`` for numbers that are not finite, for what is no covariance, and for no probabilities."""
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
        """Eigenvalues of R on ``floor`` are ``moved``."""
        values, vectors = np.linalg.eigh(self.observation_covariance)
        values = np.where(values <= (1 + 1e-6) * floor, moved, values)
        R = np.einsum("sij,sj,skj->sik", vectors, values, vectors)
        return replace(self, observation_covariance=0.5 * (R + R.swapaxes(1, 2)))


@dataclass(frozen=True)
class SwitchingForm:
    """Which parameters are free, and what bounds them.

    Attributes:
        switching: what differs between regimes: A, b and Q, or C, d and R, or both.
        observation_noise: the form of R.
        min_covariance: floor of the variances of R (under ``"full"`` of its eigenvalues), in encoded units, and of the
            eigenvalues of Q, in units of the states.
    """

    switching: Switching
    observation_noise: Literal["diag", "full"]
    min_covariance: float

    @property
    def dynamics_switch(self) -> bool:
        """Whether A, b and Q differ between regimes; if not, b is 0."""
        return self.switching != "observation"

    @property
    def observation_switches(self) -> bool:
        """Whether C, d and R differ between regimes."""
        return self.switching != "dynamics"

    @property
    def of_one(self) -> Form:
        """The form of a system without regimes."""
        return Form("learned", "full", "full", self.observation_noise, True, self.min_covariance)

    def n_parameters(self, n_regimes: int, n_states: int, n_features: int) -> int:
        """Free numbers, less the dimension of the changes of the states' basis and origin that leave p(x) as it is."""
        S, K, D = n_regimes, n_states, n_features
        of_state = K * K + K * (K + 1) // 2
        of_observation = D * K + D + (D if self.observation_noise == "diag" else D * (D + 1) // 2)
        n = S - 1 + S * (S - 1) + K + K * (K + 1) // 2 - K * K
        n += of_state * (S if self.dynamics_switch else 1) + of_observation * (S if self.observation_switches else 1)
        return n + (S * K - K if self.dynamics_switch and S > 1 else 0)
