"""A network one step at a time, for n sequences at once, walking the same windows as the batched road."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.generation import Prediction, Source, source_of_each, stacked_sources
from seqmodels.neural.batches import Reach, pad_sources
from seqmodels.neural.module import SequenceModule, split_end
from seqmodels.neural.network import Memory, select
from seqmodels.observations import Observation
from seqmodels.tagging import past_the_source


@dataclass(frozen=True)
class NetworkState:
    """Before step ``position`` of the row: the network's memory and outputs, and what a new window would need.

    ``window`` is the first step of the current window; ``recent (n, w, ...)`` the last elements; ``first`` the first scored step.
    ``n_steps``: how many there are, where the source says so; of several the longest, so that who asks must know where others end.
    """

    memory: Memory
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
    """The cursor of one fitted module."""

    module: SequenceModule
    observation: Observation
    reach: Reach

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> NetworkState:
        """Before the first scored step; a network without an encoder reads the source as the row's beginning.

        Sources for an encoder may be of several lengths.
        """
        parameter = next(self.module.parameters())
        vectors = self.module.ends.reads == "vectors"
        dtype = parameter.dtype if vectors else torch.int64
        width = (self.module.ends.size,) if vectors else ()
        if source is None or self.module.network.reads_source:
            given, mask = pad_sources(source_of_each(source, n), parameter.device, parameter.dtype)
            memory = self.module.start(n, given, mask)
            recent = torch.zeros(n, 0, *width, dtype=dtype, device=parameter.device)
            n_steps = None if given is None or not self.module.network.aligned else given.shape[1]
            return self._feed(NetworkState(memory, recent, recent, 0, 0, 0, n_steps), 1)
        given = stacked_sources(source, n)
        assert given is not None, "there is a source"
        given = given.to(parameter.device, parameter.dtype if given.is_floating_point() else torch.int64)
        first = given.shape[1]
        window = self.reach.windows(first + 1)[-1][0]
        return self.enter(NetworkState(None, given, given, first, window, first))

    @torch.no_grad()
    def advance(self, state: NetworkState, x: Tensor) -> NetworkState:
        """Take each sequence's next element; at the edge of a window begin the next, half a window on."""
        recent = torch.cat([state.recent, x.to(state.recent).unsqueeze(1)], dim=1)
        position, window = state.position + 1, self.reach.window_of(state.position + 1, state.window)
        keep = max(self.reach.context or 0, self.observation.n_past, 1)
        moved = replace(state, recent=recent[:, -keep:], position=position, window=window)
        if moved.is_over:
            return moved
        return self._feed(moved, 1) if window == state.window else self.enter(moved)

    @torch.no_grad()
    def enter(self, state: NetworkState) -> NetworkState:
        """The state at its position in its window, whose memory and outputs are made anew of what was last read."""
        fresh = replace(state, memory=self.module.start(len(state.recent), None, None))
        return self._feed(fresh, state.position - state.window + 1)

    def _feed(self, state: NetworkState, n_inputs: int) -> NetworkState:
        """Show the network its last ``n_inputs`` inputs."""
        outputs, memory = self.module(*self.shown(state, n_inputs), state.memory)
        return replace(state, memory=memory, outputs=outputs[:, -1])

    def shown(self, state: NetworkState, n_inputs: int) -> tuple[Tensor, Tensor, Tensor]:
        """The last ``n_inputs`` inputs, the start token among them where the row begins: ``(n, T, ...)`` and two masks ``(n, T)``."""
        step = torch.arange(state.position - n_inputs + 1, state.position + 1, device=state.recent.device)
        shown = state.recent[:, max(0, state.recent.shape[1] - n_inputs) :]
        if shown.shape[1] < n_inputs:  # the start is shown no element
            shown = F.pad(shown, (0, 0, 1, 0) if shown.ndim == 3 else (1, 0))
        is_start, is_target = (m.expand(len(shown), -1) for m in (step == 0, step >= state.first))
        return shown, is_start, is_target

    @torch.no_grad()
    def distribution(self, state: NetworkState) -> Prediction:
        """What comes next; ``ValueError`` where nothing can."""
        if state.n_steps is not None and state.is_over:
            raise past_the_source(state.n_steps)
        may_end = torch.full((len(state.outputs),), state.position > state.first, device=state.outputs.device)
        output_parameters, end = split_end(state.outputs, may_end, self.module.ends.stops)
        log_end = None if end is None else F.logsigmoid(end)
        observation = self.observation.bound(self.module.shared)
        return Prediction(observation, output_parameters.unsqueeze(1), None, self._past(state), log_end)

    def select(self, state: NetworkState, index: Tensor) -> NetworkState:
        """The state of the sequences ``index (m,)``, in this order."""
        memory, outputs, recent = (select(part, index) for part in (state.memory, state.outputs, state.recent))
        return replace(state, memory=memory, outputs=outputs, recent=recent)

    def _past(self, state: NetworkState) -> Tensor | None:
        n_past = self.observation.n_past
        if n_past == 0:
            return None
        missing = n_past - state.recent.shape[1]
        return F.pad(state.recent, (0, 0, max(0, missing), 0), value=torch.nan)[:, -n_past:]
