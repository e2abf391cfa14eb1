"""A trained causal network from tokens to logits, as a ``SequenceModel``: in windows, and one step at a time."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.common.display import a_or_an
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import DTYPES
from seqmodels.generation import Prediction, Source, stacked_sources
from seqmodels.neural.batches import Windowing
from seqmodels.neural.evaluation_copy import evaluation_copy
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.training import train
from seqmodels.wrappers.adapt.adapted import AdaptedModel, check_end, log_prob_of_columns, prediction_of_columns
from seqmodels.wrappers.adapt.fine_tuning import FineTuning, TrainingRow, WindowsOfRows

MAX_LOGITS_AT_ONCE = 1 << 26  # largest number of logits of one call, unless a single window has more
MAX_TOKENS_AT_ONCE = 1 << 14
STEPS_CHECKED = 8  # length of the sequences that a network is checked with
TOLERANCE = 1e-4  # share of the largest logit by which float32 may differ in another order of sums


class LogitsReader(ABC):
    """A reader of a network's logits after a sequence of tokens, which may cache what it computed in the last call.

    A cache must not change any result. To add one, define ``last_logits``.
    """

    @abstractmethod
    def last_logits(self, tokens: Tensor) -> Tensor:
        """Return the W logits of the token that follows ``tokens``, ``(n, T)`` with T at least 1, as ``(n, W)``."""


@dataclass(frozen=True)
class WholeReader(LogitsReader):
    """A reader of a network's logits that runs ``network`` on all tokens at every call, without a cache.

    Args:
        network: network from tokens ``(n, T)`` to W logits at each, ``(n, T, W)``.
    """

    network: nn.Module

    def last_logits(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.network(tokens)
        return logits[:, -1]


@dataclass(kw_only=True, eq=False, repr=False)
class LogitsModel(AdaptedModel, ABC):
    """A base class of models of symbols by a causal network from tokens ``(B, T)`` to W logits at each, ``(B, T, W)``.

    ``p(x_t | x_<t) = softmax(logits_t)``. To add one, define ``_network``, ``_known_encoding`` and ``_resolved``; and
    ``_reader`` if a step can be computed more cheaply than by reading all tokens again.

    Args:
        context: number of tokens that the network reads at once; longer sequences are read in windows that overlap by
            half.
        stride: number of tokens from one window to the next; None means half the context.
        training: a ``FineTuning`` by which ``fit`` trains a copy of the network; None means that ``fit`` leaves it as
            it is.
    """

    context: int | Any = None
    stride: int | None = None
    training: FineTuning | None = None

    @abstractmethod
    def _network(self) -> nn.Module:
        """Return the network from tokens, integers ``(B, T)``, to W logits of the next token at each, ``(B, T, W)``."""

    @abstractmethod
    def _resolved(self) -> Tokens:
        """Return the start and end tokens and the context, with ``"auto"`` resolved."""

    def _reader(self, network: nn.Module) -> LogitsReader:
        return WholeReader(network)

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        self._setting()
        return self.tokens_.context

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return sum(parameter.numel() for parameter in self.network_.parameters())

    def _default_length(self, kind: Kind) -> Length:
        return "given" if self._resolved().end is None else "stop"

    @property
    def _uses_validation(self) -> bool:  # type: ignore[override]
        return self.training is not None

    def _prepare(self) -> None:
        self.network_: nn.Module = self._network()
        self.tokens_: Tokens = self._resolved()
        check_end("network", self.length_, self.tokens_.end)
        Windowing(self.tokens_.context, self.stride)
        check_logits(self._evaluated(), self.encoding_.size, self.tokens_)

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        super()._fit(train, validation)
        if self.training is not None:
            self._train(self.training, train, validation)

    def _train(self, training: FineTuning, train_examples: list[Example], validation: list[Example]) -> None:
        """Train a copy of the network, and use it in place of the network.

        Args:
            training: options of the training.
            train_examples: encoded sequences to train on.
            validation: encoded sequences for early stopping; there may be none.
        """
        device, has_end, tokens = self._device(), self.length_ == "stop", self.tokens_
        network = copy.deepcopy(self.network_).to(device, torch.float32).requires_grad_(True)
        self.network_ = network
        columns = torch.zeros(self._n_columns(), dtype=torch.bool, device=device)
        columns[: self.encoding_.size] = True
        if tokens.end is not None:
            columns[tokens.end] = has_end
        windows = WindowsOfRows(
            network,
            [self._training_row(example, has_end) for example in train_examples],
            Windowing(tokens.context, self.stride),
            training.batch_size,
            columns,
            tokens.end if has_end else None,
        )
        n_batches = -(-len(windows.windows()) // training.batch_size)
        if n_batches == 0:
            raise ValueError("there is no step to predict; pass sequences of 2 symbols or more, or a start symbol")
        units = sum(example.n_units for example in validation)

        def evaluate() -> float:
            network.eval()
            sums = sum(
                float(steps[e.n_past :].sum()) for e, steps in zip(validation, self._steps(validation), strict=True)
            )
            return sums / units

        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.random_state)  # because dropout of a foreign module draws from torch's generator
            self.history_, self.converged_ = train(
                network,
                windows.epoch(self.random_state),
                windows,
                evaluate if validation else None,
                training.config(progress=self.verbose),
                n_batches,
            )
        network.eval()

    @torch.no_grad()
    def _n_columns(self) -> int:
        tokens = torch.zeros(1, 1, dtype=torch.int64, device=self._device())
        return int(self._evaluated()(tokens).shape[-1])

    def _training_row(self, example: Example, has_end: bool) -> TrainingRow:
        tokens, values = self.tokens_, np.asarray(example.values)
        inputs = tokens.row(values, has_end)
        targets = values if tokens.start is not None else values[1:]
        if has_end:
            assert tokens.end is not None, "check_end refuses it"
            targets = np.append(targets, tokens.end)
        n_past = example.n_past - (tokens.start is None and example.n_past > 0)
        return TrainingRow(
            inputs, targets, example.weight, example.n_units, n_past, tokens.start is not None and not example.n_past
        )

    def _state(self) -> dict[str, Any]:
        """Return the trained weights by name; nothing if the network is used as it is."""
        if self.training is None:
            return {}
        return {name: tensor.float().cpu().numpy() for name, tensor in self.network_.state_dict().items()}

    def _restore(self, state: dict[str, Any]) -> None:
        if self.training is None:
            super()._restore(state)
            return
        super()._restore({})
        self.network_ = copy.deepcopy(self.network_)
        shapes = {name: tuple(tensor.shape) for name, tensor in self.network_.state_dict().items()}
        if {name: np.shape(value) for name, value in state.items()} != shapes:
            raise ValueError("the weights in the file do not fit the network that the class makes")
        self.network_.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})

    def _evaluated(self) -> nn.Module:
        """Return the network in evaluation mode, in the precision and on the device of the model."""
        return evaluation_copy(self.network_, self._device(), DTYPES[self.dtype])

    @torch.no_grad()
    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        network, tokens, has_end = self._evaluated(), self.tokens_, self.length_ == "stop"
        rows = [tokens.row(np.asarray(example.values), has_end) for example in examples]
        windowing = Windowing(tokens.context, self.stride)
        windows = [(i, *window) for i, row in enumerate(rows) for window in windowing.windows(len(row))]
        windows.sort(key=lambda window: window[2] - window[1])
        first, uniform = 0 if tokens.start is not None else 1, -np.log(tokens.n_symbols(self.encoding_.size))
        results = [np.full(len(example.values) + has_end, uniform) for example in examples]
        limit = max(1, min(MAX_TOKENS_AT_ONCE, MAX_LOGITS_AT_ONCE // self.encoding_.size))
        values = [np.append(example.values, 0) for example in examples]  # the end is padded by any symbol
        for batch in _batches(windows, limit):
            logits = network(_padded([rows[i][begin:end] for i, begin, end, _ in batch], self._device()))
            steps = [np.arange(first + scored_from, first + end) for _, _, end, scored_from in batch]
            scored = torch.cat(
                [of[scored_from - a : end - a] for (_, a, end, scored_from), of in zip(batch, logits, strict=True)]
            )
            log_prob = log_prob_of_columns(
                self.observation_,
                scored.to(DTYPES[self.dtype]),
                np.concatenate([values[i][of] for (i, *_), of in zip(batch, steps, strict=True)]),
                self.encoding_.size,
                tokens.end,
                has_end=has_end,
                is_first=np.concatenate(steps) == 0,
                is_end=np.concatenate(
                    [of == len(examples[i].values) for (i, *_), of in zip(batch, steps, strict=True)]
                ),
            )
            parts = np.split(log_prob, np.cumsum([len(of) for of in steps])[:-1])
            for (i, *_), of, part in zip(batch, steps, parts, strict=True):
                results[i][of] = part
        return results

    def cursor(self, n_steps: int | None = None) -> LogitsCursor:
        self._setting()
        network = self._evaluated()
        return LogitsCursor(
            self._reader(network),
            self.observation_,
            self.tokens_,
            Windowing(self.tokens_.context, self.stride),
            self.encoding_.size,
            self.length_ == "stop",
            self._device(),
            DTYPES[self.dtype],
        )


@dataclass(frozen=True)
class Tokens:
    """The tokens that a network reads besides symbols, and its context.

    Attributes:
        start: token before the first symbol; None if the network reads none, and then the first symbol is uniform.
        end: column of the end of a sequence among the logits; None if there is none.
        context: number of tokens that the network reads at once; None for any number.
    """

    start: int | None
    end: int | None
    context: int | None

    def n_symbols(self, size: int) -> int:
        """Return the number of symbols among the first ``size`` tokens: one fewer if the end is among them."""
        return size - (self.end is not None and self.end < size)

    def row(self, values: np.ndarray, has_end: bool) -> np.ndarray:
        """Return the tokens that the network reads to predict a sequence, and perhaps its end.

        Without a start token, the first symbol is not predicted.

        Args:
            values: symbols of the sequence, ``(T,)``.
            has_end: True if the end is predicted, so that the last symbol is read too.
        """
        start = [] if self.start is None else [self.start]
        row: np.ndarray = np.concatenate([np.array(start, dtype=np.int64), values])
        return row if has_end else row[:-1]


Window = tuple[int, int, int, int]  # row, begin, end, and the first step that is scored


def _batches(windows: list[Window], limit: int) -> list[list[Window]]:
    """Group windows (ranges of the tokens of a sequence) into batches of at most ``limit`` tokens, padding included.

    Empty windows are left out.

    Args:
        windows: index of the sequence, begin, end and first scored step of each window, ordered by length.
        limit: largest number of tokens of a batch, unless one window has more.
    """
    batches: list[list[Window]] = []
    for window in windows:
        length = window[2] - window[1]
        if length == 0:
            continue
        if batches and (len(batches[-1]) + 1) * length <= limit:
            batches[-1].append(window)
        else:
            batches.append([window])
    return batches


def _padded(rows: list[np.ndarray], device: torch.device) -> Tensor:
    """Return the rows as one tensor ``(B, T)``, padded on the right by a valid token.

    The network is causal, so that padding changes no logits before it.
    """
    result = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for i, row in enumerate(rows):
        result[i, : len(row)] = torch.as_tensor(row)
    return result.to(device)


@torch.no_grad()
def check_logits(network: nn.Module, size: int, tokens: Tokens) -> None:
    """Check the logits that a network returns for random tokens: their shape, that they are finite, and causal.

    They must also not depend on the other sequences of the batch, nor change from one call to the next.

    Args:
        network: network from tokens ``(B, T)`` to logits ``(B, T, W)``, in evaluation mode.
        size: number of symbols.
        tokens: start and end tokens.

    Raises:
        ValueError: If one of these is not so.
    """
    parameter = next(network.parameters(), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    length = STEPS_CHECKED if tokens.context is None else min(STEPS_CHECKED, tokens.context)
    x, other = (torch.randint(size, (2, length), generator=generator).to(parameter.device) for _ in range(2))
    if tokens.start is not None:
        x[:, 0] = tokens.start
    try:
        logits = network(x)
    except IndexError as error:
        raise ValueError(
            f"the network does not take tokens up to {int(x.max())} ({error}); pass the n_symbols and the start that "
            "it was made for"
        ) from None
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != x.shape:
        what = tuple(logits.shape) if isinstance(logits, Tensor) else a_or_an(type(logits))
        raise ValueError(f"the network maps tokens {tuple(x.shape)} to {what}; it should return logits (B, T, W)")
    least = size if tokens.end is None else max(size, tokens.end + 1)
    if logits.shape[2] < least:
        raise ValueError(
            f"the network has logits of {logits.shape[2]} tokens, but there are {size} symbols"
            + (f" and the end is {tokens.end}" if tokens.end is not None else "")
        )
    if not bool(torch.isfinite(logits).any(-1).all()) or bool(logits.isnan().any()):
        raise ValueError("the network's logits are not numbers")
    if not _close(network(x), logits):  # compared with a tolerance, because rounding may differ
        raise ValueError("the network gives two outputs for one input in evaluation mode; let eval() turn that off")
    for t in range(1, length):
        if not _close(network(torch.cat([x[:, :t], other[:, t:]], 1))[:, :t], logits[:, :t]):
            raise ValueError(
                f"the network is not causal: other tokens from step {t} on change earlier logits; mask the future"
            )
        if not _close(network(x[:, :t]), logits[:, :t]):
            raise ValueError(f"the network's logits change when its tokens end after {t}; let none depend on the end")
    if not _close(network(x[:1]), logits[:1]):
        raise ValueError("the network's logits depend on the other sequences of the batch")


def _close(a: Tensor, b: Tensor) -> bool:
    scale = float(b[b.isfinite()].abs().max())
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=TOLERANCE * max(1.0, scale))


# -- one step at a time ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogitsState:
    """The state of a ``LogitsCursor`` for n sequences: the tokens that were read.

    Attributes:
        tokens: the t tokens of the current window, ``(n, t)``; the first window includes the start token.
        position: index of the last token read; -1 before the first. The start token, if there is one, has index 0.
        window: index of the first token of the current window.
    """

    tokens: Tensor
    position: int
    window: int


@dataclass(frozen=True)
class LogitsCursor:
    """A predictor, symbol by symbol, for a network of tokens, which reads long sequences in the windows of scoring.

    A state holds only the tokens; logits are computed when a prediction is needed.

    Attributes:
        reader: reader of the network's logits.
        observation: observation of the model.
        tokens: start and end tokens.
        windowing: how long sequences are cut into windows.
        size: number of symbols.
        has_end: True if the end of a sequence is predicted.
        device, dtype: device and precision of the logits.
    """

    reader: LogitsReader
    observation: Observation
    tokens: Tokens
    windowing: Windowing
    size: int
    has_end: bool
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> LogitsState:
        """Return the state before the first step of ``n`` sequences.

        ``source`` must be None, because the model is of x alone.
        """
        assert stacked_sources(source, n) is None, "the model is p(x)"
        start = [] if self.tokens.start is None else [self.tokens.start]
        tokens = torch.tensor(start, dtype=torch.int64, device=self.device).expand(n, -1)
        return LogitsState(tokens, len(start) - 1, 0)

    def advance(self, state: LogitsState, x: Tensor) -> LogitsState:
        """Return the state after each sequence's next symbol.

        After the end of a window (the range of tokens read at once) the next one begins.

        Args:
            state: the state before it.
            x: the symbol of each of n sequences, ``(n,)``.
        """
        tokens = torch.cat([state.tokens, x.to(state.tokens).unsqueeze(1)], 1)
        position = state.position + 1
        window = self.windowing.window_of(position, state.window)
        return LogitsState(tokens[:, window - state.window :], position, window)

    @torch.no_grad()
    def distribution(self, state: LogitsState) -> Prediction:
        """Return the prediction of the next symbol of each sequence, and of the end if it is predicted."""
        n = len(state.tokens)
        if state.position < 0:  # nothing was read, and there is no start token
            logits = torch.zeros(n, max(self.size, (self.tokens.end or 0) + 1), dtype=self.dtype, device=self.device)
        else:
            logits = self.reader.last_logits(state.tokens).to(self.dtype)
        is_first = state.position == (0 if self.tokens.start is not None else -1)
        return prediction_of_columns(
            self.observation, logits, self.size, self.tokens.end, has_end=self.has_end, is_first=is_first
        )

    def select(self, state: LogitsState, index: Tensor) -> LogitsState:
        """Return the state of some of the sequences, whose indices are ``index``, ``(m,)``."""
        return replace(state, tokens=state.tokens.index_select(0, index.to(state.tokens.device)))
