"""The figures of the models of a comparison, for each fit and as means over seeds."""

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
    """The scores and costs of one fit of a model in a comparison.

    Attributes:
        steps: log-probability of each step of each test sequence, a list of ``(T,)`` arrays in nats.
        score: nats per unit on the test part.
        train_score: nats per unit on a sample of the training part; NaN if there is none.
        fit_seconds: seconds that the fit took.
        throughput: test units scored per second.
        peak_memory: the most main memory that fit and scoring held, in MB (1e6 bytes).
        converged: whether the fit converged.
        floor_effect: nats per unit by which the score moves if the variance floor, the least variance allowed, is
            doubled or halved.
        has_trained: False if the budget ended before the first step of training, so that the model has its initial
            parameters.
        score_error: Monte Carlo standard error in nats per unit if the score is an estimate; else NaN.
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
    """The scores and costs of one model of a comparison, or the error of a model that failed.

    Attributes:
        name: name of the model in the comparison.
        model: the model.
        seeds: the result of each of its fits, one for each seed; empty if it failed.
        budget_settings: the hyperparameters that the budget set.
        trials: every setting that the search tried.
        is_reference: True for ``iid``, the reference of independent steps, which is not tested.
        error: type and message of the error; empty if there was none.
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
        """Log-probability of each step in nats, the mean over seeds, an array ``(T,)`` for each test sequence."""
        if len(self.seeds) == 1:
            return self.seeds[0].steps
        return [mean_over_seeds(step) for step in zip(*(seed.steps for seed in self.seeds), strict=True)]

    @cached_property
    def log_prob(self) -> np.ndarray:
        """Log-probability of each test sequence in nats, the mean over seeds, shape ``(n,)``."""
        return totals(self.steps)

    @cached_property
    def log_prob_by_seed(self) -> np.ndarray:
        """Log-probability of each test sequence under each seed in nats, ``(S, n)``: S seeds, n sequences.

        For a single test sequence, the log-probability of its steps, ``(S, T)``.
        """
        if len(self.seeds[0].steps) == 1:
            return rows_of_seeds([seed.steps[0] for seed in self.seeds])
        return np.stack([totals(seed.steps) for seed in self.seeds])

    @property
    def floor_effect(self) -> float:
        """Largest change of the score over seeds, in nats per unit, when the variance floor is doubled or halved."""
        return max(seed.floor_effect for seed in self.seeds)

    @property
    def score_error(self) -> float:
        """Monte Carlo standard error of the mean over seeds in nats per unit; NaN if no score is an estimate."""
        return float(np.linalg.norm([seed.score_error for seed in self.seeds])) / max(len(self.seeds), 1)

    @property
    def has_trained(self) -> bool:
        """True if every seed took a step of training, or needed none."""
        return all(seed.has_trained for seed in self.seeds)

    def mean(self, figure: str) -> float:
        """Return the mean over seeds of a score or cost.

        Args:
            figure: name of the field of ``SeedResult``, such as ``"score"`` or ``"fit_seconds"``.
        """
        return float(np.mean([getattr(seed, figure) for seed in self.seeds]))

    def progress_line(self, unit: str) -> str:
        """Return a line of text with the model's score and seconds, or its error, for ``progress`` of ``compare``.

        Args:
            unit: unit of the score: frame, byte or symbol.
        """
        if self.error:
            return f"{self.name}: failed ({self.error})"
        return f"{self.name}: {self.mean('score'):.4f} nats per {unit}, fitted in {self.mean('fit_seconds'):.1f} s"
