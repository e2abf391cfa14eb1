"""One budget for any model: how long a fit may take, in seconds or in steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.standard import Task
from seqmodels.model import SequenceModel

M = TypeVar("M", bound=SequenceModel)


def budget_of(seconds: float | None, steps: int | None) -> Budget | None:
    """None where there is no limit. Raises ``ValueError`` for one that is not above zero."""
    return None if seconds is None and steps is None else Budget(seconds=seconds, steps=steps)


def limited(model: M, *, seconds: float | None = None, steps: int | None = None) -> M:
    """The model held to this budget in the place of its own; neither: as it is."""
    budget = budget_of(seconds, steps)
    return model if budget is None else model.set_params(**budget.settings(model))


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
