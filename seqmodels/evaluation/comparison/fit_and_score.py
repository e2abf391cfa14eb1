"""The fit of each model of a comparison: it is tuned, given its budget, fitted once for each seed, and scored."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from seqmodels.common.distributed import LostProcessError
from seqmodels.common.peak_memory import peak_memory
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation import parallel_fits
from seqmodels.evaluation.comparison.model_results import ModelResult, SeedResult
from seqmodels.evaluation.comparison.plan import DataParts, FitPlan
from seqmodels.evaluation.comparison.variance_floor import floor_effect
from seqmodels.evaluation.tuning.budget import Budget
from seqmodels.evaluation.tuning.search import (
    FAILURES,
    Trial,
    best_of,
    cross_validation_folds,
    fold_score,
    in_words,
    run_trial,
)
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.model.fitting import check_arguments
from seqmodels.sequences import Sequences
from seqmodels.sequences.mapped import parts_of, totals

Progress = Callable[[str], None]  # called with one line of text


def fit_and_score(
    models: Mapping[str, SequenceModel],
    parts: DataParts,
    plan: FitPlan,
    progress: Progress,
    jobs: parallel_fits.Jobs = 1,
) -> Iterator[ModelResult]:
    """Tune, fit and score the models of a comparison, and yield the result of each model when its last seed is done.

    A model that fails yields a result with its error, so that the others are not lost.

    Args:
        models: the models by name, fitted in place.
        parts: training, validation and test data.
        plan: number of seeds, budget and search.
        progress: called with a line of text for each trial.
        jobs: number of parallel fits, or an executor. With 1 the models come one after the other; otherwise all trials
            of all searches run first, then the fits.
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
    budgets: dict[str, dict[str, Any]] = {}  # the hyperparameters that the budget set, by model
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
                if name in errors:  # an earlier seed may have failed while this generator was waiting
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
    """Copy all attributes of ``fitted``, which was fitted in another process, to the user's ``model``."""
    if model is not fitted:
        vars(model).clear()
        vars(model).update(vars(fitted))


def _prepare(model: SequenceModel, parts: DataParts, plan: FitPlan, trials: list[Trial]) -> dict[str, Any]:
    """Set the best setting of the search and the budget on a model; return the hyperparameters that the budget set.

    Args:
        model: the model, which is changed in place.
        parts: training, validation and test data.
        plan: the plan with the budget.
        trials: results of the settings that the search tried; empty if there was no search.

    Raises:
        NotFittedError: the model is not fitted and there is no training part.
    """
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
    """Run every trial of the search, several at a time; return the trials of each model, in the order of its grid.

    A model without a search has an empty list.

    Args:
        models: models by name.
        parts: training, validation and test data.
        plan: budget and search.
        progress: function that is called with a line of text for each trial.
        jobs: number of parallel fits, or an executor.
    """
    settings = {name: [] if plan.search is None else plan.search.settings(name, plan.random_state) for name in models}
    if plan.search is None or parts.train is None or not any(settings.values()):
        return {name: [] for name in models}
    folds = cross_validation_folds(parts.train, plan.search.folds, plan.random_state)
    fit = partial(_fit_within, plan.budget, parts)
    tasks = (
        ((name, i), partial(run_trial, models[name], setting, fit, folds, fold_score))
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
    """Fit a model to a part of the training data, within the budget for the whole of it; return it.

    Args:
        budget: limits of the fit; None means none.
        parts: training, validation and test data.
        model: the model, which is fitted in place.
        train: the part that it is fitted to.
    """
    assert parts.train is not None
    _apply_budget(budget, model, parts.train)
    return _fit(model, train, parts.validation)


def _fit(model: SequenceModel, train: Data, validation: Any) -> SequenceModel:
    """Fit a model in place and return it.

    Args:
        model: the model.
        train: sequences and targets that it is fitted to.
        validation: data for early stopping, the argument of ``fit``.

    Raises:
        KeyboardInterrupt: a signal ended ``fit``, which ends the whole comparison; the model keeps the best parameters
            it had found.
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
    """Fit and score one model; return it with its scores and costs, or with the text of the error if it failed."""
    try:
        return model, _fit_one_seed(model, parts)
    except LostProcessError:
        raise  # because the other models could not be fitted either
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
    score = float(totals(steps).sum() / n_units)  # summed as in model.score, to the last bit
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
        score_error=model.score_error(test.X, test.y) if model.measure_.kind == "estimate" else math.nan,
    )


def _refuse_nan(steps: list[np.ndarray], scored: Sequences) -> None:
    """Check that no log-probability of a step is NaN or +inf; -inf is valid.

    Args:
        steps: an array ``(T,)`` for each sequence.
        scored: the sequences.

    Raises:
        ValueError: a log-probability is NaN or +inf; the message names sequence and step.
    """
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
    """Sample about ``n_units`` frames, bytes or symbols of the training data, on which models are scored too.

    A single long sequence is cut; of several, whole sequences are drawn.
    """
    if len(train.X) == 1 and train.y is None:
        return Data.of(train.X.segments([(0, 0, n_units)]))
    order = np.random.default_rng(0).permutation(len(train.X))  # a fixed seed, so that all models score the same sample
    n_sequences = int(np.searchsorted(np.cumsum(train.scored.n_units[order]), n_units)) + 1
    mask = np.zeros(len(order), dtype=bool)
    mask[order[:n_sequences]] = True
    return train.take(mask)
