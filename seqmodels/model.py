"""``SequenceModel``: raw sequences in, comparable log-probabilities out; the interface of every family of models."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from seqmodels import distributed, storage
from seqmodels.binary_code import BinaryCode, log_odds_of_path
from seqmodels.display import html_facts, model_facts, settings_in_words, text_facts
from seqmodels.encodings import Encoding
from seqmodels.fitting import check_arguments, checked_data, fit_model, learn_setting
from seqmodels.generation import (
    Candidate,
    Cursor,
    CursorState,
    Decoding,
    Forecast,
    MergedStates,
    PruningName,
    SamplingOptions,
    Stream,
    event_log_probs,
    forecast,
    generate,
    log_prob_marginal,
    n_best,
    predict,
    predict_next,
    sample,
)
from seqmodels.mapped import any_mapped, totals
from seqmodels.measure import Length, Measure, MemoryKind, Values
from seqmodels.observations import Observation
from seqmodels.parameters import Configurable, NotNegative, NotNegativeFloat, PositiveInt, Seed, argument_names, checked
from seqmodels.precision import DTYPES, checked_log_prob_steps, in_float64, squares_exceed_float32
from seqmodels.preparation import Data, Example, Setting, TargetLengths, default_encoding, without_past
from seqmodels.sequences import Item, Kind, Sequences
from seqmodels.training import interruption


class NotFittedError(ValueError, AttributeError):
    """A model was called for something that only a fitted one has."""


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceModel(Configurable, ABC):
    """``log p(x_1 .. x_T) = Σ_t log p(x_t | x_<t)``, in raw units, for every model alike.

    Args:
        length: ``"given"``: p(x | T); ``"stop"``: the end of a sequence is an event with a probability; ``"auto"``:
            ``"given"`` for vectors and for taggers, ``"stop"`` for text and symbols.
        encoding: what the model sees; ``"auto"`` standardises vectors (bits and counts stay as they are) and reads text
            as bytes.
        source_encoding: how a model with an encoder reads sources; ``"auto"``: as the targets where both are of one
            kind, else as ``encoding="auto"`` would. Models without an encoder read source and target by
            one encoding.
        ignore_source: p(y) in the place of p(y | x), as a baseline: the sources, of whatever kind, are not looked at.
        observation: how a state emits a step; ``"auto"``: ``Categorical`` for symbols, ``GaussianMixture`` for vectors.
        random_state: seed of everything random.
        device: ``"auto"`` takes a GPU where there is one.
        dtype: ``"float32"`` or ``"float64"``, of the computation; sums of log-probabilities are float64 in both. An
            ``HMM`` has ``"auto"`` too.
        warm_start: ``fit`` continues from where the model stands.
        verbose: show progress.

    To add a model, define the abstract methods: fit encoded examples, score them in batches (``_steps``), and predict
    them one step at a time (``cursor``). Both must give the same log-probabilities; ``tests/test_contract.py`` holds
    them to it.

    Attributes (fitted): ``measure_``, ``encoding_``, ``observation_``, ``length_``, ``history_`` (a frame: step,
    seconds, log_prob, validation, objective, floor_hits; nats per unit), ``n_parameters_``, ``converged_``,
    ``interrupted_``, ``fit_seconds_``, ``target_lengths_`` (of pairs under ``"stop"``, in encoded steps; else None).
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
    def dtype_(self) -> str:
        """``"float32"`` or ``"float64"``: the precision of the computation."""
        return self.dtype

    @property
    def memory_(self) -> MemoryKind:
        """``"static"``, or ``"adaptive"``: within a sequence its parameters follow what of it has been read.

        An adaptive model scores a step before it learns from it, and at the start of every sequence it is the fitted
        model again.
        """
        return "static"

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
        return [event_log_probs(cursor, np.asarray(example.values), example.source) for example in examples]

    def _decision_log_odds(self, code: BinaryCode, examples: list[Example]) -> list[np.ndarray]:
        """Of symbols: for each example ``(T, B)`` log-odds of the binary decisions that its steps are.

        As ``binary_code.log_odds_of_path``; a model that makes binary decisions itself knows them without a table of
        all symbols.
        """
        tables = self._event_log_probs(examples)
        return [log_odds_of_path(code, p, np.asarray(e.values)) for p, e in zip(tables, examples, strict=True)]

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
        """What ``length="auto"`` means for data of this kind."""
        return "given" if kind == "vectors" or self._is_tagger else "stop"

    def _default_encoding(self, kind: Kind, values: tuple[Values, ...]) -> Encoding:
        """What ``encoding="auto"`` means, for vectors by what the observation says of their features."""
        return default_encoding(kind, values)

    def _stated_encoding(self) -> Encoding | None:
        """The encoding, fitted, of a model that was made elsewhere and learns none from data; None: it is learned."""
        return None

    def _members(self) -> dict[str, SequenceModel]:
        """The fitted models that this one is made of, by name; they are saved with it."""
        return {}

    def _restore_members(self, members: dict[str, SequenceModel]) -> None:
        """Take back what ``_members`` returned; before ``_restore``."""
        if members:
            raise ValueError(f"a {type(self).__name__} is not made of other models, but the file holds {len(members)}")

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

    # -- fitting -------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None) -> Self:
        """Fit to sequences ``X``, or to ``y`` given ``X``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: targets, one for each of ``X``: the model then is p(y | x).
            validation: ``"auto"`` lets networks hold out a tenth, 10,000 units at most, for early stopping: whole
                clusters where the sequences have three or more, so that training stops by speakers or documents it has
                not seen; the head of a single sequence. ``None`` holds out nothing; or sequences (a pair if there are
                targets).
            sample_weight: ``(n,)`` weight of each sequence in the objective.

        Each sequence is learned as one that begins where it does: a past that it has is not read, and warned of. Those
        of ``validation`` are scored given theirs.

        The first Ctrl-C or SIGTERM ends training: ``fit`` returns with a warning, the best so far and ``interrupted_``.

        Raises:
            ValueError: bad input, named by sequence and position, before any work; an earlier fit stays as it was.
            KeyboardInterrupt: a second Ctrl-C, or a first before there is anything to keep; an earlier fit stays as it
                was.
        """
        with distributed.propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight), validation)
        return self

    def learned_encoding(self, X: Any, y: Any = None) -> Encoding:
        """The encoding that ``fit`` would learn from these sequences, for ``fit_encoded``; raises as ``fit`` does."""
        check_arguments(self)
        return learn_setting(self, Data.of(X, y)).encoding

    @checked
    def fit_encoded(self, encoding: Encoding, X: Any, y: Any = None, *, validation: Any = "auto") -> Self:
        """``fit`` in an ``encoding`` that is fitted already, so that several models share alphabet and units.

        Raises:
            ValueError: as ``fit``; a model that would go on (``warm_start``) from what it learned in its own encoding.
        """
        if self.warm_start and self.__sklearn_is_fitted__():
            raise ValueError(
                "a warm start goes on in the encoding that was learned first; call fit, or clone the model"
            )
        with distributed.propagate_errors():
            fit_model(self, Data.of(X, y), validation, encoding)
        return self

    # -- scoring -------------------------------------------------------------------------------------------

    def log_prob_steps(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``log p(x_t | x_<t)`` in nats for every raw unit of every sequence (of ``y`` given ``X``), raw units.

        A sequence with a past (``Sequences(items, past=...)``) is scored given it, ``log p(x_t | past, x_<t)``: it has
        the last steps of past and sequence in one. Under ``length="stop"`` there is one more step, the last: the end. A
        step of several bytes (a BPE piece) stands on its last byte; the bytes before it have 0.

        A figure is finite, or -inf where the model gives probability zero; never NaN. Sequences whose log-probabilities
        float32 cannot hold are computed in float64. Those of a sequence on disk that has more than
        ``mapped.MAX_STEPS_IN_MEMORY`` are on disk too, in a temporary file (``mapped.MappedArray``).

        Raises:
            ValueError: sequences that cannot be read, or a log-probability that float64 cannot hold, by sequence and
                position.
        """
        data, setting = checked_data(self, X, y), self._setting()
        examples = setting.examples(data, on_disk=self._reads_from_disk)
        names = "X" if data.y is None else "y"
        steps = checked_log_prob_steps(examples, self._steps, lambda some: in_float64(self)._steps(some), names)
        return setting.all_in_raw_units(data.scored, steps)

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence: the sum of its steps; of sequences on disk no steps are kept."""
        data, setting = checked_data(self, X, y), self._setting()
        if self._reads_from_disk and any_mapped(data.scored):
            examples = setting.examples(data, on_disk=True)
            if not any(squares_exceed_float32(e.values) or squares_exceed_float32(e.source) for e in examples):
                sums = self._sums_of_steps(examples) + np.array([e.log_det for e in examples])
                if np.isfinite(sums).all():
                    return np.asarray(sums)
        return totals(self.log_prob_steps(data.X, data.y))

    def score(self, X: Any, y: Any = None) -> float:
        """Nats per frame, byte or symbol: ``Σ log p / Σ units``. Higher is better."""
        data = Data.of(X, y)
        return float(self.log_prob(data.X, data.y).sum() / data.scored.n_units.sum())

    @checked
    def log_prob_marginal(
        self,
        X: Any,
        y: Any = None,
        *,
        beam: int | None = 8,
        pruning: PruningName = "best",
        random_state: Seed = 0,
    ) -> np.ndarray:
        """``(n,)`` nats of each text (of ``y`` given ``X``), summed over its tokenisations; at least ``log_prob``.

        ``log_prob`` is that of the canonical tokenisation, which the merges of a ``BPE`` give. The model may also spell
        the text in other pieces, so the probability of the text is larger (Cao & Rimell 2021, *You should evaluate your
        language model on marginal likelihood over tokenisations*). The figure is one a text: a tokenisation has its
        steps, a sum over tokenisations has none. Under ``length="given"`` it is that of the text as the beginning of an
        endless one, with a piece's end at its end. The cost is that of ``beam`` steps of the model for each byte, one
        after the other. Where symbols have one spelling: ``log_prob``.

        Args:
            beam: beginnings of tokenisations that are continued from each byte, besides the canonical one. None: all,
                which is exact; their number doubles with every byte or so, but an HMM merges all into one belief, and
                an n-gram those that end alike, so these two are exact for long texts too.
            pruning: ``"best"`` keeps the most probable: a lower bound for certain. In a long text a beam holds few of
                the combinations of its choices, so the gain a byte goes to nothing. ``"drawn"`` draws which to keep, so
                that the probability is unbiased: then the logarithm lies below the truth in the mean, and above it by x
                nats with probability ``exp(-x)`` at most. For long texts take that.
            random_state: seed of the draws; a text's figure does not depend on which others there are.

        Raises:
            ValueError: a tagger, whose pieces are as many as its source's steps; a beam below 1; another ``pruning``.
        """
        return log_prob_marginal(self, X, y, beam=beam, pruning=pruning, random_state=random_state)

    def _filtered(self, state: CursorState) -> np.ndarray:
        """``(K,)`` p(z_t | x_1 .. x_t) at a state of the cursor, for ``Stream.filtered``."""
        raise AttributeError(
            f"{type(self).__name__} has no hidden states with probabilities; an HMM's stream has filtered, "
            "p(z_t | x_1 .. x_t)"
        )

    # -- what comes next -----------------------------------------------------------------------------------

    def predict_next(self, prefix: Any = None, *, source: Any = None) -> Any:
        """A Pyro distribution over the raw step after ``prefix`` (None: the first step), given ``source``; on the CPU.

        Its ``p_end`` is the probability that the sequence ends here instead, 0 under ``length="given"``. Symbols under
        ``"stop"`` have the end as one more category, the last, so that ``log_prob(x)`` is what ``stream().update(x)``
        returns. A density has no such place: of vectors the distribution is given that the sequence goes on, and
        ``update(x) == log(1 - p_end) + log_prob(x)``.
        """
        return predict_next(self, prefix, source)

    def stream(self, *, source: Any = None, past: Any = None) -> Stream:
        """Reads one sequence as it comes: ``update(x_t)`` is ``log p(x_t | past)``, ``predict_next()`` what is next.

        Args:
            source: what the sequence is given, of a model of p(y | x).
            past: raw steps that came before it, an item such as ``Sequences.past`` has; None: it begins here.
        """
        return Stream.of(self, source, past)

    @checked
    def forecast(
        self,
        X: Any,
        k: int,
        *,
        y: Any = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        n: int = 500,
        top_k: int | None = 5,
        random_state: Seed | None = None,
    ) -> Forecast:
        """What follows each sequence of ``X`` (of ``y``, given ``X``, for a model of p(y | x)), 1 to ``k`` steps ahead.

        The distribution of each step, not seeing those between. In closed form for HMMs whose observations do not look
        back, for an autoregression of one state (a VAR), and one step ahead for every model; else the mean, over n
        drawn paths, of the model's prediction after each path. The parameters are taken for certain.

        Args:
            k: encoded steps: frames, symbols, of text bytes or pieces.
            quantiles: levels between 0 and 1, increasing; each feature's own.
            n: paths.
            top_k: of symbols, how many of the most probable to list at each step; None: all.
            random_state: seed of the paths; None takes the model's.

        Raises:
            ValueError: a sequence that cannot be read, or of probability zero, named; a tagger, whose targets end with
                their sources; arguments that cannot be.

        >>> from seqmodels import HMM
        >>> moments = {"means": [[0.0], [5.0]], "covariances": [[1.0], [1.0]]}
        >>> model = HMM.from_parameters([1.0, 0.0], [[0.9, 0.1], [0.2, 0.8]], **moments)
        >>> model.forecast([[[0.1], [-0.2]]], 2).frame[["step", "mean", "5%", "95%", "method"]].round(2)
           step  mean    5%   95% method
        0     1  0.50 -1.59  5.00  exact
        1     2  0.85 -1.55  5.54  exact
        """
        data = checked_data(self, X, y)
        return forecast(self, data, k, quantiles=quantiles, n=n, top_k=top_k, random_state=random_state)

    @checked
    def sample(
        self,
        n: int = 1,
        *,
        length: int | None = None,
        prefix: Any = None,
        source: Any = None,
        max_length: int = 1000,
        random_state: Seed | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        stop: Sequence[str] | None = None,
    ) -> list[Item]:
        """Draw ``n`` raw sequences that begin with ``prefix``, given ``source``.

        Args:
            length: number of encoded steps after the prefix; None draws until the end (``length="stop"`` only), at
                most ``max_length`` steps after the prefix. A given length masks the end, which is not p(x | T). A
                tagger needs none: its source has it.
            random_state: seed; None takes the model's.
            temperature, top_k, top_p, min_p: what is drawn from instead of the model's own distribution: see
                ``seqmodels.generation.Decoding``.
            stop: strings, for text: a text ends after the first of them that is completed by what is drawn, and
                contains it.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
        >>> model.sample(temperature=0)  # after a symbol the end is likelier than another
        [array([0])]
        >>> model.sample(prefix=[1], length=3, top_k=1)
        [array([1, 0, 0, 0])]
        """
        decoding = Decoding(temperature, top_k, top_p, min_p)
        return sample(self, n, SamplingOptions(prefix, source, length, max_length, random_state, decoding, stop))

    @checked
    def generate(
        self,
        prefix: Any = None,
        *,
        source: Any = None,
        length: int | None = None,
        max_length: int = 1000,
        random_state: Seed | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        stop: Sequence[str] | None = None,
    ) -> Iterator[Any]:
        """What ``sample(1)`` of the same arguments draws after ``prefix``, as it is drawn.

        Frames ``(D,)``, symbols, or strings of whole characters (the bytes of an unfinished one are held back), never
        empty.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
        >>> [int(symbol) for symbol in model.generate([1], length=4, top_k=1)]
        [0, 0, 0, 0]
        """
        decoding = Decoding(temperature, top_k, top_p, min_p)
        return generate(self, SamplingOptions(prefix, source, length, max_length, random_state, decoding, stop))

    @checked
    def n_best(
        self,
        n: int = 5,
        *,
        prefix: Any = None,
        source: Any = None,
        n_beams: PositiveInt | None = None,
        length: int | None = None,
        max_length: NotNegative | None = None,
        alpha: float | Literal["mean"] = 0.0,
    ) -> list[Candidate]:
        """The ``n`` most probable whole sequences of symbols or text that begin with ``prefix``, given ``source``.

        Found by beam search, so they are the most probable of those that it comes upon.

        Args:
            n_beams: partial sequences that are kept at each step; None: n, and at least 5.
            length: number of encoded steps after the prefix; under ``length="stop"`` None searches all that end at most
                ``max_length`` steps after it.
            max_length: None: 1000; given a source, as in ``predict``.
            alpha: normalisation by length (Wu et al. 2016): see ``seqmodels.generation.BeamSearch``.

        Raises:
            ValueError: a model of vectors, which cannot be listed; nothing possible begins with the prefix.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
        >>> [(each.item.tolist(), round(each.log_prob, 2)) for each in model.n_best(3)]
        [([0], -0.8), ([0, 0], -1.6), ([0, 0, 0], -2.4)]
        """
        return n_best(
            self,
            n,
            prefix=prefix,
            source=source,
            n_beams=n_beams,
            length=length,
            max_length=max_length,
            alpha=alpha,
        )

    @checked
    def predict(
        self,
        X: Any,
        *,
        n_beams: PositiveInt | None = None,
        n_best: int | None = None,
        prefix: Any = None,
        length: int | Sequence[int] | None = None,
        max_length: NotNegative | None = None,
        max_ratio: NotNegativeFloat = 0.0,
        alpha: float | Literal["mean"] = 0.0,
        batch_size: int = 64,
    ) -> list[Any]:
        """The target that the model finds most probable for each source. A past that sources have is not read.

        Args:
            n_beams: partial sequences that are kept at each step (see ``n_best``); None: one, which is greedy, unless
                the model can find the most probable of all, as an ``HMMTagger`` and taggers of independent labels can.
            n_best: instead of a target, a list of so many ``Candidate`` for each source, best first (fewer if there are
                no more); at least as many partial sequences are kept.
            prefix: raw beginning of every target, or a list with one for each.
            length: encoded steps of the targets after the prefix, one number or one for each; needed under
                ``length="given"``, but not by taggers.
            max_length: most encoded steps of a target after the prefix, under ``length="stop"``; None: as many as the
                longest target of ``fit`` had, and besides as many for each step of the source as those targets had on
                average (``target_lengths_``; 1000 where that is unknown, as in files of earlier versions).
            max_ratio: steps that a target may have for each step of its source, besides ``max_length``.
            alpha: normalisation by length (Wu et al. 2016): see ``seqmodels.generation.BeamSearch``.
            batch_size: sources that are searched at once; of equal length, unless a network's encoder or a neural
                tagger reads them.

        Raises:
            ValueError: a model that was fitted without ``y``; one of vectors; nothing possible begins with the prefix.
        """
        return predict(
            self,
            X,
            n_beams=n_beams,
            n_best=n_best,
            prefix=prefix,
            length=length,
            max_length=max_length,
            max_ratio=max_ratio,
            alpha=alpha,
            batch_size=batch_size,
        )

    # -- in words ------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """What a fitted model is, in a few lines: its sizes, what it was fitted to, how the fit ended.

        >>> from seqmodels import HMM
        >>> print(HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.75, 0.25]]).describe())
        HMM
          model        HMM(n_states=1, length='stop', observation=Categorical())
          density      p(x)
          data         integer symbols, scored per symbol, the end of a sequence is scored too
          observation  Categorical()
          encoding     Symbols(n_symbols=2)
          parameters   2
          context      the whole sequence
          fitted       not by training: its parameters were given or counted

        Raises:
            NotFittedError: a model that is not fitted.
        """
        self._setting()
        return text_facts(type(self).__name__, model_facts(self))

    def _repr_html_(self) -> str:
        """What a notebook shows: the description of a fitted model, the hyperparameters of another."""
        if self.__sklearn_is_fitted__():
            return html_facts(type(self).__name__, model_facts(self))
        return html_facts(f"{type(self).__name__}, not fitted", settings_in_words(self))

    # -- keeping -------------------------------------------------------------------------------------------

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; ``seqmodels.load`` reads it.

        Warns of classes that are not seqmodels' own, which ``load`` must be given: ``load(path, classes=[MyModel])``.
        """
        content = self.content()
        storage.warn_of_classes_to_give(self, self.encoding_, self.source_encoding_, self.observation_)
        storage.write(path, content)

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
            "state": self._state(),
        }

    def _load(
        self,
        content: dict[str, Any],
        encoding: Encoding,
        observation: Observation,
        sources: Encoding | None,
        members: dict[str, SequenceModel] | None = None,
    ) -> Self:
        import pandas as pd

        self.encoding_ = encoding.restore(content["encoding"]["state"])
        shared = self.encoding_ if content["measure"]["conditional"] and not self.ignore_source else None
        self.source_encoding_ = shared if sources is None else sources.restore(content["source_encoding"]["state"])
        self.observation_, self.measure_ = observation, Measure(**content["measure"])
        self.length_ = self.measure_.length
        lengths = content.get("target_lengths")  # earlier files have none
        self.target_lengths_: TargetLengths | None = None if lengths is None else TargetLengths(**lengths)
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


def _described(encoding: Encoding | None) -> dict[str, Any] | None:
    return None if encoding is None else {**storage.describe(encoding), "state": encoding.state()}
