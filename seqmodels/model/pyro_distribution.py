"""A fitted model as a Pyro distribution over sequences of one length."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from pyro.distributions import TorchDistribution, constraints
from torch import Tensor

from seqmodels.encodings import Encoding, OpenSymbols
from seqmodels.sequences.measure import Length


class Scorer(Protocol):
    """The attributes and methods of a fitted model that ``SequenceDistribution`` uses."""

    encoding_: Encoding
    length_: Length

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-probability of each sequence of ``X``, or of ``y`` given ``X``, in nats, shape ``(n,)``."""

    def sample(
        self, n: int = 1, *, length: int | None = None, source: Any = None, random_state: int | None = None
    ) -> list[Any]:
        """Draw ``n`` raw sequences of ``length`` steps, given ``source`` for a model of p(y | x), as a list."""


class SequenceDistribution(TorchDistribution):
    """A fitted model as a Pyro distribution over raw sequences of ``length`` steps.

    Values are tensors ``(*batch, T, D)`` of vectors or ``(*batch, T)`` of symbols. The model is a constant: gradients
    flow neither into its parameters nor into values, so sequences can be observed (``obs=``) or sampled and scored, but
    not inferred by gradient. Under ``length="stop"`` the log-probability includes the end after the last step.

    Args:
        model: model fitted to vectors or symbols.
        length: number of steps T of a sequence.
        source: the raw source of a model of p(y | x), the same for every sequence.
        batch_shape: shape of a batch of independent sequences; None means a single one.

    Raises:
        ValueError: if the model is of text, which is not a tensor, or if the length is below one.
    """

    def __init__(self, model: Scorer, length: int, source: Any = None, batch_shape: torch.Size | None = None) -> None:
        reads = model.encoding_.reads
        if reads == "text":
            raise ValueError(
                "text cannot be a tensor; fit the model on sequences of integers to use it in a Pyro program"
            )
        if length < 1:
            raise ValueError(f"length is {length}; pass at least 1")
        self.model, self.length, self.source = model, length, source
        event = (length, model.encoding_.n_features) if reads == "vectors" else (length,)
        super().__init__(batch_shape or torch.Size(), torch.Size(event), validate_args=False)

    @property
    def support(self) -> Any:
        """The Pyro constraint that says which values a sequence may have: real vectors or integer symbols."""
        if self.model.encoding_.reads == "vectors":
            return constraints.independent(constraints.real, 2)
        if isinstance(self.model.encoding_, OpenSymbols):
            return constraints.independent(constraints.nonnegative_integer, 1)
        return constraints.independent(constraints.integer_interval(0, self.model.encoding_.size - 1), 1)

    def expand(
        self, batch_shape: torch.Size | list[int] | tuple[int, ...], _instance: Any = None
    ) -> SequenceDistribution:
        """Return this distribution over a batch of independent sequences of shape ``batch_shape``."""
        return SequenceDistribution(self.model, self.length, self.source, torch.Size(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-probability of each raw sequence in nats, float64, shape ``(*batch,)``.

        Args:
            value: sequences of T steps, ``(*batch, T, D)`` for vectors of D features or ``(*batch, T)`` for symbols.

        Raises:
            ValueError: if ``value`` requires a gradient or its last axes are not those of a sequence.
        """
        if value.requires_grad:
            raise ValueError(
                "the value requires a gradient, but a fitted model gives none for its data; observe it with obs="
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
        """Draw independent sequences of shape ``(*sample_shape, *batch, T)`` or, for vectors, ``(*sample_shape, *batch,
        T, D)``.

        ``batch`` is the shape of the distribution's batch, T the number of steps and D the number of features. The
        draws are seeded by torch's generator, which is also Pyro's.

        Raises:
            ValueError: if the model has ``length="stop"``, because its draws then differ in length.
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
