"""A base class for models around another model, which they fit, and which go on learning as they read a sequence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from seqmodels.common import distributed
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import computing_in
from seqmodels.model.fitting import apply_setting, check_arguments, checked_data, fit_member
from seqmodels.model.model import SequenceModel
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length, MemoryKind


@dataclass(kw_only=True, eq=False, repr=False)
class WrappedModel(SequenceModel, ABC):
    """A base class of models around another model, which go on learning as they read.

    They have the encoding, observation and length of the model inside. To add one, define ``n_parameters_``, ``_steps``
    and ``cursor`` by means of ``_inner()``, and ``_fit_around`` if the wrapper has something to learn itself. Several
    processes share the work of fitting the model inside; ``_fit_around`` runs in the first process while the others
    wait.

    Args:
        model: the model to wrap. ``fit`` fits a clone of it; ``from_fitted`` wraps a fitted model as it is.

    Attributes (fitted): ``model_``, the fitted model inside.
    """

    model: SequenceModel = field(kw_only=False)

    _fits_in_parallel: ClassVar[bool] = True

    @property
    def memory_(self) -> MemoryKind:
        """The string ``"adaptive"``, because within a sequence the model goes on learning from what it has read."""
        return "adaptive"

    @property
    def context_(self) -> int | None:
        """The number of past steps that a prediction depends on: None, for all, because the model learns from all."""
        return None

    @classmethod
    @checked
    def from_fitted(cls, model: SequenceModel, **options: Any) -> Self:
        """Wrap a fitted model as it is, without fitting anything.

        Args:
            model: the fitted model.
            options: other arguments of the constructor of this class, by name.

        Raises:
            NotFittedError: If the model is not fitted.
        """
        setting = model._setting()
        wrapped = made_with(cls, options, model=model)
        wrapped._check_hyperparameters()
        apply_setting(wrapped, setting)
        wrapped.target_lengths_ = model.target_lengths_
        wrapped._take(model)
        return wrapped

    def _take(self, model: SequenceModel) -> None:
        self.model_, self.observation_ = model, model.observation_  # a fit may have changed it
        self.history_, self.converged_ = model.history_, model.converged_
        self.fit_seconds_: float = model.fit_seconds_

    def _inner(self) -> SequenceModel:
        """Return the fitted model inside, in the precision and on the device of this model."""
        self._setting()
        return computing_in(self.model_, self.dtype, self.device)

    # -- fitting -------------------------------------------------------------------------------------------

    def _examples_of(self, X: Any, y: Any = None) -> list[Example]:
        """Return raw sequences as encoded ones, without their past (steps that are read but not scored).

        ``_fit_around`` learns from such sequences.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: targets, if the model is of y given X; None otherwise.

        Raises:
            NotFittedError: If there is no model inside yet.
            ValueError: If the model cannot read the sequences.
        """
        return self._setting().examples(checked_data(self, X, y).without_past())

    def _validation_of(self, validation: Any, y: Any) -> list[Example]:
        """Return the encoded sequences of ``validation``; an empty list if it is None.

        Args:
            validation: sequences; or, if ``y`` is not None, a pair ``(X, y)``.
            y: targets of the training sequences; None if there are none.
        """
        if validation is None:
            return []
        return self._examples_of(validation) if y is None else self._examples_of(*validation)

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        inner = self.model.clone()
        inner.verbose = self.verbose is True or inner.verbose
        fit_member(inner, self._setting(), train, validation)
        self._take(inner)
        distributed.run_on_rank_zero(None, lambda: self._fit_around(train, validation))

    def _fit_around(self, train: list[Example], validation: list[Example]) -> None:
        """Fit the parameters of the wrapper itself, after ``model_`` is fitted; by default there are none.

        Args:
            train, validation: the encoded sequences that ``fit`` was given, for training and for validation.
        """
        return

    @property
    def _uses_validation(self) -> bool:  # type: ignore[override]
        return self.model._uses_validation

    @property
    def _sums_out_missing(self) -> bool:  # type: ignore[override]
        return self.model._sums_out_missing

    def _reads_missing(self) -> bool:
        return self.model_._reads_missing()

    def _check_hyperparameters(self) -> None:
        if not isinstance(self.model, SequenceModel):
            raise ValueError(f"model is {self.model!r}; pass a SequenceModel such as LSTM()")
        if self.model._has_encoder or self.model._is_tagger:
            raise ValueError(
                f"{type(self).__name__} wraps models of sequences by themselves, but {type(self.model).__name__} reads "
                "sources by an encoder; pass an HMM, an n-gram, a recurrent network or a Transformer"
            )
        if self.model._reads_inputs:
            raise ValueError(
                f"{type(self).__name__} gives its model no inputs, but {self.model!r:.200} reads some; let it read "
                "none, or take it by itself, in a Mixture, a GenerativeClassifier or Anomalies, which give them"
            )
        if self.warm_start:
            raise ValueError(f"warm_start=True, but {type(self).__name__} fits its model anew; leave it False")
        check_arguments(self.model)
        self.model._check_hyperparameters()

    def _default_length(self, kind: Kind) -> Length:
        return self.model._default_length(kind) if self.model.length == "auto" else self.model.length

    def _default_observation(self, kind: Kind) -> Observation:
        observation = self.model.observation
        return self.model._default_observation(kind) if observation == "auto" else observation.clone()

    def _named_encoding(self) -> Encoding | Literal["auto"]:
        return self.model.encoding if self.encoding == "auto" else self.encoding

    def _default_encoding(self, kind: Kind, observation: Observation, n_features: int) -> Encoding:
        encoding = self.model.encoding
        return self.model._default_encoding(kind, observation, n_features) if encoding == "auto" else encoding

    def _with_floor(self, factor: float) -> Self:
        floored = super()._with_floor(factor)
        floored.model_ = self.model_._with_floor(factor)
        return floored

    # -- keeping -------------------------------------------------------------------------------------------

    def _members(self) -> dict[str, SequenceModel]:
        return {"model": self.model_}

    def _restore_members(self, members: dict[str, SequenceModel]) -> None:
        if set(members) != {"model"}:
            raise ValueError(f"{a_or_an(type(self))} is made of one model, but the file holds {sorted(members)}")
        self.model_ = members["model"]
        if repr(self.observation_) != repr(self.model_.observation_):
            raise ValueError(
                f"its observation is {self.observation_!r}, but the model inside has {self.model_.observation_!r}"
            )

    @property
    @abstractmethod
    def n_parameters_(self) -> int:
        """The number of free parameters of the model inside and of the wrapper together."""
