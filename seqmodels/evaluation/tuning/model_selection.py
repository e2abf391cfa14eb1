"""``choose``: one hyperparameter or one recipe of several, by cross-validation, BIC and AIC side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from seqmodels.common.distinct_warnings import distinct_warnings
from seqmodels.common.distributed import LostProcessError
from seqmodels.common.parameters import Seed, checked, checked_but
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation import parallel_fits
from seqmodels.evaluation.tuning.observation_proposals import ObservationProposals, propose_observations
from seqmodels.evaluation.tuning.recipes import Proposal, propose_recipes
from seqmodels.evaluation.tuning.search import FAILURES, FoldScore, cross_validation_folds, fold_score, run_trial
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import check_arguments
from seqmodels.wrappers.classification import GenerativeClassifier

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FIGURES = ("train", "bic", "aic", "n_parameters", "floor_hits")  # of the fit to all of the data
Criterion = Literal["cv", "bic", "aic"]
Rule = Literal["auto", "one_se", "paired_se", "best"]
RECIPE = "recipe"  # several hyperparameters at once
PROPOSED = "proposed"  # observations or recipes that the data propose
Model = SequenceModel | GenerativeClassifier


@dataclass(frozen=True, repr=False)
class ModelSelection:
    """The result of ``choose``: scores of every value of a hyperparameter, and the chosen value.

    Attributes:
        parameter: name of the hyperparameter that was varied, or ``"recipe"``.
        values: its values, as they were given; recipes (arguments that are tried together) as ``evaluation.Proposal``.
        frame: a frame with a row for each value. ``value``; ``cv``, the score of the held-out folds together in nats
            per unit, higher is better; ``cv_se``, its standard error over the folds; ``difference``, ``cv`` minus the
            best; ``difference_se``, its standard error, from the differences in each fold; ``train``, nats per unit of
            all data under the model fitted to them; ``bic`` and ``aic``, lower is better; ``n_parameters``;
            ``floor_hits``, the number of densities whose variance ended on its floor, the least that is allowed;
            ``seconds`` of all fits with the value; ``error``.
        models: for each row the model fitted to all of the data, None if it failed.
        best_row: row of the best value by ``criterion``.
        chosen_row: row of the value that ``criterion`` and ``rule`` choose.
        criterion: what decided: ``"cv"``, ``"bic"`` or ``"aic"``.
        rule: how ``"cv"`` decided: ``"best"``, ``"one_se"`` or ``"paired_se"``, as ``choose`` describes them.
        unit: frame, byte or symbol. For a classifier it is ``"sequence"``: ``cv`` and ``train`` are then the shares of
            sequences that are labelled right, and there are no ``bic`` and ``aic``.
        n_units: number of units of all data, the n of BIC.
        folds: number of folds; None means that there was no cross-validation.
        proposals: the observations that the data suggest, if they were asked for; None means that the user gave values.
    """

    parameter: str
    values: list[Any]
    frame: pd.DataFrame
    models: list[Model | None]
    best_row: int
    chosen_row: int
    criterion: Criterion
    rule: Rule
    unit: str
    n_units: int
    folds: int | None
    proposals: ObservationProposals | None = None

    @property
    def best(self) -> Any:
        """The value of the hyperparameter that is best by the criterion."""
        return self.values[self.best_row]

    @property
    def chosen(self) -> Any:
        """The value of the hyperparameter that is chosen by the criterion and the rule."""
        return self.values[self.chosen_row]

    @property
    def model(self) -> Any:
        """The model with the chosen value of the hyperparameter, fitted to all of the data."""
        model = self.models[self.chosen_row]
        assert model is not None, "what failed is not chosen"
        return model

    @checked
    def by(self, criterion: Criterion) -> Any:
        """Return the value of the hyperparameter that is best by one criterion; None if the criterion was not computed.

        Args:
            criterion: ``"cv"`` (cross-validation), ``"bic"`` or ``"aic"``.

        >>> from seqmodels import HMM
        >>> x = [np.array([0, 1] * 10), np.array([1, 0] * 10), np.array([0, 1] * 8)]
        >>> choose(HMM(length="given"), x, folds=3, n_states=[1, 2]).by("bic")
        2
        """
        row = _best_row(self.frame, criterion)
        return None if row is None else self.values[row]

    @checked
    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot each criterion against the hyperparameter, in nats per unit, higher is better; return the axes.

        BIC and AIC of n units are shown as ``-BIC / 2n`` and ``-AIC / 2n``.

        Args:
            ax: axes to draw on; None makes a new figure, ``plot().figure``.
        """
        from seqmodels.plot.model_selection import plot_selection  # lazily: matplotlib is slow to import

        return plot_selection(self, ax)

    def __repr__(self) -> str:
        lines = [f"{self.parameter} = {self.chosen!r}"]
        if self.folds is not None:
            lines.append(self._cross_validation_in_words())
        if isinstance(self.chosen, Proposal) and self.chosen.why:
            lines.append(f"  {self.chosen.why}")
        others = [f"{name.upper()}: {self.by(name)!r}" for name in ("bic", "aic") if self.by(name) is not None]
        if others:
            lines.append(f"  by {', by '.join(others)} (n = {self.n_units:,} {self.unit}s)")
        if self.proposals is not None:
            lines += ["  proposed by the values of each feature:", indent(repr(self.proposals), "    ")]
        return "\n".join([*lines, *self._cautions()])

    def _cross_validation_in_words(self) -> str:
        row = _best_row(self.frame, "cv")
        if row is None:
            return f"  by cross-validation ({self.folds} folds): none has a finite score"
        score, error = self.frame["cv"].iloc[row], self.frame["cv_se"].iloc[row]
        of_held_out = f"{score:.4f} nats per {self.unit} of what was held out"
        if self.unit == "sequence":
            of_held_out = f"which labels {score:.4f} of the sequences right that were held out"
        text = (
            f"  by cross-validation ({self.folds} folds): the best is {self.values[row]!r}, {of_held_out}, standard "
            f"error {error:.4f}"
        )
        if self.criterion != "cv" or self.rule == "best":
            return text
        if self.chosen_row == row:
            return f"{text}; none with fewer parameters is as good within the error"
        chosen = self.frame["cv"].iloc[self.chosen_row]
        within = "one standard error" if self.rule == "one_se" else "one standard error of the difference"
        return f"{text}; {self.chosen!r}, {chosen:.4f}, has the fewest parameters within {within} of it"

    def _cautions(self) -> list[str]:
        lines = []
        is_series = self.proposals is None and self.parameter != RECIPE and len(self.frame) > 1
        if is_series and self.best_row == int(self.frame["n_parameters"].argmax()):
            lines.append(f"  the best is the largest that was tried: try more than {self.best!r}")
        on_floor = [repr(self.values[i]) for i in np.flatnonzero(self.frame["floor_hits"] > 0)]
        if on_floor:
            lines.append(f"  a variance ended on its floor under {', '.join(on_floor)}: the floor sets such figures")
        failed = [(value, error) for value, error in zip(self.values, self.frame["error"], strict=True) if error]
        return lines + [f"  {value!r} failed: {error}" for value, error in failed]


@checked_but("model")
def choose(
    model: Model,
    X: Any,
    y: Any = None,
    *,
    folds: int | None = 5,
    criterion: Criterion = "cv",
    rule: Rule = "auto",
    random_state: Seed = 0,
    validation: Any = "auto",
    n_jobs: parallel_fits.Jobs = 1,
    progress: Callable[[str], None] | None = None,
    verbose: Verbose = "auto",
    **values: Sequence[Any],
) -> ModelSelection:
    """Fit ``model`` with each value of one hyperparameter, or each of several recipes, and choose one of them.

    A recipe is a set of arguments that are tried together. Every value is cross-validated: the model is fitted to all
    folds but one and scored on that one, in turn. It is also fitted to all of the data, for
    ``BIC = n_parameters log n - 2 log p`` (Schwarz 1978) and ``AIC = 2 n_parameters - 2 log p`` (Akaike 1974), where n
    is the number of units (frames, bytes or symbols). Both assume that the fit is a maximum of the likelihood and that
    parameters are identified, which is not so for mixtures, HMMs with more states than the data have, and networks that
    stop early; cross-validation assumes neither.

    The standard error of the score ``r = Σ_k l_k / Σ_k u_k`` over K folds with l nats and u units is that of a ratio,
    ``sqrt(K / (K - 1) Σ_k (l_k - r u_k)²) / Σ_k u_k``; with folds of one size, the standard deviation of their scores
    over ``sqrt(K)``.

    Args:
        model: the model, which stays as it is; if it is fitted, the fit is ignored. For a ``GenerativeClassifier`` the
            share of sequences that are labelled right decides.
        X, y: sequences, and targets for p(y | x); the labels of a classifier are those that X carries.
        folds: number of parts of the data: whole clusters if the data have clusters, else sequences, or consecutive
            segments of one long sequence. None means no cross-validation, which takes ``folds`` times as long as the
            rest.
        criterion: what decides: ``"cv"``, ``"bic"`` or ``"aic"``. All that were computed are shown.
        rule: how ``"cv"`` decides; with ``"bic"`` and ``"aic"`` the best value is chosen. ``"best"`` chooses the best
            score. ``"one_se"`` chooses, among all values whose score is at most one standard error below the best, the
            model with the fewest parameters (Breiman et al. 1984; Hastie et al. 2009, 7.10), and of equally large
            models the first given. ``"paired_se"`` does the same with the standard error of the difference to the best,
            which is smaller because it leaves out what makes a fold hard for every value (other speakers, another
            year). ``"auto"`` is ``"one_se"``, but for recipes and proposed observations, which are not ordered from
            simple to complex, ``"paired_se"`` with the best of equally large models.
        random_state: seed of the assignment to folds. Fits have the seed of the model.
        validation: the argument of ``fit``, used within each fit: ``"auto"`` lets networks hold out a part of the data
            for early stopping, None holds out nothing.
        n_jobs: number of values that are tried at the same time, each in its own process, -1 for one for each core, or
            an ``Executor`` of ``concurrent.futures``.
        progress: a function that is called with a line of text when a value is done; None means none.
        verbose: True shows a progress bar over the values; False shows none, and silences the fits too. ``"auto"``
            shows one in a terminal or a notebook if it takes longer than three seconds.
        values: one hyperparameter by name with its values: ``n_states=range(1, 13)``, ``d_model=[32, 64]``,
            ``observation__n_components=[1, 2, 4]``. ``observation="proposed"`` tries the observations that
            ``evaluation.propose_observations`` suggests for the features, whose result may be passed too; if there are
            several groups of features, the combination of the best of each group is tried as well.
            ``recipe="proposed"`` tries several arguments at a time, as ``evaluation.propose_recipes`` suggests;
            ``recipe=[{...}, {...}]`` tries arguments of your own.

    Returns:
        ``ModelSelection``, with the chosen value ``.chosen``, its model ``.model``, fitted to all of the data, and a
            row
        for each value in ``.frame``.

    Raises:
        ValueError: there is no hyperparameter or several, or an unknown one; a value is invalid; there are fewer
            sequences (or clusters) than folds; or every value failed. A value that fails alone has its error in the
            frame.
        KeyboardInterrupt: Ctrl-C or SIGTERM was received.

    EM finds a local maximum: with ``n_init=5`` and more, curves over the number of states are smoother.

    >>> from seqmodels import HMM
    >>> rng = np.random.default_rng(0)
    >>> x = [rng.integers(0, 2, 30) for _ in range(10)]
    >>> choose(HMM(max_iter=20), x, n_states=[1, 2, 3]).chosen
    1
    """
    given: Any = values.get("observation")
    if is_proposed(given):
        check(model, "observation", [], folds, criterion, rule, validation)
        given = propose_observations(Data.of(X, y).scored)
        values = {**values, "observation": list(given)}
    if is_proposed(values.get(RECIPE)):
        check(model, RECIPE, [], folds, criterion, rule, validation)
        values = {**values, RECIPE: propose_recipes(model, Data.of(X, y).scored)}
    proposals = given if isinstance(given, ObservationProposals) else None
    parameter, tried = _swept(values)
    if parameter == RECIPE:
        tried = [_recipe_of(value) for value in tried]
    check(model, parameter, tried, folds, criterion, rule, validation)
    data = Data.of(X, y)
    parts = None if folds is None else cross_validation_folds(data, folds, random_state)
    jobs = parallel_fits.checked_jobs(n_jobs, has_seconds=False)
    is_classifier = isinstance(model, GenerativeClassifier)
    unit = "sequence" if is_classifier else data.scored.unit

    def results_of(of_values: list[Any]) -> list[_Result]:
        done: dict[int, _Result] = {}
        tasks = (
            (i, partial(_figures, model, parameter, value, data, parts, validation))
            for i, value in enumerate(of_values)
        )
        with distinct_warnings(), ProgressBar(len(of_values), verbose, "choose") as bar:
            for i, outcome in parallel_fits.run(tasks, jobs):
                if isinstance(outcome, parallel_fits.LostWorker):
                    outcome = _Result(of_values[i], error=outcome.error)
                done[i] = outcome
                bar.move(len(done), f"{parameter}={of_values[i]!r}")
                if progress is not None:
                    progress(_progress_line(parameter, done[i], unit))
        return [done[i] for i in range(len(of_values))]

    results = results_of(tried)
    if proposals is not None:
        combination = proposals.combination([result.by(criterion) for result in results])
        if combination is not None:
            tried = [*tried, combination]
            results += results_of([combination])
    frame = _frame(results)
    prefers_score = rule == "auto" and (proposals is not None or parameter == RECIPE)
    if rule == "auto":
        rule = "paired_se" if prefers_score else "one_se"
    best, chosen = _best_and_chosen(frame, criterion, rule, prefers_score=prefers_score)
    n_units = len(data.X) if is_classifier else int(data.scored.n_units.sum())
    models = [result.model for result in results]
    return ModelSelection(
        parameter, tried, frame, models, best, chosen, criterion, rule, unit, n_units, folds, proposals
    )


def is_proposed(given: Any) -> bool:
    """Return True if an argument is the string ``"proposed"``, which asks for values that the data suggest."""
    return isinstance(given, str) and given == PROPOSED


def _swept(values: dict[str, Sequence[Any]]) -> tuple[str, list[Any]]:
    if len(values) != 1:
        said = f"{', '.join(values)} are several hyperparameters" if values else "there is no hyperparameter to choose"
        raise ValueError(
            f"{said}; pass the values of one, such as n_states=range(1, 13); seqmodels.Search varies several"
        )
    ((parameter, given),) = values.items()
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ValueError(f"{parameter} is {given!r}; pass its values, such as {parameter}=[{given!r}]")
    tried = list(given.tolist() if isinstance(given, np.ndarray) else given)
    if not tried:
        raise ValueError(f"{parameter} has no values; pass at least one")
    return parameter, tried


def _recipe_of(given: Any) -> Proposal:
    """Return a recipe (arguments that are tried together) as a ``Proposal``.

    Args:
        given: a ``Proposal``, which is returned unchanged, or a dictionary of arguments by name.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(given, Proposal):
        return given
    if isinstance(given, dict) and all(isinstance(name, str) for name in given):
        return Proposal(given)
    raise ValueError(
        f"a recipe is {given!r:.100}; pass a dictionary of arguments, such as {{'n_states': 4, 'n_init': 5}}"
    )


def _setting(parameter: str, value: Any) -> dict[str, Any]:
    """Return the arguments to set on the model, by name.

    Args:
        parameter: name of the hyperparameter, or ``"recipe"``.
        value: one of its values, or a recipe as a ``Proposal``.
    """
    return dict(value.arguments) if isinstance(value, Proposal) else {parameter: value}


def check(model: Any, parameter: str, tried: list[Any], folds: Any, criterion: str, rule: str, validation: Any) -> None:
    """Check the arguments of ``choose`` that are invalid whatever the data are.

    Args:
        model: the model.
        parameter: name of the hyperparameter that is varied, or ``"recipe"``.
        tried: its values.
        folds: number of folds; None for no cross-validation.
        criterion: ``"cv"``, ``"bic"`` or ``"aic"``.
        rule: ``"auto"``, ``"one_se"``, ``"paired_se"`` or ``"best"``.
        validation: ``"auto"`` or None.

    Raises:
        ValueError: an argument is invalid; the message says which and what to pass.
    """
    if not isinstance(model, Model):
        raise ValueError(
            f"model is {model!r}, which has no likelihood; pass a SequenceModel such as HMM(n_init=5), or a "
            "GenerativeClassifier"
        )
    for value in tried:
        changed = model.clone().set_params(**_setting(parameter, value))
        if isinstance(changed, SequenceModel):
            check_arguments(changed)
            changed._check_hyperparameters()
        else:
            changed.check()
    if isinstance(model, GenerativeClassifier) and criterion != "cv":
        raise ValueError(f"criterion is {criterion!r}, which a classifier has none of; pass 'cv'")
    for name, given, choices in (("criterion", criterion, get_args(Criterion)), ("rule", rule, get_args(Rule))):
        if given not in choices:
            raise ValueError(f"{name} is {given!r}; pass one of {', '.join(map(repr, choices))}")
    if folds is not None and not (isinstance(folds, int | np.integer) and folds >= 2):
        raise ValueError(f"folds is {folds!r}; pass at least 2, or None for no cross-validation")
    if folds is None and criterion == "cv":
        raise ValueError("folds is None, so nothing is cross-validated; pass criterion='bic' or 'aic', or folds=5")
    if validation is not None and not (isinstance(validation, str) and validation == "auto"):
        raise ValueError("validation is a part of what each fit is given; pass 'auto', or None to hold out nothing")


@dataclass(eq=False)
class _Result:
    """The fits and scores of one value of the hyperparameter.

    Attributes:
        value: the value.
        folds: score of each fold.
        model: the model fitted to all of the data; None if it failed.
        figures: columns of ``ModelSelection.frame`` that are computed from this fit, by name.
        seconds: seconds of all fits.
        error: type and message of the error; empty if there was none.
    """

    value: Any
    folds: tuple[FoldScore, ...] = ()
    model: Model | None = None
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = math.nan
    error: str = ""

    @property
    def cv(self) -> float:
        """Score over all folds: nats per unit, or for a classifier the share of sequences that are labelled right."""
        n_units = sum(fold.n_units for fold in self.folds)
        return sum(fold.log_prob for fold in self.folds) / n_units if n_units else math.nan

    def by(self, criterion: Criterion) -> float:
        """Return the value's score by a criterion, higher is better, NaN if there is none.

        Args:
            criterion: ``"cv"``, or ``"bic"`` or ``"aic"``, whose negative is the score.
        """
        if self.error:
            return math.nan
        return self.cv if criterion == "cv" else -self.figures[criterion]


def _figures(
    model: Model,
    parameter: str,
    value: Any,
    data: Data,
    parts: list[tuple[Data, Data]] | None,
    validation: Any,
) -> _Result:
    """Cross-validate one value of a hyperparameter, fit the model with it to all of the data, and return the result.

    Args:
        model: the model, which stays as it is.
        parameter: name of the hyperparameter, or ``"recipe"``.
        value: its value.
        data: all of the data.
        parts: training and test data of each fold; None means no cross-validation.
        validation: the argument of ``fit``.
    """
    began = time.perf_counter()
    result = _Result(value)
    fit = partial(_fit, validation)
    if parts is not None:
        trial = run_trial(model, _setting(parameter, value), fit, parts, _fold_score)
        result.folds, result.error = trial.folds, trial.error
    try:
        if not result.error:
            result.model = fit(model.clone().set_params(**_setting(parameter, value)), data)
            result.figures = _figures_of_fit(result.model, data)
    except LostProcessError:
        raise  # the other values could not be fitted either
    except FAILURES as failure:
        result.error = f"{type(failure).__name__}: {failure}"
    result.seconds = time.perf_counter() - began
    return result


def _fold_score(fitted: Model, part: Data) -> FoldScore:
    """Score one held-out fold under a fitted model: its log-probability in nats and its number of units.

    For a classifier it is the number of sequences that are labelled right, and the number of all.
    """
    if isinstance(fitted, GenerativeClassifier):
        return FoldScore(float((fitted.predict(part.X) == np.asarray(part.X.labels)).sum()), len(part.X))
    return fold_score(fitted, part)


def _fit(validation: Any, model: Model, part: Data) -> Model:
    fitted = model.fit(part.X, part.y, validation=validation)
    if isinstance(fitted, SequenceModel) and fitted.interrupted_:  # its figure would not be that of its value
        raise KeyboardInterrupt
    return fitted


def _figures_of_fit(fitted: Model, data: Data) -> dict[str, float]:
    if isinstance(fitted, GenerativeClassifier):
        of_all = {"train": fitted.score(data.X), "bic": math.nan, "aic": math.nan}
        counts = {"n_parameters": sum(each.n_parameters_ for each in fitted.models_)}
        return {**of_all, **counts, "floor_hits": sum(map(_floor_hits, fitted.models_))}
    n_units = float(data.scored.n_units.sum())
    log_prob = float(fitted.log_prob(data.X, data.y).sum())
    n_parameters = fitted.n_parameters_
    return {
        "train": log_prob / n_units,
        "bic": n_parameters * math.log(n_units) - 2 * log_prob,
        "aic": 2 * n_parameters - 2 * log_prob,
        "n_parameters": n_parameters,
        "floor_hits": _floor_hits(fitted),
    }


def _floor_hits(fitted: SequenceModel) -> int:
    return int(fitted.history_["floor_hits"].iloc[-1]) if len(fitted.history_) else 0


def standard_error(folds: Sequence[FoldScore]) -> float:
    """Return the standard error of the ratio ``Σ nats / Σ units`` over folds, by linearisation; NaN for one fold.

    Args:
        folds: nats and number of units of each fold.

    >>> round(standard_error([FoldScore(-10.0, 10), FoldScore(-14.0, 10), FoldScore(-12.0, 10)]), 4)  # 0.2 / sqrt(3)
    0.1155
    """
    nats = np.array([fold.log_prob for fold in folds])
    units = np.array([fold.n_units for fold in folds])
    if len(folds) < 2 or not np.isfinite(nats).all():
        return math.nan
    residuals = nats - nats.sum() / units.sum() * units
    return float(np.sqrt(len(folds) / (len(folds) - 1) * (residuals**2).sum()) / units.sum())


def _differences(folds: Sequence[FoldScore], best: Sequence[FoldScore]) -> list[FoldScore]:
    return [FoldScore(a.log_prob - b.log_prob, a.n_units) for a, b in zip(folds, best, strict=True)]


def _frame(results: list[_Result]) -> pd.DataFrame:
    import pandas as pd

    scored = [result for result in results if not result.error and math.isfinite(result.cv)]
    best = max(scored, key=lambda result: result.cv).folds if scored else ()
    frame = pd.DataFrame(
        {
            "value": result.value,
            "cv": result.cv,
            "cv_se": standard_error(result.folds),
            "difference": result.cv - max(each.cv for each in scored) if scored else math.nan,
            "difference_se": standard_error(_differences(result.folds, best)) if result in scored else math.nan,
            **{name: result.figures.get(name, math.nan) for name in FIGURES},
            "seconds": result.seconds,
            "error": result.error,
        }
        for result in results
    )
    for column in ("n_parameters", "floor_hits"):
        if frame[column].notna().all():
            frame[column] = frame[column].astype(int)
    return frame


def _best_row(frame: pd.DataFrame, criterion: str) -> int | None:
    """Return the position of the row that is best by one criterion, the first of equal ones.

    The best is the largest ``"cv"``, or the smallest ``"bic"`` or ``"aic"``. Rows with an error or without a finite
    figure are left out; the result is None if no row is left.

    Args:
        frame: a row for each value of the hyperparameter, with the columns of ``ModelSelection.frame``.
        criterion: ``"cv"``, ``"bic"`` or ``"aic"``.
    """
    figures = frame[criterion].to_numpy(dtype=float)
    figures = figures if criterion == "cv" else -figures
    usable = np.isfinite(figures) & (frame["error"] == "").to_numpy()
    return int(np.argmax(np.where(usable, figures, -np.inf))) if usable.any() else None


def _best_and_chosen(frame: pd.DataFrame, criterion: str, rule: str, *, prefers_score: bool = False) -> tuple[int, int]:
    """Return the positions of the row of ``frame`` that is best by ``criterion`` and of the row that ``rule`` chooses.

    Args:
        frame: a row for each value of the hyperparameter, with the columns of ``ModelSelection.frame``.
        criterion: ``"cv"``, ``"bic"`` or ``"aic"``; the rule applies to ``"cv"`` only.
        rule: ``"best"`` chooses the best row. ``"one_se"`` and ``"paired_se"`` choose the fewest parameters among rows
            within one standard error of the best score, or of the difference to it.
        prefers_score: whether, among equally many parameters, the row with the best score is chosen instead of the
            first.

    Raises:
        ValueError: there is no finite score.
    """
    best = _best_row(frame, criterion)
    if best is None:
        errors = [error for error in frame["error"] if error]
        if errors:
            raise ValueError(f"every value failed, the first by {errors[0]}")
        raise ValueError(
            "under every value something of what was held out has probability zero; give the observation a "
            "pseudocount, such as observation=Categorical(pseudocount=0.1)"
        )
    if criterion != "cv" or rule == "best":
        return best, best
    scores = frame["cv"].to_numpy(dtype=float)
    error = frame["cv_se"].iloc[best] if rule == "one_se" else frame["difference_se"].to_numpy(dtype=float)
    near = (scores >= scores[best] - error) & (frame["error"] == "").to_numpy()
    n_parameters = np.where(near, frame["n_parameters"].to_numpy(dtype=float), np.inf)
    fewest = n_parameters == n_parameters.min()
    return best, int(np.argmax(np.where(fewest, scores, -np.inf))) if prefers_score else int(np.argmax(fewest))


def _progress_line(parameter: str, result: _Result, unit: str) -> str:
    name = f"{parameter}={result.value!r}"
    if result.error:
        return f"{name}: failed ({result.error})"
    if unit == "sequence":
        return f"{name}: {result.cv:.4f} of the sequences held out are labelled right, in {result.seconds:.1f} s"
    held_out = f"{result.cv:.4f} nats per {unit} held out, " if result.folds else ""
    return f"{name}: {held_out}BIC {result.figures['bic']:.1f}, in {result.seconds:.1f} s"
