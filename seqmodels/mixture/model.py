"""``Mixture``: several models as one, whose predictions are combined at every step."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.fitting import apply_setting, check_arguments, checked_data
from seqmodels.generation import Cursor
from seqmodels.measure import IncomparableError, Length, MemoryKind, Values, check_comparable
from seqmodels.mixture.cursor import MixtureCursor
from seqmodels.mixture.held_out import hold_out_steps
from seqmodels.mixture.weights import FixedShare, fit_prior, fit_rate
from seqmodels.model import SequenceModel
from seqmodels.observations import Categorical, Observation, OneOf
from seqmodels.parameters import Configurable
from seqmodels.preparation import Example, Setting
from seqmodels.sequences import Kind

WeightsName = Literal["static", "posterior", "switching", "gated"]


@dataclass(eq=False, repr=False)
class Mixture(SequenceModel):
    """Σ_k w_t(k) p_k(x_t | x_<t)``"""

    models: list[SequenceModel] = field(default_factory=list)
    weights: WeightsName = "static"
    held_out: float = 0.1
    refit: bool | list[bool] = False

    # -- what the members say ------------------------------------------------------------------------------

    @property
    def memory_(self) -> MemoryKind:
        members = self.members_ if self.__sklearn_is_fitted__() else self.models
        is_static = self.weights == "static" and all(model.memory_ == "static" for model in members)
        return "static" if is_static else "adaptive"

    @property
    def context_(self) -> int | None:
        contexts = [model.context_ for model in self.members_]
        if self.weights != "static" or None in contexts:
            return None
        return max(c for c in contexts if c is not None)

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return sum(model.n_parameters_ for model in self.members_) + self.weights_.n_parameters

    def _default_length(self, kind: Kind) -> Length:
        lengths = {m._default_length(kind) if m.length == "auto" else m.length for m in self.models}
        if len(lengths) > 1:
            raise IncomparableError("some models have length='given' and others length='stop'; set them to one")
        return lengths.pop()

    def _default_observation(self, kind: Kind) -> Observation:
        each = [
            m._default_observation(kind) if m.observation == "auto" else m.observation.clone() for m in self.models
        ]
        return OneOf(each) if kind == "vectors" else Categorical()

    def _default_encoding(self, kind: Kind, values: tuple[Values, ...]) -> Encoding:
        each = [m._default_encoding(kind, values) if m.encoding == "auto" else m.encoding for m in self.models]
        if len({repr(encoding) for encoding in each}) > 1:
            raise ValueError(
                f"the models read by different encodings, {' and '.join(map(repr, each))}; set one encoding for all, "
                "or pass it to the mixture"
            )
        return each[0]

    @property
    def _sums_out_missing(self) -> bool:  # type: ignore[override]
        return all(model._sums_out_missing for model in self.models)

    def _reads_missing(self) -> bool:
        return self._sums_out(self.observation_) and all(model._reads_missing() for model in self.members_)

    def _check_hyperparameters(self) -> None:
        pass

    def _uses(self) -> None: ...

    # -- fitting -------------------------------------------------------------------------------------------

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        began = time.perf_counter()
        rest, held_out = hold_out_steps(train, self.held_out, self.encoding_, self.random_state)
        self.members_ = [self._fit_member(k, rest, validation) for k in range(len(self.models))]
        self._learn_weights(held_out)
        self._finish(began, held_out)

    def _fit_member(self, k: int, train: list[Example], validation: list[Example]) -> SequenceModel:
        began = time.perf_counter()
        member = self.models[k].clone()
        setting = self._setting()
        observation = setting.observation
        if isinstance(observation, OneOf):
            observation = observation.observations[k].clone()
        apply_setting(member, Setting(setting.encoding, observation, setting.measure, setting.source_encoding))
        member._fit(train, validation)
        member.fit_seconds_ = time.perf_counter() - began
        return member

    def _learn_weights(self, held_out: list[Example]) -> None:
        log_p = self._log_prob_by_model(held_out)
        w = [e.weight for e in held_out]
        prior = fit_prior(log_p, w)
        rate = {"static": 1.0, "posterior": 0.0}.get(self.weights)
        self.weights_ = FixedShare(prior, fit_rate(prior, log_p, w) if rate is None else rate)

    def _log_prob_by_model(self, examples: list[Example]) -> list[np.ndarray]:
        each = [member._steps(examples) for member in self._members_in_precision()]
        return [np.column_stack(steps) for steps in zip(*each, strict=True)]

    def _members_in_precision(self) -> list[SequenceModel]:
        self._setting()
        return [self._in_precision(member) for member in self.members_]

    def _in_precision(self, member: SequenceModel) -> SequenceModel:
        if (member.dtype, member.device) == (self.dtype, self.device):
            return member
        twin = copy.copy(member)
        twin.dtype, twin.device = self.dtype, self.device
        return twin

    def _finish(self, began: float, held_out: list[Example]) -> None:
        import pandas as pd

        self.converged_ = True
        self.history_ = pd.DataFrame({"step": [1], "seconds": [time.perf_counter() - began], "log_prob": [0.0], "validation": [np.nan], "objective": [0.0], "floor_hits": [0]})

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return [self.weights_.steps(log_p) for log_p in self._log_prob_by_model(examples)]

    def cursor(self, n_steps: int | None = None) -> Cursor:
        return MixtureCursor([m.cursor(n_steps) for m in self._members_in_precision()], self.weights_)

    def _state(self) -> dict[str, Any]:
        return {"prior": self.weights_.prior, "rate": self.weights_.rate}

    def _restore(self, state: dict[str, Any]) -> None:
        self.weights_ = FixedShare(state["prior"], state["rate"])
