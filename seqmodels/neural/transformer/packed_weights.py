"""The weights of a causal Transformer, packed so that a single step needs few operations on plain tensors.

The two entries of a query or key that rotary embedding rotates together are adjacent, so that a rotation is one product
of complex numbers. (Scores are sums over a head's entries, in any order.) The factor ``1 / √d_head`` is part of the
projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqmodels.neural.ops.linear import linear
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.layers import RMSNorm
from seqmodels.neural.transformer.positions import Rotation
from seqmodels.neural.transformer.stack import TransformerBlock

MANY_ROWS = 256  # from so many rows on ``linear`` is faster, even if its result is copied

RowFunction = Callable[[Tensor], Tensor]  # (n, d) -> (n, d')


@dataclass(frozen=True)
class PackedLinear:
    """A linear map ``x W + b`` of a single step, on plain tensors.

    Attributes:
        weight: W, ``(in, out)``.
        bias: b, ``(out,)``, or None.
    """

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> PackedLinear:
        """Return the same map as the layer ``linear``, whose weights it shares without a copy."""
        return cls(linear.weight.detach().t(), None if linear.bias is None else linear.bias.detach())

    def rearranged(self, order: Tensor, factor: Tensor) -> PackedLinear:
        """Return the map whose output i is output ``order[i]`` of this one times ``factor[i]``; both are ``(out,)``."""
        bias = None if self.bias is None else self.bias[order] * factor
        return PackedLinear((self.weight.t()[order] * factor.unsqueeze(1)).t(), bias)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] >= MANY_ROWS:
            return linear(x, self.weight.t(), self.bias)
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def write(self, x: Tensor, out: Tensor) -> None:
        if x.shape[0] >= MANY_ROWS:
            out.copy_(linear(x, self.weight.t(), self.bias))
        elif self.bias is None:
            torch.mm(x, self.weight, out=out)
        else:
            torch.addmm(self.bias, x, self.weight, out=out)

    def add_to(self, total: Tensor, x: Tensor) -> Tensor:
        """Add the map of ``x (n, in)`` to ``total (n, out)``, in place."""
        if x.shape[0] >= MANY_ROWS:
            return total.add_(linear(x, self.weight.t(), self.bias))
        if self.bias is not None:
            total.add_(self.bias)
        return total.addmm_(x, self.weight)


@dataclass(frozen=True)
class HeadLayout:
    """The order of the outputs of a packed projection: H heads of queries, then G heads of keys, then G of values.

    Attributes:
        n_heads: H.
        n_key_heads: G.
        d_head: width of a head.
        paired: True if the two entries of a query or key that rotary embedding rotates together, i and i + d_head / 2,
            are made neighbours.
    """

    n_heads: int
    n_key_heads: int
    d_head: int
    paired: bool

    @classmethod
    def from_config(cls, config: TransformerConfig) -> HeadLayout:
        return cls(config.n_query_heads, config.n_key_heads, config.d_head, config.positions == "rotary")

    @property
    def n_rotated(self) -> int:
        return self.n_heads + self.n_key_heads

    def order(self) -> Tensor:
        """Return, for each output of the packed projection, its index among the outputs of ``SelfAttention.project``.

        Both project to queries, keys and values.
        """
        entries = torch.arange((self.n_rotated + self.n_key_heads) * self.d_head).view(-1, self.d_head)
        return torch.cat([self.pair(entries[: self.n_rotated]), entries[self.n_rotated :]]).flatten()

    def scales(self, like: Tensor) -> Tensor:
        """Return a factor for each output of the packed projection: ``1 / √d_head`` for queries, and else 1.

        The factor of queries scales the attention scores. ``like`` gives dtype and device.
        """
        scales = like.new_ones((self.n_rotated + self.n_key_heads) * self.d_head)
        scales[: self.n_heads * self.d_head] = self.d_head**-0.5
        return scales

    def pair(self, x: Tensor) -> Tensor:
        """Return ``x (..., d_head)`` with entries that rotary embedding rotates together adjacent, if ``paired``."""
        return x.unflatten(-1, (2, -1)).mT.flatten(-2) if self.paired else x

    def rotation_factors(self, rotation: Rotation) -> Tensor:
        """Return complex factors that rotate all pairs of outputs at T steps, ``(T, (H + 2 G) d_head / 2)``.

        H is the number of heads of queries and G of keys; factors of values are 1.

        Args:
            rotation: cosines and signed sines of rotary embedding, ``(T, d_head)`` each.
        """
        cosine, sine = (part.chunk(2, -1)[1] for part in rotation)
        factor = torch.complex(cosine, sine)  # (T, d_head / 2)
        return torch.cat([factor.repeat(1, self.n_rotated), torch.ones_like(factor).repeat(1, self.n_key_heads)], 1)


class PackedHeadNorm:
    """The norm ``gain * x / sqrt(mean(x²) + ε)`` of each head of queries and keys, in place.

    Args:
        norm: the norm whose gain and ε are used.
        layout: order of the outputs of the packed projection.
        like: tensor that gives dtype and device.
    """

    def __init__(self, norm: RMSNorm, layout: HeadLayout, like: Tensor) -> None:
        self.width = layout.n_rotated * layout.d_head
        self.epsilon_root = like.new_tensor((layout.d_head * norm.epsilon) ** 0.5)
        shape = layout.n_rotated, layout.d_head
        self.gain = layout.scales(like)[: self.width].view(shape) * layout.d_head**0.5
        if norm.weight is not None:
            self.gain *= layout.pair(norm.weight.detach().flatten(1))

    def __call__(self, x: Tensor) -> None:
        """Normalize the queries and keys of n steps in place, in the outputs of a packed projection.

        ``x (n, (H + 2 G) d_head)`` has H heads of queries, then G of keys, then G of values, which stay as they are.
        """
        heads = x.narrow(1, 0, self.width).view(len(x), *self.gain.shape)
        size = torch.linalg.vector_norm(heads, dim=-1, keepdim=True).hypot_(self.epsilon_root)
        heads.div_(size).mul_(self.gain)


@dataclass(frozen=True)
class PackedBlock:
    """One block ``x + attention(norm(x))``, ``x + feedforward(norm(x))`` of a Transformer, on plain tensors.

    It is for single steps in evaluation.

    Attributes:
        attention_norm: norm before attention.
        project: map to queries, keys and values, in the order of a ``HeadLayout``.
        head_norm: norm of each head's query and key; None without ``qk_norm``.
        output: map from the heads' contexts to what is added.
        feedforward_norm: norm before the feed-forward.
        expand: first map of the feed-forward.
        contract: second map of the feed-forward.
    """

    attention_norm: RowFunction
    project: PackedLinear
    head_norm: PackedHeadNorm | None
    output: PackedLinear
    feedforward_norm: RowFunction
    expand: PackedLinear
    contract: PackedLinear

    @classmethod
    def from_block(cls, block: TransformerBlock, layout: HeadLayout) -> PackedBlock:
        """Return the packed weights of a block that has ``norm="pre"`` and no cross-attention.

        Args:
            block: the block.
            layout: order of the outputs of the packed projection to queries, keys and values.
        """
        attention = block.attention
        feedforward = block.feedforward
        like = attention.project.weight.detach()
        scales = layout.scales(like) if attention.norm is None else like.new_ones(len(like))
        return cls(
            packed_norm(block.attention_residual.norm, like),
            PackedLinear.from_linear(attention.project).rearranged(layout.order().to(like.device), scales),
            None if attention.norm is None else PackedHeadNorm(attention.norm, layout, like),
            PackedLinear.from_linear(attention.output),
            packed_norm(block.feedforward_residual.norm, like),
            PackedLinear.from_linear(feedforward.expand),
            PackedLinear.from_linear(feedforward.contract),
        )


def gain_and_shift(norm: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gain and shift of a ``LayerNorm`` or ``RMSNorm``, ``(d,)`` each; ones and zeros if it has none.

    ``like (d,)`` gives their dtype, device and width.
    """
    assert isinstance(norm, nn.LayerNorm | RMSNorm), "there are two kinds of norms"
    gain: Tensor | None = norm.weight
    shift: Tensor | None = norm.bias if isinstance(norm, nn.LayerNorm) else None
    one, zero = like.new_ones(len(like)), like.new_zeros(len(like))
    return one if gain is None else gain.detach(), zero if shift is None else shift.detach()


def packed_norm(norm: nn.Module, like: Tensor) -> RowFunction:
    """Return a ``LayerNorm`` or ``RMSNorm`` as a function of ``(n, d)``, with the dtype and device of ``like``."""
    if isinstance(norm, nn.LayerNorm):
        shape, epsilon = list(norm.normalized_shape), norm.eps
        weight, bias = (None if p is None else p.detach() for p in (norm.weight, norm.bias))
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    assert isinstance(norm, RMSNorm), "there are two kinds of norms"
    return _packed_rms_norm(norm, like)


def _packed_rms_norm(norm: RMSNorm, like: Tensor) -> RowFunction:
    """Return an ``RMSNorm`` as a function of rows ``(n, d)`` that needs few operations.

    It uses that ``sqrt(mean(x²) + ε)`` is ``hypot(|x|, sqrt(d ε)) / sqrt(d)``. ``like (n, d)`` gives width, dtype and
    device.
    """
    d = like.shape[1]
    epsilon_root = like.new_tensor((d * norm.epsilon) ** 0.5)
    gain = like.new_full((d,), d**0.5)
    if norm.weight is not None:
        gain *= norm.weight.detach()

    def normed(x: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(epsilon_root)
        return x.div(size).mul_(gain)

    return normed
