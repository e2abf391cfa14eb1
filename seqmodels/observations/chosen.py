"""``log softmax(logits)_x`` with the gradient ``onehot(x) - softmax(logits)`` written straight into one array."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def chosen_log_prob(logits: Tensor, x: Tensor) -> Tensor:
    """Logits (..., V) and symbols (...) -> nats (...); differentiable once.

    Autograd's own way first fills an array of zeros with the gradient of what was picked, then goes over it again.
    """
    out: Tensor = _Chosen.apply(logits, x)
    return out


class _Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, x: Tensor) -> Tensor:
        log_p = torch.log_softmax(logits, -1)
        ctx.save_for_backward(log_p, x)
        return log_p.gather(-1, x.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, received: Tensor) -> tuple[Tensor, None]:
        log_p, x = ctx.saved_tensors
        g = received.unsqueeze(-1)
        return log_p.exp().mul_(-g).scatter_add_(-1, x.unsqueeze(-1), g), None
