"""Differences between any two models of one comparison, with intervals; ``compare`` has one baseline only."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from seqmodels.evaluation import Comparison
from seqmodels.evaluation.statistics.paired import Difference, moving_block_difference, paired_difference
from seqmodels.sequences import Sequences

Steps = Sequence[np.ndarray]


def difference(model: Steps, against: Steps, test: Sequences, *, looks: int = 1) -> Difference:
    """Nats per unit by which ``model`` is better on ``test``: moving blocks of one long sequence, clusters of several.

    Args:
        looks: how many models ``model`` or ``against`` was chosen from as the best on ``test``; the interval is of
            1 - 0.05 / looks (Bonferroni).
    """
    level = 1 - 0.05 / looks
    units = test.n_units
    if len(test) == 1:
        return moving_block_difference(model[0], against[0], n_units=float(units[0]), level=level)
    a, b = (np.array([steps.sum() for steps in each]) for each in (model, against))
    return paired_difference(a, b, units, test.clusters, level=level)


def contrasts(result: Comparison, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """A row for each pair (better, worse): the difference, its interval, and whether it is above zero for sure."""
    rows = []
    for better, worse in pairs:
        found = difference(result.log_prob_steps[better], result.log_prob_steps[worse], result.test)
        rows.append({"model": better, "against": worse, **interval(found), "above": found.low > 0})
    return pd.DataFrame(rows)


def interval(found: Difference) -> dict[str, float]:
    """The columns of a difference, as tables and pictures know them."""
    return {"difference": found.difference, "ci_low": found.low, "ci_high": found.high}


def with_contrasts(result: Comparison, pairs: pd.DataFrame) -> pd.DataFrame:
    """The table of a comparison, differences to its baseline, and under it the pairs."""
    columns = ["model", "score", "difference", "ci_low", "ci_high", "n_parameters", "steps", "fit_seconds"]
    table = result.frame[columns].assign(against=result.baseline)
    return pd.concat([table, pairs], ignore_index=True)


def said(pairs: pd.DataFrame) -> str:
    """``lstm - hmm +0.76 [+0.66, +0.86]; ...``"""
    return "; ".join(
        f"{row.model} - {row.against} {row.difference:+.3f} [{row.ci_low:+.3f}, {row.ci_high:+.3f}]"
        for row in pairs.itertuples()
    )
