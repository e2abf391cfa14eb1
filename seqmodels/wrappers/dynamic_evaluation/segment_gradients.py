"""Log-probabilities of the steps of a segment, their gradient, and the step along it.

A sequence is read in segments, counted from its first scored step; within a segment weights do not change. Networks
with a context read it in their windows, so that a segment may have parts in several windows: these are its pieces.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from seqmodels.neural.batches import PaddedBatch, Row, StepRange, Windowing, assemble
from seqmodels.neural.embedding_and_head import SequenceModule
from seqmodels.neural.network import map_state, select
from seqmodels.neural.scoring import batch_event_log_probs, batch_log_prob
from seqmodels.observations import Observation

# Takes a batch and the network's states before it; returns values for each step, and the states after it.
Scored = Callable[[PaddedBatch, Any], tuple[Tensor, Any]]

# -- weights -----------------------------------------------------------------------------------------------------------


class FlatWeights:
    """A copy of a network whose weights are views of one vector, so that one operation changes all of them.

    Weights that an observation shares over all steps are left out, because they do not change.

    Args:
        module: the network to copy.

    Attributes:
        module: the copy, in evaluation mode.
        parameters: parameters of the module that change.
        vector: the P weights in one vector, ``(P,)``.
    """

    @torch.inference_mode(False)  # weights need gradients even if a forecast makes the cursor
    def __init__(self, module: SequenceModule[Any]) -> None:
        self.module = copy.deepcopy(module).requires_grad_(True).eval()
        fixed = set() if self.module.shared is None else {id(p) for p in self.module.shared.parameters()}
        self.parameters = [p for p in self.module.parameters() if id(p) not in fixed]
        self.vector = torch.cat([p.detach().flatten() for p in self.parameters])
        for p, part in zip(self.parameters, self.vector.split([p.numel() for p in self.parameters]), strict=True):
            p.data = part.view_as(p)

    def gradient(self, log_prob: Tensor) -> Tensor | None:
        """Return the gradient of the mean of ``-log_prob`` with respect to the P weights, ``(P,)``.

        It is None if a log-probability or the length of the gradient is not finite.

        Args:
            log_prob: log-probabilities of S steps, computed with these weights, ``(S,)``.
        """
        if not bool(log_prob.isfinite().all()):
            return None
        gradients = torch.autograd.grad(-log_prob.mean(), self.parameters, allow_unused=True)
        parts = [p.new_zeros(p.numel()) if g is None else g.reshape(-1) for p, g in self._with(gradients)]
        gradient = torch.cat(parts)
        return gradient if bool(length(gradient).isfinite()) else None

    def _with(self, gradients: tuple[Tensor | None, ...]) -> Iterator[tuple[Tensor, Tensor | None]]:
        return zip(self.parameters, gradients, strict=True)


@dataclass(frozen=True)
class LearningRule:
    """The update of P weights ``w ← w + decay (w_0 - w) - step · g`` with a clipped gradient g (Krause et al. 2018).

    Attributes:
        start: fitted weights w_0, ``(P,)``.
        step: step size of each weight, ``lr / (RMS + ε)``, ``(P,)``; see ``Dynamic``.
        decay: fraction of the way back to the fitted weights, from 0 to 1.
        max_norm: norm to which longer gradients are scaled down.
    """

    start: Tensor
    step: Tensor
    decay: float
    max_norm: float

    def apply(self, vector: Tensor, gradient: Tensor | None) -> None:
        """Update the weights ``vector``, ``(P,)``, in place by a gradient, ``(P,)``; do nothing if it is None."""
        if gradient is None:
            return
        if self.decay:
            vector.lerp_(self.start, self.decay)
        vector.addcmul_(gradient, self.step, value=-clip_factor(gradient, self.max_norm))


def clip_factor(gradient: Tensor, max_norm: float) -> float:
    """Return the factor, at most 1, that scales ``gradient``, ``(P,)``, down to a norm of at most ``max_norm``."""
    norm = float(length(gradient))
    return min(1.0, max_norm / norm) if norm > 0 else 1.0


def length(gradient: Tensor) -> Tensor:
    """Return the Euclidean norm of a vector, as a tensor ``()``."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    return norm


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A part of a segment (run of steps) that lies in one window, a range of steps that a network reads at once.

    Attributes:
        window: first step of the window, which is read from there.
        begin, end: the scored steps, ``begin .. end - 1`` of the sequence.
    """

    window: int
    begin: int
    end: int

    @property
    def shape(self) -> tuple[int, int]:
        """The number of steps of the window that are read before the scored ones, and the number of scored steps."""
        return self.begin - self.window, self.end - self.begin


def pieces_of(windowing: Windowing, begin: int, end: int, window: int) -> list[Piece]:
    """Cut steps ``begin .. end - 1`` of a sequence into pieces, each in a window that a network reads at once.

    Args:
        windowing: how long windows are and how they overlap.
        begin, end: the steps.
        window: position where the first window begins.

    >>> [(p.window, p.begin, p.end) for p in pieces_of(Windowing(context=4), 3, 8, window=0)]
    [(0, 3, 4), (2, 4, 6), (4, 6, 8)]
    """
    result = []
    while begin < end:
        last = end if windowing.context is None else min(end, window + windowing.context)
        result.append(Piece(window, begin, last))
        begin, window = last, windowing.window_of(last, window)
    return result


def window_at(windowing: Windowing, position: int) -> int:
    """Return the position where the window begins in which the step at ``position`` is scored.

    Args:
        windowing: how a sequence is cut into windows, the ranges of steps that a network reads at once.
        position: position of the step in the sequence.
    """
    return windowing.windows(position + 1)[-1][0]


@dataclass(frozen=True)
class ReadSegment:
    """The log-probabilities of one segment, a run of S steps, and their gradient.

    Attributes:
        log_prob: log-probabilities of the steps in nats, ``(S,)``.
        gradient: gradient of the mean of ``-log_prob`` for P weights, ``(P,)``; None if there is nothing to learn from.
        events: log-probabilities of all V possible next symbols in nats, ``(S, V)``, or ``(S, V + 1)`` with ends; None
            if they were not requested.
    """

    log_prob: Tensor
    gradient: Tensor | None
    events: Tensor | None


@dataclass(frozen=True)
class SegmentReader:
    """A reader of sequences, segment by segment (runs of steps), that computes log-probabilities and gradients.

    Attributes:
        observation: observation of the network.
        windowing: how the network cuts long sequences into windows.
        segment: number of steps of a segment.
    """

    observation: Observation
    windowing: Windowing
    segment: int

    def segments(
        self, weights: FlatWeights, row: Row, *, last: bool = False, events: bool = False
    ) -> Iterator[ReadSegment]:
        """Yield the log-probabilities and the gradient of every segment of a sequence.

        The caller may change the weights before it takes the next segment, which is then read with the new weights.

        Args:
            weights: network and its weights.
            row: the sequence.
            last: whether to compute a gradient of the last segment too, from which nothing is learned usually.
            events: whether to compute the log-probabilities of all possible next symbols.
        """
        begin, window, state = row.first, window_at(self.windowing, row.first), None
        while begin < row.n_steps:
            end = min(begin + self.segment, row.n_steps)
            pieces = pieces_of(self.windowing, begin, end, window)
            table = self.events(weights.module, row, pieces, state) if events else None
            if end < row.n_steps or last:
                log_prob, state, gradient = self.learn(weights, row, pieces, state)
            else:
                with torch.no_grad():
                    log_prob, state = self.read(weights.module, row, pieces, state)
                gradient = None
            yield ReadSegment(log_prob, gradient, table)
            window = self.windowing.window_of(end, pieces[-1].window)
            if window != pieces[-1].window:
                state = None
            begin = end

    def learn(
        self, weights: FlatWeights, row: Row, pieces: list[Piece], state: Any
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Return the log-probabilities of a segment, the network's state after it, and the gradient for P weights.

        Args:
            weights: network with the weights to read with.
            row: the sequence.
            pieces: consecutive pieces of the segment, each in one window of the network.
            state: the network's state before the first piece; None if its window begins anew.

        Returns:
            The log-probabilities of the S steps, ``(S,)`` in nats; the state; and the gradient of the mean of their
                negatives, ``(P,)``, None if it is not finite.
        """
        with torch.inference_mode(False), torch.enable_grad():
            log_prob, state = self.read(weights.module, row, pieces, state)
            gradient = weights.gradient(log_prob)
        return log_prob.detach(), map_state(torch.Tensor.detach, state), gradient

    @torch.no_grad()
    def events(self, module: SequenceModule[Any], row: Row, pieces: list[Piece], state: Any) -> Tensor:
        """Return the log-probabilities of all V possible next symbols at the S steps of a segment, in nats.

        The shape is ``(S, V)``, or ``(S, V + 1)`` with ends.

        Args:
            module: network with the weights to read with.
            row: the sequence.
            pieces: consecutive pieces of the segment, each in one window of the network.
            state: the network's state before the first piece; None if its window begins anew.
        """

        def scored(batch: PaddedBatch, before: Any) -> tuple[Tensor, Any]:
            return batch_event_log_probs(module, self.observation, batch, before)

        return self._read(module, row, pieces, state, scored)[0]

    def read(self, module: SequenceModule[Any], row: Row, pieces: list[Piece], state: Any) -> tuple[Tensor, Any]:
        """Return the log-probabilities of the S steps of consecutive pieces, ``(S,)`` nats, and the state after them.

        Args:
            module: network with the weights to read with.
            row: the sequence.
            pieces: consecutive pieces of a segment, each in one window (range of steps that the network reads at once).
            state: the network's state before the first piece. None means that its window begins anew, and the steps of
                the window before the piece are read first, without a gradient.
        """

        def scored(batch: PaddedBatch, before: Any) -> tuple[Tensor, Any]:
            log_prob, _, after = batch_log_prob(module, self.observation, batch, before)
            return log_prob, after

        return self._read(module, row, pieces, state, scored)

    def _read(
        self, module: SequenceModule[Any], row: Row, pieces: list[Piece], state: Any, scored: Scored
    ) -> tuple[Tensor, Any]:
        """Run the network over consecutive pieces; return what ``scored`` computes, ``(S, ...)``, and the state after.

        Args:
            module: network with the weights to read with.
            row: the sequence.
            pieces: consecutive pieces of a segment, each in one window of the network.
            state: the network's state before the first piece; None if its window begins anew.
            scored: function from a batch and the network's states before it to values ``(B, T, ...)`` and the states
                after it.
        """
        parts = []
        while pieces:
            first = pieces[0]
            together = 1 if state is not None else sum(1 for _ in takewhile(_of_shape(first), pieces))
            group, pieces = pieces[:together], pieces[together:]
            if state is None:
                state = self._state_before(module, row, group)
            batch = self._batch(module, row, [(piece.begin, piece.end) for piece in group])
            part, after = scored(batch, state)
            parts.append(part.flatten(0, 1))
            state = None if pieces else select(after, torch.tensor([together - 1], device=part.device))
        return torch.cat(parts), state

    @torch.no_grad()
    def _state_before(self, module: SequenceModule[Any], row: Row, group: list[Piece]) -> Any:
        """Return the network's states before pieces whose windows begin anew, after reading these windows so far."""
        state = module.start(len(group), None, None)
        if group[0].begin == group[0].window:
            return state
        batch = self._batch(module, row, [(piece.window, piece.begin) for piece in group])
        return module.hidden(batch.inputs, batch.is_start, batch.is_after_source, state)[1]

    def _batch(self, module: SequenceModule[Any], row: Row, ranges: list[tuple[int, int]]) -> PaddedBatch:
        weight = module.head.bias
        steps = [StepRange(0, begin, end) for begin, end in ranges]
        return assemble([row], steps, self.observation.n_past, weight.device, weight.dtype)


def _of_shape(first: Piece) -> Callable[[Piece], bool]:
    return lambda piece: piece.shape == first.shape
