"""``log softmax(W h + b)[y]`` without ever holding the logits of all rows.

Up to ``RECOMPUTED`` symbols probabilities are kept for the way back (``KeptLogProb``). From there on nothing of that size is: the vocabulary goes through in pieces; the backward pass computes each piece's logits anew, which costs one more product and
saves the writing and reading of what would be the largest array of all by far (as in Wijmans et al., 2025, *Cut your losses*).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqmodels.neural.kept_softmax import KeptLogProb

RECOMPUTED = 8_192  # symbols
LOGITS_AT_ONCE = 1 << 20  # elements in one piece


def linear_log_prob(hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
    """Log-probability of symbols given what stands before the output layer, in float32 at least.

    Args:
        hidden: (..., d).
        weight: (V, d).
        bias: (V,).
        target: (...) integers below V.

    Returns:
        (...) nats.
    """
    h, y = hidden.flatten(0, -2), target.flatten()
    if len(weight) < RECOMPUTED:
        products = _precision(hidden)
        exact = torch.promote_types(products, torch.float32)
        return KeptLogProb.apply(h, weight, bias, y, products, exact).view(target.shape)
    return _LinearLogProb.apply(h, weight, bias, y).view(target.shape)


class _LinearLogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        h = hidden.to(_precision(hidden))
        exact = torch.promote_types(h.dtype, torch.float32)
        chosen = torch.zeros(len(h), dtype=exact, device=h.device)
        log_norm = torch.full_like(chosen, -torch.inf)
        for piece in _pieces(len(h), len(weight)):
            logits = _logits(h, weight[piece], bias[piece], exact)
            rows, columns = _within(target, piece)
            chosen[rows] = logits[rows, columns]
            largest = logits.amax(1)
            total = logits.sub_(largest[:, None]).exp_().sum(1)
            log_norm = torch.logaddexp(log_norm, total.log_().add_(largest))
        ctx.save_for_backward(hidden, weight, bias, target, log_norm)
        ctx.precision = h.dtype
        return chosen.sub_(log_norm)

    @staticmethod
    def backward(ctx: Any, *received: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        hidden, weight, bias, target, log_norm = ctx.saved_tensors
        h, g = hidden.to(ctx.precision), received[0]
        d_hidden = torch.zeros_like(h, dtype=log_norm.dtype)
        d_weight, d_bias = torch.empty_like(weight), torch.empty_like(bias)
        for piece in _pieces(len(h), len(weight)):
            d = _logits(h, weight[piece], bias[piece], log_norm.dtype)
            d.sub_(log_norm[:, None]).exp_().mul_(-g[:, None])
            rows, columns = _within(target, piece)
            d[rows, columns] += g[rows]
            torch.sum(d, 0, out=d_bias[piece])
            d = d.to(ctx.precision)
            d_weight[piece] = d.t() @ h
            d_hidden += d @ weight[piece].to(ctx.precision)
        return d_hidden.to(hidden.dtype), d_weight, d_bias, None


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor, exact: torch.dtype) -> Tensor:
    return (hidden @ weight.to(hidden.dtype).t()).to(exact).add_(bias)


def _within(target: Tensor, piece: slice) -> tuple[Tensor, Tensor]:
    """Rows whose symbol is in this piece of the vocabulary, and where in it."""
    rows = ((target >= piece.start) & (target < piece.stop)).nonzero()[:, 0]
    return rows, target[rows] - piece.start


def _precision(hidden: Tensor) -> torch.dtype:
    """That of autocast where it is on."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


def _pieces(n_rows: int, n_symbols: int) -> list[slice]:
    size = max(256, LOGITS_AT_ONCE // n_rows)
    return [slice(i, min(i + size, n_symbols)) for i in range(0, n_symbols, size)]
