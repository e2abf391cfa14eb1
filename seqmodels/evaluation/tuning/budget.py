"""``Budget``: what every model of a comparison may spend: seconds of training, steps, parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from seqmodels.common.parameters import check_options
from seqmodels.encodings.raw_data import Data
from seqmodels.model import SequenceModel

M = TypeVar("M", bound=SequenceModel)


@dataclass(frozen=True)
class Budget:
    """Limits on one fit of each model; give one of the three or several.

    A model's own settings stay as they are but for those that a budget sets, which the column ``budget`` of the table
    names.

    Args:
        seconds: of training. Networks: ``max_seconds`` alone, so the schedule follows time; they still stop early when
            held-out data say so. HMM: EM stops after the step in which time is over, or when it has converged. What was
            spent is in the column ``fit_seconds``. Such runs do not repeat.
        steps: networks: ``max_steps`` of the optimiser, each over one batch. HMMs: ``max_iter`` of EM, each over all of
            the data. The two are not comparable: a budget in steps is for runs that repeat but for rounding, and
            compares networks to networks.
        parameters: the largest ``d_model`` (in steps of 8, or of what ``n_heads`` needs) or ``n_states`` whose
            ``n_parameters_`` is not above it.

    A limit that a model has no hyperparameter for does not apply to it: an ``NGram`` counts once and is as large as its
    data; the size of a tagger and of an alignment HMM is that of their alphabets, and their EM has no time limit. An
    ``HMM`` of one state keeps one state: it stands for no memory.

    Raises:
        ValueError: nothing is given, or a number that is not above zero.

    >>> from seqmodels import HMM
    >>> Budget(steps=500).settings(HMM(4))
    {'max_iter': 500}
    """

    seconds: float | None = None
    steps: int | None = None
    parameters: int | None = None

    def __post_init__(self) -> None:
        given = {"seconds": self.seconds, "steps": self.steps, "parameters": self.parameters}
        if all(value is None for value in given.values()):
            raise ValueError("the budget has no limit; pass seconds, steps or parameters")
        check_options(Budget.__init__, **given)
        for name, value in given.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} of the budget is {value}; pass a number above zero")

    def settings(self, model: SequenceModel, train: Data | None = None) -> dict[str, Any]:
        """The hyperparameters that keep ``model`` within the budget; parameters are counted for the data ``train``.

        Raises:
            ValueError: the smallest model is too large already.
        """
        settings = model._limits(self.seconds, self.steps)
        if self.parameters is None or model._size is None:
            return settings
        if train is None:
            raise ValueError("parameters are counted for data; pass those that the model is to be fitted to")
        size = model._size_within(self.parameters, train)
        return settings if size is None else {**settings, model._size: size}

    def hyperparameters(self, model: SequenceModel) -> set[str]:
        """The names of the hyperparameters that ``settings`` would set."""
        sizes = {model._size} if self.parameters is not None and model._size is not None else set()
        return {*model._limits(self.seconds, self.steps), *sizes}


def budget_of(seconds: float | None, steps: int | None) -> Budget | None:
    """None where there is no limit. Raises ``ValueError`` for one that is not above zero."""
    return None if seconds is None and steps is None else Budget(seconds=seconds, steps=steps)


def within_budget(model: M, *, seconds: float | None = None, steps: int | None = None) -> M:
    """The model with this budget in place of its own settings; without limits it stays as it is."""
    budget = budget_of(seconds, steps)
    return model if budget is None else model.set_params(**budget.settings(model))
