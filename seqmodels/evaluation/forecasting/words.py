"""Sentences about a forecast: the series, its trend and season, the chosen models, and how certain the forecast is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmodels.common.display import listed
from seqmodels.encodings.differences import rounding
from seqmodels.evaluation.forecasting.series import FEWEST_CHANGES, SeriesForecast, holds_bits
from seqmodels.sequences.times import time_in_words

NAIVE = ("naive", "seasonal naive")  # names of the models that the forecast is compared with
SEASONS_OF_TREND = 3  # number of seasons over which the trend is described
STEPS_OF_TREND = 24  # number of steps over which it is described if there is no season
LEAST_TREND = 0.2  # share of the variance, without the season, that a line must explain to be called a trend
STRONG, WEAK = 0.64, 0.2  # strengths of a season; the first as in Wang, Smith and Hyndman (2006)
MOST_NAMED = 3  # most models that are named if more are averaged
RESCALED = 0.02  # least change of a band that is mentioned
FEW_VALUES = 100  # with fewer values in a backtest, its coverage is uncertain by several per cent
DAY = 86400.0  # seconds
DAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
# Shortest and longest step in seconds, and its name.
STEPS = (
    *((0.9, 1.1, "second"), (55.0, 65.0, "minute"), (3500.0, 3700.0, "hour"), (0.9 * DAY, 1.1 * DAY, "day")),
    *((6.9 * DAY, 7.1 * DAY, "week"), (28 * DAY, 31 * DAY, "month"), (90 * DAY, 92 * DAY, "quarter")),
    (365 * DAY, 366 * DAY, "year"),
)


@dataclass(frozen=True)
class DescribedSeries:
    """A series of T steps with what is needed to describe it in sentences.

    Attributes:
        name: words that its sentences begin with; may be empty.
        y: the series, ``(T,)``; NaN where values are missing, but not at the first step.
        times: times of its steps, ``(T,)``; None means that steps are counted.
        times_ahead: times of the k steps ahead, ``(k,)``; None means that they have none.
        inputs: names of the inputs; may be empty.
    """

    name: str
    y: np.ndarray
    times: np.ndarray | None
    times_ahead: np.ndarray | None
    inputs: tuple[str, ...] = ()

    @property
    def step(self) -> str:
        """Word for one step of the series: for dates second, hour, day, month and so on, else step."""
        if self.times is None or self.times.dtype.kind != "M" or len(self.times) < 2:
            return "step"
        seconds = float(np.median(np.diff(self.times) / np.timedelta64(1, "s")))
        return next((name for low, high, name in STEPS if low <= seconds <= high), "step")

    def steps(self, n: int) -> str:
        """Return ``n`` and the word for that many steps, such as ``"3 months"`` or ``"1 step"``."""
        return f"{n:,} {self.step}{'s' * (n != 1)}"

    def time(self, t: int) -> str:
        """Return words for the time of step ``t``, from 0: its date, or ``"step 3"`` if steps are only counted."""
        return f"step {t + 1}" if self.times is None else self._in_words(self.times[t])

    def time_ahead(self, h: int) -> str:
        """Return words for the time of the h-th step ahead, from 0, in parentheses; empty if it has no time."""
        return "" if self.times_ahead is None else f" ({self._in_words(self.times_ahead[h])})"

    def _in_words(self, time: Any) -> str:
        if self.step in ("month", "quarter") and self._are_first_days():
            return str(np.datetime64(time, "M"))
        return str(np.datetime64(time, "Y")) if self.step == "year" and self._are_first_days() else time_in_words(time)

    def _are_first_days(self) -> bool:
        assert self.times is not None, "steps that have a name have dates"
        return bool((self.times.astype("datetime64[M]") == self.times).all())

    def phase(self, phase: int, season: int) -> str:
        """Return words for the steps at one position of the season, such as ``"on Mondays"`` or ``"at step 2 of 5"``.

        Args:
            phase: the position, from 0 for the first step of the series.
            season: number of steps of the season.
        """
        names = {
            ("month", 12): ("%B", "in {}"),
            ("day", 7): ("%A", "on {}s"),
            ("hour", 24): ("%H:00", "at {}"),
        }.get((self.step, season))
        if self.times is None:
            return f"at step {phase + 1} of {season}"
        # The last step of the phase, because clocks may have changed since the first.
        time = self.times[phase + (len(self.times) - 1 - phase) // season * season]
        if (self.step, season) == ("quarter", 4):
            return f"in quarter {(time.astype('datetime64[M]').astype(int) % 12) // 3 + 1}"
        if names is None:
            return f"at step {phase + 1} of {season}"
        return names[1].format(_in_english(time, names[0]))


def _in_english(time: np.datetime64, code: str) -> str:
    """Format a time in English, whatever the locale of the process is.

    Args:
        time: the time.
        code: format for ``strftime``, such as ``"%B"``.
    """
    import pandas as pd

    stamp = pd.Timestamp(time)
    return {"%B": stamp.month_name(), "%A": stamp.day_name()}.get(code) or stamp.strftime(code)


@dataclass(frozen=True)
class SeasonalDecomposition:
    """The decomposition ``y = trend + season + rest`` of a series.

    It is made by a moving average over a season and the means of its phases (positions in the season).

    Attributes:
        level: the series without its season, ``(T,)``.
        effects: effects of the s phases, counted from the first step, over the last seasons, ``(s,)``; empty if there
            is no season.
        strength: strength of the season, ``max(0, 1 - Var(rest) / Var(season + rest))`` (Wang, Smith and Hyndman 2006),
            with unbiased variances, so that for noise alone it is near 0 however few seasons there are.
    """

    level: np.ndarray
    effects: np.ndarray
    strength: float


def decomposition(y: np.ndarray, season: int | None) -> SeasonalDecomposition:
    """Decompose a series into trend, season and rest, after interpolating missing values.

    Args:
        y: values of the series, ``(T,)``; NaN is missing.
        season: number of steps of its season; None means no season.
    """
    known = np.flatnonzero(~np.isnan(y))
    filled = np.interp(np.arange(len(y)), known, y[known])
    if season is None or len(y) < 2 * season:
        return SeasonalDecomposition(filled, np.zeros(0), 0.0)
    weights = np.ones(season + 1 - season % 2)
    if season % 2 == 0:
        weights[[0, -1]] = 0.5
    around = filled - _moving_average(filled, weights)
    phase = np.arange(len(y)) % season
    n_last = min(len(y), 5 * season)

    def means(last: int) -> np.ndarray:
        each = [around[len(y) - last :][phase[len(y) - last :] == p].mean() for p in range(season)]
        return np.asarray(np.array(each) - np.mean(each))

    effects = means(len(y))
    total = float(np.var(around))
    left = float(np.var(around - effects[phase])) * (len(y) - 1) / (len(y) - season)
    strength = max(0.0, 1 - left / total) if total > 0 else 0.0
    lately = means(n_last)
    return SeasonalDecomposition(filled - lately[phase], lately, strength)


def _moving_average(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the moving average of a series, ``(T,)``.

    Near both ends, where it cannot be computed, it follows a line through its nearest values.

    Args:
        y: values of the series, ``(T,)``.
        weights: weights of w consecutive values, ``(w,)``; w is odd.
    """
    width, half = len(weights), len(weights) // 2
    middle = np.convolve(y, weights / weights.sum(), "valid")
    result = np.concatenate([np.zeros(half), middle, np.zeros(half)])
    slope = (middle[min(width, len(middle)) - 1] - middle[0]) / max(1, min(width, len(middle)) - 1)
    result[:half] = middle[0] - slope * np.arange(half, 0, -1)
    slope = (middle[-1] - middle[-min(width, len(middle))]) / max(1, min(width, len(middle)) - 1)
    result[len(y) - half :] = middle[-1] + slope * np.arange(1, half + 1)
    return result


def words_of(series: DescribedSeries, result: SeriesForecast, levels: np.ndarray) -> list[str]:
    """Describe one series and its forecast in sentences.

    Args:
        series: the series.
        result: its forecast.
        levels: levels of the Q quantiles of the forecast, ``(Q,)``.
    """
    parts = decomposition(series.y, result.season)
    if result.unseen and len(parts.effects):
        parts.effects[list(result.unseen)] = np.nan
    sentences = [
        _data(series),
        _left_out(series, result),
        _trend(series, parts, result.season),
        _season(series, parts, result),
        _unseen(series, result),
        _choice(result),
        *_inputs(series, result),
        _certainty(result),
        _outcome(series, result, levels),
    ]
    return [f"{series.name}: {each}" if series.name else each for each in sentences if each]


def _data(series: DescribedSeries) -> str:
    n, n_missing = len(series.y), int(np.isnan(series.y).sum())
    when = f", {series.time(0)} to {series.time(n - 1)}" if series.times is not None else ""
    of_step = f", a value a {series.step}" if series.step != "step" else ""
    missing = f"; {n_missing:,} of them ({100 * n_missing / n:.2g} %) missing" if n_missing else "; none is missing"
    return f"The series has {n:,} steps{when}{of_step}{missing}."


def _left_out(series: DescribedSeries, result: SeriesForecast) -> str:
    sentences = []
    if result.n_left_out:
        sentences.append(
            f"The first {series.steps(result.n_left_out)} are left out, since too many are missing after them."
        )
    if result.gap:
        sentences.append(
            f"The last {series.steps(result.gap)} are missing, so that what follows is forecast from farther away."
        )
    if holds_bits(series.y):
        sentences.append(
            "All values are 0 or 1: the mean says about how probable a 1 is, and bands say little; fit a model with "
            "observation=Bernoulli() for probabilities."
        )
    if result.n_changes < FEWEST_CHANGES:
        sentences.append(
            f"It changed only {'once' if result.n_changes == 1 else 'twice'}, so that its last value is forecast, with "
            "bands that hold all it has been."
        )
    return " ".join(sentences)


def _unseen(series: DescribedSeries, result: SeriesForecast) -> str:
    if not result.unseen and not result.unseen_days:
        return ""
    season = result.season or result.possible_season or 0
    phases = [series.phase(phase, season) for phase in result.unseen[:MOST_NAMED]]
    if len(result.unseen) > MOST_NAMED:
        phases = [f"{', '.join(phases)} and so on"]
    days = [f"on {DAYS[day]}" for day in result.unseen_days]
    left = f", {season - len(result.unseen)} a season" if result.unseen else ""
    return (
        f"No value was ever seen {listed([*phases, *days])}: models are of the other steps{left}, and what is forecast "
        f"there is their level, with a band as wide as all of them together."
    )


def _inputs(series: DescribedSeries, result: SeriesForecast) -> list[str]:
    if result.inputs is None:
        return []
    to = "" if result.inputs.scale == "values" else f" to the {result.inputs.scale}"
    sentences = []
    for name, mean, deviation in zip(series.inputs, result.inputs.mean, result.inputs.deviation, strict=True):
        if result.inputs.scale == "logarithms":  # the effect is a factor, with its error by the delta method
            percentage, error = 100 * np.expm1(mean), 100 * np.exp(mean) * deviation
            worth = f"{number(float(percentage))} % (standard error {number(float(error))} points)"
        else:
            worth = f"{number(float(mean))}{to} (standard error {number(float(deviation))})"
        sentences.append(f"A unit of {name} adds {worth}, by {result.inputs.model}.")
    return sentences


def _trend(series: DescribedSeries, parts: SeasonalDecomposition, season: int | None) -> str:
    n = min(len(series.y), SEASONS_OF_TREND * season if season is not None else STEPS_OF_TREND)
    lately = parts.level[len(parts.level) - n :]
    slope, start = np.polyfit(np.arange(n), lately, 1)
    line = start + slope * np.arange(n)
    over = f"Over the last {series.steps(n)}"
    without = " without its season" if len(parts.effects) else ""
    if np.var(line) <= LEAST_TREND * np.var(lately) or np.std(line) <= rounding(lately):
        return f"{over} it has no clear trend{without}; its mean is {number(float(lately.mean()))}."
    first, last = float(line[0]), float(line[-1])
    verb = "rises" if slope > 0 else "falls"
    by, apart = f"{number(abs(slope))} a {series.step}", abs(last - first)
    return f"{over} the line through it{without} {verb} from {number(first, apart)} to {number(last, apart)}, by {by}."


def _season(series: DescribedSeries, parts: SeasonalDecomposition, result: SeriesForecast) -> str:
    season = result.season
    if season is None:
        weak_season = result.possible_season
        if weak_season is None:
            return "No season was found."
        return f"No season was found; models with one of {series.steps(weak_season)} were tried all the same."
    if not len(parts.effects):
        return f"The season of {series.steps(season)} is as long as half the series: too long to be described."
    share = f"it explains {100 * parts.strength:.0f} % of the variance around the trend"
    if parts.strength < WEAK:
        return f"The season of {series.steps(season)} is weak: {share}."
    highest, lowest = int(np.nanargmax(parts.effects)), int(np.nanargmin(parts.effects))
    where = (
        f"highest {series.phase(highest, season)} ({number(parts.effects[highest])} above the trend), lowest "
        f"{series.phase(lowest, season)} ({number(-parts.effects[lowest])} below)"
    )
    strong = "strong" if parts.strength > STRONG else "moderate"
    return f"The season of {series.steps(season)} is {strong}: {share}; {where}."


def _choice(result: SeriesForecast) -> str:
    weights = [trial.weight for trial in result.trials if trial.is_chosen]  # in the order of result.chosen
    by_weight = sorted(zip(result.chosen, weights, strict=True), key=lambda each: -each[1])
    names = [f"{each} ({100 * weight:.0f} %)" for each, weight in by_weight]
    if len(names) > 1:
        which = f", above all {listed(names[:MOST_NAMED])}" if len(names) > MOST_NAMED else f": {listed(names)}"
        what = f"the quantiles of {len(names)} models are averaged, weighted by their scores{which}"
    else:
        what = f"one was chosen: {result.chosen[0]}"
    naive = [trial for trial in result.trials if trial.name in NAIVE]
    gain = ""
    if naive and naive[0].crps > 0:
        less = 100 * (1 - result.crps / naive[0].crps)
        gain = (
            f", {abs(less):.0f} % {'less' if less >= 0 else 'more'} than that of the {naive[0].name} forecast"
            if abs(less) >= 0.5
            else f", that of the {naive[0].name} forecast"
        )
    failed = f" {len(result.errors)} could not be fitted." if result.errors else ""
    kinds = f"{len(result.trials)} kind{'s' * (len(result.trials) != 1)} of models"
    return (
        f"Of {kinds} tried on forecasts of its last part {what}. Their mean error (CRPS) was {number(result.crps)} of "
        f"the mean change over a {'step' if result.season is None else 'season'}{gain}.{failed}"
    )


def _certainty(result: SeriesForecast) -> str:
    n = result.n_scored
    share = f"{100 * result.coverage:.0f} % of {n:,} values"
    origins = f"{len(result.origins)} origin{'s' * (len(result.origins) != 1)}"
    text = f"In that backtest, of {origins}, 90 % bands held {share}"
    low, high = float(result.factors.min()), float(result.factors.max())
    if max(abs(low - 1), abs(high - 1)) < RESCALED:
        text += "; they are as the models have them."
    else:
        first, last = result.factors[0], result.factors[-1]
        by = f"{first:.2f}" if abs(first - last) < RESCALED else f"{first:.2f} (first step) to {last:.2f} (last)"
        text += f" after they were {'widened' if low >= 1 else 'narrowed' if high <= 1 else 'rescaled'} by {by}."
    few = " With so few values that share is uncertain by several per cent." if n < FEW_VALUES else ""
    return text + few


def _outcome(series: DescribedSeries, result: SeriesForecast, levels: np.ndarray) -> str:
    k = len(result.ahead.mean)
    at = result.ahead.quantiles[-1]
    pairs = [(i, j) for i in range(len(levels)) for j in range(len(levels)) if levels[i] < 0.5]
    pairs = [(i, j) for i, j in pairs if abs(levels[i] + levels[j] - 1) < 1e-9]
    half = np.flatnonzero(np.isclose(levels, 0.5))
    apart = float(at[-1] - at[0])
    middle = (
        f"{number(at[half[0]], apart)} in the median"
        if len(half)
        else f"{number(result.ahead.mean[-1], apart)} in the mean"
    )
    band = ""
    if pairs:
        i, j = pairs[0]
        chance = f"{100 * (levels[j] - levels[i]):.4g} %"
        band = f", and with a probability of {chance} between {number(at[i], apart)} and {number(at[j], apart)}"
    return f"{series.steps(k).capitalize()} ahead{series.time_ahead(k - 1)} it is {middle}{band}."


def number(x: float, apart: float | None = None) -> str:
    """Return a number as text with four digits, without an exponent where people write none.

    Args:
        x: the number.
        apart: distance to another number from which the text should tell it apart, if necessary by more digits; None
            means that there is no other.

    >>> number(1234567.0), number(0.012345), number(45.0), number(1234567.0, 20.0)
    ('1,235,000', '0.01235', '45', '1,234,567')
    """
    if not np.isfinite(x) or x == 0:
        return f"{x:g}"
    size = int(np.floor(np.log10(abs(x))))
    digits = 3 - size
    if apart is not None and apart > 0:
        digits = int(np.clip(1 - np.floor(np.log10(apart)), digits, 15 - size))
    if not -12 <= digits <= 15 or size < -5:
        return f"{x:.{max(digits + size, 3)}e}"
    rounded = round(float(x), digits)
    text = f"{rounded:,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def names_of_series(names: Sequence[Any], features: Sequence[Any]) -> list[str]:
    """Return the words with which sentences about each feature of each series begin; empty texts for a single one.

    Args:
        names: names of the series.
        features: names of their features.
    """
    several, many = len(names) > 1, len(features) > 1
    each = [
        [str(name)] * several + [feature if isinstance(feature, str) else f"feature {feature}"] * many
        for name in names
        for feature in features
    ]
    return [", ".join(parts) for parts in each]
