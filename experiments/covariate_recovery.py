"""Does EM find the coefficients of inputs again? ``python experiments/covariate_recovery.py [--runs 100]``.

Data are drawn from a known HMM given one input, ``heat``, normal with mean 20 and deviation 5: of three states whose
transitions depend on it (six slopes, log-odds against staying), or of two states whose means of two features do (four
slopes). States overlap. A model of the same kind is fitted to each drawing by EM from its own start, and its states are
then ordered by their means; ``standard_errors`` gives errors and 95 % intervals. Other parameters are those where heat
is at its mean in the drawing, and so are the true ones that they are compared with.

The rule, set before any figure: of the slopes of either case at least 95 % are within three standard errors of the true
ones, and 93 to 97 % of 95 % intervals cover them. The standard error of a coverage, in the column ``error``, takes the
estimates of one drawing for independent. ``error_to_spread`` is the mean standard error over the standard deviation of
the estimates; ``without`` is the share of parameters that have no standard error, on a boundary or not identified.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/covariate_recovery")
MEAN, DEVIATION = 20.0, 5.0  # of heat
TRANSITIONS = {
    "initial": [0.4, 0.3, 0.3],
    "transition": [[0.86, 0.08, 0.06], [0.10, 0.82, 0.08], [0.06, 0.12, 0.82]],
    "means": [[0.0], [3.0], [6.0]],
    "covariances": [[1.0], [1.0], [1.0]],
    "transition_slopes": [
        [[0.0], [0.16], [-0.12]],
        [[0.10], [0.0], [0.14]],
        [[-0.16], [0.08], [0.0]],
    ],
}
EMISSIONS = {
    "initial": [0.6, 0.4],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "means": [[0.0, 1.0], [2.5, 0.0]],
    "covariances": [[1.0, 0.5], [2.0, 1.0]],
    "emission_slopes": [[[0.10], [0.0]], [[-0.15], [0.12]]],
}
CASES = {"transitions": TRANSITIONS, "emissions": EMISSIONS}
N_SEQUENCES, LENGTH = 20, 250


def drawn(truth: sm.HMM, n: int, length: int, seed: int) -> sm.Sequences:
    """``n`` sequences of ``length`` steps, with their input."""
    rng = np.random.default_rng(seed)
    inputs = [MEAN + DEVIATION * rng.normal(size=(length, 1)) for _ in range(n)]
    items = [truth.sample(inputs=u, random_state=int(rng.integers(2**31)))[0] for u in inputs]
    return sm.Sequences(items, inputs=inputs, input_names=["heat"])


def true_parameters(truth: sm.HMM, mean: float) -> dict[str, np.ndarray]:
    """By name, where heat is ``mean``, as a fitted model has them."""
    result = {name: getattr(truth, f"{name}_") for name in ("initial", "transition", "means", "covariances")}
    if truth.input_effects.transitions:
        result |= {"transition": truth.transition_at([[mean]])[0], "transition_slopes": truth.transition_slopes_}
    if truth.input_effects.emissions:
        slopes = truth.emission_slopes_
        result |= {"means": truth.means_ + (mean - MEAN) * slopes[:, None, :, 0], "emission_slopes": slopes}
    return result


def one(case: str, seed: int, n: int = N_SEQUENCES, length: int = LENGTH) -> pd.DataFrame:
    """A row for each parameter of one drawing, with its true value."""
    truth = sm.HMM.from_parameters(**CASES[case], inputs={"heat": MEAN})
    x = drawn(truth, n, length, seed)
    which = {"input_effects": truth.input_effects}
    options = {"observation": sm.GaussianMixture(1), "start": "free", "dtype": "float64", "n_init": 1}
    model = sm.HMM(truth.n_states, tol=1e-8, max_iter=1000, **options, **which).fit(x)
    order = np.argsort(model.means_[:, 0, 0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(feature|sequence|best|the best)")  # of the data, not of the errors
        frame = model.reorder(order).standard_errors(x)
    assert model.input_scaling_ is not None
    true = true_parameters(truth, float(model.input_scaling_.mean[0]))
    names = frame.groupby("name", sort=False)
    values = pd.concat([pd.Series(_in_order(true[str(name)], rows), rows.index) for name, rows in names])
    return frame.assign(true=values, seed=seed)


def _in_order(values: np.ndarray, rows: pd.DataFrame) -> np.ndarray:
    """The true values of these rows: all of a name, but no slope of a state to itself."""
    if rows["name"].iloc[0] == "transition_slopes":
        return np.array([values[i, j, 0] for i, (j, _) in zip(rows["state"], rows["feature"], strict=True)])
    assert values.size == len(rows), "all of the parameters, in their order"
    return values.ravel()


def summary(case: str, runs: int, n: int = N_SEQUENCES, length: int = LENGTH) -> pd.DataFrame:
    """A row for each kind of parameter."""
    began = time.process_time()
    table = pd.concat([one(case, seed, n, length) for seed in range(runs)], ignore_index=True)
    seconds, rows = time.process_time() - began, []
    for name, each in table.groupby("name", sort=False):
        known = each.dropna(subset=["standard_error"])
        below, above = (known["true"] < known["ci_low"]).mean(), (known["true"] > known["ci_high"]).mean()
        distance, covered = (known["estimate"] - known["true"]) / known["standard_error"], 1 - below - above
        spread = known.groupby(["state", "feature"], dropna=False)["estimate"].transform("std")
        rows.append(
            {
                "case": case,
                "frames": n * length,
                "name": name,
                "estimates": len(each),
                "within_three": (distance.abs() <= 3).mean(),
                "coverage": covered,
                "error": np.sqrt(covered * (1 - covered) / len(known)),
                "missed_below": below,
                "missed_above": above,
                "bias": distance.mean(),
                "error_to_spread": (known["standard_error"] / spread).mean(),
                "without": 1 - len(known) / len(each),
                "runs": runs,
                "cpu_seconds": seconds,
            }
        )
    return pd.DataFrame(rows)


def page(table: pd.DataFrame) -> str:
    """The slopes of each case, in words and as a table."""
    slopes = table[table["name"].str.endswith("slopes")]
    lines = [
        "# Coefficients of inputs, found again",
        "",
        f"`{slopes['command'].iloc[0]}`, {slopes['date'].iloc[0][:10]}, {slopes['hardware'].iloc[0]}.",
        "",
        "| case | runs | frames each | slopes | within 3 errors | intervals that cover | CPU seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in slopes.to_dict("records"):
        lines.append(
            f"| {row['case']} | {row['runs']} | {row['frames']:,} | {row['estimates']} | {row['within_three']:.1%} | "
            f"{row['coverage']:.1%} ± {row['error']:.1%} | {row['cpu_seconds']:.0f} |"
        )
    return "\n".join([*lines, "", "All parameters are in `coverage.csv`.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="3 runs, and nothing is written")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    runs = 3 if arguments.quick else arguments.runs
    tables = []
    for case in CASES:
        tables.append(summary(case, runs))
        print(tables[-1].round(3).to_string(index=False), flush=True)
    if not arguments.quick:
        table = stamped(pd.concat(tables))
        arguments.out.mkdir(parents=True, exist_ok=True)
        table.to_csv(arguments.out / "coverage.csv", index=False, float_format="%.5g")
        (arguments.out / "README.md").write_text(page(table))


if __name__ == "__main__":
    main()
