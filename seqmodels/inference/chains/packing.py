"""Packed ragged sequences: all first frames, then all second frames, and so on, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packing:
    """The packing of n ragged sequences into N rows: all first frames, then all second frames, and so on.

    The longest sequences come first, so that the sequences still running at any time are the leading rows of a
    contiguous block: a recursion over time works on whole blocks and never touches padding. "Concatenated" means the
    caller's layout, one sequence after the other; "sequence i" is always the caller's number i; the "rank" of a
    sequence is its place in ``order``.

    Attributes:
        lengths: number of frames of each sequence, ``(n,)``.
        order: number of the sequence at each rank, ``(n,)``: the longest first, and equal lengths in the caller's
            order.
        batch_sizes: number of sequences that have a frame at each of T times.
        offsets: first row of each time, and N at the end, ``(T + 1,)``.

    >>> p = Packing.of([1, 3, 2])
    >>> p.pack(torch.tensor([10, 20, 21, 22, 30, 31])).tolist()
    [20, 30, 10, 21, 31, 22]
    """

    lengths: Tensor
    order: Tensor
    batch_sizes: tuple[int, ...]
    offsets: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int] | np.ndarray | Tensor, device: torch.device | str = "cpu") -> Packing:
        """Return the packing of sequences with these ``lengths``, its tensors on ``device``.

        Raises:
            ValueError: If there are no sequences, or one is empty.
        """
        frames = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
        if frames.numel() == 0:
            raise ValueError("there are no sequences to pack; pass at least one length")
        if int(frames.min()) < 1:
            raise ValueError(f"sequence {int(frames.argmin())} is empty; leave it out")
        if len(frames) == 1:
            n = int(frames[0])
            frames = frames.to(device)
            return cls(frames, torch.zeros_like(frames), (1,) * n, torch.arange(n + 1, device=device))
        order = torch.argsort(frames, descending=True, stable=True)
        ended = torch.bincount(frames).cumsum(0)[:-1]  # ended[t]: sequences of at most t frames
        running = len(frames) - ended
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), running.cumsum(0)])
        return cls(frames.to(device), order.to(device), tuple(running.tolist()), offsets.to(device))

    @property
    def n_sequences(self) -> int:
        """The number n of sequences that are packed."""
        return len(self.lengths)

    @cached_property
    def n_frames(self) -> int:
        """The number N of frames of all sequences together, which is that of packed rows."""
        return int(self.offsets[-1])

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """The packed rows of each time, as pairs of the first row and the first row after them."""
        edges = self.offsets.tolist()
        return list(pairwise(edges))

    @cached_property
    def arrays(self) -> PackedArrays:
        """The packing as NumPy arrays, in the form that compiled loops on a CPU read."""
        order, lengths = self.order.numpy(), self.lengths.numpy()
        return PackedArrays(self.offsets.numpy(), lengths[order], order, (np.cumsum(lengths) - lengths)[order])

    @cached_property
    def time(self) -> Tensor:
        """The time of each packed row in its sequence, from 0, ``(N,)``."""
        return torch.repeat_interleave(self.offsets.diff())

    @cached_property
    def sequence(self) -> Tensor:
        """The number of the sequence that each packed row belongs to, ``(N,)``."""
        if self.n_sequences == 1:
            return torch.zeros_like(self.offsets[1:])
        rank = torch.arange(self.n_frames, device=self.offsets.device) - self.offsets[self.time]
        return self.order[rank]

    @cached_property
    def rank(self) -> Tensor:
        """The place of each sequence when they are ordered by length, the longest first, ``(n,)``."""
        return torch.argsort(self.order)

    @cached_property
    def last(self) -> Tensor:
        """The packed row of each sequence's last frame, ``(n,)``."""
        return self.rows(torch.arange(self.n_sequences, device=self.order.device), self.lengths - 1)

    @cached_property
    def spans(self) -> list[tuple[int, int, int]]:
        """Ranges of packed rows whose previous frames are also a range, as triples ``(shift, low, high)``.

        The previous frames of the rows ``low .. high - 1`` are the rows ``low - shift .. high - shift - 1``. Together
        the ranges are all rows but first frames.
        """
        spans = []
        for shift, group in groupby(pairwise(self.blocks), key=lambda pair: pair[0][1] - pair[0][0]):
            later = [block for _, block in group]
            spans.append((shift, later[0][0], later[-1][1]))
        return spans

    @cached_property
    def previous(self) -> Tensor:
        """The packed row of the frame before, for each row that is not a first frame, ``(N - n,)``.

        >>> Packing.of([1, 3, 2]).previous.tolist()
        [0, 1, 3]
        """
        sizes, n_later = self.offsets.diff(), self.n_frames - self.n_sequences
        before = torch.repeat_interleave(sizes[:-1], sizes[1:], output_size=n_later)
        return torch.arange(self.n_sequences, self.n_frames, device=before.device) - before

    @cached_property
    def index(self) -> Tensor:
        """The place of each packed row when sequences lie one after the other, ``(N,)``."""
        starts = self.lengths.cumsum(0) - self.lengths
        return starts[self.sequence] + self.time

    def rows(self, sequence: Tensor, time: Tensor) -> Tensor:
        """Return the packed rows of frames, given the numbers of their sequences and their times, all ``(m,)``."""
        return self.offsets[time] + self.rank[sequence]

    def pack(self, concatenated: Tensor) -> Tensor:
        """Return values ``(N, ...)`` of sequences that lie one after the other, in packed order.

        Raises:
            ValueError: If there are not N values.
        """
        self._check(concatenated)
        if self.n_sequences == 1:
            return concatenated
        return concatenated.index_select(0, self.index.to(concatenated.device))

    def unpack(self, packed: Tensor) -> Tensor:
        """Return packed values ``(N, ...)`` in the order of sequences that lie one after the other.

        Raises:
            ValueError: If there are not N values.
        """
        self._check(packed)
        if self.n_sequences == 1:
            return packed.clone()
        return torch.empty_like(packed).index_copy_(0, self.index.to(packed.device), packed)

    def split(self, packed: Tensor) -> list[Tensor]:
        """Return packed values ``(N, ...)`` as one tensor ``(T, ...)`` for each sequence, in the caller's order."""
        return list(self.unpack(packed).split(self.lengths.tolist()))

    def totals(self, packed: Tensor) -> Tensor:
        """Return the sum of packed values ``(..., N)`` over the frames of each sequence, float64 ``(..., n)``.

        Values are added in the order of time.
        """
        zeros = packed.new_zeros(*packed.shape[:-1], self.n_sequences, dtype=torch.float64)
        return zeros.index_add_(-1, self.sequence.to(packed.device), packed.double())

    def any(self, packed: Tensor) -> Tensor:
        """Return True for each sequence with any True among its packed values: ``(..., n)`` for ``packed (..., N)``."""
        return any_of(packed, self.sequence.to(packed.device), self.n_sequences)

    def take(self, sequences: Tensor) -> tuple[Packing, Tensor]:
        """Return the packing of some of the sequences, and the index of each of its rows among the rows here.

        ``sequences`` are the numbers of the sequences.
        """
        part = Packing.of(self.lengths[sequences], device=self.lengths.device)
        return part, self.rows(sequences[part.sequence], part.time)

    def _check(self, values: Tensor) -> None:
        if len(values) != self.n_frames:
            raise ValueError(f"there are {len(values)} rows but the sequences have {self.n_frames} frames in all")


def any_of(flags: Tensor, owner: Tensor, n_owners: int) -> Tensor:
    """Return True for each owner, ``(..., n_owners)``, any of whose items is True.

    Args:
        flags: truth values of m items, ``(..., m)``.
        owner: number of each item's owner, ``(m,)``.
        n_owners: number of owners.
    """
    per_owner = flags.new_zeros(*flags.shape[:-1], n_owners)
    *lead, items = flags.nonzero(as_tuple=True)
    per_owner[(*lead, owner[items])] = True
    return per_owner


@dataclass(frozen=True)
class PackedArrays:
    """The packing of n sequences as NumPy arrays: all first frames, then all second frames, and so on.

    Attributes:
        offsets: first row of each time, and N at the end, ``(T + 1,)``.
        lengths: number of frames of each sequence, ``(n,)`` by rank (longest first).
        order: number of the sequence at each rank, ``(n,)``; ranks order sequences by length.
        firsts: index of each sequence's first frame when sequences lie one after the other, ``(n,)`` by rank.
    """

    offsets: np.ndarray
    lengths: np.ndarray
    order: np.ndarray
    firsts: np.ndarray

    @classmethod
    def of(cls, lengths: Sequence[int]) -> PackedArrays:
        """Return the packing of sequences with the given lengths.

        >>> PackedArrays.of([1, 3, 2]).index.tolist()
        [1, 4, 0, 2, 5, 3]
        """
        each = np.array(lengths, np.int64)
        if len(each) == 1:
            zero = np.zeros(1, np.int64)
            return cls(np.arange(each[0] + 1), each, zero, zero)
        order = np.argsort(-each, kind="stable")
        n_at = len(each) - np.searchsorted(each[order[::-1]], np.arange(each.max()), "right")
        return cls(np.append(0, np.cumsum(n_at)), each[order], order, (np.cumsum(each) - each)[order])

    @cached_property
    def index(self) -> np.ndarray:
        """The place of each packed row when sequences lie one after the other, ``(N,)``."""
        n_at, n_frames = np.diff(self.offsets), int(self.offsets[-1])
        rank = np.arange(n_frames) - np.repeat(self.offsets[:-1], n_at)
        return np.asarray(self.firsts[rank] + np.repeat(np.arange(len(n_at)), n_at))

    def pack(self, concatenated: np.ndarray) -> np.ndarray:
        """Return values ``(N, ...)`` of sequences that lie one after the other, in packed order."""
        return concatenated if len(self.lengths) == 1 else concatenated[self.index]

    def split(self, packed: np.ndarray) -> list[np.ndarray]:
        """Return packed values ``(N, ...)`` as one array ``(T, ...)`` for each sequence, in the caller's order."""
        if len(self.lengths) == 1:
            return [packed]
        concatenated = np.empty_like(packed)
        concatenated[self.index] = packed
        return self.parts(concatenated)

    def parts(self, concatenated: np.ndarray) -> list[np.ndarray]:
        """Return values ``(N, ...)`` of sequences that lie one after the other as one array ``(T, ...)`` for each."""
        stops = np.cumsum(self.by_sequence(self.lengths)).tolist()
        return [concatenated[start:stop] for start, stop in pairwise([0, *stops])]

    def by_rank(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return three uninitialised arrays ``(n,)`` by rank: for log p(end | x), for log p(x) and for failures."""
        n = len(self.lengths)
        return np.empty(n), np.empty(n), np.empty(n, np.bool_)

    def by_sequence(self, by_rank: np.ndarray) -> np.ndarray:
        """Return values ``(n,)`` that are ordered by rank (longest sequence first) in the caller's order."""
        values = np.empty_like(by_rank)
        values[self.order] = by_rank
        return values
