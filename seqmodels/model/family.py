"""``Family``: what a family of models says of itself; ``SequenceModel`` is everything that follows from it."""

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
from seqmodels.encodings.auto_series import SeriesChoice
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
from seqmodels.encodings.setting import Setting
from seqmodels.generation import (
    Cursor,
    CursorState,
    MergedStates,
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
    """A model was called for something that only a fitted one has."""


@dataclass(kw_only=True, eq=False, repr=False)
class Family(Configurable, ABC):
    """The hyperparameters that all models share, and what each family defines for itself.

    To add a model, subclass ``SequenceModel`` and define the abstract methods here: fit encoded examples, score them in
    batches (``_steps``), and predict them one step at a time (``cursor``). Both must give the same log-probabilities;
    ``tests/test_contract.py`` holds them to it. What has a default here is defined otherwise where a family differs.
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

    # What a subclass sets otherwise where it differs.
    _dtypes: ClassVar[tuple[str, ...]] = tuple(DTYPES)  # what dtype may be
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
        """``(D,)`` names of the features of ``X`` that it was fitted to; no attribute where they had none.

        Sequences whose features are called otherwise, or come in another order, are refused.
        """
        encoding = self.source_encoding_ if self._setting().measure.conditional else self.encoding_
        if encoding is None or encoding.reads != "vectors" or encoding.names is None:
            raise AttributeError(f"this {type(self).__name__} was fitted to sequences without names of features")
        return np.array(encoding.names, dtype=object)

    @property
    def symbol_names_(self) -> np.ndarray:
        """``(V,)`` the string of each symbol; no attribute where it was fitted to integers, text or vectors."""
        self._setting()
        if self.encoding_.reads != "symbols" or self.encoding_.names is None:
            raise AttributeError(f"this {type(self).__name__} was not fitted to strings as symbols")
        return np.array(self.encoding_.names, dtype=object)

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended ``fit``; the last row of ``history_`` then has ``interrupted`` 1."""
        return interruption.was_interrupted(self.history_)

    @property
    def reason_(self) -> str | None:
        """Why what was ``"auto"`` came to what it did, in one line, where ``fit`` asked clusters that it held out."""
        reason: str | None = vars(self).get("_reason")
        return reason

    @property
    def dtype_(self) -> str:
        """``"float32"`` or ``"float64"``: the precision of the computation."""
        return self.dtype

    @property
    def input_names_(self) -> tuple[str, ...]:
        """The inputs that it reads, in its order; none where it is p(x)."""
        return self._setting().measure.inputs

    @property
    def memory_(self) -> MemoryKind:
        """``"static"``, or ``"adaptive"``: within a sequence its parameters follow what of it has been read.

        An adaptive model scores a step before it learns from it, and at the start of every sequence it is the fitted
        model again.
        """
        return "static"

    def __getattr__(self, name: str) -> Any:
        """Return a parameter of the observation, such as ``means_``; raise an error that says why there is none.

        Python also calls this where a property raised an ``AttributeError``, which it forgets: it is raised again.
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
        """The names that can be read now, those of the observation's parameters among them."""
        return [*super().__dir__(), *(self._named_parameters() if self.__sklearn_is_fitted__() else ())]

    def _named_parameters(self) -> Mapping[str, Any]:
        """The observation's parameters of the fitted model, in raw units, by the name of an attribute each."""
        return {}

    def _hint_of(self, name: str) -> str:
        """What to add to the error about an attribute that does not exist."""
        return ""

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
        """The observation that ``observation="auto"`` stands for, by the kind of the data."""

    @abstractmethod
    def _check_hyperparameters(self) -> None:
        """Raise ``ValueError`` for values that cannot be, before any work."""

    @abstractmethod
    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        """Fit encoded examples; sets ``history_`` and ``converged_``."""

    @abstractmethod
    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """For each example S (under ``stop`` S + 1, the last the end) float64 log-probabilities of encoded steps.

        Those of its past (``Example.n_past``) are among them, as the first.
        """

    def _sums_of_steps(self, examples: list[Example]) -> np.ndarray:
        """``(n,)`` the sum of the ``_steps`` of each example, less those of its past.

        A model that reads from disk keeps none of those of examples on disk, which may be longer than memory.
        """
        return totals(without_past(examples, self._steps(examples)))

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        """Of symbols: for each example ``(S, V)``, under ``stop`` ``(S + 1, V + 1)``, of all that could come next.

        Nats, given the steps before; the end is the last column. By default from the cursor, one step after the other.
        """
        cursor = self.cursor()
        return [
            event_log_probs(with_inputs(cursor, example.inputs), np.asarray(example.values), example.source)
            for example in examples
        ]

    def _decision_log_odds(self, code: BinaryCode, examples: list[Example]) -> list[np.ndarray]:
        """Of symbols: for each example ``(T, B)`` log-odds of the binary decisions that its steps are.

        As ``binary_code.log_odds_of_path``; a model that makes binary decisions itself knows them without a table of
        all symbols.
        """
        tables = self._event_log_probs(examples)
        return [log_odds_of_path(code, p, np.asarray(e.values)) for p, e in zip(tables, examples, strict=True)]

    def _symbol_coder(self) -> SymbolCoder:
        """Codes encoded sequences of symbols by the fitted model's predictions; by default those of its cursor."""
        # What adapts moves its tables from one sequence to another, which costs more than several at once save.
        at_once = MOST_AT_ONCE if self.measure_.memory == "static" else 1
        return StepCoder(self.cursor(), self.encoding_.size, self.length_ == "stop", at_once)

    @abstractmethod
    def cursor(self, n_steps: int | None = None) -> Cursor:
        """The fitted model as a chain of one-step predictions, over encoded steps, for several sequences at once.

        What all steps share is computed here, once; many sequences may start from one cursor.

        Args:
            n_steps: about how many steps will be taken, where that is known: for few of them a network does without
                the tables that pay only over many. It changes no prediction but for rounding.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[1.0]], emission=[[0.75, 0.25]])
        >>> cursor = model.cursor()
        >>> state = cursor.start(n=2)
        >>> state = cursor.advance(state, torch.tensor([0, 1]))
        >>> cursor.distribution(state).log_probs().exp()
        tensor([[0.7500, 0.2500],
                [0.7500, 0.2500]], dtype=torch.float64)

        Raises:
            NotFittedError: a model that is not fitted.
        """

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Fitted numbers, as arrays and JSON values."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Take back what ``_state`` returned; ``encoding_``, ``observation_`` and ``length_`` are set before."""

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        """The hyperparameters that end a fit after so many seconds or steps, where it has such; None is no limit."""
        return {}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        """The largest ``_size`` at which a fit to these data has no more parameters; None: it stays as it is.

        Raises:
            ValueError: the smallest has more.
        """
        return None

    def _choices(
        self, data: Data, fitted: Encoding | None = None, *, is_partial: bool = False, by_clusters: bool = False
    ) -> Choices:
        """What the arguments, where they are ``"auto"``, come to for these training data.

        Args:
            data: of the fit.
            fitted: an encoding to take as it is; None: it is learned.
            is_partial: they do not say all of what will be read, as the first of several batches.
            by_clusters: whether models may be fitted to some clusters and asked about others, to choose by.
        """
        choices = self._choices_without_clusters(data, fitted, is_partial=is_partial)
        return self._chosen_by_clusters(choices, data) if by_clusters and fitted is None else choices

    def _chosen_by_clusters(self, choices: Choices, data: Data) -> Choices:
        """The choices, or others, by what predicts clusters that models were not fitted to."""
        return choices

    def _choices_without_clusters(self, data: Data, fitted: Encoding | None, *, is_partial: bool) -> Choices:
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
                changes = self._changes_of_series(data.scored, encoding)
                if changes is not None:  # of series without sources
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
        """Of ``observation="auto"`` the default that has a parameter ``inner``, so that it can be set and searched."""
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
        """What ``length="auto"`` means for data of this kind; the inputs of a sequence say how long it is."""
        return "given" if kind == "vectors" or self._is_tagger or self._reads_inputs else "stop"

    @property
    def _reads_inputs(self) -> bool:
        """Whether it is to be p(x | inputs)."""
        return False

    @property
    def _times_in(self) -> DateUnit | None:
        """What dates are counted in by a model that reads the times of steps as its input; None: it reads none."""
        return None

    @property
    def _time_step(self) -> float:
        """The time that one of its steps takes, in which it counts times."""
        return 1.0

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those that it is to read of the inputs that there are, in its order; also such as there are not."""
        return ()

    def _named_encoding(self) -> Encoding | Literal["auto"]:
        """The encoding that the arguments name, perhaps those of a model inside."""
        return self.encoding

    def _default_encoding(self, kind: Kind, observation: Observation, n_features: int) -> Encoding:
        """What ``encoding="auto"`` means, for vectors by what the observation says of their features."""
        return default_encoding(kind, observation, n_features)

    def _may_read_series(self, data: Data, length: Length) -> bool:
        """Whether ``encoding="auto"`` may come to differences, of which first frames are no steps of the model's."""
        has_all_steps = data.y is None and data.states is None and not self._reads_inputs and length == "given"
        return self._reads_series and has_all_steps

    def _changes_of_series(self, sequences: Sequences, encoding: Encoding) -> SeriesChoice | None:
        """The changes that ``encoding="auto"`` means for these training sequences; None: it is ``encoding``."""
        return changes_of_series(sequences, encoding)

    def _stated_encoding(self) -> Encoding | None:
        """The encoding, fitted, of a model that was made elsewhere and learns none from data; None: it is learned."""
        return None

    def _members(self) -> dict[str, Any]:
        """The fitted models that this one is made of, by name; they are saved with it."""
        return {}

    def _restore_members(self, members: dict[str, Any]) -> None:
        """Take back what ``_members`` returned; before ``_restore``."""
        if members:
            raise ValueError(f"{a_or_an(type(self))} is not made of other models, but the file holds {len(members)}")

    def _default_source_encoding(self, X: Sequences) -> Encoding:
        """What ``source_encoding="auto"`` means where sources are not read as targets are."""
        return default_encoding(X.kind)

    def _reads_missing(self) -> bool:
        """Whether the fitted model reads, and sums out, missing values."""
        return self._sums_out(self.observation_)

    def _sums_out(self, observation: Observation) -> bool:
        """Whether the model sums out missing values of frames that this observation emits."""
        return self._sums_out_missing and observation.sums_out_missing

    def _source_shares_encoding(self) -> bool:
        """Whether sources and targets are read by one encoding."""
        return not self._has_encoder

    def _most_probable_targets(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """For each encoded source the most probable target, encoded, where it is found without a search; else None."""
        return None

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        """Histories merged in groups, where ``Σ_i w_i p(future | state_i)`` of a group stays what it is.

        By default each is a group of its own.
        """
        return [([i], state) for i, state in enumerate(states)]

    def _filtered(self, state: CursorState) -> np.ndarray:
        """``(K,)`` p(z_t | x_1 .. x_t) at a state of the cursor, for ``Stream.filtered``."""
        raise AttributeError(
            f"{type(self).__name__} has no hidden states with probabilities; an HMM's stream has filtered, "
            "p(z_t | x_1 .. x_t)"
        )

    # -- in a file -----------------------------------------------------------------------------------------

    def content(self) -> dict[str, Any]:
        """What ``save`` writes: nested dictionaries of arrays and JSON values."""
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
        """What ``_load`` reads but for the states of encodings: no hyperparameters, which a file may not hold."""
        return {
            "measure": self.measure_.to_json(),
            "history": {k: [float(x) for x in v] for k, v in self.history_.to_dict("list").items()},
            "converged": bool(self.converged_),
            "fit_seconds": float(self.fit_seconds_),
            **({} if self.target_lengths_ is None else {"target_lengths": asdict(self.target_lengths_)}),
            **({} if self._input_scaling is None else {"inputs": self._input_scaling.state()}),
            **({} if self.reason_ is None else {"reason": self.reason_}),
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
        self._reason: str | None = content.get("reason")
        if not (self._reason is None or isinstance(self._reason, str)):
            raise ValueError("the reason of a choice should be words")
        inputs = content.get("inputs")
        self.input_scaling_ = None if inputs is None else InputScaling.of_state(inputs)
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
        """The fitted model with the floors of its variances times ``factor``; nothing is fitted anew.

        The change of a score tells how much of it the floors made.
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
        """How the inputs that it reads are standardised; None: it reads none."""
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
