"""Ragged encoded sequences -> padded tensors: what a network is shown at each step and what it is asked.

Step j of a row predicts its element j and is shown element j - 1 (a learned start at j = 0). With a source, a network
without an encoder reads source and target as one row, of which only the target is scored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from seqmodels.preparation import Example


@dataclass(frozen=True)
class Row:
    """One sequence as a network meets it: ``values`` (L, ...) of which those from ``first`` on are scored."""

    values: np.ndarray
    first: int
    source: np.ndarray | None
    weight: float
    ends: bool

    @classmethod
    def of(cls, example: Example, reads_source: bool, ends: bool) -> Row:
        if example.source is None or reads_source:
            return cls(example.values, 0, example.source, example.weight, ends)
        joined = np.concatenate([example.source, example.values])
        return cls(joined, len(example.source), None, example.weight, ends)

    @property
    def n_steps(self) -> int:
        return len(self.values) + self.ends


@dataclass(frozen=True)
class Span:
    """Steps ``begin .. end - 1`` of a row."""

    row: int
    begin: int
    end: int


@dataclass(frozen=True)
class Chunk:
    """A padded batch of spans, B by T. ``shown`` and ``asked`` are (B, T) symbols or (B, T, D) vectors; masks are (B, T)."""

    shown: Tensor
    asked: Tensor
    is_start: Tensor
    is_end: Tensor
    may_end: Tensor
    is_target: Tensor
    scored: Tensor  # float: the weight of the step, 0 where padded or not asked
    past: Tensor | None
    source: Tensor | None  # (B, S, ...)
    source_mask: Tensor | None
    rows: list[int]

    @property
    def n_steps(self) -> int:
        return int((self.scored > 0).sum() - (self.is_end & (self.scored > 0)).sum())


def assemble(
    rows: list[Row],
    spans: list[Span],
    n_past: int,
    device: torch.device,
    dtype: torch.dtype,
    *,
    cut_sources: bool = False,
) -> Chunk:
    """Cut the spans out of their rows and pad them on the right; ``cut_sources``: out of their sources the same steps."""
    width = max(span.end - span.begin for span in spans)
    pieces = [_cut(rows[span.row], span, width, n_past) for span in spans]
    columns = [torch.as_tensor(np.stack(column), device=device) for column in zip(*pieces, strict=True)]
    shown, asked, is_start, is_end, may_end, is_target, scored, past = columns
    sources = [_part(rows[s.row].source, s) if cut_sources else rows[s.row].source for s in spans]
    source, source_mask = pad_sources(sources, device, dtype)
    vectors = shown.is_floating_point()
    return Chunk(
        shown.to(dtype) if vectors else shown,
        asked.to(dtype) if vectors else asked,
        is_start,
        is_end,
        may_end,
        is_target,
        scored,
        past.to(dtype) if n_past else None,
        source,
        source_mask,
        [span.row for span in spans],
    )


def _cut(row: Row, span: Span, width: int, n_past: int) -> tuple[np.ndarray, ...]:
    values, n = row.values, len(row.values)
    step = np.arange(span.begin, span.begin + width)
    real = step < min(span.end, row.n_steps)
    shown = values[np.clip(step - 1, 0, n - 1)]
    asked = values[np.clip(step, 0, n - 1)]
    scored = np.where(real & (step >= row.first), row.weight, 0.0)
    past = np.zeros(0)
    if n_past:
        index = step[:, None] - np.arange(n_past, 0, -1)  # (T, p), oldest first
        past = np.where((index >= 0)[..., None], values[np.clip(index, 0, n - 1)], np.nan)
    may_end = (step > row.first) & row.ends
    return shown, asked, step == 0, (step == n) & row.ends, may_end, step >= row.first, scored, past


def _part(source: np.ndarray | None, span: Span) -> np.ndarray | None:
    return None if source is None else source[span.begin : span.end]


def pad_sources(
    sources: Sequence[np.ndarray | None], device: torch.device, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """``(B, S, ...)``, floats of this ``dtype``, padded on the right, and a mask ``(B, S)``; None and None where there are none."""
    real = [source for source in sources if source is not None]
    if not real:
        return None, None
    lengths = torch.tensor([len(source) for source in real], device=device)
    padded = torch.nn.utils.rnn.pad_sequence([torch.as_tensor(s) for s in real], batch_first=True).to(device)
    mask = torch.arange(padded.shape[1], device=device) < lengths.unsqueeze(1)
    return (padded.to(dtype) if padded.is_floating_point() else padded), mask


def _source_length(row: Row) -> int:
    """In steps of a twentieth, so that among long sources there is something left to order by target; 0: there is none."""
    return 0 if row.source is None else 1 + round(20 * math.log(len(row.source)))


def windows(n_steps: int, context: int, stride: int | None = None) -> list[tuple[int, int, int]]:
    """``(begin, end, scored_from)``: windows anchored at the start, ``stride`` apart (half their length); each step is scored once.

    >>> windows(10, 4)
    [(0, 4, 0), (2, 6, 4), (4, 8, 6), (6, 10, 8)]
    """
    hop = stride or max(1, context // 2)
    result = [(0, min(context, n_steps), 0)]
    while result[-1][1] < n_steps:
        begin = result[-1][0] + hop
        result.append((begin, min(begin + context, n_steps), result[-1][1]))
    return result


@dataclass(frozen=True)
class Reach:
    """How far back a network sees: ``context`` steps, in windows ``stride`` apart (None: half of it); or all of the past.

    Raises:
        ValueError: windows that would leave steps out.
    """

    context: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.context is not None and not 1 <= self.hop <= self.context:
            raise ValueError(f"stride is {self.stride}; pass a number from 1 to the context, which is {self.context}")

    @property
    def hop(self) -> int:
        """Steps from a window to the next."""
        assert self.context is not None
        return max(1, self.context // 2) if self.stride is None else self.stride

    def windows(self, n_steps: int) -> list[tuple[int, int, int]]:
        """Those of a row: ``(begin, end, scored_from)``."""
        return [(0, n_steps, 0)] if self.context is None else windows(n_steps, self.context, self.hop)

    def window_of(self, position: int, window: int) -> int:
        """Where the window begins that scores step ``position``; the step before was scored in that which begins at ``window``."""
        ends = self.context is not None and position == window + self.context
        return window + self.hop if ends else window


@dataclass(frozen=True)
class Batching:
    """How an epoch is cut: pieces of at most ``piece`` steps, ``batch_size`` of like length together, ``chunk`` steps at a time.

    With ``carry`` the memory is handed from chunk to chunk of a batch (truncated back-propagation); without, a piece is one chunk.
    """

    batch_size: int
    chunk: int
    carry: bool

    def piece(self, rows: list[Row]) -> int:
        """With carry, a few long sequences become ``batch_size`` parallel streams."""
        if not self.carry:
            return self.chunk
        return max(4 * self.chunk, -(-sum(row.n_steps for row in rows) // self.batch_size))

    def n_chunks(self, rows: list[Row]) -> int:
        """About how many chunks an epoch has."""
        return sum(1 for _ in self.epoch(rows, np.random.default_rng(0)))

    def epoch(self, rows: list[Row], rng: np.random.Generator) -> Iterator[tuple[list[Span], bool]]:
        """Spans of each chunk, and whether its memory continues from the chunk before."""
        for batch in self._batches(rows, rng):
            longest = max(span.end - span.begin for span in batch)
            for k in range(0, longest, self.chunk):
                ends = [Span(s.row, min(s.begin + k, s.end), min(s.begin + k + self.chunk, s.end)) for s in batch]
                yield ends, k > 0

    def _batches(self, rows: list[Row], rng: np.random.Generator) -> list[list[Span]]:
        size = self.piece(rows)
        spans = [span for i, row in enumerate(rows) for span in self._pieces(i, row, size, rng)]
        # Like lengths together, sources first, but not always the same ones; and no batch much smaller than another.
        noise = rng.uniform(0.9, 1.1, len(spans))
        lengths = [(s.end - s.begin) * x for s, x in zip(spans, noise, strict=True)]
        order = np.lexsort((lengths, [_source_length(rows[s.row]) for s in spans]))
        parts = np.array_split(order, -(-len(spans) // self.batch_size))
        return [[spans[i] for i in parts[j]] for j in rng.permutation(len(parts))]

    def _pieces(self, i: int, row: Row, size: int, rng: np.random.Generator) -> list[Span]:
        """A row cut into pieces of at most about ``size`` steps: windows from a random offset, or streams of one length."""
        n = row.n_steps
        if n <= size:
            return [Span(i, 0, n)]
        if self.carry:
            k, shift = -(-n // size), int(rng.integers(self.chunk)) - self.chunk // 2
            cuts = [0, *(round(j * n / k) + shift for j in range(1, k)), n]
        else:
            cuts = [0, *range(int(rng.integers(1, size + 1)), n, size), n]
        return [Span(i, a, b) for a, b in pairwise(cuts) if b > row.first]
