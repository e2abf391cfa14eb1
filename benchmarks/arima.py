"""ARIMA models with seasons beside statsmodels: ``OMP_NUM_THREADS=1 python benchmarks/arima.py``; needs statsmodels.

Each row is a public series and the orders of a model: the exact diffuse log-likelihood of ``LinearGaussian.arima`` at
its maximum, what ``SARIMAX`` (``use_exact_diffuse=True``) says of the same parameters, and its own maximum; seconds of
the processor of a fit from one start, as the library does it, by the filter alone, and by statsmodels.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.linear_gaussian.learning.banded_arima import BandedARIMA

HERE = Path(__file__).resolve().parent
NONE = (0, 0, 0, 0)
CASES = [
    ("nile", (0, 1, 1), NONE),
    ("sunspots", (2, 0, 1), NONE),
    ("gdp", (1, 1, 1), (1, 0, 1, 4)),
    ("co2", (0, 1, 1), (0, 1, 1, 12)),
    ("co2", (1, 1, 1), (1, 1, 1, 12)),
    ("elnino", (1, 0, 0), (1, 0, 1, 12)),
    ("co2 by week", (0, 1, 1), (0, 1, 1, 52)),
]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hardware", default="", help="as it shall stand in the table")
    parser.add_argument("--out", default=str(HERE / "results/arima.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    all_series, rows = series(), []
    for name, order, seasonal in CASES:
        rows.append({"series": name, "order": order, "seasonal": seasonal, **row(all_series[name], order, seasonal)})
        print(rows[-1], flush=True)
    command = shlex.join(["python", *sys.argv])
    table = pd.DataFrame(rows).assign(hardware=options.hardware, date=date.today().isoformat(), command=command)
    table.to_csv(options.out, index=False, float_format="%.10g")


def series() -> dict[str, np.ndarray]:
    """Return public series that statsmodels brings along."""
    from statsmodels import datasets

    co2 = datasets.co2.load_pandas().data["co2"]
    gdp, elnino = datasets.macrodata.load_pandas().data["realgdp"], datasets.elnino.load_pandas().data
    return {
        "nile": datasets.nile.load_pandas().data["volume"].to_numpy(float),
        "sunspots": datasets.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(float),
        "gdp": 100 * np.log(gdp.to_numpy(float)),
        "co2": co2.resample("MS").mean().to_numpy(float)[-240:],
        "co2 by week": co2.to_numpy(float)[-400:],  # values are missing
        "elnino": elnino.set_index("YEAR").to_numpy(float).ravel()[-240:],
    }


def row(y: np.ndarray, order: tuple[int, ...], seasonal: tuple[int, ...]) -> dict[str, Any]:
    """Return what is measured of one series and model."""
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    model = sm.LinearGaussian.arima(*order, seasonal=seasonal if any(seasonal) else (0, 0, 0, 1), n_init=1)
    seconds = _seconds(lambda: model.fit([y[:, None]]))
    with patch.object(BandedARIMA, "is_faster", lambda *_, **__: False):
        by_filter = _seconds(lambda: model.clone().fit([y[:, None]]))
    trend = "n" if order[1] + seasonal[1] else "c"
    theirs = SARIMAX(y, order=order, seasonal_order=seasonal, trend=trend, use_exact_diffuse=True)
    found: list[Any] = []
    seconds_of_theirs = _seconds(lambda: found.append(theirs.fit(disp=0, maxiter=500)))
    same = np.array([_parameter(model, name, seasonal[3]) for name in theirs.param_names])
    return {
        "steps": len(y),
        "missing": int(np.isnan(y).sum()),
        "log_likelihood": float(model.diffuse_log_prob([y[:, None]])[0]),
        "statsmodels_at_same": float(theirs.loglike(same)),
        "statsmodels_maximum": float(found[-1].llf),
        **{"seconds": seconds, "seconds_by_filter": by_filter, "seconds_of_statsmodels": seconds_of_theirs},
    }


def _seconds(run: Callable[[], Any]) -> float:
    """Seconds of the processor, of the faster of two runs."""
    each = []
    for _ in range(2):
        start = time.process_time()
        run()
        each.append(time.process_time() - start)
    return min(each)


def _parameter(model: sm.LinearGaussian, name: str, season: int) -> float:
    """What statsmodels calls ``name``, such as ``ar.L1`` or ``ma.S.L12``, of our model."""
    ours = model.components_
    if name == "sigma2":
        return ours["arima_variance"]
    if name == "intercept":  # theirs is that of the autoregression, ours the mean
        left = [1 - sum(v for k, v in ours.items() if k.startswith(f"arima_{kind}")) for kind in ("ar", "seasonal_ar")]
        return float(model.intercept_[0] * left[0] * left[1])
    kind, lag = name.split(".")[0], int(name.rpartition("L")[2])
    return ours[f"arima_seasonal_{kind}{lag // season}" if ".S." in name else f"arima_{kind}{lag}"]


if __name__ == "__main__":
    main()
