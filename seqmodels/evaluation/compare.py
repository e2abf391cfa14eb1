"""``compare``: fit models, score the same held-out sequences, say which explains them best and how sure that is."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.statistics import Difference, holm, moving_block_difference, paired_difference
from seqmodels.measure import IncomparableError, check_comparable
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.preparation import Data
from seqmodels.sequences import Sequences


@dataclass
class _Scored:
    """One model's test figures, averaged over seeds, or why there are none."""

    model: SequenceModel
    steps: list[np.ndarray]
    scores: list[float]
    train_score: float
    fit_seconds: float
    error: str = ""

    @property
    def log_prob(self) -> np.ndarray:
        return np.array([s.sum() for s in self.steps])


def compare(
    models: Mapping[str, SequenceModel],
    X: Any,
    y: Any = None,
    *,
    test: Any = None,
    baseline: str | None = None,
    cluster: str | None = None,
    seeds: int = 1,
    title: str = "",
    random_state: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Fit ``models`` to ``X`` (and ``y``) in place, score ``test``, and compare each to ``baseline`` on the same sequences.

    Args:
        models: by name. Without ``test`` they must be fitted, and ``X`` is scored as it is.
        X, y: training sequences, and targets for p(y | x).
        test: held-out sequences, or a pair if there are targets.
        baseline: what differences are taken to; the first model by default.
        cluster: a metadata column of the test sequences: those that share a value are not independent. By default their
            ``cluster``, if they have one.
        seeds: fits a model; scores are means over seeds, and their spread is a column.
        title: for the table and the pictures.
        random_state: seed of the bootstrap.
        progress: called with a line of text as each model is done.

    Returns:
        ``Comparison``: ``print`` it, or use ``.frame``, ``.to_html(path)``, ``.to_csv(path)``, ``.plot_forest()``.

    Raises:
        IncomparableError: two models measure different things (named), for example one scores ends and another does not; or
            one has no likelihood at all, as a ``MaskedTransformer`` has not.
        ValueError: no model could be fitted, or a name that is not there. One model that fails does not lose the others.
    """
    if not models:
        raise ValueError("there are no models to compare; pass a dictionary of them by name")
    for name, model in models.items():
        _refuse_without_likelihood(name, model)
    first = baseline if baseline is not None else next(iter(models))
    if first not in models:
        raise ValueError(f"baseline {first!r} is not among the models: {', '.join(models)}")
    train = Data.of(X, y) if test is not None else None
    held_out = Data.of(X, y) if test is None else Data.of(*(test if y is not None else (test, None)))
    scored: dict[str, _Scored] = {}
    for name, model in models.items():
        scored[name] = _fit_and_score(name, model, train, held_out, seeds)
        if progress is not None:
            progress(_line(name, scored[name], held_out))
    good = {name: s for name, s in scored.items() if not s.error}
    if not good:
        raise ValueError("no model could be fitted: " + "; ".join(f"{n}: {s.error}" for n, s in scored.items()))
    check_comparable({name: s.model.measure_ for name, s in good.items()})
    if first not in good:
        warnings.warn(f"the baseline {first!r} failed, so differences are taken to {next(iter(good))!r}", stacklevel=2)
        first = next(iter(good))
    clusters = _clusters(held_out.scored, cluster)
    frame = _frame(scored, good[first], held_out, clusters, random_state)
    measure = good[first].model.measure_
    frame.attrs = {"baseline": first, "unit": measure.unit, "title": title, "level": 0.95}
    return Comparison(
        frame,
        measure,
        {name: s.steps for name, s in good.items()},
        {name: s.model.history_ for name, s in good.items()},
        {name: s.model for name, s in good.items()},
        held_out.scored,
    )


def _refuse_without_likelihood(name: str, model: Any) -> None:
    """Before any model is fitted: its row would not be one of failure."""
    if not isinstance(model, SequenceModel):
        raise IncomparableError(
            f"{name!r} is a {type(model).__name__}, which is no SequenceModel and has no likelihood to compare (a "
            "pseudo-log-likelihood is none); leave it out of the table"
        )


def _fit_and_score(name: str, model: SequenceModel, train: Data | None, held_out: Data, seeds: int) -> _Scored:
    """An error of one model is its row in the table: the others are still worth having."""
    try:
        if train is None and not model.__sklearn_is_fitted__():
            raise NotFittedError("not fitted, and there is no test part; pass test=, or fit it first")
        runs = [_run(model if i == 0 else _reseeded(model, i), train, held_out) for i in range(seeds)]
    except (ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
        warnings.warn(f"{name} failed: {error}", stacklevel=3)
        return _Scored(model, [], [], math.nan, math.nan, f"{type(error).__name__}: {error}")
    steps = [np.mean([run.steps[i] for run in runs], axis=0) for i in range(len(held_out.X))]
    seconds = float(np.mean([run.fit_seconds for run in runs]))
    train_score = float(np.mean([run.train_score for run in runs]))
    return _Scored(model, steps, [score for run in runs for score in run.scores], train_score, seconds)


def _reseeded(model: SequenceModel, i: int) -> SequenceModel:
    clone = model.clone()
    return clone.set_params(random_state=model.random_state + i)


def _run(model: SequenceModel, train: Data | None, held_out: Data) -> _Scored:
    train_score = math.nan
    if train is not None:
        model.fit(train.X, train.y)
        sample = _sample(train, int(held_out.scored.n_units.sum()))
        train_score = model.score(sample.X, sample.y)
    steps = model.log_prob_steps(held_out.X, held_out.y)
    score = sum(float(s.sum()) for s in steps) / float(held_out.scored.n_units.sum())
    return _Scored(model, steps, [score], train_score, getattr(model, "fit_seconds_", math.nan))


def _sample(train: Data, n_units: int) -> Data:
    """About as much of the training part as there is to test, so that scoring it costs no more."""
    if len(train.X) == 1 and train.y is None:
        return Data.of(Sequences([train.X.items[0][:n_units]]))
    order = np.random.default_rng(0).permutation(len(train.X))
    enough = int(np.searchsorted(np.cumsum(train.scored.n_units[order]), n_units)) + 1
    mask = np.zeros(len(order), dtype=bool)
    mask[order[:enough]] = True
    return train.take(mask)


def _line(name: str, scored: _Scored, held_out: Data) -> str:
    if scored.error:
        return f"{name}: failed ({scored.error})"
    unit = held_out.scored.unit
    return f"{name}: {np.mean(scored.scores):.4f} nats per {unit}, fitted in {scored.fit_seconds:.1f} s"


def _clusters(scored: Sequences, column: str | None) -> list[Any] | None:
    if column is None:
        return scored.clusters
    if column not in scored.metadata:
        raise ValueError(
            f"the test sequences have no column {column!r}; they have {', '.join(map(str, scored.metadata.columns)) or 'none'}"
        )
    return list(scored.metadata[column])


def _frame(
    scored: dict[str, _Scored], base: _Scored, held_out: Data, clusters: list[Any] | None, random_state: int
) -> pd.DataFrame:
    rows = [_row(name, s, base, held_out, clusters, random_state) for name, s in scored.items()]
    frame = pd.DataFrame(rows)
    frame["p_value"] = holm(frame["p_value"].to_numpy())
    too_few = frame.loc[frame["method"].str.startswith("none: fewer"), "method"]
    if len(too_few):
        warnings.warn(f"no interval ({too_few.iloc[0]}): test on more independent sequences or clusters", stacklevel=3)
    return frame.sort_values("score", ascending=False, kind="stable", na_position="last").reset_index(drop=True)


def _row(
    name: str, scored: _Scored, base: _Scored, held_out: Data, clusters: list[Any] | None, random_state: int
) -> dict[str, Any]:
    model = scored.model
    if scored.error:
        blank = dict.fromkeys(
            ("score", "bits", "train_score", "score_sd", "difference", "ci_low", "ci_high", "p_value"), math.nan
        )
        blank |= dict.fromkeys(("n_parameters", "fit_seconds"), math.nan)
        counts = dict.fromkeys(("n_clusters", "steps", "floor_hits", "n_impossible"), 0)
        return {
            "model": name,
            **blank,
            **counts,
            "method": "",
            "context": math.nan,
            "kind": "failed",
            "source": "",
            "error": scored.error,
        }
    score = float(np.mean(scored.scores))
    found = _difference(name, scored, base, held_out, clusters, random_state)
    history = model.history_
    return {
        "model": name,
        "score": score,
        "bits": score / math.log(2),
        "train_score": scored.train_score,
        "score_sd": float(np.std(scored.scores, ddof=1)) if len(scored.scores) > 1 else math.nan,
        "difference": found.difference,
        "ci_low": found.low,
        "ci_high": found.high,
        "p_value": found.p_value,
        "method": found.method,
        "n_clusters": found.n_clusters,
        "n_parameters": model.n_parameters_,
        "fit_seconds": scored.fit_seconds,
        "steps": int(history["step"].iloc[-1]) if len(history) else 0,
        "context": math.nan if model.context_ is None else model.context_,
        "kind": model.measure_.kind,
        "source": _source(model),
        "floor_hits": int(history["floor_hits"].iloc[-1]) if len(history) else 0,
        "n_impossible": int((scored.log_prob == -np.inf).sum()),
        "error": "",
    }


def _source(model: SequenceModel) -> str:
    if not model.measure_.conditional:
        return ""
    return "ignored" if model.ignore_source else "read"


def _difference(
    name: str, scored: _Scored, base: _Scored, held_out: Data, clusters: list[Any] | None, random_state: int
) -> Difference:
    if scored is base:
        return Difference(0.0, math.nan, math.nan, math.nan, 0, "")
    finite = np.isfinite(scored.log_prob) & np.isfinite(base.log_prob)
    if not finite.all():
        names = [str(n) for n, ok in zip(held_out.scored.names, finite, strict=True) if not ok]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warnings.warn(f"{name}: log p is -inf for sequence {shown}; no interval is given", stacklevel=5)
        return Difference(-math.inf, math.nan, math.nan, math.nan, 0, "none: log p of a sequence is -inf")
    units = held_out.scored.n_units
    if len(units) == 1:
        return moving_block_difference(scored.steps[0], base.steps[0], n_units=float(units[0]))
    return paired_difference(scored.log_prob, base.log_prob, units, clusters, random_state=random_state)
