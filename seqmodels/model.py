"""``SequenceModel``: raw sequences in, comparable log-probabilities out. The roof over both wings."""

from __future__ import annotations

import copy
import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from seqmodels import distributed, storage
from seqmodels.agreement import check_held_alike
from seqmodels.encodings import Encoding
from seqmodels.precision import finite_steps
from seqmodels.generation import Drawing, Marginal, Searching
from seqmodels.measure import Length, Measure
from seqmodels.observations import Observation
from seqmodels.parameters import undone_on_failure
from seqmodels.preparation import Data, Example, Setting, Sources, choose_sources, default_encoding, hold_out
from seqmodels.sequences import Kind, Sequences
from seqmodels.tagging import check_aligned, check_choices, check_has_targets
from seqmodels.training import interruption

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class NotFittedError(ValueError, AttributeError):
    """A model was asked for something that only a fitted one has."""


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceModel(Drawing, Searching, Marginal, ABC):
    """``log p(x_1 .. x_T) = Σ_t log p(x_t | x_<t)``, in raw units, for every model alike.

    Args:
        length: ``"given"``: p(x | T); ``"stop"``: the end of a sequence is an event with a probability; ``"auto"``:
            ``"given"`` for vectors and for taggers, ``"stop"`` for text and symbols.
        encoding: what the model sees; ``"auto"`` standardises vectors (bits and counts stay as they are) and reads text as bytes.
        source_encoding: how what a target is given is read by a model with an encoder; ``"auto"``: as the targets where both are of
            one kind, else as ``encoding="auto"`` would. Models without an encoder read source and target by one encoding.
        ignore_source: p(y) in the place of p(y | x), as a baseline: the sources, of whatever kind, are not looked at.
        observation: how a state emits a step; ``"auto"``: ``Categorical`` for symbols, ``GaussianMixture`` for vectors.
        random_state: seed of everything random.
        device: ``"auto"`` takes a GPU where there is one.
        dtype: ``"float32"`` or ``"float64"``, of the computation; sums of log-probabilities are float64 in both.
        warm_start: ``fit`` continues from where the model stands.
        verbose: show progress.

    To add a model, define the abstract methods: fit encoded examples, score them in batches (``_steps``), and the cursor
    (``start``, ``advance``, ``distribution``) that predicts one step at a time. Both roads must agree.

    Attributes (fitted): ``measure_``, ``encoding_``, ``observation_``, ``length_``, ``history_`` (a frame: step, seconds, log_prob,
    validation, objective, floor_hits; nats per unit), ``n_parameters_``, ``converged_``, ``interrupted_``, ``fit_seconds_``.
    """

    length: Length | Literal["auto"] = "auto"
    encoding: Encoding | Literal["auto"] = "auto"
    source_encoding: Encoding | Literal["auto"] = "auto"
    ignore_source: bool = False
    observation: Observation | Literal["auto"] = "auto"
    random_state: int = 0
    device: str = "auto"
    dtype: str = "float32"
    warm_start: bool = False
    verbose: bool = False

    _holds_out: ClassVar[bool] = True  # whether validation="auto" takes sequences away from training
    _sums_out_missing: ClassVar[bool] = False
    _has_encoder: ClassVar[bool] = False  # whether sources are read apart from targets, and so may be of another kind
    _reads_slices: ClassVar[bool] = False  # whether memory-mapped sequences may stay on disk
    _adds_up: ClassVar[bool] = (
        False  # whether several processes share the work of ``_fit``; else the first does it for all
    )

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended ``fit``; the last line of ``history_`` then has 1 in a column ``interrupted``."""
        return interruption.was_interrupted(self.history_)

    # -- what a model defines ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def context_(self) -> int | None:
        """How many steps back the model can see; None: the whole sequence."""

    @property
    @abstractmethod
    def n_parameters_(self) -> int:
        """Number of free parameters."""

    @abstractmethod
    def _default_observation(self, kind: Kind) -> Observation:
        """What ``observation="auto"`` means."""

    @abstractmethod
    def _check_hyperparameters(self) -> None:
        """Raise ``ValueError`` for values that cannot be, before any work."""

    @abstractmethod
    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        """Fit encoded examples; sets ``history_`` and ``converged_``."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Fitted numbers, as arrays and JSON values."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Take back what ``_state`` returned; ``encoding_``, ``observation_`` and ``length_`` are set before."""

    # -- fitting -------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None) -> Self:
        """Fit to sequences ``X``, or to ``y`` given ``X``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: targets, one for each of ``X``: the model then is p(y | x).
            validation: ``"auto"`` lets networks hold out a tenth, 10,000 units at most, for early stopping (the head of a
                single sequence); ``None`` holds out nothing; or sequences (a pair if there are targets).
            sample_weight: ``(n,)`` weight of each sequence in the objective.

        The first Ctrl-C or SIGTERM ends training: ``fit`` returns with a warning, the best so far and ``interrupted_``.

        Raises:
            ValueError: bad input, named by sequence and position, before any work; an earlier fit stays as it was.
            KeyboardInterrupt: a second Ctrl-C, or a first before there is anything to keep; an earlier fit stays as it was.
        """
        with distributed.together():
            return self._fit_to(Data.of(X, y, sample_weight), validation)

    def learned_encoding(self, X: Any, y: Any = None) -> Encoding:
        """The encoding that ``fit`` would learn from these sequences, for ``fit_encoded``; raises as ``fit`` does."""
        self._check_choices()
        return self._settle(Data.of(X, y)).encoding

    def fit_encoded(self, encoding: Encoding, X: Any, y: Any = None, *, validation: Any = "auto") -> Self:
        """``fit`` in an ``encoding`` that is fitted already, so that several models share alphabet and units.

        Raises:
            ValueError: as ``fit``; a model that would go on (``warm_start``) from what it learned in its own encoding.
        """
        if self.warm_start and self.__sklearn_is_fitted__():
            raise ValueError(
                "a warm start goes on in the encoding that was learned first; call fit, or clone the model"
            )
        with distributed.together():
            return self._fit_to(Data.of(X, y), validation, encoding)

    def _fit_to(self, data: Data, validation: Any, encoding: Encoding | None = None) -> Self:
        self._check_choices()
        self._check_hyperparameters()
        check_held_alike(self, data, validation)
        train, held_out = hold_out(data, validation, self._holds_out, self.random_state)
        setting = self._settle(train, encoding)
        for part in (data, held_out):  # all of the data, so that sequences go by the caller's numbers
            if part is not None:
                self._check_readable(setting, part)
        held = [] if held_out is None else setting.examples(held_out)
        examples = setting.examples(train, on_disk=self._reads_slices), held
        began = time.perf_counter()
        with undone_on_failure(self):
            with interruption.interruptible() as interrupted:
                self._set(setting)
                if self._adds_up or not distributed.several():
                    self._fit(*examples)
                else:
                    if not distributed.is_first():
                        interrupted.hold()  # a signal here is one to the process that works
                    distributed.by_first(type(self).__name__, lambda: self._fit(*examples))
            if interrupted.asked and distributed.is_first():
                self.history_: pd.DataFrame = interruption.mark_interrupted(self.history_)
                self.converged_ = False
            self.fit_seconds_ = time.perf_counter() - began
            self._take_from_first()
        if interrupted.asked and interrupted.signal is not None:
            interruption.warn_interrupted(interrupted.signal, self.fit_seconds_, self._checkpoint_path(), stacklevel=3)
        return self

    def _take_from_first(self) -> None:
        """Under several processes all end with the model of the first, to the last bit."""
        content = distributed.content_of_first(self.content)
        if content is not None:
            own = None if content["source_encoding"] is None else self.source_encoding_
            self._load(content, self.encoding_, self.observation_, own)

    def _settled(self) -> dict[str, Any]:
        """What a checkpoint must agree with, beside the hyperparameters: what ``"auto"`` came to."""
        encodings = {"encoding": self.encoding_, "source_encoding": self.source_encoding_}
        return {**encodings, "observation": self.observation_, "length": self.length_}

    def _checkpoint_path(self) -> Any:
        """Where ``fit`` writes checkpoints; None: nowhere."""
        return self.get_params(deep=False).get("checkpoint")

    def _check_choices(self) -> None:
        for name, choices in (("length", ("auto", "given", "stop")), ("dtype", tuple(DTYPES))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; pass one of {', '.join(map(repr, choices))}")
        for name, kind, example in (
            ("encoding", Encoding, "Characters()"),
            ("source_encoding", Encoding, "Characters()"),
            ("observation", Observation, "Categorical()"),
        ):
            choice = getattr(self, name)
            if choice != "auto" and not isinstance(choice, kind):
                raise ValueError(f"{name} is {choice!r}; pass 'auto' or an object such as {example}")
        if self._aligned:
            check_choices(type(self).__name__, self.length, self.ignore_source)

    def _settle(self, train: Data, fitted: Encoding | None = None) -> Setting:
        kind = train.scored.kind
        if self._aligned:
            check_has_targets(type(self).__name__, train)
        given = kind == "vectors" or self._aligned
        length = self.length if self.length != "auto" else "given" if given else "stop"
        observation = self._default_observation(kind) if self.observation == "auto" else self.observation.clone()
        if self.warm_start and self.__sklearn_is_fitted__():
            return Setting.of(
                self.encoding_, observation, length, train.y is not None, self.source_encoding_, grid=train.scored.grid
            )
        observation.check(train.scored.n_features)
        if fitted is not None:
            return Setting.learn(train, fitted, observation, length, fitted=True)
        values = observation.values(train.scored.n_features)
        encoding = default_encoding(kind, values) if self.encoding == "auto" else self.encoding
        return Setting.learn(train, encoding, observation, length, self._sources(train, encoding))

    def _sources(self, train: Data, encoding: Encoding) -> Sources:
        if self.ignore_source:
            return "ignored"
        # A label and what it labels are two things, also where both are integers: each has an encoding of its own.
        like_targets, default = None if self._aligned else encoding, self._default_source_encoding(train.X)
        name, shared = type(self).__name__, self._shares_encoding()
        return choose_sources(train, self.source_encoding, like_targets, default, model=name, shared=shared)

    def _default_source_encoding(self, X: Sequences) -> Encoding:
        """What ``source_encoding="auto"`` means where sources are not read as targets are."""
        return default_encoding(X.kind)

    def _shares_encoding(self) -> bool:
        """Whether sources and targets are read alike."""
        return not self._has_encoder

    def _set(self, setting: Setting) -> None:
        self.encoding_, self.observation_ = setting.encoding, setting.observation
        self.source_encoding_ = setting.source_encoding
        self.measure_, self.length_ = setting.measure, setting.measure.length

    def _missing_is_summed_out(self, observation: Observation) -> bool:
        return self._sums_out_missing and observation.sums_out_missing

    # -- scoring -------------------------------------------------------------------------------------------

    def log_prob_steps(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``log p(x_t | x_<t)`` in nats for every raw unit of every sequence (of ``y`` given ``X``), raw units.

        Under ``length="stop"`` there is one more step, the last: the end. A step of several bytes (a BPE piece)
        stands on its last byte; the bytes before it have 0.

        A figure is finite, or -inf where the model gives probability zero; never NaN. Sequences whose log-probabilities
        float32 cannot hold are computed in float64.

        Raises:
            ValueError: sequences that cannot be read, or a log-probability that float64 cannot hold, by sequence and position.
        """
        data, setting = self._scorable(X, y), self._setting()
        examples = setting.examples(data, on_disk=self._reads_slices)
        names = "X" if data.y is None else "y"
        steps = finite_steps(examples, self._steps, lambda some: self._in_float64()._steps(some), names)
        return [setting.in_raw_units(item, s) for item, s in zip(data.scored, steps, strict=True)]

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence: the sum of its steps."""
        return np.array([steps.sum() for steps in self.log_prob_steps(X, y)])

    def score(self, X: Any, y: Any = None) -> float:
        """Nats per frame, byte or symbol: ``Σ log p / Σ units``. Higher is better."""
        data = self._scorable(X, y)
        return float(self.log_prob(data.X, data.y).sum() / data.scored.n_units.sum())

    def _scorable(self, X: Any, y: Any) -> Data:
        data = Data.of(X, y)
        self._check_scorable(data)
        return data

    def _check_scorable(self, data: Data) -> None:
        setting = self._setting()
        if (data.y is not None) != setting.measure.conditional:
            says = "p(y | x): pass y too" if setting.measure.conditional else "p(x): leave y out"
            raise ValueError(f"the model was fitted as {says}")
        self._check_readable(setting, data)

    def _check_readable(self, setting: Setting, data: Data) -> None:
        setting.check(data, self._missing_is_summed_out(setting.observation))
        if self._aligned:
            check_aligned(setting, data)

    def _in_float64(self) -> Self:
        """The same model, computing in float64; this one stays as it is."""
        if self.dtype == "float64":
            return self
        twin = copy.copy(self)
        twin.dtype = "float64"
        return twin

    def _affine(self) -> tuple[Tensor, Tensor]:
        shift, scale = self.encoding_.affine()
        dtype, device = DTYPES[self.dtype], self._device()
        return torch.as_tensor(shift, dtype=dtype, device=device), torch.as_tensor(scale, dtype=dtype, device=device)

    # -- keeping -------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; ``seqmodels.load`` reads it."""
        storage.write(path, self.content())

    def content(self) -> dict[str, Any]:
        """What ``save`` writes: nested dictionaries of arrays and JSON values."""
        self._setting()
        return {
            "model": storage.describe(self),
            "encoding": _described(self.encoding_),
            "source_encoding": self._described_sources(),
            "observation": storage.describe(self.observation_),
            "measure": self.measure_.to_json(),
            "history": {k: [float(x) for x in v] for k, v in self.history_.to_dict("list").items()},
            "converged": bool(self.converged_),
            "fit_seconds": float(self.fit_seconds_),
            "state": self._state(),
        }

    def _described_sources(self) -> dict[str, Any] | None:
        own = self.source_encoding_
        return None if own is None or own is self.encoding_ else _described(own)

    def _load(
        self, content: dict[str, Any], encoding: Encoding, observation: Observation, sources: Encoding | None
    ) -> Self:
        self.encoding_ = encoding.restore(content["encoding"]["state"])
        shared = self.encoding_ if content["measure"]["conditional"] and not self.ignore_source else None
        self.source_encoding_ = shared if sources is None else sources.restore(content["source_encoding"]["state"])
        self.observation_, self.measure_ = observation, Measure(**content["measure"])
        self.length_ = self.measure_.length
        self.history_, self.converged_ = pd.DataFrame(content["history"]), content["converged"]
        self.fit_seconds_ = content["fit_seconds"]
        self._restore(content["state"])
        return self

    # -- inside --------------------------------------------------------------------------------------------

    def _with_floor(self, factor: float) -> Self:
        """The fitted model with the floors of its variances times ``factor``, to see what of a score they made; nothing is fitted."""
        other = copy.copy(self)
        other.observation_ = self.observation_.with_floor(factor)
        return other

    def _setting(self) -> Setting:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        return Setting(self.encoding_, self.observation_, self.measure_, self.source_encoding_)

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type="density_estimator",
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=False, string=True, three_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "measure_")


def _described(encoding: Encoding) -> dict[str, Any]:
    return {**storage.describe(encoding), "state": encoding.state()}
