"""``backtest``: forecasts from many origins, scored against what came (rolling-origin evaluation)."""

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
from seqmodels.generation.feature_distributions import FeatureDistributions
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
ENERGY_PATHS = 200  # whose pairs an energy score is estimated from
VAR_ORDERS = (1, 2, 3, 5, 8, 13)  # that BIC chooses from, and one more than the season
MEANS = ("crps", "crps_scaled", "energy", "pinball", "mae", "mase")  # columns that are averaged, besides coverage

Forecaster = SequenceModel | SeasonalNaive
DrawPaths = Callable[[], np.ndarray]  # (n, k, D) in raw units


@dataclass(frozen=True, eq=False, repr=False)
class Backtest:
    """The outcome of ``backtest``; printed, it is ``table()``.

    Attributes:
        scores: a row for each forecast value: ``model``, ``sequence`` (name), ``origin`` (steps that were given),
            ``step`` (1 to horizon), ``time`` (of sequences with times), ``feature``, ``actual``, ``mean``, a column for
            each quantile, and its scores: ``crps``, ``pinball`` (mean over the quantiles), ``mae`` (of the median), in
            units of the feature; ``crps_scaled`` and ``mase`` are those divided by the mean absolute change of the
            feature in training over a season (or a step); ``covered 90%`` and so on, for each pair of quantiles
            symmetric about a half; ``energy``, of all features of the step together, each scaled like that (NaN of one
            feature).
        errors: for each model that failed why.
        horizon: steps ahead.
        scale: ``(D,)`` what scaled scores are divided by.
    """

    scores: pd.DataFrame
    errors: Mapping[str, str]
    horizon: int
    scale: np.ndarray

    @property
    def frame(self) -> pd.DataFrame:
        """Mean scores by ``model`` and ``step``, over sequences, origins and features, with ``n`` forecast values."""
        return self._means(["model", "step"])

    def table(self) -> pd.DataFrame:
        """Mean scores by ``model``, over all steps too, the least scaled CRPS first."""
        return self._means(["model"]).sort_values("crps_scaled", ignore_index=True)

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
        """The mean of a score (a column of ``frame``) against the steps ahead, a line a model."""
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
    """Forecast ``horizon`` steps from several origins of each sequence of vectors, given all before, and score them.

    Rolling-origin evaluation without fitting anew (Hyndman & Athanasopoulos 2021, *Forecasting: principles and
    practice*, section 5.10). Models that are not fitted yet are fitted once, in place, to ``train``, or where there is
    none to each sequence's steps before its first origin; fitted ones stay as they are, and should not have seen what
    comes after the first origin. The forecasts are those of ``SequenceModel.forecast``.

    Args:
        models: by name.
        X: sequences of vectors. Of one that has a past (``split`` of a series keeps it) the origins are in the sequence
            and the past is among what is given; without ``train`` it is fitted to as well.
        horizon: steps ahead.
        train: sequences that unfitted models, baselines and scales are fitted to.
        first: steps of a sequence that are given at its first origin; None: half of it.
        every: steps from one origin to the next; None: the horizon.
        n_origins: instead, how many origins of each sequence, evenly spread.
        season: steps of a season, for the seasonal naive forecast and the scale of ``mase``.
        refit: at each origin every model (a copy) and baseline is fitted anew, to ``train`` and all that is given.
        baselines: add rows: ``naive`` (the last value, Gaussian), ``seasonal naive`` (given a ``season``), and ``VAR``,
            a linear autoregression whose order BIC chooses.
        quantiles: levels, increasing, 0.5 among them.
        n: drawn paths, where there is no closed form, and of energy scores.
        random_state: seed of the paths.
        verbose: True: a bar over the models; False: none, nor of their fits; ``"auto"``: one in a terminal or a
            notebook where it takes longer than three seconds.

    The CRPS of a forecast in closed form is in closed form up to 256 Gaussians, otherwise estimated without bias from
    draws (Gneiting & Raftery 2007; Ferro 2014), as the energy score is. All are averages over overlapping or
    neighbouring stretches of the same sequences, so their differences are less certain than ``n`` suggests.

    Raises:
        ValueError: arguments that cannot be; no sequence is long enough; no model could be fitted. One that fails does
            not lose the others: ``errors`` says why.

    >>> from seqmodels import HMM, AutoregressiveGaussian
    >>> rng = np.random.default_rng(0)
    >>> walk = [np.cumsum(rng.normal(size=(300, 1)), axis=0)]
    >>> result = backtest({"hmm": HMM(2)}, walk, horizon=3, first=200)
    >>> result.table()["model"].tolist()
    ['naive', 'hmm', 'VAR']
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

    return Backtest(pd.concat(parts, ignore_index=True), errors, horizon, scale)


# -- arguments --------------------------------------------------------------------------------------------------


def _checked(X: Any) -> Sequences:
    sequences = as_sequences(X)
    if sequences.kind != "vectors":
        raise ValueError(f"backtest scores forecasts of vectors, but these are {sequences.kind}; compare scores those")
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
    """For each sequence how many of its steps are given at each origin; none where it is too short."""
    if first is not None and not (isinstance(first, int | np.integer) and first >= max(1, season or 1)):
        raise ValueError(f"first is {first!r}; pass a number of steps, at least 1 and at least a season")
    result = []
    for item in sequences.items:
        start, last = first or max(len(item) // 2, season or 1), len(item) - horizon
        if n_origins is None:
            result.append(list(range(start, last + 1, every or horizon)))
        else:
            most = max(0, last - start + 1)  # more origins than there are steps are all of them
            result.append(sorted({round(t) for t in np.linspace(start, last, min(n_origins, most))}))
    if not any(result):
        longest = max(map(len, sequences.items))
        raise ValueError(
            f"no sequence is long enough: the longest has {longest} steps, of which some are given and {horizon} "
            "are forecast; pass a smaller horizon or first"
        )
    return result


def _mean_change(training: list[np.ndarray], season: int) -> np.ndarray:
    """``(D,)`` mean absolute change over a season (Hyndman & Koehler 2006); 1 where nothing changes."""
    changes = [np.abs(x[season:] - x[:-season]) for x in training if len(x) > season]
    mean = np.nanmean(np.concatenate(changes), axis=0) if changes else np.ones(training[0].shape[1])
    return np.where(mean > 0, mean, 1.0)


# -- forecasters ------------------------------------------------------------------------------------------------


def _baselines(season: int | None, taken: set[str]) -> dict[str, Any]:
    orders = sorted({*VAR_ORDERS, *([season + 1] if season else [])})
    result: dict[str, Any] = {NAIVE: SeasonalNaive(), VAR: orders}
    if season is not None:
        result[SEASONAL_NAIVE] = SeasonalNaive(season)
    return {name: each for name, each in result.items() if name not in taken}


def best_var(sequences: Any, orders: Sequence[int] = VAR_ORDERS) -> HMM:
    """The linear autoregression of levels, an ``HMM`` of one state, of the order with the least BIC.

    Orders of which a sixth of the frames do not suffice for a coefficient each are left out, but not order 1.
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
    """Each forecast, and what draws its paths."""
    if not refit:
        yield from _ahead(_ready(model, fitted_to), sequences, origins, horizon, n, seed)
        return
    for j in range(max(map(len, origins))):
        now = [each[j : j + 1] for each in origins]
        # The past is of the training part, mostly.
        given = _heads(sequences, now, with_past=training is None)
        everything = given if training is None else Sequences.joined([training, given])
        anew = model.clone() if isinstance(model, SequenceModel) else model
        yield from _ahead(_ready(anew, everything), sequences, now, horizon, n, seed + j)


def _heads(sequences: Sequences, origins: list[list[int]], *, with_past: bool) -> Sequences:
    """The steps before the first origin of each sequence that has one, and perhaps those of its past."""
    n_past = sequences.n_units_of_past if with_past else np.zeros(len(sequences), np.int64)
    cuts = [(i, 0, int(n_past[i]) + each[0]) for i, each in enumerate(origins) if each]
    return (sequences.including_past() if with_past else sequences.without_past()).segments(cuts)


def _ready(model: Any, training: Sequences) -> Forecaster:
    """The model, fitted if it was not; of orders the best autoregression."""
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
    """``(n, k, D)``, NaN after the end of a path."""
    paths = ahead.draw_paths()
    return paths.x if isinstance(model, SeasonalNaive) else paths.raw_vectors(model.encoding_)


# -- scores -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OriginScorer:
    """Scores forecasts of ``sequences``: ``levels (Q,)`` of quantiles, ``scale (D,)`` of scaled scores."""

    sequences: Sequences
    levels: np.ndarray
    scale: np.ndarray
    n: int
    random_state: int

    def scores(self, name: str, forecasts: Iterator[tuple[Ahead, DrawPaths]]) -> pd.DataFrame:
        """A row for each value."""
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
        for h, step in enumerate(steps):
            if isinstance(step, FeatureDistributions):
                mean[h], quantiles[:, h] = step.mean, step.quantiles(self.levels)
                crps[h] = step.crps_or_estimate(actual[h], partial(_drawn, draw, h))
                if size > 1:
                    draws = step.on_turn_of(draw()[:ENERGY_PATHS, h], actual[h])
                    energy[h] = energy_score(draws / self.scale, actual[h] / self.scale)
        missing = np.isnan(actual)
        crps[missing], middle = np.nan, quantiles[np.flatnonzero(self.levels == 0.5)[0]]
        near = _on_turns_of(steps, actual, middle)  # angles, on the turn of their forecast
        columns: dict[str, Any] = {"actual": actual, "mean": mean}
        columns |= {quantile_name(level): q for level, q in zip(self.levels, quantiles, strict=True)}
        columns |= {"crps": crps, "crps_scaled": crps / self.scale, "energy": energy}
        columns |= {"pinball": pinball_loss(quantiles, near, self.levels).mean(0), "mae": np.abs(near - middle)}
        columns["mase"] = columns["mae"] / self.scale
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
        """The times of the k steps after the origin in the i-th sequence, ``size`` rows each."""
        assert self.sequences.times is not None
        return with_zone(np.repeat(self.sequences.times[i][origin : origin + k], size), self.sequences.time_unit)


def _drawn(draw: DrawPaths, h: int) -> np.ndarray:
    """``(n, D)`` step h of the paths that last so long."""
    draws = draw()[:, h]
    return np.asarray(draws[~np.isnan(draws).any(1)])


def _on_turns_of(steps: Sequence[StepDistribution | None], y: np.ndarray, near: np.ndarray) -> np.ndarray:
    """``(k, D)`` what came, but angles moved by whole turns to where they are nearest to ``near (k, D)``."""
    moved = [
        step.on_turn_of(*each) if isinstance(step, FeatureDistributions) else each[0]
        for step, *each in zip(steps, y, near, strict=True)
    ]
    return np.stack(moved)


def _symmetric_pairs(levels: np.ndarray) -> list[tuple[int, int]]:
    pairs = [(i, j) for i in range(len(levels)) for j in range(len(levels))]
    return [(i, j) for i, j in pairs if levels[i] < 0.5 and abs(levels[i] + levels[j] - 1) < 1e-9]


def pinball_loss(quantiles: np.ndarray, y: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """``2 (1{y <= q} - level) (q - y)`` for each of ``levels (Q,)``: ``quantiles (Q, ...)``, what came ``y (...)``.

    Its mean over all levels is the CRPS (Gneiting & Raftery 2007).

    >>> pinball_loss(np.array([[1.0]]), np.array([3.0]), np.array([0.9])).round(2).tolist()
    [[3.6]]
    """
    level = levels.reshape(-1, *[1] * (quantiles.ndim - 1))
    return np.asarray(2 * ((y <= quantiles) - level) * (quantiles - y))


def energy_score(draws: np.ndarray, y: np.ndarray) -> float:
    """``E|X - y| - ½ E|X - X'|`` of vectors, from n ``draws (n, D)``, without bias; NaN where anything is missing.

    0 is best; of one feature it is the CRPS. Gneiting & Raftery (2007), section 4.3.
    """
    draws = draws[~np.isnan(draws).any(axis=1)]
    n = len(draws)
    if n < 2 or np.isnan(y).any():
        return float("nan")
    from scipy.spatial.distance import pdist

    return float(np.linalg.norm(draws - y, axis=1).mean() - pdist(draws).sum() / (n * (n - 1)))
