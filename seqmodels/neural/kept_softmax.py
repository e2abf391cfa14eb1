"""``log softmax(W h + b)[y]`` for some thousand symbols: probabilities are kept in the type of the products, logits are not.

With ``p = softmax(W h + b)`` and g the gradient received, that of the logits is ``g (onehot(y) - p)``. Its two terms go into
the products apart, as ``-pᵀ (g h)`` and a row added where y is, so that no pass over rows times symbols is left for the way back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LOGITS_AT_ONCE = 1 << 18  # elements: few enough to stay in a core's cache while they are gone over


class KeptLogProb(torch.autograd.Function):
    """Of ``hidden (N, d)``, ``weight (V, d)``, ``bias (V,)`` and symbols ``target (N,)``: ``(N,)`` nats in the type ``exact``.

    Products are taken in the type ``products``. It can be differentiated once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor,
        products: torch.dtype,
        exact: torch.dtype,
    ) -> Tensor:
        h, w = hidden.to(products), weight.to(products)
        found = torch.empty(len(h), dtype=exact, device=h.device)
        kept = h.new_empty(len(h), len(w)) if any(ctx.needs_input_grad) else None
        size = max(1, LOGITS_AT_ONCE // len(w))
        for at in range(0, len(h), size):
            rows = slice(at, at + size)
            logits = (h[rows] @ w.t()).to(exact).add_(bias)
            p = logits.softmax(1)
            # The largest probability is one over the sum that the softmax divides by.
            log_p = logits.gather(1, target[rows, None]).sub_(logits.amax(1, keepdim=True))
            found[rows] = log_p.add_(p.amax(1, keepdim=True).log_())[:, 0]
            if kept is not None:
                kept[rows] = p
        ctx.save_for_backward(hidden, weight, target, kept)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, received: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        hidden, weight, target, p = ctx.saved_tensors
        g = received[:, None]
        weighed = hidden * g
        d_weight = (p.t() @ -weighed.to(p.dtype)).to(weight.dtype).index_add_(0, target, weighed.to(weight.dtype))
        d_hidden = (weight[target] - p @ weight.to(p.dtype)) * g
        d_bias = -(p.t() @ received.to(p.dtype)).to(received.dtype)
        return d_hidden.to(hidden.dtype), d_weight, d_bias.index_add_(0, target, received), None, None, None
