"""``Perturbation``: training sequences changed by random affine maps, ``x -> (I + M) x + o``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqmodels.common.parameters import Configurable


class Transformation(NamedTuple):
    """An affine map ``x -> matrix x + offset`` for each of B sequences.

    Attributes:
        matrix: ``(B, D, D)``.
        offset: ``(B, 1, D)``.
    """

    matrix: Tensor
    offset: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x``, ``(B, T, D)`` or ``(B, T, p, D)``, mapped. Missing values (NaN) count as 0 and stay missing."""
        steps = x.flatten(1, -2)  # (B, T p, D)
        missing = torch.isnan(steps)
        moved = torch.where(missing, 0.0, steps) @ self.matrix.mT + self.offset
        return torch.where(missing, torch.nan, moved).reshape(x.shape)


@dataclass(eq=False, repr=False)
class Perturbation(Configurable):
    """Random changes of training sequences of vectors, drawn anew each time that a network reads a sequence.

    An affine map is drawn for each sequence, ``x_t -> (I + M) x_t + o``, and inputs and targets go through it alike, so
    that the network learns to predict by what sequences have in common rather than by the levels and shapes of the few
    speakers (sensors, subjects) it was trained on. Cepstra of another channel differ by an offset, those of another
    vocal tract about by a linear map (Pitz and Ney 2005, *Vocal tract normalization equals linear transformation in
    cepstral space*). Scoring is of the sequences as they are.

    All in units of the standardised data, whose features have variance one.

    Args:
        offset: standard deviation of each feature of o.
        mixing: standard deviation of the sum of a row of M on white features; its entries have ``mixing / sqrt(D)``.
        noise: standard deviation of white noise added to inputs only, to no target.
    """

    offset: float = 1.0
    mixing: float = 0.3
    noise: float = 0.0

    def check(self) -> None:
        """Raise ``ValueError`` for a standard deviation that is below zero or not finite."""
        for name in ("offset", "mixing", "noise"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} of the perturbation is {getattr(self, name)}; pass a number of 0 or more")

    def draw(self, n: int, size: int, generator: torch.Generator | None, like: Tensor) -> Transformation:
        """Return random maps for ``n`` sequences of ``size`` features, on the device and of the dtype of ``like``."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, device=like.device, dtype=like.dtype)

        identity = torch.eye(size, device=like.device, dtype=like.dtype)
        return Transformation(
            identity + self.mixing * size**-0.5 * normal(n, size, size), self.offset * normal(n, 1, size)
        )

    def noisy(self, inputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return ``inputs`` with Gaussian noise of standard deviation ``noise`` added to each value."""
        if not self.noise:
            return inputs
        noise = torch.randn(inputs.shape, generator=generator, device=inputs.device, dtype=inputs.dtype)
        return inputs + self.noise * noise
