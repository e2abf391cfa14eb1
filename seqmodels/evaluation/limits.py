"""One budget for any model: how long a fit may take, in seconds or in steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from seqmodels import evaluation
from seqmodels.evaluation.standard import Task
from seqmodels.model import SequenceModel

M = TypeVar("M", bound=SequenceModel)
UNENDING = 1_000_000  # iterations of EM, where time alone ends them


def limited(model: M, *, seconds: float | None = None, steps: int | None = None) -> M:
    """The model with this budget in the place of its own, whichever of the two comes first; neither: as it is.

    A step is one of the optimiser; for a model fitted by EM, an iteration, which EM may not need. A model that only counts,
    as an n-gram, takes as long as it takes.

    Raises:
        ValueError: a budget that is not above zero.
    """
    for name, limit in (("seconds", seconds), ("steps", steps)):
        if limit is not None and limit <= 0:
            raise ValueError(f"the budget is {limit} {name}; pass a number above zero")
    if seconds is None and steps is None:
        return model
    params = model.get_params(deep=False)
    if "max_seconds" not in params and steps is None:
        return model  # it knows no clock
    # The learning rate of gradient ascent follows its number of passes, so there the model's own stands.
    own = params["max_iter"] if params.get("algorithm") == "gradient" else UNENDING
    wanted = {"max_steps": steps, "max_epochs": None, "max_iter": steps or own, "max_seconds": seconds}
    return model.set_params(**{name: value for name, value in wanted.items() if name in params})


def budget_arguments(seconds: float | None, steps: int | None) -> dict[str, Any]:
    """The ``budget`` for ``compare``, where it takes one, so that it stands in the table; the models are ``limited`` already."""
    budget = getattr(evaluation, "Budget", None)
    if budget is None or (seconds is None and steps is None):
        return {}
    return {"budget": budget(seconds=seconds, steps=steps)}


def expected_seconds(model: SequenceModel, estimate: float, *, seconds: float | None, steps: int | None) -> float:
    """About how long a fit takes under a budget, if under its own it takes ``estimate``."""
    params = model.get_params(deep=False)
    own = params.get("max_steps", params.get("max_iter"))
    by_steps = estimate * steps / own if steps is not None and isinstance(own, int) else estimate
    if seconds is None or "max_seconds" not in params:
        return by_steps
    return seconds if steps is None else min(by_steps, seconds)


def under_budget(task: Task, *, seconds: float | None, steps: int | None) -> Task:
    """The task with every model under the same budget, and its estimates accordingly."""
    estimates = {
        name: expected_seconds(model, task.estimates.get(name, 0.0), seconds=seconds, steps=steps)
        for name, model in task.models.items()
    }
    models = {name: limited(model, seconds=seconds, steps=steps) for name, model in task.models.items()}
    return replace(task, models=models, seconds=sum(estimates.values()), estimates=estimates)
