"""``forecast``: what follows a series, by the models that forecast its own last part best."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels import plot
from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import quantile_name
from seqmodels.common.parameters import PositiveFloat, PositiveInt, checked
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.encodings.auto_series import seasonal_share, seasonal_shares
from seqmodels.evaluation.forecasting.candidates import StepQuantiles
from seqmodels.evaluation.forecasting.inputs import split, with_steps_ahead
from seqmodels.evaluation.forecasting.phases import forecast_seen_steps, seen_steps
from seqmodels.evaluation.forecasting.series import SHORTEST, SeriesForecast, forecast_series, has_season
from seqmodels.evaluation.forecasting.tables import regular_sequences, season_of_times
from seqmodels.evaluation.forecasting.words import DescribedSeries, names_of_series, words_of
from seqmodels.sequences import Sequences
from seqmodels.sequences.times import times_ahead
from seqmodels.sequences.zones import on_its_clock, with_zone

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels

MOST_ROWS = 60  # that are printed
SEASONS_TO_TRY = 3  # that a series has, for their season to be tried
LARGEST, SMALLEST = 1e100, 1e-100  # magnitudes whose squares, and sums of them, float64 holds
LEAST_SHARE = 0.65  # of the variance of changes, that a season explains which no dates suggest


@dataclass(frozen=True, eq=False, repr=False)
class AutomaticForecast:
    """What follows each series, and how it was come by; printed, it is its ``words`` and its ``frame``.

    Attributes:
        frame: a row for each ``sequence`` (its name), ``step`` (1 to horizon) and ``feature`` (its name, or its number
            where the features have none): ``time``, after ``step``, of series with times; ``mean``, and a column for
            each quantile, named in per cent (``"5%"``), in units of the series: NaN of a feature that could be
            forecast of other sequences only.
        table: what was tried, a row for each ``sequence``, ``feature`` and ``model``, by the names that the words have:
            ``crps_scaled`` and ``covered 90%`` in a backtest of the last part of the series, ``seconds``, and whether
            it was ``chosen``: forecasts are averages of those chosen, by ``weight``. That of the largest weight is
            first; those that were not chosen follow, the least error first.
        series: for each ``(sequence, feature)`` all that is known of its forecast: ``chosen`` (the fitted models),
            ``season``, ``crps`` and ``coverage`` (of the average, in the backtest), ``factors`` (by which its bands are
            rescaled, a step each), ``origins``, ``unseen`` (phases of the season that have no value) and ``inputs``
            (what they are worth). Series that cannot be forecast are not among them, and named in ``words``.
        words: what was done, in sentences.
        history: the series that the steps follow, those that are forecast, steps without a row filled in as missing.
        quantiles: the levels.
        seconds: that it took.
    """

    frame: pd.DataFrame
    table: pd.DataFrame
    series: Mapping[tuple[Any, Any], SeriesForecast]
    words: Sequence[str]
    history: Sequences
    quantiles: tuple[float, ...]
    seconds: float

    @property
    def features(self) -> tuple[Any, ...]:
        """The names of the features, or their numbers."""
        return tuple(range(self.history.n_features) if self.history.features is None else self.history.features)

    @property
    def are_angles(self) -> tuple[bool, ...]:
        """Whether each feature is an angle: none is, since only a model's observation says so."""
        return (False,) * self.history.n_features

    @property
    def model(self) -> Mapping[tuple[Any, Any], Sequence[Any]]:
        """For each ``(sequence, feature)`` the fitted models whose quantiles are averaged."""
        return {name: each.chosen for name, each in self.series.items()}

    @property
    def paths(self) -> list[Any]:
        """None: raises ``ValueError``, since quantiles are of each step by itself."""
        raise AbsentAttributeError("an automatic forecast has quantiles of each step and draws no paths; leave paths=0")

    def __repr__(self) -> str:
        table = self.frame.to_string(index=False, float_format="%.5g", max_rows=MOST_ROWS)
        return "\n".join([*self.words, "", table])

    def _repr_html_(self) -> str:
        """What a notebook shows: the words, the picture of the first sequence and the table."""
        from seqmodels.evaluation.forecasting.page import page

        return page(self)

    @checked
    def plot(self, ax: Axes | Sequence[Axes] | None = None, **options: Any) -> Axes | Panels:
        """A fan chart of one sequence: see ``seqmodels.plot.forecast``, whose arguments it takes."""
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
    verbose: Verbose = "auto",
) -> AutomaticForecast:
    """Forecast series of numbers: models that fit the data are tried on its own last part, and the best are averaged.

    Tried are linear processes in closed form, of the values and, where all are positive, of their logarithms and roots:
    structural time series (level, slope, season), ARIMA by a stepwise search, autoregressions around a level or a line
    or of changes, with means of the phases of a season; and the naive. Each is scored on forecasts from up to 24
    origins in the second half of the series; the quantiles of the best twelve, fitted to all of it, are averaged with
    weights by their CRPS and their likelihood (Lichtendahl, Grushka-Cockayne and Winkler 2013), where models that
    forecast alike share a weight. The bands of the average are made wider or narrower by how far values were from its
    medians, late ones above all.

    A phase of the season that was never observed, such as the Sundays of a shop that is closed then, is forecast at the
    level of all others, with a band as wide as theirs together; so are the hours of a day of the week that has none. A
    series that is constant or too short is left out of several, with a warning; alone it is refused.

    Args:
        frame: a frame or column of pandas, dates in its index or in a column; an array ``(T,)`` or ``(T, D)``; or
            ``Sequences`` of vectors. NaN is missing, and so are steps between dates that have no row. Each feature is
            forecast by itself.
        horizon: steps ahead.
        season: steps of a season, 1 for none; None: by the dates (12 of months, 4 of quarters, 7 of days, 24 of
            hours), or else as the changes of the series repeat.
        quantiles: levels, increasing.
        time: the column of times; None: the index, or a column of dates or one called so.
        by: the column that names the series of a row.
        max_seconds: for each series, after which no other model is tried; None: no limit. Most take seconds.
        inputs: columns of numbers of a frame that are known at each step, such as holidays (0 or 1) or prices. They are
            not forecast: all models but the naive regress on them, with errors of their own process.
        future: a frame with the inputs of the steps ahead, a row a step, and times as the frame has; None: those are
            the last rows of the frame, where what is forecast is missing.
        date_format: how dates are written, as ``datetime.strptime`` takes it (``"%d/%m/%Y"``); None: the way in which
            all of them can be read, and under which they are regular if that could be done in several.
        verbose: True: show a bar of the series that are done; False: none; ``"auto"``: one in a terminal or a notebook
            after three seconds.

    Raises:
        ValueError: what holds no series of numbers; a series too short for the horizon or the season, or that does not
            change; inputs that are not known at each step.

    >>> t = np.arange(72)
    >>> y = 10 + 0.1 * t + 3 * np.sin(2 * np.pi * t / 12) + np.random.default_rng(0).normal(size=72)
    >>> forecast(y, 3).frame[["step", "5%", "95%"]].shape
    (3, 3)
    """
    import pandas as pd

    began = clock.perf_counter()
    levels = _checked_levels(quantiles)
    if future is not None and not inputs:
        raise ValueError("future has the inputs of the steps ahead, but inputs names no column; name them")
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
                    f"the times of sequence {name!r} have no one step, so that its rows are taken for steps and those "
                    "ahead have no times; bring them to one frequency, as frame.resample of pandas does",
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
    )


def _checked_levels(quantiles: Sequence[float]) -> np.ndarray:
    levels = np.asarray(quantiles, dtype=np.float64)
    if levels.ndim != 1 or levels.size == 0 or not ((levels > 0) & (levels < 1)).all() or (np.diff(levels) <= 0).any():
        raise ValueError(f"quantiles is {quantiles!r}; pass increasing numbers between 0 and 1, such as (0.05, 0.95)")
    return levels


def _check_series(y: np.ndarray, horizon: int, season: int | None, name: Any, feature: Any) -> None:
    n, where = int((~np.isnan(y)).sum()), f"feature {feature!r} of sequence {name!r}"
    if n < max(SHORTEST, horizon + SHORTEST // 2):
        raise ValueError(
            f"{where} has {n} values; {max(SHORTEST, horizon + SHORTEST // 2)} are the fewest of which {horizon} steps "
            "ahead are forecast; pass a smaller horizon or a longer series"
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
    """The history without the sequences, and the named features, of which nothing is forecast."""
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
    """Forecast ``y (T,)``: ``of_times`` is the season that its times suggest, ``dates (T + k,)`` are theirs."""
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
    """The season that dates suggest, if the series is long enough for it to be tried."""
    return of_times if of_times is not None and 1 < of_times <= len(y) // SEASONS_TO_TRY else None


def _complete(y: np.ndarray) -> np.ndarray:
    """``y (T,)`` with missing values on a line between those that are known."""
    known = np.flatnonzero(~np.isnan(y))
    return np.asarray(np.interp(np.arange(len(y)), known, y[known]))


def _season(y: np.ndarray, season: int | None, of_times: int | None) -> int | None:
    """Steps of the season that is tried; None: none."""
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
