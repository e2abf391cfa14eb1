"""Are variances of random effects found again? ``python experiments/random_effect_recovery.py [--runs 200]``.

20 groups have a sequence of 200 steps each, from two states with overlapping densities; the log-odds of leaving either
state have a random effect of the group, with a standard deviation of 0.8. A model of the same kind is fitted to each
drawing, by restricted maximum likelihood and by maximum likelihood. With ``--durations`` each visit to a state lasts
``1 + Poisson`` steps, of a rate whose logarithm has a random effect of the group with a standard deviation of 0.4, and
the model is an HSMM.

The rule, set before any figure: the mean of the standard deviations that REML estimates is within 5 % of the true one,
and 93 to 97 % of the 95 % intervals of effects of groups cover the true effects.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/random_effect_recovery")
GROUPS, LENGTH, SD, LOG_ODDS = 20, 200, 0.8, -1.5
SD_OF_DURATIONS, RATE, LONGEST = 0.4, 4.0, 40
WRITTEN_EVERY = 10  # runs, so that one that is ended leaves the figures of those before


def drawn(seed: int) -> tuple[sm.Sequences, np.ndarray]:
    """A sequence of each group, and the effects of groups, ``(2, GROUPS)``."""
    rng = np.random.default_rng(seed)
    effects, items = SD * rng.normal(size=(2, GROUPS)), []
    leaves = 1 / (1 + np.exp(-LOG_ODDS - effects))
    for group in range(GROUPS):
        z = [int(rng.integers(2))]
        for _ in range(LENGTH - 1):
            z.append(1 - z[-1] if rng.random() < leaves[z[-1], group] else z[-1])
        items.append(3.0 * np.array(z)[:, None] + rng.normal(size=(LENGTH, 1)))
    inputs = [np.full(LENGTH, float(group)) for group in range(GROUPS)]
    return sm.Sequences(items, inputs=inputs, input_names=["group"]), effects


def drawn_durations(seed: int) -> tuple[sm.Sequences, np.ndarray]:
    """The same of groups whose visits to the states last differently long."""
    rng = np.random.default_rng(seed)
    effects, items = SD_OF_DURATIONS * rng.normal(size=(2, GROUPS)), []
    for group in range(GROUPS):
        z, state = [], int(rng.integers(2))
        while len(z) < LENGTH:
            z += [state] * int(1 + rng.poisson(RATE * np.exp(effects[state, group])))
            state = 1 - state
        items.append(3.0 * np.array(z[:LENGTH])[:, None] + rng.normal(size=(LENGTH, 1)))
    inputs = [np.full(LENGTH, float(group)) for group in range(GROUPS)]
    return sm.Sequences(items, inputs=inputs, input_names=["group"]), effects


def one(seed: int, restricted: bool, durations: bool) -> pd.DataFrame:
    """A row for each of the two states: the estimated deviation, and the share of intervals that cover."""
    x, effects = drawn_durations(seed) if durations else drawn(seed)
    terms = {"durations" if durations else "transitions": [sm.hmm.RandomEffect("group")]}
    chosen = sm.hmm.ChainInputEffects(**terms, restricted=restricted)
    options = {"observation": sm.GaussianMixture(1), "n_init": 1, "tol": 1e-6, "input_effects": chosen}
    began = time.process_time()
    model = sm.hmm.HSMM(2, "poisson", LONGEST, **options) if durations else sm.HMM(2, dtype="float64", **options)
    model.fit(x)
    seconds, rows = time.process_time() - began, []
    order = np.argsort(model.means_.ravel())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(feature|sequence|best|the best)")
        errors = model.standard_errors(x)
    for state, of_state in enumerate(order):
        name = "duration_slopes" if durations else "transition_slopes"
        each = errors[(errors["name"] == name) & (errors["state"] == of_state)]
        covers = (each["ci_low"].to_numpy() <= effects[state]) & (effects[state] <= each["ci_high"].to_numpy())
        sd = model.terms_["sd"][model.terms_["state"] == of_state].item()
        rows.append({"restricted": restricted, "state": state, "sd": sd, "coverage": covers.mean(), "seconds": seconds})
    return pd.DataFrame(rows)


def summary(rows: pd.DataFrame, sd: float) -> pd.DataFrame:
    """One row for each method: the mean estimate over the true deviation, and the coverage of intervals, with errors.

    ``rows`` are those of ``one`` of all runs, and ``sd`` is the true deviation.
    """
    return pd.concat([_of_method(rows[rows["restricted"] == restricted], sd) for restricted in (True, False)])


def _of_method(table: pd.DataFrame, sd: float) -> pd.DataFrame:
    ratio, n = table["sd"] / sd, len(table)
    return pd.DataFrame(
        {
            "method": ["REML" if table["restricted"].iloc[0] else "ML"],
            "runs": n // 2,
            "sd_ratio": ratio.mean(),
            "sd_ratio_error": ratio.std() / np.sqrt(n),
            "coverage": table["coverage"].mean(),
            "coverage_error": table["coverage"].std() / np.sqrt(n),
            "cpu_seconds": table["seconds"].sum() / 2,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--durations", action="store_true", help="of durations of an HSMM")
    parser.add_argument("--quick", action="store_true", help="1 run, and nothing is written")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    runs, durations = 1 if arguments.quick else arguments.runs, arguments.durations
    sd, name = (SD_OF_DURATIONS, "durations.csv") if durations else (SD, "recovery.csv")
    rows: list[pd.DataFrame] = []
    for seed in range(runs):
        rows += [one(seed, restricted, durations) for restricted in (True, False)]
        if not arguments.quick and ((seed + 1) % WRITTEN_EVERY == 0 or seed + 1 == runs):
            arguments.out.mkdir(parents=True, exist_ok=True)
            table = stamped(summary(pd.concat(rows), sd))
            table.to_csv(arguments.out / name, index=False, float_format="%.5g")
    print(summary(pd.concat(rows), sd).round(3).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
