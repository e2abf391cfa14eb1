"""Explicit attention, ``softmax(q kᵀ / √d + bias) v``: two matrix products with their own backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Numbers of keys that fill a core's vector of 512 bits in float32 but not in half precision.
FLOAT32_SOFTMAX_LENGTHS = range(16, 32)


class ExplicitAttention(torch.autograd.Function):
    """Attention ``softmax(q kᵀ / √d + bias) v`` as a differentiable function, of H heads, T queries and S keys.

    The arguments are ``query (B, H, T, d)``, ``key`` and ``value (B, H, S, d)``, and ``bias``, which must broadcast to
    ``(B, H, T, S)`` or is None; the result is the context, ``(B, H, T, d)``. Everything is computed in the dtype of the
    inputs, except that a softmax in half precision over a number of keys in ``FLOAT32_SOFTMAX_LENGTHS`` is done in
    float32, which is several times faster. It can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (x.flatten(0, 1) for x in (query, key, value))  # (B H, T, d), (B H, S, d) twice
        weights = attention_weights(q, k, bias, query.shape[1])
        ctx.save_for_backward(q, k, v, weights, bias)
        ctx.shape = query.shape
        return torch.bmm(weights, v).view(query.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v, weights, bias = ctx.saved_tensors
        g = gradient.flatten(0, 1)
        d_scores = score_gradients(g, v, weights)
        d_bias = None
        if ctx.needs_input_grad[3]:
            d_bias = d_scores.view(*ctx.shape[:3], -1).sum_to_size(bias.shape).to(bias.dtype)
        d_inputs = *query_and_key_gradients(d_scores, q, k), torch.bmm(weights.transpose(1, 2), g)
        return *(d.unflatten(0, ctx.shape[:2]) for d in d_inputs), d_bias


def attention_weights(query: Tensor, key: Tensor, bias: Tensor | None, n_heads: int) -> Tensor:
    """Return the attention weights ``softmax(q kᵀ / √d + bias)``, ``(B H, T, S)``, in the dtype of the inputs.

    There are B sequences, H heads, T queries and S keys.

    Args:
        query: queries of all heads, ``(B H, T, d)``.
        key: keys of all heads, ``(B H, S, d)``.
        bias: bias of the scores, which must broadcast to ``(B, H, T, S)``, or None.
        n_heads: number of heads H.
    """
    dtype, scale = _softmax_dtype(key), query.shape[-1] ** -0.5
    if bias is not None and dtype == query.dtype and bias.shape[:-2].numel() == 1:  # one for all heads
        return torch.baddbmm(bias.view(bias.shape[-2:]), query, key.transpose(1, 2), alpha=scale).softmax(-1)
    scores = torch.baddbmm(query.new_empty(()), query, key.transpose(1, 2), beta=0, alpha=scale).to(dtype)
    if bias is not None:
        scores.view(-1, n_heads, *scores.shape[1:]).add_(bias)
    return scores.softmax(-1).to(query.dtype)


def score_gradients(gradient: Tensor, value: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of the attention scores, ``(B H, T, S)``, given that of the context.

    There are B sequences, H heads, T queries and S keys.

    Args:
        gradient: gradient of the context, ``(B H, T, d)``.
        value: values of the forward pass, ``(B H, S, d)``.
        weights: attention weights of the forward pass, ``(B H, T, S)``.
    """
    dtype = _softmax_dtype(value)
    d_weights = torch.bmm(gradient, value.transpose(1, 2)).to(dtype)
    d_scores: Tensor = torch.ops.aten._softmax_backward_data(d_weights, weights.to(dtype), -1, dtype)
    return d_scores


def query_and_key_gradients(
    d_scores: Tensor, query: Tensor, key: Tensor, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of queries, ``(B H, T, d)``, and keys, ``(B H, S, d)``, given those of the scores.

    There are B sequences, H heads, T queries and S keys; the scores are ``q kᵀ / √d``.

    Args:
        d_scores: gradient of the scores, ``(B H, T, S)``.
        query: queries, ``(B H, T, d)``.
        key: keys, ``(B H, S, d)``.
        out: two tensors to which the results are written; None for new ones.
    """
    d, scale, none = d_scores.to(query.dtype), query.shape[-1] ** -0.5, query.new_empty(())
    of_query, of_key = (torch.empty_like(query), torch.empty_like(key)) if out is None else out
    torch.baddbmm(none, d, key, beta=0, alpha=scale, out=of_query)
    torch.baddbmm(none, d.transpose(1, 2), query, beta=0, alpha=scale, out=of_key)
    return of_query, of_key


def _softmax_dtype(key: Tensor) -> torch.dtype:
    if key.shape[1] in FLOAT32_SOFTMAX_LENGTHS:
        return torch.promote_types(key.dtype, torch.float32)
    return key.dtype


explicit_attention: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor] = ExplicitAttention.apply
