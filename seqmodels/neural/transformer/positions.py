"""Positions: what tells a Transformer the order of its inputs; here those added to them: ``x_t + p_t``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, Self

import torch
from torch import Tensor, nn

PositionKind = Literal["sinusoidal", "learned", "binary", "rotary", "alibi", "t5"] | None
KINDS: tuple[PositionKind, ...] = ("sinusoidal", "learned", "binary", "rotary", "alibi", "t5", None)
KEPT = 1 << 10  # positions whose waves are kept where the longest sequence is not known
MOST_KEPT = 1 << 13  # however long the longest sequence: a model of few weights has no large tables
ENDLESS = 1 << 16  # positions of the binary kind where the longest sequence is not known


class Positions(nn.Module, ABC):
    """To add one, define ``forward``, which must treat a step by its position only, whatever comes with it."""

    @abstractmethod
    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Inputs (B, T, d) that stand at positions ``offset``, ``offset + 1``, ... -> inputs with positions added."""


class NoPositions(Positions):
    """The inputs as they are: order is then known from attention (relative kinds, the causal mask) or not at all."""

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x``, untouched."""
        return x


class SinusoidalPositions(Positions):
    """``p_t[2i] = sin(t / 10000^(2i/d))``, ``p_t[2i+1] = cos(t / 10000^(2i/d))`` (Vaswani et al., 2017).

    Nothing to learn and no end. The waves have amplitude one, so inputs should be of that order too.

    Args:
        d_model: width of the inputs.
        max_length: how many of the first positions to keep, at most 8192; ``None``: 1024. Past them they are worked out anew.
    """

    table: Tensor

    def __init__(self, d_model: int, max_length: int | None = None) -> None:
        super().__init__()
        table = sinusoids(0, min(max_length or KEPT, MOST_KEPT), d_model, like=torch.zeros(()))
        self.register_buffer("table", table, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As of any module; in another precision the waves are worked out anew, not rounded twice."""
        before = self.table.dtype
        super()._apply(fn, recurse)
        if self.table.dtype != before:
            like = torch.zeros((), dtype=self.table.dtype)
            self.table = sinusoids(0, *self.table.shape, like=like).to(self.table.device)
        return self

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x`` (B, T, d) plus waves."""
        end, kept = offset + x.shape[1], len(self.table)
        rows = self.table[offset:end].to(x.dtype)
        if end > kept:  # step by step or at once, a position's row must come from the same place
            begin = max(offset, kept)
            rows = torch.cat([rows, sinusoids(begin, end - begin, x.shape[2], like=x)])
        return x + rows


class LearnedPositions(Positions):
    """``p_t`` is row t of a table.

    Args:
        d_model: width of the inputs.
        max_length: rows of the table: the longest sequence.
    """

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x`` (B, T, d) plus rows; raises ``ValueError`` past the last row."""
        end, max_length = offset + x.shape[1], len(self.table)
        if end > max_length:
            raise _too_long(end, max_length, "positions were learned for")
        return x + self.table[offset:end]


class BinaryPositions(Positions):
    """``p_t = W b_t``, ``b_t`` the binary digits of t as -1 and +1, lowest first; W is learned.

    As many columns as digits, where a learned table has as many rows as positions.

    Args:
        d_model: width of the inputs.
        max_length: the longest sequence; ``None``: 65536.
    """

    def __init__(self, d_model: int, max_length: int | None = None) -> None:
        super().__init__()
        self.max_length = ENDLESS if max_length is None else max_length
        n_digits = max(1, (self.max_length - 1).bit_length())
        self.map = nn.Parameter(torch.empty(n_digits, d_model))
        nn.init.normal_(self.map, std=n_digits**-0.5)  # so that p_t is of order one

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x`` (B, T, d) plus digits' columns; raises ``ValueError`` past ``max_length``."""
        end = offset + x.shape[1]
        if end > self.max_length:
            raise _too_long(end, self.max_length, "binary positions end at")
        time = torch.arange(offset, end, device=x.device)
        digits = time[:, None] >> torch.arange(len(self.map), device=x.device) & 1  # (T, n_digits)
        return x + (2 * digits - 1).to(self.map.dtype) @ self.map


def make_positions(kind: PositionKind, d_model: int, max_length: int | None = None) -> Positions:
    """What positions of this kind add to the inputs: nothing for those that act in attention.

    Raises:
        ValueError: for a kind that does not exist, or ``"learned"`` without ``max_length``.
    """
    match kind:
        case None | "rotary" | "alibi" | "t5":
            return NoPositions()
        case "sinusoidal":
            return SinusoidalPositions(d_model, max_length)
        case "binary":
            return BinaryPositions(d_model, max_length)
        case "learned" if max_length is None:
            raise ValueError('positions="learned" need max_length, the longest sequence; pass max_length=...')
        case "learned":
            return LearnedPositions(d_model, max_length)
    raise ValueError(f"positions is {kind!r}; pass one of {', '.join(map(repr, KINDS))}")


def _too_long(end: int, max_length: int, what: str) -> ValueError:
    return ValueError(
        f"the sequence has {end} steps but {what} max_length={max_length}; "
        'pass a larger max_length, or positions="sinusoidal", which has no end'
    )


def sinusoids(offset: int, length: int, d_model: int, *, like: Tensor) -> Tensor:
    """Sinusoidal positions (length, d_model) from ``offset`` on, with the type and device of ``like``."""
    # Half precision counts no further than a few hundred, so angles take single precision at least.
    dtype = torch.promote_types(like.dtype, torch.float32)
    time = torch.arange(offset, offset + length, device=like.device).to(dtype)
    pairs = torch.arange(0, d_model, 2, device=like.device).to(dtype)
    angles = time[:, None] * torch.exp(pairs * (-math.log(10000.0) / d_model))  # (T, ceil(d / 2))
    waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)  # sine and cosine side by side
    return waves[:, :d_model].to(like.dtype)
