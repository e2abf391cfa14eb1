"""Relative positions: what makes a score depend on how far apart query and key stand, and on nothing else of where they stand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from seqmodels.neural.transformer.positions import KEPT, MOST_KEPT, PositionKind

Rotation = tuple[Tensor, Tensor]  # cosines and sines (T, d_head)


class ScoreBias(nn.Module, ABC):
    """To add one, define ``forward``, a function of differences of positions only."""

    @abstractmethod
    def forward(self, distance: Tensor) -> Tensor:
        """Position of the query less that of the key (T, S), whole numbers, -> what to add to each score (H, T, S)."""


class AlibiBias(ScoreBias):
    """``-m_h |i - j|`` with slopes ``m_h = 2^(-8 h / H)``, h from 1 to H (Press, Smith and Lewis, 2022).

    For H no power of two the slopes are, as in the authors' code, those of the next lower one and then every other of
    the next higher one. In an encoder the bias is the same on both sides.

    Args:
        n_heads: H.
    """

    slopes: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads), dtype=torch.float32), persistent=False)

    def forward(self, distance: Tensor) -> Tensor:
        """See ``ScoreBias``."""
        return -self.slopes[:, None, None] * distance.abs()


class T5Bias(ScoreBias):
    """A learned number for each head and bucket of distances (Raffel et al., 2020), starting at zero.

    Half of the buckets hold one distance each, the others ever wider ranges up to ``max_distance``, the last all beyond.
    A stack has one table for all its layers. Scores are scaled by ``1 / √d_head`` as everywhere here, which T5 leaves out.

    Args:
        n_heads: H.
        causal: keys are never later than queries; else half of the buckets are for those that are (one of them, as in
            T5's code, for later by nothing, and idle).
        n_buckets: rows of the table.
        max_distance: from here on all distances are one.
    """

    def __init__(self, n_heads: int, *, causal: bool, n_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        self.causal, self.max_distance = causal, max_distance
        self.table = nn.Parameter(torch.zeros(n_buckets, n_heads))

    def forward(self, distance: Tensor) -> Tensor:
        """See ``ScoreBias``."""
        buckets = t5_buckets(distance, len(self.table), self.max_distance, causal=self.causal)
        return self.table[buckets].permute(2, 0, 1)  # (T, S, H) -> (H, T, S)


def make_score_bias(kind: PositionKind, n_heads: int, *, causal: bool) -> ScoreBias | None:
    """The bias that positions of this kind add to scores, if any."""
    match kind:
        case "alibi":
            return AlibiBias(n_heads)
        case "t5":
            return T5Bias(n_heads, causal=causal)
    return None


def alibi_slopes(n_heads: int) -> list[float]:
    """Geometric from ``2^(-8/H)``; see ``AlibiBias`` for H that is no power of two."""
    lower = 1 << (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / lower) for h in range(1, lower + 1)]
    between = [2.0 ** (-4 * h / lower) for h in range(1, 2 * lower + 1, 2)]
    return slopes + between[: n_heads - lower]


def t5_buckets(distance: Tensor, n_buckets: int, max_distance: int, *, causal: bool) -> Tensor:
    """Buckets of whole distances (query less key): exact up to half of them, then by the logarithm up to ``max_distance``."""
    n = n_buckets if causal else n_buckets // 2
    exact = n // 2
    size = distance.clamp(min=0) if causal else distance.abs()
    ratio = size.clamp(min=1).double().div(exact).log() / math.log(max_distance / exact)
    far = (exact + (ratio * (n - exact)).long()).clamp(max=n - 1)
    buckets = torch.where(size < exact, size, far)
    return buckets if causal else buckets + n * (distance < 0)


class Rotary(nn.Module):
    """The turns of queries and keys, of which the first are kept (Su et al., 2021, *RoFormer*).

    Args:
        d_head: width of heads, even.
        max_length: how many steps to keep, at most 8192; ``None``: 1024. Past them they are worked out anew.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, d_head: int, max_length: int | None = None) -> None:
        super().__init__()
        cosine, sine = rotation(0, min(max_length or KEPT, MOST_KEPT), d_head, like=torch.zeros(()))
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, x: Tensor, offset: int = 0) -> Rotation:
        """Of the steps of ``x`` (B, T, d), which stand at ``offset`` and after, in the type that products have."""
        end, kept, dtype = offset + x.shape[1], len(self.cosine), computed_in(x)
        turn = self.cosine[offset:end].to(dtype), self.sine[offset:end].to(dtype)
        if end <= kept:
            return turn
        begin = max(offset, kept)  # step by step or at once, a step's turn must come from the same place
        far = rotation(begin, end - begin, self.cosine.shape[1], like=turn[0])
        return torch.cat([turn[0], far[0]]), torch.cat([turn[1], far[1]])


def rotation(offset: int, length: int, d_head: int, *, like: Tensor) -> Rotation:
    """Cosines and sines (length, d_head) of the angles at positions from ``offset`` on, of the type of ``like``.

    Pair i turns by ``t / 10000^(2 i / d_head)`` at position t (Su et al., 2021, *RoFormer*); its two are entries i and i + d_head / 2.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)  # as of sinusoids: half precision cannot count
    time = torch.arange(offset, offset + length, device=like.device).to(dtype)
    pairs = torch.arange(0, d_head, 2, device=like.device).to(dtype)
    angles = time[:, None] * torch.exp(pairs * (-math.log(10000.0) / d_head))  # (T, d_head / 2)
    return torch.cat([angles.cos()] * 2, -1).to(like.dtype), torch.cat([-angles.sin(), angles.sin()], -1).to(like.dtype)


def rotate(x: Tensor, turn: Rotation) -> Tensor:
    """Queries or keys (B, H, T, d_head), each pair turned by the angle of its position; lengths stay."""
    cosine, sine = turn
    return x * cosine + x.roll(x.shape[-1] // 2, -1) * sine


def computed_in(x: Tensor) -> torch.dtype:
    """The type of matrix products of ``x``: its own, or that of autocast."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
