"""A bias of the logits, said by an output layer that has none: the layer norm before it knows a constant.

What a layer norm normalises, n, sums to zero, so ``(1 / g) · (g n + s) = Σ s / g``, whatever n is: with the norm's shift s
such that this sum is d, ``b_v / (d g)`` added to row v of the output layer adds b_v to its logit.
"""

from __future__ import annotations

from torch import Tensor


def with_bias(weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """W' ``(V, d)`` and s' ``(d,)`` with ``W' (g n + s') = W (g n + s) + b`` for every n that sums to zero.

    Args:
        weight: W ``(V, d)``.
        bias: b ``(V,)``.
        gain: g ``(d,)`` of the norm.
        shift: s ``(d,)`` of the norm.

    Raises:
        ValueError: where a gain is zero.

    >>> import torch
    >>> W, b, g, s = torch.eye(3)[:2], torch.tensor([1.0, -1.0]), torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    >>> other, moved = with_bias(W, b, g, s)
    >>> other @ (g * torch.tensor([1.0, 1.0, -2.0]) + moved)
    tensor([2., 1.])
    """
    if not gain.all():
        raise ValueError(
            "the last norm has a gain of zero, so no bias of the logits can be said without one; set it to 0"
        )
    w, b, g, s = (x.double() for x in (weight, bias, gain, shift))
    moved = s + (1 - (s / g).mean()) * g  # s' / g has mean one
    added = (w @ (s - moved) + b) / len(g)
    return (w + added[:, None] / g).to(weight.dtype), moved.to(shift.dtype)
