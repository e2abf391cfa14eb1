"""``p(x_t | z)`` of every frame and state, in the two forms the recursions need: scaled, and in logarithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Densities(Protocol):
    """(N, K) densities of N packed frames in K states. What ``scaled`` and ``log`` return belongs to the caller."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64: the precision of the recursions."""

    @property
    def device(self) -> torch.device:
        """Where they are."""

    def scaled(self) -> tuple[Tensor, Tensor]:
        """(N, K) densities over each frame's largest, and (N,) float64 nats, the logarithm of that largest."""

    def log(self) -> Tensor:
        """(N, K) nats."""

    def take(self, rows: Tensor) -> Densities:
        """Those of some frames."""

    def double(self) -> Densities:
        """The same in float64."""


@dataclass(frozen=True)
class LogDensities:
    """Given in logarithms: ``log_b`` (N, K) nats, -inf where a state cannot have emitted the frame."""

    log_b: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.log_b.shape[0], self.log_b.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.log_b.dtype

    @property
    def device(self) -> torch.device:
        return self.log_b.device

    def scaled(self) -> tuple[Tensor, Tensor]:
        peak = _finite(self.log_b.amax(1))
        return (self.log_b - peak[:, None]).exp_(), peak.double()

    def log(self) -> Tensor:
        return self.log_b

    def take(self, rows: Tensor) -> LogDensities:
        return LogDensities(self.log_b[rows])

    def double(self) -> LogDensities:
        return LogDensities(self.log_b.double())


@dataclass(frozen=True)
class TableDensities:
    """Looked up: ``log_table`` (V, K) nats of V symbols, ``symbols`` (N,). Exponents are taken of the table alone."""

    log_table: Tensor
    symbols: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.symbols), self.log_table.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.log_table.dtype

    @property
    def device(self) -> torch.device:
        return self.log_table.device

    def scaled(self) -> tuple[Tensor, Tensor]:
        peak = _finite(self.log_table.amax(1))
        table = (self.log_table - peak[:, None]).exp()
        return table.index_select(0, self.symbols), peak.double().index_select(0, self.symbols)

    def log(self) -> Tensor:
        return self.log_table.index_select(0, self.symbols)

    def take(self, rows: Tensor) -> TableDensities:
        return TableDensities(self.log_table, self.symbols[rows])

    def double(self) -> TableDensities:
        return TableDensities(self.log_table.double(), self.symbols)


def clamped(densities: Densities, states: Tensor) -> LogDensities:
    """Frames whose state is known, ``states (N,)`` not negative, are impossible in every other: what follows is exact."""
    log_b = densities.log()
    others = torch.arange(log_b.shape[1], device=log_b.device) != states[:, None]
    return LogDensities(log_b.masked_fill(others & (states >= 0)[:, None], -torch.inf))


def _finite(peak: Tensor) -> Tensor:
    return torch.where(peak == -torch.inf, 0.0, peak)
