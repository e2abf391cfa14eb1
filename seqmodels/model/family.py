"""The hyperparameters that all models share (``Family``), and the methods that each kind of model defines for
itself.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch

from seqmodels.common import storage
from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Configurable, argument_names, place_in_group
from seqmodels.common.progress import Verbose
from seqmodels.encodings import Encoding
from seqmodels.encodings.binary_code import BinaryCode, log_odds_of_path
from seqmodels.encodings.defaults import (
    Choices,
    changes_of_series,
    choose_sources,
    default_encoding,
    kind_of_steps,
    reading_of,
)
from seqmodels.encodings.examples import Example, TargetLengths, without_past
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.encodings.terms import Term
from seqmodels.generation import (
    Cursor,
    CursorState,
    MergedStates,
    Prediction,
    StepCoder,
    SymbolCoder,
    event_log_probs,
)
from seqmodels.generation.coding import MOST_AT_ONCE
from seqmodels.generation.given_inputs import with_inputs
from seqmodels.observations import Observation
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.mapped import totals
from seqmodels.sequences.measure import Length, Measure, MemoryKind
from seqmodels.sequences.times import DateUnit
from seqmodels.training import interruption


class NotFittedError(AbsentAttributeError):
    """The error raised when a method or attribute that needs a fitted model is used on a model that is not fitted."""


@dataclass(kw_only=True, eq=False, repr=False)
class Family(Configurable, ABC):
    """The hyperparameters that all models share, and the methods that each kind of model defines for itself.

    To add a model, subclass ``SequenceModel`` and define the abstract methods of this class: ``_fit`` fits encoded
    examples, ``_steps`` scores them in batches, and ``cursor`` predicts them one step at a time. ``_steps`` and
    ``cursor`` must give the same log-probabilities, which ``tests/test_contract.py`` checks for every model. Methods
    that are not abstract have a default, to be overridden by the models for which it is wrong.
    """

    length: Length | Literal["auto"] = "auto"
    encoding: Encoding | Literal["auto"] = "auto"
    ignore_source: bool = False
    observation: Observation | Literal["auto"] = "auto"
    random_state: int = 0
    device: str = "auto"
    dtype: str = "float32"
    warm_start: bool = False
    verbose: Verbose = "auto"

    _listed_last: ClassVar[tuple[str, ...]] = (
        *("max_iter", "tol", "n_init", "max_seconds", "observation", "encoding", "length", "training", "random_state"),
        *("device", "dtype", "warm_start", "verbose", "source_encoding", "ignore_source"),
    )
    # An argument of models with an encoder; all others read sources by the encoding of targets.
    source_encoding = cast("Encoding | Literal['auto']", "auto")
    _had: ClassVar[Mapping[str, Any]] = {"source_encoding": "auto"}

    # Properties of a kind of model; a subclass overrides those that differ.
    _dtypes: ClassVar[tuple[str, ...]] = tuple(DTYPES)  # allowed values of dtype
    _checks_itself: ClassVar[bool] = True
    _uses_validation: ClassVar[bool] = True  # whether validation="auto" takes sequences away from training
    _sums_out_missing: ClassVar[bool] = False  # whether frames may have missing values, where the observation allows it
    _has_encoder: ClassVar[bool] = False  # whether sources are read apart from targets, and so may be of another kind
    _pads_sources: ClassVar[bool] = False  # whether a cursor starts from sources of several lengths at once
    _is_tagger: ClassVar[bool] = False  # whether targets have a step for each of their source's
    _predicts_steps: ClassVar[bool] = True  # False: it scores sequences as a whole, and has no cursor
    _reads_from_disk: ClassVar[bool] = False  # whether memory-mapped sequences may stay on disk
    _reads_series: ClassVar[bool] = False  # whether encoding="auto" may come to differences of a series
    _size: ClassVar[str | None] = None  # the hyperparameter that a budget of parameters sets
    _fits_in_parallel: ClassVar[bool] = False  # whether several processes share ``_fit``; else the first does it alone

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The names of the D features of the sequences ``X`` that the model was fitted to, shape ``(D,)``.

        A fitted model refuses sequences whose features have other names or come in another order.

        Raises:
            AttributeError: if the model was fitted to data without names of features.
        """
        encoding = self.source_encoding_ if self._setting().measure.conditional else self.encoding_
        if encoding is None or encoding.reads != "vectors" or encoding.names is None:
            raise AttributeError(f"this {type(self).__name__} was fitted to sequences without names of features")
        return np.array(encoding.names, dtype=object)

    @property
    def symbol_names_(self) -> np.ndarray:
        """The string that each of the V symbols stands for, shape ``(V,)``.

        Raises:
            AttributeError: if the model was not fitted to sequences of strings.
        """
        self._setting()
        if self.encoding_.reads != "symbols" or self.encoding_.names is None:
            raise AttributeError(f"this {type(self).__name__} was not fitted to strings as symbols")
        return np.array(self.encoding_.names, dtype=object)

    @property
    def interrupted_(self) -> bool:
        """True if Ctrl-C or SIGTERM ended ``fit``.

        The last row of ``history_`` then has 1 in its column ``interrupted``.
        """
        return interruption.was_interrupted(self.history_)

    @property
    def dtype_(self) -> str:
        """The precision in which the model computes, ``"float32"`` or ``"float64"``."""
        return self.dtype

    @property
    def input_names_(self) -> tuple[str, ...]:
        """The names of the inputs that the model reads, in the order in which it takes them; empty if it reads none."""
        return self._setting().measure.inputs

    @property
    def memory_(self) -> MemoryKind:
        """The kind of memory: ``"adaptive"`` if the model goes on learning while it reads a sequence, else
        ``"static"``.

        An adaptive model scores a step before it learns from it, and at the start of every sequence it is the fitted
        model again.
        """
        return "static"

    def __getattr__(self, name: str) -> Any:
        """Return a fitted parameter of the observation by its name, such as ``means_``; called if no attribute is
        found.

        Python also calls this method after a property has raised an ``AttributeError``, and drops that error. The
        property is then evaluated again, so that the user sees its own message.

        Raises:
            NotFittedError: if ``name`` may be a fitted parameter, but the model is not fitted.
            AttributeError: if there is no attribute ``name``; the message says why, and what may be meant.
        """
        if name.startswith("_") or not name.endswith("_"):
            place = None if name.startswith("_") else place_in_group(type(self), name)
            says = f"; it is {'.'.join(place)}" if place else self._hint_of(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{says}")
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted, so it has no {name}; call fit first")
        of_class = getattr(type(self), name, None)
        if isinstance(of_class, property) and of_class.fget is not None:
            return of_class.fget(self)
        parameters = self._named_parameters()
        if name not in parameters:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{self._hint_of(name)}")
        return parameters[name]

    def __dir__(self) -> list[str]:
        """Return the names of the attributes that can be read now, including the parameters of the observation."""
        return [*super().__dir__(), *(self._named_parameters() if self.__sklearn_is_fitted__() else ())]

    def _named_parameters(self) -> Mapping[str, Any]:
        """Return the observation's fitted parameters in raw units, by attribute name, such as ``means_``."""
        return {}

    def _hint_of(self, name: str) -> str:
        """Return text to append to the error about an attribute ``name`` that does not exist; empty by default."""
        return ""

    # -- what a model defines ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def context_(self) -> int | None:
        """The number of past steps that the model can see; None means the whole sequence."""

    @property
    @abstractmethod
    def n_parameters_(self) -> int:
        """The number of free parameters of the fitted model."""

    @abstractmethod
    def _default_observation(self, kind: Kind) -> Observation:
        """Return what ``observation="auto"`` means for data of ``kind``, such as ``"vectors"`` or ``"symbols"``."""

    @abstractmethod
    def _check_hyperparameters(self) -> None:
        """Raise ValueError if a hyperparameter has a value that the model cannot use; called before any work."""

    @abstractmethod
    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        """Fit the model to ``train``, encoded sequences, and set ``history_`` and ``converged_``.

        ``validation`` are encoded sequences held out for early stopping; the list is empty if nothing is held out.
        """

    @abstractmethod
    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """Return the log-probability of each encoded step of each example in nats, an array of float64 for each.

        An example is one encoded sequence; one of S steps gets an array of length S. Under ``length="stop"`` the length
        is S + 1, and the last entry is the end of the sequence. Steps that came before the sequence (the first
        ``Example.n_past``) are included and come first.
        """

    def _sums_of_steps(self, examples: list[Example]) -> np.ndarray:
        """Return the log-probability of each encoded sequence in nats, ``(n,)``: the sum over its steps without its
        past.

        The past are the first ``Example.n_past`` steps, which came before the sequence. A model that reads from disk
        overrides this method so that the steps of an example longer than memory are not kept.
        """
        return totals(without_past(examples, self._steps(examples)))

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        """Return, for each example of symbols, the log-probability in nats of every event that could come at each step.

        An example is one encoded sequence. Events are the V symbols and, under ``length="stop"``, the end of the
        sequence. The arrays of an example with S steps have shape ``(S, V)``, or ``(S + 1, V + 1)`` with the end as
        last column. Every row is conditioned on the true steps before it. The default steps through each example with
        the cursor.
        """
        cursor = self.cursor()
        return [
            event_log_probs(with_inputs(cursor, example.inputs), np.asarray(example.values), example.source)
            for example in examples
        ]

    def _step_predictions(self, examples: list[Example], *, given_rest: bool = False) -> list[Prediction] | None:
        """Return the predictions of all encoded steps of each example, one ``Prediction`` with a row for each step.

        An example is one encoded sequence; the steps of its past are included. By default the result is None, and the
        predictions are those of the cursor. A model that computes them for all steps at once overrides this method.

        Args:
            examples: encoded sequences.
            given_rest: False predicts each step given the steps before it. True predicts each given all other steps of
                its sequence, before and after it, which by default is not known.
        """
        return None

    def _decision_log_odds(self, code: BinaryCode, examples: list[Example]) -> list[np.ndarray]:
        """Return, for each example of symbols, the log-odds of the binary decisions that spell its steps, ``(T, B)``.

        At each of T steps, B decisions are made: whether the sequence ends, then the bits of the symbol. A model that
        predicts binary decisions directly overrides this method, because it needs no table over all symbols.

        Args:
            code: the binary decisions that code a symbol of the model's alphabet, or the end.
            examples: encoded sequences of symbols.
        """
        tables = self._event_log_probs(examples)
        return [log_odds_of_path(code, p, np.asarray(e.values)) for p, e in zip(tables, examples, strict=True)]

    def _symbol_coder(self) -> SymbolCoder:
        """Return an arithmetic coder of encoded symbol sequences that uses the fitted model's predictions.

        By default these are the predictions of its cursor.
        """
        # One at a time, because an adaptive model copies its tables whenever it changes to another sequence, which
        # costs more than coding several at once saves.
        at_once = MOST_AT_ONCE if self.measure_.memory == "static" else 1
        return StepCoder(self.cursor(), self.encoding_.size, self.length_ == "stop", at_once)

    @abstractmethod
    def cursor(self, n_steps: int | None = None) -> Cursor:
        """Return a cursor, with which the fitted model predicts several sequences of encoded steps one step at a time.

        Values that all steps share are computed once, in this call; any number of sequences may start from one cursor.

        Args:
            n_steps: about how many steps will be taken; None if that is not known. For few steps a network leaves out
                the tables that pay off only over many. The number changes no prediction beyond rounding.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[1.0]], emission=[[0.75, 0.25]])
        >>> cursor = model.cursor()
        >>> state = cursor.start(n=2)
        >>> state = cursor.advance(state, torch.tensor([0, 1]))
        >>> cursor.distribution(state).log_probs().exp()
        tensor([[0.7500, 0.2500],
                [0.7500, 0.2500]], dtype=torch.float64)

        Raises:
            NotFittedError: if the model is not fitted.
        """

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return the fitted numbers as arrays and JSON values, by name, in the form in which a file stores them."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Set the fitted numbers from ``state``, which ``_state`` returned.

        ``encoding_``, ``observation_`` and ``length_`` are set before this method is called.
        """

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        """Return hyperparameters that end a fit after ``seconds`` or ``steps``, as a mapping from names to values.

        A limit of None sets nothing. The mapping is empty for a model whose fit cannot be limited.
        """
        return {}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        """Return the largest value of the hyperparameter named by ``_size`` with at most ``n_parameters`` parameters.

        Return None if the model has no such hyperparameter.

        Args:
            n_parameters: largest number of free parameters allowed.
            data: training data, which decide how many parameters a size has.

        Raises:
            ValueError: if even the smallest size has more parameters.
        """
        return None

    def _choices(self, data: Data, fitted: Encoding | None = None, *, is_partial: bool = False) -> Choices:
        """Return the encoding, observation and length to use for these training data, with each ``"auto"`` resolved.

        Args:
            data: training data.
            fitted: a fitted encoding to use unchanged; None if an encoding is to be learned.
            is_partial: True if ``data`` is only the first of several batches, so that later ones may contain other
                values.
        """
        kind, n_features = data.scored.kind, data.scored.n_features
        length = self._default_length(kind) if self.length == "auto" else self.length
        auto = self.observation == "auto"
        stated = self._stated_encoding() if fitted is None else fitted
        of_steps = kind_of_steps(kind, self._named_encoding() if stated is None else stated)
        observation = self._default_observation(of_steps) if auto else cast(Observation, self.observation).clone()
        observation.check(n_features)
        if stated is not None:
            return Choices(stated, observation, length, "ignored" if self.ignore_source else "shared", is_fitted=True)
        encoding = self.encoding
        if encoding == "auto":
            encoding = self._default_encoding(kind, observation, n_features)
            if not is_partial and self._may_read_series(data, length):
                changes = changes_of_series(data.scored, encoding)
                if changes is not None:  # only series without sources are read as changes
                    return Choices(reading_of(changes, data.scored), observation, length, "ignored", is_fitted=True)
        if self.ignore_source:
            return Choices(encoding, observation, length, "ignored")
        sources = choose_sources(
            data,
            self.source_encoding,
            # Labels and what they label have encodings of their own, also where both are integers.
            None if self._is_tagger else encoding,
            self._default_source_encoding(data.X),
            model=type(self).__name__,
            shared=self._source_shares_encoding(),
        )
        return Choices(encoding, observation, length, sources)

    def _value_with(self, name: str, inner: str) -> Any:
        """Return the hyperparameter ``name``, a nested object whose own parameter ``inner`` is about to be set.

        For ``observation="auto"``, return the default observation that has an argument ``inner``, so that a nested
        parameter such as ``observation__n_components`` can be set and searched.
        """
        value = getattr(self, name)
        kinds: tuple[Kind, ...] = ("vectors", "symbols") if name == "observation" and value == "auto" else ()
        for kind in kinds:
            try:
                default = self._default_observation(kind)
            except ValueError:  # a family that has none for this kind
                continue
            if inner in argument_names(type(default)):
                return default
        return value

    def _default_length(self, kind: Kind) -> Length:
        """Return what ``length="auto"`` means for data of this kind, ``"given"`` or ``"stop"``.

        It is ``"given"`` (ends are not modelled) for vectors, for taggers and for models that read inputs, because
        inputs fix the length of a sequence, and ``"stop"`` (ends are events) for all others.
        """
        return "given" if kind == "vectors" or self._is_tagger or self._reads_inputs else "stop"

    @property
    def _reads_inputs(self) -> bool:
        return False

    @property
    def _times_in(self) -> DateUnit | None:
        """The unit in which a model that reads the times of steps counts dates; None if it does not read times."""
        return None

    @property
    def _time_step(self) -> float:
        """The time between two steps, which is the unit in which the model counts times."""
        return 1.0

    @property
    def _terms(self) -> tuple[Term, ...]:
        """The penalised terms of inputs that the model reads."""
        return ()

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the inputs to read, in the model's order.

        ``names`` are the names of the inputs that the data have; a name that the model asks for may be missing among
        them.
        """
        return ()

    def _named_encoding(self) -> Encoding | Literal["auto"]:
        """Return the argument ``encoding``; a model that contains another one may return the encoding of the inner
        model.
        """
        return self.encoding

    def _default_encoding(self, kind: Kind, observation: Observation, n_features: int) -> Encoding:
        """Return the encoding that ``encoding="auto"`` means for data of this kind.

        For vectors with ``n_features`` features it depends on the kinds of values that ``observation`` emits.
        """
        return default_encoding(kind, observation, n_features)

    def _may_read_series(self, data: Data, length: Length) -> bool:
        """Return True if ``encoding="auto"`` may choose to model the differences of a series instead of its values.

        Differences leave the first frames without a step of the model, so pairs, known states, inputs and
        ``length="stop"`` exclude them.
        """
        has_all_steps = data.y is None and data.states is None and not self._reads_inputs and length == "given"
        return self._reads_series and has_all_steps

    def _stated_encoding(self) -> Encoding | None:
        """Return the encoding of a model whose parameters were made outside, already fitted; None if it is learned from
        data.
        """
        return None

    def _members(self) -> dict[str, Any]:
        """Return the fitted models that this model consists of, by name; they are saved with it."""
        return {}

    def _restore_members(self, members: dict[str, Any]) -> None:
        """Set the fitted models that this model consists of, from a loaded file; called before ``_restore``."""
        if members:
            raise ValueError(f"{a_or_an(type(self))} is not made of other models, but the file holds {len(members)}")

    def _default_source_encoding(self, X: Sequences) -> Encoding:
        """Return the encoding that ``source_encoding="auto"`` means if sources are not read as targets are."""
        return default_encoding(X.kind)

    def _reads_missing(self) -> bool:
        """Return True if the fitted model accepts missing values, over which it sums or integrates."""
        return self._sums_out(self.observation_)

    def _sums_out(self, observation: Observation) -> bool:
        """Return True if the model sums or integrates over missing values of frames that ``observation`` emits."""
        return self._sums_out_missing and observation.sums_out_missing

    def _source_shares_encoding(self) -> bool:
        """Return True if sources and targets are read by one encoding."""
        return not self._has_encoder

    def _most_probable_targets(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """Return the most probable encoded target of each encoded source, found exactly; None if only a search can find
        it.
        """
        return None

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        """Merge states of the cursor that one state can replace without changing the weighted probability of any
        future.

        For each group of states, ``Σ_i w_i p(future | state_i)`` stays the same. By default every state is a group of
        its own.

        Returns a list of pairs: the indices of the states in a group, and the state that replaces them.

        Args:
            log_weights: logarithm of the weight ``w_i`` of each state.
            states: states of the model's ``cursor()``, each of one sequence after the steps read so far.
        """
        return [([i], state) for i, state in enumerate(states)]

    def _filtered(self, state: CursorState) -> np.ndarray:
        """Return ``p(z_t | x_1 .. x_t)`` of the K hidden states, shape ``(K,)``, where ``state`` of the cursor has read
        t steps.

        Raises:
            AttributeError: if the model has no hidden states with probabilities.
        """
        raise AttributeError(
            f"{type(self).__name__} has no hidden states with probabilities; an HMM's stream has filtered, "
            "p(z_t | x_1 .. x_t)"
        )

    # -- in a file -----------------------------------------------------------------------------------------

    def content(self) -> dict[str, Any]:
        """Return the contents of the file that ``save`` writes: nested dictionaries of arrays and JSON values."""
        source_encoding, members = self._setting().source_encoding, self._members()
        return {
            "model": storage.describe(self),
            "encoding": _described(self.encoding_),
            "source_encoding": None if source_encoding is self.encoding_ else _described(source_encoding),
            "observation": storage.describe(self.observation_),
            **self._learned(),
            **({"members": {name: member.content() for name, member in members.items()}} if members else {}),
        }

    def _learned(self) -> dict[str, Any]:
        """Return everything that was fitted, by name, in the form in which a file stores it, except the encodings.

        Hyperparameters are not included; ``content`` adds their description.
        """
        return {
            "measure": self.measure_.to_json(),
            "history": {k: [float(x) for x in v] for k, v in self.history_.to_dict("list").items()},
            "converged": bool(self.converged_),
            "fit_seconds": float(self.fit_seconds_),
            **({} if self.target_lengths_ is None else {"target_lengths": asdict(self.target_lengths_)}),
            **({} if self._input_scaling is None else {"inputs": self._input_scaling.state()}),
            "state": self._state(),
        }

    def _load(
        self,
        content: dict[str, Any],
        encoding: Encoding,
        observation: Observation,
        sources: Encoding | None,
        members: dict[str, Any] | None = None,
    ) -> Self:
        import pandas as pd

        self.encoding_ = encoding.restore(content["encoding"]["state"])
        shared = self.encoding_ if content["measure"]["conditional"] and not self.ignore_source else None
        self.source_encoding_ = shared if sources is None else sources.restore(content["source_encoding"]["state"])
        self.observation_, self.measure_ = observation, Measure(**content["measure"])
        self.length_ = self.measure_.length
        lengths = content.get("target_lengths")  # earlier files have none
        self.target_lengths_: TargetLengths | None = None if lengths is None else TargetLengths(**lengths)
        inputs = content.get("inputs")
        self.input_scaling_ = None if inputs is None else InputScaling.of_state(inputs, self._terms)
        if self.measure_.inputs != (() if self.input_scaling_ is None else self.input_scaling_.names):
            raise ValueError("the inputs of the measure are not those that the model reads")
        if self._inputs_among(self.measure_.inputs) != self.measure_.inputs:
            raise ValueError("the inputs of the measure are not those that the hyperparameters name")
        self.history_ = pd.DataFrame(content["history"])
        self.converged_: bool = content["converged"]
        self.fit_seconds_: float = content["fit_seconds"]
        self._restore_members(members or {})
        self._restore(content["state"])
        return self

    # -- inside --------------------------------------------------------------------------------------------

    def _with_floor(self, factor: float) -> Self:
        """Return the fitted model with the floors (lower bounds) of its variances multiplied by ``factor``.

        It is not fitted again. The change of its score measures how much of the score is due to the floors.
        """
        floored = copy.copy(self)
        floored.observation_ = self.observation_.with_floor(factor)
        return floored

    def _setting(self) -> Setting:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        return Setting(self.encoding_, self.observation_, self.measure_, self.source_encoding_, self._input_scaling)

    @property
    def _input_scaling(self) -> InputScaling | None:
        """The standardisation of the inputs that the model reads; None if it reads none."""
        scaling: InputScaling | None = vars(self).get("input_scaling_")
        return scaling

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
        return "measure_" in vars(self)


def _described(encoding: Encoding | None) -> dict[str, Any] | None:
    return None if encoding is None else {**storage.describe(encoding), "state": encoding.state()}
