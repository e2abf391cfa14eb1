"""The answer in words: which model, by how much, how sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.evaluation.report.html import number
from seqmodels.evaluation.shown import below_iid, by_floor
from seqmodels.evaluation.statistics import Difference, moving_block_difference, paired_difference

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

SURE = 0.05


def answer(comparison: Comparison) -> str:
    """One paragraph of plain text."""
    scored = comparison.frame[comparison.frame["rank"].notna()]
    unit, unranked = comparison.measure.unit, by_floor(comparison.frame)
    if not len(scored):
        return (
            f"No model can be ranked: the floor of the variances, not the data, set the score of {', '.join(unranked)}."
        )
    best = scored.iloc[0]
    sentences = [f"{best['model']} explains the held-out data best: {_of(best, unit)}."]
    sentences += [_against_baseline(best, comparison.baseline, unit)] if best["model"] != comparison.baseline else []
    sentences += _against_second(comparison, scored, unit)
    if best["kind"] == "bound":
        sentences.append(f"Its figure is a lower bound, so {best['model']} may be better still.")
    sentences += _against_iid(comparison, best["model"])
    sentences += _against_floors(unranked)
    failed = comparison.frame.loc[comparison.frame["error"] != "", "model"]
    sentences += [f"Not fitted: {', '.join(failed)}."] if len(failed) else []
    return " ".join(sentences)


def _of(row: Any, unit: str) -> str:
    if unit == "frame":
        return f"{number(row['score'], '.3f')} nats per {unit}"
    return f"{number(row['bits'], '.3f')} bits per {unit} ({number(row['score'], '.3f')} nats)"


def _against_baseline(best: Any, baseline: str, unit: str) -> str:
    ahead = f"That is {number(best['difference'], '.3f')} nats per {unit} better than the baseline {baseline}"
    if str(best["method"]).startswith("none: the floor"):
        return f"{ahead}, whose score the floor of its variances made: no interval is given."
    if str(best["method"]).startswith("none: a reference"):
        return f"{ahead}."
    if np.isnan(best["ci_low"]):
        return f"{ahead}; there are too few independent test sequences for an interval."
    interval = f"95\u00a0% interval {number(best['ci_low'], '.3f')} to {number(best['ci_high'], '.3f')}"
    alone, corrected = _p(best["p_value"]), best.get("p_holm", best["p_value"])
    p = alone if _p(corrected) == alone else f"{alone}; {_p(corrected)} when corrected for the number of models"
    return f"{ahead} ({interval}; {p}){_how_sure(best['p_value'], corrected)}."


def _p(value: float) -> str:
    return "p < 0.001" if value < 1e-3 else f"p = {number(value, '.3f')}"


def _how_sure(alone: float, corrected: float) -> str:
    if corrected < SURE:
        return ""
    if alone < SURE:
        return ": that may be chance, since several models were tried"
    return ": the test data do not tell the two apart"


def _against_floors(names: list[str]) -> list[str]:
    if not names:
        return []
    return [f"Not ranked: {', '.join(names)}, for the floor of the variances, not the data, set the score."]


def _against_iid(comparison: Comparison, best: str) -> list[str]:
    frame = comparison.frame
    words, below = frame.attrs.get("iid_words", ""), below_iid(frame)
    if best == frame.attrs.get("iid"):
        return [f"It is {words}: no model here has learned more from the order of the {comparison.measure.unit}s."]
    return [f"Worse than {words}: {', '.join(below)}."] if below else []


def _against_second(comparison: Comparison, scored: Any, unit: str) -> list[str]:
    """The lead over the runner-up, which the table does not hold unless that is the baseline."""
    if len(scored) < 2 or scored["model"].iloc[1] == comparison.baseline:  # said already
        return []
    first, second = scored["model"].iloc[:2]
    lead = lead_over(comparison, first, second)
    gap = f"Next is {second}, {number(lead.difference, '.3f')} behind"
    if np.isnan(lead.low):
        return [f"{gap}."]
    apart = "more than chance" if lead.p_value < SURE else "that may be chance"
    return [f"{gap} (95\u00a0% interval {number(lead.low, '.3f')} to {number(lead.high, '.3f')}: {apart})."]


def lead_over(comparison: Comparison, first: str, second: str) -> Difference:
    """The first model minus the second, paired as in the table; no interval where the table's clusters are not the test part's own."""
    steps, units = comparison.log_prob_steps, comparison.test.n_units
    ours, theirs = (np.array([s.sum() for s in steps[name]]) for name in (first, second))
    known, column = comparison.test.metadata, comparison.frame.attrs.get("cluster") or "cluster"
    clusters = list(known[column]) if column in known else None
    n_clusters = int(comparison.frame["n_clusters"].max())
    possible = np.isfinite(ours).all(), np.isfinite(theirs).all()
    if not all(possible):
        difference = np.inf if possible[0] else -np.inf if possible[1] else np.nan
        return Difference(difference, np.nan, np.nan, np.nan, 0, "none")
    if len(units) == 1:
        return moving_block_difference(steps[first][0], steps[second][0], n_units=float(units[0]))
    if n_clusters != (len(units) if clusters is None else len(set(clusters))):
        return Difference(float((ours - theirs).sum() / units.sum()), np.nan, np.nan, np.nan, 0, "none")
    return paired_difference(ours, theirs, units, clusters)
