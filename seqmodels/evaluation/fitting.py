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
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seqmodels.distributed import LostProcessError
from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.search import FAILURES, Search, Trial, best_of, cross_validation_folds, in_words, run_trials
from seqmodels.mapped import total
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.preparation import Data
from seqmodels.sequences import Sequences

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
        if test is None:
            return cls(None, Data.of(X, y), validation)
        return cls(Data.of(X, y), Data.of(*(test if y is not None else (test, None))), validation)

    @property
    def held_out(self) -> Data | None:
        """The validation sequences, where ``validation`` is data and not a rule."""
        if self.train is None or self.validation is None or isinstance(self.validation, str):
            return None
        return Data.of(*(self.validation if self.train.y is not None else (self.validation, None)))


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
        return [np.mean(step, axis=0) for step in zip(*(seed.steps for seed in self.seeds), strict=True)]

    @cached_property
    def log_prob(self) -> np.ndarray:
        """``(n,)`` nats of each test sequence, the mean over seeds."""
        return np.array([total(s) for s in self.steps])

    @cached_property
    def log_prob_by_seed(self) -> np.ndarray:
        """``(S, n)`` nats of each test sequence under each seed; of one sequence ``(S, T)`` nats of its steps."""
        if len(self.seeds[0].steps) == 1:
            return np.stack([seed.steps[0] for seed in self.seeds])
        return np.array([[s.sum() for s in seed.steps] for seed in self.seeds])

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


def fit_and_score(name: str, model: SequenceModel, parts: DataParts, plan: FitPlan, progress: Progress) -> ModelResult:
    """Tune, fit and score one model. An error becomes its row of the table, so that the other models are not lost."""
    trials: list[Trial] = []
    try:
        if parts.train is None:
            if not model.__sklearn_is_fitted__():
                raise NotFittedError("not fitted, and there is no test part; pass test=, or fit it first")
            return ModelResult(name, model, [_fit_one_seed(model, parts)])
        _tune(name, model, parts, plan, trials, progress)
        budget_settings = _apply_budget(plan.budget, model, parts.train)
        more_seeds = [model.random_state + i for i in range(1, plan.seeds)]
        clones = [model.clone().set_params(random_state=seed) for seed in more_seeds]
        seeds = [_fit_one_seed(each, parts) for each in (model, *clones)]
        return ModelResult(name, model, seeds, budget_settings, trials)
    except LostProcessError:
        raise  # the other models could not be fitted either
    except FAILURES as error:
        warnings.warn(f"{name} failed: {error}", stacklevel=3)
        return ModelResult(name, model, trials=trials, error=f"{type(error).__name__}: {error}")


def _tune(
    name: str, model: SequenceModel, parts: DataParts, plan: FitPlan, trials: list[Trial], progress: Progress
) -> None:
    """Set ``model`` to the best of its settings; every trial is appended to ``trials``, also where all of them fail."""
    settings = [] if plan.search is None else plan.search.settings(name, plan.random_state)
    if plan.search is None or not settings or parts.train is None:
        return
    whole = parts.train

    def fit(clone: SequenceModel, train: Data) -> SequenceModel:
        _apply_budget(plan.budget, clone, whole)
        return _fit(clone, train, parts.validation)

    folds = cross_validation_folds(whole, plan.search.folds, plan.random_state)
    for trial in run_trials(model, settings, fit, folds):
        trials.append(trial)
        outcome = trial.error or f"{trial.score:.4f} nats per {whole.scored.unit}"
        progress(f"{name}: trial {len(trials)} of {len(settings)}: {in_words(trial.settings)}: {outcome}")
    model.set_params(**best_of(trials).settings)


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
    score = float(np.array([total(s) for s in steps]).sum() / n_units)  # the sum of model.score, to the last bit
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
        bad = np.isnan(of_sequence) | (of_sequence == np.inf)
        if bad.any():
            t = int(np.argmax(bad))
            raise ValueError(
                f"log p is {of_sequence[t]} at step {t} of test sequence {name}, which is no figure to compare; look "
                'for extreme values in the data or in the weights, or compute in dtype="float64"'
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
