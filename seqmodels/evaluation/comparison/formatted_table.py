"""The table of a comparison: its columns formatted for a reader, and the notes that explain them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.display import format_context
from seqmodels.evaluation.statistics.tails import INFINITE_VARIANCE
from seqmodels.sequences import Sequences
from seqmodels.sequences.measure import Measure

if TYPE_CHECKING:
    import pandas as pd

LINE_WIDTH = 120  # characters
LEAST_NEEDED = ("weight", "largest 1 %", "Pareto k")  # columns of a table that is too wide, the first to go first
MOST_ROWS = 3  # that the notes speak of, where few steps decide
DECISIVE_SHARE = 0.5  # share of a difference above which the largest steps decide it
ALPHA = 0.05  # the model confidence set that the table shows has level 1 - ALPHA


def formatted_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the main columns of a comparison's ``frame`` as text, a frame with a row for each model.

    It is about 120 characters wide, for which the weights, and the figures on the largest steps, are left out where
    other columns take the room. Optional columns are left out if they are the same for every model.
    """
    import pandas as pd

    base = str(frame.attrs["baseline"])
    table = pd.DataFrame({"model": frame["model"]})
    if unranked_models(frame) or untrained_models(frame):
        table.insert(0, "rank", [_format(r, ".0f") for r in frame["rank"]])
    table["score"] = [_format(x) for x in frame["score"]]
    if _has_confidence_set(frame):
        marks = ["*" if p >= ALPHA else " " for p in frame["p_best"]]
        table["score"] = [f"{score}{mark}" if score else "" for score, mark in zip(table["score"], marks, strict=True)]
    if frame["perplexity"].notna().any():
        table["perplexity"] = [_format(x, ".4g") for x in frame["perplexity"]]
    table["difference"] = [
        "(baseline)" if name == base else _format(d, "+.4f") for name, d in _columns(frame, "model", "difference")
    ]
    table["95 % interval"] = [
        "" if np.isnan(low) else f"{low:+.4f} to {high:+.4f}" for low, high in _columns(frame, "ci_low", "ci_high")
    ]
    for title, cells in _p_columns(frame).items():
        table[title] = cells
    if _has_weights(frame):
        table["weight"] = [_format(x, ".2f") for x in frame["stacking_weight"]]
    if "code_length" in frame:
        table["code length"] = [_format(x) for x in frame["code_length"]]
    table["parameters"] = [_format(n, ",.0f") for n in frame["n_parameters"]]
    table["fit s"] = [_format(s, ".1f") for s in frame["fit_seconds"]]
    for title, cells in _optional_columns(frame):
        table[title] = cells
    return _narrowed(table)


def _narrowed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without as many of ``LEAST_NEEDED`` as it takes to print it in ``LINE_WIDTH`` characters."""
    for title in LEAST_NEEDED:
        if len(table.to_string(index=False).partition("\n")[0]) <= LINE_WIDTH:
            return table
        table = table.drop(columns=title, errors="ignore")
    return table


def unranked_models(frame: pd.DataFrame) -> list[str]:
    """Return the names of the models without a rank because the least variance allowed (the floor) set their score.

    Args:
        frame: the frame of a comparison.
    """
    unranked = list(frame.loc[frame["rank"].isna() & (frame["error"] == ""), "model"])
    return [name for name in unranked if name not in untrained_models(frame)]


def untrained_models(frame: pd.DataFrame) -> list[str]:
    """Return the names of the models without a rank because the budget ended before the first step of training.

    Frames of older versions do not record it; for them the list is empty.

    Args:
        frame: the frame of a comparison.
    """
    return list(frame.attrs.get("no_step", []))


def _has_confidence_set(frame: pd.DataFrame) -> bool:
    """Return True if the model confidence set covers more than two models; with two, the p-value says the same.

    Frames of older versions have no confidence set.

    Args:
        frame: the frame of a comparison.
    """
    return "p_best" in frame and int(frame["p_best"].notna().sum()) > 2


def _has_weights(frame: pd.DataFrame) -> bool:
    """Return True if two models or more have stacking weights; frames of older versions have none."""
    return "stacking_weight" in frame and int(frame["stacking_weight"].notna().sum()) > 1


def decided_by_few(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the ranked rows of a comparison's frame whose difference to the baseline few steps decide.

    That is so if the variance of the differences of single steps is infinite (Pareto k is 0.5 or more), or if more than
    half of a significant difference comes from the 1 % of steps where it is largest. Frames of older versions have no
    such rows.

    Args:
        frame: the frame of a comparison.
    """
    if "pareto_k" not in frame:
        return frame.iloc[:0]
    is_carried = (frame["p_value"] < ALPHA) & (frame["largest_share"] > DECISIVE_SHARE)
    is_added = bool(frame.attrs.get("iid_added")) & (frame["model"] == frame.attrs.get("iid"))
    return frame[((frame["pareto_k"] >= INFINITE_VARIANCE) | is_carried) & frame["rank"].notna() & ~is_added]


def notes_on_few_steps(frame: pd.DataFrame, measure: Measure) -> list[str]:
    """Return a sentence for each row of a comparison's frame whose difference few steps decide, at most ``MOST_ROWS``.

    Args:
        frame: the frame of the comparison.
        measure: what its scores measure, such as the unit.
    """
    rows = decided_by_few(frame)
    sentences = []
    for row in rows.head(MOST_ROWS).to_dict("records"):
        sentence = (
            f"The 1 % of steps where {row['model']} and {frame.attrs['baseline']} differ most make "
            f"{_in_percent(row['largest_share'])} of their difference; over the others it is "
            f"{row['difference_of_rest']:+.4f} nats per {measure.unit}."
        )
        if row["pareto_k"] >= INFINITE_VARIANCE:
            sentence += (
                f" No interval of it is to be trusted: its variance is infinite (Pareto k {row['pareto_k']:.2f}), so "
                "that one step of other data may move the difference beyond."
            )
        sentences.append(sentence)
    n_more = len(rows) - len(sentences)
    return sentences + [f"So it is with {n_more} more."] * (n_more > 0)


def models_below_reference(frame: pd.DataFrame) -> list[str]:
    """Return the names of the models whose score is below that of ``iid``, the reference of independent steps.

    Args:
        frame: the frame of a comparison.
    """
    name = frame.attrs.get("iid", "")
    level = frame.loc[frame["model"] == name, "score"]
    return list(frame.loc[frame["score"] < level.iloc[0], "model"]) if len(level) else []


def _p_columns(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return the columns of p-values as text, by title; corrected p-values have a column of their own if they differ.

    Frames of older versions have corrected p-values only.

    Args:
        frame: the frame of a comparison.
    """
    alone = _p_cells(frame["p_value"])
    if "p_holm" not in frame:
        return {"p (Holm)": alone}
    corrected = _p_cells(frame["p_holm"])
    return {"p": alone} | ({} if alone == corrected else {"p (Holm)": corrected})


def _p_cells(values: Any) -> list[str]:
    return [p_in_words(p) for p in values]


def p_in_words(p: float) -> str:
    """Return a p-value as text with the digits that matter: never 0, and empty for NaN.

    >>> [p_in_words(p) for p in (0.0, 0.00042, 0.04, float("nan"))]
    ['<1e-4', '0.0004', '0.040', '']
    """
    return "<1e-4" if p < 1e-4 else _format(p, ".4f" if p < 1e-3 else ".3f")


def _p_values_in_words(frame: pd.DataFrame) -> str:
    columns = _p_columns(frame)
    sentences = []
    if "p" in columns:
        sentences.append(
            "p: two-sided, of that model alone, as its interval is: below 0.05 where the interval leaves out zero."
        )
    if "p (Holm)" in columns:
        sentences.append(
            "p (Holm): corrected for the number of models; below 0.05 it is not chance, though many were tried."
        )
    return "".join(f" {sentence}" for sentence in sentences)


def is_any_adaptive(frame: pd.DataFrame) -> bool:
    """Return True if one of the models goes on learning within a sequence; in frames of older versions none does.

    Args:
        frame: the frame of a comparison.
    """
    return "memory" in frame and bool((frame["memory"] == "adaptive").any())


def _optional_columns(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the columns that not every table has, as pairs of a title and its cells.

    One is shown if any model has something to say in it, such as a context, a Monte Carlo error, the sd of several
    seeds or a warning; inputs and the encoding if the frame has them.

    Args:
        frame: the frame of a comparison.
    """
    columns = []
    if len(decided_by_few(frame)):
        columns.append(("largest 1 %", [_in_percent(x) for x in frame["largest_share"]]))
        columns.append(("Pareto k", [_format(k, ".2f") for k in frame["pareto_k"]]))
    if frame["context"].notna().any():
        columns.append(("context", list(map(format_context, frame["context"]))))
    if (frame["kind"].isin(["bound", "estimate"])).any():
        columns.append(("kind", list(frame["kind"])))
    if "score_error" in frame and frame["score_error"].notna().any():  # older files have none
        columns.append(("MC error", [_format(e) for e in frame["score_error"]]))
    if is_any_adaptive(frame):
        columns.append(("memory", list(frame["memory"])))
    untrained = untrained_models(frame)
    if untrained:
        steps = zip(frame["model"], frame["steps"], strict=True)
        columns.append(("steps", ["no step" if name in untrained else f"{n:,.0f}" for name, n in steps]))
    if (frame["source"] == "ignored").any():
        columns.append(("source", list(frame["source"])))
    if "inputs" in frame:
        columns.append(("inputs", list(frame["inputs"])))
    if "encoding" in frame:
        columns.append(("encoding", list(frame["encoding"])))
    if frame["score_sd"].notna().any():
        columns.append(("sd of seeds", [_format(s) for s in frame["score_sd"]]))
    counts = {"trials": "trials", "floor_hits": "floor hits", "n_impossible": "impossible", "n_unseen": "unseen"}
    return columns + [
        (title, [f"{int(n)}" for n in frame[name]])
        for name, title in counts.items()
        if name in frame and frame[name].any()  # older files have no n_unseen
    ]


def how_to_read(frame: pd.DataFrame, measure: Measure, test: Sequences) -> str:
    """Return a paragraph that explains the figures of a comparison's table: unit, test sequences, intervals and notes.

    Args:
        frame: the frame of the comparison.
        measure: what its scores measure, such as the unit.
        test: the scored sequences.
    """
    n = len(test)
    given = "of y given x, " if measure.conditional else "of p(x | inputs) or p(x), " if "inputs" in frame else ""
    ends = "lengths are given" if measure.length == "given" else "the end of each sequence is scored too"
    n_before = int(test.n_units_of_past.sum())
    past = f", given the {n_before:,} {measure.unit}s that came before {'it' if n == 1 else 'them'}" if n_before else ""
    first = (
        f"score: nats per {measure.unit} {given}on {n} held-out sequence{'s' * (n != 1)} ({int(test.n_units.sum()):,} "
        f"{measure.unit}s{past}); higher is better; {ends}."
    )
    second = f"difference: score minus that of {frame.attrs['baseline']!r} on the same sequences."
    return " ".join([first, second, *_notes(frame, measure)])


def _notes(frame: pd.DataFrame, measure: Measure) -> list[str]:
    """Return the notes that apply to the table of a comparison, each a sentence or two.

    Args:
        frame: the frame of the comparison.
        measure: what its scores measure, such as the unit.
    """
    notes = []
    if frame["perplexity"].notna().any():
        notes.append(f"perplexity: exp(-score), per {measure.unit}; lower is better, as are bits (-score / log 2).")
    explained_below = ("moving", "none: the floor", "none: a reference", "none: no step")
    methods = sorted({x for x in frame["method"] if x and not x.startswith(explained_below)})
    if frame["block"].notna().any():
        lengths = sorted({f"{frame['block'].min():.0f}", f"{frame['block'].max():.0f}"}, key=int)
        and_seeds = " and seeds" if frame["method"].str.endswith("and seeds").any() else ""
        methods.append(f"moving blocks of {' to '.join(lengths)} steps{and_seeds}")
    if methods:
        notes.append(f"Intervals (95 %): {'; '.join(methods)}.{_p_values_in_words(frame)}")
    if _has_confidence_set(frame):
        notes.append("*: in the model confidence set, which holds the best model with a probability of 95 %.")
    if "weight" in formatted_table(frame):
        when = "for each sequence" if (frame["kind"] == "bound").any() else "at each step"
        notes.append(
            f"weight: that of the mixture of the models, mixed anew {when}, which predicts the held-out data best "
            "(stacking)."
        )
    notes += notes_on_few_steps(frame, measure)
    notes += _notes_on_floors(frame, measure) + _notes_on_untrained(frame) + _notes_on_reference(frame)
    if frame["score_sd"].notna().any():
        holds = (
            "hold the spread over both"
            if frame["method"].str.contains("seeds").any()
            else ("do not hold the spread over seeds")
        )
        notes.append(
            f"Scores are means over {frame.attrs['seeds']} seeds; intervals are over test sequences and {holds}; sd of "
            "seeds: the standard deviation of a score."
        )
    if "code_length" in frame:
        notes.append(
            f"code length: nats per {measure.unit} of the training part, coded from nothing by a model that is fitted "
            "again and again to what came before; lower is better."
        )
    if frame["context"].notna().any():
        notes.append("context: how many steps back a model sees; what more would give it is not in its score.")
    if "inputs" in frame:
        notes.append(
            "inputs: what a model was given at each step beside the sequence; with inputs its score is of "
            'p(x | inputs), with "none" of p(x). Both are of the same x, but the one was told more.'
        )
    if "encoding" in frame:
        notes.append(
            "encoding: how a model reads the series, where the data decided it (differences of a series that wanders, "
            "grows or has seasons); every score is of the raw values."
        )
    if (frame["kind"] == "bound").any():
        notes.append('A "bound" is a lower bound: the model may be better than it says.')
    if (frame["kind"] == "estimate").any():
        notes.append(
            'An "estimate" is a mean over draws, of parameters from their posterior or of hidden paths; MC error: its '
            f"Monte Carlo standard error in nats per {measure.unit}, which intervals and p do not hold."
        )
    if is_any_adaptive(frame):
        notes.append(
            'memory: an "adaptive" model goes on learning from what it has read of the same sequence, each step scored '
            "before it is learned from; at the start of every sequence it is the fitted model again."
        )
    tested = frame if not frame.attrs.get("iid_added") else frame[frame["model"] != frame.attrs["iid"]]
    free = tested.loc[(tested["budget"] == "") & (tested["error"] == ""), "model"]
    if len(free) and (frame["budget"] != "").any():
        notes.append(f"The budget has no hold on {', '.join(free)}.")
    if frame["trials"].any():
        notes.append("trials: settings tried on folds of the training part before the one look at the held-out part.")
    notes += _notes_on_unseen(frame)
    if frame.attrs["n_duplicates"]:
        notes.append(f"{frame.attrs['n_duplicates']} of the held-out sequences also occur in the training part.")
    notes += _notes_on_near_duplicates(frame, measure)
    return notes


def _notes_on_near_duplicates(frame: pd.DataFrame, measure: Measure) -> list[str]:
    n = frame.attrs.get("n_near_duplicates", 0)  # older files do not say
    if not n:
        return []
    window = f"windows of {frame.attrs['shingle']} {measure.unit}s"
    if frame.attrs.get("shingle_of_inputs"):
        window += f", and of {frame.attrs['shingle_of_inputs']} steps of their inputs,"
    return [
        f"{n} {'more of the' if frame.attrs['n_duplicates'] else 'of the'} held-out sequences share more than half of "
        f"their {window} with the training part."
    ]


def _notes_on_unseen(frame: pd.DataFrame) -> list[str]:
    n = int(frame["n_unseen"].max()) if "n_unseen" in frame else 0
    if not n:
        return []
    first = f"unseen: {n} of the held-out symbols {'is' if n == 1 else 'are'} not in the training part."
    opened = frame.attrs.get("opened", [])
    if not opened:
        return [first]
    return [
        f"{first} {', '.join(opened)}: the probability of such a symbol is that of one class for all of them, learned "
        "from the symbols that training has once, times 1 / (k (k + 1)) for the k-th integer that is not known; so it "
        "is the same rule for all, and the probabilities of all symbols sum to one."
    ]


def _notes_on_floors(frame: pd.DataFrame, measure: Measure) -> list[str]:
    names = unranked_models(frame)
    if not names:
        return []
    most = frame.loc[frame["model"].isin(names), "floor_effect"].max()
    not_ranked = (
        f"Not ranked, and without p: {', '.join(names)}. The floor of the variances (min_covariance), not the data, "
        f"set the score: doubled or halved it moves the score by up to {most:.2g} nats per {measure.unit}, for values "
        "of the data repeat."
    )
    no_intervals = f"As the baseline {frame.attrs['baseline']!r} is one of them, no row has an interval."
    return [not_ranked, no_intervals] if frame.attrs["baseline"] in names else [not_ranked]


def _notes_on_untrained(frame: pd.DataFrame) -> list[str]:
    names = untrained_models(frame)
    if not names:
        return []
    why = "the budget ended before the first step of training, so the score is that of the start, not of a fitted model"
    without = f"Not ranked, and without p: {', '.join(names)} (no step): {why}."
    if frame.attrs["baseline"] in names:
        return [without, f"As the baseline {frame.attrs['baseline']!r} is one of them, no row has an interval."]
    return [without]


def _notes_on_reference(frame: pd.DataFrame) -> list[str]:
    name, words, note = (frame.attrs.get(key, "") for key in ("iid", "iid_words", "iid_note"))
    notes = [note] if note else []
    if frame.attrs.get("iid_added"):
        notes.append(f"{name}: {words}, whatever came before; a reference, which is not tested.")
    below = models_below_reference(frame)
    return [*notes, f"Worse than {words}: {', '.join(below)}."] if below else notes


def _columns(frame: pd.DataFrame, *names: str) -> Any:
    return zip(*(frame[name] for name in names), strict=True)


def _in_percent(share: float) -> str:
    return "" if np.isnan(share) else f"{100 * share:.0f} %"


def _format(value: float, form: str = ".4f") -> str:
    return "" if np.isnan(value) else format(value, form)
