"""A function that returns the log-probabilities of the next symbol, as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.parameters import PositiveInt, Seed, checked
from seqmodels.encodings import Bytes, Encoding
from seqmodels.encodings.examples import Example
from seqmodels.generation import Prediction, Source, stacked_sources
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length, Values
from seqmodels.wrappers.adapt.adapted import (
    AdaptedModel,
    check_counts,
    check_end,
    log_prob_of_columns,
    prediction_of_columns,
)
from seqmodels.wrappers.adapt.alphabet import Alphabet, known_encoding
from seqmodels.wrappers.adapt.density import DensityModel, NextDensity

NextLogProbs = Callable[[Any], Any]
Advance = Callable[[Any, int], Any]
SUM_TOLERANCE = 1e-3  # tolerated error of a sum of probabilities, which a function may compute in float32


@dataclass(eq=False, repr=False)
class CallableModel(AdaptedModel):
    """A model whose ``p(x_t | x_<t)`` is a user's function of the prefix, or of a state; ``from_callable`` makes one.

    V is the number of symbols.

    Args:
        next_log_probs: function from a prefix or state to log-probabilities of the next symbol in nats, ``(V,)``, or
            ``(V + 1,)`` with the end last; or a class whose instances are such functions.
        n_symbols: V, if sequences are of integers.
        symbols: names of the V symbols, if sequences are of strings.
        text: True if sequences are strings, read as UTF-8 bytes.
        alphabet: the V characters, if sequences are strings, read as characters.
        initial_state, advance: state before the first symbol, and function from a state and a symbol to the next state,
            if the function takes states instead of prefixes.
        batched: True if the function takes a list of n prefixes or states and returns n rows.
        context: how many steps back the function looks; None means all.
        n_parameters: number that ``n_parameters_`` reports.
    """

    next_log_probs: NextLogProbs | type
    _: KW_ONLY
    n_symbols: int | None = None
    symbols: Sequence[str] | None = None
    text: bool = False
    alphabet: str | None = None
    initial_state: Any = None
    advance: Advance | type | None = None
    batched: bool = False
    context: int | None = None
    n_parameters: int = 0

    @property
    def context_(self) -> int | None:
        return self.context

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.n_parameters

    def _check_hyperparameters(self) -> None:
        for name in ("next_log_probs", "advance"):
            value = getattr(self, name)
            if not (callable(value) or (name == "advance" and value is None)):
                raise ValueError(f"{name} is {value!r:.80}; pass a function")
        check_counts(self.context, self.n_parameters)
        if self.advance is None and self.initial_state is not None:
            raise ValueError("initial_state is given but advance is not; pass both, or neither")

    def _known_encoding(self) -> Encoding:
        return known_encoding(self.encoding, self.n_symbols, self.symbols, self.text, self.alphabet)

    def _default_length(self, kind: Kind) -> Length:
        """Return "stop" if the user's function gives the end of a sequence a probability, else "given"."""
        size = self._stated_encoding().size
        first = self._rows().first()
        return "stop" if _as_rows(self._made()([first] if self.batched else first)).shape[-1] == size + 1 else "given"

    def _made(self) -> NextLogProbs:
        function: NextLogProbs = self.next_log_probs() if isinstance(self.next_log_probs, type) else self.next_log_probs
        return function

    def _rows(self) -> Prefixes | States:
        if self.advance is None:
            return Prefixes(self._stated_encoding())
        return States(self.initial_state, self.advance() if isinstance(self.advance, type) else self.advance)

    def _prepare(self) -> None:
        self.predictor_ = Predictor(
            self._made(), self._rows(), self.encoding_.size, self.length_ == "stop", self.batched
        )
        self.predictor_.log_probs([self.predictor_.rows.first()])  # raises if the function's results are wrong

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return [self._steps_of(np.asarray(example.values)) for example in examples]

    def _steps_of(self, values: np.ndarray) -> np.ndarray:
        predictor = self.predictor_
        states = predictor.rows.all_of(values)
        logits = predictor.log_probs(states if predictor.has_end else states[:-1])
        steps = np.arange(len(logits))
        return log_prob_of_columns(
            self.observation_,
            logits,
            np.append(values, 0)[: len(steps)],  # the end is padded by any symbol
            predictor.size,
            predictor.end,
            has_end=predictor.has_end,
            is_first=steps == 0,
            is_end=steps == len(values),
        )

    def cursor(self, n_steps: int | None = None) -> CallableCursor:
        self._setting()
        return CallableCursor(self.predictor_, self.observation_, self._device())


@dataclass(frozen=True)
class Prefixes:
    """The states of a user's function of the prefix: prefixes, as ``bytes``, ``str`` or arrays of integers.

    Args:
        encoding: encoding of the sequences, which decides: ``Bytes`` reads text as bytes, ``Alphabet`` as characters,
            and others read arrays of integers.
    """

    encoding: Encoding

    def first(self) -> Any:
        """Return the empty prefix, the state before the first symbol."""
        return self._as_prefix(np.zeros(0, dtype=np.int64))

    def after(self, state: Any, symbol: int) -> Any:
        """Return the prefix ``state`` with one more encoded symbol at its end."""
        if isinstance(self.encoding, Bytes):
            return state + bytes([symbol])
        if isinstance(self.encoding, Alphabet):
            return state + self.encoding.characters[symbol]
        return self._as_prefix(np.append(state, symbol))

    def all_of(self, values: np.ndarray) -> list[Any]:
        """Return the T + 1 prefixes of ``values``, encoded symbols ``(T,)``, from the empty one to the whole."""
        return [self._as_prefix(values[:t]) for t in range(len(values) + 1)]

    def _as_prefix(self, values: np.ndarray) -> Any:
        if isinstance(self.encoding, Bytes):
            return values.astype(np.uint8).tobytes()
        if isinstance(self.encoding, Alphabet):
            return self.encoding.decode(values)
        prefix = values.view()
        prefix.flags.writeable = False
        return prefix


@dataclass(frozen=True)
class States:
    """The states of a user's function that depends on a state, which another function of the user updates.

    Attributes:
        initial_state: state before the first symbol.
        advance: function from a state and a symbol to the next state.
    """

    initial_state: Any
    advance: Advance

    def first(self) -> Any:
        """Return the state before the first symbol, which the user gave."""
        return self.initial_state

    def after(self, state: Any, symbol: int) -> Any:
        """Return the state after one more encoded symbol."""
        return self.advance(state, symbol)

    def all_of(self, values: np.ndarray) -> list[Any]:
        """Return the T + 1 states before each of ``values``, encoded symbols ``(T,)``, and after the last one."""
        states = [self.initial_state]
        for symbol in values.tolist():
            states.append(self.advance(states[-1], symbol))
        return states


@dataclass(frozen=True)
class Predictor:
    """A user's function from states (or prefixes) to log-probabilities of the next symbol, checked at every call.

    Attributes:
        function: the function of a state, or of a list of states if ``batched``.
        rows: how the states of a sequence follow from its symbols.
        size: number V of symbols.
        has_end: True if the end of a sequence is predicted.
        batched: True if the function takes a list of states.
    """

    function: NextLogProbs
    rows: Prefixes | States
    size: int
    has_end: bool
    batched: bool

    @property
    def end(self) -> int | None:
        """The column of the end of a sequence among the log-probabilities, V; None if the end is not predicted."""
        return self.size if self.has_end else None

    def log_probs(self, states: list[Any]) -> Tensor:
        """Return the log-probabilities of the next symbol after each of n states in nats, ``(n, V)``, float64.

        They are ``(n, V + 1)`` with the end last if the function gives the end a probability. V is the number of
        symbols.

        Raises:
            ValueError: If the function returns another shape, or probabilities that do not sum to one.
        """
        results = [self.function(states)] if self.batched else [self.function(state) for state in states]
        arrays = [_as_rows(result) for result in results]
        n_rows = (len(states),) if self.batched else ()
        allowed = {(*n_rows, self.size), (*n_rows, self.size + 1)}
        shapes = {tuple(array.shape) for array in arrays}
        if not shapes <= allowed or len(shapes) > 1:
            raise ValueError(
                f"next_log_probs returns shape {' and '.join(map(str, sorted(shapes)))}; return "
                f"{'(n, V)' if self.batched else '(V,)'} log-probabilities, V = {self.size}, or always V + 1 with the "
                "end last"
            )
        rows = arrays[0] if self.batched else torch.stack(arrays)
        check_end("function", "stop" if self.has_end else "given", self.size if rows.shape[1] > self.size else None)
        totals = rows.exp().sum(-1)
        wrong = ~((totals - 1).abs() <= SUM_TOLERANCE)  # True for NaN too
        if wrong.any():
            i = int(wrong.nonzero()[0])
            raise ValueError(
                f"the probabilities that next_log_probs returns for {states[i]!r:.60} sum to {float(totals[i]):.6g}, "
                "not to one; return logarithms that are normalised, such as of log_softmax"
            )
        return rows


def _as_rows(log_probs: Any) -> Tensor:
    values = log_probs.detach().cpu() if isinstance(log_probs, Tensor) else torch.as_tensor(np.asarray(log_probs))
    if not values.ndim:
        raise ValueError(f"the function returns {values.item()}; it should return the log-probability of each symbol")
    return values.double()


@dataclass(frozen=True)
class CallableState:
    """The state of a ``CallableCursor`` for n sequences.

    Attributes:
        states: state of the user's function (or prefix) of each sequence.
        position: number of symbols that were read.
    """

    states: tuple[Any, ...]
    position: int


@dataclass(frozen=True)
class CallableCursor:
    """A predictor, symbol by symbol, for a user's function of the prefix or of a state.

    Attributes:
        predictor: the function.
        observation: observation of the model.
        device: device of the predictions.
    """

    predictor: Predictor
    observation: Observation
    device: torch.device

    def start(self, source: Source = None, n: int = 1) -> CallableState:
        """Return the state before the first step of ``n`` sequences.

        ``source`` must be None, because the model is of x alone.
        """
        assert stacked_sources(source, n) is None, "the model is p(x)"
        return CallableState((self.predictor.rows.first(),) * n, 0)

    def advance(self, state: CallableState, x: Tensor) -> CallableState:
        """Return the state after each sequence's next symbol; the old state stays as it is.

        Args:
            state: the state before it.
            x: the symbol of each of n sequences, ``(n,)``.
        """
        rows = self.predictor.rows
        after = tuple(rows.after(each, symbol) for each, symbol in zip(state.states, x.tolist(), strict=True))
        return CallableState(after, state.position + 1)

    def distribution(self, state: CallableState) -> Prediction:
        """Return the prediction of the next symbol of each sequence, and of the end if it is predicted."""
        predictor = self.predictor
        logits = predictor.log_probs(list(state.states)).to(self.device)
        return prediction_of_columns(
            self.observation,
            logits,
            predictor.size,
            predictor.end,
            has_end=predictor.has_end,
            is_first=state.position == 0,
        )

    def select(self, state: CallableState, index: Tensor) -> CallableState:
        """Return the state of some of the sequences, whose indices are ``index``, ``(m,)``."""
        return CallableState(tuple(state.states[i] for i in index.tolist()), state.position)


@checked
def from_callable(
    next_log_probs: NextLogProbs | type | None = None,
    *,
    n_symbols: int | None = None,
    symbols: Sequence[str] | None = None,
    text: bool = False,
    alphabet: str | None = None,
    length: Length | str = "auto",
    initial_state: Any = None,
    advance: Advance | type | None = None,
    batched: bool = False,
    log_density: NextDensity | type | None = None,
    n_features: PositiveInt | None = None,
    kinds: Values | list[Values] = "reals",
    context: int | None = None,
    n_parameters: int = 0,
    random_state: Seed = 0,
) -> CallableModel | DensityModel:
    """Return a fitted model of a function that gives the log-probabilities, or the density, of what comes next.

    ``p(x_1 .. x_T) = Π_t p(x_t | x_<t)``, where ``next_log_probs(x_<t)`` are the logarithms of ``p(· | x_<t)``. The
    function must return the same for the same prefix. The model's figures are exact.

    Args:
        next_log_probs: function from a prefix to the log-probabilities of the next symbol in nats, ``(V,)``; or
            ``(V + 1,)``, where the last is the end. The prefix is an array of integers, ``bytes`` under ``text``, or
            ``str`` under ``alphabet``. Sequences are not empty: after the empty prefix the end is left out and the
            others are normalised. A class whose instances are such functions can be saved by its name; a function
            cannot.
        n_symbols: V, if sequences are of integers.
        symbols: names of the V symbols, if sequences are of strings.
        text: True if sequences are strings, read as UTF-8 bytes; V is then 256.
        alphabet: the V characters in the order of the log-probabilities, if sequences are strings, read as characters.
        length: ``"auto"`` means ``"stop"`` if the function gives the end a probability, else ``"given"``.
        initial_state, advance: a state to be used instead of the prefix: the function is called with ``initial_state``,
            and then with ``advance(state, symbol)``, which must not change the state that it is given.
        batched: True if the function takes a list of n prefixes or states and returns ``(n, V)`` or ``(n, V + 1)``.
        log_density, n_features, kinds: arguments of ``DensityModel``, for vectors, instead of all the above.
        context: how many steps back the function looks, which ``context_`` reports; None means all.
        n_parameters: number of parameters, which ``n_parameters_`` reports.
        random_state: seed of draws.

    Raises:
        ValueError: If there are too many or too few log-probabilities, or they do not sum to one (also when scoring),
            or arguments contradict each other.

    >>> import math
    >>> def stays(prefix):  # a Markov chain of two symbols
    ...     p = 0.5 if len(prefix) == 0 else 0.9 if prefix[-1] == 0 else 0.1
    ...     return [math.log(p), math.log(1 - p)]
    >>> model = from_callable(stays, n_symbols=2)
    >>> model.log_prob_steps([[0, 0, 1]])[0].round(2)
    array([-0.69, -0.11, -2.3 ])
    >>> model.predict_next([1]).probs
    tensor([0.1000, 0.9000], dtype=torch.float64)
    """
    if (next_log_probs is None) == (log_density is None):
        raise ValueError("pass either next_log_probs (symbols or text) or log_density (vectors)")
    if log_density is not None:
        if n_features is None:
            raise ValueError("log_density models vectors, whose number of features is unknown; pass n_features=")
        density = DensityModel(
            log_density,
            n_features=n_features,
            kinds=kinds,
            context=context,
            n_parameters=n_parameters,
            length=length,  # type: ignore[arg-type]
            random_state=random_state,
        )
        return density._adopted()
    assert next_log_probs is not None, "one of the two is given"
    model = CallableModel(
        next_log_probs,
        n_symbols=n_symbols,
        symbols=symbols,
        text=text,
        alphabet=alphabet,
        initial_state=initial_state,
        advance=advance,
        batched=batched,
        context=context,
        n_parameters=n_parameters,
        length=length,  # type: ignore[arg-type]
        random_state=random_state,
    )
    return model._adopted()
