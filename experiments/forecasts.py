"""Do 90 % forecast intervals cover 90 times in 100? ``python experiments/forecasts.py [--data FOLDER]``.

Five unlike series. Three are made by rule: a cycle of 9 to 13 steps with peaks of random height (like sunspots), a
second-order autoregression, and a random walk with seasons of 12 steps. Two are read where ``--data`` has them:
``air_quality/beijing_pm25.csv`` (the logarithm of PM2.5 every third hour, gaps interpolated) and ``speed/speed.csv``
(response times). Air quality is there a second time, fitted to 250 days instead of two years.

The training part alone chooses the model: all are fitted to its first half, and the one with the least CRPS on origins
in its second half is taken. It is fitted anew to all of the training part and then fixed, and forecasts
from origins spread over what comes later; beside it stand the baselines of ``backtest``.

The rule: intervals of the model so chosen cover 87 to 93 % over all steps. The binomial error of such a share is 1.7 %
for one step of 300 independent origins. The table has coverage one step ahead, at the last step and over all, so that
it shows which intervals are too narrow far ahead. Among the models is an autoregression with a unit root: least squares
draws forecasts of a drifting level to the mean of the training data (Dickey & Fuller 1979), by about 5/n of the
distance a step.

Beside them stand figures of forecasting benchmarks: ``mase``, and the absolute error and the weighted quantile loss at
the levels 0.1 to 0.9 relative to those of the seasonal naive forecast (of the naive one where there is no season).
``relative.csv`` has their geometric means over the series.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.backtest import NAIVE, SEASONAL_NAIVE, VAR
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/forecasts")
COVERED = "covered 90%"
RELATIVE = ["relative_mase", "relative_wql"]
AR = sm.AutoregressiveGaussian
UNIT_ROOT = 1e6  # pseudo-frames, far more than there are frames
FIRST_PART = 0.5  # of the training part, to which models are fitted that its rest chooses among


@dataclass(frozen=True)
class Series:
    """A series, how much of it is for fitting, and what is asked of the forecasts."""

    x: np.ndarray
    n_train: int
    horizon: int
    n_origins: int
    season: int | None = None

    @property
    def models(self) -> dict[str, sm.SequenceModel]:
        """Unfitted."""
        order = 4 if self.season is None else self.season + 1
        levels = sm.Standardize()
        return {
            "unit root": sm.HMM(1, observation=AR(order, unit_root=UNIT_ROOT), encoding=levels, max_iter=5),
            "hmm": sm.HMM(8, observation=sm.GaussianMixture(1), encoding=levels, n_init=3),
            "ar-hmm": sm.HMM(2, observation=AR(2), encoding=levels, n_init=3, max_iter=50),
            "gru": sm.GRU(
                d_model=32, n_layers=1, max_steps=600, observation=sm.GaussianMixture(2, "full"), encoding=levels
            ),
        }


def cycle(n: int = 6000) -> np.ndarray:
    """Cycles of 9 to 13 steps, fast rise and slow decline, peaks that remember the last; noise that grows with them."""
    rng, parts, log_height = np.random.default_rng(10), [], 0.0
    while sum(map(len, parts)) < n:
        length, log_height = rng.integers(9, 14), 0.5 * log_height + 0.3 * rng.normal()
        phase = np.arange(length) / length
        parts.append(100 * np.exp(log_height) * np.sin(np.pi * phase**0.7) ** 2)
    x = np.concatenate(parts)[:n]
    return x + (2 + 0.08 * x) * rng.normal(size=n)


def ar2(n: int = 6000) -> np.ndarray:
    rng, x = np.random.default_rng(11), np.zeros(n)
    for t in range(2, n):
        x[t] = 1.3 * x[t - 1] - 0.6 * x[t - 2] + rng.normal()
    return x


def seasonal_walk(n: int = 6000) -> np.ndarray:
    rng = np.random.default_rng(12)
    return np.cumsum(rng.normal(size=n)) + 6 * np.sin(2 * np.pi * np.arange(n) / 12) + 0.5 * rng.normal(size=n)


def air(folder: Path) -> np.ndarray:
    frame = pd.read_csv(folder / "air_quality" / "beijing_pm25.csv")
    return np.log1p(frame["pm2.5"].interpolate().bfill().to_numpy())[::3]


def speed(folder: Path) -> np.ndarray:
    return pd.read_csv(folder / "speed" / "speed.csv")["rt"].to_numpy()


MADE: dict[str, Callable[[], Series]] = {
    "cycle": lambda: Series(cycle(), 3000, 24, 300, 11),
    "ar2": lambda: Series(ar2(), 3000, 12, 300),
    "seasonal walk": lambda: Series(seasonal_walk(), 3000, 24, 300, 12),
}
READ: dict[str, Callable[[Path], Series]] = {
    "air quality": lambda folder: Series(air(folder), 5840, 8, 300, 8),
    "air quality, 250 days": lambda folder: Series(air(folder)[:4500], 2000, 8, 300, 8),
    "speed": lambda folder: Series(speed(folder), 220, 8, 200),
}


def forecasts(
    name: str, series: Series, models: dict[str, sm.SequenceModel], n_train: int, end: int, n_origins: int
) -> sm.evaluation.Backtest:
    """From origins between ``n_train`` and ``end`` of models that are fitted to what comes before."""
    x = [series.x[:end, None]]
    horizon, season = series.horizon, series.season
    result = sm.backtest(models, x, horizon=horizon, first=n_train, n_origins=n_origins, season=season, n=200)
    for model, error in result.errors.items():
        print(f"{name}: {model} failed: {error}")
    return result


def study(name: str, series: Series) -> pd.DataFrame:
    """A row a model, of the one that the training part chose and of the baselines."""
    began = time.perf_counter()
    first_part = round(FIRST_PART * series.n_train)
    trial = forecasts(name, series, series.models, first_part, series.n_train, series.n_origins)
    by_crps = trial.table().set_index("model")["crps_scaled"]
    chosen = str(by_crps.idxmin())
    print(f"{name}: CRPS in the training part:", by_crps.round(4).to_dict(), flush=True)
    # A baseline needs a model beside it: the next one.
    of_ours = str(by_crps[list(set(series.models) & set(by_crps.index))].idxmin())
    models = {of_ours: series.models[of_ours]}
    result = forecasts(name, series, models, series.n_train, len(series.x), series.n_origins)
    table, frame = result.table(), result.frame
    rows = [
        {
            "series": name,
            "model": row.model,
            "n_train": series.n_train,
            "horizon": series.horizon,
            "origins": int(row.n / series.horizon),
            "crps_in_training": by_crps[row.model],
            "chosen": row.model == chosen,
            "crps_scaled": row.crps_scaled,
            "mase": row.mase,
            **{name: getattr(row, name) for name in RELATIVE},
            **_coverage(frame[frame["model"] == row.model]),
            "all_steps": result.scores.loc[result.scores["model"] == row.model, COVERED].mean(),
        }
        for row in table.itertuples()
    ]
    found = pd.DataFrame(rows)
    origins = found["origins"].iloc[0]
    found["error"] = np.sqrt(0.09 / origins)  # of the share of independent origins
    found["seconds"] = round(time.perf_counter() - began, 1)
    return found


def relative(table: pd.DataFrame) -> pd.DataFrame:
    """Geometric means over the series of errors relative to the seasonal naive's: the chosen models, and each baseline.

    Without a season the naive forecast counts as the seasonal naive.
    """
    table = table.dropna(subset=RELATIVE)  # rows of earlier versions have none
    is_seasonal = table.groupby("series")["model"].transform(lambda models: (models == SEASONAL_NAIVE).any())
    named = table["model"].where(is_seasonal | (table["model"] != NAIVE), SEASONAL_NAIVE)
    parts = {"chosen": table[table["chosen"]]} | {name: table[named == name] for name in (VAR, SEASONAL_NAIVE)}
    rows = [
        {"model": name, "n_series": len(part), **np.exp(np.log(part[RELATIVE]).mean())} for name, part in parts.items()
    ]
    return pd.DataFrame(rows)


def _coverage(by_step: pd.DataFrame) -> dict[str, float]:
    values = by_step.sort_values("step")[COVERED].to_numpy()
    return {"first_step": values[0], "last_step": values[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with air_quality/ and speed/; without it three series")
    parser.add_argument("--series", nargs="+", choices=(*MADE, *READ), help="only these; others stay in the table")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    series = dict(MADE)
    if given.data is not None:
        series |= {name: (lambda read=read: read(given.data)) for name, read in READ.items()}
    chosen = given.series or list(series)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "coverage.csv"
    for name in chosen:
        found = study(name, series[name]())
        print(found.to_string(index=False, float_format="%.3g"), flush=True)
        old = [pd.read_csv(file)] if file.exists() else []
        kept = [each[each["series"] != name] for each in old]
        pd.concat([*kept, stamped(found)], ignore_index=True).to_csv(file, index=False, float_format="%.4g")
    found = relative(pd.read_csv(file))
    print(found.to_string(index=False, float_format="%.3g"))
    stamped(found).to_csv(given.out / "relative.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
