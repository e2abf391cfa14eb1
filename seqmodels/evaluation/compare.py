"""``compare``: fit models, score the same held-out sequences, say which explains them best and how sure that is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from seqmodels.data import sha256
from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.fitting import Parts, Plan, Scored, fit_and_score
from seqmodels.evaluation.overlap import warn_of_overlap
from seqmodels.evaluation.provenance import provenance
from seqmodels.evaluation.saved import as_json
from seqmodels.evaluation.search import Grid, Search, trials_frame
from seqmodels.evaluation.table import clusters_of, frame_of
from seqmodels.measure import IncomparableError, check_comparable
from seqmodels.model import SequenceModel
from seqmodels.storage import describe


def compare(
    models: Mapping[str, SequenceModel],
    X: Any,
    y: Any = None,
    *,
    baseline: str | None = None,
    test: Any = None,
    cluster: str | None = None,
    seeds: int = 1,
    budget: Budget | None = None,
    validation: Any = "auto",
    search: Search | Mapping[str, Grid] | None = None,
    title: str = "",
    random_state: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Fit ``models`` to ``X`` (and ``y``) in place, score ``test`` once, and compare each to ``baseline`` on the same sequences.

    Args:
        models: by name. Without ``test`` they must be fitted, and ``X`` is scored as it is.
        X, y: training sequences, and targets for p(y | x).
        baseline: what differences are taken to; the first model by default.
        test: held-out sequences, or a pair if there are targets.
        cluster: a metadata column of the test sequences: those that share a value are not independent. By default their
            ``cluster``, if they have one.
        seeds: fits a model. Scores, and so differences and intervals, are of the mean over seeds; their spread is a column of its own.
        budget: what each fit may spend, see ``Budget``; it is set on the models themselves. None leaves every model its own settings.
        validation: as in ``fit``: ``"auto"``, None, or held-out sequences (a pair if there are targets) for early stopping.
        search: tuning before the comparison, a ``Search`` or its grids, ``{"lstm": {"lr": [1e-3, 3e-3]}}``: every setting tried is scored
            on folds of the training part, each fit within the budget; the best is set on the model and fitted to all of it.
        title: for the table and the pictures.
        random_state: seed of the bootstrap and the search.
        progress: called with a line of text as each model, and each trial of a search, is done.

    Returns:
        ``Comparison``: ``print`` it, or use ``.frame``, ``.steps``, ``.save(folder)``, ``.to_html(path)``, ``.plot_forest()``. With budgets
        in steps, or none, it repeats to the last digit, times apart.

    Raises:
        IncomparableError: two models measure different things (named), for example one scores ends and another does not; or
            one has no likelihood at all, as a ``MaskedTransformer`` has not.
        ValueError: no model could be fitted, or a name that is not there. One model that fails does not lose the others.
        KeyboardInterrupt: Ctrl-C or SIGTERM came; models fitted by then stay so, and the one that was being fitted keeps the best it
            had found (``interrupted_``).

    Warns of: a model that failed, a baseline that did, sequences that stand in two parts of the data, too few independent sequences or
    clusters for an interval, sequences that a model holds to be impossible, and tuning that was not the same for all.
    """
    first = _checked_baseline(models, baseline)
    parts = Parts.of(X, y, test, validation)
    clusters = clusters_of(parts.test.scored, cluster)
    tuning = search if search is None or isinstance(search, Search) else Search(search)
    plan = Plan(seeds, budget, tuning, random_state)
    n_duplicates = _checked(models, parts, plan)
    say = progress if progress is not None else _nothing
    scored: dict[str, Scored] = {}
    for name, model in models.items():
        scored[name] = fit_and_score(name, model, parts, plan, say)
        say(scored[name].line(name, parts.test.scored.unit))
    good = {name: s for name, s in scored.items() if not s.error}
    if not good:
        raise ValueError("no model could be fitted: " + "; ".join(f"{n}: {s.error}" for n, s in scored.items()))
    check_comparable({name: s.model.measure_ for name, s in good.items()})
    if first not in good:
        warnings.warn(f"the baseline {first!r} failed, so differences are taken to {next(iter(good))!r}", stacklevel=2)
        first = next(iter(good))
    frame, measure = frame_of(scored, good[first], parts.test, clusters, random_state), good[first].model.measure_
    frame.attrs = {"baseline": first, "unit": measure.unit, "title": title, "level": 0.95, "cluster": cluster}
    frame.attrs |= {"seeds": seeds, "n_duplicates": n_duplicates}
    return Comparison(
        frame,
        measure,
        {name: s.steps for name, s in good.items()},
        {name: s.model.history_ for name, s in good.items()},
        {name: s.model for name, s in good.items()},
        parts.test.scored,
        source=None if parts.test.y is None else parts.test.X,
        provenance=_provenance(models, parts, plan),
        search=trials_frame({name: s.trials for name, s in scored.items()}),
    )


def _checked_baseline(models: Mapping[str, SequenceModel], baseline: str | None) -> str:
    if not models:
        raise ValueError("there are no models to compare; pass a dictionary of them by name")
    for name, model in models.items():
        _refuse_without_likelihood(name, model)
    first = baseline if baseline is not None else next(iter(models))
    if first not in models:
        raise ValueError(f"baseline {first!r} is not among the models: {', '.join(models)}")
    return first


def _refuse_without_likelihood(name: str, model: Any) -> None:
    """Before any model is fitted: its row would not be one of failure."""
    if not isinstance(model, SequenceModel):
        raise IncomparableError(
            f"{name!r} is a {type(model).__name__}, which is no SequenceModel and has no likelihood to compare (a "
            "pseudo-log-likelihood is none); leave it out of the table"
        )


def _checked(models: Mapping[str, SequenceModel], parts: Parts, plan: Plan) -> int:
    """What would be found out late otherwise; how many test sequences also are in the training part."""
    if plan.seeds < 1:
        raise ValueError(f"seeds is {plan.seeds}; pass at least 1")
    if plan.budget is not None and not isinstance(plan.budget, Budget):
        raise ValueError(f"budget is {plan.budget!r}; pass Budget(seconds={plan.budget!r}), or of steps or parameters")
    if parts.train is None:
        plan.check()
        return 0
    if plan.search is not None:
        plan.search.check(models, plan.budget)
    return warn_of_overlap(parts.train, parts.held_out, parts.test)


def _provenance(models: Mapping[str, SequenceModel], parts: Parts, plan: Plan) -> dict[str, Any]:
    """What the figures can be had again from."""
    held = {"train": parts.train, "validation": parts.held_out, "test": parts.test}
    items = [(f"{name} {n}", s) for name, d in held.items() if d is not None for n, s in (("x", d.X), ("y", d.y))]
    return as_json(
        {
            **provenance(),
            "sha256": {name: sha256(s) for name, s in items if s is not None},
            "models": {name: describe(model) for name, model in models.items()},
            "random_state": plan.random_state,
            "seeds": plan.seeds,
            "budget": None if plan.budget is None else vars(plan.budget),
            "search": None if plan.search is None else vars(plan.search),
            "validation": parts.validation if isinstance(parts.validation, str | None) else "given",
        }
    )


def _nothing(line: str) -> None:
    """Nobody is waiting."""
