"""Sublayers of a block in training, ``y = x + dropout(f(LayerNorm(x)))``, each as one operation of autograd.

They compute the same as ``Residual`` around ``SelfAttention`` and ``FeedForward``, in fewer passes over arrays and
fewer operations. Every array is converted once to the dtype of the matrix products, the heads of queries, keys and
values are split and joined by one copy each, and operations run in place if possible. All can be differentiated once. N
is the number of steps of a batch, B T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqmodels.neural.ops.dropout import keep_factors
from seqmodels.neural.ops.explicit_attention import attention_weights, query_and_key_gradients, score_gradients
from seqmodels.neural.ops.precision import compute_dtype, has_kernels_for_bfloat16
from seqmodels.neural.transformer.attention import AttentionMask, SelfAttention
from seqmodels.neural.transformer.cache import KeyValue
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.layers import Activation, FeedForward, Residual
from seqmodels.neural.transformer.positions import Rotation

_APPROXIMATE = {"gelu": "none", "gelu-tanh": "tanh"}
Gradients = tuple[Any, ...]  # one for every argument of ``forward``, or None if it has none


def has_training_sublayers(config: TransformerConfig) -> bool:
    """Return True if this module's fused operations can compute the sublayers of a stack with this configuration.

    They need ``norm="pre"`` with layer norms, as many heads of keys as of queries, no ``qk_norm``, no attention
    dropout, and another activation than ``"swiglu"``.
    """
    plain_attention = config.n_key_heads == config.n_query_heads and not config.qk_norm
    plain_norm = config.norm == "pre" and config.norm_type == "layer"
    return plain_attention and plain_norm and config.attention_dropout == 0 and config.activation != "swiglu"


# -- as modules compute them -----------------------------------------------------------------------------------


def self_attention_sublayer(
    x: Tensor, attention: SelfAttention, residual: Residual, mask: AttentionMask, rotation: Rotation | None
) -> tuple[Tensor, KeyValue]:
    """Return the hidden states (B, T, d) after self-attention and its residual connection, and the keys and values.

    Args:
        x: the inputs, (B, T, d).
        attention, residual: the layers whose weights are used.
        mask: which keys a query sees.
        rotation: rotation of queries and keys, or None.

    Returns:
        The hidden states, and keys and values of H heads, (B, H, T, d_head) each.
    """
    y, key, value = SelfAttentionSublayer.apply(  # type: ignore[no-untyped-call]
        x,
        *_parameters_of(residual.norm, attention.project, attention.output),
        mask.bias,
        rotation,
        attention.n_heads,
        _options_of(residual, x),
    )
    return y, (key, value)


def feedforward_sublayer(x: Tensor, feedforward: FeedForward, residual: Residual) -> Tensor:
    """Return the hidden states (B, T, d) after the feed-forward layer and its residual connection.

    Args:
        x: the inputs, (B, T, d).
        feedforward, residual: the layers whose weights are used.
    """
    y: Tensor = FeedForwardSublayer.apply(  # type: ignore[no-untyped-call]
        x,
        *_parameters_of(residual.norm, feedforward.expand, feedforward.contract),
        feedforward.activation,
        _options_of(residual, x),
    )
    return y


@dataclass(frozen=True)
class SublayerOptions:
    """Settings that both kinds of sublayers (attention and feed-forward) have in training.

    Attributes:
        epsilon: the layer norm's epsilon.
        p: fraction of the sublayer's output that is dropped.
        dtype: the dtype of matrix products.
    """

    epsilon: float
    p: float
    dtype: torch.dtype


def _options_of(residual: Residual, x: Tensor) -> SublayerOptions:
    return SublayerOptions(
        cast(nn.LayerNorm, residual.norm).eps, residual.p if residual.training else 0.0, compute_dtype(x)
    )


def _parameters_of(*layers: nn.Module) -> list[Tensor | None]:
    return [parameter for layer in layers for parameter in (layer.weight, layer.bias)]  # type: ignore[misc]


# -- as autograd does ------------------------------------------------------------------------------------------
# Rows are the N = B T steps of a batch. Arrays saved for the backward pass are in the type of the products, except
# ``x``, which the norm reads again.


class FeedForwardSublayer(torch.autograd.Function):
    """The autograd function of a feed-forward layer with its norm, dropout and residual connection."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        expand: Tensor,
        expand_bias: Tensor | None,
        contract: Tensor,
        contract_bias: Tensor | None,
        activation: Activation,
        options: SublayerOptions,
    ) -> Tensor:
        rows, mean, inverse = _normed(x, gain, shift, options)
        w, v = expand.to(options.dtype), contract.to(options.dtype)
        hidden, active = _activated(rows, w, expand_bias, activation)  # (N, F) twice
        y, kept = _added(x, _affine(active, v, contract_bias), options)
        ctx.save_for_backward(x, gain, shift, mean, inverse, rows, w, v, hidden, active, kept)
        ctx.activation, ctx.dtypes = activation, (expand.dtype, expand_bias is not None, contract_bias is not None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        x, gain, shift, mean, inverse, rows, w, v, hidden, active, kept = ctx.saved_tensors
        dtype, has_expand_bias, has_contract_bias = ctx.dtypes
        g = _dropped(gradient, rows.dtype, kept)
        d_hidden = _through_activation(g, v, hidden, ctx.activation)
        d_x, d_gain, d_shift = _through_norm(gradient, d_hidden @ w, x, gain, shift, mean, inverse)
        return (
            d_x,
            d_gain,
            d_shift,
            *_affine_gradients(d_hidden, rows, dtype, has_expand_bias),
            *_affine_gradients(g, active, dtype, has_contract_bias),
            None,
            None,
        )


class SelfAttentionSublayer(torch.autograd.Function):
    """The autograd function of a self-attention layer with its norm, dropout and residual connection."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        project: Tensor,
        project_bias: Tensor | None,
        output: Tensor,
        output_bias: Tensor | None,
        bias: Tensor | None,
        rotation: Rotation | None,
        n_heads: int,
        options: SublayerOptions,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, mean, inverse = _normed(x, gain, shift, options)
        w, v = project.to(options.dtype), output.to(options.dtype)
        joined = _affine(rows, w, project_bias).view(*x.shape[:2], 3, n_heads, -1)  # (B, T, 3, H, d_head)
        heads = joined.permute(2, 0, 3, 1, 4).contiguous()
        if rotation is not None:
            _rotate_in_place(heads[:2], *rotation)
        query, key, value = heads.flatten(1, 2)  # (B H, T, d_head) each
        weights = attention_weights(query, key, bias, n_heads)
        context = _join_heads(torch.bmm(weights, value), n_heads)
        y, kept = _added(x, _affine(context, v, output_bias), options)
        rotated_by = rotation or (None, None)
        ctx.save_for_backward(x, gain, shift, mean, inverse, rows, w, v, heads, weights, context, kept, *rotated_by)
        ctx.dtypes = project.dtype, project_bias is not None, output_bias is not None
        ctx.set_materialize_grads(False)
        return y, heads[1], heads[2]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, of_key: Tensor | None, of_value: Tensor | None) -> Gradients:
        x, gain, shift, mean, inverse, rows, w, v, heads, weights, context, kept, *rotation = ctx.saved_tensors
        dtype, has_project_bias, has_output_bias = ctx.dtypes
        gradient = torch.zeros_like(x) if gradient is None else gradient
        query, key, value = heads.flatten(1, 2)
        n_heads = heads.shape[2]
        g = _dropped(gradient, rows.dtype, kept)
        d_context = _split_heads(g @ v, x.shape, n_heads)
        d_scores = score_gradients(d_context, value, weights)
        d_heads = torch.empty_like(heads)
        d_query, d_key, d_value = d_heads.flatten(1, 2)
        query_and_key_gradients(d_scores, query, key, out=(d_query, d_key))
        torch.bmm(weights.transpose(1, 2), d_context, out=d_value)
        for of_heads, more in ((d_heads[1], of_key), (d_heads[2], of_value)):
            if more is not None:
                of_heads.add_(more)
        if rotation[0] is not None:
            _rotate_in_place(d_heads[:2], *rotation, back=True)
        d_joined = d_heads.permute(1, 3, 0, 2, 4).reshape(len(rows), -1)
        d_x, d_gain, d_shift = _through_norm(gradient, d_joined @ w, x, gain, shift, mean, inverse)
        return (
            d_x,
            d_gain,
            d_shift,
            *_affine_gradients(d_joined, rows, dtype, has_project_bias),
            *_affine_gradients(g, context, dtype, has_output_bias),
            *(None,) * 4,
        )


# -- steps of both passes --------------------------------------------------------------------------------------


def _normed(
    x: Tensor, gain: Tensor | None, shift: Tensor | None, options: SublayerOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the layer norm of inputs, (N, d), in the dtype of products, and its mean and inverse deviation.

    Args:
        x: inputs of N = B T steps, (B, T, d).
        gain, shift: the norm's parameters, (d,), or None.
        options: epsilon and dtype.
    """
    out, mean, inverse = torch.native_layer_norm(x.flatten(0, 1), x.shape[2:], gain, shift, options.epsilon)
    return out.to(options.dtype), mean, inverse


def _through_norm(
    gradient: Tensor,
    d_rows: Tensor,
    x: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of ``x``, of the norm's gain and of its shift, for a sublayer with a residual connection.

    Args:
        gradient: gradient of the sublayer's output, (B, T, d), which x gets directly.
        d_rows: gradient of the norm's output, (N, d), through which x gets the rest.
        x: the inputs, (B, T, d).
        gain, shift: the norm's parameters, or None.
        mean, inverse: mean and inverse deviation of each step, from ``_normed``.
    """
    needed = [True, gain is not None, shift is not None]
    d_x, d_gain, d_shift = torch.ops.aten.native_layer_norm_backward(
        d_rows.to(x.dtype), x.flatten(0, 1), x.shape[2:], mean, inverse, gain, shift, needed
    )
    return d_x.view(x.shape).add_(gradient), d_gain, d_shift


def _affine(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return rows @ weight.t() if bias is None else torch.addmm(bias.to(rows.dtype), rows, weight.t())


def _affine_gradients(
    gradient: Tensor, rows: Tensor, dtype: torch.dtype, has_bias: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of a linear map's weight, (out, in), and bias, (out,), or None without a bias.

    Args:
        gradient: gradient of the map's outputs at N steps, (N, out).
        rows: the map's inputs, (N, in).
        dtype: dtype of the results.
        has_bias: True if the map has a bias.
    """
    return (gradient.t() @ rows).to(dtype), gradient.sum(0, dtype=dtype) if has_bias else None


def _added(x: Tensor, update: Tensor, options: SublayerOptions) -> tuple[Tensor, Tensor | None]:
    """Return ``x`` plus an update after dropout, (B, T, d), and the dropout factors, or None without dropout.

    Args:
        x: inputs of the sublayer, (B, T, d).
        update: output of the sublayer at N = B T steps, (N, d), which is overwritten.
        options: the fraction to drop.
    """
    kept = keep_factors(x.shape, options.p, update.dtype) if options.p else None
    update = update.view(x.shape) if kept is None else update.view(x.shape).mul_(kept)
    return update.to(x.dtype).add_(x), kept


def _dropped(gradient: Tensor, dtype: torch.dtype, kept: Tensor | None) -> Tensor:
    """Return the gradient (N, d) of a sublayer's output before its dropout.

    Args:
        gradient: gradient after dropout, (B, T, d) with N = B T.
        dtype: dtype of the result.
        kept: the dropout factors, or None without dropout.
    """
    g = gradient.to(dtype)
    return (g if kept is None else g * kept).flatten(0, 1)


def _activated(rows: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> tuple[Tensor, Tensor]:
    """Return ``W x + b`` and its activation, (N, F) each, for the N steps x in ``rows`` and a hidden layer of width F.

    For a ReLU or its square the first is ``max(W x + b, 0)``, from which the gradient can be computed.

    Args:
        rows: the steps, (N, d).
        weight: W, (F, d).
        bias: b, (F,), or None.
        activation: name of the activation.
    """
    match activation:
        case "relu" | "relu2":
            if _has_fused_products(rows):
                b = None if bias is None else bias.to(rows.dtype)
                rectified: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, b, "relu", [], "")
            else:
                rectified = _affine(rows, weight, bias).relu_()
            return rectified, rectified if activation == "relu" else rectified.square()
    hidden = _affine(rows, weight, bias)
    return hidden, F.gelu(hidden, approximate=_APPROXIMATE[activation])


def _through_activation(gradient: Tensor, weight: Tensor, hidden: Tensor, activation: Activation) -> Tensor:
    """Return the gradient of ``W x + b``, (N, F), the argument of the activation of a feed-forward layer, at N steps.

    Args:
        gradient: gradient of the feed-forward's output, (N, d).
        weight: the feed-forward's second map, (d, F).
        hidden: the first result of ``_activated``, (N, F).
        activation: name of the activation.
    """
    if activation == "relu2":  # its slope is 2 max(x, 0)
        if _has_fused_products(gradient):
            product: Tensor = torch.ops.mkldnn._linear_pointwise(gradient, hidden, (weight * 2).t(), None, "mul")
            return product
        return (gradient @ (weight * 2)).mul_(hidden)
    d_active = gradient @ weight
    if activation == "relu":
        return cast(Tensor, torch.ops.aten.threshold_backward(d_active, hidden, 0))
    return cast(Tensor, torch.ops.aten.gelu_backward(d_active, hidden, approximate=_APPROXIMATE[activation]))


def _has_fused_products(rows: Tensor) -> bool:
    """Return True if oneDNN can fuse a product with a pointwise function of it, which it does in bfloat16 only."""
    return rows.dtype == torch.bfloat16 and has_kernels_for_bfloat16()


def _rotate_in_place(x: Tensor, cosine: Tensor, sine: Tensor, *, back: bool = False) -> None:
    """Rotate queries or keys by the angles of rotary embedding, in place; with ``back`` by the inverse rotation.

    Args:
        x: queries or keys, (..., T, d_head).
        cosine, sine: cosines and signed sines, (T, d_head) each.
        back: True for the inverse rotation.
    """
    rolled = x.roll(x.shape[-1] // 2, -1)
    x.mul_(cosine).addcmul_(rolled, sine, value=-1 if back else 1)


def _split_heads(rows: Tensor, shape: torch.Size, n_heads: int) -> Tensor:
    """Return rows of N = B T steps, (N, H d_head), as H heads, (B H, T, d_head); ``shape`` begins with B and T."""
    return rows.view(*shape[:2], n_heads, -1).transpose(1, 2).flatten(0, 1)


def _join_heads(heads: Tensor, n_heads: int) -> Tensor:
    """Return H heads of T steps, (B H, T, d_head), as rows of N = B T steps, (N, H d_head)."""
    split = heads.view(-1, n_heads, *heads.shape[1:]).transpose(1, 2)  # (B, T, H, d_head)
    return split.reshape(-1, n_heads * heads.shape[-1])
