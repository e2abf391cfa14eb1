"""Sampling, written once on the cursor: step by step, for n sequences at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.cursor import Cursor, CursorState, begin
from seqmodels.generation.decoding import PLAIN, Decoding, Draw, draw
from seqmodels.generation.text import Watch

CHECK_EVERY = 16  # steps between looks at whether all sequences have ended: a look waits for the device


def draws(
    cursor: Cursor, state: CursorState, decoding: Decoding, generator: torch.Generator, *, may_end: bool
) -> Iterator[Draw]:
    """Step after step, for as long as they are asked for; sequences that have ended are carried along."""
    while True:
        drawn = draw(cursor.distribution(state), decoding, generator, may_end=may_end)
        yield drawn
        state = cursor.advance(state, drawn.x)


@torch.inference_mode()  # small networks spend less between operations than under no_grad
def sample_steps(
    cursor: Cursor,
    n: int,
    *,
    prefix: np.ndarray,
    source: np.ndarray | None,
    length: int | None,
    max_length: int,
    generator: torch.Generator,
    decoding: Decoding = PLAIN,
    watch: Watch | None = None,
) -> list[np.ndarray]:
    """Draw n sequences of encoded steps that begin with ``prefix``; with ``length`` the end is masked.

    ``watch`` ends a sequence after the step with which it says so.

    Raises:
        ValueError: a sequence that has not ended can neither go on nor end.
    """
    total = max_length if length is None else length
    if len(prefix) >= total:
        return [prefix[:total] for _ in range(n)]
    steps = draws(cursor, begin(cursor, source, prefix, n), decoding, generator, may_end=length is None)
    drawn, closed = _collect(islice(steps, total - len(prefix)), n, watch)
    n_drawn = _lengths([d.ended for d in drawn], n)
    _refuse_impossible(_lengths([d.impossible for d in drawn], n), n_drawn, len(drawn), len(prefix))
    n_drawn = np.minimum(n_drawn, _lengths(closed, n) + 1)
    values = torch.stack([d.x for d in drawn], dim=1).cpu().numpy()  # (n, T, ...)
    return [np.concatenate([prefix, row[:size]]) for row, size in zip(values, n_drawn, strict=True)]


def _collect(steps: Iterator[Draw], n: int, watch: Watch | None) -> tuple[list[Draw], list[Tensor | None]]:
    """Draws until all sequences are over, and for each whether the watch closed it."""
    drawn: list[Draw] = []
    closed: list[Tensor | None] = []
    over, seen = np.zeros(n, dtype=bool), 0
    for each in steps:
        drawn.append(each)
        closed.append(None if watch is None else _closed(watch, each.x))
        if len(drawn) % CHECK_EVERY == 0:
            over |= _lengths([d.ended for d in drawn[seen:]], n) < CHECK_EVERY
            over |= _lengths(closed[seen:], n) < CHECK_EVERY
            seen = len(drawn)
            if over.all():
                break
    return drawn, closed


def _closed(watch: Watch, x: Tensor) -> Tensor:
    return torch.tensor([watch.take(i, symbol) is not None for i, symbol in enumerate(x.tolist())])


def _lengths(marks: list[Tensor | None], n: int) -> np.ndarray:
    """``(n,)`` how many steps come before a sequence's first mark, of ``marks`` (T) of ``(n,)`` bool; T if there is none."""
    real = [mark for mark in marks if mark is not None]
    if not real:
        return np.full(n, len(marks))
    table = torch.stack(real).cpu().numpy()  # (T, n)
    return np.where(table.any(0), table.argmax(0), len(marks))


@torch.inference_mode()
def stream_steps(
    cursor: Cursor,
    *,
    prefix: np.ndarray,
    source: np.ndarray | None,
    length: int | None,
    max_length: int,
    generator: torch.Generator,
    decoding: Decoding = PLAIN,
) -> Iterator[np.ndarray]:
    """The encoded steps that ``sample_steps`` of one sequence draws after the prefix, as they come; errors are the same."""
    total = max_length if length is None else length
    steps = draws(cursor, begin(cursor, source, prefix, 1), decoding, generator, may_end=length is None)
    for t, each in enumerate(islice(steps, max(0, total - len(prefix)))):
        if each.impossible is not None and bool(each.impossible):
            _refuse_step(len(prefix) + t)
        if each.ended is not None and bool(each.ended):
            return
        yield each.x[0].cpu().numpy()


def _refuse_impossible(first: np.ndarray, ended: np.ndarray, n_drawn: int, n_prefix: int) -> None:
    stuck = (first < n_drawn) & (first <= ended)
    if stuck.any():
        _refuse_step(n_prefix + int(first[stuck].min()))


def _refuse_step(t: int) -> None:
    raise ValueError(f"no sequence that goes on after step {t} is possible here; pass another prefix or length")
