"""Every density of independent features, with parameters, data and its twin in scipy: what its tests run over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import seqmodels as sm
from seqmodels.observations.independent_features import IndependentFeatures


@dataclass(frozen=True)
class Density:
    """One density.

    Args:
        observation: with its floors.
        states: ``(2, Q, 2)`` of two states of two features.
        twin: the parameters ``(Q,)`` of one feature -> the same density in scipy.
        support: from where to where it integrates to one; whole numbers from 0 on if ``is_discrete``.
        unit: what the second feature's raw values are multiplied with.
        starts: for the search of a maximum of likelihood that is independent of EM.
    """

    observation: IndependentFeatures
    states: Any
    twin: Callable[[np.ndarray], Any]
    support: tuple[float, float] = (-np.inf, np.inf)
    is_discrete: bool = False
    unit: float = 1.0

    def __str__(self) -> str:
        return type(self.observation).__name__

    @property
    def theta(self) -> Tensor:
        return torch.tensor(self.states, dtype=torch.float64)

    @property
    def table(self) -> Tensor:
        return self.theta.flatten(1)

    def draws(self, n: int, seed: int, state: int) -> np.ndarray:
        """``(n, 2)`` by scipy, in raw units."""
        rng = np.random.default_rng(seed)
        each = [self.twin(np.array(self.states)[state, :, d]).rvs(n, random_state=rng) for d in range(2)]
        return np.stack(each, 1).astype(np.float64) * [1.0, self.unit]

    def sequences(self, seed: int, n: int = 6) -> list[np.ndarray]:
        """Of 80 frames each, in runs of either state."""
        rng = np.random.default_rng(seed)
        runs = [np.repeat(rng.integers(2, size=10), 8) for _ in range(n)]
        both = [[self.draws(80, 100 * seed + 2 * i + k, k) for k in range(2)] for i in range(n)]
        return [np.where(z[:, None] == 0, *each) for z, each in zip(runs, both, strict=True)]


OBSERVATIONS = sm.observations
DENSITIES = [
    Density(
        OBSERVATIONS.StudentT(),
        [[[0.0, -3.0], [0.0, 1.0], [1.0, 2.0]], [[4.0, 3.0], [-0.5, 0.2], [1.5, 0.5]]],
        lambda p: stats.t(np.exp(p[2]), p[0], np.exp(p[1])),
        unit=50.0,
    ),
    Density(
        OBSERVATIONS.Gamma(),
        [[[0.5, 1.5], [-0.5, 1.0]], [[2.5, -0.5], [1.5, 2.0]]],
        lambda p: stats.gamma(np.exp(p[0]), scale=np.exp(p[1] - p[0])),
        (0.0, np.inf),
        unit=50.0,
    ),
    Density(
        OBSERVATIONS.LogNormal(),
        [[[0.5, 1.5], [-0.5, 0.0]], [[-1.0, -0.5], [-1.5, 0.2]]],
        lambda p: stats.lognorm(np.exp(p[1]), scale=np.exp(p[0])),
        (0.0, np.inf),
        unit=50.0,
    ),
    Density(
        OBSERVATIONS.VonMises(),
        [[[2.0, -1.0], [1.0, 0.2]], [[-8.0, 0.3], [4.0, 6.0]]],
        lambda p: stats.vonmises(np.hypot(*p), loc=np.arctan2(p[1], p[0])),
        (-np.pi, np.pi),
    ),
    Density(
        OBSERVATIONS.Beta(),
        [[[0.5, -0.5], [1.0, -0.2]], [[2.0, 2.5], [0.5, 1.0]]],
        lambda p: stats.beta(*np.exp(p)),
        (0.0, 1.0),
    ),
    Density(
        OBSERVATIONS.NegativeBinomial(),
        [[[0.5, 3.0], [0.0, 1.0]], [[2.5, 5.0], [1.0, 0.5]]],
        lambda p: stats.nbinom(np.exp(p[1]), 1 / (1 + np.exp(p[0] - p[1]))),
        is_discrete=True,
    ),
]
