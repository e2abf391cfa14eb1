"""Sequences in blocks of bounded size, packed for the recursions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.inference.scratch import Scratch
from seqmodels.hmm.inference.segments import Segments

Item = TypeVar("Item")
# Frames times densities computed for each, in a block: bounds memory.
ELEMENTS_AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 28}


@dataclass(frozen=True)
class Block:
    """Sequences fitted at once, of one weight: packed frames ``x``, the ``past`` of each, the segments; ``indices``: which they are.

    ``states (N,)``, packed: the state of each frame where it is known, -1 where not; or ``(N, K)`` bool, which are possible; None:
    nowhere is anything known.
    ``scratch``: blocks made together share one, for they are worked on one after the other.
    """

    x: Tensor
    past: Tensor | None
    segments: Segments
    weight: float
    indices: list[int]
    scratch: Scratch
    states: Tensor | None = None


def make_blocks(
    sequences: Sequence[np.ndarray],
    weights: Sequence[float],
    n_past: int,
    n_states: int,
    n_densities: int,
    device: torch.device,
    dtype: torch.dtype,
    states: Sequence[np.ndarray] | None = None,
    groups: list[list[int]] | None = None,
) -> list[Block]:
    """A block of each of the ``groups`` of sequences; by default of all, in ``groups_of``."""
    if groups is None:
        groups = groups_of(used(weights), sequences, weights, frames_at_once(n_densities, device))
    scratch = Scratch()
    return [
        piece_block(
            sequences,
            [(i, 0, len(sequences[i])) for i in group],
            weights[group[0]],
            n_past,
            n_states,
            device,
            dtype,
            scratch,
            states,
        )
        for group in groups
    ]


def used(weights: Sequence[float]) -> list[int]:
    """The sequences that have a weight."""
    return [i for i, w in enumerate(weights) if w > 0]


def groups_of(
    chosen: list[int], sequences: Sequence[np.ndarray], weights: Sequence[float], most: int
) -> list[list[int]]:
    """Sequences of one weight and like length together, at most ``most`` frames unless one alone has more."""
    return grouped(chosen, lambda i: weights[i], lambda i: len(sequences[i]), most)


def grouped(
    items: list[Item], weight: Callable[[Item], float], n_frames: Callable[[Item], int], most: int
) -> list[list[Item]]:
    """Items of one weight and like length together, at most ``most`` frames unless one alone has more."""
    groups: list[list[Item]] = []
    frames = 0
    for item in sorted(items, key=lambda item: (weight(item), n_frames(item))):
        if not groups or weight(item) != weight(groups[-1][0]) or frames + n_frames(item) > most:
            groups.append([])
            frames = 0
        groups[-1].append(item)
        frames += n_frames(item)
    return groups


def frames_at_once(n_densities: int, device: torch.device) -> int:
    """Most frames in one block."""
    return max(1, ELEMENTS_AT_ONCE.get(device.type, ELEMENTS_AT_ONCE["cpu"]) // n_densities)


def piece_block(
    sequences: Sequence[np.ndarray],
    parts: list[tuple[int, int, int]],
    weight: float,
    n_past: int,
    n_states: int,
    device: torch.device,
    dtype: torch.dtype,
    scratch: Scratch,
    states: Sequence[np.ndarray] | None,
) -> Block:
    """Frames ``first .. last - 1`` of sequence i for each ``(i, first, last)``; nothing else is read but the steps before."""
    segments = Segments.fastest([last - first for _, first, last in parts], n_states, dtype, device)
    values = torch.as_tensor(np.concatenate([sequences[i][first:last] for i, first, last in parts]), device=device)
    x = segments.packing.pack(values.to(dtype) if values.is_floating_point() else values)
    past = known = None
    if n_past:
        before = np.concatenate([_past(sequences[i], first, last, n_past) for i, first, last in parts])
        past = segments.packing.pack(torch.as_tensor(before, device=device, dtype=dtype))
    if states is not None:
        labels = np.concatenate([states[i][first:last] for i, first, last in parts])
        known = segments.packing.pack(torch.as_tensor(labels, device=device))
    return Block(x, past, segments, weight, [i for i, _, _ in parts], scratch, known)


def _past(frames: np.ndarray, first: int, last: int, n_past: int) -> np.ndarray:
    """``(n, p, D)``: the steps before each of frames ``first .. last - 1``, oldest first, NaN before the sequence."""
    early = np.full((max(0, n_past - first), frames.shape[1]), np.nan)
    padded = np.concatenate([early, frames[max(0, first - n_past) : last]])
    return np.stack([padded[i : i + last - first] for i in range(n_past)], axis=1)
