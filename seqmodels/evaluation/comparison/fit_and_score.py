"""One model of a comparison: tuned, set to the budget, fitted once for each seed, and scored once on the test part."""

from __future__ import annotations

import ctypes
import gc
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from seqmodels.common.distributed import LostProcessError
from seqmodels.encodings.preparation import Data
from seqmodels.evaluation import parallel_fits
from seqmodels.evaluation.statistics.long_sequence import mean_over_seeds, rows_of_seeds
from seqmodels.evaluation.tuning.budget import Budget
from seqmodels.evaluation.tuning.search import (
    FAILURES,
    Search,
    Trial,
    best_of,
    cross_validation_folds,
    in_words,
    run_trial,
)
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.model.fitting import check_arguments
from seqmodels.sequences import Sequences, as_sequences
from seqmodels.sequences.mapped import parts_of, totals

FLOOR_FACTORS = (2.0, 0.5)
MAX_FLOOR_EFFECT = 0.05  # nats per unit by which a floor may move a score, however large the difference to the baseline
MAX_FLOOR_SHARE = 0.1  # of the difference to the baseline
MIN_FLOOR_EFFECT = 0.001  # nats per unit: a smaller effect is ignored, however small the difference
PROC_STATUS, PROC_CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")

Progress = Callable[[str], None]  # called with one line of text


@dataclass(frozen=True)
class DataParts:
    """The data: what is fitted (None: the models are fitted already), what is scored, and ``fit``'s ``validation``."""

    train: Data | None
    test: Data
    validation: Any = "auto"

    @classmethod
    def from_arguments(cls, X: Any, y: Any, test: Any, validation: Any) -> DataParts:
        """From the arguments of ``compare``."""
        validation = _read_once(validation, has_targets=y is not None)
        if test is None:
            return cls(None, Data.of(X, y), validation)
        train = Data.of(X, y)
        if train.has_past:
            warnings.warn(
                "the training sequences have a past, which no fit reads; pass X.without_past() to say so", stacklevel=3
            )
        return cls(train.without_past(), Data.of(*(test if y is not None else (test, None))), validation)

    @property
    def held_out(self) -> Data | None:
        """The validation sequences, where ``validation`` is data and not a rule."""
        if self.train is None or self.validation is None or isinstance(self.validation, str):
            return None
        return Data.of(*(self.validation if self.train.y is not None else (self.validation, None)))


def _read_once(validation: Any, *, has_targets: bool) -> Any:
    """``fit``'s ``validation``, of sequences that every fit can read, also where they came from a generator."""
    if validation is None or isinstance(validation, str):
        return validation
    if not has_targets:
        return as_sequences(validation)
    return tuple(map(as_sequences, validation)) if isinstance(validation, tuple) else validation


@dataclass(frozen=True)
class FitPlan:
    """How many times each model is fitted, within which budget, and after which search."""

    seeds: int = 1
    budget: Budget | None = None
    search: Search | None = None
    random_state: int = 0

    def check(self, models: Mapping[str, SequenceModel], *, has_train: bool) -> None:
        """Raise ``ValueError`` for an option that is invalid, or that needs a training part where there is none."""
        if self.seeds < 1:
            raise ValueError(f"seeds is {self.seeds}; pass at least 1")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise ValueError(
                f"budget is {self.budget!r}; pass Budget(seconds={self.budget!r}), or of steps or parameters"
            )
        if has_train:
            if self.search is not None:
                self.search.check(models, self.budget)
            return
        options = {"seeds": self.seeds > 1, "budget": self.budget is not None, "search": self.search is not None}
        for name in (name for name, is_set in options.items() if is_set):
            raise ValueError(f"{name} is given but no test part, so nothing is fitted; pass test=, or leave {name} out")


@dataclass(frozen=True)
class SeedResult:
    """One fit and its one score of the test part.

    Attributes:
        steps: for each test sequence ``(T,)`` nats.
        score, train_score: nats per unit.
        throughput: units scored per second.
        peak_memory: MB (1e6 bytes).
        floor_effect: nats per unit, see ``floor_effect``.
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


def fit_and_score(
    models: Mapping[str, SequenceModel],
    parts: DataParts,
    plan: FitPlan,
    progress: Progress,
    jobs: parallel_fits.Jobs = 1,
) -> Iterator[ModelResult]:
    """Tune, fit and score models, side by side as ``jobs`` says; each model's result when its last seed is done.

    An error becomes a model's row of the table, so that the others are not lost. Of several fits at a time all trials
    of all searches come first.
    """
    if jobs == 1:
        for name, model in models.items():
            yield from _fit_and_score_together({name: model}, parts, plan, progress, 1)
    else:
        yield from _fit_and_score_together(models, parts, plan, progress, jobs)


def _fit_and_score_together(
    models: Mapping[str, SequenceModel], parts: DataParts, plan: FitPlan, progress: Progress, jobs: parallel_fits.Jobs
) -> Iterator[ModelResult]:
    trials = _run_trials(models, parts, plan, progress, jobs)
    budgets: dict[str, dict[str, Any]] = {}  # what they set
    errors: dict[str, str] = {}
    for name, model in models.items():
        try:
            budgets[name] = _prepare(model, parts, plan, trials[name])
        except FAILURES as error:
            errors[name] = _in_one_line(error)
            yield ModelResult(name, model, trials=trials[name], error=errors[name])

    def tasks() -> Iterator[tuple[tuple[str, int], partial[tuple[SequenceModel, SeedResult | str]]]]:
        for name, model in models.items():
            for i in range(plan.seeds):
                if name in errors:  # also of an earlier seed
                    break
                each = model if i == 0 else model.clone().set_params(random_state=model.random_state + i)
                yield (name, i), partial(_fit_one_seed_or_fail, each, parts)

    seeds: dict[str, dict[int, SeedResult]] = {name: {} for name in models}
    for (name, i), outcome in parallel_fits.run(tasks(), jobs):
        fitted, result = (None, outcome.error) if isinstance(outcome, parallel_fits.LostWorker) else outcome
        if fitted is not None and i == 0:
            _become(models[name], fitted)
        if name in errors:
            continue
        if isinstance(result, str):
            errors[name] = result
            yield ModelResult(name, models[name], trials=trials[name], error=result)
            continue
        seeds[name][i] = result
        if len(seeds[name]) == plan.seeds:
            in_order = [seeds[name][k] for k in range(plan.seeds)]
            yield ModelResult(name, models[name], in_order, budgets[name], trials[name])


def _become(model: SequenceModel, fitted: SequenceModel) -> None:
    """Give the user's model what a copy of it in another process has learned."""
    if model is not fitted:
        vars(model).clear()
        vars(model).update(vars(fitted))


def _prepare(model: SequenceModel, parts: DataParts, plan: FitPlan, trials: list[Trial]) -> dict[str, Any]:
    """Set ``model`` to its best trial and to the budget; what the budget set."""
    if parts.train is None:
        if not model.__sklearn_is_fitted__():
            raise NotFittedError("not fitted, and there is no test part; pass test=, or fit it first")
        return {}
    check_arguments(model)
    if trials:
        model.set_params(**best_of(trials).settings)
    return _apply_budget(plan.budget, model, parts.train)


def _run_trials(
    models: Mapping[str, SequenceModel], parts: DataParts, plan: FitPlan, progress: Progress, jobs: parallel_fits.Jobs
) -> dict[str, list[Trial]]:
    """Every setting of each model that the search tries, in the grid's order; none where there is no search."""
    settings = {name: [] if plan.search is None else plan.search.settings(name, plan.random_state) for name in models}
    if plan.search is None or parts.train is None or not any(settings.values()):
        return {name: [] for name in models}
    folds = cross_validation_folds(parts.train, plan.search.folds, plan.random_state)
    fit = partial(_fit_within, plan.budget, parts)
    tasks = (
        ((name, i), partial(run_trial, models[name], setting, fit, folds))
        for name in models
        for i, setting in enumerate(settings[name])
    )
    done: dict[str, dict[int, Trial]] = {name: {} for name in models}
    for (name, i), outcome in parallel_fits.run(tasks, jobs):
        if isinstance(outcome, parallel_fits.LostWorker):
            trial = Trial(settings[name][i], math.nan, math.nan, outcome.error)
        else:
            trial = outcome
        done[name][i] = trial
        result = trial.error or f"{trial.score:.4f} nats per {parts.train.scored.unit}"
        progress(f"{name}: trial {len(done[name])} of {len(settings[name])}: {in_words(trial.settings)}: {result}")
    return {name: [done[name][i] for i in range(len(settings[name]))] for name in models}


def _fit_within(budget: Budget | None, parts: DataParts, model: SequenceModel, train: Data) -> SequenceModel:
    """Fit to a part of the training data, within the budget for all of it."""
    assert parts.train is not None
    _apply_budget(budget, model, parts.train)
    return _fit(model, train, parts.validation)


def _fit(model: SequenceModel, train: Data, validation: Any) -> SequenceModel:
    """Fit ``model`` as one of several.

    Raises:
        KeyboardInterrupt: a signal ended ``fit``, which ends the whole comparison; the model keeps the best it had
            found.
    """
    model.fit(train.X, train.y, validation=validation)
    if model.interrupted_:
        raise KeyboardInterrupt
    return model


def _apply_budget(budget: Budget | None, model: SequenceModel, train: Data) -> dict[str, Any]:
    settings = {} if budget is None else budget.settings(model, train)
    model.set_params(**settings)
    return {name: value for name, value in settings.items() if value is not None}


def _fit_one_seed_or_fail(model: SequenceModel, parts: DataParts) -> tuple[SequenceModel, SeedResult | str]:
    """The fitted model and its figures, or the error that left it without any."""
    try:
        return model, _fit_one_seed(model, parts)
    except LostProcessError:
        raise  # the other models could not be fitted either
    except FAILURES as error:
        return model, _in_one_line(error)


def _in_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _fit_one_seed(model: SequenceModel, parts: DataParts) -> SeedResult:
    train = parts.train
    test = parts.test
    n_units = float(test.scored.n_units.sum())
    with peak_memory() as peak:
        if train is not None:
            _fit(model, train, parts.validation)
        began = time.perf_counter()
        steps = model.log_prob_steps(test.X, test.y)
        seconds = time.perf_counter() - began
    _refuse_nan(steps, test.scored)
    train_score = math.nan
    if train is not None:
        sample = _training_sample(train, int(n_units))
        train_score = model.score(sample.X, sample.y)
    score = float(totals(steps).sum() / n_units)  # the sum of model.score, to the last bit
    return SeedResult(
        steps,
        score,
        train_score,
        fit_seconds=float(model.fit_seconds_),
        throughput=n_units / seconds,
        peak_memory=peak.megabytes,
        converged=bool(model.converged_),
        floor_effect=floor_effect(model, score, test),
        has_trained=not len(model.history_) or model.history_["step"].iloc[-1] > 0 or bool(model.converged_),
    )


def _refuse_nan(steps: list[np.ndarray], scored: Sequences) -> None:
    """Raise ``ValueError`` for NaN and +inf; -inf is a valid log-probability."""
    for name, of_sequence in zip(scored.names, steps, strict=True):
        for start, part in parts_of(of_sequence):
            bad = np.isnan(part) | (part == np.inf)
            if bad.any():
                t = int(np.argmax(bad))
                raise ValueError(
                    f"log p is {part[t]} at step {start + t} of test sequence {name}, which is no figure to compare; "
                    'look for extreme values in the data or in the weights, or compute in dtype="float64"'
                )


def _training_sample(train: Data, n_units: int) -> Data:
    """About ``n_units`` of the training part, as many as there are to test, so that scoring it costs no more."""
    if len(train.X) == 1 and train.y is None:
        return Data.of(train.X.segments([(0, 0, n_units)]))
    order = np.random.default_rng(0).permutation(len(train.X))
    n_sequences = int(np.searchsorted(np.cumsum(train.scored.n_units[order]), n_units)) + 1
    mask = np.zeros(len(order), dtype=bool)
    mask[order[:n_sequences]] = True
    return train.take(mask)


# -- whether a floor of the variances made the score ----------------------------------------------------------
#
# Where values repeat, a variance shrinks until its floor stops it, and the density there is as high as the floor
# allows: the figure then depends on the floor, which is a setting, and not on the data. Reasonable settings of a floor
# differ by a factor of 1000, ten doublings; a difference of less than ten times what one doubling moves depends on
# which setting was taken.


def floor_effect(model: SequenceModel, score: float, test: Data) -> float:
    """The most that doubling or halving its floors changes a model's score, nats per unit; 0 if no variance is on one.

    Nothing is fitted again: variances on the floor move with it, and those below a doubled floor are lifted.
    """
    history = model.history_
    if not len(history) or not history["floor_hits"].iloc[-1] > 0 or not math.isfinite(score):
        return 0.0
    return max(abs(model._with_floor(factor).score(test.X, test.y) - score) for factor in FLOOR_FACTORS)


def is_set_by_floor(effect: float, difference: float) -> bool:
    """Whether a floor made a score: by ``floor_effect`` and the difference to the baseline (NaN or 0: none)."""
    apart = abs(difference) if math.isfinite(difference) and difference else math.inf
    return effect > min(MAX_FLOOR_EFFECT, max(MIN_FLOOR_EFFECT, MAX_FLOOR_SHARE * apart))


# -- peak memory ----------------------------------------------------------------------------------------------


@dataclass
class PeakMemory:
    """``megabytes`` (1e6 bytes) of main memory, set when the block ends; NaN where the system does not say."""

    megabytes: float = math.nan


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """The most main memory that the block held above what was held before it, by Linux's high-water mark.

    Memory that Python or the C library kept from earlier work is returned to the system before; what they keep
    nevertheless is not counted when it is used again. A GPU's memory is not counted.

    >>> with peak_memory() as peak:
    ...     block = bytearray(30_000_000)
    >>> math.isnan(peak.megabytes) or peak.megabytes > 25
    True
    """
    peak = PeakMemory()
    _release_free_memory()
    try:
        PROC_CLEAR_REFS.write_text("5")  # the high-water mark starts again from what is held now
        held_before = _read_status("VmRSS")
    except OSError:
        held_before = math.nan  # the mark is that of the whole process, which says nothing of this block
    yield peak
    peak.megabytes = _read_status("VmHWM") - held_before


def _release_free_memory() -> None:
    gc.collect(1)  # a full collection takes longer than many a fit
    if PROC_STATUS.exists():
        library = ctypes.CDLL(None)
        try:
            library.malloc_trim(0)
        except AttributeError:
            return  # this C library cannot release it


def _read_status(field: str) -> float:
    """Megabytes of a line such as ``VmRSS:  120340 kB``."""
    if not PROC_STATUS.exists():
        return math.nan
    lines = [line for line in PROC_STATUS.read_text().splitlines() if line.startswith(f"{field}:")]
    return int(lines[0].split()[1]) * 1024 / 1e6 if lines else math.nan
