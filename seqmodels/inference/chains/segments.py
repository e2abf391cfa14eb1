"""``Segments``: long sequences cut into segments that run side by side (parallel in time).

A recursion over time takes as many steps as its longest sequence has frames. An ergodic chain forgets its past: a
message that starts flat ``MARGIN`` frames before a segment has converged, at the segment's first frame, to the message
from the sequence's start. Each segment is therefore warmed up on the end (or, backwards, on the beginning) of its
neighbour, and whether the message has converged is checked against what the neighbour ends with. Errors do not grow
from there: positive maps do not expand the ratios of forward messages, nor stochastic maps differences (backward, over
gamma). Where it has not converged, or may not, segments start and end exactly (``block_products``), for K times the
arithmetic.
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

MARGIN = {torch.float32: 128, torch.float64: 192}  # frames of warm-up
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of forward messages, relative; of gamma, absolute
FRAME_MULTIPLE = 16  # of sizes and margins, so that periodic rescaling falls where it does in whole sequences
STEP_COST = 10_000.0  # nanoseconds of a time step, whatever it is done on
STATE_COST = 0.5  # nanoseconds for each frame and state in it
TRANSITION_COST = 0.025  # nanoseconds for each frame and pair of states in it
STATE_COST_SEQUENTIAL, TRANSITION_COST_SEQUENTIAL = 6.0, 0.25  # the same of loops over one sequence after the other
MOST_STATES_COMPILED = 64  # of recursions as compiled loops: with more, matrix products are faster
FEW_STATES = 16  # up to which a frame takes so little that their number alone says whether loops are worth compiling
FEWEST_FRAMES_COMPILED = 100_000  # of a batch: with fewer, loops over one sequence after the other, or tensors, do
FEWEST_SIDE_BY_SIDE = 32  # sequences that run at a time, of a batch that is taken in blocks of twice as many
STEP_COST_COMPILED = 64.0  # frames that a time step of compiled loops takes as long as: the width of a block
ENTRY_COST = 10.0  # nanoseconds for each frame and entry of an operator
GPU_SPEED = 100.0  # times as fast is a GPU at the arithmetic; assumed, not measured
LEAST_EXACT = 2 * FRAME_MULTIPLE  # frames of a segment that starts and ends exactly
MOST_ENTRIES = 1 << 25  # of the operators of all segments
NEGLIGIBLE = 1e-12  # probability of a transition that no margin of frames makes up for


@dataclass(frozen=True, eq=False)
class Segments:
    """How n sequences make up w segments, in order; segments of one sequence, its last apart, have ``size`` frames.

    Attributes:
        lengths: (n,) frames of each sequence.
        packing: of the segments; its N rows are those of all the tensors here.
        owner: (w,) the sequence of each segment.
        size: frames of a segment.
        margin: frames of a neighbour that a segment is warmed up on; 0: it starts and ends exactly, by products of the
            operators of all segments (``block_products``).
    """

    lengths: Tensor
    packing: Packing
    owner: Tensor
    size: int
    margin: int

    @classmethod
    def whole(cls, lengths: Sequence[int] | np.ndarray | Tensor, device: torch.device | str = "cpu") -> Segments:
        """One segment a sequence."""
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
        """Of the size that is fastest in ``dtype``, warmed up; whole where that is fastest."""
        frames, margin = torch.as_tensor(lengths), MARGIN[dtype]
        # A time step costs as much as this many frames.
        overhead = STEP_COST / (STATE_COST * n_states + TRANSITION_COST * n_states**2)
        n_frames = int(frames.sum())
        if runs_compiled(n_states, n_frames, torch.device(device)):
            overhead = STEP_COST_COMPILED
        elif runs_sequentially(n_states, n_frames, int(frames.max()), torch.device(device)):
            return cls.whole(frames, device)
        size = _best_size(n_frames, int(frames.max()), overhead, margin)
        return cls.whole(frames, device) if size is None else cls.of_size(frames, size, margin, device)

    @classmethod
    def exact(cls, lengths: Tensor, n_states: int) -> Segments:
        """Of the size that is fastest where segments start and end exactly; whole where that is fastest."""
        n_frames, longest, K, device = int(lengths.sum()), int(lengths.max()), n_states, lengths.device
        if loops_are_compiled(device):
            return cls.whole(lengths, device)
        speed = 1.0 if device.type == "cpu" else GPU_SPEED
        of_recursion = n_frames * (STATE_COST * K + TRANSITION_COST * K**2) / speed
        of_operators = n_frames * (ENTRY_COST * K**2 + TRANSITION_COST * K**3) / speed
        balanced = math.sqrt(2 * K * of_recursion / STEP_COST)  # of steps, and of products of segments
        size = max(LEAST_EXACT, balanced, n_frames * K**2 / MOST_ENTRIES)
        if of_operators + 3 * size * STEP_COST > 2 * longest * STEP_COST + of_recursion:
            return cls.whole(lengths, device)
        return cls.of_size(lengths, math.ceil(size / FRAME_MULTIPLE) * FRAME_MULTIPLE, 0, device)

    @classmethod
    def of_size(cls, lengths: Tensor, size: int, margin: int, device: torch.device | str = "cpu") -> Segments:
        """Segments of ``size`` frames."""
        assert margin <= size, "a segment is warmed up on one neighbour"
        frames = lengths.to("cpu", torch.int64)
        count = (frames + size - 1) // size
        owner = torch.repeat_interleave(count)
        position = torch.arange(len(owner)) - (count.cumsum(0) - count)[owner]  # which of its sequence's segments
        packing = Packing.of(torch.clamp(frames[owner] - position * size, max=size), device)
        return cls(frames.to(device), packing, owner.to(device), size, margin)

    @property
    def n_sequences(self) -> int:
        """n, the number of whole sequences, before they were cut."""
        return len(self.lengths)

    @property
    def is_whole(self) -> bool:
        """Whether every sequence is one segment."""
        return self.n_sequences == self.packing.n_sequences

    @property
    def are_warmed_up(self) -> bool:
        """Whether sequences are cut, and what segments start and end with is found on frames of their neighbours."""
        return self.margin > 0 and not self.is_whole

    @property
    def are_exact(self) -> bool:
        """Whether sequences are cut, and segments are not warmed up but start and end exactly."""
        return self.margin == 0 and not self.is_whole

    @cached_property
    def first_segment(self) -> Tensor:
        """(n,) the first segment of each sequence."""
        count = torch.bincount(self.owner, minlength=self.n_sequences)
        return count.cumsum(0) - count

    @cached_property
    def neighbours(self) -> tuple[Tensor, Tensor]:
        """Ranks of segments (b,), and of those that follow them in the same sequence."""
        before = (self.owner[1:] == self.owner[:-1]).nonzero()[:, 0]
        return self.packing.rank[before], self.packing.rank[before + 1]

    @cached_property
    def rows_before(self) -> tuple[Tensor, Tensor]:
        """Rows of frames that others follow, and (N - n,) rows of the frames that follow them, in the same sequence."""
        packing, (before, after) = self.packing, self.neighbours
        later = torch.arange(packing.n_sequences, packing.n_frames, device=self.lengths.device)
        ended = packing.last[packing.order[before]]
        return torch.cat([packing.previous, ended]), torch.cat([later, after])  # first frames stand at their ranks

    @cached_property
    def first(self) -> Tensor:
        """(n,) the row of each sequence's first frame."""
        return self.packing.rank[self.first_segment]

    @cached_property
    def last(self) -> Tensor:
        """(n,) the row of each sequence's last frame."""
        return self.rows(torch.arange(self.n_sequences, device=self.lengths.device), self.lengths - 1)

    @cached_property
    def sequence(self) -> Tensor:
        """(N,) the sequence of each row."""
        return self.owner[self.packing.sequence]

    @cached_property
    def time(self) -> Tensor:
        """(N,) the time of each row in its sequence."""
        segment = self.packing.sequence
        return (segment - self.first_segment[self.owner[segment]]) * self.size + self.packing.time

    def rows(self, sequence: Tensor, time: Tensor) -> Tensor:
        """The rows of these frames: ``time[k]`` of ``sequence[k]``."""
        return self.packing.rows(self.first_segment[sequence] + time // self.size, time % self.size)

    def split(self, packed: Tensor) -> list[Tensor]:
        """(N, ...) rows -> one (T, ...) tensor a sequence."""
        return list(self.packing.unpack(packed).split(self.lengths.tolist()))

    def totals(self, packed: Tensor) -> Tensor:
        """(..., N) values -> (..., n) their sum over each sequence, in float64."""
        each = self.packing.totals(packed)
        return each.new_zeros(*each.shape[:-1], self.n_sequences).index_add_(-1, self.owner, each)

    def any(self, packed: Tensor) -> Tensor:
        """(..., N) truth values -> (..., n) whether any frame of the sequence is true."""
        return self.any_segment(self.packing.any(packed))

    def any_segment(self, flags: Tensor) -> Tensor:
        """(..., w) truth values of segments -> (..., n) whether any of the sequence is true."""
        return any_of(flags, self.owner, self.n_sequences)


def is_ergodic(transition: Tensor) -> bool:
    """Whether all states can be reached from all after some number of steps; then the chain forgets its start.

    Args:
        transition: (K, K) bool, which transitions there are.
    """
    reach = transition.double()
    for _ in range(max(1, math.ceil(math.log2(len(transition))))):
        reach = ((reach @ reach) > 0).double()
    return bool((reach > 0).all())


def runs_sequentially(n_states: int, n_frames: int, longest: int, device: torch.device) -> bool:
    """Whether recursions run as compiled loops over one sequence after the other (``sequential``).

    They do where these take less time than tensor operations at each of the ``longest`` steps, and where the batch is
    too small, or too few sequences run at a time, for ``compiled_recursions``.
    """
    if not loops_are_compiled(device):
        return False
    if runs_compiled(n_states, n_frames, device):
        return n_frames < FEWEST_SIDE_BY_SIDE * longest
    loops = n_frames * (STATE_COST_SEQUENTIAL * n_states + TRANSITION_COST_SEQUENTIAL * n_states**2)
    operations = longest * STEP_COST + n_frames * (STATE_COST * n_states + TRANSITION_COST * n_states**2)
    return loops < operations


def runs_compiled(n_states: int, n_frames: int, device: torch.device) -> bool:
    """Whether recursions run as compiled loops (``compiled_recursions``): of few states, where loops are worth it.

    One state has nothing to recur. With many, loops gain more a frame, and fewer frames are enough.
    """
    worth = n_frames * max(1, (n_states / FEW_STATES) ** 2)
    return 1 < n_states <= MOST_STATES_COMPILED and loops_are_worth_compiling(worth, device)


def loops_are_compiled(device: torch.device) -> bool:
    """Whether loops over frames on this device run as machine code: on a CPU, where numba is installed."""
    return device.type == "cpu" and _has_numba()


def loops_are_worth_compiling(n_frames: float, device: torch.device) -> bool:
    """Whether a batch has enough frames to load numba for, is on a CPU, and numba is installed."""
    return n_frames >= FEWEST_FRAMES_COMPILED and loops_are_compiled(device)


_has_numba = cache(is_compiling)


def _best_size(n_frames: int, longest: int, overhead: float, margin: int) -> int | None:
    """The frames a segment should have, or None where segments would not at least halve the time.

    ``overhead``: the cost of a time step, whatever it is done on, in frames.
    """
    # Minimises (size + margin) overhead + n_frames (1 + margin / size), the cost of segments of this size.
    size = max(margin, int(math.sqrt(margin * n_frames / overhead)) // FRAME_MULTIPLE * FRAME_MULTIPLE)
    cost = (size + margin) * overhead + n_frames * (1 + margin / size)
    return size if 2 * cost < longest * overhead + n_frames else None
