"""Attention as two matrix products, with a backward pass of our own: ``softmax(q kᵀ / √d + bias) v``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

WIDE = range(16, 32)  # keys that fill a core's vector (of 512 bits) in float32 but not in half precision


class WrittenAttention(torch.autograd.Function):
    """Context (B, H, T, d) of ``query`` (B, H, T, d), ``key`` and ``value`` (B, H, S, d).

    ``bias`` is added to the scores, broadcastable to (B, H, T, S); or None. All is of the type of what comes in, but for the
    softmax of so many keys as are gone over one by one in half precision: that is several times faster in float32.
    It can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (x.flatten(0, 1) for x in (query, key, value))  # (B H, T, d), (B H, S, d) twice
        q = q * q.shape[-1] ** -0.5
        scores = torch.bmm(q, k.transpose(1, 2)).to(_softmax_type(k))
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
        g, exact = gradient.flatten(0, 1), _softmax_type(k)
        to_weights = torch.bmm(g, v.transpose(1, 2)).to(exact)
        to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights.to(exact), -1, exact)
        to_bias = None
        if ctx.needs_input_grad[3]:
            to_bias = to_scores.view(*ctx.shape[:3], -1).sum_to_size(bias.shape).to(bias.dtype)
        slopes = to_scores.to(q.dtype)
        to_query = torch.bmm(slopes, k).mul_(q.shape[-1] ** -0.5)
        found = to_query, torch.bmm(slopes.transpose(1, 2), q), torch.bmm(weights.transpose(1, 2), g)
        return *(x.unflatten(0, ctx.shape[:2]) for x in found), to_bias


def _softmax_type(key: Tensor) -> torch.dtype:
    return torch.promote_types(key.dtype, torch.float32) if key.shape[1] in WIDE else key.dtype
