"""What EM needs of an observation: all states at once, sufficient statistics, the M-step, a start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.densities import Densities, LogDensities
from seqmodels.observations import Observation

Statistics = tuple[Tensor, ...]  # float64 sums over frames: statistics of two batches add

SUMMED = 512  # frames added up in float32
IN_CACHE = 1 << 19  # numbers that a chunk of frames may need at once


class Emission(ABC):
    """The EM side of one observation; ``table (K, P)`` are its parameters, one row a state, float64.

    To add one, define the methods below and a line in ``seqmodels.hmm.emissions.emission_of``. ``x (N, ...)`` are encoded
    frames, ``past (N, p, D)`` the steps before each or None.
    """

    observation: Observation
    size: int

    def n_densities(self, n_states: int) -> int:
        """Densities evaluated for each frame."""
        return n_states

    def evaluate(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> tuple[Densities, Any]:
        """All densities in ``dtype``, and what ``statistics`` can use again (and use up), or None."""
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


def chunks(n_frames: int, width: int) -> Iterator[slice]:
    """Runs of frames, of ``width`` numbers each, that a cache can hold."""
    size = max(SUMMED, min(IN_CACHE // width, 1 << 14) // SUMMED * SUMMED)
    for start in range(0, n_frames, size):
        yield slice(start, min(start + size, n_frames))


def by_state(n_states: int, n_frames: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(N, K), empty, in memory a row of frames for each state: what recursions over time are fastest on."""
    return torch.empty(n_states, n_frames, dtype=dtype, device=device).T


def chunked_sums(weights: Tensor, features: Tensor) -> Tensor:
    """``weights (S, N) @ features (N, F)`` with float64 totals of short sums in the dtype of computation."""
    if features.dtype == torch.float64:
        return weights @ features
    even = len(features) // SUMMED * SUMMED
    pieces = weights[:, :even].unflatten(1, (-1, SUMMED)).transpose(0, 1)  # (pieces, S, 512)
    total = torch.bmm(pieces, features[:even].unflatten(0, (-1, SUMMED))).sum(0, dtype=torch.float64)
    return total + (weights[:, even:] @ features[even:]).double() if even < len(features) else total
