"""The output layer and its cross-entropy in one operation: ``log softmax(W h + b)[y]`` without the logits of all rows.

There are two algorithms. On a CPU the size of the vocabulary decides, on a GPU the number of logits:

- below ``CHUNKED_FROM`` symbols (on a GPU up to ``KEPT_ON_GPU`` logits), fused: the logits are computed for a block of
  rows at a time (all at once if numba compiles the softmax, which then goes through row by row), and the probabilities
  are kept for the backward pass in the dtype of the products. With ``p = softmax(W h + b)`` and g the incoming
  gradient, the gradient of the logits is ``g (onehot(y) - p)``. Its two terms enter the products separately, as
  ``-pᵀ (g h)`` and a row added at y, so that the backward pass never goes over an array of rows times symbols;
- from there on, chunked: no array of that size is kept. A block of the vocabulary is processed at a time, and the
  backward pass computes the logits of each block again. This costs one more product, and saves writing and reading the
  largest array of all by far (as in Wijmans et al., 2025, *Cut your losses*).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqmodels.common.compiled import is_compiling
from seqmodels.neural.ops.precision import compute_dtype

CHUNKED_FROM = 8_192  # number of symbols from which the chunked algorithm is used
FUSED_ELEMENTS = 1 << 18  # logits in a block of rows, few enough to stay in a core's cache
COMPILED_FROM = 1 << 20  # number of logits from which their softmax is compiled in training
CHUNKED_ELEMENTS = 1 << 20  # number of logits in a block of symbols
ON_GPU = 1 << 27  # number of logits in a block of either kind: half a GiB in float32
KEPT_ON_GPU = 1 << 31  # largest number of probabilities that are kept: 4 GiB in bfloat16
WORD = 8  # numbers in half precision that a GPU reads together
ALIGNED = 64


def linear_log_prob(hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
    """Return the log-probability of target symbols given the inputs of the output layer, in nats, at least float32.

    The result has the shape of ``target``.

    Args:
        hidden: inputs of the output layer, ``(..., d)``.
        weight: weight of the output layer for V symbols, ``(V, d)``.
        bias: bias of the output layer, ``(V,)``.
        target: target symbols, ``(...)`` integers below V.
    """
    h, y = hidden.flatten(0, -2), target.flatten()
    if _keeps_probabilities(h, len(weight)):
        product_dtype = compute_dtype(hidden)
        sum_dtype = torch.promote_types(product_dtype, torch.float32)
        is_compiled = torch.is_grad_enabled() and _may_be_compiled(h, weight, bias, product_dtype)
        return _fused_log_prob(h, weight, bias, y, product_dtype, sum_dtype, is_compiled).view(target.shape)
    return _chunked_log_prob(h, weight, bias, y).view(target.shape)


class _FusedLogProb(torch.autograd.Function):
    """Log-probabilities of targets, ``(N,)`` nats, from logits that are all computed, as a differentiable function.

    The logits are those of ``hidden (N, d)`` under ``weight (V, d)`` and ``bias (V,)``; the targets are ``(N,)``.
    Products are computed in ``product_dtype``, and the softmax in ``sum_dtype``. It can be differentiated once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor,
        product_dtype: torch.dtype,
        sum_dtype: torch.dtype,
        is_compiled: bool,
    ) -> Tensor:
        h, w = hidden.to(product_dtype), weight.to(product_dtype)
        if is_compiled:
            from seqmodels.neural.ops.compiled_softmax import softmax_rows  # numba takes a while to load

            logits = h @ w.t()
            result = softmax_rows(logits, bias, target)
            probabilities: Tensor | None = logits  # softmax_rows has replaced the logits
        elif any(ctx.needs_input_grad) and _has_kernel(h, bias):
            from seqmodels.neural.ops.triton_softmax import softmax_rows as softmax_rows_on_gpu

            w = _aligned(w)
            probabilities = h @ w.t()
            result = softmax_rows_on_gpu(probabilities, bias.contiguous(), target)
        else:
            compute = _log_prob_on_cpu if h.device.type == "cpu" else _log_prob_on_gpu
            result, probabilities = compute(h, w, bias, target, sum_dtype, keeps=any(ctx.needs_input_grad))
        ctx.save_for_backward(hidden, weight, w, target, probabilities)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, w, target, p = ctx.saved_tensors
        g = gradient[:, None]
        weighted = hidden * g
        d_weight = (p.t() @ -weighted.to(p.dtype))[: len(weight)].to(weight.dtype)
        d_weight.index_add_(0, target, weighted.to(weight.dtype))
        d_hidden = (weight[target] - p @ w) * g
        d_bias = -(gradient.to(p.dtype)[None] @ p)[0, : len(weight)].to(gradient.dtype)
        return d_hidden.to(hidden.dtype), d_weight, d_bias.index_add_(0, target, gradient), *(None,) * 4


class _ChunkedLogProb(torch.autograd.Function):
    """Log-probabilities of targets, ``(N,)`` nats, as a differentiable function that never keeps all logits.

    It is for large vocabularies. The logits are those of ``hidden (N, d)`` under ``weight (V, d)`` and ``bias (V,)``;
    the targets are ``(N,)``. A streaming log-sum-exp goes over blocks of symbols, and the backward pass computes their
    logits again.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        h = hidden.to(compute_dtype(hidden))
        sum_dtype = torch.promote_types(h.dtype, torch.float32)
        target_logit = torch.zeros(len(h), dtype=sum_dtype, device=h.device)
        log_norm = torch.full_like(target_logit, -torch.inf)
        for block in _blocks(h, len(weight)):
            logits = _logits(h, weight[block], bias[block], sum_dtype)
            column, is_within = _targets_within(target, block)
            target_logit = torch.where(is_within, logits.gather(1, column[:, None])[:, 0], target_logit)
            largest = logits.amax(1)
            exp_sum = logits.sub_(largest[:, None]).exp_().sum(1)
            log_norm = torch.logaddexp(log_norm, exp_sum.log_().add_(largest))
        ctx.save_for_backward(hidden, weight, bias, target, log_norm)
        ctx.product_dtype = h.dtype
        return target_logit.sub_(log_norm)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        hidden, weight, bias, target, log_norm = ctx.saved_tensors
        h = hidden.to(ctx.product_dtype)
        g = gradients[0]
        d_hidden = torch.zeros_like(h, dtype=log_norm.dtype)
        d_weight = torch.empty_like(weight)
        d_bias = torch.empty_like(bias)
        for block in _blocks(h, len(weight)):
            d_logits = _logits(h, weight[block], bias[block], log_norm.dtype)
            d_logits.sub_(log_norm[:, None]).exp_().mul_(-g[:, None])
            column, is_within = _targets_within(target, block)
            d_logits.scatter_add_(1, column[:, None], torch.where(is_within, g, 0.0)[:, None])
            torch.sum(d_logits, 0, out=d_bias[block])
            d_logits = d_logits.to(ctx.product_dtype)
            d_weight[block] = d_logits.t() @ h
            d_hidden += d_logits @ weight[block].to(ctx.product_dtype)
        return d_hidden.to(hidden.dtype), d_weight, d_bias, None


_fused_log_prob: Callable[..., Tensor] = _FusedLogProb.apply
_chunked_log_prob: Callable[..., Tensor] = _ChunkedLogProb.apply


def _log_prob_on_cpu(
    h: Tensor, w: Tensor, bias: Tensor, target: Tensor, sum_dtype: torch.dtype, *, keeps: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the log-probabilities of N targets in nats, ``(N,)``, and all probabilities, ``(N, V)`` or None.

    Args:
        h: hidden states, ``(N, d)``.
        w: weight of the output layer for V symbols, ``(V, d)``.
        bias: its bias, ``(V,)``.
        target: targets, ``(N,)``.
        sum_dtype: dtype of the softmax.
        keeps: True to return the probabilities, which the backward pass needs.
    """
    result = torch.empty(len(h), dtype=sum_dtype, device=h.device)
    probabilities = h.new_empty(len(h), len(w)) if keeps else None
    size = max(1, FUSED_ELEMENTS // len(w))
    for start in range(0, len(h), size):
        rows = slice(start, start + size)
        logits = _logits(h[rows], w, bias, sum_dtype)
        p = logits.softmax(1)
        # The largest probability is one over the sum that the softmax divides by.
        log_p = logits.gather(1, target[rows, None]).sub_(logits.amax(1, keepdim=True))
        result[rows] = log_p.add_(p.amax(1, keepdim=True).log_())[:, 0]
        if probabilities is not None:
            probabilities[rows] = p
    return result, probabilities


def _log_prob_on_gpu(
    h: Tensor, w: Tensor, bias: Tensor, target: Tensor, sum_dtype: torch.dtype, *, keeps: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the log-probabilities of targets, ``(N,)`` nats, and the probabilities, ``(N, V)`` or None, on a GPU.

    It makes fewer passes over memory than ``_log_prob_on_cpu``. Under ``torch.compile`` all rows are one block, whose
    logits in full precision are never written to memory.

    Args:
        h: hidden states, ``(N, d)``.
        w: weight of the output layer for V symbols, ``(V, d)``.
        bias: its bias, ``(V,)``.
        target: targets, ``(N,)``.
        sum_dtype: dtype of the softmax.
        keeps: True to return the probabilities, which the backward pass needs.
    """
    if torch.compiler.is_compiling():
        log_p = torch.add((h @ w.t()).to(sum_dtype), bias).log_softmax(1)
        return log_p.gather(1, target[:, None])[:, 0], log_p.exp().to(h.dtype) if keeps else None
    result = torch.empty(len(h), dtype=sum_dtype, device=h.device)
    probabilities = h.new_empty(len(h), len(w)) if keeps else None
    size = max(1, ON_GPU // len(w))
    for start in range(0, len(h), size):
        rows = slice(start, start + size)
        log_p = torch.add(h[rows] @ w.t(), bias).log_softmax(1)  # the sum has the wider dtype
        result[rows] = log_p.gather(1, target[rows, None])[:, 0]
        if probabilities is not None:
            torch.exp(log_p, out=probabilities[rows])
    return result, probabilities


def _has_kernel(h: Tensor, bias: Tensor) -> bool:
    """Return True if a Triton kernel can compute the softmax: on a GPU, and not under ``torch.compile``."""
    is_known = bias.dtype == torch.float32 and h.dtype in (torch.float32, torch.bfloat16)
    return is_known and h.is_cuda and not torch.compiler.is_compiling() and find_spec("triton") is not None


def _aligned(weight: Tensor) -> Tensor:
    """Return ``weight (V, d)`` with rows of zeros added up to a multiple of 64, unless V is a multiple of 8.

    Products whose rows are not aligned in memory are several times slower on a GPU.
    """
    n = len(weight)
    return weight if n % WORD == 0 else F.pad(weight, (0, 0, 0, -n % ALIGNED))


def _may_be_compiled(h: Tensor, weight: Tensor, bias: Tensor, product_dtype: torch.dtype) -> bool:
    """Return True if numba is installed and there are enough logits on a CPU to be worth loading it.

    Args:
        h: hidden states, ``(N, d)``.
        weight, bias: the output layer of V symbols, ``(V, d)`` and ``(V,)``; there are N V logits.
        product_dtype: dtype of the matrix products.
    """
    is_known = bias.dtype == torch.float32 and product_dtype in (torch.float32, torch.bfloat16)
    on_cpu = h.device.type == "cpu" and not torch.compiler.is_compiling()
    return is_known and on_cpu and len(h) * len(weight) >= COMPILED_FROM and is_compiling()


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor, sum_dtype: torch.dtype) -> Tensor:
    return (hidden @ weight.to(hidden.dtype).t()).to(sum_dtype).add_(bias)


def _targets_within(target: Tensor, block: slice) -> tuple[Tensor, Tensor]:
    """Return the column of each of N targets within a block of the vocabulary, ``(N,)``, and True if it is in it.

    For a target outside of the block the column is any valid one.
    """
    column = (target - block.start).clamp(0, block.stop - block.start - 1)
    return column, column + block.start == target


def _blocks(hidden: Tensor, n_symbols: int) -> list[slice]:
    elements = CHUNKED_ELEMENTS if hidden.device.type == "cpu" else ON_GPU
    size = max(256, elements // len(hidden))
    return [slice(i, min(i + size, n_symbols)) for i in range(0, n_symbols, size)]


def _keeps_probabilities(hidden: Tensor, n_symbols: int) -> bool:
    if hidden.device.type == "cpu":
        return n_symbols < CHUNKED_FROM
    return len(hidden) * n_symbols <= KEPT_ON_GPU
