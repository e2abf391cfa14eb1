"""Each input with the inputs before it: ``y_t = x_t + Σ_k W_k x_{t-k}``, k = 1 .. n."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqmodels.neural.transformer.relative import computed_in


class PreviousInputs(nn.Module):
    """A causal convolution on embedded inputs, so that the first layer already tells pairs of symbols apart from single ones.

    Attention needs a layer to find what stands just before a step, and has to learn where that is; a convolution is given
    it. RWKV mixes each step with the one before (Peng et al., 2023, *token shift*), Primer convolves queries, keys and
    values over three steps (So et al., 2021); here it is done once, with a full matrix for each distance, on the inputs.
    Before the first step there is nothing, that is zeros.

    Args:
        d_model: width of the inputs.
        n: how many inputs before each are added; 0: none, and inputs stay as they are.

    Raises:
        ValueError: for n below zero.

    >>> import torch
    >>> layer = PreviousInputs(8, 2)
    >>> y, recent = layer(torch.zeros(3, 5, 8), layer.start(3))
    >>> y.shape, recent.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 2, 8]))
    """

    def __init__(self, d_model: int, n: int) -> None:
        super().__init__()
        if n < 0:
            raise ValueError(f"previous is {n}; pass how many inputs before each to add, or 0 for none")
        self.d_model, self.n = d_model, n
        self.map = nn.Linear(n * d_model, d_model, bias=False) if n else None
        if self.map is not None:
            nn.init.normal_(self.map.weight, std=d_model**-0.5)  # each distance adds as much as the step itself

    def start(self, batch: int) -> Tensor:
        """The inputs before the first step, ``(batch, n, d)``."""
        like = torch.empty(0) if self.map is None else self.map.weight
        return like.new_zeros(batch, self.n, self.d_model)

    def forward(self, x: Tensor, recent: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs ``(B, T, d)`` and the n before them -> what is read instead, and the last n inputs, which come before the next.

        >>> layer = PreviousInputs(1, 1)
        >>> _ = nn.init.constant_(layer.map.weight, 10.0)
        >>> layer(torch.tensor([[[1.0], [2.0], [3.0]]]), layer.start(1))[0].flatten().tolist()
        [1.0, 12.0, 23.0]
        """
        if self.map is None:
            return x, recent
        joined = torch.cat([recent, x], 1)  # (B, n + T, d)
        before: Tensor = _Before.apply(joined, self.n, computed_in(x))
        return x + self.map(before), joined.narrow(1, x.shape[1], self.n)


class _Before(torch.autograd.Function):
    """(B, n + T, d) -> side by side what stands 1, 2, ... n before each of the last T, (B, T, n d), of the type of products.

    Joined by autograd every distance has a gradient of its own, zeros all around it.
    """

    @staticmethod
    def forward(ctx: Any, joined: Tensor, n: int, dtype: torch.dtype) -> Tensor:
        batch, steps, d = joined.shape
        ctx.shape, ctx.dtype = joined.shape, joined.dtype
        out = joined.new_empty(batch, steps - n, n, d, dtype=dtype)
        for k in range(1, n + 1):
            out[:, :, k - 1] = joined.narrow(1, n - k, steps - n)
        return out.flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        batch, steps, d = ctx.shape
        gradient = gradient.unflatten(2, (-1, d))  # (B, T, n, d)
        length, n = gradient.shape[1:3]
        out = gradient.new_zeros(batch, steps, d, dtype=ctx.dtype)
        for k in range(1, n + 1):
            out.narrow(1, n - k, length).add_(gradient[:, :, k - 1])
        return out, None, None
