"""What EM needs of an observation: all states at once, sufficient statistics, the M-step, a start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from seqmodels.observations import Observation

Statistics = tuple[Tensor, ...]  # float64 sums over frames: statistics of two batches add

ROWS_AT_ONCE = 4_096  # frames of one matrix product: bounds memory, and float32 sums stay short


class Emission(ABC):
    """The EM side of one observation; ``table (K, P)`` are its parameters, one row a state, float64.

    To add one, define the methods below and a line in ``seqmodels.hmm.emissions.emission_of``. ``x (N, ...)`` are encoded
    frames, ``past (N, p, D)`` the steps before each or None.
    """

    observation: Observation
    size: int

    @abstractmethod
    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        """``(N, K)``: log p(x_t | state), for every frame and state, in ``dtype`` (vectors come in it already)."""

    @abstractmethod
    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, log_b: Tensor) -> Statistics:
        """Expected sufficient statistics given state posteriors ``gamma (N, K)``; ``log_b (N, K)`` is what ``log_prob`` returned."""

    @abstractmethod
    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        """The exact M-step: the table that maximises expected log-likelihood plus ``log_prior``, within the floors."""

    @abstractmethod
    def log_prior(self, table: Tensor) -> float:
        """What the objective adds to the log-likelihood, up to a constant."""

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


def chunked_sums(weights: Tensor, features: Tensor) -> Tensor:
    """``weights (S, N) @ features (N, F)`` with float64 totals of short sums in the dtype of computation."""
    size = 512 if features.dtype == torch.float32 else ROWS_AT_ONCE
    total = torch.zeros(len(weights), features.shape[1], dtype=torch.float64, device=features.device)
    for w, f in zip(weights.split(size, dim=1), features.split(size), strict=True):
        total += (w @ f).double()
    return total
