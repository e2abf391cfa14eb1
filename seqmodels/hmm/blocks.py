"""Sequences in blocks of bounded size, packed for the recursions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.scratch import Scratch

ELEMENTS_AT_ONCE = {
    "cpu": 1 << 25,
    "cuda": 1 << 28,
}  # frames times densities computed for each, in a block: bounds memory


@dataclass(frozen=True)
class Block:
    """Sequences fitted at once, of one weight: packed frames ``x``, the ``past`` of each, the cutting; ``indices``: which they are.

    ``scratch``: blocks made together share one, for they are worked on one after the other.
    """

    x: Tensor
    past: Tensor | None
    cutting: Cutting
    weight: float
    indices: list[int]
    scratch: Scratch


def make_blocks(
    sequences: list[np.ndarray],
    weights: list[float],
    n_past: int,
    n_states: int,
    n_densities: int,
    device: torch.device,
    dtype: torch.dtype,
) -> list[Block]:
    """Sequences of one weight and like length together, a bounded number of frames unless one alone has more."""
    most = max(1, ELEMENTS_AT_ONCE.get(device.type, ELEMENTS_AT_ONCE["cpu"]) // n_densities)
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
    return [_block(sequences, g, weights[g[0]], n_past, n_states, device, dtype, scratch) for g in groups]


def _block(
    everything: list[np.ndarray],
    indices: list[int],
    weight: float,
    n_past: int,
    n_states: int,
    device: torch.device,
    dtype: torch.dtype,
    scratch: Scratch,
) -> Block:
    sequences = [everything[i] for i in indices]
    cutting = Cutting.of([len(s) for s in sequences], n_states, dtype, device)
    values = torch.as_tensor(np.concatenate(sequences), device=device)
    x = cutting.packing.pack(values.to(dtype) if values.is_floating_point() else values)
    past = None
    if n_past:
        before = np.concatenate([_past(s, n_past) for s in sequences])
        past = cutting.packing.pack(torch.as_tensor(before, device=device, dtype=dtype))
    return Block(x, past, cutting, weight, indices, scratch)


def _past(frames: np.ndarray, n_past: int) -> np.ndarray:
    """``(T, D)`` -> ``(T, p, D)``: the steps before each, oldest first, NaN before the first."""
    padded = np.concatenate([np.full((n_past, frames.shape[1]), np.nan), frames])
    return np.stack([padded[i : i + len(frames)] for i in range(n_past)], axis=1)
