"""``Budget``: what every model of a comparison may spend: seconds of training, steps, parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from seqmodels.common.parameters import check_options
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import HMM, AlignmentHMM, HMMTagger
from seqmodels.hmm.model import n_parameters_by_states
from seqmodels.model import SequenceModel
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.untrained import parameters_by_width

UNLIMITED_EM_STEPS = 1_000_000  # where time alone ends EM
WIDTH_STEP = 8  # networks are widened by multiples of it

M = TypeVar("M", bound=SequenceModel)


@dataclass(frozen=True)
class Budget:
    """What each model may spend in one fit; one of the three, or several.

    A model's own settings stay as they are but for those that a budget sets, which the column ``budget`` of the table
    names.

    Args:
        seconds: of training. Networks: ``max_seconds`` alone, so the schedule follows time; they still stop early when
            held-out data say so. HMM: EM stops after the step in which time is over, or when it has converged. What was
            spent is in the column ``fit_seconds``. Such runs do not repeat exactly.
        steps: networks: ``max_steps`` of the optimiser, each over one batch. HMMs: ``max_iter`` of EM, each over all of
            the data. The two are not comparable: a budget in steps is for runs that repeat to the last digit, and
            compares networks to networks.
        parameters: the largest ``d_model`` (in steps of 8, or of what ``n_heads`` needs) or ``n_states`` whose
            ``n_parameters_`` is not above it.

    A limit that a model has no hyperparameter for does not apply to it: an ``NGram`` counts once and is as large as its
    data; the size of a tagger and of an alignment HMM is that of their alphabets, and their EM has no time limit. An
    ``HMM`` of one state keeps one state: it stands for no memory.

    Raises:
        ValueError: nothing is given, or a number that is not above zero.

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
        return {**self._training_settings(model), **self._size_settings(model, train)}

    def hyperparameters(self, model: SequenceModel) -> set[str]:
        """The names of the hyperparameters that ``settings`` would set."""
        sizes = {NeuralModel: "d_model", HMM: "n_states"} if self.parameters is not None else {}
        return {*self._training_settings(model), *(name for family, name in sizes.items() if isinstance(model, family))}

    def _training_settings(self, model: SequenceModel) -> dict[str, Any]:
        if self.seconds is None and self.steps is None:
            return {}
        if isinstance(model, NeuralModel):
            return {"max_steps": self.steps, "max_epochs": None, "max_seconds": self.seconds}
        if isinstance(model, HMM):
            return self._em_settings(model)
        if isinstance(model, HMMTagger | AlignmentHMM) and self.steps is not None:
            return {"max_iter": self.steps}
        return {}

    def _em_settings(self, model: HMM) -> dict[str, Any]:
        time = {} if self.seconds is None else {"max_seconds": self.seconds}
        if self.steps is not None:
            return {"max_iter": self.steps, **time}
        # The learning rate of gradient ascent follows its number of passes, so there the model's own stands.
        return time if model.algorithm == "gradient" else {"max_iter": UNLIMITED_EM_STEPS, **time}

    def _size_settings(self, model: SequenceModel, train: Data | None) -> dict[str, int]:
        if self.parameters is None or not isinstance(model, HMM | NeuralModel):
            return {}
        if train is None:
            raise ValueError("parameters are counted for data; pass those that the model is to be fitted to")
        if isinstance(model, HMM):
            if model.n_states == 1:
                return {}
            count = n_parameters_by_states(model, train)
            return {"n_states": largest_size(count, self.parameters, 1, "n_states")}
        count = parameters_by_width(model, train)
        return {"d_model": largest_size(count, self.parameters, _width_step(model), "d_model")}


def budget_of(seconds: float | None, steps: int | None) -> Budget | None:
    """None where there is no limit. Raises ``ValueError`` for one that is not above zero."""
    return None if seconds is None and steps is None else Budget(seconds=seconds, steps=steps)


def within_budget(model: M, *, seconds: float | None = None, steps: int | None = None) -> M:
    """The model with this budget in place of its own settings; without limits it stays as it is."""
    budget = budget_of(seconds, steps)
    return model if budget is None else model.set_params(**budget.settings(model))


def largest_size(count: Callable[[int], int], limit: int, step: int, name: str) -> int:
    """The largest multiple of ``step`` whose ``count``, which grows with it, is not above ``limit``.

    >>> largest_size(lambda k: k * k, 90, 1, "n_states")
    9
    """
    if count(step) > limit:
        raise ValueError(f"with {name}={step} it has {count(step):,} parameters already; the budget is {limit:,}")
    fits = 1
    exceeds = 2
    while count(exceeds * step) <= limit:
        fits = exceeds
        exceeds *= 2
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if count(middle * step) <= limit:
            fits = middle
        else:
            exceeds = middle
    return fits * step


def _width_step(model: NeuralModel) -> int:
    heads = model.get_params(deep=False).get("n_heads", 1)
    return WIDTH_STEP if heads == "auto" else math.lcm(WIDTH_STEP, 2 * heads)
