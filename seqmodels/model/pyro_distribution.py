"""A fitted model in a Pyro program: one sequence of given length as a distribution."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from pyro.distributions import TorchDistribution, constraints
from torch import Tensor

from seqmodels.encodings import Encoding, OpenSymbols
from seqmodels.sequences.measure import Length


class Scorer(Protocol):
    """What a ``SequenceDistribution`` needs of a fitted model."""

    encoding_: Encoding
    length_: Length

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence, raw units."""

    def sample(
        self, n: int = 1, *, length: int | None = None, source: Any = None, random_state: int | None = None
    ) -> list[Any]:
        """``n`` drawn sequences, in raw units."""


class SequenceDistribution(TorchDistribution):
    """p(x) of raw sequences of ``length`` steps, tensors ``(*batch, T, D)`` of vectors or ``(*batch, T)`` of symbols.

    The model is a constant: no gradient flows into its parameters, nor into values, so sequences are observed
    (``obs=``), or sampled and scored, not inferred by gradient. Under ``length="stop"`` the figure is log p(x and the
    end after it).

    Args:
        model: fitted, on vectors or symbols.
        length: T.
        source: what a conditional model is given, the same for every sequence.

    Raises:
        ValueError: a model of text, whose sequences are no tensors; a length below one.
    """

    def __init__(self, model: Scorer, length: int, source: Any = None, batch_shape: torch.Size | None = None) -> None:
        reads = model.encoding_.reads
        if reads == "text":
            raise ValueError("text is no tensor; fit the model on sequences of integers to use it in a Pyro program")
        if length < 1:
            raise ValueError(f"length is {length}; pass at least 1")
        self.model, self.length, self.source = model, length, source
        event = (length, model.encoding_.n_features) if reads == "vectors" else (length,)
        super().__init__(batch_shape or torch.Size(), torch.Size(event), validate_args=False)

    @property
    def support(self) -> Any:
        """Vectors of real numbers, or symbols."""
        if self.model.encoding_.reads == "vectors":
            return constraints.independent(constraints.real, 2)
        if isinstance(self.model.encoding_, OpenSymbols):
            return constraints.independent(constraints.nonnegative_integer, 1)
        return constraints.independent(constraints.integer_interval(0, self.model.encoding_.size - 1), 1)

    def expand(
        self, batch_shape: torch.Size | list[int] | tuple[int, ...], _instance: Any = None
    ) -> SequenceDistribution:
        """The same for a batch of independent sequences."""
        return SequenceDistribution(self.model, self.length, self.source, torch.Size(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """``(*batch)`` float64 nats, raw units."""
        if value.requires_grad:
            raise ValueError(
                "the value requires a gradient, but a fitted model has none in its data; observe it with obs="
            )
        n_event = len(self.event_shape)
        if value.shape[value.ndim - n_event :] != self.event_shape:
            raise ValueError(
                f"the value has shape {tuple(value.shape)}; its last axes must be {tuple(self.event_shape)}"
            )
        shape = torch.broadcast_shapes(value.shape[: value.ndim - n_event], self.batch_shape)
        items = list(value.detach().expand(*shape, *self.event_shape).reshape(-1, *self.event_shape).cpu().numpy())
        log_prob = self.model.log_prob(*((items, None) if self.source is None else ([self.source] * len(items), items)))
        return torch.as_tensor(log_prob, device=value.device).reshape(shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Independent draws, seeded by torch's (and so Pyro's) generator.

        Raises:
            ValueError: a model of ``length="stop"``, whose draws have lengths of their own.
        """
        if self.model.length_ == "stop":
            raise ValueError(
                'the model was fitted with length="stop", so its draws have no given length; observe sequences (obs=), '
                'use model.sample(), or fit with length="given"'
            )
        shape = torch.Size(sample_shape) + self.batch_shape
        seed = int(torch.randint(2**31, ()))
        drawn = self.model.sample(shape.numel(), length=self.length, source=self.source, random_state=seed)
        return torch.as_tensor(np.stack(drawn)).reshape(shape + self.event_shape)
