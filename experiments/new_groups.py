"""What are groups worth that ``fit`` has not seen? ``python experiments/new_groups.py [--runs 20]``.

Groups are drawn as in ``random_effect_recovery.py``. A model with a random effect of the group is fitted to 20 groups,
and scores 20 others: averaged over 256 points of the distribution of effects, over 64, and with an effect of zero (one
point). Beside it stands a model without groups.

The rule, set before any figure: the average over 256 points is better than an effect of zero by three standard errors.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from random_effect_recovery import GROUPS, drawn

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path("experiments/results/new_groups")
POINTS = (256, 64, 1)
NEW_SEED = 100_000  # of the groups that are scored


def one(seed: int) -> dict[str, float]:
    """Nats per step of the new groups under each model."""
    train, others = drawn(seed)[0], drawn(NEW_SEED + seed)[0]
    assert others.inputs is not None
    new = others.with_inputs([u + GROUPS for u in others.inputs], others.input_names)
    options = {"observation": sm.GaussianMixture(1), "n_init": 1, "dtype": "float64", "tol": 1e-6}
    effects = sm.hmm.ChainInputEffects(transitions=[sm.hmm.RandomEffect("group")])
    model = sm.HMM(2, input_effects=effects, **options).fit(train)
    scores = {}
    for n in POINTS:
        scores[f"points_{n}"] = model.set_params(input_effects__new_group_points=n).score(new)
    return {**scores, "without_groups": sm.HMM(2, **options).fit(train).score(new)}


def summary(runs: int) -> pd.DataFrame:
    """A row for each way to score: its mean nats per step, and how much more that is than with an effect of zero."""
    table = pd.DataFrame([one(seed) for seed in range(runs)])
    differences = table.sub(table["points_1"], axis=0)
    error = differences.std() / np.sqrt(runs)
    columns = {"runs": runs, "nats_per_step": table.mean(), "difference": differences.mean(), "error": error}
    return pd.DataFrame(columns).rename_axis("scored_with").reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="2 runs, and nothing is written")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    table = summary(2 if arguments.quick else arguments.runs)
    print(table.round(5).to_string(index=False), flush=True)
    if not arguments.quick:
        arguments.out.mkdir(parents=True, exist_ok=True)
        stamped(table).to_csv(arguments.out / "scores.csv", index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
