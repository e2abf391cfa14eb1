"""Dropout whose coins cost an eighth: on CPU, drawing one random number for every element takes longer than using it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero each element with probability ``p`` and scale the others so that the mean stays (Srivastava et al., 2014).

    In training only. On CPU each random byte decides one element, so that ``p`` is rounded to a multiple of 1/256.

    Args:
        p: from 0 up to 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (...)."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * kept(x.shape, self.p, x.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def kept(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """On CPU: 0 with probability ``p`` (to 1/256), otherwise 1 / (1 - p), each element by itself."""
    threshold = min(255, round(256 * p))
    n = shape.numel()
    words = torch.empty(-(-n // 8), dtype=torch.int64).random_(-(2**63), None)
    mask = words.view(torch.uint8)[:n].view(shape) >= threshold
    return mask.to(dtype).mul_(256 / (256 - threshold))
