"""Do bands hold what they say after few values? ``experiments/few_values.py --data FOLDER``.

Autoregressions of one state, fitted to 25 or 50 values, with the density at their estimates and with the default one,
which is integrated over their posterior. ``held`` is the share of later values that lie within the 90 % band one step
ahead, and ``log_prob`` their log-density in nats a step. Simulated are 100 series of each kind, with 50 later values;
the public series are those of ``one_step_density`` with enough values, cut into stretches of the training values and up
to 25 that follow.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from one_step_density import columns
from series_defaults import markdown

import seqmodels as sm
from seqmodels.evaluation.calibration import pit
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/few_values")
LENGTHS = (25, 50)
N_SIMULATED, AFTER_SIMULATED, AFTER_PUBLIC = 100, 50, 25
STRETCHES = 4  # most stretches of a public series
SIMULATED = {
    "AR(1)": [[[0.7]]],
    "AR(2)": [[[0.5]], [[0.3]]],
    "VAR(2) of 2": [[[0.5, 0.2], [0.1, 0.4]], [[0.2, 0.0], [0.0, 0.2]]],
}


def simulated(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Steps of a stationary vector autoregression; innovations of two features have the correlation 0.5."""
    matrices = np.array(SIMULATED[kind])
    size, burn = matrices.shape[1], 100
    factor = np.linalg.cholesky(0.5 * np.eye(size) + 0.5)
    x = np.zeros((n + burn, size))
    for t in range(len(matrices), len(x)):
        x[t] = sum(a @ x[t - 1 - lag] for lag, a in enumerate(matrices)) + factor @ rng.normal(size=size)
    return x[burn:]


def stretches(x: np.ndarray, n: int) -> Iterator[np.ndarray]:
    """Yield stretches ``(n + 25, 1)`` of a series, of which the first n values take many."""
    for start in range(0, len(x) - n - AFTER_PUBLIC + 1, n + AFTER_PUBLIC)[:STRETCHES]:
        stretch = x[start : start + n + AFTER_PUBLIC, None]
        if len(np.unique(stretch[:n])) > 10:
            yield stretch


def held(model: sm.SequenceModel, x: np.ndarray, n: int) -> float:
    """Share of the values after the first n that lie within the 90 % band one step ahead."""
    transforms = pit(model, sm.Sequences([x[n:]], past=[x[:n]]))
    return float(((transforms >= 0.05) & (transforms <= 0.95)).mean())


def examples(folder: Path) -> Iterator[tuple[str, int, int, np.ndarray]]:
    """Yield the name of each series, the order of its model, the number of training values, and all values."""
    for kind, matrices in SIMULATED.items():
        for n in LENGTHS:
            for seed in range(N_SIMULATED):
                yield kind, len(matrices), n, simulated(kind, n + AFTER_SIMULATED, np.random.default_rng(seed))
    for _, x in columns(folder).items():
        for n in LENGTHS:
            for stretch in stretches(x, n):
                yield "public, AR(2)", 2, n, stretch


def rows(folder: Path) -> Iterator[dict[str, object]]:
    """One row for each series and density."""
    for number, (name, order, n, x) in enumerate(examples(folder)):
        later = sm.Sequences([x[n:]], past=[x[:n]])
        for predictive in ("plug-in", "auto"):
            observation = sm.AutoregressiveGaussian(order, predictive=predictive)
            model = sm.HMM(1, observation=observation, encoding=sm.Standardize()).fit([x[:n]])
            of_model = {"density": model.observation_.predictive, "held": held(model, x, n)}
            of_model["log_prob"] = model.score(later)
            yield {"number": number, "series": name, "values": n, "predictive": predictive, **of_model}


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """By series, number of training values and density."""
    groups = frame.groupby(["series", "values", "predictive"], sort=False)
    measured = {"fits": groups.size(), "held": groups["held"].mean(), "log_prob": groups["log_prob"].mean()}
    medians = {"median log_prob": groups["log_prob"].median()}
    return pd.DataFrame({**measured, **medians}).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="with datasets/, MASS/, statsmodels/ and others")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = pd.DataFrame(rows(given.data))
    given.out.mkdir(parents=True, exist_ok=True)
    found = summary(frame)
    stamped(found).to_csv(given.out / "few_values.csv", index=False, float_format="%.5g")
    text = markdown(found)
    (given.out / "few_values.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
