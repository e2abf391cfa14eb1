"""Attention as two matrix products, with a backward pass of our own: ``softmax(q kᵀ / √d + bias) v``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class WrittenAttention(torch.autograd.Function):
    """Context (B, H, T, d) of ``query`` (B, H, T, d), ``key`` and ``value`` (B, H, S, d).

    ``bias`` is added to the scores, broadcastable to (B, H, T, S); or None.

    The softmax and its gradient are taken in float32 at least, which on a CPU is several times faster than in bfloat16; products in
    the type of what comes in. It can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (x.flatten(0, 1) for x in (query, key, value))  # (B H, T, d), (B H, S, d) twice
        scores = torch.bmm(q, k.transpose(1, 2)).to(torch.promote_types(q.dtype, torch.float32))
        scores.mul_(q.shape[-1] ** -0.5)
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
        g, exact = gradient.flatten(0, 1), torch.promote_types(q.dtype, torch.float32)
        to_weights = torch.bmm(g, v.transpose(1, 2)).to(exact)
        to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights.to(exact), -1, exact)
        to_bias = None
        if ctx.needs_input_grad[3]:
            to_bias = to_scores.view(*ctx.shape[:3], -1).sum_to_size(bias.shape).to(bias.dtype)
        slopes = (to_scores * q.shape[-1] ** -0.5).to(q.dtype)
        found = torch.bmm(slopes, k), torch.bmm(slopes.transpose(1, 2), q), torch.bmm(weights.transpose(1, 2), g)
        to_query, to_key, to_value = (x.unflatten(0, ctx.shape[:2]) for x in found)
        return to_query, to_key, to_value, to_bias
