"""What EM needs of an observation: all states at once, sufficient statistics, the M-step, a start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.densities import Densities, LogDensities
from seqmodels.hmm.scratch import Scratch
from seqmodels.observations import Observation

Statistics = tuple[Tensor, ...]  # float64 sums over frames: statistics of two batches add

SUMMED = 512  # frames added up in float32
MANY = 8  # small matrices are quicker added up all at once
IN_CACHE, ON_GPU = 1 << 19, 1 << 26  # numbers that a chunk of frames may need at once


class Emission(ABC):
    """The EM side of one observation; ``table (K, P)`` are its output parameters, one row a state, float64.

    To add one, define the methods below and a line in ``seqmodels.hmm.emissions.emission_of``. ``x (N, ...)`` are encoded
    frames, ``past (N, p, D)`` the steps before each or None.
    """

    observation: Observation
    size: int

    @property
    def n_statistics(self) -> int:
        """How many tensors ``statistics`` returns."""
        return 1

    @property
    def shares(self) -> bool:
        """Whether states share numbers, so that a table cannot hold those of several chains."""
        return False

    def n_densities(self, n_states: int) -> int:
        """Densities evaluated for each frame."""
        return n_states

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        """All densities in ``dtype``, and what ``statistics`` can use again (and use up), or None; both may stand on scratch."""
        return LogDensities(self.log_prob(table, x, past, dtype)), None

    def tie(self, table: Tensor) -> Tensor:
        """The table with the numbers that all states share taken from the first state: for training by gradient."""
        return table

    @abstractmethod
    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        """``(N, K)``: log p(x_t | state), for every frame and state, in ``dtype`` (vectors come in it already)."""

    @abstractmethod
    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        """Expected sufficient statistics given state posteriors ``gamma (N, K)``; ``memo``: from ``evaluate``, same arguments."""

    @abstractmethod
    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        """The exact M-step: the table that maximises expected log-likelihood plus ``log_prior``, within the floors."""

    @abstractmethod
    def log_prior(self, table: Tensor) -> Tensor:
        """What the objective adds to the log-likelihood, up to a constant: ``()``, differentiable."""

    @abstractmethod
    def floor_hits(self, table: Tensor) -> Tensor:
        """``(K,)`` whether a floor bounds the density of each state."""

    @abstractmethod
    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        """``(N,)`` a first guess of each frame's state."""

    @abstractmethod
    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        """A first table, from guessed states."""

    @abstractmethod
    def n_parameters(self, n_states: int) -> int:
        """Free parameters of the table."""

    @abstractmethod
    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        """The table as users know it, in raw units, by attribute name."""


def chunks(n_frames: int, width: int, device: torch.device) -> Iterator[slice]:
    """Runs of frames, of ``width`` numbers each: on a CPU as many as its cache can hold."""
    most = min(IN_CACHE // width, 1 << 14) if device.type == "cpu" else ON_GPU // width
    size = max(SUMMED, most // SUMMED * SUMMED)
    for start in range(0, n_frames, size):
        yield slice(start, min(start + size, n_frames))


def by_state(n_states: int, n_frames: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(N, K), empty, in memory a row of frames for each state: what recursions over time are fastest on."""
    return torch.empty(n_states, n_frames, dtype=dtype, device=device).T


def add_sums(total: Tensor, weights: Tensor, features: Tensor) -> None:
    """``total (S, F) += weights (S, n) @ features (F, n).T``, float64 totals of short sums in the dtype of computation."""
    size = SUMMED if features.dtype == torch.float32 else features.shape[1]
    even = features.shape[1] // size * size
    left, right = (a[:, :even].unflatten(1, (-1, size)).transpose(0, 1) for a in (weights, features))
    pieces = torch.bmm(left, right.transpose(1, 2))  # (pieces, S, F)
    for piece in pieces if len(pieces) < MANY else [pieces.sum(0, dtype=torch.float64)]:
        total.add_(piece)
    if even < features.shape[1]:
        total.add_(weights[:, even:] @ features[:, even:].T)
