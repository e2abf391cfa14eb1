"""The position-wise network of a Transformer: wide, an activation, and narrow again."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Activation = Literal["relu", "relu2", "gelu", "gelu-tanh", "swiglu"]


class FeedForward(nn.Module):
    """``W' σ(W x + b) + b'``, or gated: ``W' (silu(G x + c) * (W x + b)) + b'``.

    σ is ``"relu"``; ``"relu2"``, its square (So et al., 2021, *Primer*); ``"gelu"`` (Hendrycks and Gimpel, 2016) or its
    approximation ``"gelu-tanh"``; the gated kind is ``"swiglu"`` (Shazeer, 2020).

    Args:
        d_model: width of inputs and outputs.
        d_feedforward: width inside (of each half of the gated kind).
        activation: which.
        bias: whether the linear maps have one.
    """

    def __init__(self, d_model: int, d_feedforward: int, activation: Activation, *, bias: bool = True) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.expand = nn.Linear(d_model, d_feedforward * (2 if activation == "swiglu" else 1), bias=bias)
        self.contract = nn.Linear(d_feedforward, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d) -> (B, T, d), step by step."""
        out: Tensor = self.contract(activate(self.expand(x), self.activation))
        return out


def default_width(d_model: int, activation: Activation) -> int:
    """``4 d``; gated, whose parameters are in three matrices, as many parameters: ``8 d / 3`` up to a multiple of 8."""
    return 4 * d_model if activation != "swiglu" else -(-8 * d_model // 24) * 8


def activate(hidden: Tensor, activation: Activation) -> Tensor:
    """(..., F), or (..., 2 F) with the gate first, -> (..., F)."""
    match activation:
        case "relu":
            return F.relu(hidden)
        case "relu2":
            out: Tensor = SquaredReLU.apply(hidden)
            return out
        case "gelu":
            return F.gelu(hidden)
        case "gelu-tanh":
            return F.gelu(hidden, approximate="tanh")
        case "swiglu":
            gate, linear = hidden.chunk(2, -1)
            return F.silu(gate) * linear


class SquaredReLU(torch.autograd.Function):
    """``y = max(x, 0)²`` with the gradient ``2 max(x, 0)`` from what was kept: two passes over it where autograd's own take four.

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
        nothing = gradient.new_zeros(())
        return torch.addcmul(
            nothing, gradient, rectified, value=2
        )  # one pass, of which a product with 2 would make two
