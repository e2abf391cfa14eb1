"""Are models of symbols good on quantised series? ``experiments/quantised_series.py --data FOLDER``.

Public series, each alone, of R's packages: ``FOLDER/datasets/co2.csv`` and so on as they are exported, with a first
column of row names. Every model is fitted to the first 70 % of a series; ``score`` is nats per frame of the rest, given
all that came before. ``cells`` are of the changes that ``AutoSeries`` chooses, ``encoding=Chain([AutoSeries(),
Quantize()])``; the autoregression and the HMM of Gaussians read levels and what is ``"auto"``. How many cells there are
by default was chosen on the first 70 % of most of these series; no rest was looked at.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.encodings import AutoSeries, Chain, Quantize
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/quantised_series")
TRAINING_PART = 0.7
SERIES = {  # of each the file, whose last column it is
    "lynx": "datasets/lynx",
    "sunspots, years": "datasets/sunspot.year",
    "sunspots, months": "datasets/sunspot.month",
    "nile": "datasets/Nile",
    "tree rings": "datasets/treering",
    "nottingham": "datasets/nottem",
    "co2": "datasets/co2",
    "lake huron": "datasets/LakeHuron",
    "uk driver deaths": "datasets/UKDriverDeaths",
    "www usage": "datasets/WWWusage",
    "s&p 500 returns": "MASS/SP500",
    "bmw returns": "evir/bmw",
}


def models() -> dict[str, sm.SequenceModel]:
    """Unfitted."""
    cells = Chain([AutoSeries(), Quantize()])
    return {
        "VAR(1)": sm.HMM(1, observation=sm.AutoregressiveGaussian(1), encoding=sm.Standardize()),
        "HMM(3)": sm.HMM(3),
        "NGram(2) of cells": sm.NGram(2, encoding=cells),
        "NGram(3) of cells": sm.NGram(3, encoding=cells),
        "ContextTree(3) of cells": sm.ContextTree(3, encoding=cells),
        "ContextMixing of cells": sm.ContextMixing(encoding=cells),
        "HMM(3) of cells": sm.HMM(3, encoding=cells),
    }


def study(name: str, x: np.ndarray) -> pd.DataFrame:
    """A row for each model of the frames ``x (T, 1)``."""
    n = round(TRAINING_PART * len(x))
    whole, rows = sm.Sequences([x]), []
    rest = whole.segments([(0, n, len(x))], past=None)
    for model, unfitted in models().items():
        fitted = unfitted.fit([x[:n]])
        row = {"series": name, "frames": len(x), "model": model, "score": fitted.score(rest)}
        rows.append(row | {"read as": fitted.encoding_.note or repr(fitted.encoding_)})
    return pd.DataFrame(rows)


def table(frame: pd.DataFrame) -> str:
    """Markdown: a row for each series, a column for each model, and the means."""
    scores = frame.pivot_table(index="series", columns="model", values="score")
    scores = scores.reindex(index=list(dict.fromkeys(frame["series"])), columns=list(models()))
    scores.loc["mean"] = scores.mean()
    rows = [["series", *scores.columns], ["---"] * (1 + len(scores.columns))]
    rows += [[str(name), *(f"{score:.3f}" for score in row)] for name, row in scores.iterrows()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with datasets/, MASS/, evir/")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    found = []
    for name, file in SERIES.items():
        values = pd.read_csv(given.data / f"{file}.csv").iloc[:, -1].to_numpy(dtype=float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(study(name, values[:, None]))
        print(found[-1][["series", "model", "score"]].to_string(index=False, float_format="%.3f"), flush=True)
    frame = stamped(pd.concat(found, ignore_index=True))
    given.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(given.out / "quantised_series.csv", index=False, float_format="%.4g")
    (given.out / "quantised_series.md").write_text(table(frame), encoding="utf-8")


if __name__ == "__main__":
    main()
