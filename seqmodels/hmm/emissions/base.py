"""What EM needs of an observation: all states at once, sufficient statistics, the M-step, a start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.onednn import linear
from seqmodels.hmm.emissions.kmeans import in_comparable_units, kmeans_labels, with_neighbour_means
from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.products import is_worth_onednn
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import Observation

Statistics = tuple[Tensor, ...]  # float64 sums over frames: statistics of two batches add

SUMMED = 512  # frames added up in float32
FEW_PARTS = 8  # so few small matrices are quicker added up one by one
IN_CACHE = 1 << 19  # numbers that a block of frames may need at once on a CPU,
ON_GPU = 1 << 26  # and on a GPU
MOST_ROWS = 1 << 14  # frames of a block on a CPU
MANY_STATES = 16  # states from which symbols alone do not tell them apart


class Emission(ABC):
    """The EM side of one observation; ``table (K, P)`` are its output parameters, one row a state, float64.

    A ``MomentMatching`` needs none. To add one, define the abstract methods in a file of its own and put
    ``@emission_of.register(MyObservation)`` before the class. It is made with the observation and its ``size``: D
    features, or V symbols. ``x (N, ...)`` are encoded frames, ``past (N, p, D)`` the steps before each or None.
    ``evaluate`` and ``statistics`` may be called in several threads at once, each with frames and scratch of its own.
    """

    def __init__(self, observation: Observation, size: int) -> None:
        self.observation = observation
        self.size = size

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
        """All densities in ``dtype``, and what ``statistics`` can use again (and use up), or None; scratch is used."""
        return LogDensities(self.log_prob(table, x, past, dtype)), None

    def in_loops(self, table: Tensor, frames: Sequence[Tensor], dtype: torch.dtype) -> EmissionInLoops | None:
        """The same as compiled loops over the ``frames`` of some batches; None: there are none that compute in
        ``dtype``.
        """
        return None

    def tie(self, table: Tensor) -> Tensor:
        """The table with the numbers that all states share taken from the first state: for training by gradient."""
        return table

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        """``(N, K)``: log p(x_t | state), for every frame and state, in ``dtype`` (vectors come in it already)."""
        return self.observation.log_prob(table.unsqueeze(1), x, past).to(dtype).T

    def log_prob_by_state(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return ``(N, K)`` scores by which frames are given to states where EM starts; by default ``log_prob``."""
        return self.log_prob(table, x, past, dtype)

    @abstractmethod
    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        """Expected sufficient statistics, the state first, given ``gamma (N, K)``; ``memo`` is from ``evaluate``."""

    @abstractmethod
    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        """The exact M-step: the table that maximises expected log-likelihood plus ``log_prior``, within the floors."""

    def log_prior(self, table: Tensor) -> Tensor:
        """What the objective adds to the log-likelihood, up to a constant: ``()``, differentiable."""
        return table.new_zeros(())

    def floor_hits(self, table: Tensor) -> Tensor:
        """``(K,)`` whether a floor bounds the density of each state."""
        return self.observation.floor_hits(table, self.size)

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        """``(N,)`` a first guess of each frame's state; by default by k-means of frames beside their neighbours."""
        frames = with_neighbour_means(in_comparable_units(x, self.observation.values(self.size)))
        return kmeans_labels(frames, n_states, generator)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        """A first table, from guessed states; by default the M-step, with two average frames more in each state."""
        table = torch.zeros(
            n_states, self.observation.n_output_parameters(self.size), dtype=torch.float64, device=x.device
        )
        gamma = torch.nn.functional.one_hot(labels, n_states).double()
        sums = self.statistics(table, x, past, gamma)
        return self.maximise(tuple(s + 2 * s.sum(0) / len(x) for s in sums), table)

    def n_parameters(self, n_states: int) -> int:
        """Free parameters of the table."""
        return n_states * self.observation.n_output_parameters(self.size)

    @abstractmethod
    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        """The table as users know it, in raw units, by attribute name."""

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        """Return the parameters ``(K, P)`` in raw units as columns ``(K,)``: ``"rates_pulse"`` for a feature ``pulse``.

        ``names``: of the features, or of the symbols; a single ``""`` adds nothing to the name of a column. Here every
        parameter has a value for each feature of each state; an observation of other parameters overrides this.
        """
        raw = self.raw_parameters(table, shift, scale)
        return {
            column: values[:, d]
            for parameter, values in raw.items()
            for d, column in enumerate(columns_of(parameter.removesuffix("_"), names))
        }


class EmissionInLoops(Protocol):
    """An emission as EM on little data needs it: parameters that M-steps change in place, and sums over batches."""

    def log_densities(self, i: int) -> np.ndarray:
        """Return ``(N, K)`` float64 nats of the frames of batch ``i``."""

    def forget(self) -> None:
        """Set the sums of all batches to zero."""

    def add(self, i: int, gamma: np.ndarray, weight: float) -> None:
        """Add the sums of batch ``i`` under posteriors ``gamma (N, K)``, times its weight."""

    def maximise(self) -> None:
        """Put the parameters that maximise the expected log-likelihood and the prior in place of these."""

    def log_prior(self) -> float:
        """Return nats that a prior adds to the objective."""

    def floor_hits(self) -> int:
        """Return the number of states whose density a floor bounds."""

    def table(self) -> Tensor:
        """Return ``(K, P)`` the parameters as they are now."""

    def statistics(self) -> Statistics:
        """Return the sums of all batches."""


def columns_of(parameter: str, names: Sequence[str]) -> list[str]:
    """Return the names of a parameter's columns, one for each feature.

    >>> columns_of("mean", ["pulse", "pressure"]), columns_of("mean", [""])
    (['mean_pulse', 'mean_pressure'], ['mean'])
    """
    return [f"{parameter}_{name}" if name else parameter for name in names]


@singledispatch
def emission_of(observation: Observation, size: int) -> Emission:
    """The EM side of an observation over D features or V symbols.

    Raises:
        ValueError: an observation that no emission is registered for.
    """
    raise ValueError(
        f"EM cannot fit {observation!r}; use one that it can, such as GaussianMixture or Categorical, derive yours "
        "from MomentMatching, or write its Emission (emission_of.register)"
    )


def table_of_labels(
    emission: Emission, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, n_rounds: int
) -> Tensor:
    """A first table from guessed states: ``n_rounds`` of EM within them, from where the observation starts, with two
    average frames more in each state.
    """
    start = emission.observation.starting_point(emission.size, torch.Generator().manual_seed(0))
    table = start.to(x.device, torch.float64).expand(n_states, -1)
    gamma = torch.nn.functional.one_hot(labels, n_states).double()
    for _ in range(n_rounds):
        sums = emission.statistics(table, x, past, gamma)
        table = emission.maximise(tuple(s + 2 * s.sum(0) / len(x) for s in sums), table)
    return table


def row_blocks(n_frames: int, width: int, device: torch.device, most: int = MOST_ROWS) -> Iterator[slice]:
    """Blocks of frames, of ``width`` numbers each: on a CPU as many as its cache can hold, and ``most``."""
    max_rows = min(IN_CACHE // width, most) if device.type == "cpu" else ON_GPU // width
    size = max(SUMMED, max_rows // SUMMED * SUMMED)
    for start in range(0, n_frames, size):
        yield slice(start, min(start + size, n_frames))


def empty_by_state(n_states: int, n_frames: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(N, K), empty, in memory a row of frames for each state: what recursions over time are fastest on."""
    return torch.empty(n_states, n_frames, dtype=dtype, device=device).T


def add_sums(total: Tensor, weights: Tensor, features: Tensor) -> None:
    """``total (S, F) += weights (S, n) @ features (F, n).T``, float64 totals of short sums in the features' dtype."""
    size = SUMMED if features.dtype == torch.float32 else features.shape[1]
    n_whole = features.shape[1] // size * size
    if n_whole and is_worth_onednn(weights[:, :size], features[:, :size].T):
        for start in range(0, n_whole, size):
            total.add_(linear(weights[:, start : start + size], features[:, start : start + size]))
    else:
        _add_in_parts(total, weights[:, :n_whole], features[:, :n_whole], size)
    if n_whole < features.shape[1]:
        total.add_(weights[:, n_whole:] @ features[:, n_whole:].T)


def _add_in_parts(total: Tensor, weights: Tensor, features: Tensor, size: int) -> None:
    """``add_sums`` of parts of ``size`` frames, multiplied side by side."""
    weight_parts, feature_parts = (a.unflatten(1, (-1, size)).transpose(0, 1) for a in (weights, features))
    parts = torch.bmm(weight_parts, feature_parts.transpose(1, 2))  # (parts, S, F)
    for part in parts if len(parts) < FEW_PARTS else [parts.sum(0, dtype=torch.float64)]:
        total.add_(part)


def jitter(shape: tuple[int, ...], generator: torch.Generator, *, strong: bool) -> Tensor:
    """Factors of a first guess that keep states from starting alike; float64 on the CPU.

    They are between 0.5 and 1.5, or if ``strong`` log-normal, most between 0.3 and 3. Many states that share a few
    symbols are near a saddle, which EM leaves slowly: on 0.9 million characters with 64 states, strong noise is worth
    0.1 nats a character after as many steps.
    """
    if strong:
        return torch.randn(shape, generator=generator, dtype=torch.float64).exp()
    return 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
