"""Pairs of a source and a target side by side: sources of one length, what steps may see of them, and the recursions over places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.alignment.jumps import Chain
from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import LogDensities
from seqmodels.hmm.scratch import Scratch
from seqmodels.hmm.trellis import Trellis
from seqmodels.preparation import Example

CELLS_AT_ONCE = 1 << 20  # a cell is a step of a target at a place of its source


@dataclass(frozen=True)
class Alphabets:
    """``n_source`` symbols, then the edge of a source, then the null; ``n_target`` symbols, then the start of a target."""

    n_source: int
    n_target: int

    def windows(self, sources: np.ndarray, window: int, *, null: bool) -> np.ndarray:
        """``(n, S)`` symbols -> ``(n, S, window)`` around each place, and with a null ``(n, S + 1, window)``, the null last."""
        half = window // 2
        padded = np.pad(sources, ((0, 0), (half, half)), constant_values=self.n_source)
        around = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
        nothing = np.full((len(sources), int(null), window), self.n_source + 1)
        return np.concatenate([around, nothing], axis=1)


@dataclass(frozen=True, eq=False)
class Block:
    """n pairs whose sources have S places and which count alike; N steps in all, by the rows of ``cutting.packing``.

    Attributes:
        indices: which pairs, longest target first.
        windows: (n, S', window) source symbols around each place, and around the null if there is one.
        y: (N,) target symbols. previous: (N,) those before them.
        weight: what each pair counts.
        cutting: of the targets.
        scratch: what the recursions write on.
    """

    indices: list[int]
    windows: np.ndarray
    y: np.ndarray
    previous: np.ndarray
    weight: float
    cutting: Cutting
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
        cutting = Cutting.of(lengths, n_states, dtype, device)
        sequence, time = cutting.sequence.cpu().numpy(), cutting.time.cpu().numpy()
        values = np.concatenate([np.asarray(e.values) for e in chosen])
        row = (np.cumsum(lengths) - lengths)[sequence] + time
        previous = np.where(time == 0, alphabets.n_target, values[row - 1])
        windows = alphabets.windows(sources, window, null=null)
        return cls(indices, windows, values[row], previous, chosen[0].weight, cutting, scratch, null)

    @property
    def n_places(self) -> int:
        """S."""
        return self.windows.shape[1] - self.null

    @cached_property
    def sequence(self) -> np.ndarray:
        """(N,) which pair each row belongs to."""
        return self.cutting.sequence.cpu().numpy()

    @property
    def around(self) -> np.ndarray:
        """(N, S', window): ``windows`` for every step."""
        return self.windows[self.sequence]

    def trellis(self, chain: Chain, p: np.ndarray, dtype: torch.dtype) -> Trellis:
        """The problem of inference, given probabilities ``p (N, S')`` of each step at each place (and the null)."""
        log_b = torch.from_numpy(p).to(self.cutting.lengths.device, dtype).log_()
        if self.null:  # wherever it stands, the null says the same
            log_b = torch.cat([log_b[:, :-1], log_b[:, -1:].expand(-1, self.n_places + 1)], 1)
        final = None if chain.final is None else torch.from_numpy(chain.final)
        initial, transition = torch.from_numpy(chain.initial), torch.from_numpy(chain.transition)
        return Trellis.of(initial, transition, LogDensities(log_b), self.cutting, final, self.scratch)

    def shares(self, gamma: Tensor) -> np.ndarray:
        """(N, K) posteriors of states -> (N, S') of places, and of the null."""
        if self.null:
            places, nulls = gamma[:, : self.n_places], gamma[:, self.n_places :]
            gamma = torch.cat([places, nulls.sum(1, keepdim=True)], 1)
        return gamma.cpu().numpy()


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

    used = [i for i, e in enumerate(examples) if e.weight > 0]
    used.sort(key=lambda i: (*alike(i), -len(examples[i].values)))
    scratch = Scratch()
    return [
        Block.of(examples, part, alphabets, window, null=null, device=device, dtype=dtype, scratch=scratch)
        for (n_places, _), group in groupby(used, key=alike)
        for part in _parts(list(group), [len(e.values) for e in examples], CELLS_AT_ONCE // (n_places + null))
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
