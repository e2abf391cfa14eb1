"""Do 95 % intervals of an HMM's parameters cover the true ones? ``python experiments/standard_errors.py [--quick]``.

Data are drawn from a known HMM of two states that overlap, and a model of the same kind is fitted to them by EM, from
the true parameters, so that states keep their numbers and EM ends at the maximum next to them: what is asked is whether
the observed information at that maximum tells its error (``HMM.standard_errors``), and not whether EM finds it. 20
sequences of 50 steps or of 200, or one as long as all of these together, whose first state has the stationary
distribution.

The rule, set before any figure: with 4,000 frames, intervals of each kind of parameter cover 93 to 97 % of repetitions.
The standard error of a coverage, in the column ``error``, is that of one parameter: two of a kind in one repetition are
not independent. ``error_to_spread`` is the mean standard error over the standard deviation of the estimates, and
``without`` the share of parameters that have no standard error, on a boundary or not identified.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/standard_errors")
CHAIN = {"initial": [0.6, 0.4], "transition": [[0.9, 0.1], [0.2, 0.8]]}
STATIONARY = {"initial": [2 / 3, 1 / 3], "transition": CHAIN["transition"], "start": "stationary"}
GAUSSIANS = {"means": [[0.0, 1.0], [2.0, 0.0]], "covariances": [[1.0, 0.5], [2.0, 1.0]]}
CASES = {
    "gaussian": {**CHAIN, **GAUSSIANS},
    "gaussian, one sequence": {**STATIONARY, **GAUSSIANS},
    "poisson": {**CHAIN, "rates": [[2.0], [7.0]]},
    "categorical": {**CHAIN, "emission": [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]},
}
N_SEQUENCES, LENGTHS = 20, (50, 200)
TRUE = {"covariances": "covariances_", "emission": "emission_", "means": "means_", "rates": "rates_"}


def one(case: str, length: int, seed: int) -> pd.DataFrame:
    """A row for each parameter of one repetition."""
    truth = sm.HMM.from_parameters(**CASES[case])
    n, steps = (1, N_SEQUENCES * length) if "one sequence" in case else (N_SEQUENCES, length)
    x = truth.sample(n, length=steps, random_state=seed)
    model = sm.HMM.from_parameters(**CASES[case], warm_start=True, tol=1e-8, max_iter=1000, dtype="float64")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(feature|sequence|best|the best)")  # of the data, not of the errors
        frame = model.fit(x).standard_errors(x)
    names = {"initial": "initial_", "transition": "transition_", **TRUE}
    true = []
    for name, rows in frame.groupby("name", sort=False):
        values = getattr(truth, names[str(name)])
        assert values.size == len(rows), "all of the parameters, in their order"
        true.append(pd.Series(values.ravel(), rows.index))
    return frame.assign(true=pd.concat(true), seed=seed)


def coverage(case: str, length: int, repetitions: int) -> pd.DataFrame:
    """A row for each kind of parameter."""
    table = pd.concat([one(case, length, seed) for seed in range(repetitions)], ignore_index=True)
    rows = []
    for name, each in table.groupby("name", sort=False):
        known = each.dropna(subset=["standard_error"])
        below, above = (known["true"] < known["ci_low"]).mean(), (known["true"] > known["ci_high"]).mean()
        covered = 1 - below - above
        spread = known.groupby(["state", "feature"], dropna=False)["estimate"].transform("std")
        rows.append(
            {
                "case": case,
                "frames": N_SEQUENCES * length,
                "name": name,
                "coverage": covered,
                "error": np.sqrt(covered * (1 - covered) / repetitions),
                "missed_below": below,
                "missed_above": above,
                "error_to_spread": (known["standard_error"] / spread).mean(),
                "without": 1 - len(known) / len(each),
                "repetitions": repetitions,
            }
        )
    return pd.DataFrame(rows)


def write(table: pd.DataFrame, file: Path) -> None:
    """Add to the file, in place of earlier rows of the same case."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        before = pd.read_csv(file)
        again = before["case"].eq(table["case"].iloc[0]) & before["frames"].eq(table["frames"].iloc[0])
        table = pd.concat([before[~again], table])
    table.to_csv(file, index=False, float_format="%.5g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--quick", action="store_true", help="3 repetitions, and nothing is written")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    for case in arguments.cases:
        for length in LENGTHS:
            table = coverage(case, length, 3 if arguments.quick else arguments.repetitions)
            print(table.round(3).to_string(index=False), flush=True)
            if not arguments.quick:
                write(stamped(table), arguments.out / "coverage.csv")


if __name__ == "__main__":
    main()
