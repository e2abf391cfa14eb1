"""The data of an HMM: encoded sequences, in blocks for EM, or in mini-batches of pieces for stepwise EM.

A piece is a part of a sequence, with the frames around it that its states depend on. A batch of pieces side by side is
to a long sequence what a batch of sequences is to many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from seqmodels.distributed import check_enough, several, share
from seqmodels.encodings import Encoding
from seqmodels.hmm.blocks import Block, frames_at_once, grouped, groups_of, make_blocks, piece_block, used
from seqmodels.hmm.inference.densities import possible_states
from seqmodels.hmm.inference.scratch import Scratch
from seqmodels.preparation import Example

SIDE_BY_SIDE = 32  # pieces in a batch of one long sequence: enough for matrix products to be fast
WARM_UP = 200  # frames before and after a piece whose statistics do not count
MIN_PIECE = 4 * WARM_UP  # frames of a piece: the warm-up costs half as much at most


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
        """The frames that the forward message is warmed up on."""
        return Piece(self.sequence, max(0, self.first - WARM_UP), self.first, self.length)

    @property
    def after(self) -> Piece:
        """The frames that the backward message is warmed up on."""
        return Piece(self.sequence, self.last, min(self.length, self.last + WARM_UP), self.length)


Batch = list[list[Piece]]  # in groups, each of one weight and of a size that memory can hold


@dataclass(frozen=True)
class Portion:
    """What a process has of a block, None: nothing; ``weight`` is that of the whole block: its frames times the weight
    of each.
    """

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
        """The blocks of this process, if there are several."""
        if not several():
            return self.blocks
        indices = used(self.weights)
        check_enough(len(indices))
        return self._blocks(groups_of(share(indices), self.sequences, self.weights, self._frames_at_once))

    def own_portions(self) -> list[Portion]:
        """What this process has of each block that one process would have."""
        if not several():
            return [Portion(block, block.weight * len(block.x)) for block in self.blocks]
        groups = groups_of(used(self.weights), self.sequences, self.weights, self._frames_at_once)
        blocks = iter(self._blocks([part for part in map(share, groups) if part]))
        lengths = [sum(len(self.sequences[i]) for i in group) for group in groups]
        return [
            Portion(next(blocks) if share(group) else None, self.weights[group[0]] * length)
            for group, length in zip(groups, lengths, strict=True)
        ]

    @property
    def _frames_at_once(self) -> int:
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
        """Frames of a batch, by weight."""
        return sum(self.weights[piece.sequence] * len(piece) for group in batch for piece in group)

    def batches(self, n_batches: int, generator: torch.Generator, *, may_cut: bool = True) -> list[Batch]:
        """Batches of about equal size, of pieces from all over the data; ``may_cut`` sequences that are long."""
        indices = used(self.weights)
        total = sum(len(self.sequences[i]) for i in indices)
        size = max(MIN_PIECE, total // (n_batches * SIDE_BY_SIDE)) if may_cut else total
        order = [indices[j] for j in torch.randperm(len(indices), generator=generator).tolist()]
        pieces = [piece for i in order for piece in cut(i, len(self.sequences[i]), size)]
        return [self._groups(pieces[b::n_batches]) for b in range(min(n_batches, len(pieces)))]

    def _groups(self, pieces: list[Piece]) -> Batch:
        return grouped(pieces, lambda piece: self.weights[piece.sequence], len, self._frames_at_once)


def cut(sequence: int, length: int, size: int) -> list[Piece]:
    """Equal pieces of about ``size`` frames; the whole sequence where two would be shorter."""
    n = max(1, length // size)
    edges = [length * i // n for i in range(n + 1)]
    return [Piece(sequence, a, b, length) for a, b in pairwise(edges)]


# -- from encoded examples -----------------------------------------------------------------------------------


def corpus_of(
    examples: Sequence[Example], n_past: int, n_states: int, n_densities: int, device: torch.device, dtype: torch.dtype
) -> Corpus:
    """Sources and what follows them joined; the states of each where any sequence has some."""
    joined = [e.values if e.source is None else np.concatenate([e.source, e.values]) for e in examples]
    states = None
    if any(e.states is not None for e in examples):
        states = [np.full(len(x), -1) if e.states is None else e.states for x, e in zip(joined, examples, strict=True)]
        if any(known.ndim == 2 for known in states):
            states = [possible_states(torch.from_numpy(known), n_states).numpy() for known in states]
    return Corpus(joined, [e.weight for e in examples], states, n_past, n_states, n_densities, device, dtype)


def raw_size(examples: Sequence[Example], encoding: Encoding) -> tuple[float, float]:
    """Units and log-determinant of all that EM fits, sources too, by weight."""
    units = 0.0
    log_det = 0.0
    for e in examples:
        units += e.weight * e.n_units
        log_det += e.weight * e.log_det
        if e.source is not None:
            raw = encoding.decode(e.source)
            log_dets = np.broadcast_to(encoding.log_det(raw), len(e.source))
            units += e.weight * len(raw.encode() if isinstance(raw, str) else raw)
            log_det += e.weight * float(log_dets.sum())
    return units, log_det


def validation_score(log_prob_steps: Callable[[list[Example]], list[np.ndarray]], examples: list[Example]) -> float:
    """Nats per raw unit of held-out examples; NaN where there are none."""
    if not examples:
        return np.nan
    log_prob = sum(float(steps.sum()) for steps in log_prob_steps(examples)) + sum(e.log_det for e in examples)
    return log_prob / sum(e.n_units for e in examples)


def check_states(examples: Sequence[Example], n_states: int) -> None:
    """Raise ``ValueError``, naming the sequence, for labels that do not fit its encoded steps or the states."""
    for i, example in enumerate(examples):
        if example.states is None:
            continue
        n = len(example.values) + (0 if example.source is None else len(example.source))
        if example.states.ndim == 2:
            _check_possible(i, example.states, (n, n_states))
            continue
        if example.states.shape != (n,) or example.states.dtype.kind not in "iu":
            raise ValueError(
                f"states of sequence {i} have shape {example.states.shape} and type {example.states.dtype}; pass an "
                "integer for "
                f"each of its {n} encoded steps, -1 where the state is not known"
            )
        if example.states.min() < -1 or example.states.max() >= n_states:
            raise ValueError(
                f"states of sequence {i} go from {example.states.min()} to {example.states.max()}; pass 0 to "
                f"{n_states - 1}, or "
                "-1 where the state is not known"
            )


def _check_possible(i: int, states: np.ndarray, shape: tuple[int, int]) -> None:
    if states.shape != shape or states.dtype != bool:
        raise ValueError(
            f"states of sequence {i} have shape {states.shape} and type {states.dtype}; pass booleans of shape "
            f"{shape}, which states "
            "are possible at each encoded step, or an integer for each step"
        )
    if not states.any(1).all():
        raise ValueError(
            f"states of sequence {i} allow none at step {int(np.argmin(states.any(1)))}; allow at least one"
        )
