"""Padded tensors with the inputs and targets of every step, made from encoded sequences of different lengths.

The elements of a sequence are its symbols or vectors. Step j of a row has element j as its target and element j - 1 as
its input (a learned start vector at j = 0). If there is a source, a network without an encoder reads source and target
as one row, of which only the target is scored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example, no_garbage_collection
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.neural.ops.padding import pad_right, to_device

FRAMES_LOOKED_BACK = 1 << 10  # read at once, in search of a value that is not missing
STRETCHES = 64  # stretches of consecutive steps that make a block
MAX_RANGES = 1 << 17  # ranges of an epoch in memory at once; with more, they are shuffled in blocks


@dataclass(slots=True)  # not frozen, like Example
class Row:
    """One sequence as a network reads it: elements (symbols or vectors), a source for an encoder, and a weight.

    Attributes:
        values: the L elements, symbols ``(L,)`` or vectors of D features ``(L, D)``; from ``first`` on they are scored.
        first: the index of the first scored element, which is not 0 if the row begins with a source.
        source: the S elements of the source for an encoder, (S,) or (S, D), or None.
        weight: the weight of every step in the objective.
        has_end: True if the model predicts the end, which is then one more step.
        n_past: how many elements from ``first`` on are only context, whose log-probabilities do not count in sums.
        exogenous: the U exogenous inputs of each element, (L, U), or None if the network reads none.
    """

    values: np.ndarray
    first: int
    source: np.ndarray | None
    weight: float
    has_end: bool
    n_past: int = 0
    exogenous: np.ndarray | None = None

    @classmethod
    def from_example(cls, example: Example, reads_source: bool, has_end: bool) -> Row:
        """Return the row for an encoded example.

        Args:
            example: encoded sequence, with a source if it has one.
            reads_source: True if an encoder reads the source; if not, the source becomes the beginning of the row.
            has_end: True if the model predicts the end of sequences.
        """
        if example.source is None or reads_source:
            known = (example.n_past, example.inputs)
            return cls(example.values, 0, example.source, example.weight, has_end, *known)
        joined = np.concatenate([example.source, example.values])
        return cls(joined, len(example.source), None, example.weight, has_end, example.n_past)

    @property
    def n_steps(self) -> int:
        """The number of steps, with the end if the model predicts it."""
        return len(self.values) + self.has_end


@dataclass(slots=True)
class StepRange:
    """A range of steps of one sequence: ``begin .. end - 1`` of row number ``row`` in a list of rows."""

    row: int
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class PaddedBatch:
    """Steps of B rows (sequences or parts of them), padded on the right to T steps.

    Attributes:
        inputs, targets: element before each step and element of the step: symbols (B, T), or vectors of D features
            (B, T, D); padding has any valid value.
        is_start: True at the first step of a row, whose input is the learned start vector, (B, T).
        is_end: True at the step whose target is the end, (B, T).
        may_end: True where the model predicts the end as one of the events, (B, T).
        is_after_source: True at steps after the source, if source and target are one row, (B, T).
        step_weights: the weight of each step's log-probability, (B, T); it is 0 for padding and steps that are not
            scored.
        past: the p elements before each step, oldest first, (B, T, p, D), NaN before the first, or None if p is 0. A
            missing value is replaced by the last one before it (see ``carried_forward``).
        source, source_mask: for an encoder, the source of S steps (B, S) or (B, S, D), and a mask (B, S) that is False
            at padding.
        rows: for each of the B, the index of its row.
        exogenous: the U exogenous inputs of each step, (B, T, U), zero for padding, or None if the network reads none.
        n_steps: how many steps are scored, without ends.
    """

    inputs: Tensor
    targets: Tensor
    is_start: Tensor
    is_end: Tensor
    may_end: Tensor
    is_after_source: Tensor
    step_weights: Tensor
    past: Tensor | None
    source: Tensor | None
    source_mask: Tensor | None
    rows: list[int]
    n_steps: int
    exogenous: Tensor | None = None


def weight_of(rows: list[Row], ranges: list[StepRange]) -> float:
    """Return the sum of the weights of all scored steps in these ranges, as in ``PaddedBatch.step_weights``.

    Args:
        rows: sequences, each with the weight of its steps.
        ranges: ranges of steps; each refers to a row by its index.
    """
    return sum(rows[r.row].weight * max(0, r.end - max(r.begin, rows[r.row].first)) for r in ranges)


def assemble(
    rows: list[Row],
    ranges: list[StepRange],
    n_past: int,
    device: torch.device,
    dtype: torch.dtype,
    *,
    aligned_sources: bool = False,
) -> PaddedBatch:
    """Return the steps of ``ranges`` as a batch of inputs and targets, padded on the right.

    Args:
        rows: the sequences to which the ranges refer.
        ranges: the steps of each row of the batch.
        n_past: number of elements before each step in ``PaddedBatch.past``.
        device, dtype: where the batch is placed, and the type of its vectors.
        aligned_sources: True if source and target have the same steps, so that the batch has the same range of both;
            False puts whole sources into the batch.
    """
    width = max(1, *map(len, ranges))  # all may have ended, if other processes have other rows of the batch
    fields = _steps_of_rows([rows[r.row] for r in ranges], ranges, width, n_past)
    columns = [to_device(torch.as_tensor(column), device) for column in fields]
    inputs, targets, is_start, is_end, may_end, is_after_source, step_weights, past = columns
    sources = [_steps_of_source(rows[r.row].source, r) if aligned_sources else rows[r.row].source for r in ranges]
    source, source_mask = pad_sources(sources, device, dtype)
    vectors = inputs.is_floating_point()
    return PaddedBatch(
        inputs=inputs.to(dtype) if vectors else inputs,
        targets=targets.to(dtype) if vectors else targets,
        is_start=is_start,
        is_end=is_end,
        may_end=may_end,
        is_after_source=is_after_source,
        step_weights=step_weights,
        past=past.to(dtype) if n_past else None,
        source=source,
        source_mask=source_mask,
        rows=[r.row for r in ranges],
        n_steps=int(((fields[6] > 0) & ~fields[3]).sum()),
        exogenous=_exogenous(rows, ranges, width, device, dtype),
    )


def _exogenous(
    rows: list[Row], ranges: list[StepRange], width: int, device: torch.device, dtype: torch.dtype
) -> Tensor | None:
    """Return the U exogenous inputs of the steps of B ranges, padded with zeros, ``(B, T, U)``; None if rows have none.

    Args:
        rows: sequences with their exogenous inputs.
        ranges: the B ranges of steps.
        width: number of steps T after padding.
        device, dtype: where the result is placed, and its type.
    """
    parts = [rows[r.row].exogenous for r in ranges]
    known = [u[r.begin : r.end] for u, r in zip(parts, ranges, strict=True) if u is not None]
    if not known:
        return None
    padded = np.zeros((len(ranges), width, known[0].shape[1]))
    for of_range, u in zip(padded, known, strict=True):
        of_range[: len(u)] = u
    return to_device(torch.as_tensor(padded, dtype=dtype), device)


def _steps_of_rows(rows: list[Row], ranges: list[StepRange], width: int, n_past: int) -> list[np.ndarray]:
    """Return the fields of ``PaddedBatch`` from ``inputs`` to ``past``, in this order, as arrays for B ranges of steps.

    Args:
        rows: the row (sequence) of each range.
        ranges: the B ranges.
        width: number of steps T after padding.
        n_past: number of elements before each step in ``past``.
    """
    # Take the elements of a row's steps, and the elements before them that they look back at. Missing values of
    # the past are carried forward from the row's beginning, or on disk from the last one that is not missing.
    n = np.array([len(row.values) for row in rows])
    begin, end = np.array([r.begin for r in ranges]), np.array([r.end for r in ranges])
    from_beginning = n_past > 0 and not any(isinstance(row.values, OnDisk) for row in rows)
    low = np.zeros_like(n) if from_beginning else np.minimum(np.maximum(begin - max(1, n_past), 0), n - 1)
    high = np.maximum(low + 1, np.minimum(n, np.minimum(begin + width, end)))
    parts = [row.values[a:b] for row, a, b in zip(rows, low.tolist(), high.tolist(), strict=True)]
    joined = np.concatenate(parts)
    first = (np.cumsum(high - low) - high)[:, None]  # a row's element t is at first + t in ``joined``
    step = begin[:, None] + np.arange(width)  # (B, T)
    n_steps = n + np.array([row.has_end for row in rows])
    has_end = np.array([row.has_end for row in rows])[:, None]
    scored_from = np.array([row.first for row in rows])[:, None]
    weight = np.array([row.weight for row in rows])[:, None]
    mask = step < np.minimum(end, n_steps)[:, None]
    lowest, highest = low[:, None], high[:, None] - 1
    inputs = joined[first + np.minimum(np.maximum(step - 1, lowest), highest)]
    targets = joined[first + np.minimum(np.maximum(step, lowest), highest)]
    step_weights = np.where(mask & (step >= scored_from), weight, 0.0)
    past = np.zeros((len(rows), 0))
    if n_past:
        filled = np.concatenate(
            [
                carried_forward(part, _last_observed(row.values, int(a)))
                for part, row, a in zip(parts, rows, low, strict=True)
            ]
        )
        index = step[:, :, None] - np.arange(n_past, 0, -1)  # (B, T, p), oldest first
        at = first[:, :, None] + np.minimum(np.maximum(index, lowest[:, :, None]), highest[:, :, None])
        past = np.where((index >= 0)[..., None], filled[at], np.nan)
    may_end = (step > scored_from) & has_end
    is_end = (step == n[:, None]) & has_end
    return [inputs, targets, step == 0, is_end, may_end, step >= scored_from, step_weights, past]


def carried_forward(values: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """Return values in which each missing one (NaN) is replaced by the last observed value of its feature.

    Before the first observed value it is 0, the mean of standardised data.

    Args:
        values: L vectors of D features, ``(L, D)``.
        before: the last observed values before these, ``(D,)``, if they do not begin their sequence; else None.
    """
    missing = np.isnan(values)
    if not missing.any():
        return values
    if before is not None:
        values = np.concatenate([np.where(missing[:1], before, values[:1]), values[1:]])
    last = np.maximum.accumulate(np.where(missing, 0, np.arange(len(values))[:, None]), axis=0)
    filled: np.ndarray = np.nan_to_num(np.take_along_axis(values, last, axis=0), nan=0.0)
    return filled


def _last_observed(values: np.ndarray, stop: int) -> np.ndarray | None:
    """Return the last observed value of each of D features before a step of a row on disk, ``(D,)``, or NaN.

    Return None if no value is missing, or for a row in memory, which is filled from its beginning.

    Args:
        values: the row's elements.
        stop: the step, which is not looked at itself.
    """
    if not isinstance(values, OnDisk) or not values.has_missing:
        return None
    observed = np.full(values.shape[1], np.nan)
    while stop > 0 and np.isnan(observed).any():
        frames = values[max(0, stop - FRAMES_LOOKED_BACK) : stop]
        at = np.where(np.isnan(frames), -1, np.arange(len(frames))[:, None]).max(axis=0)
        latest = np.where(at >= 0, np.take_along_axis(frames, np.maximum(at, 0)[None], axis=0)[0], np.nan)
        observed, stop = np.where(np.isnan(observed), latest, observed), stop - len(frames)
    return observed


def _steps_of_source(source: np.ndarray | None, steps: StepRange) -> np.ndarray | None:
    return None if source is None else source[steps.begin : steps.end]


def pad_sources(
    sources: Sequence[np.ndarray | None], device: torch.device, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """Pad B sources on the right to the length S of the longest, and return them with a mask.

    Args:
        sources: symbols or vectors (D features) of each source; None for a row without a source.
        device, dtype: where the result is placed, and the type of vectors.

    Returns:
        The sources, ``(B, S)`` or ``(B, S, D)``, and their mask ``(B, S)``, False at padding; both None if there are no
        sources.
    """
    present = [source for source in sources if source is not None]
    if not present:
        return None, None
    padded, mask = pad_right(present, device)
    return (padded.to(dtype) if padded.is_floating_point() else padded), mask


# -- windows ---------------------------------------------------------------------------------------------------


def _each_window(n_steps: int, context: int, hop: int) -> Iterator[tuple[int, int, int]]:
    begin, end, scored_from = 0, min(context, n_steps), 0
    yield begin, end, scored_from
    while end < n_steps:
        begin, scored_from = begin + hop, end
        end = min(begin + context, n_steps)
        yield begin, end, scored_from


@dataclass(frozen=True)
class Windowing:
    """A division of long sequences into overlapping windows, for networks that see at most ``context`` steps.

    Args:
        context: number of steps of a window; None reads all steps in one.
        stride: number of steps from the beginning of a window to the next; None means half the context.

    Raises:
        ValueError: if ``stride`` is below 1 or above ``context``, so that steps would be left out.

    >>> Windowing(4).windows(10)
    [(0, 4, 0), (2, 6, 4), (4, 8, 6), (6, 10, 8)]
    """

    context: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.context is not None and not 1 <= self.hop <= self.context:
            raise ValueError(f"stride is {self.stride}; pass a number from 1 to the context, which is {self.context}")

    @property
    def hop(self) -> int:
        """The number of steps from the beginning of a window to the beginning of the next."""
        assert self.context is not None
        return max(1, self.context // 2) if self.stride is None else self.stride

    def windows(self, n_steps: int) -> list[tuple[int, int, int]]:
        """Return the windows of a row of ``n_steps`` steps as ``(begin, end, scored_from)``.

        A window holds the steps ``begin .. end - 1`` and scores those from ``scored_from`` on, so that each step is
        scored once.
        """
        return list(self.each_window(n_steps))

    def each_window(self, n_steps: int) -> Iterator[tuple[int, int, int]]:
        return iter([(0, n_steps, 0)]) if self.context is None else _each_window(n_steps, self.context, self.hop)

    def window_of(self, position: int, window: int) -> int:
        """Return the first step of the window that scores step ``position``.

        Args:
            position: the step.
            window: the first step of the window that scored the step before ``position``.
        """
        is_full = self.context is not None and position == window + self.context
        return window + self.hop if is_full else window


# -- epochs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batching:
    """A division of an epoch into batches, for back-propagation through at most ``bptt`` steps at a time.

    A range is a sequence or a part of one.

    Args:
        batch_size: number of ranges of steps in a batch, which have similar lengths.
        bptt: number of steps that are read and back-propagated through at once.
        carries_state: True if ranges are longer than ``bptt``, and the network's state is carried from one ``bptt``
            steps to the next (truncated back-propagation). False: no range is longer than ``bptt``.
    """

    batch_size: int
    bptt: int
    carries_state: bool

    def longest_range(self, rows: list[Row]) -> int:
        """Return about how many steps the ranges may have into which ``rows`` (sequences) are divided.

        With ``carries_state`` a few long sequences are divided into about ``batch_size`` ranges, which are read side by
        side.
        """
        if not self.carries_state:
            return self.bptt
        return max(4 * self.bptt, -(-sum(row.n_steps for row in rows) // self.batch_size))

    def n_batches(self, rows: list[Row]) -> int:
        """Return about how many training steps an epoch over ``rows`` (sequences) has."""
        longest = self.longest_range(rows)
        n_ranges = sum(-(-row.n_steps // longest) for row in rows)
        if n_ranges > MAX_RANGES:
            return -(-n_ranges // self.batch_size) * -(-longest // self.bptt)
        rng = np.random.default_rng(0)
        batches = (batch for block in self._blocks(rows, rng) for batch in self._batches(rows, block, rng))
        return sum(-(-max(map(len, batch)) // self.bptt) for batch in batches)

    def _blocks(self, rows: list[Row], rng: np.random.Generator) -> Iterator[list[tuple[int, int, int]]]:
        """Yield the blocks of the data, each of which is divided into batches by itself, as ``(row, first step, end)``.

        All rows are one block, unless they have more than ``MAX_RANGES`` ranges; a block then has about so many, cut
        from places all over the data.
        """
        longest = self.longest_range(rows)
        n_ranges = sum(-(-row.n_steps // longest) for row in rows)
        whole = [(i, 0, row.n_steps) for i, row in enumerate(rows)]
        if n_ranges <= MAX_RANGES:
            yield whole
            return
        n_blocks = -(-n_ranges // MAX_RANGES)
        size = max(longest, sum(row.n_steps for row in rows) // (n_blocks * STRETCHES) + 1)
        stretches = [(i, a, min(a + size, n)) for i, _, n in whole for a in range(0, n, size)]
        order = rng.permutation(len(stretches))
        for part in np.array_split(order, n_blocks):
            yield [stretches[j] for j in part]

    def epoch(self, rows: list[Row], rng: np.random.Generator) -> Iterator[tuple[list[StepRange], bool]]:
        """Yield the batches of an epoch: ranges of at most ``bptt`` steps, and True if they continue the batch before.

        If they do, each range follows the range at the same place in the list before, and the network's state is
        carried on.

        Args:
            rows: training sequences.
            rng: generator of the shuffling.
        """
        batches = (batch for block in self._blocks(rows, rng) for batch in self._batches(rows, block, rng))
        for batch in batches:
            for k in range(0, max(map(len, batch)), self.bptt):
                yield [cut(r, k, self.bptt) for r in batch], k > 0

    def _batches(
        self, rows: list[Row], block: list[tuple[int, int, int]], rng: np.random.Generator
    ) -> list[list[StepRange]]:
        longest = self.longest_range(rows)
        with no_garbage_collection():
            ranges = [r for i, a, b in block for r in self._divide(i, rows[i], a, b, longest, rng)]
        # Similar lengths together, by source first, but not always the same ones; no batch much smaller than another.
        noise = rng.uniform(0.9, 1.1, len(ranges))
        lengths = [len(r) * x for r, x in zip(ranges, noise, strict=True)]
        order = np.lexsort((lengths, [_rounded_source_length(rows[r.row]) for r in ranges]))
        parts = np.array_split(order, -(-len(ranges) // self.batch_size))
        return [[ranges[i] for i in parts[j]] for j in rng.permutation(len(parts))]

    def _divide(
        self, i: int, row: Row, start: int, stop: int, longest: int, rng: np.random.Generator
    ) -> list[StepRange]:
        """Return the steps ``start .. stop - 1`` of row number i as ranges of at most about ``longest`` steps.

        The ranges begin at a random offset or, with ``carries_state``, have about the same length.

        Args:
            i: number of the row.
            row: the row.
            start, stop: first step, and end.
            longest: number of steps.
            rng: generator of the offsets.
        """
        n = stop - start
        if n <= longest:
            return [StepRange(i, start, stop)] if stop > row.first else []
        if self.carries_state:
            k, shift = -(-n // longest), int(rng.integers(self.bptt)) - self.bptt // 2
            bounds = [0, *(round(j * n / k) + shift for j in range(1, k)), n]
        else:
            bounds = [0, *range(int(rng.integers(1, longest + 1)), n, longest), n]
        return [StepRange(i, start + a, start + b) for a, b in pairwise(bounds) if start + b > row.first]


def cut(steps: StepRange, offset: int, length: int) -> StepRange:
    """Return at most ``length`` steps of a range from its step ``offset`` on; an empty range if it ends before."""
    begin = min(steps.begin + offset, steps.end)
    return StepRange(steps.row, begin, min(steps.begin + offset + length, steps.end))


def _rounded_source_length(row: Row) -> int:
    """Return a key that is equal for rows whose sources have about the same length, within 5 %; 0 without a source.

    Rows are sorted by it first, and then by their own length.
    """
    return 0 if row.source is None else 1 + round(20 * math.log(len(row.source)))
