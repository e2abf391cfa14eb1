"""Gradients no longer than they may be: ``g · min(1, longest / |g|)``, of all weights together (Pascanu, Mikolov and Bengio, 2013)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def clip(gradients: list[Tensor], longest: float) -> None:
    """In place; those that are short enough are not touched, which saves a pass over all of them.

    Raises:
        RuntimeError: the norm is not finite.
    """
    if not gradients:
        return
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    length = float(norm)
    if not math.isfinite(length):
        raise RuntimeError(
            f"the norm of the gradient is non-finite ({length}), so the weights cannot be moved along it; look for values that "
            "are infinite or far too large, or lower lr"
        )
    if length > longest:
        torch._foreach_mul_(gradients, longest / length)
