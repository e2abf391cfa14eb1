"""Do defaults forecast one series no worse than its last season? ``experiments/series_defaults.py --data FOLDER``.

Public series, each alone: of R's packages, ``FOLDER/datasets/co2.csv`` and so on as they are exported, with a first
column of row names, and of statsmodels, ``FOLDER/statsmodels/macrodata.csv`` and so on. Models by name, with no
argument that follows from the data: ``HMM()``, ``LSTM()``, and a vector autoregression of order 2; each with
``encoding=Standardize()`` and with ``encoding=AutoSeries()`` (``series``), and the network also as it is (``auto``),
which alone reads a series as changes where nothing is said. They are fitted once to the first two thirds and forecast a
season (or 8 steps) from 16 origins in the rest.

``ratio`` is the mean scaled CRPS divided by the better one of the persistence and the seasonal naive forecast of
``backtest``; ``covered`` the share of values within 90 % intervals. Rules were chosen on the series of the part
``chosen on``, many of which had been held out before; those of the part ``held out`` were chosen by name, kind and
length, and forecast once, when the rules stood.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/series_defaults")
COVERED = "covered 90%"
CHOSEN_ON, HELD_OUT = "chosen on", "held out"
TRAINING_PART = 2 / 3
N_ORIGINS = 16
PATHS = 200
STEPS_WITHOUT_SEASON = 8
MOST_ALLOWED, LEAST_COVERED, MOST_COVERED = 1.1, 0.80, 0.97
ENCODINGS: dict[str, Any] = {"auto": "auto", "standardize": sm.Standardize(), "series": sm.encodings.AutoSeries()}
DRIFTING = ("naive", "seasonal naive")


@dataclass(frozen=True)
class Series:
    """Where a series is: a file, its columns (None: the last; ``()``: all but the first, row after row), its season."""

    part: str
    file: str
    columns: tuple[str, ...] | None = None
    season: int | None = None
    most: int | None = None  # frames, the last ones

    def read(self, folder: Path) -> np.ndarray:
        frame = pd.read_csv(folder / f"{self.file}.csv")
        if self.columns == ():
            values = frame.iloc[:, 1:].to_numpy(dtype=float).reshape(-1, 1)
        else:
            values = frame[list(self.columns or frame.columns[-1:])].to_numpy(dtype=float)
        return values[-self.most :] if self.most else values


SERIES = {
    "co2": Series(CHOSEN_ON, "datasets/co2", season=12),
    "air passengers": Series(CHOSEN_ON, "datasets/AirPassengers", season=12),
    "nottingham": Series(CHOSEN_ON, "datasets/nottem", season=12),
    "uk driver deaths": Series(CHOSEN_ON, "datasets/UKDriverDeaths", season=12),
    "nile": Series(CHOSEN_ON, "datasets/Nile"),
    "lake huron": Series(CHOSEN_ON, "datasets/LakeHuron"),
    "sunspots, years": Series(CHOSEN_ON, "datasets/sunspot.year"),
    "lynx": Series(CHOSEN_ON, "datasets/lynx"),
    "www usage": Series(CHOSEN_ON, "datasets/WWWusage"),
    "gdp": Series(CHOSEN_ON, "statsmodels/macrodata", ("realgdp",)),
    "macro levels": Series(CHOSEN_ON, "statsmodels/macrodata", ("realgdp", "realcons", "realinv", "cpi", "m1")),
    "macro rates": Series(CHOSEN_ON, "statsmodels/macrodata", ("tbilrate", "unemp")),
    "uk gas": Series(CHOSEN_ON, "datasets/UKgas", season=4),
    "us accidental deaths": Series(CHOSEN_ON, "datasets/USAccDeaths", season=12),
    "johnson & johnson": Series(CHOSEN_ON, "datasets/JohnsonJohnson", season=4),
    "lung deaths": Series(CHOSEN_ON, "MASS/deaths", season=12),
    "el nino": Series(CHOSEN_ON, "statsmodels/elnino", (), season=12),
    "tree rings": Series(CHOSEN_ON, "datasets/treering", most=1000),
    "bj sales": Series(CHOSEN_ON, "datasets/BJsales"),
    "australian residents": Series(CHOSEN_ON, "datasets/austres", season=4),
    "new haven": Series(CHOSEN_ON, "datasets/nhtemp"),
    "beaver": Series(CHOSEN_ON, "MASS/beav1", ("temp",)),
    "air miles": Series(CHOSEN_ON, "datasets/airmiles"),
    "rio negro": Series(CHOSEN_ON, "boot/manaus", season=12, most=600),
    "inflation and interest": Series(CHOSEN_ON, "statsmodels/interest_inflation", ("Dp", "R"), season=4),
    "danish money": Series(CHOSEN_ON, "statsmodels/danish_data", ("lrm", "lry", "ibo", "ide"), season=4),
    "s&p 500 returns": Series(CHOSEN_ON, "MASS/SP500", most=1000),
    "unemployment": Series(HELD_OUT, "ggplot2/economics", ("uempmed", "unemploy"), season=12),
    "electrical equipment": Series(HELD_OUT, "statsmodels/elec_equip", season=12),
    "arrests": Series(HELD_OUT, "HistData/Prostitutes", ("count",), season=12),
    "market returns": Series(HELD_OUT, "Ecdat/Capm", ("rmrf", "rf"), season=12),
    "wool": Series(HELD_OUT, "boot/wool", ("wool",)),
    "wheat": Series(HELD_OUT, "HistData/Wheat", ("Wheat",)),
    "incomes": Series(HELD_OUT, "Ecdat/incomeInequality", ("median",)),
    "convictions": Series(HELD_OUT, "car/Hartnagel", ("tfr", "fconvict")),
    "wind and temperature": Series(HELD_OUT, "datasets/airquality", ("Wind", "Temp")),
    "second beaver": Series(HELD_OUT, "MASS/beav2", ("temp",)),
}


def models(encoding: str) -> dict[str, sm.SequenceModel]:
    """Unfitted."""
    chosen = ENCODINGS[encoding]
    network = {"LSTM": sm.LSTM(encoding=chosen)}
    if encoding == "auto":
        return network
    var = sm.HMM(1, observation=sm.AutoregressiveGaussian(2), encoding=chosen)
    return {"HMM": sm.HMM(encoding=chosen), **network, "VAR(2)": var}


def study(name: str, series: Series, folder: Path, encodings: Iterable[str]) -> pd.DataFrame:
    """A row for each model and encoding."""
    x, season = series.read(folder), series.season
    horizon = season or STEPS_WITHOUT_SEASON
    first = min(round(TRAINING_PART * len(x)), len(x) - horizon)
    rows = []
    for encoding in encodings:
        began, unfitted = time.process_time(), models(encoding)
        result = sm.backtest(unfitted, [x], horizon=horizon, first=first, n_origins=N_ORIGINS, season=season, n=PATHS)
        table = result.table().set_index("model")
        baseline = min(float(table["crps_scaled"][each]) for each in DRIFTING if each in table.index)
        for model, fitted in unfitted.items():
            row = {"part": series.part, "series": name, "frames": first, "features": x.shape[1], "horizon": horizon}
            row |= {"model": model, "encoding": encoding, "naive": baseline}
            if model in result.errors:
                rows.append(row | {"read as": result.errors[model]})
                continue
            ratio, covered = float(table["crps_scaled"][model]) / baseline, float(table[COVERED][model])
            row |= {"crps_scaled": float(table["crps_scaled"][model]), "ratio": ratio, "covered": covered}
            is_good = ratio <= MOST_ALLOWED and LEAST_COVERED <= covered <= MOST_COVERED
            rows.append(row | {"good": is_good, "read as": fitted.encoding_.note or repr(fitted.encoding_)})
        print(f"{name}: {time.process_time() - began:.0f} CPU-s", flush=True)
    return pd.DataFrame(rows)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """By part, model and encoding: how many series, and of how many the ratio, the coverage or both are as they should
    be.
    """
    known = frame.dropna(subset=["ratio"])
    known = known.assign(
        ratio_good=known["ratio"] <= MOST_ALLOWED,
        covered_good=known["covered"].between(LEAST_COVERED, MOST_COVERED),
        both=known["good"].astype(bool),
    )
    groups = known.groupby(["part", "model", "encoding"])
    counts = groups[["ratio_good", "covered_good", "both"]].sum()
    return counts.assign(
        series=groups.size(),
        median_ratio=groups["ratio"].median(),
        largest_ratio=groups["ratio"].max(),
        covered=groups["covered"].mean(),
    ).reset_index()


def markdown(frame: pd.DataFrame) -> str:
    """A table."""
    rows = [frame.columns, ["---"] * len(frame.columns), *frame.to_numpy()]
    words = [[f"{each:.3g}" if isinstance(each, float) else str(each) for each in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in words) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="with datasets/, MASS/, statsmodels/ and others")
    parser.add_argument("--part", choices=(CHOSEN_ON, HELD_OUT), help="only series of this part")
    parser.add_argument("--series", nargs="+", choices=tuple(SERIES), help="only these; others stay in the table")
    parser.add_argument("--encoding", nargs="+", choices=tuple(ENCODINGS), default=list(ENCODINGS))
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    chosen = given.series or [name for name, each in SERIES.items() if given.part in (None, each.part)]
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "series_defaults.csv"
    for name in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = study(name, SERIES[name], given.data, given.encoding)
        columns = ["model", "encoding", "naive", "crps_scaled", "ratio", "covered", "read as"]
        print(found[[c for c in columns if c in found]].to_string(index=False, float_format="%.3g"), flush=True)
        old = [pd.read_csv(file)] if file.exists() else []
        kept = [each[(each["series"] != name) | ~each["encoding"].isin(given.encoding)] for each in old]
        pd.concat([*kept, stamped(found)], ignore_index=True).to_csv(file, index=False, float_format="%.4g")
    frame = pd.read_csv(file)
    text = [markdown(summary(frame)), markdown(frame[["part", "series", *columns]].fillna(""))]
    (given.out / "series_defaults.md").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
