"""Long sequences cut into segments that run side by side (parallel in time).

A recursion over time takes as many steps as its longest sequence has frames. An ergodic chain forgets its past: a
message that starts flat ``MARGIN`` frames before a segment has converged, at the segment's first frame, to the message
from the sequence's start. Each segment is therefore warmed up on the end (or, in the backward pass, on the beginning)
of its neighbour, and the result is checked against the message that the neighbour ends with. Errors do not grow from
there: positive maps do not expand the ratios of forward messages, nor do stochastic maps expand differences (backward,
over gamma). Where the message has not converged, or may not, segments start and end exactly (``block_products``), for K
times the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.chains.packing import Packing, any_of

MARGIN = {torch.float32: 128, torch.float64: 192}  # number of warm-up frames
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative for forward messages, absolute for gamma
FRAME_MULTIPLE = 16  # divides sizes and margins, so that rescaling falls where it does in whole sequences
STEP_COST = 10_000.0  # nanoseconds of a time step, whatever its size
STATE_COST = 0.5  # additional nanoseconds for each frame and state
TRANSITION_COST = 0.025  # additional nanoseconds for each frame and pair of states
STATE_COST_SEQUENTIAL, TRANSITION_COST_SEQUENTIAL = 6.0, 0.25  # for loops over one sequence at a time
SEGMENTS_COST = 4.0  # measured time of warmed-up segments relative to the three costs above, which count one pass
MOST_STATES_COMPILED = 64  # number of states above which matrix products are faster than compiled loops
FEW_STATES = 16  # number of states up to which frames are so cheap that only their number matters
MOST_FRAMES_COMPILED = 80_000  # frames of a batch above which matrix products are faster with more than ``FEW_STATES``
FEWEST_FRAMES_COMPILED = 100_000  # frames of a batch below which loading numba for blocks is not worth it
FEWEST_SIDE_BY_SIDE = 32  # sequences running at a time for which blocks of 64 are worth it
STEP_COST_COMPILED = 64.0  # cost of a time step of compiled loops, in frames: the width of a block
ENTRY_COST = 10.0  # nanoseconds for each frame and entry of an operator
GPU_SPEED = 100.0  # speed of a GPU's arithmetic relative to a CPU; assumed, not measured
LEAST_EXACT = 2 * FRAME_MULTIPLE  # smallest number of frames of an exact segment
MOST_ENTRIES = 1 << 25  # largest number of entries in the operators of all segments
NEGLIGIBLE = 1e-12  # transition probability that no margin of frames makes up for


@dataclass(frozen=True, eq=False)
class Segments:
    """The w segments that n sequences are cut into, so that recursions over time run on them side by side.

    All segments but the last of each sequence have ``size`` frames. They are numbered sequence by sequence, in the
    order of time.

    Attributes:
        lengths: number of frames of each sequence, ``(n,)``.
        packing: packing of the segments; its N rows are the rows of all tensors here.
        owner: number of the sequence that each segment belongs to, ``(w,)``.
        size: number of frames of a segment.
        margin: number of a neighbour's frames that a segment is warmed up on; 0 if segments start and end exactly, by
            products of the operators of all segments (``block_products``).
    """

    lengths: Tensor
    packing: Packing
    owner: Tensor
    size: int
    margin: int

    @classmethod
    def whole(cls, lengths: Sequence[int] | np.ndarray | Tensor, device: torch.device | str = "cpu") -> Segments:
        """Return the segments of sequences that are not cut, one for each.

        ``lengths`` is the number of frames of each sequence.
        """
        frames = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
        return cls(
            frames.to(device),
            Packing.of(frames, device),
            torch.arange(len(frames), device=device),
            int(frames.max()),
            0,
        )

    @classmethod
    def fastest(
        cls,
        lengths: Sequence[int] | np.ndarray | Tensor,
        n_states: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> Segments:
        """Return the segments, warmed up on their neighbours' frames, with which recursions are fastest.

        Sequences are not cut if that is faster.

        Args:
            lengths: number of frames of each sequence.
            n_states: number of states.
            dtype: precision of the recursions.
            device: device of the tensors.
        """
        frames, margin = torch.as_tensor(lengths), MARGIN[dtype]
        # A time step costs as much as this many frames.
        overhead = STEP_COST / (STATE_COST * n_states + TRANSITION_COST * n_states**2)
        n_frames = int(frames.sum())
        if runs_compiled(n_states, n_frames, torch.device(device)):
            overhead = STEP_COST_COMPILED
        size = _best_size(n_frames, int(frames.max()), overhead, margin)
        if size is None or is_faster_uncut(n_states, n_frames, int(frames.max()), dtype, torch.device(device)):
            return cls.whole(frames, device)
        return cls.of_size(frames, size, margin, device)

    @classmethod
    def exact(cls, lengths: Tensor, n_states: int) -> Segments:
        """Return the segments that start and end with exact messages, with which recursions are fastest.

        Sequences are not cut if that is faster. ``lengths (n,)`` is the number of frames of each sequence, ``n_states``
        the number of states.
        """
        n_frames, longest, K, device = int(lengths.sum()), int(lengths.max()), n_states, lengths.device
        if loops_are_compiled(device):
            return cls.whole(lengths, device)
        speed = 1.0 if device.type == "cpu" else GPU_SPEED
        of_recursion = n_frames * (STATE_COST * K + TRANSITION_COST * K**2) / speed
        of_operators = n_frames * (ENTRY_COST * K**2 + TRANSITION_COST * K**3) / speed
        balanced = math.sqrt(2 * K * of_recursion / STEP_COST)  # balances the cost of steps and of products of segments
        size = max(LEAST_EXACT, balanced, n_frames * K**2 / MOST_ENTRIES)
        if of_operators + 3 * size * STEP_COST > 2 * longest * STEP_COST + of_recursion:
            return cls.whole(lengths, device)
        return cls.of_size(lengths, math.ceil(size / FRAME_MULTIPLE) * FRAME_MULTIPLE, 0, device)

    @classmethod
    def of_size(cls, lengths: Tensor, size: int, margin: int, device: torch.device | str = "cpu") -> Segments:
        """Return segments of ``size`` frames, each warmed up on the ``margin`` frames next to it.

        ``lengths (n,)`` is the number of frames of each sequence.
        """
        assert margin <= size, "a segment is warmed up on one neighbour"
        frames = lengths.to("cpu", torch.int64)
        count = (frames + size - 1) // size
        owner = torch.repeat_interleave(count)
        position = torch.arange(len(owner)) - (count.cumsum(0) - count)[owner]  # place of each segment in its sequence
        packing = Packing.of(torch.clamp(frames[owner] - position * size, max=size), device)
        return cls(frames.to(device), packing, owner.to(device), size, margin)

    @property
    def n_sequences(self) -> int:
        """The number n of sequences before they were cut."""
        return len(self.lengths)

    @property
    def is_whole(self) -> bool:
        """True if every sequence is one segment."""
        return self.n_sequences == self.packing.n_sequences

    @property
    def are_warmed_up(self) -> bool:
        """True if sequences are cut, and recursions on a segment begin on frames of the neighbouring segment."""
        return self.margin > 0 and not self.is_whole

    @property
    def are_exact(self) -> bool:
        """True if sequences are cut, and segments start and end with exact messages instead of being warmed up."""
        return self.margin == 0 and not self.is_whole

    @cached_property
    def first_segment(self) -> Tensor:
        """The number of the first segment of each sequence, ``(n,)``."""
        count = torch.bincount(self.owner, minlength=self.n_sequences)
        return count.cumsum(0) - count

    @cached_property
    def neighbours(self) -> tuple[Tensor, Tensor]:
        """The pairs of consecutive segments of a sequence: ranks of the first and of the second, each ``(b,)``.

        Ranks order segments by length, the longest first.
        """
        before = (self.owner[1:] == self.owner[:-1]).nonzero()[:, 0]
        return self.packing.rank[before], self.packing.rank[before + 1]

    @cached_property
    def rows_before(self) -> tuple[Tensor, Tensor]:
        """The packed rows of each pair of consecutive frames of a sequence: of the first and of the second frame.

        Both are ``(N - n,)`` for n sequences with N frames in all.
        """
        packing, (before, after) = self.packing, self.neighbours
        later = torch.arange(packing.n_sequences, packing.n_frames, device=self.lengths.device)
        ended = packing.last[packing.order[before]]
        return torch.cat([packing.previous, ended]), torch.cat([later, after])  # first frames stand at their ranks

    @cached_property
    def first(self) -> Tensor:
        """The packed row of each sequence's first frame, ``(n,)``."""
        return self.packing.rank[self.first_segment]

    @cached_property
    def last(self) -> Tensor:
        """The packed row of each sequence's last frame, ``(n,)``."""
        return self.rows(torch.arange(self.n_sequences, device=self.lengths.device), self.lengths - 1)

    @cached_property
    def sequence(self) -> Tensor:
        """The number of the sequence that each packed row belongs to, ``(N,)``."""
        return self.owner[self.packing.sequence]

    @cached_property
    def time(self) -> Tensor:
        """The time of each packed row in its sequence, from 0, ``(N,)``."""
        segment = self.packing.sequence
        return (segment - self.first_segment[self.owner[segment]]) * self.size + self.packing.time

    def rows(self, sequence: Tensor, time: Tensor) -> Tensor:
        return self.packing.rows(self.first_segment[sequence] + time // self.size, time % self.size)

    def split(self, packed: Tensor) -> list[Tensor]:
        return list(self.packing.unpack(packed).split(self.lengths.tolist()))

    def totals(self, packed: Tensor) -> Tensor:
        """Return sums of packed values ``(..., N)`` over the frames of each sequence, ``(..., n)`` float64."""
        each = self.packing.totals(packed)
        return each.new_zeros(*each.shape[:-1], self.n_sequences).index_add_(-1, self.owner, each)

    def any(self, packed: Tensor) -> Tensor:
        """Return True for each sequence with any True among its packed values: ``(..., n)`` for ``packed (..., N)``."""
        return self.any_segment(self.packing.any(packed))

    def any_segment(self, flags: Tensor) -> Tensor:
        """Return True for each sequence with any True among its segments: ``(..., n)`` for ``flags (..., w)``."""
        return any_of(flags, self.owner, self.n_sequences)


def is_ergodic(transition: Tensor) -> bool:
    """Return True if, after some number of steps, any state can be reached from any other, so that the chain forgets.

    Args:
        transition: True where a transition is possible, ``(K, K)`` bool.
    """
    reach = transition.double()
    for _ in range(max(1, math.ceil(math.log2(len(transition))))):
        reach = ((reach @ reach) > 0).double()
    return bool((reach > 0).all())


def runs_sequentially(n_states: int, n_frames: int, longest: int, device: torch.device) -> bool:
    """Return True if recursions over time run as compiled loops over one sequence after the other.

    This is so if these loops take less time than tensor operations at each step, and if the batch is too small, or too
    few sequences run at a time, for loops over blocks of sequences. There are ``n_frames`` frames in all, and
    ``longest`` in the longest sequence.
    """
    if not loops_are_compiled(device):
        return False
    if runs_compiled(n_states, n_frames, device):
        return n_frames < FEWEST_SIDE_BY_SIDE * longest
    loops = _cost_of_loops(n_states, n_frames)
    operations = longest * STEP_COST + n_frames * (STATE_COST * n_states + TRANSITION_COST * n_states**2)
    return loops < operations


def is_faster_uncut(n_states: int, n_frames: int, longest: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return True if loops over one sequence after the other take less time than warmed-up segments.

    With many states they do not, whatever the length of the sequences, because products of matrices are faster there.
    """
    if runs_compiled(n_states, n_frames, device) or not runs_sequentially(n_states, n_frames, longest, device):
        return False
    margin, cost = MARGIN[dtype], STATE_COST * n_states + TRANSITION_COST * n_states**2
    size = _best_size(n_frames, longest, STEP_COST / cost, margin)
    if size is None:
        return True
    segments = (size + margin) * STEP_COST + n_frames * (1 + margin / size) * cost
    return _cost_of_loops(n_states, n_frames) <= SEGMENTS_COST * segments


def _cost_of_loops(n_states: int, n_frames: int) -> float:
    return n_frames * (STATE_COST_SEQUENTIAL * n_states + TRANSITION_COST_SEQUENTIAL * n_states**2)


def runs_compiled(n_states: int, n_frames: int, device: torch.device) -> bool:
    """Return True if recursions over time run as compiled loops over blocks of sequences.

    This needs few states, more than one because one state has nothing to recur, and enough frames. With more states,
    loops gain more in each frame, so that fewer frames are enough; with more than ``FEW_STATES`` and very many frames,
    products of matrices are faster.
    """
    if n_states > FEW_STATES and n_frames > MOST_FRAMES_COMPILED:
        return False
    worth = n_frames * max(1, (n_states / FEW_STATES) ** 2)
    return 1 < n_states <= MOST_STATES_COMPILED and loops_are_worth_compiling(worth, device)


def loops_are_compiled(device: torch.device) -> bool:
    """Return True if loops over frames on this device run as machine code, that is on a CPU with numba installed."""
    return device.type == "cpu" and _has_numba()


def loops_are_worth_compiling(n_frames: float, device: torch.device) -> bool:
    """Return True if compiled loops can run on this device and there are enough frames to be worth loading numba."""
    return n_frames >= FEWEST_FRAMES_COMPILED and loops_are_compiled(device)


_has_numba = cache(is_compiling)


def _best_size(n_frames: int, longest: int, overhead: float, margin: int) -> int | None:
    """Return the fastest number of frames for a segment, or None if segments would not halve the time at least.

    Args:
        n_frames: number of frames in all.
        longest: number of frames of the longest sequence.
        overhead: fixed cost of a time step, in units of the cost of a frame.
        margin: number of frames that each segment is warmed up on.
    """
    # Minimises (size + margin) overhead + n_frames (1 + margin / size), the cost of segments of this size.
    size = max(margin, int(math.sqrt(margin * n_frames / overhead)) // FRAME_MULTIPLE * FRAME_MULTIPLE)
    cost = (size + margin) * overhead + n_frames * (1 + margin / size)
    return size if 2 * cost < longest * overhead + n_frames else None
