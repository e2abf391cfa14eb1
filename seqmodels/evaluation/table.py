"""The frame of a comparison: a row a model, its figures, and its difference to the baseline on the same sequences."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from seqmodels.evaluation.fitting import Scored
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
MEASURED = ("n_parameters", *TIMES)
NO_DIFFERENCE = Difference(0.0, math.nan, math.nan, math.nan, 0, "")


def frame_of(scored: Mapping[str, Scored], base: Scored, test: Data, clusters: list[Any] | None) -> pd.DataFrame:
    """All rows, best first; ``p_value`` is of the row alone, as its interval is, ``p_holm`` is corrected for the number of rows."""
    rows = [
        _failed(name, s) if s.error else _row(name, s, _difference(name, s, base, test, clusters))
        for name, s in scored.items()
    ]
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p_value"].to_numpy())
    too_few = frame.loc[frame["method"].str.startswith("none: fewer"), "method"]
    if len(too_few):
        warnings.warn(f"no interval ({too_few.iloc[0]}): test on more independent sequences or clusters", stacklevel=3)
    return frame.sort_values("score", ascending=False, kind="stable", na_position="last").reset_index(drop=True)


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
        "p_holm": math.nan,  # known when all rows are
        "method": found.method,
        "block": math.nan if found.block is None else float(found.block),
        "n_clusters": found.n_clusters,
        **_costs(scored),
        **_labels(scored),
        "n_impossible": int((scored.log_prob == -np.inf).sum()),
        "error": "",
    }


def _scores(scored: Scored) -> dict[str, float]:
    score, each = scored.mean("score"), [run.score for run in scored.runs]
    is_density = scored.model.measure_.unit == "frame"
    return {
        "score": score,
        "bits": score / math.log(2),
        "perplexity": math.nan if is_density else float(np.exp(-score)),
        "train_score": scored.mean("train_score"),
        "score_sd": float(np.std(each, ddof=1)) if len(each) > 1 else math.nan,
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


def _difference(name: str, scored: Scored, base: Scored, test: Data, clusters: list[Any] | None) -> Difference:
    if scored is base:
        return NO_DIFFERENCE
    finite = np.isfinite(scored.log_prob) & np.isfinite(base.log_prob)
    if not finite.all():
        names = [str(n) for n, ok in zip(test.scored.names, finite, strict=True) if not ok]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warnings.warn(f"{name}: log p is -inf for sequence {shown}; no interval is given", stacklevel=5)
        return Difference(-math.inf, math.nan, math.nan, math.nan, 0, "none: log p of a sequence is -inf")
    units = test.scored.n_units
    if len(units) == 1:
        return moving_block_difference(scored.steps[0], base.steps[0], n_units=float(units[0]))
    return paired_difference(scored.log_prob, base.log_prob, units, clusters)
