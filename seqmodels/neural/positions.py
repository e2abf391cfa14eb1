"""Positions: what tells a Transformer the order of its inputs, added to them: ``x_t + p_t``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

PositionKind = Literal["sinusoidal", "learned"] | None


class Positions(nn.Module, ABC):
    """To add one, define ``forward``, which must treat a step by its position only, whatever comes with it."""

    @abstractmethod
    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Inputs (B, T, d) that stand at positions ``offset``, ``offset + 1``, ... -> inputs with positions added."""


class NoPositions(Positions):
    """The inputs as they are: order is then known from the causal mask only, and to an encoder not at all."""

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x``, untouched."""
        return x


class SinusoidalPositions(Positions):
    """``p_t[2i] = sin(t / 10000^(2i/d))``, ``p_t[2i+1] = cos(t / 10000^(2i/d))`` (Vaswani et al., 2017).

    Nothing to learn and no end. The waves have amplitude one, so inputs should be of that order too.
    """

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x`` (B, T, d) plus waves."""
        return x + sinusoids(offset, x.shape[1], x.shape[2], like=x)


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
            raise ValueError(
                f"the sequence has {end} steps but positions were learned for max_length={max_length}; "
                'pass a larger max_length, or positions="sinusoidal", which has no end'
            )
        return x + self.table[offset:end]


def make_positions(kind: PositionKind, d_model: int, max_length: int | None = None) -> Positions:
    """Positions by name; ``"learned"`` needs ``max_length``. Raises ``ValueError`` for a kind that does not exist."""
    match kind:
        case None:
            return NoPositions()
        case "sinusoidal":
            return SinusoidalPositions()
        case "learned" if max_length is None:
            raise ValueError('positions="learned" need max_length, the longest sequence; pass max_length=...')
        case "learned":
            return LearnedPositions(d_model, max_length)
    raise ValueError(f'positions is {kind!r}; pass "sinusoidal", "learned" or None')


def sinusoids(offset: int, length: int, d_model: int, *, like: Tensor) -> Tensor:
    """Sinusoidal positions (length, d_model) from ``offset`` on, with the type and device of ``like``."""
    # Half precision counts no further than a few hundred, so angles take single precision at least.
    dtype = torch.promote_types(like.dtype, torch.float32)
    time = torch.arange(offset, offset + length, device=like.device).to(dtype)
    pairs = torch.arange(0, d_model, 2, device=like.device).to(dtype)
    angles = time[:, None] * torch.exp(pairs * (-math.log(10000.0) / d_model))  # (T, ceil(d / 2))
    waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)  # sine and cosine side by side
    return waves[:, :d_model].to(like.dtype)
