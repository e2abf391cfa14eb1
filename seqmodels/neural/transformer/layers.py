"""The layers of a Transformer block besides attention: feed-forward, norms, and residual connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqmodels.neural.ops.dropout import dropout
from seqmodels.neural.ops.linear import apply_linear

Activation = Literal["relu", "relu2", "gelu", "gelu-tanh", "swiglu"]
NormPlacement = Literal["pre", "post", "residual"]
NormType = Literal["layer", "rms"]
NORM_EPSILON = 1e-5  # inside the root, in squared units of the input; torch's own for LayerNorm


class FeedForward(nn.Module):
    """A feed-forward layer ``W' σ(W x + b) + b'``, or gated, ``W' (silu(G x + c) * (W x + b)) + b'``, at each step.

    The nonlinearity σ is ``"relu"``; ``"relu2"``, its square (So et al., 2021, *Primer*); ``"gelu"`` (Hendrycks and
    Gimpel, 2016); or its approximation ``"gelu-tanh"``. The gated kind is ``"swiglu"`` (Shazeer, 2020).

    Args:
        d_model: width of inputs and outputs.
        d_feedforward: width of the hidden layer (of each half of the gated kind).
        activation: name of σ, or ``"swiglu"``.
        bias: True for linear maps with a bias.
    """

    def __init__(self, d_model: int, d_feedforward: int, activation: Activation, *, bias: bool = True) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.expand = nn.Linear(d_model, d_feedforward * (2 if activation == "swiglu" else 1), bias=bias)
        self.contract = nn.Linear(d_feedforward, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return apply_linear(self.contract, activate(apply_linear(self.expand, x), self.activation))


def default_width(d_model: int, activation: Activation) -> int:
    """Return the default width of the feed-forward's hidden layer: ``4 d``, or for ``"swiglu"`` about ``8 d / 3``.

    d is ``d_model``. The latter is rounded up to a multiple of 8. The gated kind has three matrices instead of two, so
    both widths give about as many weights.
    """
    return 4 * d_model if activation != "swiglu" else -(-8 * d_model // 24) * 8


def activate(hidden: Tensor, activation: Activation) -> Tensor:
    """Apply the activation of a feed-forward layer to its hidden values, and return the result, (..., F).

    Args:
        hidden: hidden values, (..., F); for ``"swiglu"`` (..., 2 F), with the gate first.
        activation: name of the activation.
    """
    match activation:
        case "relu":
            return F.relu(hidden)
        case "relu2":
            return squared_relu(hidden)
        case "gelu":
            return F.gelu(hidden)
        case "gelu-tanh":
            return F.gelu(hidden, approximate="tanh")
        case "swiglu":
            gate, linear = hidden.chunk(2, -1)
            return F.silu(gate) * linear


class SquaredReLU(torch.autograd.Function):
    """The activation ``y = max(x, 0)²`` with its own backward pass, which needs half as many passes over memory.

    It can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rectified = F.relu(x)
        ctx.save_for_backward(rectified)
        return rectified * rectified

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (rectified,) = ctx.saved_tensors
        zero = gradient.new_zeros(())
        return torch.addcmul(zero, gradient, rectified, value=2)  # one pass; multiplying by 2 would make it two


squared_relu: Callable[[Tensor], Tensor] = SquaredReLU.apply


class RMSNorm(nn.Module):
    """The norm ``y = gain * x / sqrt(mean(x²) + ε)`` (Zhang and Sennrich, 2019), which does not subtract the mean.

    On a CPU torch's own is several times slower than these four operations.

    Args:
        shape: shape of the gain. Its last entry is the width that is normalized: ``d``, or ``n_heads, 1, d_head`` for
            one gain per head.
        affine: True to learn the gain; without it there are no parameters.
        epsilon: ε, in squared units of the input.
    """

    def __init__(self, *shape: int, affine: bool = True, epsilon: float = NORM_EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(shape)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # squares of half precision lose what the mean needs
        normed = (wide * (wide.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()).to(x.dtype)
        return normed if self.weight is None else normed * self.weight


class Residual(nn.Module):
    """The residual connection around a sublayer f, with its norm: ``y = add(x, f(sublayer_input(x)))``.

    - ``"pre"``: ``x + f(Norm(x))`` (Radford et al., 2019; Xiong et al., 2020);
    - ``"post"``: ``Norm(x + f(x))`` (Vaswani et al., 2017);
    - ``"residual"``: ``x + Norm(f(x))``, which normalises only what is added (Liu et al., 2022, *Swin Transformer V2*;
      OLMo 2, 2025).

    Args:
        placement: where the norm is applied, one of these three.
        norm: the norm itself.
        p: fraction of f's output that is dropped in training.
    """

    def __init__(self, placement: NormPlacement, norm: nn.Module, p: float) -> None:
        super().__init__()
        self.placement: NormPlacement = placement
        self.norm = norm
        self.p = p

    def sublayer_input(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.placement == "pre" else x

    def add(self, x: Tensor, update: Tensor) -> Tensor:
        """Return the sum of a sublayer's input and output, (B, T, d), with dropout, and the norm where it belongs.

        Args:
            x: input of the sublayer, (B, T, d).
            update: output of the sublayer, (B, T, d), to which dropout is applied.
        """
        if self.placement == "residual":
            return x + dropout(self.norm(update), self.p, self.training)
        total = x + dropout(update, self.p, self.training)
        return self.norm(total) if self.placement == "post" else total


def make_norm(
    kind: NormType, size: int, *, affine: bool = True, bias: bool = True, epsilon: float = NORM_EPSILON
) -> nn.Module:
    """Return a layer norm (Ba, Kiros and Hinton, 2016) or an RMS norm (Zhang and Sennrich, 2019) of the given size.

    Args:
        kind: ``"layer"`` or ``"rms"``.
        size: the width that is normalised.
        affine: True to learn a gain.
        bias: True to learn a shift too, which only a layer norm has.
        epsilon: the number added to the mean square, in squared units of the input.
    """
    if kind == "rms":
        return RMSNorm(size, affine=affine, epsilon=epsilon)
    return nn.LayerNorm(size, eps=epsilon, elementwise_affine=affine, bias=bias)
