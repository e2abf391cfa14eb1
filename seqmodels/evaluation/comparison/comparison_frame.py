"""The rows of a comparison's frame: the figures of each model, and its difference to the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.encodings import AutoSeries, Encoding
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.comparison.model_results import ModelResult
from seqmodels.evaluation.comparison.variance_floor import is_set_by_floor
from seqmodels.evaluation.statistics.confidence_set import confidence_set_p_values
from seqmodels.evaluation.statistics.paired import Difference, holm
from seqmodels.evaluation.statistics.pairwise import model_difference, untested
from seqmodels.evaluation.statistics.stacking import stacking_weights, steps_of_models
from seqmodels.evaluation.statistics.tails import INFINITE_VARIANCE, StepTails, difference_tails
from seqmodels.evaluation.tuning.search import best_of, in_words

if TYPE_CHECKING:
    import pandas as pd

# Columns that depend on the clock and the machine, so that two runs of the same comparison differ in them.
TIMES = ("fit_seconds", "scoring_throughput", "peak_memory")
FIGURES = (
    "score",
    "bits",
    "bits_low",
    "bits_high",
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
TAILS = ("largest_share", "difference_of_rest", "pareto_k")
MEASURED = ("n_parameters", *TIMES, "rank", "floor_effect")
NO_TAILS = StepTails(0, math.nan, math.nan, math.nan)
NO_DIFFERENCE = Difference(0.0, math.nan, math.nan, math.nan, 0, "")


def comparison_frame(
    results: Sequence[ModelResult], base: ModelResult, test: Data, clusters: list[Any] | None
) -> pd.DataFrame:
    """Return the frame of a comparison, a row for each model, in the columns that ``Comparison`` describes.

    Ranked models come first, best score first, then models whose score a variance floor (the least variance allowed)
    set, models that were not trained, and models that failed. ``p_holm`` is corrected for the number of tested rows, to
    which the reference does not belong, and ``p_best`` is computed among the ranked rows without the reference. If the
    sequences have inputs or a model reads their times, the column ``inputs`` names what each model was given, or
    ``"none"``. If the data decided how a model reads a series, the column ``encoding`` names the encoding of each
    model.

    Warns if sequences are impossible under a model, if there are too few clusters for an interval, and if a variance
    floor or an untrained model made a score.

    Args:
        results: results of all models, with the reference and the failed models among them.
        base: the result that differences are taken to.
        test: the scored part.
        clusters: cluster of each test sequence; None means that every sequence is its own.
    """
    import pandas as pd

    _warn_of_impossible(results, test)
    rows = [
        _failed_row(r)
        if r.error
        else _row(r, _difference(r, base, test, clusters), _tails(r, base, test), _bits_interval(r, test, clusters))
        for r in results
    ]
    frame = pd.DataFrame(rows)
    names = [() if r.error else r.model.measure_.inputs for r in results]
    if test.scored.input_names is not None or any(names):
        frame["inputs"] = [
            ", ".join(each) or ("" if r.error else "none") for r, each in zip(results, names, strict=True)
        ]
    if any(not r.error and r.model.encoding_.note is not None for r in results):
        frame["encoding"] = ["" if r.error else _encoding_in_words(r.model.encoding_) for r in results]
    if (frame["kind"] == "estimate").any():
        frame["score_error"] = [math.nan if r.error else r.score_error for r in results]
    frame["p_holm"] = holm(frame["p_value"].to_numpy())
    too_few = frame.loc[frame["method"].str.startswith("none: fewer"), "method"]
    if len(too_few):
        warn_caller(f"no interval ({too_few.iloc[0]}): test on more independent sequences or clusters")
    # 0: ranked, 1: score set by the variance floor, 2: not trained, 3: failed
    frame["group"] = [_group(r, d) for r, d in zip(results, frame["difference"], strict=True)]
    tested = [
        r
        for r, group in zip(results, frame["group"], strict=True)
        if not (group or r.is_reference or _is_one_figure(r, test))
    ]
    weights = _stacking_weights(tested)
    frame["stacking_weight"] = frame["model"].map(weights).astype(float)
    p_best = confidence_set_p_values([r.log_prob_by_seed for r in tested], test.scored.n_units, clusters)
    frame["p_best"] = frame["model"].map(dict(zip([r.name for r in tested], p_best, strict=True))).astype(float)
    frame = frame.sort_values(["group", "score"], ascending=[True, False], kind="stable").reset_index(drop=True)
    frame["rank"] = np.where(frame["group"] == 0, np.arange(1.0, len(frame) + 1), math.nan)
    by_floor = frame[frame["group"] == 1]
    if len(by_floor):
        moved = ", ".join(f"{n} by {e:.2g}" for n, e in zip(by_floor["model"], by_floor["floor_effect"], strict=True))
        warn_caller(
            f"the floor of the variances, not the data, set these scores, which get no rank and no p-value: {moved} "
            "nats per unit when min_covariance is doubled or halved; some values repeat (X.profile() shows which): "
            "dither X before split, or leave out features with a spike",
        )
    no_step = list(frame.loc[frame["group"] == 2, "model"])
    if no_step:
        warn_caller(
            f"{', '.join(no_step)}: the budget ended before the first step of training, so the score is that of the "
            "start and has no rank; give it a larger budget, or take a smaller model",
        )
    frame.attrs["no_step"] = no_step
    return frame.drop(columns="group")


def _encoding_in_words(encoding: Encoding) -> str:
    """Return the fitted encoding as Python code; for ``AutoSeries``, the encoding that it chose."""
    return repr(encoding.chain_ if isinstance(encoding, AutoSeries) else encoding)


def _group(result: ModelResult, difference: float) -> int:
    if result.error:
        return 3
    return 1 if is_set_by_floor(result.floor_effect, difference) else 0 if result.has_trained else 2


def _difference(result: ModelResult, base: ModelResult, test: Data, clusters: list[Any] | None) -> Difference:
    """Return the score of ``result`` minus that of ``base`` on the same sequences, with interval and p-value if valid.

    There is no interval and no p-value if a variance floor set one of the two scores, if one of the two models was not
    trained or gives one log-probability for the whole test sequence, or if the model is the reference.

    Args:
        result: result of the model.
        base: result of the baseline.
        test: the scored part.
        clusters: cluster of each test sequence; None means that they are independent.
    """
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


def _bits_interval(result: ModelResult, test: Data, clusters: list[Any] | None) -> tuple[float, float]:
    """Return the 95 % interval of the bits that a unit costs under a model; NaN where a difference has no interval.

    It is found as that of a difference, to a model under which all of the test part costs nothing.

    Args:
        result: result of the model.
        test: the scored part.
        clusters: cluster of each test sequence; None means that they are independent.
    """
    if _is_one_figure(result, test):
        return math.nan, math.nan
    log_prob = result.log_prob_by_seed
    nothing = np.broadcast_to(0.0, (1, log_prob.shape[1]))
    interval = model_difference(log_prob, nothing, test.scored.n_units, clusters, (result.name, "nothing"))
    return -interval.high / math.log(2), -interval.low / math.log(2)


def _tails(result: ModelResult, base: ModelResult, test: Data) -> StepTails:
    """Return how the difference of ``result`` to ``base`` is spread over steps; NaN for the baseline itself.

    So it is if one of the two gives one log-probability for the whole test sequence.
    """
    if result is base or any(_is_one_figure(each, test) for each in (result, base)):
        return NO_TAILS
    return difference_tails(result.steps, base.steps)


def _stacking_weights(results: Sequence[ModelResult]) -> dict[str, float]:
    """Return the stacking weight of each model by name; empty if there are fewer than two models.

    The models are mixed anew at each step, or, if one has a lower bound only, for each sequence: the bound of a piece
    of text stands at the last of its bytes, and that of a byte by itself is not known. One sequence then has no
    weights.

    Args:
        results: results of the models that take part.
    """
    if len(results) < 2:
        return {}
    if any(r.model.measure_.kind == "bound" for r in results):
        log_probs = np.stack([r.log_prob for r in results], axis=1)
        if len(log_probs) < 2:
            return {}
    else:
        log_probs = steps_of_models([r.steps for r in results])
    return dict(zip([r.name for r in results], stacking_weights(log_probs).tolist(), strict=True))


def n_effective(frame: pd.DataFrame, reference: str, n_units: int) -> np.ndarray:
    """Return the effective number of parameters of each model of a comparison, NaN where it is not known.

    The score on the data that a model was fitted to exceeds its score on new data by the number of its parameters over
    the number of units, on average, if the model is fitted by maximum likelihood (Akaike 1973; Hastie, Tibshirani and
    Friedman, *The Elements of Statistical Learning*, section 7.4). Part of that excess comes from the two parts of the
    data, of which one is easier; it is taken to be what the reference has beyond its own number of parameters. Where a
    few steps decide the difference of the model or of the reference to the baseline (Pareto k is 0.5 or more), they
    would decide this number too, and it is NaN.

    Args:
        frame: the frame of the comparison.
        reference: name of the model of independent steps.
        n_units: number of units of the training part.
    """
    excess = n_units * (frame["train_score"] - frame["score"]).to_numpy(dtype=float)
    row = np.flatnonzero(frame["model"] == reference)
    if not len(row):
        return np.full(len(frame), math.nan)
    number = excess - excess[row[0]] + frame["n_parameters"].iloc[row[0]]
    by_few = (frame["pareto_k"] >= INFINITE_VARIANCE).to_numpy()
    return np.where(by_few | by_few[row[0]], math.nan, number)


def _is_one_figure(result: ModelResult, test: Data) -> bool:
    """Return True if the test part is one sequence that the model scores as a whole, as a compressor does."""
    return len(test.scored) == 1 and not result.error and not result.model._predicts_steps


def _row(result: ModelResult, difference: Difference, tails: StepTails, bits: tuple[float, float]) -> dict[str, Any]:
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
        "bits_low": bits[0],
        "bits_high": bits[1],
        "perplexity": math.nan if measure.unit == "frame" else float(np.exp(-score)),
        "train_score": result.mean("train_score"),
        "score_sd": float(np.std(seed_scores, ddof=1)) if has_spread else math.nan,
        "difference": difference.difference,
        "ci_low": difference.low,
        "ci_high": difference.high,
        "p_value": difference.p_value,
        "p_holm": math.nan,  # this one and the next two are set when all rows are known
        "p_best": math.nan,
        "rank": math.nan,
        "method": difference.method,
        "block": math.nan if difference.block is None else float(difference.block),
        "n_clusters": difference.n_clusters,
        "largest_share": tails.share,
        "difference_of_rest": tails.rest,
        "pareto_k": tails.shape,
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
    figures = dict.fromkeys((*FIGURES, *MEASURED, *TAILS, "block", "context"), math.nan)
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
        warn_caller(
            f"{result.name}: log p is -inf for sequence {first}; differences to or from it have no interval",
        )
