"""The figures of the models of a comparison: of each fit, and their means over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from seqmodels.evaluation.statistics.long_sequence import mean_over_seeds, rows_of_seeds
from seqmodels.evaluation.tuning.search import Trial
from seqmodels.model import SequenceModel
from seqmodels.sequences.mapped import totals


@dataclass(frozen=True)
class SeedResult:
    """One fit and its one score of the test part.

    Attributes:
        steps: for each test sequence ``(T,)`` nats.
        score, train_score: nats per unit.
        throughput: units scored per second.
        peak_memory: MB (1e6 bytes).
        floor_effect: nats per unit, see ``floor_effect``.
        score_error: nats per unit, the Monte Carlo standard error of a score that is an estimate; else NaN.
        has_trained: False where the budget ended before the first step of training, so that the model is its start.
    """

    steps: list[np.ndarray]
    score: float
    train_score: float
    fit_seconds: float
    throughput: float
    peak_memory: float
    converged: bool
    floor_effect: float = 0.0
    has_trained: bool = True
    score_error: float = math.nan


@dataclass(frozen=True)
class ModelResult:
    """One model's figures, a ``SeedResult`` for each seed, or the error that left it without any.

    Attributes:
        budget_settings: the hyperparameters that the budget set.
        trials: every setting that the search tried.
        is_reference: the row of independent steps, which is not tested.
    """

    name: str
    model: SequenceModel
    seeds: list[SeedResult] = field(default_factory=list)
    budget_settings: dict[str, Any] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    is_reference: bool = False
    error: str = ""

    @cached_property
    def steps(self) -> list[np.ndarray]:
        """Nats of each step of each test sequence, the mean over seeds."""
        if len(self.seeds) == 1:
            return self.seeds[0].steps
        return [mean_over_seeds(step) for step in zip(*(seed.steps for seed in self.seeds), strict=True)]

    @cached_property
    def log_prob(self) -> np.ndarray:
        """``(n,)`` nats of each test sequence, the mean over seeds."""
        return totals(self.steps)

    @cached_property
    def log_prob_by_seed(self) -> np.ndarray:
        """``(S, n)`` nats of each test sequence under each seed; of one sequence ``(S, T)`` nats of its steps."""
        if len(self.seeds[0].steps) == 1:
            return rows_of_seeds([seed.steps[0] for seed in self.seeds])
        return np.stack([totals(seed.steps) for seed in self.seeds])

    @property
    def floor_effect(self) -> float:
        """Nats per unit, the largest over seeds."""
        return max(seed.floor_effect for seed in self.seeds)

    @property
    def score_error(self) -> float:
        """Nats per unit, of the mean over seeds; NaN where no score is an estimate."""
        return float(np.linalg.norm([seed.score_error for seed in self.seeds])) / max(len(self.seeds), 1)

    @property
    def has_trained(self) -> bool:
        """Whether every seed took a step of training, or needed none."""
        return all(seed.has_trained for seed in self.seeds)

    def mean(self, figure: str) -> float:
        """The mean over seeds of one field of ``SeedResult``."""
        return float(np.mean([getattr(seed, figure) for seed in self.seeds]))

    def progress_line(self, unit: str) -> str:
        """One line of text for ``compare``'s ``progress``."""
        if self.error:
            return f"{self.name}: failed ({self.error})"
        return f"{self.name}: {self.mean('score'):.4f} nats per {unit}, fitted in {self.mean('fit_seconds'):.1f} s"
