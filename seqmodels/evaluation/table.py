"""The frame of a comparison: a row a model, its figures, and its difference to the baseline on the same sequences."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from seqmodels.evaluation.fitting import Scored
from seqmodels.evaluation.floors import is_set_by_floor
from seqmodels.evaluation.search import in_words
from seqmodels.evaluation.statistics import Difference, holm, moving_block_difference, paired_difference
from seqmodels.model import SequenceModel
from seqmodels.preparation import Data
from seqmodels.sequences import Sequences

# Figures that no two runs share: of the clock and of the machine.
TIMES = ("fit_seconds", "scoring_throughput", "peak_memory")
FIGURES = (
    "score",
    "bits",
    "perplexity",
    "train_score",
    "score_sd",
    "difference",
    "ci_low",
    "ci_high",
    "p_value",
    "p_holm",
)
MEASURED = ("n_parameters", *TIMES, "rank", "floor_effect")
NO_DIFFERENCE = Difference(0.0, math.nan, math.nan, math.nan, 0, "")


def frame_of(
    scored: Mapping[str, Scored],
    base: Scored,
    test: Data,
    clusters: list[Any] | None,
    reference: str | None = None,
) -> pd.DataFrame:
    """All rows, best first, then those whose score a floor made, then those that failed.

    ``p_value`` is of the row alone, as its interval is, ``p_holm`` is corrected for the number of rows that are tested.
    ``reference``: a row that is not tested, so that it does not count in the correction.
    """
    _warn_of_impossible(scored, test)
    base_name = next(name for name, s in scored.items() if s is base)
    rows = [
        _failed(name, s)
        if s.error
        else _row(name, s, _tested(name, s, base_name, base, test, clusters, name == reference))
        for name, s in scored.items()
    ]
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p_value"].to_numpy())
    too_few = frame.loc[frame["method"].str.startswith("none: fewer"), "method"]
    if len(too_few):
        warnings.warn(f"no interval ({too_few.iloc[0]}): test on more independent sequences or clusters", stacklevel=3)
    # 0: ranked, 1: by the floor, 2: failed
    frame["group"] = [
        2 if s.error else int(is_set_by_floor(_floor_effect(s), d))
        for s, d in zip(scored.values(), frame["difference"], strict=True)
    ]
    frame = frame.sort_values(["group", "score"], ascending=[True, False], kind="stable").reset_index(drop=True)
    frame["rank"] = np.where(frame["group"] == 0, np.arange(1.0, len(frame) + 1), math.nan)
    return frame.drop(columns="group")


def clusters_of(scored: Sequences, column: str | None) -> list[Any] | None:
    """What each sequence belongs to, by a column of its metadata; None: each is its own."""
    if column is None:
        return scored.clusters
    if column not in scored.metadata:
        raise ValueError(
            f"the test sequences have no column {column!r}; they have {', '.join(map(str, scored.metadata.columns)) or 'none'}"
        )
    return list(scored.metadata[column])


def _row(name: str, scored: Scored, found: Difference) -> dict[str, Any]:
    return {
        "model": name,
        **_scores(scored),
        "difference": found.difference,
        "ci_low": found.low,
        "ci_high": found.high,
        "p_value": found.p_value,
        "p_holm": math.nan,  # once all rows are known
        "rank": math.nan,  # once all rows are known
        "method": found.method,
        "block": math.nan if found.block is None else float(found.block),
        "n_clusters": found.n_clusters,
        **_costs(scored),
        **_labels(scored),
        "floor_effect": _floor_effect(scored),
        "n_impossible": int((scored.log_prob == -np.inf).sum()),
        "error": "",
    }


def _scores(scored: Scored) -> dict[str, float]:
    score, each = scored.mean("score"), [run.score for run in scored.runs]
    is_density = scored.model.measure_.unit == "frame"
    return {
        "score": score,
        "bits": -score / math.log(2),
        "perplexity": math.nan if is_density else float(np.exp(-score)),
        "train_score": scored.mean("train_score"),
        "score_sd": float(np.std(each, ddof=1)) if len(each) > 1 and np.isfinite(each).all() else math.nan,
    }


def _costs(scored: Scored) -> dict[str, float]:
    return {
        "n_parameters": scored.model.n_parameters_,
        "fit_seconds": scored.mean("fit_seconds"),
        "scoring_throughput": scored.mean("throughput"),
        "peak_memory": max(run.peak_memory for run in scored.runs),
    }


def _labels(scored: Scored) -> dict[str, Any]:
    model, history = scored.model, scored.model.history_
    return {
        "budget": in_words(scored.limits),
        "trials": len(scored.trials),
        "settings": scored.settings,
        "converged": all(run.converged for run in scored.runs),
        "steps": int(history["step"].iloc[-1]) if len(history) else 0,
        "context": math.nan if model.context_ is None else float(model.context_),
        "kind": model.measure_.kind,
        "source": _source(model),
        "floor_hits": int(history["floor_hits"].iloc[-1]) if len(history) else 0,
    }


def _failed(name: str, scored: Scored) -> dict[str, Any]:
    blank = dict.fromkeys((*FIGURES, *MEASURED, "block", "context"), math.nan)
    counts = dict.fromkeys(("n_clusters", "steps", "floor_hits", "n_impossible"), 0)
    words = dict.fromkeys(("method", "budget", "settings", "source"), "")
    state = {"trials": len(scored.trials), "converged": False, "kind": "failed", "error": scored.error}
    return {"model": name, **blank, **counts, **words, **state}


def _source(model: SequenceModel) -> str:
    if not model.measure_.conditional:
        return ""
    return "ignored" if model.ignore_source else "read"


def _difference(
    name: str,
    scored: Scored,
    base_name: str,
    base: Scored,
    test: Data,
    clusters: list[Any] | None,
) -> Difference:
    if scored is base:
        return NO_DIFFERENCE
    guilty = [n for n, s in ((name, scored), (base_name, base)) if not np.isfinite(s.log_prob).all()]
    if guilty:
        # One of the two alone holds a test sequence to be impossible and is infinitely worse; of both nothing can be said.
        difference = math.nan if len(guilty) == 2 else math.inf if guilty == [base_name] else -math.inf
        why = f"none: log p of a sequence is -inf under {' and '.join(map(repr, guilty))}"
        return Difference(difference, math.nan, math.nan, math.nan, 0, why)
    units = test.scored.n_units
    if len(units) == 1:
        return moving_block_difference(scored.steps[0], base.steps[0], n_units=float(units[0]))
    return paired_difference(scored.log_prob, base.log_prob, units, clusters)


def _tested(
    name: str,
    scored: Scored,
    base_name: str,
    base: Scored,
    test: Data,
    clusters: list[Any] | None,
    is_reference: bool,
) -> Difference:
    """The difference, with an interval and a p-value only where they are of the data."""
    found = _difference(name, scored, base_name, base, test, clusters)
    if scored is base:
        return found
    by_floor = [
        n
        for n, s, d in ((name, scored, found.difference), (base_name, base, math.nan))
        if is_set_by_floor(_floor_effect(s), d)
    ]
    if by_floor:
        why = f"none: the floor of the variances set the score of {' and '.join(map(repr, by_floor))}"
    elif is_reference:
        why = "none: a reference, not tested"
    else:
        return found
    return Difference(found.difference, math.nan, math.nan, math.nan, 0, why)


def _floor_effect(scored: Scored) -> float:
    return max(run.floor_effect for run in scored.runs)


def _warn_of_impossible(scored: Mapping[str, Scored], test: Data) -> None:
    for name, s in scored.items():
        if s.error or np.isfinite(s.log_prob).all():
            continue
        names = [str(n) for n, p in zip(test.scored.names, s.log_prob, strict=True) if not np.isfinite(p)]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warnings.warn(
            f"{name}: log p is -inf for sequence {shown}; differences to or from it have no interval", stacklevel=4
        )
