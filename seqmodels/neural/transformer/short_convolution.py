"""A short causal convolution of the inputs, ``y_t = x_t + Σ_k W_k x_{t-k}`` for k = 1 .. n, at once or step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqmodels.neural.network import InputMap
from seqmodels.neural.ops.linear import apply_linear
from seqmodels.neural.ops.precision import compute_dtype


class ShortConvolution(nn.Module):
    """A causal convolution of embedded inputs, ``y_t = x_t + Σ_k W_k x_{t-k}`` for k = 1 .. n.

    It lets the first layer tell pairs of symbols from single ones. Attention needs a layer to find the step just
    before, and has to learn where it is; a convolution gets it directly. RWKV mixes each step with the one before (Peng
    et al., 2023, *token shift*), and Primer convolves queries, keys and values over three steps (So et al., 2021). Here
    it is done once, on the inputs, with a full matrix for each distance. Before the first step inputs are zero.

    Args:
        d_model: width of the inputs.
        n_lags: n, how many inputs before each are added; with 0 the inputs are unchanged.
        zero_init: True to start at ``y_t = x_t``; otherwise each distance adds as much as the step itself at first, by
            random matrices.

    Raises:
        ValueError: if ``n_lags`` is below zero.

    >>> import torch
    >>> layer = ShortConvolution(8, 2)
    >>> y, recent = layer(torch.zeros(3, 5, 8), layer.start(3))
    >>> y.shape, recent.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 2, 8]))
    """

    def __init__(self, d_model: int, n_lags: int, *, zero_init: bool = False) -> None:
        super().__init__()
        if n_lags < 0:
            raise ValueError(f"convolution_lags is {n_lags}; pass how many inputs before each to add, or 0 for none")
        self.d_model = d_model
        self.n_lags = n_lags
        self.map = nn.Linear(n_lags * d_model, d_model, bias=False) if n_lags else None
        if self.map is not None:
            nn.init.normal_(self.map.weight, std=0.0 if zero_init else d_model**-0.5)
        else:  # a module without weights has a device all the same
            self.register_buffer("like", torch.empty(0), persistent=False)

    def start(self, batch: int) -> Tensor:
        """Return the n inputs before the first step of each sequence, zeros ``(batch, n, d)``."""
        like = self.get_buffer("like") if self.map is None else self.map.weight
        return like.new_zeros(batch, self.n_lags, self.d_model)

    def forward(self, x: Tensor, recent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the convolution of T inputs, ``(B, T, d)``, and the last n inputs for the next call, ``(B, n, d)``.

        ``x (B, T, d)`` are the inputs, and ``recent (B, n, d)`` the n inputs before them.

        >>> layer = ShortConvolution(1, 1)
        >>> _ = nn.init.constant_(layer.map.weight, 10.0)
        >>> layer(torch.tensor([[[1.0], [2.0], [3.0]]]), layer.start(1))[0].flatten().tolist()
        [1.0, 12.0, 23.0]
        """
        if self.map is None:
            return x, recent
        joined = torch.cat([recent, x], 1)  # (B, n + T, d)
        previous = _previous_inputs(joined, self.n_lags, compute_dtype(x))
        return x + apply_linear(self.map, previous), joined.narrow(1, x.shape[1], self.n_lags)


class _PreviousInputs(torch.autograd.Function):
    """The n inputs before each of the last T steps side by side, (B, T, n d), from joined inputs (B, n + T, d).

    It has a backward pass of its own, because autograd would make a padded gradient array for every distance.
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


_previous_inputs: Callable[[Tensor, int, torch.dtype], Tensor] = _PreviousInputs.apply


class IncrementalConvolution:
    """A ``ShortConvolution`` (``y_t = x_t + Σ_k W_k x_{t-k}``) of n sequences that runs one step at a time.

    An input contributes to its own step and to the next p steps. The state, ``pending (n, p d)``, is the sum of the
    contributions of all inputs so far to each of the next p steps.

    Args:
        convolution: the convolution whose weights are used; p is its ``n_lags``.
        like: a tensor of the inputs' type and device.

    Attributes:
        input_map: maps inputs ``(n, d)`` to their contributions to their own step and to the next p, ``(n, d + p d)``.
    """

    def __init__(self, convolution: ShortConvolution, like: Tensor) -> None:
        self.d, self.n_lags = d, p = convolution.d_model, convolution.n_lags
        maps = [torch.eye(d, dtype=like.dtype, device=like.device)]
        if convolution.map is not None:
            maps += convolution.map.weight.detach().t().chunk(p)
        weight = torch.cat(maps, 1)
        self.input_map = InputMap(weight, weight.new_zeros(weight.shape[1]))

    def first_steps(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the convolution of T inputs that begin n sequences, ``(n, T, d)``, and the state after, ``(n, p d)``.

        The state is the sum of what the inputs contribute to each of the next p steps. ``inputs`` are ``(n, T, d)``.
        """
        n, length, d = inputs.shape
        projected = self.input_map(inputs.reshape(-1, d)).view(n, length, 1 + self.n_lags, d)
        total = inputs.new_zeros(n, length + self.n_lags, d)
        for lag in range(1 + self.n_lags):
            total.narrow(1, lag, length).add_(projected[:, :, lag])
        return total[:, :length], total[:, length:].flatten(1)

    def pending_after(self, recent: Tensor) -> Tensor:
        """Return the state ``(n, p d)`` after the last p inputs: what they contribute to each of the next p steps.

        ``recent (n, p, d)`` are these inputs, oldest first.
        """
        return self.first_steps(recent)[1]

    def __call__(self, projected: Tensor, pending: Tensor) -> tuple[Tensor, Tensor]:
        """Return the convolution's output ``(n, d)`` at one step and the state ``(n, p d)`` after it.

        Args:
            projected: ``input_map`` of the step's inputs, ``(n, d + p d)``; it may be overwritten.
            pending: the state before: what earlier inputs contribute to each of the next p steps, ``(n, p d)``.
        """
        if not self.n_lags:
            return projected, pending
        projected.narrow(1, 0, pending.shape[1]).add_(pending)
        # Contiguous, since norms would copy any other layout each time.
        return projected.narrow(1, 0, self.d).contiguous(), projected.narrow(1, self.d, pending.shape[1])
