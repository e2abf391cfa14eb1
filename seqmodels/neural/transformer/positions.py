"""Positions, which give a Transformer the order of its inputs.

Some are added to the inputs, ``x_t + p_t``. Others act in attention and make a score depend only on the distance of
query and key: a bias of the scores (ALiBi, T5), or a rotation of queries and keys (rotary embedding).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, Self

import torch
from torch import Tensor, nn

from seqmodels.neural.ops.precision import compute_dtype

PositionKind = Literal["sinusoidal", "learned", "binary", "rotary", "alibi", "t5"] | None
KINDS: tuple[PositionKind, ...] = ("sinusoidal", "learned", "binary", "rotary", "alibi", "t5", None)
DEFAULT_TABLE_LENGTH = 1 << 10  # positions that are computed once if the longest sequence is not known
MAX_TABLE_LENGTH = 1 << 13  # however long the longest sequence: a model of few weights has no large tables
DEFAULT_BINARY_LENGTH = 1 << 16  # positions of the binary kind if the longest sequence is not known

Rotation = tuple[Tensor, Tensor]  # cosines and sines (T, d_head)


# -- added to the inputs ---------------------------------------------------------------------------------------


class Positions(nn.Module, ABC):
    """A kind of positions that are added to the inputs.

    To add a kind, define ``forward``. What it adds to a step may depend on the step's position only, not on the other
    steps that are passed with it.
    """

    @abstractmethod
    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Return inputs of T steps with their positions added, (B, T, d).

        Args:
            x: the inputs, (B, T, d).
            offset: position of the first step; the others follow.
        """


class NoPositions(Positions):
    """No positions: inputs stay as they are, and only attention (distances, the causal mask) knows their order."""

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        return x


class SinusoidalPositions(Positions):
    """Sinusoids ``p_t[2i] = sin(t / 10000^(2i/d))``, ``p_t[2i+1] = cos(t / 10000^(2i/d))`` (Vaswani et al., 2017).

    They are added to the inputs of width d. Nothing is learned, and there is no longest sequence. Sinusoids have
    amplitude one, so inputs should have entries of order one too.

    Args:
        d_model: width of the inputs.
        max_length: length of the table, at most 8192, or None for 1024. Later positions are computed at each call.
    """

    table: Tensor

    def __init__(self, d_model: int, max_length: int | None = None) -> None:
        super().__init__()
        table = sinusoids(0, min(max_length or DEFAULT_TABLE_LENGTH, MAX_TABLE_LENGTH), d_model, like=torch.zeros(()))
        self.register_buffer("table", table, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply a conversion ``fn`` to all tensors of the module; in another precision compute the table anew.

        Otherwise the table would be rounded twice. This overrides the method that torch calls for ``to``.
        """
        previous_dtype = self.table.dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.table.dtype != previous_dtype:
            like = torch.zeros((), dtype=self.table.dtype)
            self.table = sinusoids(0, *self.table.shape, like=like).to(self.table.device)
        return self

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.shape[1]
        length = len(self.table)
        rows = self.table[offset:end].to(x.dtype)
        if end > length:  # step by step or at once, a position's row must come from the same place
            begin = max(offset, length)
            rows = torch.cat([rows, sinusoids(begin, end - begin, x.shape[2], like=x)])
        return x + rows


class LearnedPositions(Positions):
    """Learned positions that are added to the inputs: ``p_t`` is row t of a table.

    Args:
        d_model: width of the inputs.
        max_length: number of rows of the table, the length of the longest sequence.
    """

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Return inputs of T steps, (B, T, d), with rows of the table added, from position ``offset`` on.

        Raises:
            ValueError: if a position is past the last row.
        """
        end = offset + x.shape[1]
        max_length = len(self.table)
        if end > max_length:
            raise _too_long(end, max_length, "positions were learned for")
        return x + self.table[offset:end]


class BinaryPositions(Positions):
    """Learned positions ``p_t = W b_t``, where ``b_t`` are the binary digits of t as -1 and +1, lowest first.

    They are added to the inputs. W has a column for each digit, where a learned table has a row for each position.

    Args:
        d_model: width of the inputs.
        max_length: the length of the longest sequence, or None for 65536.
    """

    def __init__(self, d_model: int, max_length: int | None = None) -> None:
        super().__init__()
        self.max_length = DEFAULT_BINARY_LENGTH if max_length is None else max_length
        n_digits = max(1, (self.max_length - 1).bit_length())
        self.map = nn.Parameter(torch.empty(n_digits, d_model))
        nn.init.normal_(self.map, std=n_digits**-0.5)  # so that p_t is of order one

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Return inputs of T steps, (B, T, d), with the positions from ``offset`` on added.

        Raises:
            ValueError: if a position is ``max_length`` or later.
        """
        end = offset + x.shape[1]
        if end > self.max_length:
            raise _too_long(end, self.max_length, "binary positions end at")
        time = torch.arange(offset, end, device=x.device)
        digits = time[:, None] >> torch.arange(len(self.map), device=x.device) & 1  # (T, n_digits)
        return x + (2 * digits - 1).to(self.map.dtype) @ self.map


def make_positions(kind: PositionKind, d_model: int, max_length: int | None = None) -> Positions:
    """Return the module that adds positions of this kind to the inputs, ``NoPositions`` if they act in attention.

    Args:
        kind: ``"sinusoidal"``, ``"learned"`` or ``"binary"``; the kinds ``"rotary"``, ``"alibi"`` and ``"t5"`` act in
            attention; None: no positions.
        d_model: width of the inputs.
        max_length: length of the longest sequence, if known.

    Raises:
        ValueError: if the kind is unknown, or ``"learned"`` without ``max_length``.
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
    """Return the sinusoidal positions ``sin`` and ``cos`` of ``t / 10000^(2 i / d)`` in turn, (length, d_model).

    Args:
        offset: the first position t.
        length: number of positions.
        d_model: width d.
        like: tensor that gives dtype and device.
    """
    if like.is_meta:  # to compute with shapes alone torch loads its tracer, which takes more than a second
        return like.new_empty(length, d_model)
    angles = _angles(offset, length, d_model, like=like)
    interleaved = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    return interleaved[:, :d_model].to(like.dtype)


def _angles(offset: int, length: int, d: int, *, like: Tensor) -> Tensor:
    """Return the angles ``t / 10000^(2 i / d)``, (length, ceil(d / 2)), of the positions t from ``offset`` on.

    They have the device of ``like``, and at least single precision.
    """
    # Half precision represents whole numbers only up to a few hundred.
    dtype = torch.promote_types(like.dtype, torch.float32)
    time = torch.arange(offset, offset + length, device=like.device).to(dtype)
    pairs = torch.arange(0, d, 2, device=like.device).to(dtype)
    return time[:, None] * torch.exp(pairs * (-math.log(10000.0) / d))


# -- biases of attention scores --------------------------------------------------------------------------------


class ScoreBias(nn.Module, ABC):
    """A bias of attention scores that depends on the distance of query and key only.

    To add one, define ``forward`` as a function of differences of positions.
    """

    @abstractmethod
    def forward(self, distance: Tensor) -> Tensor:
        """Return the bias of each attention score (H, T, S), for H heads, T queries and S keys.

        Args:
            distance: position of the query minus position of the key, whole numbers, (T, S).
        """


class AlibiBias(ScoreBias):
    """The bias ``-m_h |i - j|`` of the attention scores of query i and key j in head h = 1 .. H, called ALiBi.

    It is by Press, Smith and Lewis (2022). The slopes are ``m_h = 2^(-8 h / H)``. If H is not a power of two, they are,
    as in the authors' code, first the slopes of the next lower power and then every second slope of the next higher
    power. In an encoder the bias is the same on both sides.

    Args:
        n_heads: H.
    """

    slopes: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads), dtype=torch.float32), persistent=False)

    def forward(self, distance: Tensor) -> Tensor:
        return -self.slopes[:, None, None] * distance.abs()


class T5Bias(ScoreBias):
    """A learned bias of attention scores for each head and bucket of distances (Raffel et al., 2020), starting at zero.

    Half of the buckets hold one distance each. The others hold ever wider ranges up to ``max_distance``, and the last
    one holds all distances beyond. A stack has one table for all its layers. Scores are scaled by ``1 / √d_head``,
    which T5 itself leaves out.

    Args:
        n_heads: number of heads H.
        causal: True if keys are never later than queries. If not, half of the buckets are for later keys (one of them,
            as in T5's code, stands for a distance of zero and is never used).
        n_buckets: number of buckets, which are the rows of the table.
        max_distance: all distances from here on share a bucket.
    """

    def __init__(self, n_heads: int, *, causal: bool, n_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        self.causal = causal
        self.max_distance = max_distance
        self.table = nn.Parameter(torch.zeros(n_buckets, n_heads))

    def forward(self, distance: Tensor) -> Tensor:
        buckets = t5_buckets(distance, len(self.table), self.max_distance, causal=self.causal)
        return self.table[buckets].permute(2, 0, 1)  # (T, S, H) -> (H, T, S)


def make_score_bias(kind: PositionKind, n_heads: int, *, causal: bool) -> ScoreBias | None:
    """Return the bias that positions of this kind add to attention scores, or None for kinds that add none.

    Args:
        kind: kind of positions; ``"alibi"`` and ``"t5"`` add a bias.
        n_heads: number of heads.
        causal: True if keys are never later than queries.
    """
    match kind:
        case "alibi":
            return AlibiBias(n_heads)
        case "t5":
            return T5Bias(n_heads, causal=causal)
    return None


def alibi_slopes(n_heads: int) -> list[float]:
    """Return ALiBi's slopes ``2^(-8 h / H)`` of heads h = 1 .. H; see ``AlibiBias`` for other H than powers of 2."""
    lower = 1 << (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / lower) for h in range(1, lower + 1)]
    between = [2.0 ** (-4 * h / lower) for h in range(1, 2 * lower + 1, 2)]
    return slopes + between[: n_heads - lower]


def t5_buckets(distance: Tensor, n_buckets: int, max_distance: int, *, causal: bool) -> Tensor:
    """Return T5's bucket of each distance of query and key, in the shape of ``distance``.

    Half of the buckets hold one distance each; the others are spaced logarithmically up to ``max_distance``.

    Args:
        distance: position of the query minus position of the key, whole numbers.
        n_buckets: number of buckets.
        max_distance: all distances from here on share the last bucket.
        causal: True if no distance is negative; otherwise half of the buckets are for negative ones.
    """
    n = n_buckets if causal else n_buckets // 2
    n_exact = n // 2
    size = distance.clamp(min=0) if causal else distance.abs()
    ratio = size.clamp(min=1).double().div(n_exact).log() / math.log(max_distance / n_exact)
    far = (n_exact + (ratio * (n - n_exact)).long()).clamp(max=n - 1)
    buckets = torch.where(size < n_exact, size, far)
    return buckets if causal else buckets + n * (distance < 0)


# -- rotary embedding ------------------------------------------------------------------------------------------


class RotaryEmbedding(nn.Module):
    """The rotations of queries and keys by angles proportional to their positions (Su et al., 2021, *RoFormer*).

    Args:
        d_head: width of heads, even.
        max_length: length of the table, at most 8192, or None for 1024. Later positions are computed at each call.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, d_head: int, max_length: int | None = None) -> None:
        super().__init__()
        length = min(max_length or DEFAULT_TABLE_LENGTH, MAX_TABLE_LENGTH)
        cosine, sine = rotation(0, length, d_head, like=torch.zeros(()))
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, x: Tensor, offset: int = 0) -> Rotation:
        """Return cosines and signed sines, (T, d_head) each, of T steps from position ``offset`` on.

        ``x`` (B, T, d) are the inputs, of which the number of steps, type and device are used.
        """
        end = offset + x.shape[1]
        length = len(self.cosine)
        dtype = compute_dtype(x)
        cosine, sine = self.cosine[offset:end].to(dtype), self.sine[offset:end].to(dtype)
        if end <= length:
            return cosine, sine
        begin = max(offset, length)  # step by step or at once, a step's rotation must come from the same place
        later_cosine, later_sine = rotation(begin, end - begin, self.cosine.shape[1], like=cosine)
        return torch.cat([cosine, later_cosine]), torch.cat([sine, later_sine])


def rotation(offset: int, length: int, d_head: int, *, like: Tensor) -> Rotation:
    """Return cosines and signed sines, (length, d_head) each, of rotary embedding at positions from ``offset`` on.

    Pair i is rotated by the angle ``t / 10000^(2 i / d_head)`` at position t; its entries are i and i + d_head / 2.

    Args:
        offset: the first position.
        length: number of positions.
        d_head: width of heads, even.
        like: tensor that gives type and device.
    """
    if like.is_meta:  # as in sinusoids
        return like.new_empty(length, d_head), like.new_empty(length, d_head)
    angles = _angles(offset, length, d_head, like=like)
    return torch.cat([angles.cos()] * 2, -1).to(like.dtype), torch.cat([-angles.sin(), angles.sin()], -1).to(like.dtype)


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Return queries or keys with each pair of entries rotated by the angle of its position, as rotary embedding does.

    Their lengths stay the same.

    Args:
        x: queries or keys of H heads at T steps, (B, H, T, d_head).
        by: cosines and signed sines, (T, d_head) each, as ``rotation`` returns them.
    """
    cosine, sine = by
    return x * cosine + x.roll(x.shape[-1] // 2, -1) * sine
