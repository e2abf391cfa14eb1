"""Is an autoregression that is fitted once ahead of a forecaster that goes on learning?
``experiments/adaptive_baseline.py --data FOLDER``.

Public series of R's packages, ``FOLDER/datasets/lynx.csv`` and so on as they are exported, and of statsmodels. The
models are fitted once to the first 70 % of a series; their figure is the log-density of the rest in nats a step, beyond
that of ``laplace`` of the package ``skaters`` (install it), which goes on learning: a weighted mixture of exponential
averages, differences and autoregressions with a scale that follows the last errors. ``ahead`` is the share of series
above it. Defaults were chosen on the packages of ``DEVELOPED_ON`` and judged on those of ``HELD_OUT``; no package is in
both. Of a long series, the last 500 values are read.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from one_step_density import KNOWN, LEAST
from series_defaults import markdown

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/adaptive_baseline")
MOST = 500  # values of a series, the last ones

# Packages, their files, and the columns of each by name; without names the last one.
DEVELOPED_ON = """
datasets: AirPassengers BJsales BJsales.lead JohnsonJohnson LakeHuron Nile UKDriverDeaths UKgas USAccDeaths WWWusage
    austres ldeaths lynx nhtemp nottem presidents sunspot.year treering lh
MASS: beav1/temp beav2/temp SP500 accdeaths
boot: manaus wool
AER: ArgentinaCPI BondYield DJFranses DutchSales MarkDollar MarkPound MotorCycles2 UKNonDurables
Ecdat: Capm/rmrf,rf Yen/s Garch/dm,sf incomeInequality/median USPS/Income Hstarts/hs,hssa Tbrate/r,y,pi Irates/r3,r60
    Macrodat/lhur,punew,fyff,fygm3,fygt1,exruk,gdpjp MoneyUS/m,infl,cpr,y,tbr StrikeNb/strikes,output
HistData: Prostitutes/count Wheat/Wheat Arbuthnot/Males,Ratio
statsmodels: macrodata/realgdp,realcons,realinv,cpi,m1,tbilrate,unemp,infl danish_data/lrm,lry,ibo,ide
    elec_equip
"""
HELD_OUT = """
stevedata: Arca/close DJIA/value LOTI/value arcticseaice/value asn_stats/airacc,airfatal clemson_temps/tmin,tmax
    coffee_price/arabica commodity_prices/oil_brent,tea_columbo,coffee_robustas sealevels/adjlev
    thatcher_approval/govt_sat,opp_sat ukg_eeri/value usa_tradegdp/gdpb,impo
mosaicData: Births2015/births Births78/births CoolingWater/temp Riders/highT,riders Utilities/temp,kwh,ccf
modeldata: Chicago/ridership drinks/S4248SM144NCEN
quantreg: MelTemp gasprice
openintro: arbuthnot/boys,girls present/boys,girls unempl/unemp sp500_1950_2018/Close
causaldata: google_stock/Google_Return,SP500_Return
dslabs: pr_death_counts/deaths polls_2008/margin
texmex: portpirie/SeaLevel
"""


def autoregression(encoding: sm.encodings.Encoding) -> sm.HMM:
    """One state, of order 2."""
    return sm.HMM(1, observation=sm.AutoregressiveGaussian(2), encoding=encoding)


MODELS: dict[str, Callable[[], sm.HMM]] = {
    "AR(2)": lambda: autoregression(sm.Standardize()),
    "AR(2), AutoSeries": lambda: autoregression(sm.encodings.AutoSeries()),
}


def series(listed: str, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the values of each series that is long enough and takes many values."""
    package = ""
    for word in listed.split():
        if word.endswith(":"):
            package = word[:-1]
            continue
        file, _, names = word.partition("/")
        frame = pd.read_csv(folder / package / f"{file}.csv", encoding="utf-8-sig")
        for name in names.split(",") if names else frame.columns[-1:]:
            x = pd.to_numeric(frame[name], errors="coerce").dropna().to_numpy(dtype=float)[-MOST:]
            if len(x) >= LEAST and len(np.unique(x)) > 10:
                yield f"{package}/{file}/{name}", x


def log_density_of_learner(x: np.ndarray, first: int) -> float:
    """Mean log-density of the values from ``first`` on under ``laplace``, which learns from each after scoring it."""
    from skaters import laplace

    forecaster, state, prediction, found = laplace(k=1), None, None, list[float]()
    for t, value in enumerate(map(float, x)):
        if t >= first:
            assert prediction is not None
            found.append(prediction.logpdf(value))
        (prediction, *_), state = forecaster(value, state)
    return float(np.mean(found))


def rows(listed: str, part: str, folder: Path) -> Iterator[dict[str, object]]:
    """One row for each series and model."""
    for name, x in series(listed, folder):
        first = round(KNOWN * len(x))
        learner = log_density_of_learner(x, first)
        for model, unfitted in MODELS.items():
            steps = unfitted().fit([x[:first, None]]).log_prob_steps([x[:, None]])[0][first - len(x) :]
            row = {"part": part, "series": name, "steps": len(x), "model": model, "laplace": learner}
            yield {**row, "score": float(steps.mean())}


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """By part and model, and of all series."""
    frame = frame.assign(beyond=frame["score"] - frame["laplace"])
    of_all = [frame, frame.assign(part="all")]
    groups = pd.concat(of_all).groupby(["part", "model"], sort=False)
    beyond = groups["beyond"]
    measured = {"series": groups.size(), "ahead": beyond.agg(lambda d: (d > 0).mean()), "median": beyond.median()}
    return pd.DataFrame({**measured, "mean": beyond.mean(), "worst": beyond.min()}).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="with datasets/, MASS/, statsmodels/ and others")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    found = list[dict[str, object]]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for listed, part in ((DEVELOPED_ON, "developed on"), (HELD_OUT, "held out")):
            for row in rows(listed, part, given.data):
                found.append(row)
                print(*row.values(), flush=True)
    frame = pd.DataFrame(found)
    given.out.mkdir(parents=True, exist_ok=True)
    stamped(frame).to_csv(given.out / "adaptive_baseline.csv", index=False, float_format="%.5g")
    text = markdown(summary(frame))
    (given.out / "adaptive_baseline.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
