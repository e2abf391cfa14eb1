"""Noise that keeps states from starting alike: factors of a first guess."""

from __future__ import annotations

import torch
from torch import Tensor

MANY = 16  # states from which symbols alone do not tell them apart


def jitter(shape: tuple[int, ...], generator: torch.Generator, *, strong: bool) -> Tensor:
    """Factors between 0.5 and 1.5, or if ``strong`` log-normal, most between 0.3 and 3; float64 on the CPU.

    Many states that share a few symbols are near a saddle, which EM leaves slowly: on 0.9 million characters with 64 states, strong
    noise is worth 0.1 nats a character after as many steps.
    """
    if strong:
        return torch.randn(shape, generator=generator, dtype=torch.float64).exp()
    return 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
