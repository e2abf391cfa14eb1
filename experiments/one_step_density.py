"""Does one step decide a table of series? ``experiments/one_step_density.py --data FOLDER``.

The series of ``series_defaults``, each feature by itself. Every model is fitted once to the first 70 % of a series; its
figure is the log-density of the rest, in nats a step given all that came before, beyond that of a Gaussian random walk
whose deviation is estimated again at each step. ``worst`` is the lowest of all series, ``below -6`` counts those that
lie so far below the walk, ``ahead`` is the share of series above it.

Autoregressions of two steps with the default background and without; on levels, on what ``AutoSeries`` chooses, and
divided by the deviation so far (``RunningScale``); a linear-Gaussian system with each density of its innovations; and
an LSTM of 400 training steps, with its default background and without.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from series_defaults import SERIES, markdown

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/one_step_density")
KNOWN = 0.7
LEAST = 40  # steps
FOUR = sm.GaussianMixture(4, "full")


def autoregression(encoding: object, **options: float) -> sm.HMM:
    """One state, of order 2."""
    return sm.HMM(1, observation=sm.AutoregressiveGaussian(2, **options), encoding=encoding)


MODELS: dict[str, Callable[[], sm.SequenceModel]] = {
    "AR(2)": lambda: autoregression(sm.Standardize()),
    "AR(2), no background": lambda: autoregression(sm.Standardize(), background=0.0),
    "AR(2), AutoSeries": lambda: autoregression(sm.encodings.AutoSeries()),
    "AR(2), AutoSeries, no background": lambda: autoregression(sm.encodings.AutoSeries(), background=0.0),
    "AR(2), RunningScale(20)": lambda: autoregression(sm.encodings.RunningScale(20)),
    "LinearGaussian": sm.LinearGaussian,
    "LinearGaussian, t": lambda: sm.LinearGaussian(innovations="t"),
    "LinearGaussian, beta-t-egarch": lambda: sm.LinearGaussian(innovations="beta-t-egarch"),
    "LinearGaussian, beta-t-egarch, AutoSeries": lambda: sm.LinearGaussian(
        innovations="beta-t-egarch", encoding=sm.encodings.AutoSeries()
    ),
    "LSTM": lambda: sm.LSTM(max_steps=400),
    "LSTM, no background": lambda: sm.LSTM(max_steps=400, observation=FOUR),
}


def random_walk(x: np.ndarray, first: int) -> float:
    """Mean log-density of the steps from ``first`` on, each given all before it."""
    changes = np.diff(x)
    variance = np.cumsum(changes**2)[first - 2 : -1] / np.arange(first - 1, len(changes))
    return float((-0.5 * (changes[first - 1 :] ** 2 / variance + np.log(2 * np.pi * variance))).mean())


def columns(folder: Path) -> dict[str, np.ndarray]:
    """Every feature of every series that is long enough and takes many values."""
    found = {}
    for name, series in SERIES.items():
        for i, x in enumerate(series.read(folder).T):
            x = x[~np.isnan(x)]
            if len(x) >= LEAST and len(np.unique(x)) > 10:
                found[f"{name}, {i}" if i else name] = x
    return found


def row(name: str, x: np.ndarray, models: Sequence[str]) -> list[dict[str, object]]:
    """One row for each model."""
    first = round(KNOWN * len(x))
    walk, rows = random_walk(x, first), list[dict[str, object]]()
    for model in models:
        steps = MODELS[model]().fit([x[:first, None]]).log_prob_steps([x[:, None]])[0][first - len(x) :]
        rows.append({"series": name, "steps": len(x), "model": model, "walk": walk, "score": float(steps.mean())})
    return rows


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """By model."""
    beyond = (frame["score"] - frame["walk"]).groupby(frame["model"], sort=False)
    counts = {f"below {limit}": beyond.agg(lambda d, limit=limit: int((d < limit).sum())) for limit in (-6, -3)}
    middle = {"worst": beyond.min(), **counts, "median": beyond.median(), "mean": beyond.mean()}
    return pd.DataFrame(
        {"series": beyond.size(), **middle, "ahead": beyond.agg(lambda d: (d > 0).mean())}
    ).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="with datasets/, MASS/, statsmodels/ and others")
    parser.add_argument(
        "--models", nargs="+", choices=tuple(MODELS), default=list(MODELS), help="others stay as they are"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    rows = list[dict[str, object]]()
    for name, x in columns(given.data).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += row(name, x, given.models)
        print(name, *(f"{each['score'] - each['walk']:.2f}" for each in rows[-len(given.models) :]), flush=True)  # type: ignore[operator]
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "one_step_density.csv"
    old = [pd.read_csv(file)] if file.exists() else []
    kept = [each[~each["model"].isin(given.models)] for each in old]
    frame = pd.concat([*kept, stamped(pd.DataFrame(rows))], ignore_index=True)
    order = {name: i for i, name in enumerate([*MODELS, *frame["series"].unique()])}
    frame = frame.sort_values(["series", "model"], key=lambda names: names.map(order))
    frame.to_csv(file, index=False, float_format="%.5g")
    text = markdown(summary(frame))
    (given.out / "one_step_density.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
