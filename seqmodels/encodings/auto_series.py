"""``AutoSeries``: whether a series is to be read as levels, logarithms or differences, by what it looks like.

The choices are those of Hyndman & Khandakar (2008), *Automatic time series forecasting*: a seasonal difference where a
season explains most of the changes, a first difference where tests say that the series wanders; and a logarithm where
it makes the training data more probable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqmodels.common.parameters import PositiveInt
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.differences import Differences
from seqmodels.encodings.power_transform import Log
from seqmodels.encodings.series import Chain, SeriesEncoding
from seqmodels.encodings.step_maps import StepEncoder, VectorEncoding, as_frames
from seqmodels.encodings.vectors import Standardize
from seqmodels.sequences import Item, Sequences

SHORTEST = 40  # frames: of shorter series the tests say little
MOST_SERIES = 20  # more are sequences rather than series
LOG_GAIN = 5.0  # nats by which logarithms must be more probable than levels: 150 to 1
SEASONAL_SHARE = 0.5  # of the variance of the changes, which a season must explain
FEWEST_SEASONS = 3  # in a series, to tell a season
MOST_CANDIDATES = 5  # lags that are tried as a season
LONGEST_SEASON = 400  # frames
KPSS_AT_5_PERCENT = 0.463  # Kwiatkowski, Phillips, Schmidt & Shin (1992), table 1: a level
ADF_AT_5_PERCENT = -2.86  # Fuller (1976), table 8.5.2: a constant, many frames


@dataclass(frozen=True)
class SeriesChoice:
    """What series are read as.

    Args:
        log: whether as logarithms.
        order: how many times the change is taken: 0 or 1.
        season: frames of the season whose change is taken; None: of none.
        reason: why, in one line.
    """

    log: bool
    order: int
    season: int | None
    reason: str

    def chain(self) -> Chain:
        """The encodings, not fitted."""
        encodings: list[VectorEncoding] = [Log()] if self.log else []
        if self.order or self.season is not None:
            encodings.append(Differences(self.order, self.season))
        return Chain([*encodings, Standardize()])


@dataclass(eq=False, repr=False)
class AutoSeries(SeriesEncoding):
    """Levels, logarithms, differences and seasonal differences, standardised: which, the training series say.

    A first difference where a series wanders: the KPSS test rejects that it has a level, and the augmented Dickey and
    Fuller test does not reject that it has a unit root, both at 5 %. A seasonal difference where means of the phases of
    a season explain half of the variance of the changes, and logarithms where all is positive and their changes are
    more probable by 5 nats, with the log-determinant. Of several series and features most decide. Series with a missing
    value, more than 20 series, or those of fewer than 40 frames are standardised only.

    Args:
        season: frames of a season; None: looked for among lags at which changes repeat.

    Attributes (fitted): ``choice_``, a ``SeriesChoice``, and ``chain_``, the ``Chain`` that it comes to.

    >>> from seqmodels import Sequences
    >>> from seqmodels.encodings import AutoSeries
    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=(200, 1)), axis=0)
    >>> AutoSeries().fit(Sequences([walk])).note
    'Differences(), Standardize(): it wanders (KPSS 2.21, ADF -1.64)'
    """

    season: PositiveInt | None = None

    @property
    def n_initial(self) -> int:
        return self.chain_.n_initial if "chain_" in vars(self) else 0

    @property
    def keeps_missing(self) -> bool:
        return self.chain_.keeps_missing if "chain_" in vars(self) else True

    @property
    def has_constant_map(self) -> bool:
        return self.chain_.has_constant_map if "chain_" in vars(self) else False

    def fit(self, sequences: Sequences) -> Self:
        choice = choose([as_frames(item) for item in sequences], self.season)
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
    """What a file says of a choice; ``ValueError`` for what is none."""
    season = said["season"]
    is_season = season is None or (type(season) is int and season > 1)
    if type(said["log"]) is bool and said["order"] in (0, 1) and is_season and isinstance(said["reason"], str):
        return said
    raise ValueError(f"the file should say what series are read as, and says {said!r:.200}")


# -- the choice ------------------------------------------------------------------------------------------------------


def choose(series: Sequence[np.ndarray], season: int | None = None) -> SeriesChoice:
    """What series, ``(T, D)`` each, are to be read as."""
    if any(np.isnan(x).any() for x in series):
        return SeriesChoice(False, 0, None, "values are missing")
    if len(series) > MOST_SERIES:
        return SeriesChoice(False, 0, None, f"there are {len(series)} series")
    columns = [column for x in series if len(x) >= SHORTEST for column in x.T if np.ptp(column) > 0]
    if not columns:
        return SeriesChoice(False, 0, None, f"the longest series has {max(map(len, series))} frames")
    reasons, is_positive = [], all(bool((x > 0).all()) for x in series)
    gains = np.array([log_gain(column) if is_positive else -np.inf for column in columns])
    log = bool(gains.sum() > LOG_GAIN and np.mean(gains > 0) > 0.5)
    if log:
        reasons.append(f"logarithms are more probable by {gains.sum():.0f} nats")
        columns = [np.log(column) for column in columns]
    chosen = season_of(columns, season)
    if chosen is not None:
        share = float(np.median([seasonal_share(column, chosen) for column in columns]))
        reasons.append(f"a season of {chosen} explains {100 * share:.0f} % of its changes")
        columns = [column[chosen:] - column[:-chosen] for column in columns]
    tests = [(kpss_statistic(column), adf_statistic(column)) for column in columns if np.ptp(column) > 0]
    if not tests:
        return SeriesChoice(log, 0, chosen, "; ".join(reasons))
    wanders = np.mean([kpss > KPSS_AT_5_PERCENT and adf > ADF_AT_5_PERCENT for kpss, adf in tests]) > 0.5
    kpss, adf = np.median(tests, axis=0)
    reasons.append(f"it {'wanders' if wanders else 'has a level'} (KPSS {kpss:.2f}, ADF {adf:.2f})")
    return SeriesChoice(log, int(wanders), chosen, "; ".join(reasons))


def log_gain(x: np.ndarray) -> float:
    """Nats that changes of ``log x (T,)`` are more probable by than changes of x, each under a Gaussian.

    With the log-determinant. Of positive values.
    """
    logs = np.log(x)
    scales = [np.diff(each).std() for each in (x, logs)]
    if min(scales) == 0:
        return -np.inf
    return float((len(x) - 1) * (np.log(scales[0]) - np.log(scales[1])) - logs[1:].sum())


def season_of(columns: Sequence[np.ndarray], season: int | None = None) -> int | None:
    """The season whose phases explain the largest share of the changes, if that is enough; of those that are lags at
    which changes repeat, or the one that is given.
    """
    shortest = min(map(len, columns))
    if season is not None:
        candidates = [season] if season > 1 and FEWEST_SEASONS * season < shortest else []
    else:
        candidates = candidate_seasons(
            np.mean([autocorrelation(np.diff(column)) for column in columns if len(column) == shortest], axis=0)
        )
    shares = {lag: float(np.median([seasonal_share(column, lag) for column in columns])) for lag in candidates}
    if not shares or max(shares.values()) < SEASONAL_SHARE:
        return None
    best = max(shares.values())
    return min(lag for lag, share in shares.items() if share > best - 0.02)  # a multiple of a season is one too


def candidate_seasons(correlations: np.ndarray) -> list[int]:
    """The lags, of autocorrelations ``(L + 1,)`` from lag 0 on, at which these are higher than on either side."""
    inner = correlations[1:-1]
    is_peak = (inner >= correlations[:-2]) & (inner >= correlations[2:]) & (inner > 0)
    lags = 1 + np.flatnonzero(is_peak)
    lags = lags[lags > 1]
    return [int(lag) for lag in lags[np.argsort(-correlations[lags], kind="stable")][:MOST_CANDIDATES]]


def autocorrelation(x: np.ndarray) -> np.ndarray:
    """``(L + 1,)`` of lags 0 to L, a third of ``x (T,)`` at most."""
    centred = x - x.mean()
    n = min(LONGEST_SEASON, len(x) // FEWEST_SEASONS)
    size = 1 << (2 * len(x) - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(power, size)[: n + 1]
    return covariance / covariance[0] if covariance[0] > 0 else covariance


def seasonal_share(x: np.ndarray, season: int) -> float:
    """Share of the variance of the changes of ``x (T,)`` that means of the phases of a season explain, adjusted R²."""
    changes = np.diff(x)
    n = len(changes)
    if n <= season or changes.var() == 0:
        return 0.0
    phase = np.arange(n) % season
    means = np.bincount(phase, changes, season) / np.bincount(phase, minlength=season)
    left = ((changes - means[phase]) ** 2).sum() / (n - season)
    return float(1 - left / changes.var(ddof=1))


def kpss_statistic(x: np.ndarray) -> float:
    """That of the null hypothesis that ``x (T,)`` is stationary around a level; large where it is not.

    Kwiatkowski et al. (1992), with Bartlett weights on ``⌊3 √T / 13⌋`` lags, as Hyndman & Khandakar take.
    """
    residual = x - x.mean()
    n, n_lags = len(x), int(3 * np.sqrt(len(x)) / 13)
    variance = residual @ residual / n
    for lag in range(1, n_lags + 1):
        variance += 2 * (1 - lag / (n_lags + 1)) * (residual[lag:] @ residual[:-lag]) / n
    return float((np.cumsum(residual) ** 2).sum() / n**2 / variance)


def adf_statistic(x: np.ndarray) -> float:
    """t of ρ in ``x_t - x_t-1 = c + ρ x_t-1 + Σ_j φ_j (x_t-j - x_t-j-1)``: far below 0 where x has no unit root.

    Said & Dickey (1984), with as many lags, ``⌊(T - 1)^(1/3)⌋`` at most, as BIC chooses.
    """
    changes = np.diff(x)
    most = int((len(x) - 1) ** (1 / 3))
    target = changes[most:]
    lagged = [changes[most - j : len(changes) - j] for j in range(1, most + 1)]
    best, statistic = np.inf, 0.0
    for n_lags in range(most + 1):
        design = np.stack([x[most:-1], np.ones(len(target)), *lagged[:n_lags]], axis=1)
        coefficients, *_ = np.linalg.lstsq(design, target, rcond=None)
        residual = target - design @ coefficients
        squares, n_parameters = float(residual @ residual), design.shape[1]
        if squares == 0:  # nothing is left to be told from a root
            return -np.inf
        bic = len(target) * np.log(squares) + n_parameters * np.log(len(target))
        if bic < best:
            covariance = squares / (len(target) - n_parameters) * np.linalg.pinv(design.T @ design)
            best, statistic = bic, float(coefficients[0] / np.sqrt(covariance[0, 0]))
    return statistic
