"""Incremental evaluation: a network one step at a time, for n sequences at once, in the windows that scoring reads.

``NetworkCursor`` calls the network itself, whatever it reads. ``SymbolCursor`` makes the same predictions of networks
that read symbols in fewer operations: all inputs are computed beforehand, and a ``Stepper`` takes the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.encodings.aligned_targets import past_the_source
from seqmodels.generation import Prediction, Source, source_of_each, stacked_sources
from seqmodels.generation.cursor import StepsOnStates
from seqmodels.generation.given_inputs import refuse_without_inputs
from seqmodels.neural.batches import Windowing, pad_sources
from seqmodels.neural.embedding_and_head import SequenceModule, split_end
from seqmodels.neural.evaluation_copy import MadeOfModules
from seqmodels.neural.network import State, Stepper, StepperState, SymbolHead, select
from seqmodels.observations import Categorical, Observation

KEPT_UP_TO = 10_000_000  # parameters of a module, up to which what is computed of it for single steps is kept with it

# -- any network -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkState(Generic[State]):
    """The state before step ``position`` of the row.

    Attributes:
        network_state: of the network.
        outputs: (n, P), of its head.
        recent: (n, w, ...), the last elements, which a new window reads again.
        filled: the same for an observation's past, with the last value of its feature for each that is missing.
        position: of the next step.
        window: the first step of the current window.
        first: the first scored step.
        n_steps: how many there are, where the source says so; of several the longest, so that the caller must know
            where others end.
        exogenous: (n, w, U), of the last steps, and of the next one where it is given; None: none are read.
        n_unread: how many inputs the network reads once the exogenous inputs of the next step are given; 0: they are.
    """

    network_state: State
    outputs: Tensor
    recent: Tensor
    filled: Tensor
    position: int
    window: int
    first: int
    n_steps: int | None = None
    exogenous: Tensor | None = None
    n_unread: int = 0

    @property
    def is_over(self) -> bool:
        """Whether there is no next step."""
        return self.n_steps is not None and self.position >= self.n_steps


@dataclass(frozen=True)
class NetworkCursor(Generic[State]):
    """The one-step predictions of a fitted module."""

    module: SequenceModule[State]
    observation: Observation
    windowing: Windowing

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> NetworkState[State]:
        """Before the first scored step; a network without an encoder reads the source as the row's beginning.

        Sources for an encoder may be of several lengths.
        """
        parameter = next(self.module.parameters())
        vectors = self.module.spec.reads == "vectors"
        dtype = parameter.dtype if vectors else torch.int64
        width = (self.module.spec.size,) if vectors else ()
        if source is None or self.module.network.reads_source:
            padded, mask = pad_sources(source_of_each(source, n), parameter.device, parameter.dtype)
            start = self.module.start(n, padded, mask)
            recent = torch.zeros(n, 0, *width, dtype=dtype, device=parameter.device)
            n_steps = None if padded is None or not self.module.network.aligned else padded.shape[1]
            if self.module.exogenous is not None:
                none = torch.zeros(n, 0, self.module.spec.n_exogenous, dtype=parameter.dtype, device=parameter.device)
                return NetworkState(start, none[:, :, 0], recent, recent, 0, 0, 0, n_steps, none, 1)
            return self._read(NetworkState(start, recent, recent, recent, 0, 0, 0, n_steps), 1)
        sources = stacked_sources(source, n)
        assert sources is not None, "there is a source"
        sources = sources.to(parameter.device, parameter.dtype if sources.is_floating_point() else torch.int64)
        first = sources.shape[1]
        window = self.windowing.windows(first + 1)[-1][0]
        return self.begin_window(sources, self._filled(sources), first, window, first)

    @torch.no_grad()
    def advance(self, state: NetworkState[State], x: Tensor) -> NetworkState[State]:
        """Take each sequence's next element; at the end of a window begin the next."""
        _refuse_unread(state)
        recent, filled = self._with_steps(state, x.unsqueeze(1))
        position, window = state.position + 1, self.windowing.window_of(state.position + 1, state.window)
        keep = max(self.windowing.context or 0, self.observation.n_past, 1)
        advanced = replace(state, recent=recent[:, -keep:], filled=filled[:, -keep:], position=position, window=window)
        if advanced.is_over:
            return advanced
        if state.exogenous is not None:
            if window == state.window:
                return replace(advanced, n_unread=1)
            start = self.module.start(len(recent), None, None)
            return replace(advanced, network_state=start, n_unread=position - window + 1)
        if window == state.window:
            return self._read(advanced, 1)
        return self.begin_window(advanced.recent, advanced.filled, position, window, state.first)

    @torch.no_grad()
    def given(self, state: NetworkState[State], inputs: Tensor) -> NetworkState[State]:
        """The same state, given the exogenous inputs ``(n, U)`` of the next step."""
        assert state.exogenous is not None, "the module reads exogenous inputs"
        if not state.n_unread:
            raise ValueError("the inputs of the next step are given already")
        known = torch.cat([state.exogenous, inputs.to(state.exogenous).unsqueeze(1)], 1)
        exogenous = known[:, -max(self.windowing.context or 0, 1) :]
        return self._read(replace(state, exogenous=exogenous, n_unread=0), state.n_unread)

    @torch.no_grad()
    def read(self, state: NetworkState[State], x: Tensor) -> NetworkState[State]:
        """Take each sequence's next T elements, ``x (n, T, ...)``, in one call of the network."""
        _refuse_unread(state)
        (recent, filled), length = self._with_steps(state, x), x.shape[1]
        position, window = state.position + length, state.window
        for step in range(state.position + 1, position + 1):
            window = self.windowing.window_of(step, window)
        keep = max(self.windowing.context or 0, self.observation.n_past, 1)
        advanced = replace(state, recent=recent, filled=filled, position=position)
        if advanced.is_over:
            after = advanced
        elif window == state.window:
            after = self._read(advanced, length)
        else:
            after = self.begin_window(recent, filled, position, window, state.first)
        return replace(after, recent=recent[:, -keep:], filled=filled[:, -keep:])

    @torch.no_grad()
    def begin_window(
        self, recent: Tensor, filled: Tensor, position: int, window: int, first: int
    ) -> NetworkState[State]:
        """The state at a position in its window, computed from the window's first step on; see ``NetworkState``."""
        start = self.module.start(len(recent), None, None)
        return self._read(NetworkState(start, recent, recent, filled, position, window, first), position - window + 1)

    def _with_steps(self, state: NetworkState[State], x: Tensor) -> tuple[Tensor, Tensor]:
        """``recent`` and ``filled`` of the state, with the next elements ``x (n, T, ...)`` after them."""
        x = x.to(state.recent)
        recent = torch.cat([state.recent, x], dim=1)
        if not self.observation.n_past:
            return recent, recent
        return recent, torch.cat([state.filled, self._filled(x, state.filled)], dim=1)

    def _filled(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """``x (n, T, ...)`` with the last value of its feature for each that is missing; 0 before there is one."""
        if not x.is_floating_point() or not bool(x.isnan().any()):
            return x
        last = torch.zeros_like(x[:, 0]) if before is None or not before.shape[1] else before[:, -1]
        steps = []
        for step in x.unbind(1):
            last = torch.where(step.isnan(), last, step)
            steps.append(last)
        return torch.stack(steps, 1)

    def _read(self, state: NetworkState[State], n_inputs: int) -> NetworkState[State]:
        """Let the network read its last ``n_inputs`` inputs."""
        inputs = self.last_inputs(state.recent, state.position, state.first, n_inputs)
        exogenous = None if state.exogenous is None else state.exogenous[:, -n_inputs:]
        outputs, network_state = self.module(*inputs, state.network_state, exogenous)
        return replace(state, network_state=network_state, outputs=outputs[:, -1])

    def last_inputs(self, recent: Tensor, position: int, first: int, n_inputs: int) -> tuple[Tensor, Tensor, Tensor]:
        """The last ``n_inputs`` inputs, the start token among them where the row begins.

        ``(n, T, ...)`` and two masks ``(n, T)``.
        """
        step = torch.arange(position - n_inputs + 1, position + 1, device=recent.device)
        inputs = recent[:, max(0, recent.shape[1] - n_inputs) :]
        if inputs.shape[1] < n_inputs:  # the start has no element for an input
            inputs = F.pad(inputs, (0, 0, 1, 0) if inputs.ndim == 3 else (1, 0))
        is_start, is_after_source = (mask.expand(len(inputs), -1) for mask in (step == 0, step >= first))
        return inputs, is_start, is_after_source

    @torch.no_grad()
    def distribution(self, state: NetworkState[State]) -> Prediction:
        """The prediction of the next step; ``ValueError`` past the end of the source."""
        if state.n_steps is not None and state.is_over:
            raise past_the_source(state.n_steps)
        _refuse_unread(state)
        may_end = torch.full((len(state.outputs),), state.position > state.first, device=state.outputs.device)
        output_parameters, end = split_end(state.outputs, may_end, self.module.spec.has_end)
        log_end = None if end is None else F.logsigmoid(end)
        observation = self.observation.bound(self.module.shared)
        return Prediction(observation, output_parameters.unsqueeze(1), None, self._past(state), log_end)

    def select(self, state: NetworkState[State], index: Tensor) -> NetworkState[State]:
        """The state of the sequences ``index (m,)``, in this order."""
        return replace(
            state,
            network_state=select(state.network_state, index),
            outputs=select(state.outputs, index),
            recent=select(state.recent, index),
            filled=select(state.filled, index),
            exogenous=None if state.exogenous is None else select(state.exogenous, index),
        )

    def _past(self, state: NetworkState[State]) -> Tensor | None:
        n_past = self.observation.n_past
        if n_past == 0:
            return None
        missing = n_past - state.filled.shape[1]
        return F.pad(state.filled, (0, 0, max(0, missing), 0), value=torch.nan)[:, -n_past:]


def _refuse_unread(state: NetworkState[Any]) -> None:
    """Raise ``ValueError`` where the exogenous inputs of the next step have not been given."""
    refuse_without_inputs(None if state.n_unread else state)


# -- networks of symbols ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SymbolState(Generic[StepperState]):
    """The state before step ``position`` of the row.

    Attributes:
        stepper_state: of the stepper.
        outputs: (n, P), of the network's head.
        position, window, first: as in ``NetworkState``.
        recent: the last symbols, each (n,), which a new window reads again; none where there are no windows.
        ahead: of the stepper, in the next window, which is read alongside from its beginning on; or None.
    """

    stepper_state: StepperState
    outputs: Tensor
    position: int
    window: int
    first: int
    recent: tuple[Tensor, ...]
    ahead: StepperState | None = None


@dataclass(frozen=True)
class SymbolCursor(Generic[State, StepperState]):
    """The same predictions as those of ``base`` up to rounding, made by ``stepper``.

    ``weight (d, P)`` and ``bias (P,)`` are the head's; ``beginning`` is the state of one sequence before its first
    step, where that depends on no source.
    """

    base: NetworkCursor[State]
    stepper: Stepper[State, StepperState]
    weight: Tensor
    bias: Tensor
    beginning: SymbolState[StepperState] | None = None

    @classmethod
    def from_network_cursor(cls, base: NetworkCursor[Any], *, compiled: bool = False) -> SymbolCursor[Any, Any] | None:
        """None where inputs cannot be computed beforehand (vectors), and for networks without a ``stepper``.

        ``compiled``: by the network's ``compiled_stepper``.
        """
        module = base.module
        if module.spec.reads == "vectors" or base.observation.n_past or not module.network.reads_past:
            return None
        if module.exogenous is not None:
            return None
        if sum(parameter.numel() for parameter in module.parameters()) > KEPT_UP_TO:
            made = cls._made(base, compiled=compiled)
        else:
            made = _MADE.get(module, compiled, lambda: cls._made(base, compiled=compiled))
        return None if made is None else cls(base, *made)

    @staticmethod
    @torch.no_grad()
    def _made(base: NetworkCursor[Any], *, compiled: bool) -> MadeOfWeights | None:
        """All that does not depend on windows, and does not hold the module."""
        module = base.module
        inputs = module.embedding(torch.arange(module.spec.size, device=module.head.bias.device))
        make_stepper = module.network.compiled_stepper if compiled else module.network.stepper
        stepper = make_stepper(inputs if module.segment is None else inputs + module.segment[1])
        if stepper is None:
            return None
        weight, bias = module.head.weight.detach().t(), module.head.bias.detach()
        cursor = SymbolCursor[Any, Any](base, stepper, weight, bias)
        return stepper, weight, bias, None if module.network.reads_source else cursor._converted(base.start())

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> SymbolState[StepperState]:
        """Before the first scored step."""
        if source is None and self.beginning is not None:
            return self.select(self.beginning, torch.zeros(n, dtype=torch.int64, device=self.bias.device))
        return self._converted(self.base.start(source, n))

    def advance(self, state: SymbolState[StepperState], x: Tensor) -> SymbolState[StepperState]:
        """Take each sequence's next symbol, ``x (n,)``; past the end of a window, enter the next one."""
        x, windowing, position = x.to(self.bias.device), self.base.windowing, state.position + 1
        if windowing.context is None:
            hidden, after = self.stepper.step(x, state.stepper_state)
            return SymbolState(after, self._head(hidden), position, state.window, state.first, state.recent)
        window = windowing.window_of(position, state.window)
        recent = (*state.recent, x.clone())  # what is kept must not change when the caller's does
        if window != state.window:
            recent = recent[window - position - 1 :]
        before, ahead = self._windows(state, window, len(x))
        if before is None:
            return self._in_new_window(torch.stack(recent, 1), position, window, state.first)
        if ahead is None:
            hidden, after = self.stepper.step(x, before)
        else:
            hidden, after, ahead = self.stepper.step_ahead(x, before, ahead)
        return SymbolState(after, self._head(hidden), position, window, state.first, recent, ahead)

    def _windows(
        self, state: SymbolState[StepperState], window: int, n: int
    ) -> tuple[StepperState | None, StepperState | None]:
        """The stepper's states before the next step, of which ``window`` is: there, and in the next one or None.

        The first is None where a window begins that is not read yet.
        """
        before, ahead = (state.stepper_state, state.ahead) if window == state.window else (state.ahead, None)
        if before is not None and state.position + 1 == window + self.base.windowing.hop and self._may_read_ahead:
            ahead = self.stepper.begin_ahead(n)
        return before, ahead

    @cached_property
    def _may_read_ahead(self) -> bool:
        """Whether no more than two windows overlap."""
        context = self.base.windowing.context
        return context is not None and 2 * self.base.windowing.hop >= context

    def n_drawn_at_once(self, state: SymbolState[StepperState]) -> int:
        """How many steps ``draw`` takes from here at most: up to where a window begins or ends; 0: none."""
        windowing, position, before = self.base.windowing, state.position + 1, state.stepper_state
        if windowing.context is None:
            return self.stepper.n_drawn_at_once(before)
        window = windowing.window_of(position, state.window)
        if window != state.window:
            if state.ahead is None:
                return 0
            before = state.ahead
        next_ones = [begin for begin in (window + windowing.hop, window + windowing.context) if begin > position]
        return min(self.stepper.n_drawn_at_once(before), min(next_ones) - position)

    def draw(
        self, state: SymbolState[StepperState], x: Tensor, uniform: Tensor, *, may_end: bool
    ) -> tuple[Tensor, Tensor | None, SymbolState[StepperState]]:
        """Symbols ``(T, n)``, ends before them ``(T, n)`` or None, and the state: see ``DrawingCursor.draw``."""
        windowing, spec = self.base.windowing, self.base.module.spec
        before, ahead, window, recent = state.stepper_state, None, state.window, state.recent
        if windowing.context is not None:
            window = windowing.window_of(state.position + 1, state.window)
            entered, ahead = self._windows(state, window, len(x))
            assert entered is not None, "the next window is read already"
            before = entered
        may_end = may_end and spec.has_end
        drawn = self.stepper.draw(x, before, ahead, SymbolHead(self.weight.t(), self.bias, spec.size, may_end), uniform)
        symbols, ended = drawn.symbols, None
        if may_end:
            ended, symbols = symbols == spec.size, symbols.clamp(max=spec.size - 1)
        position = state.position + len(symbols)
        if windowing.context is not None:
            recent = (*recent, x.clone(), *symbols[:-1].unbind(0))[window - position - 1 :]
        after = SymbolState(drawn.state, drawn.outputs, position, window, state.first, recent, drawn.ahead)
        return symbols, ended, after

    @torch.no_grad()
    def _in_new_window(self, recent: Tensor, position: int, window: int, first: int) -> SymbolState[StepperState]:
        """The state at its position in a new window."""
        inputs = self.base.last_inputs(recent, position, first, position - window + 1)
        prefilled = self.stepper.prefill(self.base.module.embed(*inputs))
        if prefilled is None:
            return self._converted(self.base.begin_window(recent, recent, position, window, first))
        hidden, state = prefilled
        return SymbolState(state, self._head(hidden), position, window, first, recent.unbind(1))

    def _head(self, hidden: Tensor) -> Tensor:
        return torch.addmm(self.bias, hidden, self.weight)

    def distribution(self, state: SymbolState[StepperState]) -> Prediction:
        """The prediction of the next symbol."""
        output_parameters, log_end = state.outputs, None
        if self.base.module.spec.has_end:
            output_parameters, end = output_parameters[:, :-1], output_parameters[:, -1]
            log_end = F.logsigmoid(end) if state.position > state.first else torch.full_like(end, -torch.inf)
        return Prediction(self.base.observation, output_parameters.unsqueeze(1), None, None, log_end)

    def single_steps(self) -> SymbolSteps | None:
        """One sequence on the CPU."""
        # Of a class derived from it nobody knows that its probabilities are the same.
        if type(self.base.observation) is not Categorical or self.bias.device.type != "cpu":
            return None
        return SymbolSteps(self, torch.arange(self.base.module.spec.size))

    def select(self, state: SymbolState[StepperState], index: Tensor) -> SymbolState[StepperState]:
        """The state of the sequences ``index (m,)``, in this order."""
        selected, outputs = self.stepper.select(state.stepper_state, index), state.outputs.index_select(0, index)
        recent = state.recent
        if recent:
            recent = torch.stack(recent).index_select(1, index).unbind(0)
        ahead = None if state.ahead is None else self.stepper.select(state.ahead, index)
        return SymbolState(selected, outputs, state.position, state.window, state.first, recent, ahead)

    def _converted(self, state: NetworkState[State]) -> SymbolState[StepperState]:
        converted, recent = self.stepper.converted(state.network_state), tuple[Tensor, ...]()
        if self.base.windowing.context is not None:
            recent = state.recent.unbind(1)
        return SymbolState(converted, state.outputs, state.position, state.window, state.first, recent)


@dataclass(frozen=True)
class SymbolSteps(StepsOnStates):
    """Single steps of a ``SymbolCursor`` (``SingleSteps``): of a prediction only that of what comes is computed."""

    cursor: SymbolCursor[Any, Any]
    symbols: Tensor  # (V,), each of them

    @torch.inference_mode()  # small networks spend less between operations than under no_grad
    def advance(self, at: SymbolState[Any], x: np.ndarray) -> tuple[SymbolState[Any], float]:
        """After symbol ``x ()``, and its log-probability, nats."""
        size, symbol = len(self.symbols), int(x)
        log_p = torch.log_softmax(at.outputs.narrow(1, 0, size), -1)
        nats: float = log_p[0, symbol].item()
        if self.cursor.base.module.spec.has_end and at.position > at.first:
            end = at.outputs[0, size].item()
            nats -= max(end, 0.0) + math.log1p(math.exp(-abs(end)))  # log(1 - σ(end))
        return self.cursor.advance(at, self.symbols.narrow(0, symbol, 1)), nats


MadeOfWeights = tuple[Stepper[Any, Any], Tensor, Tensor, SymbolState[Any] | None]  # of a ``SymbolCursor``
_MADE: MadeOfModules[MadeOfWeights | None] = MadeOfModules()  # by whether it is compiled
