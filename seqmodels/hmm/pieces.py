"""Pieces: parts of sequences small enough to make batches of, with the frames around each that its states depend on.

A batch of pieces side by side is to a long sequence what a batch of sequences is to many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from seqmodels.distributed import check_enough, several, share
from seqmodels.hmm.blocks import Block, frames_at_once, grouped, groups_of, make_blocks, piece_block, used
from seqmodels.hmm.inference.scratch import Scratch

STREAMS = 32  # pieces side by side in a batch of one long sequence: enough for matrix products to be fast
WARM_UP = 200  # frames before and after a piece whose statistics do not count
SHORTEST = 4 * WARM_UP  # frames of a piece: the warm-up costs half as much at most


@dataclass(frozen=True)
class Piece:
    """Frames ``[first, last)`` of a sequence of ``length``."""

    sequence: int
    first: int
    last: int
    length: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def before(self) -> Piece:
        """The frames that warm up its first state."""
        return Piece(self.sequence, max(0, self.first - WARM_UP), self.first, self.length)

    @property
    def after(self) -> Piece:
        """The frames that its last state still depends on."""
        return Piece(self.sequence, self.last, min(self.length, self.last + WARM_UP), self.length)


Batch = list[list[Piece]]  # in groups, each of one weight and of a size that memory can hold


@dataclass(frozen=True)
class Portion:
    """What a process has of a block, None: nothing; ``weight`` of the whole block: frames times the weight of each."""

    block: Block | None
    weight: float


@dataclass(frozen=True)
class Corpus:
    """Encoded sequences as they came, read a piece at a time; ``states`` where some are known."""

    sequences: Sequence[np.ndarray]
    weights: Sequence[float]
    states: Sequence[np.ndarray] | None
    n_past: int
    n_states: int
    n_densities: int
    device: torch.device
    dtype: torch.dtype
    scratch: Scratch = field(default_factory=Scratch)

    @cached_property
    def blocks(self) -> list[Block]:
        """All of it, packed once and kept: a start is guessed from what EM then reads."""
        return self._blocks(None)

    def own_blocks(self) -> list[Block]:
        """The part of this process, if there are several."""
        if not several():
            return self.blocks
        chosen = used(self.weights)
        check_enough(len(chosen))
        return self._blocks(groups_of(share(chosen), self.sequences, self.weights, self._most))

    def own_portions(self) -> list[Portion]:
        """What this process has of each block that one process would have."""
        if not several():
            return [Portion(block, block.weight * len(block.x)) for block in self.blocks]
        groups = groups_of(used(self.weights), self.sequences, self.weights, self._most)
        own = iter(self._blocks([part for part in map(share, groups) if part]))
        lengths = [sum(len(self.sequences[i]) for i in group) for group in groups]
        return [
            Portion(next(own) if share(group) else None, self.weights[group[0]] * length)
            for group, length in zip(groups, lengths, strict=True)
        ]

    @property
    def _most(self) -> int:
        return frames_at_once(self.n_densities, self.device)

    def _blocks(self, groups: list[list[int]] | None) -> list[Block]:
        return make_blocks(
            self.sequences,
            self.weights,
            self.n_past,
            self.n_states,
            self.n_densities,
            self.device,
            self.dtype,
            self.states,
            groups,
        )

    def block(self, pieces: list[Piece]) -> Block:
        """Pieces of one weight, packed."""
        parts = [(p.sequence, p.first, p.last) for p in pieces]
        weight = self.weights[pieces[0].sequence]
        return piece_block(
            self.sequences,
            parts,
            weight,
            self.n_past,
            self.n_states,
            self.device,
            self.dtype,
            self.scratch,
            self.states,
        )

    def n_frames(self, batch: Batch) -> float:
        """By weight."""
        return sum(self.weights[piece.sequence] * len(piece) for group in batch for piece in group)

    def batches(self, n_batches: int, generator: torch.Generator, *, may_cut: bool = True) -> list[Batch]:
        """Batches of about as many frames each, of pieces from all over the data; ``may_cut`` sequences that are long."""
        chosen = used(self.weights)
        total = sum(len(self.sequences[i]) for i in chosen)
        size = max(SHORTEST, total // (n_batches * STREAMS)) if may_cut else total
        order = [chosen[j] for j in torch.randperm(len(chosen), generator=generator).tolist()]
        pieces = [piece for i in order for piece in cut(i, len(self.sequences[i]), size)]
        return [self._groups(pieces[b::n_batches]) for b in range(min(n_batches, len(pieces)))]

    def _groups(self, pieces: list[Piece]) -> Batch:
        return grouped(pieces, lambda piece: self.weights[piece.sequence], len, self._most)


def cut(sequence: int, length: int, size: int) -> list[Piece]:
    """Equal pieces of about ``size`` frames; the whole sequence where two would be shorter."""
    n = max(1, length // size)
    edges = [length * i // n for i in range(n + 1)]
    return [Piece(sequence, a, b, length) for a, b in pairwise(edges)]
