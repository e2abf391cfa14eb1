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
    """Limits on what one fit of each model in a comparison may spend; give one of the three or several.

    Other hyperparameters of a model stay as they are; the column ``budget`` of the comparison's table names those that
    the budget sets.

    Args:
        seconds: seconds of training. For networks it sets ``max_seconds``, so that the learning-rate schedule follows
            time; they still stop early if held-out data say so. For HMMs, EM stops after the iteration in which time is
            over, or when it has converged. Such runs cannot be repeated exactly. None means no limit.
        steps: number of training steps: ``max_steps`` of a network, each on one batch, or ``max_iter`` of EM for an
            HMM, each on all of the data. The two are not comparable, so this budget compares networks with networks.
            None means no limit.
        parameters: largest number of parameters, ``n_parameters_``. The model gets the largest ``d_model`` (in steps of
            8, or of what ``n_heads`` needs) or ``n_states`` that stays within it. None means no limit.

    A limit does not apply to a model without a hyperparameter for it: an ``NGram`` counts once and is as large as its
    data; the size of a tagger and of an alignment HMM is that of their alphabets, and their EM has no time limit. An
    ``HMM`` of one state keeps one state, because it stands for no memory.

    Raises:
        ValueError: no limit is given, or one is not above zero.

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
        """Return the hyperparameters, by name, that keep ``model`` within the budget.

        Args:
            model: the model, which stays as it is.
            train: the data that it will be fitted to, for which parameters are counted; needed for a limit on
                parameters.

        Raises:
            ValueError: the smallest model has too many parameters already, or ``train`` is missing.
        """
        settings = model._limits(self.seconds, self.steps)
        if self.parameters is None or model._size is None:
            return settings
        if train is None:
            raise ValueError("parameters are counted for data; pass those that the model is to be fitted to")
        size = model._size_within(self.parameters, train)
        return settings if size is None else {**settings, model._size: size}

    def hyperparameters(self, model: SequenceModel) -> set[str]:
        """Return the names of the hyperparameters of ``model`` that ``settings`` would set."""
        sizes = {model._size} if self.parameters is not None and model._size is not None else set()
        return {*model._limits(self.seconds, self.steps), *sizes}


def budget_of(seconds: float | None, steps: int | None) -> Budget | None:
    """Return the ``Budget`` with these limits, or None if both are None.

    Args:
        seconds: seconds of training; None means no limit.
        steps: number of training steps (batches of a network, iterations of EM); None means no limit.

    Raises:
        ValueError: a limit is not above zero.
    """
    return None if seconds is None and steps is None else Budget(seconds=seconds, steps=steps)


def within_budget(model: M, *, seconds: float | None = None, steps: int | None = None) -> M:
    """Limit the seconds or steps that a fit of ``model`` may take, and return the model, which is changed in place.

    Args:
        model: the model.
        seconds: seconds of training; None means that the model's own setting stays.
        steps: number of training steps (batches of a network, iterations of EM); None means that its own setting stays.
    """
    budget = budget_of(seconds, steps)
    return model if budget is None else model.set_params(**budget.settings(model))
