"""Augmentation of training sequences by random affine maps, as if other speakers or sensors had recorded them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqmodels.common.parameters import Configurable


class Transformation(NamedTuple):
    """An affine map ``x -> matrix x + offset`` for each of B sequences of vectors with D features.

    Attributes:
        matrix: matrix of each sequence, ``(B, D, D)``.
        offset: offset of each sequence, ``(B, 1, D)``.
    """

    matrix: Tensor
    offset: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Return vectors with the affine map of their sequence applied to each, in the same shape.

        Missing values (NaN) stay missing, and count as 0 for the other features of their step.

        Args:
            x: vectors of B sequences with T steps and D features, ``(B, T, D)``, or ``(B, T, p, D)`` with the p last
                steps before each step.
        """
        steps = x.flatten(1, -2)  # (B, T p, D)
        missing = torch.isnan(steps)
        moved = torch.where(missing, 0.0, steps) @ self.matrix.mT + self.offset
        return torch.where(missing, torch.nan, moved).reshape(x.shape)


@dataclass(eq=False, repr=False)
class Perturbation(Configurable):
    """Augmentation of vector sequences in training: each sequence is mapped at random whenever a network reads it.

    An affine map is drawn for each sequence, ``x_t -> (I + M) x_t + o``, and applied to its inputs and targets alike.
    So the network learns to predict by what sequences have in common and not by the levels and shapes of the few
    speakers (sensors, subjects) in the training data. Cepstra from another channel differ by an offset, those from
    another vocal tract approximately by a linear map (Pitz and Ney 2005, *Vocal tract normalisation equals linear
    transformation in cepstral space*). Scores are always computed on the original sequences.

    All arguments are in units of the standardised data, whose features have variance one.

    Args:
        offset: standard deviation of each feature of o.
        mixing: standard deviation of the sum of a row of M on white features; its entries have ``mixing / sqrt(D)``,
            for D features.
        noise: standard deviation of white noise that is added to inputs but not to targets.
    """

    offset: float = 1.0
    mixing: float = 0.3
    noise: float = 0.0

    def check(self) -> None:
        for name in ("offset", "mixing", "noise"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} of the perturbation is {getattr(self, name)}; pass a number of 0 or more")

    def draw(self, n: int, size: int, generator: torch.Generator | None, like: Tensor) -> Transformation:
        """Return random affine maps, one for each of ``n`` sequences of vectors.

        Args:
            n: number of sequences.
            size: number of features of a vector.
            generator: draws the maps; None uses torch's default one.
            like: tensor that gives device and dtype.
        """

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, device=like.device, dtype=like.dtype)

        identity = torch.eye(size, device=like.device, dtype=like.dtype)
        return Transformation(
            identity + self.mixing * size**-0.5 * normal(n, size, size), self.offset * normal(n, 1, size)
        )

    def noisy(self, inputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return ``inputs`` with Gaussian noise of standard deviation ``noise`` added; unchanged if that is 0.

        Args:
            inputs: vectors, in any shape.
            generator: draws the noise; None uses torch's default one.
        """
        if not self.noise:
            return inputs
        noise = torch.randn(inputs.shape, generator=generator, device=inputs.device, dtype=inputs.dtype)
        return inputs + self.noise * noise
