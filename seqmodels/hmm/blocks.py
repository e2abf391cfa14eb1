"""Sequences in blocks of bounded size, packed for the recursions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.scratch import Scratch

# Frames times densities computed for each, in a block: bounds memory.
ELEMENTS_AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 28}


@dataclass(frozen=True)
class Block:
    """Sequences fitted at once, of one weight: packed frames ``x``, the ``past`` of each, the cutting; ``indices``: which they are.

    ``states (N,)``, packed: the state of each frame where it is known, -1 where not; None: nowhere.
    ``scratch``: blocks made together share one, for they are worked on one after the other.
    """

    x: Tensor
    past: Tensor | None
    cutting: Cutting
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
) -> list[Block]:
    """Sequences of one weight and like length together, a bounded number of frames unless one alone has more."""
    most = frames_at_once(n_densities, device)
    order = sorted((i for i, w in enumerate(weights) if w > 0), key=lambda i: (weights[i], len(sequences[i])))
    groups: list[list[int]] = []
    frames = 0
    for i in order:
        if not groups or weights[i] != weights[groups[-1][0]] or frames + len(sequences[i]) > most:
            groups.append([])
            frames = 0
        groups[-1].append(i)
        frames += len(sequences[i])
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
    cutting = Cutting.of([last - first for _, first, last in parts], n_states, dtype, device)
    values = torch.as_tensor(np.concatenate([sequences[i][first:last] for i, first, last in parts]), device=device)
    x = cutting.packing.pack(values.to(dtype) if values.is_floating_point() else values)
    past = known = None
    if n_past:
        before = np.concatenate([_past(sequences[i], first, last, n_past) for i, first, last in parts])
        past = cutting.packing.pack(torch.as_tensor(before, device=device, dtype=dtype))
    if states is not None:
        labels = np.concatenate([states[i][first:last] for i, first, last in parts])
        known = cutting.packing.pack(torch.as_tensor(labels, device=device))
    return Block(x, past, cutting, weight, [i for i, _, _ in parts], scratch, known)


def _past(frames: np.ndarray, first: int, last: int, n_past: int) -> np.ndarray:
    """``(n, p, D)``: the steps before each of frames ``first .. last - 1``, oldest first, NaN before the sequence."""
    early = np.full((max(0, n_past - first), frames.shape[1]), np.nan)
    padded = np.concatenate([early, frames[max(0, first - n_past) : last]])
    return np.stack([padded[i : i + last - first] for i in range(n_past)], axis=1)
