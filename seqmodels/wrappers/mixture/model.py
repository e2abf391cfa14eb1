"""Several models as one, whose predictions are combined at every step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np

from seqmodels.common import distributed
from seqmodels.common.array_checks import array_of, check_between, check_sums
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.parameters import Range, checked, made_with
from seqmodels.encodings import Bytes, Encoding
from seqmodels.encodings.binary_code import BinaryCode
from seqmodels.encodings.examples import Example
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.precision import computing_in
from seqmodels.encodings.raw_to_examples import Setting, fitted_to
from seqmodels.encodings.text import Text
from seqmodels.generation import Cursor
from seqmodels.generation.mixture_cursor import MixtureCursor
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import apply_setting, check_arguments, checked_data, fit_member
from seqmodels.observations import Categorical, Observation, OneOf
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.measure import IncomparableError, Length, MemoryKind, check_comparable
from seqmodels.sequences.times import DateUnit
from seqmodels.wrappers.mixture.density_gate import DensityGate
from seqmodels.wrappers.mixture.different_encodings import CommonCuts, in_encoding, text_of
from seqmodels.wrappers.mixture.gated_cursor import GatedCursor
from seqmodels.wrappers.mixture.held_out import hold_out_steps
from seqmodels.wrappers.mixture.symbol_gate import LEADS, GatedDecisions, Layout, SymbolGate
from seqmodels.wrappers.mixture.weights import FixedShare, Weights, fit_prior, fit_rate

MAX_NUMBERS = 1 << 25  # largest number of entries in tables of all symbols in memory, unless one sequence has more
SYMBOLS_OF_CONTEXT = 2  # number of last symbols that choose weights
LARGEST = 1e6  # largest weight that a saved gate may have

WeightsName = Literal["static", "contextual", "posterior", "switching", "gated"]


@dataclass(eq=False, repr=False)
class Mixture(SequenceModel):
    """Several models as one: ``p(x_t | x_<t)`` is combined from ``p_k(x_t | x_<t)`` of every member k.

    Args:
        models: the members, of any families; ``fit`` fits clones of them. They read by one encoding, or text by
            ``Bytes``, ``Characters`` and ``BPE``. If their encodings differ, the mixture combines probabilities of
            segments of about a word, which end where all encodings begin a symbol; the module
            ``wrappers.mixture.different_encodings`` defines them, and shows that the probabilities of all texts sum to
            at most one. Weights are then ``"static"``, ``"posterior"`` or ``"switching"``; the log-probability of a
            segment is on its last byte; likelihoods are lower bounds; and there are no predictions of steps: no
            ``cursor``, ``sample``, ``stream`` or ``predict_next``.
        weights: how the members are combined.

            - ``"static"``: ``Σ_k w_k p_k(x_t | x_<t)``, with weights from EM.
            - ``"contextual"``: for symbols, logistic mixing as under ``"gated"``, by weights that small contexts choose
              and that stay as they were fitted.
            - ``"posterior"``: ``p(x) = Σ_k w_k p_k(x)``, Bayes over models along a sequence: the weights at a step are
              ``p(k | x_<t)``, starting from the static ones.
            - ``"switching"``: a hidden Markov chain over models, which at every step is drawn anew from the static
              weights with a learned probability, and stays otherwise (fixed share: Herbster and Warmuth 1998).
            - ``"gated"``: weights that small contexts choose and that go on learning by gradient within a sequence. For
              symbols this is logistic mixing of their bits, normalised over all symbols (Mahoney 2005; Knoll and de
              Freitas 2012): the log-odds are mixed, so that two models that agree give a more certain prediction than
              either. Densities cannot be mixed so without an integral at every step; for vectors only the weights of
              the densities learn, from the models' gains in the last steps.

            All but the first two are ``memory_="adaptive"``: weights follow what was read of a sequence, and are the
            fitted ones again at the start of the next.
        held_out: fraction of the training steps on which weights are learned: whole sequences, or the head of a single
            one. Members are not trained on it. Sequences for validation are separate, and go to the members.
        refit: True to fit the members once more on all training sequences, with the weights as they are; a list answers
            for each member. It takes the time of fitting again, and lets members learn from the held-out part too.

    Members may read inputs, each its own (``HMM(2, input_effects=ChainInputEffects(transitions=["heat"]))``,
    ``LSTM(inputs=True)``), beside others that read none: the mixture is then ``p(x | inputs)`` given all inputs that
    its members read.

    The other arguments are explained in ``SequenceModel``. Members compute in the mixture's ``dtype`` and on its
    ``device``, in its encoding and length. If members name different encodings, an ``encoding`` of the mixture replaces
    them all. ``warm_start`` is refused.

    Attributes (fitted): ``members_``, the fitted models; ``weights_``, the object that combines them: ``FixedShare``
    with ``prior`` and ``rate``, ``DensityGate`` or ``SymbolGate``.

    >>> from seqmodels import NGram
    >>> model = Mixture([NGram(1, length="given"), NGram(2, length="given")], held_out=0.5)
    >>> model = model.fit([np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0, 1, 0])])
    >>> bool(model.weights_.prior[1] > 0.5)  # the bigram
    True
    """

    models: list[SequenceModel] = field(default_factory=list)
    weights: WeightsName = "static"
    held_out: float = 0.1
    refit: bool | list[bool] = False

    _fits_in_parallel: ClassVar[bool] = True

    # -- what the members say ------------------------------------------------------------------------------

    @property
    def memory_(self) -> MemoryKind:
        members = self.members_ if self.__sklearn_is_fitted__() else self.models
        is_static = self.weights in ("static", "contextual") and all(model.memory_ == "static" for model in members)
        return "static" if is_static else "adaptive"

    @property
    def _predicts_steps(self) -> bool:  # type: ignore[override]
        return not self._reads_apart()

    def _reads_apart(self) -> bool:
        """Return True if the members read text by different encodings, and the mixture has none of its own."""
        each = [Bytes() if model.encoding == "auto" else model.encoding for model in self.models]
        is_text = all(isinstance(encoding, Text) for encoding in each)
        return self.encoding == "auto" and is_text and len({repr(encoding) for encoding in each}) > 1

    @property
    def context_(self) -> int | None:
        contexts = [model.context_ for model in self.members_]
        if self.cuts_ is not None:  # members count steps of different lengths
            return None
        if self.weights not in ("static", "contextual") or None in contexts:
            return None
        shortest = [SYMBOLS_OF_CONTEXT] if self.weights == "contextual" else []
        return max([*shortest, *(c for c in contexts if c is not None)])

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return sum(model.n_parameters_ for model in self.members_) + self.weights_.n_parameters

    @property
    def _reads_inputs(self) -> bool:
        models = self.models if isinstance(self.models, list | tuple) else []
        return any(isinstance(model, SequenceModel) and model._reads_inputs for model in models)

    @property
    def _times_in(self) -> DateUnit | None:
        return None if not (timed := self._timed()) else timed[0]._times_in

    @property
    def _time_step(self) -> float:
        return 1.0 if not (timed := self._timed()) else timed[0]._time_step

    def _timed(self) -> list[SequenceModel]:
        """Return the members that read times.

        Raises:
            ValueError: If they count times in different units.
        """
        models = self.models if isinstance(self.models, list | tuple) else []
        timed = [model for model in models if isinstance(model, SequenceModel) and model._times_in is not None]
        units = {(model._times_in, model._time_step) for model in timed}
        if len(units) > 1:
            said = " and ".join(f"{step:g} {unit}" for unit, step in sorted(units, key=str))
            raise ValueError(f"the models count times in {said}; pass one date_unit, and one time_step, to all")
        return timed

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        read = [name for model in self.models for name in model._inputs_among(names)]
        return tuple(dict.fromkeys([*(name for name in names if name in read), *read]))

    def _default_length(self, kind: Kind) -> Length:
        if self._reads_inputs and all(model.length != "stop" for model in self.models):
            return "given"  # for all members, because the inputs say how long a sequence is
        lengths = {m._default_length(kind) if m.length == "auto" else m.length for m in self.models}
        if len(lengths) > 1:
            raise IncomparableError("some models have length='given' and others length='stop'; set them to one")
        return lengths.pop()

    def _default_observation(self, kind: Kind) -> Observation:
        self._check_weights_of("vectors" if kind == "vectors" else "symbols")
        each = [m._default_observation(kind) if m.observation == "auto" else m.observation.clone() for m in self.models]
        emitted = "vectors" if kind == "vectors" else "symbols"
        for k, observation in enumerate(each):
            if observation.emits != emitted:
                raise ValueError(
                    f"models[{k}], {type(self.models[k]).__name__}, has the observation {observation!r:.200}, which "
                    f"emits {observation.emits}, but the sequences are {kind}; pass models whose observation is "
                    f"'auto', or emits {emitted}"
                )
        return OneOf(each) if kind == "vectors" else Categorical()

    def _check_weights_of(self, emits: str) -> None:
        if self.weights == "contextual" and emits != "symbols":
            raise ValueError(
                "weights='contextual' mix the bits of symbols, but the sequences are vectors; pass 'static' or 'gated'"
            )

    def _named_encoding(self) -> Encoding | Literal["auto"]:
        each = {repr(model.encoding): model.encoding for model in self.models}
        return next(iter(each.values())) if self.encoding == "auto" and len(each) == 1 else self.encoding

    def _default_encoding(self, kind: Kind, observation: Observation, n_features: int) -> Encoding:
        if kind == "text" and self._reads_apart():
            return Bytes()
        each = [
            m._default_encoding(kind, observation, n_features) if m.encoding == "auto" else m.encoding
            for m in self.models
        ]
        if len({repr(encoding) for encoding in each}) > 1:
            raise ValueError(
                f"the models read by different encodings, {' and '.join(map(repr, each))}; set one encoding for all, "
                "or pass it to the mixture"
            )
        return each[0]

    @property
    def _uses_validation(self) -> bool:  # type: ignore[override]
        return any(model._uses_validation for model in self.models)

    @property
    def _sums_out_missing(self) -> bool:  # type: ignore[override]
        return all(model._sums_out_missing for model in self.models)

    def _reads_missing(self) -> bool:
        return self._sums_out(self.observation_) and all(model._reads_missing() for model in self.members_)

    def _check_hyperparameters(self) -> None:
        _check_members(self.models)
        if self.weights not in get_args(WeightsName):
            names = ", ".join(map(repr, get_args(WeightsName)))
            raise ValueError(f"weights is {self.weights!r}; pass one of {names}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is {self.held_out}; pass a fraction between 0 and 1")
        if not isinstance(self.refit, bool) and len(self.refit) != len(self.models):
            raise ValueError(f"refit has {len(self.refit)} answers for {len(self.models)} models; pass one each")
        if self.weights in ("contextual", "gated") and self._reads_apart():
            raise ValueError(
                f"weights={self.weights!r} mixes the symbols of one encoding, but the models name different ones; set "
                "one for all, or take weights='switching'"
            )
        if self.warm_start:
            raise ValueError("warm_start=True, but a mixture fits its members anew; leave it False")
        if self.observation != "auto":
            raise ValueError("a mixture has the observations of its members; leave observation='auto'")
        for model in self.models:
            check_arguments(model)
            model._check_hyperparameters()

    # -- made of fitted models -----------------------------------------------------------------------------

    @classmethod
    @checked
    def from_fitted(
        cls,
        models: Sequence[SequenceModel],
        X: Any = None,
        y: Any = None,
        *,
        weights: WeightsName = "static",
        prior: Sequence[float] | None = None,
    ) -> Self:
        """Return a mixture of fitted models, used as they are.

        Args:
            models: models fitted in one encoding (with ``fit_encoded``, or to the same sequences).
            X, y: sequences, or pairs of x and y, from which the weights are learned, and on which no model should have
                been trained. Their past, if they have one, is not read. None needs ``prior``, or leaves all weights
                equal.
            weights: how the members are combined, as for the constructor; ``"contextual"``, ``"switching"`` and
                ``"gated"`` need ``X``.
            prior: weights to use instead of learning them from ``X``, for K models, ``(K,)``, summing to one.

        Raises:
            IncomparableError: If the models' likelihoods are of different things.
            ValueError: If encodings differ, or weights are no probabilities.
            NotFittedError: If a model is not fitted.
        """
        if X is None and y is not None:
            raise ValueError("y is given without X; pass the pairs as X and y, or leave both out")
        mixture = cls([*models], weights=weights)
        mixture._check_hyperparameters()
        first, *others = [model._setting() for model in models]
        encodings = [model.encoding_ for model in models]
        mixture.cuts_ = None
        if any(not _is_same(encodings[0], encoding) for encoding in encodings) and _are_text(encodings):
            check_comparable({f"model {k}": s.measure for k, s in enumerate([first, *others])})
            if weights in ("contextual", "gated"):
                raise ValueError(f"weights={weights!r} mixes the symbols of one encoding; take weights='switching'")
            mixture.cuts_ = CommonCuts.of(encodings)
            read = Bytes().restore({})
            source = read if first.source_encoding is not None else None
            first = Setting(read, first.observation, replace(first.measure, kind="bound"), source)
            others = []
        check_comparable({f"model {k}": s.measure for k, s in enumerate([first, *others])})
        for k, other in enumerate(others, 1):
            if not _is_same(first.encoding, other.encoding):
                raise ValueError(
                    f"model {k} reads by another encoding than model 0: {other.encoding!r} and {first.encoding!r}, or "
                    "fitted to other sequences; fit both with fit_encoded(model_0.encoding_, ...)"
                )
        symbols = first.observation.emits == "symbols"
        mixture._check_weights_of(first.observation.emits)
        observation = Categorical() if symbols else OneOf([model.observation_ for model in models])
        mixture.members_ = [*models]
        mixture.dtype = "float64" if all(model.dtype_ == "float64" for model in models) else "float32"
        setting = Setting(first.encoding, observation, first.measure, first.source_encoding)
        scaling = _joined_scaling([model._input_scaling for model in models])
        measure = replace(setting.measure, inputs=() if scaling is None else scaling.names)
        apply_setting(mixture, replace(setting, inputs=scaling, measure=measure))
        mixture.target_lengths_ = models[0].target_lengths_ if mixture.cuts_ is None else None
        held_out: list[Example] = []
        if X is not None:
            if prior is not None:
                raise ValueError("weights are learned from X or given by prior; pass one of the two")
            held_out = first.examples(checked_data(mixture, X, y).without_past())
        elif weights in ("contextual", "switching", "gated"):
            raise ValueError(f"weights={weights!r} are learned; pass sequences X that no model was trained on")
        mixture._learn_weights(held_out, None if prior is None else _checked_prior(prior, len(models)))
        mixture._say_how_it_was_fitted(held_out, sum(float(model.fit_seconds_) for model in models))
        mixture.fit_seconds_ = sum(float(model.fit_seconds_) for model in models)
        return mixture

    @classmethod
    @checked
    def of_seeds(cls, model: SequenceModel, n: Annotated[int, Range(1, 1_000)], **options: Any) -> Self:
        """Return a mixture of several copies of a model with different seeds, not fitted.

        Args:
            model: the model; the seeds are its ``random_state`` and the numbers after it.
            n: number of copies.
            options: other arguments of the constructor, by name.
        """
        models = [model.clone().set_params(random_state=model.random_state + i) for i in range(n)]
        return made_with(cls, options, models=models)

    # -- fitting -------------------------------------------------------------------------------------------

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        began = time.perf_counter()
        self.cuts_ = None
        rest, held_out = hold_out_steps(train, self.held_out, self.encoding_, self.random_state)
        if not held_out:
            warn_caller(
                "there is one short sequence, so nothing can be held out, and all members get the same weight; "
                "pass more sequences",
            )
        members = range(len(self.models))
        self.members_ = [self._fitted_member(k, rest, validation) for k in members]
        if self._reads_apart():
            self.cuts_ = CommonCuts.of([member.encoding_ for member in self.members_])
            self.measure_ = replace(self.measure_, kind="bound")

        def learn() -> None:
            self._learn_weights(held_out, None)
            self._say_how_it_was_fitted(held_out, time.perf_counter() - began)

        distributed.run_on_rank_zero(None, learn)
        again = [self.refit] * len(self.models) if isinstance(self.refit, bool) else self.refit
        if held_out:
            fitted = zip(members, again, self.members_, strict=True)
            self.members_ = [self._fitted_member(k, train, validation) if a else m for k, a, m in fitted]
        if self.cuts_ is not None and any(again):
            self.cuts_ = CommonCuts.of([member.encoding_ for member in self.members_])

    def _fitted_member(self, k: int, train: list[Example], validation: list[Example]) -> SequenceModel:
        setting, member = self._setting(), self.models[k].clone()
        member.verbose = self.verbose is True or member.verbose
        observation = setting.observation
        observation = observation.observations[k] if isinstance(observation, OneOf) else _of_symbols(member)
        if self._reads_apart():
            chosen = Bytes() if member.encoding == "auto" else member.encoding
            encoding = fitted_to(chosen, Sequences([text_of(example) for example in train]))
            source = None if setting.source_encoding is None else encoding
            measure = setting.measure
            setting = Setting.from_fitted(encoding, observation, measure.length, measure.conditional, source)
            train, validation = ([in_encoding(e.alone(), encoding) for e in part] for part in (train, validation))
        names = member._inputs_among(setting.measure.inputs)
        setting = replace(setting, observation=observation).reading(names)
        columns = self._columns_of(names)
        fit_member(member, setting, _with_inputs(train, columns), _with_inputs(validation, columns))
        return member

    def _columns_of(self, names: tuple[str, ...]) -> list[int]:
        """Return the columns of the inputs ``names``, which a member reads, among the mixture's inputs."""
        return [self.input_names_.index(name) for name in names]

    def _learn_weights(self, held_out: list[Example], prior: np.ndarray | None) -> None:
        """Learn ``weights_``, which combine the K members, from held-out sequences.

        Args:
            held_out: encoded sequences; if there are none, static weights are equal.
            prior: static weights to begin with, ``(K,)``; None means that they are learned first.
        """
        sample_weight = [example.weight for example in held_out]
        log_p = self._log_probs_of_members(held_out)
        if prior is None:
            prior = fit_prior(log_p, sample_weight, len(self.members_))
        self.weights_: Weights | SymbolGate
        if self.weights == "gated" and self.encoding_.emits == "vectors":
            self.weights_ = DensityGate.fit(prior, log_p)
        elif self.weights in ("contextual", "gated"):
            layout, learns = self._layout(), self.weights == "gated"
            self.weights_ = SymbolGate.fit(layout, prior, *self._decisions(layout, held_out), learns=learns)
        elif self.weights == "switching":
            self.weights_ = FixedShare(prior, fit_rate(prior, log_p, sample_weight))
        else:
            self.weights_ = FixedShare(prior, 1.0 if self.weights == "static" else 0.0)

    def _layout(self) -> Layout:
        code = BinaryCode(self.encoding_.size, self.length_ == "stop")
        return Layout(code, len(self.members_), LEADS if self.weights == "gated" else 0)

    def _say_how_it_was_fitted(self, held_out: list[Example], seconds: float) -> None:
        import pandas as pd

        log_prob = np.nan
        if held_out:
            log_prob = sum(float(s.sum()) + e.log_det for s, e in zip(self._steps(held_out), held_out, strict=True))
            log_prob /= sum(e.n_units for e in held_out)
        hits = [m.history_["floor_hits"].iloc[-1] for m in self.members_ if "floor_hits" in m.history_]
        self.converged_ = all(member.converged_ for member in self.members_)
        self.history_ = pd.DataFrame(
            {
                "step": [1],
                "seconds": [seconds],
                "log_prob": [np.nan],
                "validation": [log_prob],
                "objective": [log_prob],
                "floor_hits": [int(np.nansum(hits))],
            }
        )

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        gate = self.weights_
        if isinstance(gate, SymbolGate):
            # Imported here because numba takes a while to load.
            from seqmodels.common.compiled import warn_if_slow

            warn_if_slow(f"Mixture(weights={self.weights!r})", sum(len(example.values) for example in examples))
            return [
                steps for group in self._groups(examples) for steps in gate.steps(*self._decisions(gate.layout, group))
            ]
        mixed = [gate.steps(log_p) for log_p in self._log_probs_of_members(examples)]
        if self.cuts_ is None:
            return mixed
        pairs, has_end = zip(examples, mixed, strict=True), self.length_ == "stop"
        return [self.cuts_.on_bytes(example, segments, has_end) for example, segments in pairs]

    def _log_probs_of_members(self, examples: list[Example]) -> list[np.ndarray]:
        """Return the log-probability of each step under each of K members, ``(T, K)`` in nats, for each sequence.

        If members read by different encodings, steps are the segments of text between cuts at which all encodings begin
        a symbol.
        """
        cuts = self.cuts_
        members = self._members_in_precision()
        each = [
            member._steps(self._examples_of(member, examples)) if cuts is None else cuts.log_probs(member, examples)
            for member in members
        ]
        return [np.column_stack(steps) for steps in zip(*each, strict=True)]

    def _examples_of(self, member: SequenceModel, examples: list[Example]) -> list[Example]:
        return _with_inputs(examples, self._columns_of(member.input_names_))

    def _groups(self, examples: list[Example]) -> Iterator[list[Example]]:
        """Yield groups of sequences whose tables of log-probabilities of all symbols fit in memory together."""
        group: list[Example] = []
        n_numbers = 0
        for example in examples:
            size = len(example.values) * self.encoding_.size
            if group and n_numbers + size > MAX_NUMBERS:
                yield group
                group, n_numbers = [], 0
            group.append(example)
            n_numbers += size
        if group:
            yield group

    def _decisions(self, layout: Layout, examples: list[Example]) -> tuple[list[np.ndarray], list[GatedDecisions]]:
        """Encode the symbols of each sequence as B binary decisions each; return their log-odds and the decisions.

        The log-odds under each of K members are an array ``(T, B, K)`` for each sequence.

        Args:
            layout: how symbols are coded by decisions, and which contexts choose weights.
            examples: the encoded sequences.
        """
        decisions, each = [GatedDecisions.of(layout, np.asarray(example.values)) for example in examples], []
        for member in self._members_in_precision():
            odds: list[np.ndarray] = []
            for group in self._groups(examples):
                odds += member._decision_log_odds(layout.code, self._examples_of(member, group))
            each.append(odds)
        return [np.stack(odds, axis=-1) for odds in zip(*each, strict=True)], decisions

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> Cursor:
        self._setting()
        if self.cuts_ is not None:
            raise ValueError(
                "the members of this Mixture read by different encodings, so it predicts no steps: no cursor, "
                "stream, sample or predict_next; use log_prob, score and compare, or one of members_"
            )
        members = [member.cursor(n_steps) for member in self._members_in_precision()]
        columns = [self._columns_of(member.input_names_) for member in self.members_]
        if isinstance(self.weights_, SymbolGate):
            return GatedCursor(members, self.weights_, columns)
        return MixtureCursor(members, self.weights_, columns)

    def _members_in_precision(self) -> list[SequenceModel]:
        self._setting()
        return [computing_in(member, self.dtype, self.device) for member in self.members_]

    def _with_floor(self, factor: float) -> Self:
        floored = super()._with_floor(factor)
        floored.members_ = [member._with_floor(factor) for member in self.members_]
        return floored

    # -- keeping -------------------------------------------------------------------------------------------

    def _members(self) -> dict[str, SequenceModel]:
        return {str(k): member for k, member in enumerate(self.members_)}

    def _restore_members(self, members: dict[str, SequenceModel]) -> None:
        names = [str(k) for k in range(len(self.models))]
        if sorted(members) != sorted(names):
            raise ValueError(f"a mixture of {len(names)} models cannot have the members {sorted(members)}")
        self.members_ = [members[name] for name in names]
        read = {name for member in self.members_ for name in member.input_names_}
        if read != {*self.measure_.inputs}:
            raise ValueError("the inputs of the mixture are not those of its members")

    def _state(self) -> dict[str, Any]:
        weights = self.weights_
        if isinstance(weights, SymbolGate):
            return {"table": weights.weights, "rate": weights.rate}
        if isinstance(weights, DensityGate):
            return {"bias": weights.bias, "scale": weights.scale, "rate": weights.rate, "decay": weights.decay}
        assert isinstance(weights, FixedShare), "there are three kinds"
        return {"prior": weights.prior, "rate": weights.rate}

    def _restore(self, state: dict[str, Any]) -> None:
        encodings = [member.encoding_ for member in self.members_]
        apart = _are_text(encodings) and any(not _is_same(self.encoding_, each) for each in encodings)
        self.cuts_ = CommonCuts.of(encodings) if apart else None
        n_models, rate = len(self.members_), _between("rate", state["rate"], 0, 1)
        if self.weights == "gated" and self.encoding_.emits == "vectors":
            bias = check_between("bias", array_of(state, "bias", np.float64, (n_models,)), -LARGEST, LARGEST)
            scale = _between("scale", state["scale"], -LARGEST, LARGEST)
            self.weights_ = DensityGate(bias, scale, rate, _between("decay", state["decay"], 0, 1))
        elif self.weights in ("contextual", "gated"):
            layout = self._layout()
            table = array_of(state, "table", np.float64, (layout.n_rows, n_models))
            self.weights_ = SymbolGate(layout, check_between("table", table, -LARGEST, LARGEST), rate)
        else:
            prior = check_between("prior", array_of(state, "prior", np.float64, (n_models,)), 0, 1)
            check_sums("prior", prior.sum(keepdims=True))
            self.weights_ = FixedShare(prior, rate)


def _check_members(models: Sequence[SequenceModel]) -> None:
    if not (isinstance(models, list | tuple) and models and all(isinstance(m, SequenceModel) for m in models)):
        raise ValueError(f"models is {models!r}; pass a list of models such as [NGram(5), LSTM()]")
    for model in models:
        if model._has_encoder or model._is_tagger:
            raise ValueError(
                f"a mixture combines models without an encoder, but {type(model).__name__} reads sources by an "
                "encoder; pass HMMs, n-grams, recurrent networks or Transformers"
            )


def _with_inputs(examples: list[Example], columns: list[int]) -> list[Example]:
    return [
        example if example.inputs is None else replace(example, inputs=example.inputs[:, columns] if columns else None)
        for example in examples
    ]


def _joined_scaling(scalings: Sequence[InputScaling | None]) -> InputScaling | None:
    """Return one standardisation (mean and scale) for the inputs of all members; None if no member reads inputs.

    Raises:
        ValueError: If members standardise one input differently, or count dates or times in different units.
    """
    known: dict[str, tuple[float, float]] = {}
    for scaling in scalings:
        if scaling is None:
            continue
        for name, mean, scale in zip(scaling.names, scaling.mean.tolist(), scaling.scale.tolist(), strict=True):
            if known.setdefault(name, (mean, scale)) != (mean, scale):
                raise ValueError(
                    f"the models standardise the input {name!r} differently, as they were fitted to other sequences; "
                    "fit all to the same ones, or fit a Mixture of them"
                )
    if not known:
        return None
    mean, scale = np.array([*known.values()]).T
    date_units = {scaling.date_unit for scaling in scalings if scaling is not None} - {None}
    if len(date_units) > 1:
        raise ValueError(f"the models count dates in {' and '.join(map(str, date_units))}; pass one date_unit to all")
    time_units = {scaling.time_unit for scaling in scalings if scaling is not None} - {None}
    if len(time_units) > 1:
        raise ValueError(
            f"the models count times in {' and '.join(map(repr, sorted(time_units, key=str)))}; fit all to one"
        )
    zones = {scaling.date_zone for scaling in scalings if scaling is not None and scaling.date_unit is not None}
    return InputScaling(
        *(tuple(known), mean, scale, next(iter(date_units), None), next(iter(time_units), None)),
        date_zone=zones.pop() if len(zones) == 1 else None,
    )


def _of_symbols(member: SequenceModel) -> Observation:
    return member._default_observation("symbols") if member.observation == "auto" else member.observation.clone()


def _checked_prior(prior: Sequence[float] | np.ndarray, n_models: int) -> np.ndarray:
    values = np.asarray(prior, dtype=np.float64)
    if values.shape != (n_models,) or not (values >= 0).all() or abs(values.sum() - 1) > 1e-6:
        raise ValueError(f"prior is {prior!r:.200}; pass {n_models} weights that sum to one")
    return np.asarray(values / values.sum())


def _between(name: str, value: Any, low: float, high: float) -> float:
    if type(value) not in (int, float) or not low <= value <= high:
        raise ValueError(f"{name} should be a number from {low} to {high}")
    return float(value)


def _is_same(a: Encoding, b: Encoding) -> bool:
    return type(a) is type(b) and _in_json(a.state()) == _in_json(b.state())


def _are_text(encodings: Sequence[Encoding]) -> bool:
    return all(isinstance(encoding, Text) for encoding in encodings)


def _in_json(state: dict[str, Any]) -> str:
    return repr({name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in state.items()})
