"""``Cutting``: long sequences in pieces that run side by side, each warmed up on the end (or the beginning) of its neighbour.

A recursion over time is as slow as its longest sequence is long. A chain forgets: a message started flat ``MARGIN`` frames before
a piece has, at its first frame, converged to the one from the sequence's start. Whether it has is checked against what
the neighbour ends with. Errors do not grow from there: positive maps do not expand the ratios of forward messages, nor
stochastic ones (backward, over gamma) differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.packing import Packing, any_of

MARGIN = {torch.float32: 128, torch.float64: 192}  # frames
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of forward messages, relative; of gamma, absolute
ROUND = (
    16  # frames; pieces and margins are multiples, so that what is done every so often is done where the whole would
)
STEP, STATE, ARC = 10_000.0, 0.5, 0.025  # nanoseconds of a time step, and in it of each frame's states and their pairs


@dataclass(frozen=True, eq=False)
class Cutting:
    """How n sequences make w pieces, in order; pieces of one sequence, its last apart, have ``size`` frames.

    Attributes:
        lengths: (n,) frames of each sequence.
        packing: of the pieces, whose rows are those of all the tensors here.
        owner: (w,) the sequence of each piece.
        size: frames of a piece.
        margin: frames of a neighbour that a piece is warmed up on.
    """

    lengths: Tensor
    packing: Packing
    owner: Tensor
    size: int
    margin: int

    @classmethod
    def whole(cls, lengths: Sequence[int] | np.ndarray | Tensor, device: torch.device | str = "cpu") -> Cutting:
        """Every sequence one piece."""
        return cls.into(torch.as_tensor(lengths), int(torch.as_tensor(lengths).max()), 0, device)

    @classmethod
    def of(
        cls,
        lengths: Sequence[int] | np.ndarray | Tensor,
        n_states: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        reach: int = 1,
    ) -> Cutting:
        """Pieces of the size that is fastest for recursions in ``dtype``, with margins ``reach`` times the usual; whole if that is."""
        frames = torch.as_tensor(lengths)
        margin = reach * MARGIN[dtype]
        size = _best_size(int(frames.sum()), int(frames.max()), n_states, margin)
        return cls.whole(frames, device) if size is None else cls.into(frames, size, margin, device)

    @classmethod
    def into(cls, lengths: Tensor, size: int, margin: int, device: torch.device | str = "cpu") -> Cutting:
        """Pieces of ``size`` frames."""
        assert margin <= size, "a piece is warmed up on one neighbour"
        frames = lengths.to("cpu", torch.int64)
        count = (frames + size - 1) // size
        owner = torch.repeat_interleave(count)
        core = torch.arange(len(owner)) - (count.cumsum(0) - count)[owner]  # which of its sequence's pieces
        packing = Packing.of(torch.clamp(frames[owner] - core * size, max=size), device)
        return cls(frames.to(device), packing, owner.to(device), size, margin)

    @property
    def n_sequences(self) -> int:
        """n."""
        return len(self.lengths)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut."""
        return self.n_sequences == self.packing.n_sequences

    @cached_property
    def heads(self) -> Tensor:
        """(n,) the first piece of each sequence."""
        count = torch.bincount(self.owner, minlength=self.n_sequences)
        return count.cumsum(0) - count

    @cached_property
    def links(self) -> tuple[Tensor, Tensor]:
        """Ranks of pieces (b,), and of those that follow them in the same sequence."""
        before = (self.owner[1:] == self.owner[:-1]).nonzero()[:, 0]
        return self.packing.rank[before], self.packing.rank[before + 1]

    @cached_property
    def first(self) -> Tensor:
        """(n,) the row of each sequence's first frame."""
        return self.packing.rank[self.heads]

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
        piece = self.packing.sequence
        return (piece - self.heads[self.owner[piece]]) * self.size + self.packing.time

    def rows(self, sequence: Tensor, time: Tensor) -> Tensor:
        """The rows of these frames: ``time[k]`` of ``sequence[k]``."""
        return self.packing.rows(self.heads[sequence] + time // self.size, time % self.size)

    def split(self, packed: Tensor) -> list[Tensor]:
        """(N, ...) rows -> one (T, ...) tensor a sequence."""
        return list(self.packing.unpack(packed).split(self.lengths.tolist()))

    def totals(self, packed: Tensor) -> Tensor:
        """(..., N) values -> (..., n) their sum over each sequence, in float64."""
        each = self.packing.totals(packed)
        return each.new_zeros(*each.shape[:-1], self.n_sequences).index_add_(-1, self.owner, each)

    def any(self, packed: Tensor) -> Tensor:
        """(..., N) truth values -> (..., n) whether any frame of the sequence is true."""
        return self.of_pieces(self.packing.any(packed))

    def of_pieces(self, flags: Tensor) -> Tensor:
        """(..., w) truth values of pieces -> (..., n) whether any of the sequence is true."""
        return any_of(flags, self.owner, self.n_sequences)


def _best_size(frames: int, longest: int, n_states: int, margin: int) -> int | None:
    """The frames a piece should have, or None where pieces would not at least halve the time."""
    overhead = STEP / (STATE * n_states + ARC * n_states**2)  # a time step costs as much as this many frames
    # Minimises (size + margin) overhead + frames (1 + margin / size), the cost of pieces of this size.
    size = max(margin, int(math.sqrt(margin * frames / overhead)) // ROUND * ROUND)
    cost = (size + margin) * overhead + frames * (1 + margin / size)
    return size if 2 * cost < longest * overhead + frames else None
