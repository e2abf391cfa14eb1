"""The plan of a comparison: the parts of the data, the number of fits, the budget and the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.tuning.budget import Budget
from seqmodels.evaluation.tuning.search import Search
from seqmodels.model import SequenceModel
from seqmodels.sequences import as_sequences

MOST_SEEDS = 1_000


@dataclass(frozen=True)
class DataParts:
    """The parts of the data of a comparison.

    Attributes:
        train: the part that models are fitted to; None means that they are fitted already.
        test: the part that is scored.
        validation: the argument ``validation`` of ``fit``: a rule, None, or held-out sequences.
    """

    train: Data | None
    test: Data
    validation: Any = "auto"

    @classmethod
    def from_arguments(cls, X: Any, y: Any, test: Any, validation: Any) -> DataParts:
        """Build the parts from the arguments of ``compare``; warn if training sequences have a past.

        A past, earlier steps kept as context, is not read by any fit.

        Args:
            X: training sequences, or the scored ones if there is no ``test``.
            y: their targets; None for p(x).
            test: held-out sequences, or a pair with their targets; None means that ``X`` is scored.
            validation: the argument of ``fit``.
        """
        validation = _read_once(validation, has_targets=y is not None)
        if test is None:
            return cls(None, Data.of(X, y), validation)
        train = Data.of(X, y)
        if train.has_past:
            warn_caller("the training sequences have a past, which no fit reads; pass X.without_past() to say so")
        return cls(train.without_past(), Data.of(*(test if y is not None else (test, None))), validation)

    @property
    def held_out(self) -> Data | None:
        """Validation sequences with their targets; None if ``validation`` is a rule or None, or nothing is fitted."""
        if self.train is None or self.validation is None or isinstance(self.validation, str):
            return None
        return Data.of(*(self.validation if self.train.y is not None else (self.validation, None)))


def _read_once(validation: Any, *, has_targets: bool) -> Any:
    """Read validation data into ``Sequences``, because a generator could be read by one fit only.

    Args:
        validation: the argument of ``fit``; a rule (a name such as ``"auto"``) or None is returned unchanged.
        has_targets: whether it is a pair of sequences and targets.
    """
    if validation is None or isinstance(validation, str):
        return validation
    if not has_targets:
        return as_sequences(validation)
    return tuple(map(as_sequences, validation)) if isinstance(validation, tuple) else validation


@dataclass(frozen=True)
class FitPlan:
    """How the models of a comparison are fitted.

    Attributes:
        seeds: number of fits of each model.
        budget: budget of each fit; None means the models' own settings.
        search: tuning before the fits; None means none.
        random_state: seed of the search.
    """

    seeds: int = 1
    budget: Budget | None = None
    search: Search | None = None
    random_state: int = 0

    def check(self, models: Mapping[str, SequenceModel], *, has_train: bool) -> None:
        """Check the options of a comparison, before any model is fitted.

        Args:
            models: models by name.
            has_train: whether there is a training part, which several seeds, a budget and a search need.

        Raises:
            ValueError: an option is invalid, or needs a training part that is missing.
        """
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"seeds is {self.seeds}; pass a whole number from 1 to {MOST_SEEDS:,}")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise ValueError(
                f"budget is {self.budget!r}; pass Budget(seconds={self.budget!r}), or a Budget of steps or parameters"
            )
        if has_train:
            if self.search is not None:
                self.search.check(models, self.budget)
            return
        options = {"seeds": self.seeds > 1, "budget": self.budget is not None, "search": self.search is not None}
        for name in (name for name, is_set in options.items() if is_set):
            raise ValueError(
                f"{name} is given, but there is no test part, so nothing is fitted; pass test=, or leave {name} out"
            )
