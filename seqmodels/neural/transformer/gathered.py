"""The weights of a Transformer's blocks as single steps take them: plain tensors, laid out so that a step is few operations.

Rotated pairs stand side by side, so that a turn is one product of complex numbers: scores are sums over a head's entries, in
whatever order they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqmodels.neural.transformer.feedforward import FeedForward
from seqmodels.neural.transformer.multihead import SelfAttention
from seqmodels.neural.transformer.norms import RMSNorm
from seqmodels.neural.transformer.relative import Rotation

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Affine:
    """``x W + b``, ``weight (in, out)``."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, linear: nn.Linear) -> Affine:
        """The same map, without a copy."""
        return cls(linear.weight.detach().t(), None if linear.bias is None else linear.bias.detach())

    def chosen(self, order: Tensor, factor: Tensor) -> Affine:
        """Its outputs in this order, each multiplied."""
        bias = None if self.bias is None else self.bias[order] * factor
        return Affine((self.weight.t()[order] * factor.unsqueeze(1)).t(), bias)

    def __call__(self, x: Tensor) -> Tensor:
        """``(n, in)`` -> ``(n, out)``."""
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def into(self, x: Tensor, out: Tensor) -> None:
        """``x (n, in)`` -> ``out (n, out)``, which is written."""
        if self.bias is None:
            torch.mm(x, self.weight, out=out)
        else:
            torch.addmm(self.bias, x, self.weight, out=out)

    def add_to(self, x: Tensor, inner: Tensor) -> Tensor:
        """``x (n, out)`` plus the map of ``inner (n, in)``, in place."""
        if self.bias is not None:
            x.add_(self.bias)
        return x.addmm_(inner, self.weight)


@dataclass(frozen=True)
class Heads:
    """The heads of one projection's outputs: of queries, of keys, of values.

    ``paired``: the two entries of a query or key that are rotated together, i and i + d_head / 2, stand side by side.
    """

    n_heads: int
    n_groups: int
    d_head: int
    paired: bool

    @property
    def n_turned(self) -> int:
        """Heads of queries and keys."""
        return self.n_heads + self.n_groups

    def order(self) -> Tensor:
        """Which outputs of ``SelfAttention.project`` stand where."""
        entries = torch.arange((self.n_turned + self.n_groups) * self.d_head).view(-1, self.d_head)
        return torch.cat([self.pairs(entries[: self.n_turned]), entries[self.n_turned :]]).flatten()

    def scales(self, like: Tensor) -> Tensor:
        """Of the outputs, such that products of queries and keys are scores."""
        scales = like.new_ones((self.n_turned + self.n_groups) * self.d_head)
        scales[: self.n_heads * self.d_head] = self.d_head**-0.5
        return scales

    def pairs(self, x: Tensor) -> Tensor:
        """``(..., d_head)`` with pairs side by side, if at all."""
        return x.unflatten(-1, (2, -1)).mT.flatten(-2) if self.paired else x

    def turns(self, rotation: Rotation) -> Tensor:
        """Complex factors ``(T, (H + 2 G) d_head / 2)`` of a rotation ``(T, d_head)``; values are left as they are."""
        cosine, sine = (part.chunk(2, -1)[1] for part in rotation)
        turn = torch.complex(cosine, sine)  # (T, d_head / 2)
        return torch.cat([turn.repeat(1, self.n_turned), torch.ones_like(turn).repeat(1, self.n_groups)], 1)


class HeadNorm:
    """``gain * x / sqrt(mean(x²) + ε)`` of each head of queries and keys, in place."""

    def __init__(self, norm: RMSNorm, heads: Heads, like: Tensor) -> None:
        width, size = heads.n_turned * heads.d_head, (heads.n_turned, heads.d_head)
        self.width, self.floor = width, like.new_tensor((heads.d_head * norm.epsilon) ** 0.5)
        self.gain = heads.scales(like)[:width].view(size) * heads.d_head**0.5
        if norm.weight is not None:
            self.gain *= heads.pairs(norm.weight.detach().flatten(1))

    def __call__(self, x: Tensor) -> None:
        """``x (n, (H + 2 G) d_head)``, changed in place."""
        heads = x.narrow(1, 0, self.width).view(len(x), *self.gain.shape)
        heads.div_(torch.linalg.vector_norm(heads, dim=-1, keepdim=True).hypot_(self.floor)).mul_(self.gain)


@dataclass(frozen=True)
class Layer:
    """One block ``x + attention(norm(x))``, ``x + feedforward(norm(x))``; ``head_norm`` None: none."""

    attention_norm: Map
    project: Affine
    head_norm: HeadNorm | None
    output: Affine
    feedforward_norm: Map
    expand: Affine
    contract: Affine

    @classmethod
    def of(
        cls,
        attention_norm: nn.Module,
        attention: SelfAttention,
        feedforward_norm: nn.Module,
        feedforward: FeedForward,
        heads: Heads,
    ) -> Layer:
        """From a block's parts."""
        like = attention.project.weight.detach()
        scales = heads.scales(like) if attention.norm is None else like.new_ones(len(like))
        return cls(
            norm_of_rows(attention_norm, like),
            Affine.of(attention.project).chosen(heads.order().to(like.device), scales),
            None if attention.norm is None else HeadNorm(attention.norm, heads, like),
            Affine.of(attention.output),
            norm_of_rows(feedforward_norm, like),
            Affine.of(feedforward.expand),
            Affine.of(feedforward.contract),
        )


def norm_of_rows(norm: nn.Module, like: Tensor) -> Map:
    """A ``LayerNorm`` or ``RMSNorm`` as a function of ``(n, d)``, of the type and on the device of ``like``."""
    if isinstance(norm, nn.LayerNorm):
        shape, epsilon = list(norm.normalized_shape), norm.eps
        weight, bias = (None if p is None else p.detach() for p in (norm.weight, norm.bias))
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    assert isinstance(norm, RMSNorm), "there are two kinds of norms"
    return _root_mean_square(norm, like)


def _root_mean_square(norm: RMSNorm, like: Tensor) -> Map:
    """``sqrt(mean(x²) + ε)`` is ``hypot(|x|, sqrt(d ε)) / sqrt(d)``, in fewer operations."""
    d = like.shape[1]
    floor, gain = like.new_tensor((d * norm.epsilon) ** 0.5), like.new_full((d,), d**0.5)
    if norm.weight is not None:
        gain *= norm.weight.detach()

    def normed(x: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(floor)
        return x.div(size).mul_(gain)

    return normed
