"""``Search``: the same number of settings tried for every model, each cross-validated on the training part alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.distributed import LostProcessError
from seqmodels.common.parameters import Configurable, Seed, check_fields, checked
from seqmodels.encodings.raw_data import Data, cluster_numbers
from seqmodels.evaluation.tuning.budget import Budget
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences
from seqmodels.sequences.sequences import PAST_OF_TEST

if TYPE_CHECKING:
    import pandas as pd

Grid = Mapping[str, Sequence[Any]]
Tried = TypeVar("Tried", bound=Configurable)  # a model, or a classifier
FAILURES = (ValueError, RuntimeError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class Search:
    """Random search (Bergstra & Bengio 2012) of each model's hyperparameters by cross-validation on the training part.

    It is an argument of ``compare``, so that every model of a comparison has the same number of trials.

    Args:
        grids: for each model by name, the values of hyperparameters to choose from, ``{"lstm": {"lr": [1e-3, 3e-3]}}``;
            nested ones as ``observation__n_components``. A model without a grid is fitted as it is, with a warning.
        trials: number of settings drawn from each grid without replacement; a smaller grid is tried completely.
        folds: number of parts of the training data, each of which is scored by a model fitted to the others: whole
            clusters if the data have clusters, else sequences; one long sequence is cut into consecutive pieces.

    Raises:
        ValueError: a grid is empty, or there is less than one trial or fewer than two folds.
    """

    grids: Mapping[str, Grid]
    trials: int = 8
    folds: int = 3

    def __post_init__(self) -> None:
        check_fields(self)
        for name, grid in self.grids.items():
            if not isinstance(grid, Mapping):
                raise ValueError(f"the grid of {name!r} is {grid!r}; pass a dictionary, such as {{'lr': [1e-3, 3e-3]}}")
            for parameter, values in grid.items():
                if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                    raise ValueError(f"{parameter!r} in the grid of {name!r} is {values!r}; pass a list of values")
        if self.trials < 1 or self.folds < 2:
            raise ValueError(f"trials={self.trials} and folds={self.folds}; pass at least 1 and 2")
        for name, grid in self.grids.items():
            empty = [parameter for parameter, values in grid.items() if not len(values)]
            if empty or not grid:
                raise ValueError(f"the grid of {name!r} is empty{f' in {empty[0]!r}' if empty else ''}; give it values")

    @checked
    def settings(self, name: str, random_state: Seed = 0) -> list[dict[str, Any]]:
        """Return the settings to try for one model, each a dictionary of hyperparameters, in the grid's order.

        The list is empty if the model has no grid.

        Args:
            name: name of the model.
            random_state: seed of the draw of settings.

        >>> Search({"a": {"lr": [1, 2], "d_model": [8, 16]}}, trials=2).settings("a")
        [{'lr': 2, 'd_model': 8}, {'lr': 2, 'd_model': 16}]
        """
        grid = self.grids.get(name)
        if grid is None:
            return []
        sizes = [len(values) for values in grid.values()]
        n_settings = math.prod(sizes)
        drawn = np.random.default_rng(random_state).choice(n_settings, min(self.trials, n_settings), replace=False)
        indices = zip(*np.unravel_index(np.sort(drawn), sizes), strict=True)
        return [{name: grid[name][i] for name, i in zip(grid, index, strict=True)} for index in indices]

    def check(self, models: Mapping[str, SequenceModel], budget: Budget | None) -> None:
        """Check that the grids suit the models, and warn if models do not have equally many trials.

        Args:
            models: models by name.
            budget: limits of every fit, whose hyperparameters a grid may not have; None means none.

        Raises:
            ValueError: a grid is for no model, or has a hyperparameter that is unknown or set by the budget.
        """
        for name, grid in self.grids.items():
            if name not in models:
                raise ValueError(f"there is a grid for {name!r}, which is not among the models: {', '.join(models)}")
            models[name].clone().set_params(**{parameter: values[0] for parameter, values in grid.items()})
            both = set() if budget is None else budget.hyperparameters(models[name]) & set(grid)
            if both:
                raise ValueError(
                    f"the grid of {name!r} tunes {min(both)}, which the budget sets; leave it out of one of them"
                )
        counts = {name: len(self.settings(name)) for name in models}
        fewer = [f"{name}: {n}" for name, n in counts.items() if n < max(counts.values())]
        if fewer:
            warn_caller(
                f"not every model has {max(counts.values())} trials ({', '.join(fewer)}), so some are tuned better "
                "than others; give each a grid of as many",
            )


@dataclass(frozen=True)
class FoldScore:
    """The score of one fold of cross-validation under a model that was fitted to the other folds.

    Attributes:
        log_prob: log-probability of the fold in nats; for a classifier, the number of sequences labelled right.
        n_units: number of units (frames, bytes or symbols) of the fold; for a classifier, the number of sequences.
    """

    log_prob: float
    n_units: float


@dataclass(frozen=True)
class Trial:
    """The result of one setting of a search, a set of hyperparameters that was cross-validated.

    Attributes:
        settings: hyperparameters by name.
        score: nats per unit over all folds, higher is better; NaN if it failed.
        seconds: seconds of all its fits.
        error: type and message of the error; empty if there was none.
        folds: score of each fold.
    """

    settings: dict[str, Any]
    score: float
    seconds: float
    error: str = ""
    folds: tuple[FoldScore, ...] = ()


def fold_score(fitted: SequenceModel, part: Data) -> FoldScore:
    """Return the log-probability in nats of held-out data under a fitted model, and their number of units.

    Args:
        fitted: the model.
        part: sequences, and targets if the model is of p(y | x).
    """
    return FoldScore(float(fitted.log_prob(part.X, part.y).sum()), float(part.scored.n_units.sum()))


def run_trial(
    model: Tried,
    setting: Mapping[str, Any],
    fit: Callable[[Tried, Data], Tried],
    folds: list[tuple[Data, Data]],
    score: Callable[[Tried, Data], FoldScore],
) -> Trial:
    """Cross-validate one setting: fit a clone of ``model`` to the first part of each fold, and score the second.

    Args:
        model: the model, which stays as it is.
        setting: hyperparameters by name.
        fit: function that fits a model to data and returns it.
        folds: training and test data of each fold.
        score: function that scores a fitted model on data.

    Returns:
        ``Trial``, with the score over all folds; if a fit failed, the score is NaN and ``error`` says why.
    """
    began = time.perf_counter()
    fold_scores: tuple[FoldScore, ...] = ()
    try:
        changed = model.clone().set_params(**setting)
        fold_scores = tuple(score(fit(changed.clone(), train), test) for train, test in folds)
        mean = sum(fold.log_prob for fold in fold_scores) / sum(fold.n_units for fold in fold_scores)
        error = ""
    except LostProcessError:
        raise  # the other settings could not be fitted either
    except FAILURES as failure:
        mean = math.nan
        error = f"{type(failure).__name__}: {failure}"
    return Trial(dict(setting), mean, time.perf_counter() - began, error, fold_scores)


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the highest score, the first of equal ones.

    Args:
        trials: results of cross-validated settings; those that failed have the score NaN.

    Raises:
        ValueError: every trial failed.
    """
    scored = [trial for trial in trials if not math.isnan(trial.score)]
    if not scored:
        raise ValueError(f"every trial of the search failed, the first by {trials[0].error}")
    return max(scored, key=lambda trial: trial.score)


def cross_validation_folds(train: Data, n: int, random_state: int = 0) -> list[tuple[Data, Data]]:
    """Return ``n`` pairs of training and test data: by clusters, by sequences, or by segments of one long sequence.

    Args:
        train: the data that are cut.
        n: number of folds.
        random_state: seed of the assignment to folds.

    Raises:
        ValueError: there are fewer clusters, sequences or steps than folds.
    """
    if len(train.X) == 1 and train.y is None:
        return _folds_of_one_sequence(train.X, n)
    clusters = cluster_numbers(train)
    codes = np.arange(len(train.X)) if clusters is None else clusters
    n_codes = int(codes.max()) + 1
    if n_codes < n:
        what = "sequences" if clusters is None else "clusters"
        way_out = f"pass folds={n_codes} or fewer" if n_codes > 1 else "pass more"
        raise ValueError(f"there are {n_codes} {what} to fit to, too few for {n} folds; {way_out}")
    fold = np.random.default_rng(random_state).permutation(n_codes)[codes] % n
    return [(train.take(fold != k), train.take(fold == k)) for k in range(n)]


def _folds_of_one_sequence(X: Sequences, n: int) -> list[tuple[Data, Data]]:
    item = X.items[0]
    if len(item) < n:
        raise ValueError(f"the one sequence to fit to has {len(item)} steps, too few for {n} folds; pass fewer folds")
    cuts = np.linspace(0, len(item), n + 1).astype(int)
    edges = list(pairwise(cuts.tolist()))
    segments = X.segments((0, a, b) for a, b in edges)
    held_out = X.segments(((0, a, b) for a, b in edges), past=PAST_OF_TEST)  # scored given what came before
    return [(Data.of(segments.take(np.arange(n) != k)), Data.of(held_out.take([k]))) for k in range(n)]


def in_words(settings: Mapping[str, Any]) -> str:
    """Return hyperparameters, given by name, as text that Python code would pass them by.

    >>> in_words({"lr": 0.003, "attention": None})
    'lr=0.003, attention=None'
    """
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def trials_frame(trials: Mapping[str, Sequence[Trial]]) -> pd.DataFrame:
    """Return a frame with a row for each trial (cross-validated setting) of each model.

    Its columns are ``model``, ``trial`` (from 1), ``settings``, ``score`` (nats per unit over the folds), ``seconds``,
    ``best`` (True for the best trial of the model) and ``error``.

    Args:
        trials: the trials of each model, by its name.
    """
    import pandas as pd

    rows = []
    for name, tried in trials.items():
        any_scored = any(not math.isnan(trial.score) for trial in tried)
        best = best_of(tried) if any_scored else None
        rows += [
            {"model": name, "trial": i, "settings": in_words(trial.settings), "score": trial.score}
            | {"seconds": trial.seconds, "best": trial is best, "error": trial.error}
            for i, trial in enumerate(tried, 1)
        ]
    return pd.DataFrame(rows, columns=["model", "trial", "settings", "score", "seconds", "best", "error"])
