"""Pairs of a source and a target side by side: sources of one length, what steps may see of them, and the recursions over places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Self

import numpy as np
import torch

from seqmodels.hmm.inference.scratch import Scratch
from seqmodels.hmm.inference.segments import Segments
from seqmodels.preparation import Example

CELLS_AT_ONCE = 1 << 20  # a cell is a step of a target at a place of its source


@dataclass(frozen=True)
class Alphabets:
    """``n_source`` symbols, then the edge of a source, then the null; ``n_target`` symbols, then the start of a target."""

    n_source: int
    n_target: int

    def windows(self, sources: np.ndarray, window: int) -> np.ndarray:
        """``(n, S)`` symbols -> ``(n, S + 2, window)`` around each place, the end, and, last, the null."""
        half = window // 2
        padded = np.pad(sources, ((0, 0), (half, half + 1)), constant_values=self.n_source)
        around = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
        nothing = np.full((len(sources), 1, window), self.n_source + 1)
        return np.concatenate([around, nothing], axis=1)


@dataclass(frozen=True, eq=False)
class Block:
    """n pairs whose sources have S places and which count alike; N steps in all, by the rows of ``segments.packing``.

    Attributes:
        indices: which pairs, longest target first.
        windows: (n, S + 2, window) source symbols around each place, the end and the null.
        y: (N,) target symbols. previous: (N,) those before them.
        weight: what each pair counts.
        segments: of the targets.
        scratch: what the recursions write on.
    """

    indices: list[int]
    windows: np.ndarray
    y: np.ndarray
    previous: np.ndarray
    weight: float
    segments: Segments
    scratch: Scratch
    null: bool

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        indices: list[int],
        alphabets: Alphabets,
        window: int,
        *,
        null: bool,
        device: torch.device,
        dtype: torch.dtype,
        scratch: Scratch,
    ) -> Self:
        """Of these examples, whose sources are of one length."""
        chosen = [examples[i] for i in indices]
        sources = np.stack([np.asarray(e.source) for e in chosen])
        lengths = np.array([len(e.values) for e in chosen])
        n_states = (2 * sources.shape[1] + 1) if null else sources.shape[1]
        segments = Segments.fastest(lengths, n_states, dtype, device)
        sequence, time = segments.sequence.cpu().numpy(), segments.time.cpu().numpy()
        values = np.concatenate([np.asarray(e.values) for e in chosen])
        row = (np.cumsum(lengths) - lengths)[sequence] + time
        previous = np.where(time == 0, alphabets.n_target, values[row - 1])
        windows = alphabets.windows(sources, window)
        return cls(indices, windows, values[row], previous, chosen[0].weight, segments, scratch, null)

    @property
    def n_places(self) -> int:
        """S."""
        return self.windows.shape[1] - 2

    @cached_property
    def sequence(self) -> np.ndarray:
        """(N,) which pair each row belongs to."""
        return self.segments.sequence.cpu().numpy()

    @cached_property
    def last(self) -> np.ndarray:
        """(n,) the row of each pair's last step."""
        return self.segments.last.cpu().numpy()

    @property
    def around(self) -> np.ndarray:
        """(N, S', window): what steps may see at each place, and at the null if there is one."""
        seen = self.windows[:, : self.n_places] if not self.null else np.delete(self.windows, self.n_places, axis=1)
        return seen[self.sequence]

    @property
    def landings(self) -> np.ndarray:
        """(n, S + 1, window): what is around each place, and the end."""
        return self.windows[:, :-1]

    def shares(self, gamma: np.ndarray) -> np.ndarray:
        """(..., K) posteriors of states -> (..., S') of places, and of the null."""
        if not self.null:
            return gamma
        places, nulls = gamma[..., : self.n_places], gamma[..., self.n_places :]
        return np.concatenate([places, nulls.sum(-1, keepdims=True)], -1)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """(..., S') of places and the null -> (..., K) of states: wherever it stands, the null is the same."""
        if not self.null:
            return values
        nulls = np.repeat(values[..., -1:], self.n_places + 1, axis=-1)
        return np.concatenate([values[..., :-1], nulls], -1)


def blocks_of(
    examples: Sequence[Example],
    alphabets: Alphabets,
    window: int,
    *,
    null: bool,
    device: torch.device,
    dtype: torch.dtype,
) -> list[Block]:
    """All pairs that count, those of like sources together."""

    def alike(i: int) -> tuple[int, float]:
        return len(np.asarray(examples[i].source)), examples[i].weight

    lengths = [len(e.values) for e in examples]
    used = [i for i, e in enumerate(examples) if e.weight > 0]
    used.sort(key=lambda i: (*alike(i), -lengths[i]))
    scratch = Scratch()
    return [
        Block.of(examples, part, alphabets, window, null=null, device=device, dtype=dtype, scratch=scratch)
        for (n_places, _), group in groupby(used, key=alike)
        for part in _parts(list(group), lengths, CELLS_AT_ONCE // (n_places + null))
    ]


def _parts(indices: list[int], lengths: list[int], most: int) -> list[list[int]]:
    """Runs of at most so many steps, or of one pair."""
    parts, steps = list[list[int]](), most
    for i in indices:
        if steps + lengths[i] > most:
            parts.append([])
            steps = 0
        parts[-1].append(i)
        steps += lengths[i]
    return [part for part in parts if part]
