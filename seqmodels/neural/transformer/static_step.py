"""Steps of a causal Transformer on buffers that stay in place, so that a CUDA graph can be replayed for each step.

On a GPU a step of one sequence is some fifty small kernels, and launching them takes longer than computing them. A
graph is captured once and launched as a whole (Grey, 2019, *Getting started with CUDA graphs*), but it reads and writes
the same memory each time. So the key-value cache has its full length from the start, the step's number is a tensor, and
keys that are not written yet are masked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.neural.network import FasterStepper
from seqmodels.neural.transformer.incremental import (
    StepBuffers,
    StepCache,
    StepState,
    TransformerState,
    TransformerStepper,
)

MAX_ROWS = 16  # sequences; for more, reading masked keys takes longer than launching kernels one by one
WARM_UP = 2  # steps before the capture, in which libraries allocate what they need


class Replay(Protocol):
    """A computation on fixed tensors that was captured, such as a CUDA graph."""

    def replay(self) -> None:
        """Run the computation again, from the current contents of the same tensors, into the same tensors."""


Capture = Callable[[Callable[[], None], torch.device], Replay]
_LOCK = threading.Lock()  # one capture at a time


def capture_cuda_graph(compute: Callable[[], None], device: torch.device) -> Replay:
    """Capture ``compute``, which computes on ``device``, as a CUDA graph, while other threads go on working.

    Raises:
        RuntimeError: if the computation cannot be captured.
    """
    # Streams belong to the current device. Casts that autocast keeps would lie in the graph's memory.
    with _LOCK, torch.cuda.device(device), torch.autocast("cuda", enabled=False):
        # Warmed up on the stream of the capture, so that the memory that cuBLAS keeps for each stream is not
        # allocated in the graph's memory, which lives no longer than the graph.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            compute()
    return graph


class StaticStep:
    """One step of n sequences as a computation on fixed tensors: ``compute`` reads the inputs and writes the outputs.

    Args:
        plain: the stepper whose packed weights are used.
        n: number of sequences.
        length: number of steps T that the cache has space for.

    Attributes:
        projected: input, contributions of each input to its own step and to the next p, (n, d + p d); see
            ``IncrementalConvolution``.
        t: input, the number of steps before, (1,).
        pending: input, sums of earlier inputs' contributions to each of the next p steps, (n, p d).
        key_value: keys and values of L layers, G heads and T steps, (L, 2, n, G, T, d_head), read up to step t; the
            step writes its own to them.
        hidden: output, the hidden states, (n, d).
        pending_after: output, the sums of contributions after the step, (n, p d).
    """

    def __init__(self, plain: TransformerStepper, n: int, length: int) -> None:
        layout, like = plain.layout, plain.like
        self.plain = plain
        shape = len(plain.blocks), 2, n, layout.n_key_heads, length, layout.d_head
        self.key_value = like.new_zeros(shape)  # masked entries are weighed by zero, so they must be finite
        self.t = torch.zeros(1, dtype=torch.int64, device=like.device)
        # Not zeros: norms turn them into zeros, which a replay that computes nothing would leave too.
        width = plain.input_map.weight.shape[1]
        self.projected = torch.linspace(-1.0, 1.0, n * width, dtype=like.dtype, device=like.device).view(n, width)
        self.pending = like.new_zeros(n, plain.convolution.n_lags * plain.convolution.d)
        self.pending_after = torch.zeros_like(self.pending)
        self.hidden = like.new_zeros(n, like.shape[2])
        self.buffers = StepBuffers(n, layout, like)
        # Row t is added to the scores of step t: -inf for later keys.
        self.bias = like.new_full((length, length), -torch.inf).triu_(1)
        self.slots = tuple(layer for layer in self.key_value.unbind(0))  # (2, n, G, T, d_head) each
        keys, values = self.key_value.flatten(2, 3).unbind(1)  # (L, n G, T, d_head)
        self.keys, self.values = keys.mT.unbind(0), values.unbind(0)

    def compute(self) -> None:
        """Run one step of all layers in place, from the inputs ``projected``, ``t`` and ``pending`` to the outputs.

        The outputs are ``hidden``, ``pending_after`` and the step's own keys and values.
        """
        plain, buffers = self.plain, self.buffers
        x, pending = plain.convolution(self.projected.clone(), self.pending)
        if plain.position_table is not None:
            x = x + plain.position_table.index_select(0, self.t)
        rotation = None if plain.rotation_table is None else plain.rotation_table.index_select(0, self.t)
        bias = self.bias.index_select(0, self.t)  # (1, T)
        for block, slots, key, value in zip(plain.blocks, self.slots, self.keys, self.values, strict=True):
            plain.project(block, x, rotation, buffers)
            slots.index_copy_(3, self.t, buffers.key_value.unsqueeze(3))
            weights = (torch.bmm(buffers.group_queries(), key) + bias).softmax(-1)  # (n G, H / G, T)
            torch.bmm(weights, value, out=buffers.grouped_context)
            x = plain.add(block, x, buffers.context)
        self.hidden.copy_(plain.final_norm(x))
        self.pending_after.copy_(pending)


class GraphedStepper(FasterStepper[TransformerState, StepState]):
    """A stepper of a Transformer that replays a captured CUDA graph for each step; if capturing fails, it is ``plain``.

    Args:
        plain: the stepper of a network whose sequences, or windows, have a longest length.
        capture: the function that turns a computation on a device into a ``Replay``.
    """

    plain: TransformerStepper

    def __init__(self, plain: TransformerStepper, capture: Capture = capture_cuda_graph) -> None:
        self.plain = plain
        self.capture = capture
        self.captures = plain.max_length is not None and plain.max_length <= plain.like.shape[1]
        self.in_use: weakref.WeakKeyDictionary[StepCache, tuple[StaticStep, Replay]] = weakref.WeakKeyDictionary()
        self.free: dict[int, list[tuple[StaticStep, Replay]]] = {}

    def step(self, projected: Tensor, state: StepState) -> tuple[Tensor, StepState]:
        t, cache = state.length, state.cache
        if not self.captures or t >= (self.plain.max_length or 0) or len(projected) > MAX_ROWS:
            return self.plain.step(projected, state)
        if cache not in self.in_use or cache.n_written != t:  # another state has written behind this one
            loaded = self._loaded(state)
            if loaded is None:
                return self.plain.step(projected, state)
            cache = loaded
        static, graph = self.in_use[cache]
        cache.n_written = t + 1
        static.projected.copy_(projected)
        static.pending.copy_(state.pending)
        static.t.fill_(t)
        graph.replay()
        return static.hidden.clone(), StepState(cache, t + 1, static.pending_after.clone())

    def _loaded(self, state: StepState) -> StepCache | None:
        """Copy the keys and values of a state into the buffers of a captured step, and return that cache.

        Return None if capturing fails.
        """
        n = state.cache.key_value.shape[2]
        free = self.free.setdefault(n, [])
        captured = free.pop() if free else self._captured(n)
        if captured is None:
            return None
        key_value = captured[0].key_value
        key_value.narrow(4, 0, state.length).copy_(state.cache.key_value.narrow(4, 0, state.length))
        cache = StepCache(key_value, state.length, self.plain.layout)
        self.in_use[cache] = captured
        weakref.finalize(cache, free.append, captured).atexit = False  # once no state has it any more
        return cache

    def _captured(self, n: int) -> tuple[StaticStep, Replay] | None:
        """Return a step of n sequences and its CUDA graph, or None, with a warning, if capturing fails."""
        # Tensors made under inference mode could not be written outside of it.
        with torch.inference_mode(False), torch.no_grad():
            static = StaticStep(self.plain, n, self.plain.max_length or 0)
            try:
                graph = self.capture(static.compute, self.plain.like.device)
                static.compute()
                expected = static.hidden.clone()
                static.hidden.zero_()
                graph.replay()
                if not torch.allclose(static.hidden, expected, rtol=1e-3, atol=1e-4):
                    raise RuntimeError("a replay did not compute what the step does")
            except RuntimeError as error:
                self.captures = False
                warn_caller(
                    f"steps are taken one operation at a time, since they could not be captured as a graph: {error}",
                )
                return None
        return static, graph
