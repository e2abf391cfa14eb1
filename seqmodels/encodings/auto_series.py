"""The encoding ``AutoSeries``, which chooses from the training data whether a series is modelled as levels, logarithms
or differences.

The choices are those of Hyndman & Khandakar (2008), *Automatic time series forecasting*: a seasonal difference where a
season explains most of the changes, a first difference where tests for a unit root ask for one; and a logarithm where
it makes the training data more probable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from seqmodels.common.parameters import PositiveInt
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.differences import Differences, rounding
from seqmodels.encodings.power_transform import Log
from seqmodels.encodings.series import Chain, SeriesEncoding
from seqmodels.encodings.step_maps import StepEncoder, VectorEncoding, as_frames
from seqmodels.encodings.tail_likelihood import tail_log_probs
from seqmodels.encodings.vectors import Standardize
from seqmodels.sequences import Item, Sequences

SHORTEST = 30  # frames: of shorter series the tests say little
MOST_FRAMES = 2_000  # of each series, the last ones, that are looked at
MOST_SERIES = 20  # more are sequences rather than series
CLEAR_GAIN = 0.05  # nats a value by which logarithms, or one more difference, must be more probable
LARGEST_LOSS = 0.2  # nats a value by which a first difference may be less so; a level that moves costs far more
FEWEST_AHEAD, MOST_AHEAD = 8, 24  # steps ahead that are compared
SEASONAL_SHARE = 0.5  # of the variance of the changes, which a season must explain
FEWEST_SEASONS = 3  # in a series, to tell a season
MOST_MISSING = 0.25  # of the values of a series, and of those of its second half
MOST_CANDIDATES = 5  # lags that are tried as a season
LONGEST_SEASON = 400  # frames
KPSS_AT_5_PERCENT = 0.463  # Kwiatkowski, Phillips, Schmidt & Shin (1992), table 1: a level
ADF_AT_5_PERCENT = -2.86  # Fuller (1976), table 8.5.2: a constant, many frames


@dataclass(frozen=True)
class SeriesChoice:
    """The transformation that was chosen for time series: an optional logarithm, then optional differences.

    Args:
        log: True if logarithms of the values are taken.
        order: number of times that the change from the frame before is taken, 0 or 1.
        season: number of frames of the season whose change is taken; None for no seasonal difference.
        reason: one line that says why.
    """

    log: bool
    order: int
    season: int | None
    reason: str

    def chain(self) -> Chain:
        """Return the chosen encodings (logarithm, differences) and ``Standardize`` as a chain, not fitted yet."""
        encodings: list[VectorEncoding] = [Log()] if self.log else []
        if self.order or self.season is not None:
            encodings.append(Differences(self.order, self.season))
        return Chain([*encodings, Standardize()])


@dataclass(eq=False, repr=False)
class AutoSeries(SeriesEncoding):
    """An encoding of series that chooses between levels, logarithms, differences and seasonal differences in ``fit``.

    A first difference is considered if most series have a unit root: the KPSS test rejects that the series has a level,
    and the augmented Dickey-Fuller test does not reject a unit root, both at 5 %. A seasonal difference is considered
    if the mean of each phase of a season explains half of the variance of the changes, and logarithms if all values are
    positive. Among the candidates, that one is taken whose autoregression gives the second half of the series the
    largest log-probability, up to a season ahead (``tail_likelihood``). A first difference is preferred even if it is
    less probable by up to 0.2 nats per value; a further difference or logarithms must be more probable by 0.05 nats per
    value, logarithms in the last quarter too. With several series or features, half of them decide the tests, and their
    mean decides the rest. The result is always standardised.

    For the tests, missing values are interpolated linearly. No value is predicted that is missing, or that follows a
    missing one. The values are only standardised if there are more than 20 series, if all have fewer than 30 frames, or
    if more than a quarter of one is missing. Of a long series, the last 2000 frames are used for the choice.

    Args:
        season: number of frames in a season; None looks for one among the lags at which changes repeat.

    Attributes (fitted): ``choice_``, a ``SeriesChoice``, and ``chain_``, the fitted ``Chain`` of encodings.

    >>> from seqmodels import Sequences
    >>> from seqmodels.encodings import AutoSeries
    >>> walk = np.cumsum(np.random.default_rng(1).normal(size=(200, 1)), axis=0)
    >>> AutoSeries().fit(Sequences([walk])).note  # doctest: +ELLIPSIS
    'Differences(), Standardize(): it wanders (KPSS 4.80, ADF -0.92), ...more probable so'
    """

    season: PositiveInt | None = None

    @property
    def is_fitted(self) -> bool:
        """True once an encoding has been chosen."""
        return "chain_" in vars(self)

    @property
    def n_initial(self) -> int:
        return self.chain_.n_initial if self.is_fitted else 0

    @property
    def n_past(self) -> int | None:
        return self.chain_.n_past if self.is_fitted else None

    @property
    def has_constant_map(self) -> bool:
        return self.chain_.has_constant_map if self.is_fitted else False

    def fit(self, sequences: Sequences) -> Self:
        return self.fit_as(choose([as_frames(item) for item in sequences], self.season), sequences)

    def fit_as(self, choice: SeriesChoice, sequences: Sequences) -> Self:
        """Fit the encoding to training sequences with given logarithms and differences, and return it.

        Args:
            choice: logarithms and differences that were chosen before.
            sequences: training sequences of vectors.
        """
        return self._set(choice, choice.chain().fit(sequences))

    def _set(self, choice: SeriesChoice, chain: Chain) -> Self:
        self.choice_, self.chain_, self.size = choice, chain, chain.size
        self.note = f"{', '.join(map(repr, chain.encodings))}: {choice.reason}"
        return self

    def check_values(self, i: int, frames: np.ndarray) -> None:
        self.chain_.check_values(i, frames)

    def encode(self, item: Item) -> np.ndarray:
        return self.chain_.encode(item)

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        return self.chain_.of_each_value(frames)

    def step_encoder(self, past: np.ndarray) -> StepEncoder:
        return self.chain_.step_encoder(past)

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return self.chain_.affine()

    def state(self) -> State:
        choice = self.choice_
        said = {"log": choice.log, "order": choice.order, "season": choice.season, "reason": choice.reason}
        return {**said, "chain": self.chain_.state(), **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        said = {
            name: state.get(name) if isinstance(state, dict) else None for name in ("log", "order", "season", "reason")
        }
        choice = SeriesChoice(**_checked(said))
        self._set(choice, choice.chain().restore(state["chain"]))
        self.names = names_of_state(state, self.size)
        return self


def _checked(said: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``SeriesChoice`` that were read from a file, or raise ValueError if they are invalid."""
    season = said["season"]
    is_season = season is None or (type(season) is int and season > 1)
    if type(said["log"]) is bool and said["order"] in (0, 1) and is_season and isinstance(said["reason"], str):
        return said
    raise ValueError(f"the file should say what series are read as, and says {said!r:.200}")


# -- the choice ------------------------------------------------------------------------------------------------------


def choose(series: Sequence[np.ndarray], season: int | None = None) -> SeriesChoice:
    """Choose for series between levels, logarithms, differences and seasonal differences.

    Tests for unit roots and seasons give candidates; the one whose autoregression predicts the second half of the
    series best is taken, with a preference for fewer changes (``AutoSeries`` describes it).

    Args:
        series: training series, arrays ``(T, D)`` with NaN for missing values.
        season: the only season to consider, in frames; None looks for one.
    """
    series = [x[-MOST_FRAMES:] for x in series]
    if any(_misses_many(x) for x in series):
        return SeriesChoice(False, 0, None, f"of a series more than {100 * MOST_MISSING:.0f} % is missing")
    if len(series) > MOST_SERIES:
        return SeriesChoice(False, 0, None, f"there are {len(series)} series")
    if max(map(len, series)) < SHORTEST:
        return SeriesChoice(False, 0, None, f"the longest series has {max(map(len, series))} frames")
    filled = [filled_in(column) for x in series if len(x) >= SHORTEST for column in x.T]
    parts = [(scaled, missing) for column, missing in filled for scaled in _in_its_own_unit(column)]
    columns, is_missing = [column for column, _ in parts], [missing for _, missing in parts]
    if not columns:
        return SeriesChoice(False, 0, None, "its values do not change, or are too large")
    levels = Signs.of(columns, season)
    is_positive = not any(bool((x <= 0).any()) for x in series)
    logs = Signs.of([np.log(column) for column in columns], season) if is_positive else levels
    n_ahead = int(np.clip(max([*levels.shares, *logs.shares], default=0), FEWEST_AHEAD, MOST_AHEAD))
    # A level may have cycles that are no season, as an autoregression of order 2 has (Yule 1927).
    tails = Tails(columns, n_ahead, largest_order=1 if levels.wanders else 2, is_missing=is_missing)
    signs, best = levels, tails.best(False, levels)
    if is_positive:
        best_log = tails.best(True, logs)
        if tails.least_gain(best_log, best) > CLEAR_GAIN:
            signs, best = logs, best_log
    reason = f"it {'wanders' if signs.wanders else 'has a level'} (KPSS {signs.kpss:.2f}, ADF {signs.adf:.2f})"
    if best.season is not None:
        reason = f"a season of {best.season} explains {100 * signs.shares[best.season]:.0f} % of the changes, {reason}"
    if best != LEVELS:
        gain = tails.mean(best) - tails.mean(LEVELS)
        reason += f", and its second half is {abs(gain):.2f} nats a value {'more' if gain > 0 else 'less'} probable so"
    elif signs.wanders or signs.shares:
        reason += ", but its second half is more probable as levels"
    return SeriesChoice(best.log, best.order, best.season, reason)


def reaches_new_levels(series: Sequence[np.ndarray]) -> bool:
    """Return True if at least half of the columns of series keep leaving the range of their earlier values.

    A column does so if most values of its second half lie outside the range of the first half, and most values of its
    last quarter lie outside the range of all before.

    Args:
        series: arrays ``(T, D)`` with NaN for missing values.

    >>> reaches_new_levels([np.arange(12.0)[:, None]]), reaches_new_levels([np.repeat([0.0, 5.0], 6)[:, None]])
    (True, False)
    """
    is_new = [
        share > 0.5
        for x in series
        for share in np.minimum(*(_share_beyond(x[:n], x[n:]) for n in (len(x) // 2, 3 * len(x) // 4)))
    ]
    return bool(is_new) and 2 * sum(map(bool, is_new)) >= len(is_new)


def _share_beyond(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the share of later frames that lie outside the range of earlier ones, for each feature, ``(D,)``.

    Args:
        before: earlier frames, ``(m, D)``.
        after: later frames, ``(n, D)``.
    """
    known = ~np.isnan(after)
    highest, lowest = np.fmax.reduce(before, 0, initial=np.nan), np.fmin.reduce(before, 0, initial=np.nan)
    share: np.ndarray = ((after > highest) | (after < lowest)).sum(0) / np.maximum(1, known.sum(0))
    return share


@dataclass(frozen=True)
class Signs:
    """Evidence from the training series for taking differences.

    Attributes:
        kpss: median of the KPSS statistics of all columns, the features of the series.
        adf: median of their augmented Dickey-Fuller statistics.
        wanders: True if both tests point to a unit root in at least half of the columns.
        shares: for each usable season, in frames, the share of the variance of the changes that it explains.
    """

    kpss: float
    adf: float
    wanders: bool
    shares: dict[int, float]

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], season: int | None) -> Signs:
        """Compute the evidence for taking differences from series of one feature.

        Args:
            columns: series without gaps, arrays ``(T,)``.
            season: the only season to consider, in frames; None looks for one.
        """
        tests = [(kpss_statistic(column), adf_statistic(column)) for column in columns]
        kpss, adf = np.median(tests, axis=0).tolist()
        share = np.mean([kpss > KPSS_AT_5_PERCENT and adf > ADF_AT_5_PERCENT for kpss, adf in tests])
        return cls(kpss, adf, bool(share >= 0.5), seasonal_shares(columns, season))


class Reading(NamedTuple):
    """A candidate transformation of series: whether logarithms are taken, and which differences.

    Attributes:
        log: True if logarithms are taken.
        order: number of times that the change from the frame before is taken.
        season: number of frames of the season whose change is taken; None for none.
    """

    log: bool
    order: int
    season: int | None


LEVELS = Reading(False, 0, None)


class Tails:
    """A store of log-probabilities of the second halves of series under candidate transformations, each computed once.

    Args:
        columns: series of one feature without gaps, arrays ``(T,)``.
        n_ahead: number of steps ahead that are predicted from each frame.
        largest_order: largest order of the autoregression that predicts them.
        is_missing: masks ``(T,)`` of the values that were interpolated; None if there are none.
    """

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        n_ahead: int,
        largest_order: int = 1,
        is_missing: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.columns, self.n_ahead, self.largest_order = columns, n_ahead, largest_order
        self.is_missing: Sequence[np.ndarray | None] = [None] * len(columns) if is_missing is None else is_missing
        self._log_probs: dict[Reading, list[np.ndarray]] = {}

    def log_probs(self, reading: Reading) -> list[np.ndarray]:
        """Return predictive log-probabilities in nats under a candidate, for each series ``(T - T // 2, n_ahead)``.

        They are ``log p(x_t+h | x_<t)`` for the times t of the second half of the series and h = 0, 1, ... steps ahead.

        Args:
            reading: the candidate transformation.
        """
        if reading not in self._log_probs:
            steps, order = self.n_ahead, self.largest_order
            self._log_probs[reading] = [
                tail_log_probs(x, **reading._asdict(), n_ahead=steps, largest_order=order, is_missing=missing)
                for x, missing in zip(self.columns, self.is_missing, strict=True)
            ]
        return self._log_probs[reading]

    def best(self, log: bool, signs: Signs) -> Reading:
        """Return the most probable candidate transformation among those that the evidence allows.

        A candidate with more differences must be clearly more probable, as the constants of the module say.

        Args:
            log: True to consider candidates with logarithms, False to consider those without.
            signs: evidence for taking differences.
        """
        best, orders = Reading(log, 0, None), (0, 1) if signs.wanders else (0,)
        differences = Reading(log, 1, None)
        if signs.wanders and self.mean(differences) > self.mean(best) - LARGEST_LOSS:
            best = differences
        for each in (Reading(log, order, lag) for lag in signs.shares for order in orders):
            if self.mean(each) > self.mean(best) + CLEAR_GAIN:
                best = each
        return best

    def mean(self, reading: Reading) -> float:
        """Return the mean log-probability of a predicted value under a candidate transformation, in nats.

        The mean is over all series and all numbers of steps ahead.

        Args:
            reading: the candidate.
        """
        return float(np.mean([np.nanmean(each) for each in self.log_probs(reading)]))

    def least_gain(self, reading: Reading, other: Reading) -> float:
        """Return how much more probable one candidate is than another, in nats per predicted value.

        The result is the smaller of the gains over the whole second half and over its later half.

        Args:
            reading: the candidate.
            other: the candidate to compare it with.
        """
        gains = []
        for a, b in zip(self.log_probs(reading), self.log_probs(other), strict=True):
            later = len(a) // 2
            gains.append([np.nanmean(a) - np.nanmean(b), np.nanmean(a[later:]) - np.nanmean(b[later:])])
        return float(np.mean(gains, axis=0).min())


def _misses_many(x: np.ndarray) -> bool:
    """Return True if too many values of some feature are missing to choose a transformation of a series ``(T, D)``."""
    return any(bool((np.isnan(part).mean(0) > MOST_MISSING).any()) for part in (x, x[len(x) // 2 :]) if len(part))


def filled_in(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate missing values (NaN) of a series ``(T,)`` linearly, and drop those at its beginning and its end.

    Return the values and a mask that is True where a value was interpolated, both of the length that is left.

    >>> filled_in(np.array([np.nan, 1.0, np.nan, 3.0]))
    (array([1., 2., 3.]), array([False,  True, False]))
    """
    is_missing = np.isnan(column)
    if not is_missing.any():
        return column, is_missing
    at = np.flatnonzero(~is_missing)
    part = slice(at[0], at[-1] + 1) if len(at) else slice(0)
    return np.interp(np.arange(len(column)), at, column[at])[part] if len(at) else column[part], is_missing[part]


def _in_its_own_unit(column: np.ndarray) -> list[np.ndarray]:
    """Return a list of a series divided by its standard deviation; an empty list if that is 0 or not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(column.std())
    return [column / deviation] if np.isfinite(deviation) and deviation > 0 and np.ptp(column) > 0 else []


def seasonal_shares(columns: Sequence[np.ndarray], season: int | None = None) -> dict[int, float]:
    """Return the seasons that explain enough of the changes of series, each with its share of the explained variance.

    Seasons are in frames, the shortest first. Multiples of a shorter season in the result are left out.

    Args:
        columns: series of one feature, arrays ``(T,)``.
        season: the only season to consider; None considers the lags at which changes repeat.
    """
    shortest = min(map(len, columns))
    if season is not None:
        candidates = [season] if season > 1 else []
    else:
        candidates = candidate_seasons(
            np.mean([autocorrelation(np.diff(column)) for column in columns if len(column) == shortest], axis=0)
        )
    usable = sorted(lag for lag in candidates if FEWEST_SEASONS * lag <= shortest)
    shares = {lag: float(np.median([seasonal_share(column, lag) for column in columns])) for lag in usable}
    enough = [lag for lag, share in shares.items() if share >= SEASONAL_SHARE]
    return {lag: shares[lag] for lag in enough if not any(lag % shorter == 0 for shorter in enough if shorter < lag)}


def candidate_seasons(correlations: np.ndarray) -> list[int]:
    """Return the lags of the highest peaks of an autocorrelation function, highest first.

    Args:
        correlations: autocorrelations at lags 0 to L, ``(L + 1,)``.
    """
    inner = correlations[1:-1]
    is_peak = (inner >= correlations[:-2]) & (inner >= correlations[2:]) & (inner > 0)
    lags = 1 + np.flatnonzero(is_peak)
    lags = lags[lags > 1]
    return [int(lag) for lag in lags[np.argsort(-correlations[lags], kind="stable")][:MOST_CANDIDATES]]


def autocorrelation(x: np.ndarray) -> np.ndarray:
    """Return the autocorrelations of a series at lags 0 to L, ``(L + 1,)``; L is at most a third of its length."""
    centred = x - x.mean()
    n = min(LONGEST_SEASON, len(x) // FEWEST_SEASONS)
    size = 1 << (2 * len(x) - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(power, size)[: n + 1]
    return covariance / covariance[0] if covariance[0] > 0 else covariance


def seasonal_share(x: np.ndarray, season: int) -> float:
    """Return the share of the variance of a series' changes that a season explains, as an adjusted R².

    The model of the changes is their mean at each phase of the season.

    Args:
        x: the series, ``(T,)``.
        season: number of frames of the season.
    """
    changes = np.diff(x)
    n = len(changes)
    if n <= season or changes.std() <= rounding(x):
        return 0.0
    phase = np.arange(n) % season
    means = np.bincount(phase, changes, season) / np.bincount(phase, minlength=season)
    left = ((changes - means[phase]) ** 2).sum() / (n - season)
    return float(1 - left / changes.var(ddof=1))


def kpss_statistic(x: np.ndarray) -> float:
    """Return the KPSS statistic of ``x (T,)``; large values speak against stationarity around a level.

    Kwiatkowski et al. (1992), with Bartlett weights on ``⌊3 √T / 13⌋`` lags, as Hyndman & Khandakar take.
    """
    residual = x - x.mean()
    n, n_lags = len(x), int(3 * np.sqrt(len(x)) / 13)
    variance = residual @ residual / n
    for lag in range(1, n_lags + 1):
        variance += 2 * (1 - lag / (n_lags + 1)) * (residual[lag:] @ residual[:-lag]) / n
    return float((np.cumsum(residual) ** 2).sum() / n**2 / variance)


def adf_statistic(x: np.ndarray) -> float:
    """Return the augmented Dickey-Fuller statistic of ``x (T,)``, which is far below 0 if x has no unit root.

    It is the t statistic of ρ in ``x_t - x_t-1 = c + ρ x_t-1 + Σ_j φ_j (x_t-j - x_t-j-1)`` (Said & Dickey 1984), with
    the number of lags, up to ``⌊(T - 1)^(1/3)⌋``, that BIC chooses. x is centred and scaled first, because at a level
    of millions the regression would be singular. The result is -inf if the regression explains the changes up to
    rounding.
    """
    centred, changes = x - x.mean(), np.diff(x)
    noise = float(rounding(x))
    if changes.std() <= noise:
        return -np.inf
    x, noise = centred / centred.std(), noise / changes.std()
    changes = changes / changes.std()
    most = int((len(x) - 1) ** (1 / 3))
    target = changes[most:]
    lagged = [changes[most - j : len(changes) - j] for j in range(1, most + 1)]
    best, statistic = np.inf, 0.0
    for n_lags in range(most + 1):
        design = np.stack([x[most:-1], np.ones(len(target)), *lagged[:n_lags]], axis=1)
        coefficients, *_ = np.linalg.lstsq(design, target, rcond=None)
        residual = target - design @ coefficients
        squares, n_parameters = float(residual @ residual), design.shape[1]
        if squares <= len(target) * noise**2:  # nothing is left to be told from a root
            return -np.inf
        bic = len(target) * np.log(squares) + n_parameters * np.log(len(target))
        if bic < best:
            covariance = squares / (len(target) - n_parameters) * np.linalg.pinv(design.T @ design)
            best, statistic = bic, float(coefficients[0] / np.sqrt(covariance[0, 0]))
    return statistic
