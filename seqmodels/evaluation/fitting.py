"""One model of a comparison: tuned, held to the budget, fitted by each seed, scored once on the test part."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from seqmodels.distributed import LostProcessError
from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.floors import floor_effect
from seqmodels.evaluation.memory import peak_memory
from seqmodels.evaluation.search import FAILURES, Search, Trial, best_of, folds_of, in_words, run_trials
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.preparation import Data
from seqmodels.sequences import Sequences

Say = Callable[[str], None]


@dataclass(frozen=True)
class Parts:
    """The data: what is fitted (None: models are fitted already), what is scored, and ``fit``'s ``validation``."""

    train: Data | None
    test: Data
    validation: Any = "auto"

    @classmethod
    def of(cls, X: Any, y: Any, test: Any, validation: Any) -> Parts:
        """As ``compare`` is given them."""
        if test is None:
            return cls(None, Data.of(X, y), validation)
        return cls(Data.of(X, y), Data.of(*(test if y is not None else (test, None))), validation)

    @property
    def held_out(self) -> Data | None:
        """Sequences that are given as ``validation``."""
        if self.train is None or self.validation is None or isinstance(self.validation, str):
            return None
        return Data.of(*(self.validation if self.train.y is not None else (self.validation, None)))


@dataclass(frozen=True)
class Plan:
    """How often, how long, and after which search models are fitted."""

    seeds: int = 1
    budget: Budget | None = None
    search: Search | None = None
    random_state: int = 0

    def check(self) -> None:
        """Raise ``ValueError`` for what needs a fit, where there is none."""
        asked = {"seeds": self.seeds > 1, "budget": self.budget is not None, "search": self.search is not None}
        for name in (name for name, given in asked.items() if given):
            raise ValueError(f"{name} is given but no test part, so nothing is fitted; pass test=, or leave {name} out")


@dataclass(frozen=True)
class Run:
    """One fit and its one look at the test part; ``throughput`` in units scored per second, ``peak_memory`` in MB,
    ``floor_effect`` in nats a unit."""

    steps: list[np.ndarray]
    score: float
    train_score: float
    fit_seconds: float
    throughput: float
    peak_memory: float
    converged: bool
    floor_effect: float = 0.0


@dataclass(frozen=True)
class Scored:
    """One model's figures, a ``Run`` a seed, or why there are none."""

    model: SequenceModel
    runs: list[Run] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    error: str = ""

    @cached_property
    def steps(self) -> list[np.ndarray]:
        """Nats of each step of each test sequence, the mean over seeds."""
        return [np.mean(step, axis=0) for step in zip(*(run.steps for run in self.runs), strict=True)]

    @cached_property
    def log_prob(self) -> np.ndarray:
        return np.array([s.sum() for s in self.steps])

    @property
    def settings(self) -> str:
        """What the search chose, in words."""
        return in_words(best_of(self.trials).settings) if self.trials and not self.error else ""

    def mean(self, name: str) -> float:
        """Of a figure of the runs."""
        return float(np.mean([getattr(run, name) for run in self.runs]))

    def line(self, name: str, unit: str) -> str:
        """For who waits."""
        if self.error:
            return f"{name}: failed ({self.error})"
        return f"{name}: {self.mean('score'):.4f} nats per {unit}, fitted in {self.mean('fit_seconds'):.1f} s"


def fit_and_score(name: str, model: SequenceModel, parts: Parts, plan: Plan, say: Say) -> Scored:
    """An error of one model is its row in the table: the others are still worth having."""
    trials: list[Trial] = []
    try:
        if parts.train is None:
            if not model.__sklearn_is_fitted__():
                raise NotFittedError("not fitted, and there is no test part; pass test=, or fit it first")
            return Scored(model, [_run(model, parts)])
        _tune(name, model, parts, plan, trials, say)
        limits = _held_to(plan.budget, model, parts.train)
        seeded = [model if i == 0 else _reseeded(model, i) for i in range(plan.seeds)]
        return Scored(model, [_run(each, parts) for each in seeded], limits, trials)
    except LostProcessError:
        raise  # nor could the other models be fitted
    except FAILURES as error:
        warnings.warn(f"{name} failed: {error}", stacklevel=3)
        return Scored(model, trials=trials, error=f"{type(error).__name__}: {error}")


def fitted(model: SequenceModel, train: Data, validation: Any) -> SequenceModel:
    """``model``, fitted, as one of several.

    Raises:
        KeyboardInterrupt: a signal ended ``fit``, which ends them all; the model keeps what it had found.
    """
    model.fit(train.X, train.y, validation=validation)
    if model.interrupted_:
        raise KeyboardInterrupt
    return model


def _tune(name: str, model: SequenceModel, parts: Parts, plan: Plan, trials: list[Trial], say: Say) -> None:
    """Give ``model`` the best of its settings; ``trials`` grows by each, so that those of a search that failed are known too."""
    settings = [] if plan.search is None else plan.search.settings(name, plan.random_state)
    if plan.search is None or not settings or parts.train is None:
        return
    whole = parts.train

    def fit(clone: SequenceModel, train: Data) -> SequenceModel:
        _held_to(plan.budget, clone, whole)
        return fitted(clone, train, parts.validation)

    for trial in run_trials(model, settings, fit, folds_of(whole, plan.search.folds, plan.random_state)):
        trials.append(trial)
        found = trial.error or f"{trial.score:.4f} nats per {whole.scored.unit}"
        say(f"{name}: trial {len(trials)} of {len(settings)}: {in_words(trial.settings)}: {found}")
    model.set_params(**best_of(trials).settings)


def _held_to(budget: Budget | None, model: SequenceModel, train: Data) -> dict[str, Any]:
    limits = {} if budget is None else budget.settings(model, train)
    model.set_params(**limits)
    return {name: value for name, value in limits.items() if value is not None}


def _reseeded(model: SequenceModel, i: int) -> SequenceModel:
    clone = model.clone()
    return clone.set_params(random_state=model.random_state + i)


def _run(model: SequenceModel, parts: Parts) -> Run:
    train, test = parts.train, parts.test
    n_units = float(test.scored.n_units.sum())
    with peak_memory() as peak:
        if train is not None:
            fitted(model, train, parts.validation)
        began = time.perf_counter()
        steps = model.log_prob_steps(test.X, test.y)
        seconds = time.perf_counter() - began
    _refuse_no_number(steps, test.scored)
    train_score = math.nan
    if train is not None:
        sample = _sample(train, int(n_units))
        train_score = model.score(sample.X, sample.y)
    score = float(np.array([s.sum() for s in steps]).sum() / n_units)  # as the model's own, to the last bit
    converged = bool(model.converged_)
    effect = floor_effect(model, score, test)
    fit_seconds = float(model.fit_seconds_)
    return Run(steps, score, train_score, fit_seconds, n_units / seconds, peak.megabytes, converged, effect)


def _refuse_no_number(steps: list[np.ndarray], scored: Sequences) -> None:
    """-inf is an answer, NaN and inf are none."""
    for name, of_sequence in zip(scored.names, steps, strict=True):
        bad = np.isnan(of_sequence) | (of_sequence == np.inf)
        if bad.any():
            t = int(np.argmax(bad))
            raise ValueError(
                f"log p is {of_sequence[t]} at step {t} of test sequence {name}, which is no figure to compare; look for extreme "
                'values in the data or in the weights, or compute in dtype="float64"'
            )


def _sample(train: Data, n_units: int) -> Data:
    """About as much of the training part as there is to test, so that scoring it costs no more."""
    if len(train.X) == 1 and train.y is None:
        return Data.of(Sequences([train.X.items[0][:n_units]], grid=train.X.grid))
    order = np.random.default_rng(0).permutation(len(train.X))
    enough = int(np.searchsorted(np.cumsum(train.scored.n_units[order]), n_units)) + 1
    mask = np.zeros(len(order), dtype=bool)
    mask[order[:enough]] = True
    return train.take(mask)
