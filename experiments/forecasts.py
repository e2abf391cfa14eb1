"""Do 90 % forecast intervals cover 90 times in 100? ``python experiments/forecasts.py [--data FOLDER]``.

Five unlike series. Three are made by rule: a cycle of 9 to 13 steps with peaks of random height (like sunspots), a
second-order autoregression, and a random walk with seasons of 12 steps. Two are read where ``--data`` has them:
``air_quality/beijing_pm25.csv`` (the logarithm of PM2.5 every third hour, gaps interpolated) and ``speed/speed.csv``
(response times). Models are fitted to the first part and then fixed; they forecast from origins spread over the rest.

The rule: the intervals of the best model of a series (least CRPS) cover 87 to 93 % over all steps, where data are
enough: 3,000 steps to fit and 300 origins. The binomial error of such a share is 1.7 % for one step. The table has
coverage one step ahead, at the last step and over all, so that it shows which intervals are too narrow far ahead. The
random walk is there a second time with four times the steps to fit: the bias of an autoregression towards a fixed mean
(Dickey & Fuller 1979) falls as one over the steps, and with it what a drifting level takes from the coverage. So is air
quality, fitted to 250 days instead of two years: a winter that was not seen is not forecast.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.provenance import stamped

OUT = Path("experiments/results/forecasts")
COVERED = "covered 90%"
AR = sm.AutoregressiveGaussian


@dataclass(frozen=True)
class Series:
    """A series, how much of it is for fitting, and what is asked of the forecasts."""

    x: np.ndarray
    n_train: int
    horizon: int
    n_origins: int
    season: int | None = None
    linear_only: bool = False

    @property
    def models(self) -> dict[str, sm.SequenceModel]:
        """Unfitted."""
        if self.linear_only:
            return {"ar(13)": sm.HMM(1, observation=AR(13))}
        return {
            "hmm": sm.HMM(8, observation=sm.GaussianMixture(1), n_init=3),
            "ar-hmm": sm.HMM(2, observation=AR(2), n_init=3, max_iter=50),
            "gru": sm.GRU(d_model=32, n_layers=1, max_steps=600, observation=sm.GaussianMixture(2, "full")),
        }


def cycle(n: int = 6000) -> np.ndarray:
    """Cycles of 9 to 13 steps, fast rise and slow decline, peaks that remember the last; noise that grows with them."""
    rng, parts, log_height = np.random.default_rng(0), [], 0.0
    while sum(map(len, parts)) < n:
        length, log_height = rng.integers(9, 14), 0.5 * log_height + 0.3 * rng.normal()
        phase = np.arange(length) / length
        parts.append(100 * np.exp(log_height) * np.sin(np.pi * phase**0.7) ** 2)
    x = np.concatenate(parts)[:n]
    return x + (2 + 0.08 * x) * rng.normal(size=n)


def ar2(n: int = 6000) -> np.ndarray:
    rng, x = np.random.default_rng(1), np.zeros(n)
    for t in range(2, n):
        x[t] = 1.3 * x[t - 1] - 0.6 * x[t - 2] + rng.normal()
    return x


def seasonal_walk(n: int = 6000) -> np.ndarray:
    rng = np.random.default_rng(2)
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
    "seasonal walk, long": lambda: Series(seasonal_walk(15_000), 12_000, 24, 300, 12, linear_only=True),
}
READ: dict[str, Callable[[Path], Series]] = {
    "air quality": lambda folder: Series(air(folder), 5840, 8, 300, 8),
    "air quality, 250 days": lambda folder: Series(air(folder)[:4500], 2000, 8, 300, 8),
    "speed": lambda folder: Series(speed(folder), 220, 8, 200),
}


def study(name: str, series: Series) -> pd.DataFrame:
    """A row a model."""
    began = time.perf_counter()
    x = [series.x[:, None]]
    result = sm.backtest(
        series.models,
        x,
        horizon=series.horizon,
        first=series.n_train,
        n_origins=series.n_origins,
        season=series.season,
        n=200,
    )
    for model, error in result.errors.items():
        print(f"{name}: {model} failed: {error}")
    table, frame = result.table(), result.frame
    rows = [
        {
            "series": name,
            "model": row.model,
            "n_train": series.n_train,
            "horizon": series.horizon,
            "origins": int(row.n / series.horizon),
            "crps_scaled": row.crps_scaled,
            "mase": row.mase,
            **_coverage(frame[frame["model"] == row.model]),
            "all_steps": result.scores.loc[result.scores["model"] == row.model, COVERED].mean(),
        }
        for row in table.itertuples()
    ]
    found = pd.DataFrame(rows)
    origins = found["origins"].iloc[0]
    found["error"] = np.sqrt(0.09 / origins)  # of the share of independent origins
    found["best"] = found["crps_scaled"] == found["crps_scaled"].min()
    found["seconds"] = round(time.perf_counter() - began, 1)
    return found


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


if __name__ == "__main__":
    main()
