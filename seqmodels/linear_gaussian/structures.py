"""Components of structural time series (Harvey 1989, *Forecasting, structural time series models and the Kalman
filter*): what a series is the sum of, each with states and transitions of its own.

A component says everything but the variances of its disturbances, which are fitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.common.parameters import Configurable


@dataclass(eq=False, repr=False)
class Component(Configurable, ABC):
    """To add one, define its matrices; K is the number of its states."""

    @abstractmethod
    def transition(self) -> np.ndarray:
        """``(K, K)``."""

    @abstractmethod
    def observation(self) -> np.ndarray:
        """``(K,)`` weights of the states in the series."""

    @abstractmethod
    def noisy(self) -> np.ndarray:
        """``(K,)`` bool: states that have a disturbance, whose variance is fitted."""


@dataclass(eq=False, repr=False)
class Level(Component):
    """``μ_t = μ_t-1 + η_t``: a random walk."""

    def transition(self) -> np.ndarray:
        return np.ones((1, 1))

    def observation(self) -> np.ndarray:
        return np.ones(1)

    def noisy(self) -> np.ndarray:
        return np.ones(1, dtype=bool)


@dataclass(eq=False, repr=False)
class Trend(Component):
    """``μ_t = μ_t-1 + ν_t-1 + η_t``, ``ν_t = ν_t-1 + ζ_t``: a level and its slope (local linear trend)."""

    def transition(self) -> np.ndarray:
        return np.array([[1.0, 1.0], [0.0, 1.0]])

    def observation(self) -> np.ndarray:
        return np.array([1.0, 0.0])

    def noisy(self) -> np.ndarray:
        return np.ones(2, dtype=bool)


@dataclass(eq=False, repr=False)
class Seasonal(Component):
    """``γ_t = -(γ_t-1 + ... + γ_t-s+1) + ω_t``: effects of the seasons of a period of s steps, which sum to noise.

    Args:
        period: s, 2 or more; there are s - 1 states.
    """

    period: int

    def transition(self) -> np.ndarray:
        matrix = np.eye(self.period - 1, k=-1)
        matrix[0] = -1.0
        return matrix

    def observation(self) -> np.ndarray:
        return np.eye(self.period - 1)[0]

    def noisy(self) -> np.ndarray:
        return np.arange(self.period - 1) == 0


@dataclass(frozen=True)
class Structure:
    """The matrices of a sum of components.

    Attributes:
        transition: (K, K), block diagonal.
        observation: (1, K).
        noisy: (K,) bool.
        states: which states are whose, in the order of the components.
    """

    transition: np.ndarray
    observation: np.ndarray
    noisy: np.ndarray
    states: list[slice]

    @classmethod
    def of(cls, components: Sequence[Component]) -> Structure:
        """Of one component or more."""
        sizes = [len(component.observation()) for component in components]
        ends = np.cumsum(sizes).tolist()
        states = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        transition = np.zeros((ends[-1], ends[-1]))
        for component, where in zip(components, states, strict=True):
            transition[where, where] = component.transition()
        observation = np.concatenate([component.observation() for component in components])[None]
        return cls(transition, observation, np.concatenate([c.noisy() for c in components]), states)
