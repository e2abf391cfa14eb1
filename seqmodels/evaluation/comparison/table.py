"""The table of a comparison: its rows and differences to the baseline, its format, and its meaning in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.display import format_context
from seqmodels.encodings.preparation import Data
from seqmodels.evaluation.comparison.fit_and_score import ModelResult, is_set_by_floor
from seqmodels.evaluation.statistics.confidence_set import confidence_set_p_values
from seqmodels.evaluation.statistics.paired import Difference, holm
from seqmodels.evaluation.statistics.pairwise import model_difference, untested
from seqmodels.evaluation.tuning.search import best_of, in_words
from seqmodels.sequences import Sequences
from seqmodels.sequences.measure import Measure

if TYPE_CHECKING:
    import pandas as pd

# Figures of the clock and of the machine, in which two runs of the same comparison differ.
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
    "p_best",
)
MEASURED = ("n_parameters", *TIMES, "rank", "floor_effect")
ALPHA = 0.05  # of the model confidence set that the table shows
NO_DIFFERENCE = Difference(0.0, math.nan, math.nan, math.nan, 0, "")


def comparison_frame(
    results: Sequence[ModelResult], base: ModelResult, test: Data, clusters: list[Any] | None
) -> pd.DataFrame:
    """A row for each model, best first, then those whose score a floor made, those not trained, and those that failed.

    ``p_value`` is of the row alone, as its interval is; ``p_holm`` is corrected for the number of rows that are tested,
    which the reference is not. ``p_best`` is the MCS p-value among the rows with a rank but the reference.

    Args:
        results: of all models, the reference and the failed ones among them.
        base: the one that differences are taken to.
        test: the scored part.
        clusters: what each test sequence belongs to; None: each is its own.

    Warns of sequences that are impossible under a model, too few clusters for an interval, and scores that a floor of
    the variances made.
    """
    import pandas as pd

    _warn_of_impossible(results, test)
    rows = [_failed_row(r) if r.error else _row(r, _difference(r, base, test, clusters)) for r in results]
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p_value"].to_numpy())
    too_few = frame.loc[frame["method"].str.startswith("none: fewer"), "method"]
    if len(too_few):
        warnings.warn(f"no interval ({too_few.iloc[0]}): test on more independent sequences or clusters", stacklevel=3)
    # 0: ranked, 1: by the floor, 2: not trained, 3: failed
    frame["group"] = [_group(r, d) for r, d in zip(results, frame["difference"], strict=True)]
    tested = [
        r
        for r, group in zip(results, frame["group"], strict=True)
        if not (group or r.is_reference or _is_one_figure(r, test))
    ]
    p_best = confidence_set_p_values([r.log_prob_by_seed for r in tested], test.scored.n_units, clusters)
    frame["p_best"] = frame["model"].map(dict(zip([r.name for r in tested], p_best, strict=True))).astype(float)
    frame = frame.sort_values(["group", "score"], ascending=[True, False], kind="stable").reset_index(drop=True)
    frame["rank"] = np.where(frame["group"] == 0, np.arange(1.0, len(frame) + 1), math.nan)
    by_floor = frame[frame["group"] == 1]
    if len(by_floor):
        moved = ", ".join(f"{n} by {e:.2g}" for n, e in zip(by_floor["model"], by_floor["floor_effect"], strict=True))
        warnings.warn(
            f"scores that the floor of the variances made, which get no rank and no p-value: {moved} nats a unit when "
            "min_covariance is doubled or halved; some values repeat (X.profile() shows which): dither X before split, "
            "or leave out features with a spike",
            stacklevel=3,
        )
    no_step = list(frame.loc[frame["group"] == 2, "model"])
    if no_step:
        warnings.warn(
            f"{', '.join(no_step)}: the budget ended before the first step of training, so the score is that of the "
            "start and has no rank; give it a larger budget, or take a smaller model",
            stacklevel=3,
        )
    frame.attrs["no_step"] = no_step
    return frame.drop(columns="group")


def _group(result: ModelResult, difference: float) -> int:
    if result.error:
        return 3
    return 1 if is_set_by_floor(result.floor_effect, difference) else 0 if result.has_trained else 2


def _difference(result: ModelResult, base: ModelResult, test: Data, clusters: list[Any] | None) -> Difference:
    """To the baseline on the same sequences; with an interval and a p-value only where the data made the scores."""
    if result is base:
        return NO_DIFFERENCE
    names = (result.name, base.name)
    estimate = model_difference(result.log_prob_by_seed, base.log_prob_by_seed, test.scored.n_units, clusters, names)
    by_floor = [
        r.name
        for r, difference in ((result, estimate.difference), (base, math.nan))
        if is_set_by_floor(r.floor_effect, difference)
    ]
    if by_floor:
        why = f"the floor of the variances set the score of {' and '.join(map(repr, by_floor))}"
        return untested(estimate.difference, why)
    not_trained = [r.name for r in (result, base) if not r.has_trained]
    if not_trained:
        return untested(estimate.difference, f"no step of training was taken by {' and '.join(map(repr, not_trained))}")
    whole = [r.name for r in (result, base) if _is_one_figure(r, test)]
    if whole:
        return untested(estimate.difference, f"{' and '.join(map(repr, whole))} gives one figure for the one sequence")
    return untested(estimate.difference, "a reference, not tested") if result.is_reference else estimate


def _is_one_figure(result: ModelResult, test: Data) -> bool:
    """Whether the test part is one sequence, and the model scores sequences as a whole, as a compressor does."""
    return len(test.scored) == 1 and not result.error and not result.model._predicts_steps


def _row(result: ModelResult, difference: Difference) -> dict[str, Any]:
    model = result.model
    measure = model.measure_
    history = model.history_
    score = result.mean("score")
    seed_scores = [seed.score for seed in result.seeds]
    has_spread = len(seed_scores) > 1 and np.isfinite(seed_scores).all()
    return {
        "model": result.name,
        "score": score,
        "bits": -score / math.log(2),
        "perplexity": math.nan if measure.unit == "frame" else float(np.exp(-score)),
        "train_score": result.mean("train_score"),
        "score_sd": float(np.std(seed_scores, ddof=1)) if has_spread else math.nan,
        "difference": difference.difference,
        "ci_low": difference.low,
        "ci_high": difference.high,
        "p_value": difference.p_value,
        "p_holm": math.nan,  # set when all rows are known, as are the next two
        "p_best": math.nan,
        "rank": math.nan,
        "method": difference.method,
        "block": math.nan if difference.block is None else float(difference.block),
        "n_clusters": difference.n_clusters,
        "n_parameters": model.n_parameters_,
        "fit_seconds": result.mean("fit_seconds"),
        "scoring_throughput": result.mean("throughput"),
        "peak_memory": max(seed.peak_memory for seed in result.seeds),
        "budget": in_words(result.budget_settings),
        "trials": len(result.trials),
        "settings": in_words(best_of(result.trials).settings) if result.trials else "",
        "converged": all(seed.converged for seed in result.seeds),
        "steps": int(history["step"].iloc[-1]) if len(history) else 0,
        "context": math.nan if model.context_ is None else float(model.context_),
        "kind": measure.kind,
        "memory": measure.memory,
        "source": ("ignored" if model.ignore_source else "read") if measure.conditional else "",
        "floor_hits": int(history["floor_hits"].iloc[-1]) if len(history) else 0,
        "floor_effect": result.floor_effect,
        "n_impossible": int((result.log_prob == -np.inf).sum()),
        "error": "",
    }


def _failed_row(result: ModelResult) -> dict[str, Any]:
    figures = dict.fromkeys((*FIGURES, *MEASURED, "block", "context"), math.nan)
    counts = dict.fromkeys(("n_clusters", "steps", "floor_hits", "n_impossible"), 0)
    words = dict.fromkeys(("method", "budget", "settings", "source", "memory"), "")
    outcome = {"trials": len(result.trials), "converged": False, "kind": "failed", "error": result.error}
    return {"model": result.name, **figures, **counts, **words, **outcome}


def _warn_of_impossible(results: Sequence[ModelResult], test: Data) -> None:
    for result in results:
        if result.error or np.isfinite(result.log_prob).all():
            continue
        names = [str(n) for n, p in zip(test.scored.names, result.log_prob, strict=True) if not np.isfinite(p)]
        first = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warnings.warn(
            f"{result.name}: log p is -inf for sequence {first}; differences to or from it have no interval",
            stacklevel=4,
        )


# -- the table formatted --------------------------------------------------------------------------------------


def formatted_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that a reader needs, about 120 characters wide, without those that are the same for every model."""
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
    if "code_length" in frame:
        table["code length"] = [_format(x) for x in frame["code_length"]]
    table["parameters"] = [_format(n, ",.0f") for n in frame["n_parameters"]]
    table["fit s"] = [_format(s, ".1f") for s in frame["fit_seconds"]]
    for title, cells in _optional_columns(frame):
        table[title] = cells
    return table


def unranked_models(frame: pd.DataFrame) -> list[str]:
    """The models whose score a floor of the variances made, which have no rank."""
    unranked = list(frame.loc[frame["rank"].isna() & (frame["error"] == ""), "model"])
    return [name for name in unranked if name not in untrained_models(frame)]


def untrained_models(frame: pd.DataFrame) -> list[str]:
    """The models whose budget ended before the first step of training, which have no rank; older files have none."""
    return list(frame.attrs.get("no_step", []))


def _has_confidence_set(frame: pd.DataFrame) -> bool:
    """Whether more than two models are in it or not: of two, the p-value says all. Older files do not say."""
    return "p_best" in frame and int(frame["p_best"].notna().sum()) > 2


def models_below_reference(frame: pd.DataFrame) -> list[str]:
    """The models whose score is below that of independent steps."""
    name = frame.attrs.get("iid", "")
    level = frame.loc[frame["model"] == name, "score"]
    return list(frame.loc[frame["score"] < level.iloc[0], "model"]) if len(level) else []


def _p_columns(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of p-values, and the corrected ones where they differ; older files have only corrected ones."""
    alone = _p_cells(frame["p_value"])
    if "p_holm" not in frame:
        return {"p (Holm)": alone}
    corrected = _p_cells(frame["p_holm"])
    return {"p": alone} | ({} if alone == corrected else {"p (Holm)": corrected})


def _p_cells(values: Any) -> list[str]:
    return [p_in_words(p) for p in values]


def p_in_words(p: float) -> str:
    """A p-value with the digits that matter, never as 0; NaN as "".

    >>> [p_in_words(p) for p in (0.0, 0.00042, 0.04, math.nan)]
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
    """Whether one of the models goes on learning within a sequence; older files have static ones only."""
    return "memory" in frame and bool((frame["memory"] == "adaptive").any())


def _optional_columns(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Columns that are shown only where they tell models apart, or warn."""
    columns = []
    if frame["context"].notna().any():
        columns.append(("context", list(map(format_context, frame["context"]))))
    if (frame["kind"] == "bound").any():
        columns.append(("kind", list(frame["kind"])))
    if is_any_adaptive(frame):
        columns.append(("memory", list(frame["memory"])))
    untrained = untrained_models(frame)
    if untrained:
        steps = zip(frame["model"], frame["steps"], strict=True)
        columns.append(("steps", ["no step" if name in untrained else f"{n:,.0f}" for name, n in steps]))
    if (frame["source"] == "ignored").any():
        columns.append(("source", list(frame["source"])))
    if frame["score_sd"].notna().any():
        columns.append(("sd of seeds", [_format(s) for s in frame["score_sd"]]))
    counts = {"trials": "trials", "floor_hits": "floor hits", "n_impossible": "impossible", "n_unseen": "unseen"}
    return columns + [
        (title, [f"{int(n)}" for n in frame[name]])
        for name, title in counts.items()
        if name in frame and frame[name].any()  # older files have no n_unseen
    ]


def how_to_read(frame: pd.DataFrame, measure: Measure, test: Sequences) -> str:
    """What the figures mean, in words."""
    n = len(test)
    given = "of y given x, " if measure.conditional else ""
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
    """Sentences that apply to this table."""
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
    if (frame["kind"] == "bound").any():
        notes.append('A "bound" is a lower bound: the model may be better than it says.')
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


def _format(value: float, form: str = ".4f") -> str:
    return "" if np.isnan(value) else format(value, form)
