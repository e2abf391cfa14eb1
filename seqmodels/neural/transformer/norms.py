"""Normalisation, and the residual branch it stands in: ``leave(x, f(enter(x)))``."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from seqmodels.neural.ops.dropout import dropout

Norm = Literal["pre", "post", "residual"]
NormType = Literal["layer", "rms"]
EPSILON = 1e-5  # inside the root, in squared units of the input; torch's own for LayerNorm


class RMSNorm(nn.Module):
    """``y = gain * x / sqrt(mean(x²) + ε)`` (Zhang and Sennrich, 2019).

    Written out: on a CPU torch's own is several times slower than these four operations.

    Args:
        shape: of the gain, the last the width that is normalised: ``d``, or ``n_heads, 1, d_head`` for a gain a head.
        affine: learn the gain; without, there is nothing to learn.
        epsilon: ε, in squared units of the input.
    """

    def __init__(self, *shape: int, affine: bool = True, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(shape)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., *shape) -> (..., *shape)."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # squares of half precision lose what the mean needs
        normed = (wide * (wide.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()).to(x.dtype)
        return normed if self.weight is None else normed * self.weight


class Residual(nn.Module):
    """Where the norm stands around a sublayer f, by ``norm``.

    - ``"pre"``: ``x + f(Norm(x))`` (Radford et al., 2019; Xiong et al., 2020);
    - ``"post"``: ``Norm(x + f(x))`` (Vaswani et al., 2017);
    - ``"residual"``: ``x + Norm(f(x))``, only what is added is normalised (Liu et al., 2022, *Swin Transformer V2*;
      OLMo 2, 2025).

    Args:
        norm: which.
        layer: the norm itself.
        p: fraction of what is added that is dropped in training.
    """

    def __init__(self, norm: Norm, layer: nn.Module, p: float) -> None:
        super().__init__()
        self.where: Norm = norm
        self.norm = layer
        self.p = p

    def enter(self, x: Tensor) -> Tensor:
        """What ``f`` reads."""
        return self.norm(x) if self.where == "pre" else x

    def leave(self, x: Tensor, added: Tensor) -> Tensor:
        """The sum, with the norm on what is added or on all of it if it comes last."""
        if self.where == "residual":
            return x + dropout(self.norm(added), self.p, self.training)
        total = x + dropout(added, self.p, self.training)
        return self.norm(total) if self.where == "post" else total


def make_norm(
    kind: NormType, size: int, *, affine: bool = True, bias: bool = True, epsilon: float = EPSILON
) -> nn.Module:
    """``"layer"`` (Ba, Kiros and Hinton, 2016) or ``"rms"``; ``affine`` learns a gain, with ``bias`` a shift too (layer only)."""
    if kind == "rms":
        return RMSNorm(size, affine=affine, epsilon=epsilon)
    return nn.LayerNorm(size, eps=epsilon, elementwise_affine=affine, bias=bias)
