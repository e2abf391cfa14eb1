"""What may be done between and inside the layers of a recurrent network, without leaving the fused kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from torch import Tensor

from seqmodels.randomness import torch_dropout


@dataclass(frozen=True)
class RecurrentOptions:
    """All off by default. The fractions are dropped in training only; what is left is scaled up, so that means stay.

    Args:
        recurrent_dropout: variational dropout (Gal & Ghahramani 2016): the same mask at every step of a chunk, on what enters each
            layer and leaves the last (a mask for each sequence), and on the states ``h_{t-1}`` (one for all sequences of the
            batch, for only then is it the same as dropping columns of the recurrent matrix, which the kernels allow).
        embedding_dropout: whole steps of the input, so that the past has to make up for them.
        weight_drop: entries of the recurrent matrices, the same at every step of a chunk (Merity et al. 2018).
        layer_norm: what each layer hands up is normalised (Ba et al. 2016, who do so inside the cell: that takes a kernel
            call for every step, and is many times slower). States are handed on through time as they are.
        residual: from the second layer on, a layer adds to what it was given; with one layer there is nothing to add.

    Raises:
        ValueError: a fraction that is not from 0 up to 1.
    """

    recurrent_dropout: float = 0.0
    embedding_dropout: float = 0.0
    weight_drop: float = 0.0
    layer_norm: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        for field in fields(self)[:3]:
            value = getattr(self, field.name)
            if not 0 <= value < 1:
                raise ValueError(f"{field.name} is {value}; pass a fraction from 0 up to 1")

    def acts(self, training: bool) -> bool:
        """Whether anything is done: if not, all layers are one call."""
        drops = self.recurrent_dropout or self.embedding_dropout or self.weight_drop
        return self.layer_norm or self.residual or bool(training and drops)

    def thin(self, recurrent: Tensor, training: bool) -> Tensor:
        """The recurrent matrix ``(gates d, d)`` of one chunk: columns of dropped states and dropped weights are zero."""
        kept = masked(recurrent, (1, recurrent.shape[1]), self.recurrent_dropout, training)
        return masked(kept, recurrent.shape, self.weight_drop, training)

    def lock(self, steps: Tensor, training: bool) -> Tensor:
        """``(B, T, d)`` with the same features dropped at every step."""
        return masked(steps, (len(steps), 1, steps.shape[2]), self.recurrent_dropout, training)

    def skip_steps(self, inputs: Tensor, training: bool) -> Tensor:
        """``(B, T, d)`` with whole steps dropped."""
        return masked(inputs, (*inputs.shape[:2], 1), self.embedding_dropout, training)


def masked(values: Tensor, shape: Sequence[int], fraction: float, training: bool) -> Tensor:
    """Dropout by a mask of this shape, broadcast."""
    return values * torch_dropout(values.new_ones(shape), fraction) if training and fraction else values
