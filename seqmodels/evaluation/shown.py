"""A comparison for the eye: the columns that a reader needs, and how to read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from seqmodels.measure import Measure
from seqmodels.sequences import Sequences


def shown_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Formatted, at most about 120 characters wide; a column that would say the same of every model is left out."""
    base = str(frame.attrs["baseline"])
    shown = pd.DataFrame({"model": frame["model"]})
    if by_floor(frame):
        shown.insert(0, "rank", [_number(r, ".0f") for r in frame["rank"]])
    shown["score"] = [_number(x) for x in frame["score"]]
    if frame["perplexity"].notna().any():
        shown["perplexity"] = [_number(x, ".4g") for x in frame["perplexity"]]
    shown["difference"] = [
        "(baseline)" if name == base else _number(d, "+.4f") for name, d in _columns(frame, "model", "difference")
    ]
    shown["95 % interval"] = [
        "" if np.isnan(low) else f"{low:+.4f} to {high:+.4f}" for low, high in _columns(frame, "ci_low", "ci_high")
    ]
    for title, cells in _p_columns(frame).items():
        shown[title] = cells
    shown["parameters"] = [_number(n, ",.0f") for n in frame["n_parameters"]]
    shown["fit s"] = [_number(s, ".1f") for s in frame["fit_seconds"]]
    for title, cells in _sometimes(frame):
        shown[title] = cells
    return shown


def by_floor(frame: pd.DataFrame) -> list[str]:
    """The models whose score a floor of the variances made, which have no rank."""
    return list(frame.loc[frame["rank"].isna() & (frame["error"] == ""), "model"])


def below_iid(frame: pd.DataFrame) -> list[str]:
    """The models that are worse than independent steps."""
    name = frame.attrs.get("iid", "")
    level = frame.loc[frame["model"] == name, "score"]
    return list(frame.loc[frame["score"] < level.iloc[0], "model"]) if len(level) else []


def _p_columns(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of p-values, the corrected one where it differs; of a comparison saved when there was one column, that was corrected."""
    alone = _p_cells(frame["p_value"])
    if "p_holm" not in frame:
        return {"p (Holm)": alone}
    corrected = _p_cells(frame["p_holm"])
    return {"p": alone} | ({} if alone == corrected else {"p (Holm)": corrected})


def _p_cells(values: Any) -> list[str]:
    return ["<0.001" if p < 1e-3 else _number(p, ".3f") for p in values]


def _p_in_words(frame: pd.DataFrame) -> str:
    columns = _p_columns(frame)
    said = []
    if "p" in columns:
        said.append(
            "p: two-sided, of that model alone, as its interval is: below 0.05 where the interval leaves out zero."
        )
    if "p (Holm)" in columns:
        said.append(
            "p (Holm): corrected for the number of models; below 0.05 it is not chance, though many were tried."
        )
    return "".join(f" {sentence}" for sentence in said)


def context_shown(steps: float) -> str:
    """How many steps back a model sees, as tables and pictures say it; NaN: all."""
    return "all" if np.isnan(steps) else str(int(steps))


def _sometimes(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Columns that are shown where they tell models apart, or warn."""
    columns = []
    if frame["context"].notna().any():
        columns.append(("context", list(map(context_shown, frame["context"]))))
    if (frame["kind"] == "bound").any():
        columns.append(("kind", list(frame["kind"])))
    if (frame["source"] == "ignored").any():
        columns.append(("source", list(frame["source"])))
    if frame["score_sd"].notna().any():
        columns.append(("sd of seeds", [_number(s) for s in frame["score_sd"]]))
    counts = {"trials": "trials", "floor_hits": "floor hits", "n_impossible": "impossible"}
    return columns + [
        (title, [f"{int(n)}" for n in frame[name]]) for name, title in counts.items() if frame[name].any()
    ]


def how_to_read(frame: pd.DataFrame, measure: Measure, test: Sequences) -> str:
    """What the figures mean, in words."""
    n = len(test)
    given = "of y given x, " if measure.conditional else ""
    ends = "lengths are given" if measure.length == "given" else "the end of each sequence is scored too"
    first = (
        f"score: nats per {measure.unit} {given}on {n} held-out sequence{'s' * (n != 1)} ({int(test.n_units.sum()):,} {measure.unit}s); "
        f"higher is better; {ends}."
    )
    second = f"difference: score minus that of {frame.attrs['baseline']!r} on the same sequences."
    return " ".join([first, second, *_notes(frame, measure)])


def _notes(frame: pd.DataFrame, measure: Measure) -> list[str]:
    """Sentences, each where there is reason for it."""
    notes = []
    if frame["perplexity"].notna().any():
        notes.append(f"perplexity: exp(-score), per {measure.unit}; lower is better, as are bits (-score / log 2).")
    said_below = ("moving", "none: the floor", "none: a reference")
    methods = sorted({x for x in frame["method"] if x and not x.startswith(said_below)})
    if frame["block"].notna().any():
        methods.append(f"moving blocks of {frame['block'].min():.0f} to {frame['block'].max():.0f} steps")
    if methods:
        notes.append(f"Intervals (95 %): {'; '.join(methods)}.{_p_in_words(frame)}")
    notes += _about_floors(frame, measure) + _about_iid(frame)
    if frame["score_sd"].notna().any():
        notes.append(
            f"Scores are means over {frame.attrs['seeds']} seeds; intervals are over test sequences and do not hold the spread over "
            "seeds, which is a column of its own."
        )
    if frame["context"].notna().any():
        notes.append("context: how many steps back a model sees; what more would give it is not in its score.")
    if (frame["kind"] == "bound").any():
        notes.append('A "bound" is a lower bound: the model may be better than it says.')
    contestants = frame if not frame.attrs.get("iid_added") else frame[frame["model"] != frame.attrs["iid"]]
    free = contestants.loc[(contestants["budget"] == "") & (contestants["error"] == ""), "model"]
    if len(free) and (frame["budget"] != "").any():
        notes.append(f"The budget has no hold on {', '.join(free)}.")
    if frame["trials"].any():
        notes.append("trials: settings tried on folds of the training part before the one look at the held-out part.")
    if frame.attrs["n_duplicates"]:
        notes.append(f"{frame.attrs['n_duplicates']} of the held-out sequences also occur in the training part.")
    return notes


def _about_floors(frame: pd.DataFrame, measure: Measure) -> list[str]:
    names = by_floor(frame)
    if not names:
        return []
    most = frame.loc[frame["model"].isin(names), "floor_effect"].max()
    said = (
        f"Not ranked, and without p: {', '.join(names)}. The floor of the variances (min_covariance), not the data, set the score: doubled or "
        f"halved it moves the score by up to {most:.2g} nats per {measure.unit}, for values of the data repeat."
    )
    of_all = f"As the baseline {frame.attrs['baseline']!r} is one of them, no row has an interval."
    return [said, of_all] if frame.attrs["baseline"] in names else [said]


def _about_iid(frame: pd.DataFrame) -> list[str]:
    name, words, note = (frame.attrs.get(key, "") for key in ("iid", "iid_words", "iid_note"))
    notes = [note] if note else []
    if frame.attrs.get("iid_added"):
        notes.append(f"{name}: {words}, whatever came before; a reference, which is not tested.")
    below = below_iid(frame)
    return [*notes, f"Worse than {words}: {', '.join(below)}."] if below else notes


def _columns(frame: pd.DataFrame, *names: str) -> Any:
    return zip(*(frame[name] for name in names), strict=True)


def _number(value: float, form: str = ".4f") -> str:
    return "" if np.isnan(value) else format(value, form)
