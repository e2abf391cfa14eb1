"""Explicit attention, ``softmax(q kᵀ / √d + bias) v``: two matrix products with a backward pass of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Keys that fill a core's vector (of 512 bits) in float32 but not in half precision.
FLOAT32_SOFTMAX_LENGTHS = range(16, 32)


class ExplicitAttention(torch.autograd.Function):
    """Context (B, H, T, d) of ``query`` (B, H, T, d), ``key`` and ``value`` (B, H, S, d).

    ``bias`` is added to the scores, broadcastable to (B, H, T, S); or None. All is of the type of the inputs, but for
    the softmax over ``FLOAT32_SOFTMAX_LENGTHS`` keys in half precision, where float32 is several times faster. It can
    be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (x.flatten(0, 1) for x in (query, key, value))  # (B H, T, d), (B H, S, d) twice
        q = q * q.shape[-1] ** -0.5
        scores = torch.bmm(q, k.transpose(1, 2)).to(_softmax_dtype(k))
        if bias is not None:
            scores.view(*query.shape[:3], -1).add_(bias)
        weights = scores.softmax(-1).to(v.dtype)  # (B H, T, S)
        ctx.save_for_backward(q, k, v, weights, bias)
        ctx.shape = query.shape
        return torch.bmm(weights, v).view(query.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v, weights, bias = ctx.saved_tensors
        g = gradient.flatten(0, 1)
        dtype = _softmax_dtype(k)
        d_weights = torch.bmm(g, v.transpose(1, 2)).to(dtype)
        d_scores = torch.ops.aten._softmax_backward_data(d_weights, weights.to(dtype), -1, dtype)
        d_bias = None
        if ctx.needs_input_grad[3]:
            d_bias = d_scores.view(*ctx.shape[:3], -1).sum_to_size(bias.shape).to(bias.dtype)
        d_scores = d_scores.to(q.dtype)
        d_query = torch.bmm(d_scores, k).mul_(q.shape[-1] ** -0.5)
        d_inputs = d_query, torch.bmm(d_scores.transpose(1, 2), q), torch.bmm(weights.transpose(1, 2), g)
        return *(d.unflatten(0, ctx.shape[:2]) for d in d_inputs), d_bias


def _softmax_dtype(key: Tensor) -> torch.dtype:
    if key.shape[1] in FLOAT32_SOFTMAX_LENGTHS:
        return torch.promote_types(key.dtype, torch.float32)
    return key.dtype


explicit_attention: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor] = ExplicitAttention.apply
