"""Functions of logarithms of probabilities, of which those of zero are -inf."""

from __future__ import annotations

import torch
from torch import Tensor


def safe_log(probabilities: Tensor) -> Tensor:
    """Return logarithms of probabilities, -inf where one is zero, with a gradient of zero there instead of infinity."""
    if not probabilities.requires_grad:
        return probabilities.log()
    is_possible = probabilities > 0
    return torch.where(is_possible, torch.where(is_possible, probabilities, 1.0).log(), -torch.inf)


def finite(values: Tensor) -> Tensor:
    """Return ``values`` with 0 in place of -inf.

    Subtracting the result from a row that is all -inf leaves it at -inf, where subtracting -inf would give NaN.
    """
    return torch.where(values == -torch.inf, 0.0, values)


def relative_to_largest(log_b: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-densities in K states less the largest of each frame, ``(..., K)``, and that largest, ``(..., 1)``.

    A frame whose log-densities are all -inf stays so, and its largest is 0.
    """
    peak = finite(log_b.amax(-1, keepdim=True))
    return log_b - peak, peak


def draw(log_weights: Tensor, generator: torch.Generator) -> Tensor:
    """Draw an index from 0 to K - 1 by each row of weights, and return the indices, ``(w, n)``.

    The index is -1 where all weights are zero.

    Args:
        log_weights: logarithms of the weights, which need not sum to one, ``(w, n, K)``.
        generator: source of random numbers.
    """
    sums = (log_weights - finite(log_weights.amax(-1, keepdim=True))).exp().cumsum(-1)
    total = sums[..., -1:]
    uniform = torch.rand(total.shape, generator=generator, dtype=torch.float64, device=total.device)
    # 1 - uniform is in (0, 1]: a state of weight zero has the same sum as the state before, so it is never drawn.
    index = torch.searchsorted(sums, (1 - uniform) * total).squeeze(-1)
    return torch.where(total.squeeze(-1) > 0, index, -1)
