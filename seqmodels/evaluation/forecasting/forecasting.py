"""``forecast``: automatic forecasts of series by the models that forecast their own last part best."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels import plot
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import quantile_name
from seqmodels.common.parameters import PositiveFloat, PositiveInt, Seed, checked
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.encodings.auto_series import seasonal_share, seasonal_shares
from seqmodels.evaluation.forecasting.inputs import split, with_steps_ahead
from seqmodels.evaluation.forecasting.phases import forecast_seen_steps, seen_steps
from seqmodels.evaluation.forecasting.series import (
    SHORTEST,
    SeriesForecast,
    StepQuantiles,
    forecast_series,
    has_season,
)
from seqmodels.evaluation.forecasting.tables import regular_sequences, season_of_times
from seqmodels.evaluation.forecasting.words import DescribedSeries, names_of_series, words_of
from seqmodels.sequences import Sequences
from seqmodels.sequences.times import times_ahead
from seqmodels.sequences.zones import on_its_clock, with_zone

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels

MOST_ROWS = 60  # most rows that are printed
SEASONS_TO_TRY = 3  # a season is tried if the series is at least this many seasons long
LARGEST, SMALLEST = 1e100, 1e-100  # magnitudes whose squares, and sums of them, float64 can hold
LEAST_SHARE = 0.65  # share of the variance of changes that a season must explain if no dates suggest it


@dataclass(frozen=True, eq=False, repr=False)
class AutomaticForecast:
    """The result of ``forecast``: the forecast of each series and how it was made.

    Printed, it shows ``words`` and ``frame``.

    Attributes:
        frame: a frame with a row for each ``sequence`` (its name), ``step`` (1 to horizon) and ``feature`` (its name,
            or its number if the features have none). Further columns are ``time``, after ``step``, for series with
            times; ``mean``; and one for each quantile, named in per cent (``"5%"``), in units of the series. They are
            NaN for a feature that could be forecast in other sequences only.
        table: a frame of the models that were tried, with a row for each ``sequence``, ``feature`` and ``model``, named
            as in ``words``. Its columns are ``crps_scaled`` (continuous ranked probability score, less is better) and
            ``covered 90%`` in a backtest on the last part of the series, ``seconds``, ``chosen`` and ``weight``:
            forecasts are averages of the chosen models with these weights. The model with the largest weight stands
            first, and models that were not chosen follow, the least error first.
        series: details of the forecast of each ``(sequence, feature)``: ``chosen`` (the fitted models), ``season``,
            ``crps`` and ``coverage`` (of the average, in the backtest), ``factors`` (by which its bands are rescaled,
            for each step), ``origins`` (steps from which the backtest forecast), ``unseen`` (phases of the season
            without a value) and ``inputs`` (their effects). Series that cannot be forecast are missing here and named
            in ``words``.
        words: sentences that say what was done.
        history: the series that were forecast, with missing values at steps that had no row.
        quantiles: levels of the quantiles.
        seconds: seconds that the forecast took.
        n_paths: number of sample paths of each sequence in ``paths``.
        random_state: seed of the paths.
    """

    frame: pd.DataFrame
    table: pd.DataFrame
    series: Mapping[tuple[Any, Any], SeriesForecast]
    words: Sequence[str]
    history: Sequences
    quantiles: tuple[float, ...]
    seconds: float
    n_paths: int = 500
    random_state: int = 0

    @property
    def features(self) -> tuple[Any, ...]:
        """Names of the features, or their numbers if they have no names."""
        return tuple(range(self.history.n_features) if self.history.features is None else self.history.features)

    @property
    def are_angles(self) -> tuple[bool, ...]:
        """A tuple of False for each feature; only a model's observation could say that a feature is an angle."""
        return (False,) * self.history.n_features

    @property
    def model(self) -> Mapping[tuple[Any, Any], Sequence[Any]]:
        """A mapping from ``(sequence, feature)`` to the list of fitted models whose quantiles are averaged."""
        return {name: each.chosen for name, each in self.series.items()}

    @cached_property
    def paths(self) -> list[np.ndarray]:
        """A list that has, for each sequence, n sample paths of the steps ahead, ``(n, horizon, D)`` for D features.

        The steps of a path are drawn together, each feature by itself. Each step by itself has the quantiles of
        ``frame``. Features that could be forecast in other sequences only are NaN.
        """
        rng, features = np.random.default_rng(self.random_state), self.features
        horizon = int(self.frame["step"].max())
        result = []
        for name in self.history.names:
            paths = np.full((self.n_paths, horizon, len(features)), np.nan)
            for d, feature in enumerate(features):
                if (name, feature) in self.series:
                    paths[:, :, d] = self.series[name, feature].draw_paths(self.n_paths, rng)
            result.append(paths)
        return result

    def __repr__(self) -> str:
        table = self.frame.to_string(index=False, float_format="%.5g", max_rows=MOST_ROWS)
        return "\n".join([*self.words, "", table])

    def _repr_html_(self) -> str:
        """Return the words, the plot of the first sequence and the frame as HTML, for a notebook."""
        from seqmodels.evaluation.forecasting.page import page

        return page(self)

    @checked
    def plot(self, ax: Axes | Sequence[Axes] | None = None, **options: Any) -> Axes | Panels:
        """Plot a fan chart of one sequence, with the quantiles of the steps ahead as bands; return the axes.

        Args:
            ax: axes to draw on, or several, one for each feature; None makes a new figure.
            options: further arguments of ``seqmodels.plot.forecast``.
        """
        return plot.forecast(self, ax, **options)


@checked
def forecast(
    frame: Any,
    horizon: PositiveInt = 12,
    *,
    season: PositiveInt | None = None,
    quantiles: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
    time: str | None = None,
    by: str | None = None,
    max_seconds: PositiveFloat | None = None,
    inputs: Sequence[str] = (),
    future: Any = None,
    date_format: str | None = None,
    n: PositiveInt = 500,
    random_state: Seed = 0,
    verbose: Verbose = "auto",
) -> AutomaticForecast:
    """Forecast series of numbers by trying models on the last part of the series and averaging the best.

    The models are linear processes in closed form, of the values and, if all are positive, of their logarithms and
    square roots: structural time series (level, slope, season), ARIMA found by a stepwise search, and autoregressions
    around a level or a line or of changes, with a mean for each phase of a season (position in it); and the naive
    forecast. Each is scored on forecasts from up to 24 origins in the second half of the series. The quantiles of the
    best twelve, fitted to the whole series, are averaged with weights by their CRPS (continuous ranked probability
    score) and their likelihood (Lichtendahl, Grushka-Cockayne and Winkler 2013); models that forecast alike share a
    weight. The bands of the average are made wider or narrower according to how far values were from its medians, with
    more weight on late ones.

    A phase of the season that was never observed, such as the Sundays of a shop that is closed then, is forecast at the
    level of all other phases, with a band that covers all of them. The same is done for the hours of a day of the week
    that has no value. A series that is constant or too short is left out with a warning if there are others, and
    refused if it is the only one.

    Args:
        frame: a pandas frame or column, with dates in its index or in a column; an array ``(T,)`` or ``(T, D)``; or
            ``Sequences`` of vectors. NaN is missing, and so are steps between dates that have no row. Each feature is
            forecast by itself.
        horizon: number of steps ahead.
        season: number of steps of a season; 1 means none. None means that it is taken from the dates (12 for months, 4
            for quarters, 7 for days, 24 for hours), or otherwise from the repetition of changes in the series.
        quantiles: increasing levels of the quantiles.
        time: name of the column of times; None means the index, a column of dates, or a column with such a name.
        by: name of the column that says which series a row belongs to; None means that it is recognised, or that there
            is one series.
        max_seconds: seconds for each series after which no further model is tried; None means no limit. Most series of
            up to 500 values take less than a second.
        inputs: names of numeric columns of a frame that are known at each step, such as holidays (0 or 1) or prices.
            They are not forecast; all models but the naive one regress on them, with errors that follow the model's
            process.
        future: a frame with the inputs of the steps ahead, a row for each step, and times in the form of ``frame``.
            None means that they stand in the last rows of ``frame``, where the forecast columns are missing.
        date_format: format of the dates for ``datetime.strptime`` (``"%d/%m/%Y"``). None means the format that can read
            all of them and, if there are several, makes them regular.
        n: number of sample paths of each sequence, which are drawn when ``paths`` is read.
        random_state: seed of the paths.
        verbose: True shows a progress bar over the series; False shows none. ``"auto"`` shows one in a terminal or a
            notebook after three seconds.

    Returns:
        ``AutomaticForecast``: ``print`` it, or use ``.frame``, ``.table``, ``.words``, ``.paths``, ``.plot()``.

    Raises:
        ValueError: there are no series of numbers; a series is too short for the horizon or the season, or does not
            change; or inputs are not known at each step.

    >>> t = np.arange(72)
    >>> y = 10 + 0.1 * t + 3 * np.sin(2 * np.pi * t / 12) + np.random.default_rng(0).normal(size=72)
    >>> forecast(y, 3).frame[["step", "5%", "95%"]].shape
    (3, 3)
    """
    import pandas as pd

    began = clock.perf_counter()
    levels = _checked_levels(quantiles)
    if future is not None and not inputs:
        raise ValueError("future has the inputs of the steps ahead, but inputs names no column; pass inputs=[...]")
    if inputs and not isinstance(frame, Sequences):
        frame = with_steps_ahead(frame, inputs, future, time=time, by=by, date_format=date_format)
    history = regular_sequences(frame, time=time, by=by, date_format=date_format, inputs=inputs)
    known_inputs = None
    if inputs:
        history, known_inputs = split(history, inputs, horizon)
    features = range(history.n_features) if history.features is None else history.features
    series: dict[tuple[Any, Any], SeriesForecast] = {}
    steps_ahead: dict[Any, np.ndarray | None] = {}
    tables, described = [], []
    left_out: list[tuple[str, ValueError]] = []
    spoken = iter(names_of_series(history.names, features))
    with ProgressBar(len(history) * history.n_features, verbose, "forecast") as bar:
        for i, (name, item) in enumerate(zip(history.names, history.items, strict=True)):
            times = None if history.times is None else history.times[i]
            steps_ahead[name] = ahead_times = None if times is None else times_ahead(times, horizon)
            if times is not None and ahead_times is None:
                warn_caller(
                    f"the times of sequence {name!r} are not regular, so that each row is taken for one step and steps "
                    "ahead have no times; bring them to one frequency, for example with pandas' frame.resample",
                )
            for feature, column in zip(features, np.asarray(item).T, strict=True):
                first, said = int(np.argmax(~np.isnan(column))), next(spoken)
                bar.move(len(series) + len(left_out), said)
                y = column[first:]
                of_column = None if known_inputs is None else known_inputs[i][first:]
                its_times = None if times is None else on_its_clock(times[first:], history.time_unit)
                its_ahead = None if ahead_times is None else on_its_clock(ahead_times, history.time_unit)
                dates = None if its_times is None or its_ahead is None else np.concatenate([its_times, its_ahead])
                try:
                    _check_series(y, horizon, season, name, feature)
                    of_times = season_of_times(times) if season is None else None
                    each = _forecast_column(y, horizon, levels, season, of_times, dates, max_seconds, of_column)
                except ValueError as error:
                    left_out.append((said, error))
                    continue
                series[name, feature] = each
                tables.append(_trials(name, feature, each))
                described.append(DescribedSeries(said, y, its_times, its_ahead, tuple(inputs)))
    if not series:
        raise left_out[0][1]
    history = _those_forecast(history, series) if left_out else history
    unknown = StepQuantiles(np.full(horizon, np.nan), np.full((horizon, len(levels)), np.nan))
    frames = []
    for name in history.names:
        parts = [
            _rows(
                *(name, feature, series[name, feature].ahead if (name, feature) in series else unknown, levels),
                *(steps_ahead[name], history.time_unit),
            )
            for feature in (range(history.n_features) if history.features is None else history.features)
        ]
        frames.append(pd.concat(parts, ignore_index=True).sort_values("step", kind="stable", ignore_index=True))
    words = [
        sentence
        for one, each in zip(described, series.values(), strict=True)
        for sentence in words_of(one, each, levels)
    ]
    for said, why in left_out:
        words.append(f"{said}: It is not forecast: {why}.")
        warn_caller(f"{said} is not forecast: {why}")
    return AutomaticForecast(
        pd.concat(frames, ignore_index=True),
        pd.concat(tables, ignore_index=True),
        series,
        words,
        history,
        tuple(levels.tolist()),
        clock.perf_counter() - began,
        n,
        random_state,
    )


def _checked_levels(quantiles: Sequence[float]) -> np.ndarray:
    levels = np.asarray(quantiles, dtype=np.float64)
    if levels.ndim != 1 or levels.size == 0 or not ((levels > 0) & (levels < 1)).all() or (np.diff(levels) <= 0).any():
        raise ValueError(f"quantiles is {quantiles!r}; pass increasing numbers between 0 and 1, such as (0.05, 0.95)")
    return levels


def _check_series(y: np.ndarray, horizon: int, season: int | None, name: Any, feature: Any) -> None:
    """Check that a series can be forecast: that it is long enough, finite, not constant, and not too large or small.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
        horizon: number of steps ahead.
        season: number of steps of the season that the user gave; None means none was given.
        name, feature: name of the sequence and of the feature, for the message.

    Raises:
        ValueError: it cannot be forecast; the message says why.
    """
    n, where = int((~np.isnan(y)).sum()), f"feature {feature!r} of sequence {name!r}"
    if n < max(SHORTEST, horizon + SHORTEST // 2):
        raise ValueError(
            f"{where} has {n} values, but to forecast {horizon} steps ahead at least "
            f"{max(SHORTEST, horizon + SHORTEST // 2)} are needed; pass a smaller horizon or a longer series"
        )
    if not np.isfinite(y[~np.isnan(y)]).all():
        raise ValueError(f"{where} has infinite values; pass finite ones, and NaN where they are missing")
    if np.nanmin(y) == np.nanmax(y):
        raise ValueError(f"{where} is always {np.nanmin(y):g}; leave it out")
    largest, deviation = float(np.nanmax(np.abs(y))), float(np.nanmax(y)) - float(np.nanmin(y))
    if largest > LARGEST or deviation < SMALLEST:
        raise ValueError(
            f"{where} has values of magnitude {largest:.3g} that differ by {deviation:.3g} at most; float64 cannot "
            "hold the squares of such numbers; pass it in other units"
        )
    if season is not None and season > len(y) // 2:
        raise ValueError(
            f"season is {season}, but {where} has {len(y)} steps, in which no such season is seen twice; pass a season "
            f"of {len(y) // 2} steps at most, 1 for none, or a longer series"
        )


def _those_forecast(history: Sequences, series: Mapping[tuple[Any, Any], SeriesForecast]) -> Sequences:
    """Return the sequences without those, and without named features, that could not be forecast.

    Only values, names, features and times are kept.

    Args:
        history: all sequences.
        series: the forecasts that were made, by ``(sequence, feature)``.
    """
    kept = [i for i, name in enumerate(history.names) if any(name == each for each, _ in series)]
    features = history.features
    columns = [d for d in range(history.n_features) if features is None or any(features[d] == f for _, f in series)]
    return Sequences(
        [np.asarray(history[i])[:, columns] for i in kept],
        names=[history.names[i] for i in kept] if len(history) > 1 else None,
        features=None if features is None else [features[d] for d in columns],
        times=None if history.times is None else [history.times[i] for i in kept],
        time_name=history.time_name,
        time_unit=history.time_unit,
        by=history.by,
    )


def _forecast_column(
    y: np.ndarray,
    horizon: int,
    levels: np.ndarray,
    season: int | None,
    of_times: int | None,
    dates: np.ndarray | None,
    max_seconds: float | None,
    inputs: np.ndarray | None,
) -> SeriesForecast:
    """Forecast one feature of one sequence, with T steps, k steps ahead.

    Args:
        y: its values, ``(T,)``; NaN is missing.
        horizon: number of steps k ahead.
        levels: levels of the Q quantiles, ``(Q,)``.
        season: number of steps of the season that the user gave; None means none was given.
        of_times: number of steps of the season that the times suggest; None means that they suggest none.
        dates: times of all steps and steps ahead, ``(T + k,)``; None means that there are none.
        max_seconds: seconds after which no further model is tried; None means no limit.
        inputs: U inputs of all steps and steps ahead, ``(T + k, U)``; None means none.
    """
    weak_season = _tried(of_times, y)
    its_season = _season(y, season, of_times)
    steps = seen_steps(y, horizon, its_season or weak_season, dates)
    if steps is None:
        return forecast_series(y, horizon, levels, its_season, max_seconds, possible_season=weak_season, inputs=inputs)
    seen, left = steps.of(y), steps.season
    if its_season is None and left is not None and has_season(_complete(seen), left):
        its_season = left
    return forecast_seen_steps(
        *(y, horizon, levels, steps, None if its_season is None else left, max_seconds),
        possible_season=None if weak_season is None else left,
        inputs=inputs,
    )


def _tried(of_times: int | None, y: np.ndarray) -> int | None:
    """Return the season that the dates suggest if the series is long enough to try it, else None.

    Args:
        of_times: number of steps of the season that the dates suggest; None means that they suggest none.
        y: values of the series, ``(T,)``.
    """
    return of_times if of_times is not None and 1 < of_times <= len(y) // SEASONS_TO_TRY else None


def _complete(y: np.ndarray) -> np.ndarray:
    """Return a series of T steps, ``(T,)``, with missing values (NaN) interpolated linearly between known ones."""
    known = np.flatnonzero(~np.isnan(y))
    return np.asarray(np.interp(np.arange(len(y)), known, y[known]))


def _season(y: np.ndarray, season: int | None, of_times: int | None) -> int | None:
    """Return the number of steps of a series' season, or None if it has none.

    Args:
        y: the series, ``(T,)``.
        season: the user's choice, which decides; 1 means no season, None that the user did not choose.
        of_times: the season that the times suggest, which is tested on the data; None means that the season of the
            changes of y is looked for and tested.
    """
    if season is not None:
        return season if season > 1 else None
    if of_times == 1:
        return None
    complete, tried = _complete(y), _tried(of_times, y)
    if tried is not None and has_season(complete, tried):
        return tried
    shares = seasonal_shares([complete])
    of_series = max(shares, key=lambda lag: shares[lag]) if shares else None
    if of_series is None or not has_season(complete, of_series):
        return None
    on_scales = [complete, np.log(complete)] if complete.min() > 0 else [complete]
    return of_series if max(seasonal_share(z, of_series) for z in on_scales) > LEAST_SHARE else None


def _rows(
    name: Any, feature: Any, ahead: StepQuantiles, levels: np.ndarray, times: np.ndarray | None, unit: str | None
) -> pd.DataFrame:
    import pandas as pd

    k = len(ahead.mean)
    columns = {quantile_name(level): ahead.quantiles[:, i] for i, level in enumerate(levels)}
    at = {} if times is None else {"time": with_zone(times, unit)}
    return pd.DataFrame(
        {
            **{"sequence": [name] * k, "step": np.arange(1, k + 1), **at, "feature": [feature] * k},
            **{"mean": ahead.mean, **columns},
        }
    )


def _trials(name: Any, feature: Any, each: SeriesForecast) -> pd.DataFrame:
    import pandas as pd

    n = len(each.trials)
    return pd.DataFrame(
        {
            **{"sequence": [name] * n, "feature": [feature] * n, "model": [trial.name for trial in each.trials]},
            "crps_scaled": [trial.crps for trial in each.trials],
            "covered 90%": [trial.coverage for trial in each.trials],
            "seconds": [trial.seconds for trial in each.trials],
            "chosen": [trial.is_chosen for trial in each.trials],
            "weight": [trial.weight for trial in each.trials],
        }
    )
