"""``backtest``: rolling-origin evaluation, forecasts from many origins that are scored against what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.display import quantile_name
from seqmodels.common.distinct_warnings import distinct_warnings
from seqmodels.common.parameters import Seed, checked
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.encodings import Standardize
from seqmodels.evaluation.baselines import SeasonalNaive
from seqmodels.generation.feature_distributions import FeatureDistributions, quantiles_of_steps
from seqmodels.generation.forecast import check_arguments
from seqmodels.generation.steps_ahead import Ahead, StepDistribution, ahead_of
from seqmodels.hmm import HMM
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import checked_data
from seqmodels.observations import AutoregressiveGaussian
from seqmodels.sequences import Sequences, as_sequences
from seqmodels.sequences.zones import with_zone

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

NAIVE, SEASONAL_NAIVE, VAR = "naive", "seasonal naive", "VAR"
ENERGY_PATHS = 200  # number of paths from whose pairs an energy score is estimated
VAR_ORDERS = (1, 2, 3, 5, 8, 13)  # orders among which BIC chooses; one more than the season is added
MEANS = ("crps", "crps_scaled", "energy", "pinball", "mae", "mase")  # columns that are averaged, besides coverage
DECILES = np.arange(1, 10) / 10  # levels of the quantile losses that benchmarks print
SERIES = ["sequence", "feature"]  # columns of ``scores`` that say which series a value is of
ERRORS = {"mase": "mae", "rmsse": "mse", "wql": "quantile_loss"}  # figures of benchmarks, and the errors they are of

Forecaster = SequenceModel | SeasonalNaive
DrawPaths = Callable[[], np.ndarray]  # (n, k, D) in raw units


@dataclass(frozen=True, eq=False, repr=False)
class Backtest:
    """The result of ``backtest``, the scores of every forecast value; printed, it shows ``table()``.

    A forecast value is one feature of one step ahead, forecast from one origin. The origin is the step after which a
    forecast begins.

    Attributes:
        scores: a frame with a row for each forecast value. ``model``, ``sequence`` (name), ``origin`` (number of steps
            that were given), ``step`` (1 to horizon), ``time`` (if the sequences have times), ``feature``, ``actual``,
            ``mean``, and a column for each quantile. Scores in units of the feature: ``crps`` (continuous ranked
            probability score), ``pinball`` (mean over the quantiles), ``mae`` (of the median). ``crps_scaled`` and
            ``mase``: CRPS and absolute error divided by ``scale``. ``covered 90%`` and so on: whether the value lies
            between two quantiles symmetric about a half, for each such pair. ``energy``: energy score of all features
            of the step together, each divided by ``scale``; NaN for one feature. ``mse``: squared error of the mean.
            ``quantile_loss``: like ``pinball``, at the levels 0.1 to 0.9, whatever the quantiles are.
        errors: error of each model that failed, by name.
        horizon: number of steps ahead.
        scale: the divisor of scaled scores for each of D features, ``(D,)``: the mean absolute change of the feature
            in training over a season (or a step, if there is no season).
        naive_errors: errors of the seasonal naive forecast before the first origin of each series (one feature of one
            sequence), a frame with the columns ``sequence``, ``feature``, ``mae`` and ``mse``: the mean absolute and
            the mean squared change over a season (or a step).
    """

    scores: pd.DataFrame
    errors: Mapping[str, str]
    horizon: int
    scale: np.ndarray
    naive_errors: pd.DataFrame

    @property
    def frame(self) -> pd.DataFrame:
        """Mean scores as a frame with a row for each ``model`` and ``step`` ahead; ``n`` counts the forecast values.

        The other columns are the numeric scores of ``scores``, such as ``crps``, ``mase`` and ``covered 90%``.
        """
        return self._means(["model", "step"])

    def table(self) -> pd.DataFrame:
        """Return a frame with the mean scores of each model over all forecast values, the least scaled CRPS first.

        If the seasonal naive forecast (or, without a season, the naive one) is among the models, ``relative_mase`` and
        ``relative_wql`` are those of ``benchmark``.
        """
        means = self._means(["model"])
        if self._default_baseline() is not None:
            relative = self.benchmark().set_index("model")[["relative_mase", "relative_wql"]]
            means = means.join(relative, on="model")
        return means.sort_values("crps_scaled", ignore_index=True)

    @checked
    def benchmark(self, baseline: str | None = None) -> pd.DataFrame:
        """Return the figures that forecasting benchmarks print, a frame with a row for each model.

        A series is one feature of one sequence. Its scale is the error of the seasonal naive forecast before its first
        origin (``naive_errors``). Sequences of the same name count as one. Values that are missing, or that the model
        or the baseline did not forecast, do not count.

        Args:
            baseline: the model that ``relative_`` columns are relative to. None means the seasonal naive forecast, or
                without a season the naive one; if that is not among the models, there are no such columns.

        Returns:
            A frame, the least relative quantile loss first. ``n_series``: number of series. ``mase``: mean absolute
            error of the median over the series' scale, the mean over series (Hyndman & Koehler 2006). ``rmsse``: root
            of the mean squared error of the mean over the scale's, the mean over series (Makridakis et al. 2022, the M5
            competition). ``wql``: weighted quantile loss at the levels 0.1 to 0.9, twice its sum over all values,
            divided by the sum of their magnitudes (Gasthaus et al. 2019). ``relative_mase``, ``relative_rmsse`` and
            ``relative_wql``: geometric mean over series of the model's error divided by the baseline's, as
            GIFT-Eval (Aksu et al. 2024) averages over data sets. Scales cancel in these ratios. Series whose scale or
            whose baseline's error is zero are left out of the means in which they would divide.

        Raises:
            ValueError: there is no such baseline.
        """
        import pandas as pd

        known = list(dict.fromkeys(self.scores["model"]))
        if baseline is not None and baseline not in known:
            raise ValueError(f"baseline is {baseline!r}, but the models with forecasts are {', '.join(known)}")
        baseline = self._default_baseline() if baseline is None else baseline
        in_one_order = self.scores.sort_values([*SERIES, "origin", "step"], kind="stable").set_index(SERIES)
        by_model = {name: in_one_order[in_one_order["model"] == name][["actual", *ERRORS.values()]] for name in known}
        scales = self.naive_errors.groupby(SERIES).mean()
        rows = []
        for name, each in by_model.items():
            errors, of_baseline = each[list(ERRORS.values())], None
            if baseline is not None:
                theirs = by_model[baseline][errors.columns]
                is_known = (errors.notna() & theirs.notna()).to_numpy()
                errors, of_baseline = errors.where(is_known), theirs.where(is_known).groupby(SERIES).mean()
            by_series = errors.groupby(SERIES).mean()
            scaled = by_series[["mae", "mse"]] / scales.where(scales > 0)
            size = each["actual"].abs().where(errors["quantile_loss"].notna()).sum()
            row = {
                "model": name,
                "n_series": int(by_series["mae"].count()),
                "mase": scaled["mae"].mean(),
                "rmsse": np.sqrt(scaled["mse"]).mean(),
                "wql": errors["quantile_loss"].sum() / size if size else np.nan,
            }
            if of_baseline is not None:
                with np.errstate(divide="ignore"):  # a forecast without error has a geometric mean of zero
                    means = np.exp(np.log(by_series / of_baseline.where(of_baseline > 0)).mean())
                row |= {f"relative_{figure}": means[error] for figure, error in ERRORS.items()}
                row["relative_rmsse"] = np.sqrt(row["relative_rmsse"])
            rows.append(row)
        frame = pd.DataFrame(rows)
        return frame.sort_values("wql" if baseline is None else "relative_wql", ignore_index=True)

    def _default_baseline(self) -> str | None:
        models = set(self.scores["model"])
        return next((name for name in (SEASONAL_NAIVE, NAIVE) if name in models), None)

    def _means(self, by: list[str]) -> pd.DataFrame:
        columns = [c for c in self.scores if c in MEANS or str(c).startswith("covered")]
        grouped = self.scores.groupby(by, sort=False)
        means = grouped[columns].mean()
        means.insert(0, "n", grouped["crps"].count())
        return means.dropna(axis=1, how="all").reset_index()

    def __repr__(self) -> str:
        lines = [self.table().to_string(index=False, float_format="%.4g")]
        lines += [f"{name} failed: {error}" for name, error in self.errors.items()]
        return "\n".join(lines)

    @checked
    def plot(self, ax: Axes | None = None, *, score: str = "crps_scaled") -> Axes:
        """Plot the mean score of each model against the number of steps ahead, a line for each model; return the axes.

        Args:
            ax: axes to draw on; None makes a new figure.
            score: the plotted score, a column of ``frame`` such as ``"crps"`` or ``"mae"``.
        """
        from seqmodels.plot.backtest import plot_scores_by_step

        return plot_scores_by_step(self.frame, score, ax)


@checked
def backtest(
    models: Mapping[str, SequenceModel],
    X: Any,
    *,
    horizon: int,
    train: Any = None,
    first: int | None = None,
    every: int | None = None,
    n_origins: int | None = None,
    season: int | None = None,
    refit: bool = False,
    baselines: bool = True,
    quantiles: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
    n: int = 500,
    random_state: Seed = 0,
    verbose: Verbose = "auto",
) -> Backtest:
    """Forecast ``horizon`` steps from several origins of each sequence of vectors, and score the forecasts.

    An origin is a step of a sequence: the steps up to it are given, those after it are forecast. This is rolling-origin
    evaluation, by default without fitting again (Hyndman & Athanasopoulos 2021, *Forecasting: principles and practice*,
    section 5.10). Models that are not fitted yet are fitted once, in place, to ``train`` or, without it, to the steps
    of each sequence before its first origin. Fitted models stay as they are, and should not have seen what comes after
    the first origin. Forecasts are made by ``SequenceModel.forecast``.

    Args:
        models: models by name.
        X: sequences of vectors, such as a list of arrays ``(T, D)`` of T steps and D features. If a sequence has a past
            (earlier steps that ``split`` keeps as context), the origins lie in the sequence and the past is part of
            what is given; without ``train``, models are fitted to it as well.
        horizon: number of steps ahead.
        train: sequences that unfitted models, baselines and scales are fitted to. None means the steps before the first
            origins.
        first: number of steps of a sequence that are given at its first origin; None means half of it.
        every: number of steps from one origin to the next; None means the horizon.
        n_origins: number of evenly spread origins of each sequence, instead of ``every``; None means that ``every``
            decides.
        season: number of steps of a season, for the seasonal naive forecast and the scale of ``mase``; None means no
            season.
        refit: whether a copy of every model and every baseline is fitted again at each origin, to ``train`` and all
            that is given.
        baselines: whether to add rows of reference forecasts: ``naive`` (the last value, Gaussian), ``seasonal naive``
            (with a ``season``), and ``VAR``, a linear autoregression whose order BIC chooses.
        quantiles: increasing levels of the quantiles, with 0.5 among them.
        n: number of paths that are drawn if a forecast has no closed form, and for energy scores.
        random_state: seed of the paths.
        verbose: True shows a progress bar over the models; False shows none, and silences the fits too. ``"auto"``
            shows one in a terminal or a notebook if it takes longer than three seconds.

    Returns:
        ``Backtest``, with all scores in ``.scores`` and the mean of each model in ``.table()``.

    The CRPS (continuous ranked probability score) is computed in closed form if the forecast is a mixture of at most
    256 Gaussians. Otherwise it is estimated without bias from draws (Gneiting & Raftery 2007; Ferro 2014), as the
    energy score always is. All scores are averages over overlapping or neighbouring parts of the same sequences, so
    that their differences are less certain than the number of values suggests.

    Raises:
        ValueError: an argument is invalid, no sequence is long enough, or no model could be fitted. One model that
            fails is no error: ``errors`` says why it failed.

    >>> from seqmodels import HMM, AutoregressiveGaussian
    >>> rng = np.random.default_rng(0)
    >>> walk = [np.cumsum(rng.normal(size=(300, 1)), axis=0)]
    >>> result = backtest({"hmm": HMM(1, observation=AutoregressiveGaussian())}, walk, horizon=3, first=200)
    >>> sorted(result.table()["model"])
    ['VAR', 'hmm', 'naive']
    """
    sequences, training = _checked(X), None if train is None else _checked(train)
    levels = _check(models, horizon, quantiles, n, every, n_origins, season)
    origins = _origins(sequences, horizon, first, every, n_origins, season)
    fitted_to = _heads(sequences, origins, with_past=True) if training is None else training
    scale = _mean_change([np.asarray(x) for x in fitted_to], season or 1)
    scorer = OriginScorer(sequences, levels, scale, n, random_state)
    forecasters = dict(models) | (_baselines(season, set(models)) if baselines else {})
    parts, errors = [], {}
    with distinct_warnings(), ProgressBar(len(forecasters), verbose, "backtest") as bar:
        for i, (name, model) in enumerate(forecasters.items()):
            bar.move(i, name)
            try:
                each = _forecasts(model, sequences, training, fitted_to, origins, horizon, n, random_state, refit)
                parts.append(scorer.scores(name, each))
            except (ValueError, RuntimeError, ArithmeticError) as error:
                errors[name] = f"{type(error).__name__}: {error}"
    if not any(name in models for name in forecasters if name not in errors):
        raise ValueError("no model could forecast: " + "; ".join(f"{name}: {e}" for name, e in errors.items()))
    import pandas as pd

    naive_errors = _naive_errors(sequences, origins, season or 1)
    return Backtest(pd.concat(parts, ignore_index=True), errors, horizon, scale, naive_errors)


# -- arguments --------------------------------------------------------------------------------------------------


def _checked(X: Any) -> Sequences:
    sequences = as_sequences(X)
    if sequences.kind != "vectors":
        raise ValueError(f"backtest scores forecasts of vectors, but these are {sequences.kind}; use compare for them")
    return sequences


def _check(
    models: Mapping[str, SequenceModel],
    horizon: int,
    quantiles: Sequence[float],
    n: int,
    every: int | None,
    n_origins: int | None,
    season: int | None,
) -> np.ndarray:
    if not models:
        raise ValueError("there are no models; pass a dictionary {name: model}")
    for model in models.values():
        levels = check_arguments(model, horizon, quantiles, n, k_name="horizon")
    if 0.5 not in levels:
        raise ValueError(f"quantiles is {quantiles!r}; 0.5 must be among them, for the absolute error of the median")
    if every is not None and n_origins is not None:
        raise ValueError("every and n_origins both say where the origins are; pass one of them")
    for name, value in (("every", every), ("n_origins", n_origins), ("season", season)):
        if value is not None and not (isinstance(value, int | np.integer) and value >= 1):
            raise ValueError(f"{name} is {value!r}; pass a whole number, at least 1, or None")
    return levels


def _origins(
    sequences: Sequences, horizon: int, first: int | None, every: int | None, n_origins: int | None, season: int | None
) -> list[list[int]]:
    """Return the forecast origins of each sequence, as numbers of steps given before the forecast.

    The list of a sequence that is too short is empty.

    Args:
        sequences: the sequences that are forecast.
        horizon: number of steps ahead.
        first: number of steps given at the first origin; None means half of the sequence.
        every: number of steps from one origin to the next; None means the horizon.
        n_origins: number of evenly spread origins of each sequence; None means that ``every`` decides.
        season: number of steps of a season, the least that is given; None means no season.

    Raises:
        ValueError: ``first`` is invalid or no sequence is long enough.
    """
    if first is not None and not (isinstance(first, int | np.integer) and first >= max(1, season or 1)):
        raise ValueError(f"first is {first!r}; pass a number of steps, at least 1 and at least a season")
    result = []
    for item in sequences.items:
        start, last = first or max(len(item) // 2, season or 1), len(item) - horizon
        if n_origins is None:
            result.append(list(range(start, last + 1, every or horizon)))
        else:
            most = max(0, last - start + 1)  # because there are no more origins than steps
            result.append(sorted({round(t) for t in np.linspace(start, last, min(n_origins, most))}))
    if not any(result):
        longest = max(map(len, sequences.items))
        raise ValueError(
            f"no sequence is long enough: the longest has {longest} steps, of which some are given and {horizon} "
            "are forecast; pass a smaller horizon or first"
        )
    return result


def _mean_change(training: list[np.ndarray], season: int) -> np.ndarray:
    """Return the mean of ``|x_t - x_t-m|`` of each of D features, ``(D,)``, the divisor of scaled scores.

    It is 1 for a feature that never changes. Reference: Hyndman & Koehler (2006).

    Args:
        training: arrays ``(T, D)``.
        season: number m of steps between the two values.
    """
    changes = [np.abs(x[season:] - x[:-season]) for x in training if len(x) > season]
    mean = np.nanmean(np.concatenate(changes), axis=0) if changes else np.ones(training[0].shape[1])
    return np.where(mean > 0, mean, 1.0)


def _naive_errors(sequences: Sequences, origins: list[list[int]], season: int) -> pd.DataFrame:
    """Return the mean absolute and squared change over a season before the first origin of each series, a frame.

    The columns are those of ``Backtest.naive_errors``. A series is one feature of one sequence; sequences without an
    origin are left out.
    """
    import pandas as pd

    frames = []
    whole, n_past = sequences.including_past(), sequences.n_units_of_past
    features = range(sequences.n_features) if sequences.features is None else sequences.features
    for i, each in enumerate(origins):
        if each:
            head = np.asarray(whole[i])[: int(n_past[i]) + each[0]].astype(np.float64)
            changes = pd.DataFrame(head[season:] - head[:-season])
            errors = {"mae": changes.abs().mean().to_numpy(), "mse": changes.pow(2).mean().to_numpy()}
            frames.append(pd.DataFrame({"sequence": sequences.names[i], "feature": list(features), **errors}))
    return pd.concat(frames, ignore_index=True)


# -- forecasters ------------------------------------------------------------------------------------------------


def _baselines(season: int | None, taken: set[str]) -> dict[str, Any]:
    orders = sorted({*VAR_ORDERS, *([season + 1] if season else [])})
    result: dict[str, Any] = {NAIVE: SeasonalNaive(), VAR: orders}
    if season is not None:
        result[SEASONAL_NAIVE] = SeasonalNaive(season)
    return {name: each for name, each in result.items() if name not in taken}


def best_var(sequences: Any, orders: Sequence[int] = VAR_ORDERS) -> HMM:
    """Fit vector autoregressions (VAR) of several orders and return the one with the least BIC, a one-state ``HMM``.

    It is fitted to the raw values, not to differences. Orders with fewer than 6 frames for each coefficient of a
    feature are left out, except the lowest order.

    Args:
        sequences: sequences of vectors.
        orders: numbers of earlier steps that each step depends on, one model for each.
    """
    X = as_sequences(sequences)
    n_frames, size = int(X.n_units.sum()), X.n_features
    usable = [p for p in orders if p == min(orders) or 6 * p * size <= n_frames]
    fitted = [
        HMM(1, observation=AutoregressiveGaussian(p), encoding=Standardize(), max_iter=5, n_init=1).fit(X)
        for p in usable
    ]
    return min(fitted, key=lambda model: model.bic(X))


def _forecasts(
    model: Any,
    sequences: Sequences,
    training: Sequences | None,
    fitted_to: Sequences,
    origins: list[list[int]],
    horizon: int,
    n: int,
    seed: int,
    refit: bool,
) -> Iterator[tuple[Ahead, DrawPaths]]:
    """Forecast from every origin; yield each forecast (``Ahead``) with a function that draws its paths, ``(n, k, D)``.

    The paths have k steps of D features.

    Args:
        model: a ``SequenceModel``, a ``SeasonalNaive``, or a list of orders of linear autoregressions, of which the
            one with the least BIC is used.
        sequences: the sequences that are forecast.
        training: the user's training sequences; None means that there are none.
        fitted_to: the sequences that an unfitted model is fitted to.
        origins: the origins of each sequence, as numbers of steps given before the forecast.
        horizon: number of steps k ahead.
        n: number of paths.
        seed: seed of the paths.
        refit: whether a copy is fitted at each origin to ``training`` and all steps before the origin.
    """
    if not refit:
        yield from _ahead(_ready(model, fitted_to), sequences, origins, horizon, n, seed)
        return
    for j in range(max(map(len, origins))):
        now = [each[j : j + 1] for each in origins]
        # Without the past if there is a training part, because the past is mostly part of that.
        given = _heads(sequences, now, with_past=training is None)
        everything = given if training is None else Sequences.joined([training, given])
        anew = model.clone() if isinstance(model, SequenceModel) else model
        yield from _ahead(_ready(anew, everything), sequences, now, horizon, n, seed + j)


def _heads(sequences: Sequences, origins: list[list[int]], *, with_past: bool) -> Sequences:
    """Cut each sequence at its first origin and return the steps before it; sequences without an origin are left out.

    Args:
        sequences: the sequences.
        origins: the origins of each sequence, as numbers of steps given before the forecast.
        with_past: whether each result also begins with the past that the sequence carries, earlier steps kept as
            context.
    """
    n_past = sequences.n_units_of_past if with_past else np.zeros(len(sequences), np.int64)
    cuts = [(i, 0, int(n_past[i]) + each[0]) for i, each in enumerate(origins) if each]
    return (sequences.including_past() if with_past else sequences.without_past()).segments(cuts)


def _ready(model: Any, training: Sequences) -> Forecaster:
    """Return ``model`` fitted to ``training``; a ``SequenceModel`` that is fitted already is returned unchanged.

    Args:
        model: a ``SequenceModel``, a ``SeasonalNaive``, of which a fitted copy is returned, or a list of orders, which
            stands for the linear autoregression with the least BIC among them.
        training: sequences of vectors.
    """
    if isinstance(model, SeasonalNaive):
        return SeasonalNaive(model.season).fit([np.asarray(x) for x in training])
    if isinstance(model, list):
        return best_var(training, model)
    assert isinstance(model, SequenceModel)
    return model if model.__sklearn_is_fitted__() else model.fit(training)


def _ahead(
    model: Forecaster, sequences: Sequences, origins: list[list[int]], horizon: int, n: int, seed: int
) -> Iterator[tuple[Ahead, DrawPaths]]:
    used = [i for i, each in enumerate(origins) if each]
    kept, of_kept = sequences.take(used), [origins[i] for i in used]
    n_past = kept.n_units_of_past.tolist()
    of_whole = [[m + t for t in each] for m, each in zip(n_past, of_kept, strict=True)]
    if isinstance(model, SeasonalNaive):
        each = model.ahead([np.asarray(x) for x in kept.after_past()], of_whole, horizon, n, seed)
    else:
        data = checked_data(model, kept)
        each = ahead_of(
            model,
            model._setting().examples(data, may_have_no_steps=True),
            of_whole,
            horizon,
            n,
            seed,
            kept.after_past(),
        )
    for ahead in each:
        i = ahead.sequence
        yield replace(ahead, sequence=used[i], origin=ahead.origin - n_past[i]), partial(_raw_paths, model, ahead)


def _raw_paths(model: Forecaster, ahead: Ahead) -> np.ndarray:
    """Return the drawn paths of a forecast in the units of the data, ``(n, k, D)``: n paths, k steps, D features.

    Steps after a path has ended are NaN.
    """
    paths = ahead.draw_paths()
    return paths.x if isinstance(model, SeasonalNaive) else paths.raw_vectors(model.encoding_)


# -- scores -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OriginScorer:
    """A scorer of forecasts, made from several origins of each sequence, against the steps that followed.

    An origin is the number of steps given before a forecast.

    Attributes:
        sequences: the sequences that are forecast, with D features.
        levels: levels of the Q predicted quantiles, ``(Q,)``.
        scale: divisor of the scaled scores for each feature, ``(D,)``.
        n: number of paths drawn for each forecast.
        random_state: seed of the paths.
    """

    sequences: Sequences
    levels: np.ndarray
    scale: np.ndarray
    n: int
    random_state: int

    def scores(self, name: str, forecasts: Iterator[tuple[Ahead, DrawPaths]]) -> pd.DataFrame:
        """Score all forecasts of one model; return a frame with a row for each feature of each forecast step.

        The columns are those of ``Backtest.scores``.

        Args:
            name: name of the model, for the column ``model``.
            forecasts: pairs of a forecast and a function that draws n paths of its k steps of D features,
                ``(n, k, D)``.
        """
        import pandas as pd

        frame = pd.concat([self._rows(ahead, cache(draw)) for ahead, draw in forecasts], ignore_index=True)
        frame.insert(0, "model", name)
        return frame

    def _rows(self, ahead: Ahead, draw: DrawPaths) -> pd.DataFrame:
        import pandas as pd

        k, size, steps = len(ahead.steps), len(self.scale), ahead.steps
        actual = np.asarray(self.sequences[ahead.sequence])[ahead.origin : ahead.origin + k].astype(np.float64)
        mean, crps, energy = (np.full((k, size), np.nan) for _ in range(3))
        quantiles = np.full((len(self.levels), k, size), np.nan)
        deciles = np.full((len(DECILES), k, size), np.nan)
        for h, step in enumerate(steps):
            if isinstance(step, FeatureDistributions):
                mean[h], quantiles[:, h] = step.mean, step.quantiles(self.levels)
                crps[h] = step.crps_or_estimate(actual[h], partial(_drawn, draw, h))
                if size > 1:
                    draws = step.on_turn_of(draw()[:ENERGY_PATHS, h], actual[h])
                    energy[h] = energy_score(draws / self.scale, actual[h] / self.scale)
        known = {h: step for h, step in enumerate(steps) if isinstance(step, FeatureDistributions)}
        for h, at_deciles in zip(known, quantiles_of_steps(list(known.values()), DECILES), strict=True):
            deciles[:, h] = at_deciles
        missing = np.isnan(actual)
        crps[missing], middle = np.nan, quantiles[np.flatnonzero(self.levels == 0.5)[0]]
        near = _on_turns_of(steps, actual, middle)  # angles are moved to the turn of their forecast
        columns: dict[str, Any] = {"actual": actual, "mean": mean}
        columns |= {quantile_name(level): q for level, q in zip(self.levels, quantiles, strict=True)}
        columns |= {"crps": crps, "crps_scaled": crps / self.scale, "energy": energy}
        columns |= {"pinball": pinball_loss(quantiles, near, self.levels).mean(0), "mae": np.abs(near - middle)}
        columns["mase"] = columns["mae"] / self.scale
        columns["mse"] = (_on_turns_of(steps, actual, mean) - mean) ** 2
        columns["quantile_loss"] = pinball_loss(deciles, near, DECILES).mean(0)
        for low, high in _symmetric_pairs(self.levels):
            within = _on_turns_of(steps, actual, 0.5 * (quantiles[low] + quantiles[high]))
            covers = (quantiles[low] <= within) & (within <= quantiles[high])
            unknown = missing | np.isnan(middle)
            name = f"covered {100 * (self.levels[high] - self.levels[low]):.10g}%"
            columns[name] = np.where(unknown, np.nan, covers.astype(float))
        times = {} if self.sequences.times is None else {"time": self._times(ahead.sequence, ahead.origin, k, size)}
        return pd.DataFrame(
            {
                "sequence": [self.sequences.names[ahead.sequence]] * (k * size),
                "origin": ahead.origin,
                "step": np.repeat(np.arange(1, k + 1), size),
                **times,
                "feature": list(range(size) if self.sequences.features is None else self.sequences.features) * k,
                **{name: values.ravel() for name, values in columns.items()},
            }
        )

    def _times(self, i: int, origin: int, k: int, size: int) -> Any:
        """Return the times of k steps of sequence ``i``, each repeated for its ``size`` features.

        Args:
            i: index of the sequence.
            origin: index of the first of the k steps.
            k: number of steps.
            size: number of features.
        """
        assert self.sequences.times is not None
        return with_zone(np.repeat(self.sequences.times[i][origin : origin + k], size), self.sequences.time_unit)


def _drawn(draw: DrawPaths, h: int) -> np.ndarray:
    """Return the values at step ``h`` (from 0) of the drawn paths that have not ended by then, ``(m, D)``.

    Args:
        draw: function that returns all n paths of k steps and D features, ``(n, k, D)``, with NaN after a path's end.
        h: index of the step.
    """
    draws = draw()[:, h]
    return np.asarray(draws[~np.isnan(draws).any(1)])


def _on_turns_of(steps: Sequence[StepDistribution | None], y: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return ``y`` with multiples of 2π added to its angles, so that they lie nearest to ``near``, ``(k, D)``.

    Args:
        steps: predicted distribution of each of the k steps, which says which features are angles.
        y: values of k steps of D features, ``(k, D)``; features that are no angles are returned unchanged.
        near: values that the angles are moved to, ``(k, D)``.
    """
    moved = [
        step.on_turn_of(*each) if isinstance(step, FeatureDistributions) else each[0]
        for step, *each in zip(steps, y, near, strict=True)
    ]
    return np.stack(moved)


def _symmetric_pairs(levels: np.ndarray) -> list[tuple[int, int]]:
    pairs = [(i, j) for i in range(len(levels)) for j in range(len(levels))]
    return [(i, j) for i, j in pairs if levels[i] < 0.5 and abs(levels[i] + levels[j] - 1) < 1e-9]


def pinball_loss(quantiles: np.ndarray, y: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the pinball loss ``2 (1{y <= q} - level) (q - y)`` of each quantile, with the shape of ``quantiles``.

    Its mean over all levels is the CRPS (Gneiting & Raftery 2007).

    Args:
        quantiles: Q predicted quantiles, ``(Q, ...)``.
        y: the values that came, ``(...)``.
        levels: levels of the quantiles, ``(Q,)``.

    >>> pinball_loss(np.array([[1.0]]), np.array([3.0]), np.array([0.9])).round(2).tolist()
    [[3.6]]
    """
    level = levels.reshape(-1, *[1] * (quantiles.ndim - 1))
    return np.asarray(2 * ((y <= quantiles) - level) * (quantiles - y))


def energy_score(draws: np.ndarray, y: np.ndarray) -> float:
    """Return the energy score ``E|X - y| - ½ E|X - X'|`` of a vector, estimated without bias from draws X.

    0 is best, and for one feature it is the CRPS. It is NaN if ``y`` has a missing value or fewer than two draws are
    left. Reference: Gneiting & Raftery (2007), section 4.3.

    Args:
        draws: n draws from the forecast of D features, ``(n, D)``; rows with a missing value are left out.
        y: the vector that came, ``(D,)``.
    """
    draws = draws[~np.isnan(draws).any(axis=1)]
    n = len(draws)
    if n < 2 or np.isnan(y).any():
        return float("nan")
    from scipy.spatial.distance import pdist

    return float(np.linalg.norm(draws - y, axis=1).mean() - pdist(draws).sum() / (n * (n - 1)))
