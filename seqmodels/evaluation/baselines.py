"""Baseline forecasts that any model should beat: the last value, and the value one season ago.

Reference: Hyndman & Athanasopoulos (2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from seqmodels.generation.feature_distributions import GaussianFeatures
from seqmodels.generation.steps_ahead import Ahead, Paths

SMALLEST_DEVIATION = 1e-12  # standard deviation of a feature that never changes, relative to its largest value


@dataclass
class SeasonalNaive:
    """The seasonal naive forecast ``x_t = x_t-m + e_t``, ``e_t ~ N(0, Σ)``; with ``season=1`` it is a random walk.

    h steps ahead the mean is the last value of the same phase (position in the season), and the variance is that of one
    season times the number of seasons between, ``Σ (1 + floor((h - 1) / m))``: Hyndman & Athanasopoulos (2021),
    *Forecasting: principles and practice*, section 5.5. A missing value is taken from the season before it.

    Attributes:
        season: number m of steps of a season.
        covariance_: the mean of ``e_t e_tᵀ`` in training for D features, ``(D, D)``, set by ``fit``.
    """

    season: int = 1
    covariance_: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), init=False)

    def fit(self, sequences: Sequence[np.ndarray]) -> SeasonalNaive:
        """Estimate ``covariance_``, the covariance of the change over a season, and return self.

        Args:
            sequences: arrays ``(T, D)`` of T steps and D features; NaN marks a missing value.

        Raises:
            ValueError: no sequence is longer than a season.
        """
        changes = [x[self.season :] - x[: -self.season] for x in sequences if len(x) > self.season]
        errors = np.concatenate(changes) if changes else np.empty((0, 1))
        errors = errors[~np.isnan(errors).any(axis=1)]
        if not len(errors):
            raise ValueError(
                f"no training sequence is longer than the season of {self.season} steps, without missing values; pass "
                "longer ones, or a shorter season"
            )
        largest = max(float(np.nanmax(np.abs(x))) for x in sequences)
        self.covariance_ = errors.T @ errors / len(errors) + (SMALLEST_DEVIATION * largest) ** 2 * np.eye(len(errors.T))
        return self

    def ahead(
        self, sequences: Sequence[np.ndarray], origins: Sequence[Sequence[int]], k: int, n: int, seed: int
    ) -> Iterator[Ahead]:
        """Yield the forecast of the next k steps after each origin of each sequence, in the units of the sequences.

        Args:
            sequences: arrays ``(T, D)`` of T steps and D features.
            origins: the origins of each sequence, each the number of steps that are given before the forecast.
            k: number of steps ahead.
            n: number of paths to draw.
            seed: seed of the paths.
        """
        rng, deviations = np.random.default_rng(seed), np.sqrt(np.diag(self.covariance_))
        seasons = 1 + np.arange(k) // self.season  # (k,) number of seasons up to each step
        for i, (x, each) in enumerate(zip(sequences, origins, strict=True)):
            filled = _filled(x, self.season)
            for t in each:
                phases = filled[t - self.season + np.arange(k) % self.season]  # (k, D)
                steps = [
                    GaussianFeatures(np.ones(1), phases[h : h + 1], np.sqrt(seasons[h]) * deviations[None])
                    for h in range(k)
                ]
                paths = self._paths(phases, n, rng)
                yield Ahead(i, t, np.ones(k), list(steps), np.ones(k, dtype=bool), partial(_already_drawn, paths))

    def _paths(self, phases: np.ndarray, n: int, rng: np.random.Generator) -> Paths:
        """Draw n sample paths of k steps and D features: their means plus accumulated errors ``e_t``.

        Args:
            phases: mean of each step, ``(k, D)``.
            n: number of paths.
            rng: generator of random numbers.
        """
        k, size = phases.shape
        errors = rng.multivariate_normal(np.zeros(size), self.covariance_, size=(n, k), method="eigh")
        for h in range(self.season, k):
            errors[:, h] += errors[:, h - self.season]
        return Paths(phases + errors, np.ones((n, k), dtype=bool))


def _filled(x: np.ndarray, season: int) -> np.ndarray:
    """Return ``x`` with each missing value (NaN) replaced by the value ``season`` steps earlier.

    In the first season missing values are replaced by the first known value of the feature.

    Args:
        x: values of T steps and D features, ``(T, D)``.
        season: number of steps of a season.
    """
    filled = np.array(x, dtype=np.float64)
    for t, d in np.argwhere(np.isnan(filled)):
        filled[t, d] = filled[t - season, d] if t >= season else filled[np.argmax(~np.isnan(filled[:, d])), d]
    return filled


def _already_drawn(paths: Paths) -> Paths:
    return paths
