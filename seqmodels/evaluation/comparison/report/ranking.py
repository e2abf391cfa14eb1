"""The report's sections on which model is best: summary, ranking, pairs of models, and the trials of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.html import element
from seqmodels.evaluation.comparison.formatted_table import (
    ALPHA,
    models_below_reference,
    notes_on_few_steps,
    p_in_words,
    unranked_models,
    untrained_models,
)
from seqmodels.evaluation.comparison.report.elements import Section, number, picture, table, together
from seqmodels.evaluation.statistics.paired import Difference
from seqmodels.evaluation.statistics.pairwise import untested
from seqmodels.plot.pairwise import pairwise_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqmodels.evaluation.comparison.comparison_data import ComparisonData

SIGNIFICANCE = 0.05


def section(comparison: ComparisonData) -> Section:
    """Return the report's section with the ranking as a table and a forest plot, and how to read them."""
    frame = comparison.frame
    rows = frame[frame["score"].notna()]
    parts = zip(rows["model"], rows["difference"], rows["ci_low"], rows["ci_high"], strict=True)
    differences = "; ".join(_difference_in_words(*part) for part in parts)
    alt = f"Difference to the baseline of each model, best first: {differences}"
    failed = [f"{name} failed: {error}" for name, error in zip(frame["model"], frame["error"], strict=True) if error]

    def draw(width: float) -> Figure:
        return comparison.ranking_figure(width=width, title="")

    body = together(
        table(comparison.table(), "Ranking of the models"),
        picture(draw, alt, "Each model's difference to the baseline with its interval."),
        element("details", "How to read the figures", element("paragraph", comparison.how_to_read())),
        *(element("paragraph", sentence) for sentence in failed),
    )
    return Section("ranking", "Ranking", body)


def _difference_in_words(name: str, difference: float, low: float, high: float) -> str:
    interval = "" if np.isnan(low) else f" ({number(low, '+.3f')} to {number(high, '+.3f')})"
    return f"{name} {number(difference, '+.3f')}{interval}"


def pairs(comparison: ComparisonData) -> Section | None:
    """Return the report's section on the differences of all pairs of ranked models, as a matrix and as a table.

    The table is folded away. Return None if there are fewer than three ranked models.
    """
    frame = comparison.pairwise()
    if len(frame) < 2:
        return None
    names = comparison.ranked
    unit = comparison.measure.unit
    words = [_told_apart(frame["p_holm"].to_numpy(), str(frame["method"].iloc[0]))]
    if "p_best" in comparison.frame:
        best = list(comparison.frame.loc[comparison.frame["p_best"] >= ALPHA, "model"])
        if best:
            words.append(
                f"The model confidence set of 95\u00a0%, which holds the best model with that probability: "
                f"{', '.join(best)}."
            )
    cells = frame[["model", "other"]].copy()
    cells["difference"] = [number(d, "+.4f") for d in frame["difference"]]
    cells["95 % interval"] = [
        "" if np.isnan(low) else f"{number(low, '+.4f')} to {number(high, '+.4f')}"
        for low, high in zip(frame["ci_low"], frame["ci_high"], strict=True)
    ]
    for column, title in (("p_value", "p"), ("p_holm", "p (Holm)")):
        cells[title] = [p_in_words(p) for p in frame[column]]

    def draw(width: float) -> Figure:
        return pairwise_matrix(frame, names, unit=unit, width=width)

    body = together(
        element("paragraph", " ".join(words)),
        picture(draw, f"Differences of all pairs of models. {words[0]}", "Difference of each pair: row minus column."),
        element("details", f"All {len(frame)} pairs", table(cells, "Differences of all pairs of models")),
    )
    return Section("pairs", "All pairs", body)


def _told_apart(p: np.ndarray, method: str) -> str:
    """Return a sentence on how many of the tested pairs of models differ significantly.

    Args:
        p: corrected p-values of n pairs, ``(n,)``, NaN where a pair was not tested.
        method: how they were tested; it says why, if none was tested.
    """
    tested = int(np.isfinite(p).sum())
    if not tested:
        why = method.removeprefix("none: ") if method.startswith("none: ") else "there are too few test sequences"
        return f"No pair was tested ({why}), so nothing is said here of which models differ."
    apart, rest = int((p < SIGNIFICANCE).sum()), len(p) - tested
    words = f"{apart} of {tested} pairs are told apart (p below 0.05, corrected by Holm for the number of pairs)."
    return words if not rest else f"{words} {rest} more could not be tested."


def trials(comparison: ComparisonData) -> Section | None:
    """Return the report's section with every setting that the search tried, or None if there was no search."""
    tried = comparison.search
    if not len(tried):
        return None
    words = (
        "Settings were chosen on the training part alone, by cross-validation; the test part was looked at once, "
        "by the best."
    )
    formatted = tried.copy()
    for column in formatted.select_dtypes("float"):
        formatted[column] = [f"{x:.4f}" if np.isfinite(x) else "" for x in formatted[column]]
    every_trial = element("details", f"All {len(tried)} trials", table(formatted, "Trials of the search"))
    return Section("trials", "Search for settings", together(element("paragraph", words), every_trial))


# -- the summary ----------------------------------------------------------------------------------------------


def summary(comparison: ComparisonData) -> str:
    """Return a paragraph of plain text on the best model, its lead, and how certain the lead is."""
    ranked = comparison.frame[comparison.frame["rank"].notna()]
    unit = comparison.measure.unit
    unranked, untrained = unranked_models(comparison.frame), untrained_models(comparison.frame)
    if not len(ranked):
        whys = [f"the floor of the variances, not the data, set the score of {', '.join(unranked)}"] * bool(unranked)
        whys += [f"no step of training was taken by {', '.join(untrained)}"] * bool(untrained)
        return f"No model can be ranked: {'; '.join(whys)}."
    best = ranked.iloc[0]
    sentences = [f"{best['model']} explains the held-out data best: {_score_in_words(best, unit)}."]
    sentences += [_against_baseline(best, comparison.baseline, unit)] if best["model"] != comparison.baseline else []
    sentences += _against_second(comparison, ranked)
    if best["kind"] == "bound":
        sentences.append(f"Its figure is a lower bound, so {best['model']} may be better still.")
    if best["kind"] == "estimate":
        error = f"{best['score_error']:.2g} nats per {unit}"
        sentences.append(f"Its figure is an estimate, with a Monte Carlo standard error of {error}.")
    sentences += notes_on_few_steps(comparison.frame, comparison.measure)
    sentences += _against_reference(comparison, best["model"])
    sentences += _against_floors(unranked)
    if untrained:
        sentences.append(f"Not ranked: {', '.join(untrained)}, whose budget ended before the first step of training.")
    failed = comparison.frame.loc[comparison.frame["error"] != "", "model"]
    sentences += [f"Not fitted: {', '.join(failed)}."] if len(failed) else []
    return " ".join(sentences)


def _score_in_words(row: Any, unit: str) -> str:
    if unit == "frame":
        return f"{number(row['score'], '.3f')} nats per {unit}"
    return f"{number(row['bits'], '.3f')} bits per {unit} ({number(row['score'], '.3f')} nats)"


def _against_baseline(best: Any, baseline: str, unit: str) -> str:
    ahead = f"That is {number(best['difference'], '.3f')} nats per {unit} better than the baseline {baseline}"
    if str(best["method"]).startswith("none: the floor"):
        return f"{ahead}, whose score the floor of its variances made: no interval is given."
    if str(best["method"]).startswith("none: a reference"):
        return f"{ahead}."
    if str(best["method"]).startswith("none: no step"):
        return f"{ahead}, which took no step of training: no interval is given."
    if np.isnan(best["ci_low"]):
        return f"{ahead}; there are too few independent test sequences for an interval."
    interval = f"95\u00a0% interval {number(best['ci_low'], '.3f')} to {number(best['ci_high'], '.3f')}"
    corrected = best.get("p_holm", best["p_value"])
    p = _p_in_words(best["p_value"])
    if _p_in_words(corrected) != p:
        p = f"{p}; {_p_in_words(corrected)} when corrected for the number of models"
    return f"{ahead} ({interval}; {p}){_certainty(best['p_value'], corrected)}."


def _p_in_words(value: float) -> str:
    cell = p_in_words(value)
    return f"p {cell.replace('<', '< ')}" if cell.startswith("<") else f"p = {cell}"


def _certainty(alone: float, corrected: float) -> str:
    if corrected < SIGNIFICANCE:
        return ""
    if alone < SIGNIFICANCE:
        return ": that may be chance, since several models were tried"
    return ": the test data do not tell the two apart"


def _against_floors(names: list[str]) -> list[str]:
    if not names:
        return []
    return [f"Not ranked: {', '.join(names)}, for the floor of the variances, not the data, set the score."]


def _against_reference(comparison: ComparisonData, best: str) -> list[str]:
    frame = comparison.frame
    words = frame.attrs.get("iid_words", "")
    below = models_below_reference(frame)
    if best == frame.attrs.get("iid"):
        return [f"It is {words}: no model here has learned more from the order of the {comparison.measure.unit}s."]
    return [f"Worse than {words}: {', '.join(below)}."] if below else []


def _against_second(comparison: ComparisonData, ranked: Any) -> list[str]:
    """Return a list with a sentence on the best model's lead over the second; empty if the second is the baseline.

    Args:
        comparison: the comparison.
        ranked: rows of its frame that have a rank, best first.
    """
    if len(ranked) < 2 or ranked["model"].iloc[1] == comparison.baseline:  # said about the baseline already
        return []
    first, second = ranked["model"].iloc[:2]
    lead = lead_over(comparison, first, second)
    gap = f"Next is {second}, {number(lead.difference, '.3f')} nats per {comparison.measure.unit} behind"
    if np.isnan(lead.low):
        return [f"{gap}."]
    apart = "more than chance" if lead.p_value < SIGNIFICANCE else "that may be chance"
    return [f"{gap} (95\u00a0% interval {number(lead.low, '.3f')} to {number(lead.high, '.3f')}: {apart})."]


def lead_over(comparison: ComparisonData, first: str, second: str) -> Difference:
    """Return the score of one model minus the score of another as a paired difference, with interval and p-value.

    There is no interval if the clusters of the table were not saved, because sequences may then depend on each other.

    Args:
        comparison: the comparison.
        first, second: names of the two models.
    """
    n = len(comparison.test)
    metadata = comparison.test.metadata
    column = comparison.frame.attrs.get("cluster") or "cluster"
    n_saved = len(set(metadata[column])) if column in metadata else n
    lead = comparison.difference(first, second)
    if n > 1 and int(comparison.frame["n_clusters"].max()) != n_saved:
        return untested(lead.difference, "the clusters were not saved")
    return lead
