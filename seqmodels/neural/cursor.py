"""Incremental evaluation: a network one step at a time, for n sequences at once, in the windows that scoring reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.generation import Prediction, Source, source_of_each, stacked_sources
from seqmodels.neural.batches import Windowing, pad_sources
from seqmodels.neural.io_module import SequenceModule, split_end
from seqmodels.neural.network import CarriedState, select
from seqmodels.observations import Observation
from seqmodels.tagging import past_the_source


@dataclass(frozen=True)
class NetworkState:
    """The state before step ``position`` of the row.

    Attributes:
        memory: of the network.
        outputs: (n, P), of its head.
        recent: (n, w, ...), the last elements, which a new window reads again.
        position: of the next step.
        window: the first step of the current window.
        first: the first scored step.
        n_steps: how many there are, where the source says so; of several the longest, so that the caller must know
            where others end.
    """

    memory: CarriedState
    outputs: Tensor
    recent: Tensor
    position: int
    window: int
    first: int
    n_steps: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is no next step."""
        return self.n_steps is not None and self.position >= self.n_steps


@dataclass(frozen=True)
class NetworkCursor:
    """The one-step predictions of a fitted module."""

    module: SequenceModule
    observation: Observation
    windowing: Windowing

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> NetworkState:
        """Before the first scored step; a network without an encoder reads the source as the row's beginning.

        Sources for an encoder may be of several lengths.
        """
        parameter = next(self.module.parameters())
        vectors = self.module.spec.reads == "vectors"
        dtype = parameter.dtype if vectors else torch.int64
        width = (self.module.spec.size,) if vectors else ()
        if source is None or self.module.network.reads_source:
            padded, mask = pad_sources(source_of_each(source, n), parameter.device, parameter.dtype)
            memory = self.module.start(n, padded, mask)
            recent = torch.zeros(n, 0, *width, dtype=dtype, device=parameter.device)
            n_steps = None if padded is None or not self.module.network.aligned else padded.shape[1]
            return self._read(NetworkState(memory, recent, recent, 0, 0, 0, n_steps), 1)
        rows = stacked_sources(source, n)
        assert rows is not None, "there is a source"
        rows = rows.to(parameter.device, parameter.dtype if rows.is_floating_point() else torch.int64)
        first = rows.shape[1]
        window = self.windowing.windows(first + 1)[-1][0]
        return self.begin_window(NetworkState(None, rows, rows, first, window, first))

    @torch.no_grad()
    def advance(self, state: NetworkState, x: Tensor) -> NetworkState:
        """Take each sequence's next element; at the end of a window begin the next."""
        recent = torch.cat([state.recent, x.to(state.recent).unsqueeze(1)], dim=1)
        position, window = state.position + 1, self.windowing.window_of(state.position + 1, state.window)
        keep = max(self.windowing.context or 0, self.observation.n_past, 1)
        advanced = replace(state, recent=recent[:, -keep:], position=position, window=window)
        if advanced.is_over:
            return advanced
        return self._read(advanced, 1) if window == state.window else self.begin_window(advanced)

    @torch.no_grad()
    def begin_window(self, state: NetworkState) -> NetworkState:
        """The state at its position in its window, with memory and outputs computed from the window's first step on."""
        empty = replace(state, memory=self.module.start(len(state.recent), None, None))
        return self._read(empty, state.position - state.window + 1)

    def _read(self, state: NetworkState, n_inputs: int) -> NetworkState:
        """Let the network read its last ``n_inputs`` inputs."""
        outputs, memory = self.module(*self.last_inputs(state, n_inputs), state.memory)
        return replace(state, memory=memory, outputs=outputs[:, -1])

    def last_inputs(self, state: NetworkState, n_inputs: int) -> tuple[Tensor, Tensor, Tensor]:
        """The last ``n_inputs`` inputs, the start token among them where the row begins.

        ``(n, T, ...)`` and two masks ``(n, T)``.
        """
        step = torch.arange(state.position - n_inputs + 1, state.position + 1, device=state.recent.device)
        inputs = state.recent[:, max(0, state.recent.shape[1] - n_inputs) :]
        if inputs.shape[1] < n_inputs:  # the start has no element for an input
            inputs = F.pad(inputs, (0, 0, 1, 0) if inputs.ndim == 3 else (1, 0))
        is_start, is_target = (mask.expand(len(inputs), -1) for mask in (step == 0, step >= state.first))
        return inputs, is_start, is_target

    @torch.no_grad()
    def distribution(self, state: NetworkState) -> Prediction:
        """The prediction of the next step; ``ValueError`` past the end of the source."""
        if state.n_steps is not None and state.is_over:
            raise past_the_source(state.n_steps)
        may_end = torch.full((len(state.outputs),), state.position > state.first, device=state.outputs.device)
        output_parameters, end = split_end(state.outputs, may_end, self.module.spec.stops)
        log_end = None if end is None else F.logsigmoid(end)
        observation = self.observation.bound(self.module.shared)
        return Prediction(observation, output_parameters.unsqueeze(1), None, self._past(state), log_end)

    def select(self, state: NetworkState, index: Tensor) -> NetworkState:
        """The state of the sequences ``index (m,)``, in this order."""
        return replace(
            state,
            memory=select(state.memory, index),
            outputs=select(state.outputs, index),
            recent=select(state.recent, index),
        )

    def _past(self, state: NetworkState) -> Tensor | None:
        n_past = self.observation.n_past
        if n_past == 0:
            return None
        missing = n_past - state.recent.shape[1]
        return F.pad(state.recent, (0, 0, max(0, missing), 0), value=torch.nan)[:, -n_past:]
