"""Incremental evaluation of a network, one step at a time for n sequences at once, in the windows that scoring reads.

The elements of a sequence are its symbols or vectors. ``NetworkCursor`` calls the module itself and works for every
network. ``StepperCursor`` makes the same predictions in fewer operations, for networks with a ``Stepper``: the parts
before and after the network are then one affine map each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.encodings.aligned_targets import past_the_source
from seqmodels.generation import Prediction, Source, source_of_each, stacked_sources
from seqmodels.generation.decoding import BELOW_ONE
from seqmodels.generation.given_inputs import refuse_without_inputs
from seqmodels.neural.batches import Windowing, pad_sources
from seqmodels.neural.embedding_and_head import SequenceModule, split_end
from seqmodels.neural.evaluation_copy import MadeOfModules
from seqmodels.neural.network import (
    ArrayStep,
    InputMap,
    State,
    Stepper,
    StepperState,
    SymbolHead,
    select,
    silent_overflow,
)
from seqmodels.observations import Categorical, Observation

KEPT_UP_TO = 10_000_000  # parameters; for modules with no more, the arrays computed for single steps are kept
DRAWN_ON_ARRAYS = 64  # steps that are drawn for one sequence before anything else is looked at
PROJECTED_UP_TO = 2_048  # symbols; with no more, each one's part of a step is computed beforehand

# -- any network -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkState(Generic[State]):
    """The state of n sequences before step ``position`` of their rows, in the predictions of a ``NetworkCursor``.

    A row is a sequence as the network reads it; it may begin with a source.

    Attributes:
        network_state: the state of the network.
        outputs: the P outputs of its head, from which step ``position`` is predicted, (n, P).
        recent: the last w elements, symbols (n, w) or vectors (n, w, D), which are read again when a new window begins.
        filled: the same elements with each missing value replaced by the last observed one of its feature, for
            observations that depend on past elements.
        position: the number of the next step.
        window: the first step of the current window.
        first: the first scored step, which is not 0 if the row begins with a source.
        n_steps: how many steps there are, if the source says so. With several sequences it is the longest length, so
            the caller must know where the others end.
        exogenous: the U exogenous inputs of the last steps, and of the next step once given, (n, w, U); None if none
            are read.
        n_unread: how many inputs the network has yet to read, once the next step's exogenous inputs are given; 0 if
            none.
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
        return self.n_steps is not None and self.position >= self.n_steps


@dataclass(frozen=True)
class NetworkCursor(Generic[State]):
    """A cursor that predicts a sequence step by step by calling a fitted module, in windows of long sequences.

    Attributes:
        module: the fitted network with its embedding and head (output layer).
        observation: the observation whose parameters are the module's outputs.
        windowing: the windows in which long sequences are read.
    """

    module: SequenceModule[State]
    observation: Observation
    windowing: Windowing

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> NetworkState[State]:
        """Return the state of n sequences before the first scored step.

        Args:
            source: encoded source of all sequences, or a list with one for each. A network without an encoder reads it
                as the row's beginning. Sources for an encoder may have different lengths. None: there is none.
            n: number of sequences.
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
        """Return the state after the next element of each sequence; at the end of a window the next one begins.

        Args:
            state: state before the element.
            x: the elements, symbols ``(n,)`` or vectors of D features ``(n, D)``.

        Raises:
            ValueError: if the step's exogenous inputs have not been given.
        """
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
        """Return the state after the U exogenous inputs ``(n, U)`` of the next step were given.

        Raises:
            ValueError: if they were given before.
        """
        assert state.exogenous is not None, "the module reads exogenous inputs"
        if not state.n_unread:
            raise ValueError("the inputs of the next step are given already")
        known = torch.cat([state.exogenous, inputs.to(state.exogenous).unsqueeze(1)], 1)
        exogenous = known[:, -max(self.windowing.context or 0, 1) :]
        return self._read(replace(state, exogenous=exogenous, n_unread=0), state.n_unread)

    @torch.no_grad()
    def read(self, state: NetworkState[State], x: Tensor) -> NetworkState[State]:
        """Return the state after T more elements of each sequence, read in one call.

        Args:
            state: state before the elements.
            x: the elements, symbols ``(n, T)`` or vectors of D features ``(n, T, D)``.

        Raises:
            ValueError: if the next step's exogenous inputs have not been given.
        """
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
        """Return the state before step ``position``, computed by reading its window from the first step ``window`` on.

        Args:
            recent: the last w elements, symbols ``(n, w)`` or vectors ``(n, w, D)``, at least those of the window.
            filled: the same with missing values replaced by the last observed ones.
            position: the number of the next step.
            window: the first step of the window.
            first: the first scored step of the row.
        """
        start = self.module.start(len(recent), None, None)
        return self._read(NetworkState(start, recent, recent, filled, position, window, first), position - window + 1)

    def _with_steps(self, state: NetworkState[State], x: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``recent`` and ``filled`` of a state with T more elements appended, ``x (n, T)`` or ``(n, T, D)``.

        ``recent`` are the last elements, and ``filled`` the same with missing values replaced by the last observed
        ones.
        """
        x = x.to(state.recent)
        recent = torch.cat([state.recent, x], dim=1)
        if not self.observation.n_past:
            return recent, recent
        return recent, torch.cat([state.filled, self._filled(x, state.filled)], dim=1)

    def _filled(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Return T vectors of n sequences with missing values (NaN) replaced by the last observed one of the feature.

        Before the first observed value it is 0. Symbols are unchanged.

        Args:
            x: the vectors, ``(n, T, D)``.
            before: w vectors before these, filled already, ``(n, w, D)``; None: there are none.
        """
        if not x.is_floating_point() or not bool(x.isnan().any()):
            return x
        last = torch.zeros_like(x[:, 0]) if before is None or not before.shape[1] else before[:, -1]
        steps = []
        for step in x.unbind(1):
            last = torch.where(step.isnan(), last, step)
            steps.append(last)
        return torch.stack(steps, 1)

    def _read(self, state: NetworkState[State], n_inputs: int) -> NetworkState[State]:
        """Return the state after the network has read its last ``n_inputs`` inputs, elements of ``state.recent``."""
        inputs = self.last_inputs(state.recent, state.position, state.first, n_inputs)
        exogenous = None if state.exogenous is None else state.exogenous[:, -n_inputs:]
        outputs, network_state = self.module(*inputs, state.network_state, exogenous)
        return replace(state, network_state=network_state, outputs=outputs[:, -1])

    def last_inputs(self, recent: Tensor, position: int, first: int, n_inputs: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the last T = ``n_inputs`` inputs of the network before step ``position``, and two masks.

        Args:
            recent: the last w elements of n sequences, symbols ``(n, w)`` or vectors of D features ``(n, w, D)``.
            position: the number of the next step.
            first: the first scored step of the row.
            n_inputs: the number of inputs.

        Returns:
            inputs: ``(n, T)`` or ``(n, T, D)``, with a place for the start vector if the row begins among them.
            is_start: True in that place, ``(n, T)``.
            is_after_source: True from the first scored step on, ``(n, T)``.
        """
        step = torch.arange(position - n_inputs + 1, position + 1, device=recent.device)
        inputs = recent[:, max(0, recent.shape[1] - n_inputs) :]
        if inputs.shape[1] < n_inputs:  # the start has no element as its input
            inputs = F.pad(inputs, (0, 0, 1, 0) if inputs.ndim == 3 else (1, 0))
        is_start, is_after_source = (mask.expand(len(inputs), -1) for mask in (step == 0, step >= first))
        return inputs, is_start, is_after_source

    @torch.no_grad()
    def distribution(self, state: NetworkState[State]) -> Prediction:
        """Return the prediction of the next step of each sequence: its distribution, and the probability of the end.

        Raises:
            ValueError: if the source has ended, or if the step's exogenous inputs have not been given.
        """
        if state.n_steps is not None and state.is_over:
            raise past_the_source(state.n_steps)
        _refuse_unread(state)
        may_end = torch.full((len(state.outputs),), state.position > state.first, device=state.outputs.device)
        output_parameters, end = split_end(state.outputs, may_end, self.module.spec.has_end)
        log_end = None if end is None else F.logsigmoid(end)
        observation = self.observation.bound(self.module.shared)
        return Prediction(observation, output_parameters.unsqueeze(1), None, self._past(state), log_end)

    def select(self, state: NetworkState[State], index: Tensor) -> NetworkState[State]:
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
    """Raise ``ValueError`` if the exogenous inputs of the next step are needed but have not been given."""
    refuse_without_inputs(None if state.n_unread else state)


# -- what a step reads ------------------------------------------------------------------------------------------


class StepInputs(ABC):
    """A map from an element to all that it contributes to a step: to the network, and directly to the head's outputs.

    The direct part is the linear skip (a map from the last vector to the outputs), and the head's bias.
    """

    @abstractmethod
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the contributions of n elements, symbols ``(n,)`` or vectors of D features ``(n, D)``, to a step.

        Returns:
            projected: the embedded elements after the affine map with which the stepper begins, ``(n, m)``.
            past_network: what is added to the P outputs directly, ``(n, P)``, or ``(P,)`` if it is the same for all.
        """

    @abstractmethod
    def of_array(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the contributions of one element, a symbol ``()`` or a vector ``(D,)``, to a step, on the CPU.

        Returns:
            The embedded element after the affine map with which the stepper begins, ``(m,)``, and what is added to the
            P outputs directly, ``(P,)``.
        """


@dataclass(frozen=True)
class SymbolInputs(StepInputs):
    """The contributions of symbols to a step of the network, which are rows of a table.

    Attributes:
        table: each symbol's embedding after the affine map with which the stepper begins, ``(V, m)``; for large
            alphabets the embeddings themselves, ``(V, d_model)``.
        input_map: for large alphabets, that affine map; None if the table is mapped already.
        bias: the bias of the P outputs, ``(P,)``.
    """

    table: Tensor
    input_map: InputMap | None
    bias: Tensor

    @classmethod
    def from_module(cls, module: SequenceModule[Any], input_map: InputMap) -> SymbolInputs:
        embedded = module.embedding(torch.arange(module.spec.size, device=module.head.bias.device))
        if module.segment is not None:
            embedded = embedded + module.segment[1]
        if module.spec.size > PROJECTED_UP_TO:
            return cls(embedded, input_map, module.head.bias.detach())
        return cls(input_map(embedded), None, module.head.bias.detach())

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.table.index_select(0, x)
        return rows if self.input_map is None else self.input_map(rows), self.bias

    def of_array(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        table, bias = self._arrays
        row = table[x]
        return row if self.input_map is None else self.input_map(torch.from_numpy(row[None]))[0].numpy(), bias

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.table.numpy(), self.bias.numpy()


@dataclass(frozen=True)
class VectorInputs(StepInputs):
    """The contributions of vectors to a step: one affine map stands for embedding, stepper's input map and linear skip.

    Attributes:
        transform: the transform of features before they are embedded.
        reads_missing: True if NaN is read as 0 and marked in a mask.
        both: maps features, followed by the mask, to ``m + P`` numbers: their contributions to the step (m) and to the
            P outputs.
        m: how many of these numbers belong to the step.
    """

    transform: nn.Module
    reads_missing: bool
    both: InputMap
    m: int

    @classmethod
    def from_module(cls, module: SequenceModule[Any], input_map: InputMap) -> VectorInputs:
        embedding, skip, head = module.embedding.map, module.skip, module.head
        assert isinstance(embedding, nn.Linear), "vectors are embedded by a linear map"
        assert skip is not None, "vectors have a skip past the network"
        bias = embedding.bias if module.segment is None else embedding.bias + module.segment[1]
        maps = [(embedding.weight, skip.weight[:, : module.spec.size])]
        if module.missing is not None:
            maps.append((module.missing.weight, torch.zeros_like(maps[0][1])))
        rows = [torch.cat([weight.t() @ input_map.weight, past.t()], 1) for weight, past in maps]  # (D, m + P)
        both = InputMap(torch.cat(rows), torch.cat([input_map(bias.unsqueeze(0))[0], head.bias]))
        return cls(module.transform, module.missing is not None, both, input_map.weight.shape[1])

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.reads_missing:
            is_missing = x.isnan()
            x = torch.cat([self.transform(x.masked_fill(is_missing, 0.0)), is_missing.to(x.dtype)], 1)
        else:
            x = self.transform(x)
        both = self.both(x)
        return both[:, : self.m], both[:, self.m :]

    def of_array(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = self._arrays
        x = x.astype(weight.dtype)
        is_missing = np.isnan(x) if self.reads_missing else None
        if is_missing is not None:
            x[is_missing] = 0
        if not isinstance(self.transform, nn.Identity):
            x = self.transform(torch.from_numpy(x)).numpy()
        both = (x if is_missing is None else np.concatenate([x, is_missing])).dot(weight) + bias
        return both[: self.m], both[self.m :]

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.both.weight.numpy(), self.both.bias.numpy()


# -- networks with a stepper ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SteppedState(Generic[StepperState]):
    """The state of a ``StepperCursor`` for n sequences before step ``position`` of their rows.

    A row is a sequence as the network reads it; it may begin with a source.

    Attributes:
        stepper_state: the state of the stepper.
        outputs: the P outputs of the network's head, from which step ``position`` is predicted, (n, P).
        position: the number of the next step.
        window: the first step of the current window.
        first: the first scored step.
        recent: the last w elements, which a new window reads again, as a tuple of consecutive parts, each (n, .) or
            (n, ., D); w is 0 if there are no windows.
        ahead: the stepper's state in the next window, which overlaps this one and whose steps are taken alongside; or
            None.
    """

    stepper_state: StepperState
    outputs: Tensor
    position: int
    window: int
    first: int
    recent: tuple[Tensor, ...]
    ahead: StepperState | None = None


@dataclass(frozen=True)
class StepperCursor(Generic[State, StepperState]):
    """A cursor that makes the same predictions as ``base``, up to rounding, by the network's fast single steps.

    Attributes:
        base: the cursor that calls the module.
        stepper: computes single steps of its network.
        inputs: what an element contributes to a step.
        weight: the head's weights, (d, P), for P outputs.
        beginning: the state of one sequence before its first step, or None if it depends on a source.
    """

    base: NetworkCursor[State]
    stepper: Stepper[State, StepperState]
    inputs: StepInputs
    weight: Tensor
    beginning: SteppedState[StepperState] | None = None

    @classmethod
    def from_network_cursor(cls, base: NetworkCursor[Any], *, compiled: bool = False) -> StepperCursor[Any, Any] | None:
        """Return the faster cursor for ``base``, or None if there is none.

        There is none for networks without a ``stepper`` (fast single steps), with exogenous inputs, or that do not read
        past elements, and for observations that depend on past elements.

        Args:
            base: the cursor that calls the module.
            compiled: True to use single steps that numba compiles (the network's ``compiled_stepper``).
        """
        module = base.module
        if base.observation.n_past or not module.network.reads_past or module.exogenous is not None:
            return None
        if sum(parameter.numel() for parameter in module.parameters()) > KEPT_UP_TO:
            made = cls._made(base, compiled=compiled)
        else:
            made = _MADE.get(module, compiled, lambda: cls._made(base, compiled=compiled))
        return None if made is None else cls(base, *made)

    @staticmethod
    @torch.no_grad()
    def _made(base: NetworkCursor[Any], *, compiled: bool) -> MadeOfWeights | None:
        """Return stepper, inputs, head's weights and first state of a cursor; None if the network has no stepper.

        They depend on the module's weights only, and are kept for other cursors of it.

        Args:
            base: the cursor that calls the module.
            compiled: True to use the network's ``compiled_stepper``.
        """
        module = base.module
        stepper = module.network.compiled_stepper() if compiled else module.network.stepper()
        if stepper is None:
            return None
        kind = VectorInputs if module.spec.reads == "vectors" else SymbolInputs
        inputs, weight = kind.from_module(module, stepper.input_map), module.head.weight.detach().t()
        cursor = StepperCursor[Any, Any](base, stepper, inputs, weight)
        return stepper, inputs, weight, None if module.network.reads_source else cursor._converted(base.start())

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> SteppedState[StepperState]:
        if source is None and self.beginning is not None:
            return self.select(self.beginning, torch.zeros(n, dtype=torch.int64, device=self.weight.device))
        return self._converted(self.base.start(source, n))

    def advance(self, state: SteppedState[StepperState], x: Tensor) -> SteppedState[StepperState]:
        x, windowing, position = self._read_as(x), self.base.windowing, state.position + 1
        projected, past_network = self.inputs(x)
        if windowing.context is None:
            hidden, after = self.stepper.step(projected, state.stepper_state)
            outputs = self._head(hidden, past_network)
            return SteppedState(after, outputs, position, state.window, state.first, state.recent)
        window = windowing.window_of(position, state.window)
        recent = (*state.recent, x.unsqueeze(1).clone())  # the kept elements must not change when the caller's do
        if window != state.window:
            recent = (torch.cat(recent, 1)[:, window - position - 1 :],)
        before, ahead = self.windows(state, window, lambda: self.stepper.begin_ahead(len(x)))
        if before is None:
            return self.in_new_window(recent[0], position, window, state.first)
        if ahead is None:
            hidden, after = self.stepper.step(projected, before)
        else:
            hidden, after, ahead = self.stepper.step_ahead(projected, before, ahead)
        outputs = self._head(hidden, past_network)
        return SteppedState(after, outputs, position, window, state.first, recent, ahead)

    @torch.no_grad()
    def read(self, state: SteppedState[StepperState], x: Tensor) -> SteppedState[StepperState]:
        x, windowing, position, window = self._read_as(x), self.base.windowing, state.position, state.window
        if windowing.context is not None:
            for _ in range(x.shape[1]):
                position += 1
                window = windowing.window_of(position, window)
            recent = torch.cat([*state.recent, x], 1)[:, window - position - 1 :]
            return self.in_new_window(recent, position, window, state.first)
        before = self.stepper.reverted(state.stepper_state)
        if before is None and self._array_steps is not None and len(x) == 1:
            return self._array_steps.read(state, x[0].numpy())
        if before is None:
            for step in x.unbind(1):
                state = self.advance(state, step)
            return state
        nothing = x[:, :0]
        network_state = NetworkState(before, state.outputs, nothing, nothing, position, window, state.first)
        return self._converted(self.base.read(network_state, x))

    def _read_as(self, x: Tensor) -> Tensor:
        """Return elements (symbols or vectors) on the network's device, and vectors in its precision."""
        return x.to(self.weight) if x.is_floating_point() else x.to(self.weight.device)

    def windows(
        self, state: SteppedState[StepperState] | ArrayState, window: int, begin_ahead: Callable[[], Any]
    ) -> tuple[Any, Any]:
        """Return the stepper's states before the next step in two windows: the one that scores it, and the one after.

        Windows overlap, so a step can be read in both.

        Args:
            state: the state of the cursor.
            window: the first step of the window that scores the next step.
            begin_ahead: returns the stepper's state before a window.

        Returns:
            The first state is None if a window begins that must be read from its first step. The second is None unless
            the next step is also read as a part of the window after.
        """
        before, ahead = (state.stepper_state, state.ahead) if window == state.window else (state.ahead, None)
        if before is not None and state.position + 1 == window + self.base.windowing.hop and self._may_read_ahead:
            ahead = begin_ahead()
        return before, ahead

    @cached_property
    def _may_read_ahead(self) -> bool:
        """True if no more than two windows overlap, so that the next window can be read alongside the current one."""
        context = self.base.windowing.context
        return context is not None and 2 * self.base.windowing.hop >= context

    def n_drawn_at_once(self, state: SteppedState[StepperState]) -> int:
        n_drawn, is_one = self._n_drawn_by_stepper(state), state.outputs.shape[0] == 1
        return DRAWN_ON_ARRAYS if n_drawn == 0 and is_one and self._draws_on_arrays else n_drawn

    @property
    def _draws_on_arrays(self) -> bool:
        is_plain = isinstance(self.inputs, SymbolInputs) and type(self.base.observation) is Categorical
        return is_plain and self._array_steps is not None

    def _n_drawn_by_stepper(self, state: SteppedState[StepperState]) -> int:
        """Return how many symbols the stepper itself can draw at once from ``state``, at most; 0 if it cannot.

        It draws only up to where a window begins or ends.
        """
        windowing, position, before = self.base.windowing, state.position + 1, state.stepper_state
        if not isinstance(self.inputs, SymbolInputs) or self.inputs.input_map is not None:
            return 0
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
        self, state: SteppedState[StepperState], x: Tensor, uniform: Tensor, *, may_end: bool
    ) -> tuple[Tensor, Tensor | None, SteppedState[StepperState]]:
        windowing, spec = self.base.windowing, self.base.module.spec
        if self._array_steps is not None and self._n_drawn_by_stepper(state) == 0:
            drawn_on_arrays, state = self._array_steps.draw(state, x.numpy(), uniform.numpy(), may_end and spec.has_end)
            symbols = torch.from_numpy(drawn_on_arrays)
            return symbols.clamp(max=spec.size - 1), symbols == spec.size if may_end and spec.has_end else None, state
        before, ahead, window, recent = state.stepper_state, None, state.window, state.recent
        if windowing.context is not None:
            window = windowing.window_of(state.position + 1, state.window)
            entered, ahead = self.windows(state, window, lambda: self.stepper.begin_ahead(len(x)))
            assert entered is not None, "the next window is read already"
            before = entered
        may_end = may_end and spec.has_end
        assert isinstance(self.inputs, SymbolInputs), "symbols are drawn"
        head = SymbolHead(self.weight.t(), self.inputs.bias, spec.size, may_end, self.inputs.table)
        drawn = self.stepper.draw(x, before, ahead, head, uniform)
        symbols, ended = drawn.symbols, None
        if may_end:
            ended, symbols = symbols == spec.size, symbols.clamp(max=spec.size - 1)
        position = state.position + len(symbols)
        if windowing.context is not None:
            parts = [*recent, x.unsqueeze(1), symbols[:-1].t()]
            recent = (torch.cat(parts, 1)[:, window - position - 1 :],)
        after = SteppedState(drawn.state, drawn.outputs, position, window, state.first, recent, drawn.ahead)
        return symbols, ended, after

    @torch.no_grad()
    def in_new_window(self, recent: Tensor, position: int, window: int, first: int) -> SteppedState[StepperState]:
        """Return the state before step ``position``, computed by reading its window from the first step ``window`` on.

        Args:
            recent: the last w elements of n sequences, ``(n, w)`` or ``(n, w, D)``, at least those of the window.
            position: the number of the next step.
            window: the first step of the window.
            first: the first scored step of the row.
        """
        inputs = self.base.last_inputs(recent, position, first, position - window + 1)
        prefilled = self.stepper.prefill(self.base.module.embed(*inputs))
        if prefilled is None:
            return self._converted(self.base.begin_window(recent, recent, position, window, first))
        hidden, state = prefilled
        outputs = self._head(hidden, self.inputs(recent[:, -1])[1])
        return SteppedState(state, outputs, position, window, first, (recent,))

    def _head(self, hidden: Tensor, past_network: Tensor) -> Tensor:
        """Return the P outputs ``W hidden + past_network`` of n sequences, ``(n, P)``.

        Args:
            hidden: hidden states, ``(n, d)``.
            past_network: what the last element contributes directly, with the head's bias, ``(n, P)`` or ``(P,)``.
        """
        return torch.addmm(past_network, hidden, self.weight)

    def distribution(self, state: SteppedState[StepperState]) -> Prediction:
        output_parameters, log_end = state.outputs, None
        if self.base.module.spec.has_end:
            output_parameters, end = output_parameters[:, :-1], output_parameters[:, -1]
            log_end = F.logsigmoid(end) if state.position > state.first else torch.full_like(end, -torch.inf)
        return Prediction(self._observation, output_parameters.unsqueeze(1), None, None, log_end)

    @property
    def _observation(self) -> Observation:
        """The observation, bound to the module's weights that all steps share."""
        return self.base.observation.bound(self.base.module.shared)

    def single_steps(self) -> ArraySteps | None:
        return self._array_steps

    @cached_property
    def _array_steps(self) -> ArraySteps | None:
        step = self.stepper.array_step
        if step is None:
            return None
        spec, weight = self.base.module.spec, self.weight.numpy()
        none = np.zeros(0, np.int64) if spec.reads == "symbols" else np.zeros((0, spec.size), weight.dtype)
        return ArraySteps(self, step, weight, self._observation, spec.has_end, none)

    def select(self, state: SteppedState[StepperState], index: Tensor) -> SteppedState[StepperState]:
        selected, outputs = self.stepper.select(state.stepper_state, index), state.outputs.index_select(0, index)
        recent = tuple(part.index_select(0, index) for part in state.recent)
        ahead = None if state.ahead is None else self.stepper.select(state.ahead, index)
        return SteppedState(selected, outputs, state.position, state.window, state.first, recent, ahead)

    def _converted(self, state: NetworkState[State]) -> SteppedState[StepperState]:
        converted, recent = self.stepper.converted(state.network_state), state.recent
        if self.base.windowing.context is None:
            recent = recent[:, :0]
        return SteppedState(converted, state.outputs, state.position, state.window, state.first, (recent,))


class ArrayState(NamedTuple):
    """The state of one sequence in ``ArraySteps``: a ``SteppedState`` as NumPy arrays without a batch axis.

    ``recent`` is a tuple of single elements.
    """

    stepper_state: Any
    outputs: np.ndarray
    position: int
    window: int
    first: int
    recent: tuple[np.ndarray, ...]
    ahead: Any


@dataclass(frozen=True)
class ArraySteps:
    """A reader of single steps of one sequence on NumPy arrays, whose calls cost a third of torch's.

    It follows the protocol ``SingleSteps``; its form of a state is ``ArrayState``.

    Attributes:
        cursor: the cursor whose steps these are.
        step: the stepper's ``array_step``, which computes a step of the network.
        weight: the head's weights, (d, P), for P outputs.
        observation: the observation, bound to the module's shared weights.
        has_end: True if the last output is the logit of the end.
        no_elements: an empty array (0,) or (0, D) with the type of elements.
    """

    cursor: StepperCursor[Any, Any]
    step: ArrayStep
    weight: np.ndarray
    observation: Observation
    has_end: bool
    no_elements: np.ndarray

    def enter(self, state: SteppedState[Any]) -> ArrayState:
        """Return a cursor's state of one sequence as NumPy arrays, which share its memory."""
        stepper = self.cursor.stepper
        ahead = None if state.ahead is None else stepper.in_arrays(state.ahead)
        outputs, recent = state.outputs[0].numpy(), tuple(torch.cat(state.recent, 1)[0].numpy())
        return ArrayState(
            stepper.in_arrays(state.stepper_state), outputs, state.position, state.window, state.first, recent, ahead
        )

    def leave(self, at: ArrayState) -> SteppedState[Any]:
        """Return the state of one sequence as the cursor's tensors, which share the memory of the arrays ``at``."""
        stepper, outputs, recent = self.cursor.stepper, torch.from_numpy(at.outputs[None]), (self._stacked(at.recent),)
        ahead = None if at.ahead is None else stepper.in_tensors(at.ahead)
        return SteppedState(
            stepper.in_tensors(at.stepper_state), outputs, at.position, at.window, at.first, recent, ahead
        )

    def advance(self, at: ArrayState, x: np.ndarray) -> tuple[ArrayState, float]:
        with silent_overflow():
            return self._after(at, x), self._log_prob(at, x)

    def draw(
        self, state: SteppedState[Any], x: np.ndarray, uniform: np.ndarray, may_end: bool
    ) -> tuple[np.ndarray, SteppedState[Any]]:
        """Read the last symbol of one sequence and draw the next T symbols.

        Args:
            state: state before the last symbol.
            x: the last symbol, ``(1,)``.
            uniform: random numbers from 0 to 1, at which the inverse cdf is taken, ``(T, 1)``.
            may_end: True if the end may be drawn.

        Returns:
            The drawn symbols, ``(T, 1)``, where the number of symbols V stands for the end, and the state before the
            step of the last one.
        """
        at, symbol, drawn = self.enter(state), x[0], np.empty((len(uniform), 1), np.int64)
        n_symbols = self.cursor.base.module.spec.size
        with silent_overflow():
            for t in range(len(uniform)):
                at = self._after(at, symbol)
                drawn[t, 0] = draw_symbol(at.outputs, n_symbols, uniform[t, 0], may_end)
                symbol = np.minimum(drawn[t, 0], n_symbols - 1)
        return drawn, self.leave(at)

    def read(self, state: SteppedState[Any], values: np.ndarray) -> SteppedState[Any]:
        """Return the state after the next T elements of one sequence, symbols ``(T,)`` or vectors ``(T, D)``."""
        at = self.enter(state)
        with silent_overflow():
            for x in values:
                at = self._after(at, x)
        return self.leave(at)

    def _after(self, at: ArrayState, x: np.ndarray) -> ArrayState:
        cursor, position, window, recent = self.cursor, at.position + 1, at.window, at.recent
        before, ahead = at.stepper_state, None
        if cursor.base.windowing.context is not None:
            window = cursor.base.windowing.window_of(position, at.window)
            recent = (*recent, x) if window == at.window else (*recent, x)[window - position - 1 :]
            before, ahead = cursor.windows(at, window, self._begin_ahead)
        if before is None:  # a window begins that must be read at once
            return self.enter(cursor.in_new_window(self._stacked(recent), position, window, at.first))
        projected, past_network = cursor.inputs.of_array(x)
        hidden, after = self.step(projected, before)
        if ahead is not None:
            _, ahead = self.step(projected, ahead)
        outputs = hidden.dot(self.weight) + past_network
        return ArrayState(after, outputs, position, window, at.first, recent, ahead)

    def _stacked(self, recent: tuple[np.ndarray, ...]) -> Tensor:
        like = self.no_elements
        return torch.from_numpy(np.array(recent, like.dtype).reshape(1, len(recent), *like.shape[1:]))

    def _begin_ahead(self) -> Any:
        state = self.cursor.stepper.begin_ahead(1)
        return None if state is None else self.cursor.stepper.in_arrays(state)

    def _log_prob(self, at: ArrayState, x: np.ndarray) -> float:
        """Return the log-probability, in nats, that the sequence in state ``at`` continues with the element ``x``."""
        if not self.has_end:
            return self.observation.step_log_prob(at.outputs, x)
        nats, end = self.observation.step_log_prob(at.outputs[:-1], x), float(at.outputs[-1])
        if at.position > at.first:
            nats -= max(end, 0.0) + math.log1p(math.exp(-abs(end)))  # log(1 - σ(end))
        return nats


def draw_symbol(outputs: np.ndarray, n_symbols: int, uniform: float, may_end: bool) -> int:
    """Draw one of V symbols, or the end, by the inverse cdf at ``uniform``; the end is returned as the number V.

    Args:
        outputs: the P outputs of the head: first V logits and, if there is an end, last the logit of its probability.
        n_symbols: V.
        uniform: a random number from 0 to 1.
        may_end: True if the end, whose number is V, can be drawn.
    """
    logits = outputs[:n_symbols]
    cumulative = np.cumsum(np.exp(logits - np.maximum.reduce(logits)), dtype=np.float64)
    threshold = uniform * BELOW_ONE * cumulative[-1]
    if may_end:  # as if the end were one more category, with weight total · p / (1 - p)
        threshold *= 1 + np.exp(float(outputs[n_symbols]))
    return int(np.searchsorted(cumulative, threshold, side="right"))


MadeOfWeights = tuple[Stepper[Any, Any], StepInputs, Tensor, SteppedState[Any] | None]  # for a ``StepperCursor``
_MADE: MadeOfModules[MadeOfWeights | None] = MadeOfModules()  # the key is True for compiled ones
