"""Densities ``p(x_t | z)`` of every frame and state, in the two forms that recursions need: scaled and logarithmic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from seqmodels.inference.chains.scratch import Scratch

LOG2E = 1.4426950408889634  # powers of two are what processors are quick at


class Densities(Protocol):
    """Densities p(x_t | z_t) of N packed frames in K states, ``(N, K)``; ``(R, N, K)`` for R chains side by side.

    To add a form of densities, define these methods.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the densities: ``(N, K)`` or ``(R, N, K)``."""

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the recursions: float32 or float64."""

    @property
    def device(self) -> torch.device:
        """The device that the densities are on."""

    def scaled(self, scratch: Scratch, flush: float) -> tuple[Tensor, Tensor]:
        """Return the densities relative to the largest of each frame, and the logarithm of that largest.

        Args:
            scratch: buffers, in which the results lie.
            flush: scaled densities up to this become zero.

        Returns:
            Scaled densities, ``(..., N, K)``, and logarithms in nats, ``(..., N)`` float64.
        """

    def log(self) -> Tensor:
        """Return the log-densities in nats, ``(..., N, K)``."""

    def take(self, rows: Tensor) -> Densities:
        """Return the densities of the frames with the given packed rows, for one chain."""

    def double(self) -> Densities:
        """Return the densities of one chain in float64."""

    def chains(self, n: int) -> Densities:
        """Return densities ``(N, R·K)`` of R = ``n`` chains as ``(R, N, K)``."""

    def chain(self, i: int) -> Densities:
        """Return the densities of chain number ``i``, where there are several chains."""


@dataclass(frozen=True)
class LogDensities:
    """Densities of N frames in K states that are given as their logarithms.

    Attributes:
        log_b: log-densities in nats, ``(N, K)``, or ``(R, N, K)`` for R chains; -inf where a state cannot have emitted
            the frame.
    """

    log_b: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.log_b.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.log_b.dtype

    @property
    def device(self) -> torch.device:
        return self.log_b.device

    def scaled(self, scratch: Scratch, flush: float) -> tuple[Tensor, Tensor]:
        peak = _largest(self.log_b.mT, scratch)
        b = torch.sub(self.log_b, peak.unsqueeze(-1), out=scratch.like("b", self.log_b))
        return torch.threshold_(b.mul_(LOG2E).exp2_(), flush, 0.0), _double(peak, scratch)

    def log(self) -> Tensor:
        return self.log_b

    def take(self, rows: Tensor) -> LogDensities:
        return LogDensities(self.log_b[rows])

    def double(self) -> LogDensities:
        return LogDensities(self.log_b.double())

    def chains(self, n: int) -> LogDensities:
        return LogDensities(self.log_b.T.unflatten(0, (n, -1)).mT)

    def chain(self, i: int) -> LogDensities:
        return LogDensities(self.log_b[i])


@dataclass(frozen=True)
class PowerDensities:
    """Densities of N frames in K states that are given as ``factor · 2^exponent``.

    Attributes:
        exponent: exponents of two, ``(..., K, N)``.
        factor: factors of the order of one, ``(..., K, N)``; None means that all are one.
    """

    exponent: Tensor
    factor: Tensor | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.exponent.mT.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.exponent.dtype

    @property
    def device(self) -> torch.device:
        return self.exponent.device

    def scaled(self, scratch: Scratch, flush: float) -> tuple[Tensor, Tensor]:
        peak = _largest(self.exponent, scratch)
        b = scratch.buffer("b", tuple(self.exponent.shape), self.dtype, self.device)
        torch.sub(self.exponent, peak.unsqueeze(-2), out=b).exp2_()
        b = torch.threshold_(b if self.factor is None else b.mul_(self.factor), flush, 0.0)
        return b.mT, _double(peak, scratch).div_(LOG2E)

    def log(self) -> Tensor:
        nats = self.exponent / LOG2E
        return (nats if self.factor is None else nats.add_(self.factor.log())).mT

    def take(self, rows: Tensor) -> LogDensities:
        factor = None if self.factor is None else self.factor[:, rows]
        return LogDensities(PowerDensities(self.exponent[:, rows], factor).log())

    def double(self) -> LogDensities:
        factor = None if self.factor is None else self.factor.double()
        return LogDensities(PowerDensities(self.exponent.double(), factor).log())

    def chains(self, n: int) -> PowerDensities:
        factor = None if self.factor is None else self.factor.unflatten(0, (n, -1))
        return PowerDensities(self.exponent.unflatten(0, (n, -1)), factor)

    def chain(self, i: int) -> PowerDensities:
        return PowerDensities(self.exponent[i], None if self.factor is None else self.factor[i])


@dataclass(frozen=True)
class TableDensities:
    """Densities of frames that are symbols, looked up in a table of their probabilities in each of K states.

    Attributes:
        log_table: log-probabilities of the V symbols in nats, ``(..., V, K)``.
        symbols: symbol of each of N frames, ``(N,)``.
    """

    log_table: Tensor
    symbols: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.log_table.shape[:-2], len(self.symbols), self.log_table.shape[-1])

    @property
    def dtype(self) -> torch.dtype:
        return self.log_table.dtype

    @property
    def device(self) -> torch.device:
        return self.log_table.device

    def scaled(self, scratch: Scratch, flush: float) -> tuple[Tensor, Tensor]:
        peak = _clamp_infinite(self.log_table.amax(-1))
        by_symbol = (self.log_table - peak.unsqueeze(-1)).exp()
        b = self._look_up(torch.threshold_(by_symbol, flush, 0.0), scratch)
        return b, peak.double().index_select(-1, self.symbols)

    def _look_up(self, by_symbol: Tensor, scratch: Scratch) -> Tensor:
        """Return the scaled densities of all frames, ``(..., N, K)``, from those of the V symbols, ``(..., V, K)``.

        ``scratch`` has the buffers. In memory, one chain has a row of states for each frame; several chains have a row
        of frames for each state, because batched matrix products read them so.
        """
        if by_symbol.dim() == 2:
            return torch.index_select(
                by_symbol, 0, self.symbols, out=scratch.buffer("b", self.shape, self.dtype, self.device)
            )
        *lead, n, k = self.shape
        b = scratch.buffer("b", (*lead, k, n), self.dtype, self.device)
        return torch.index_select(by_symbol.mT.contiguous(), -1, self.symbols, out=b).mT

    def log(self) -> Tensor:
        return self.log_table.index_select(-2, self.symbols)

    def take(self, rows: Tensor) -> TableDensities:
        return TableDensities(self.log_table, self.symbols[rows])

    def double(self) -> TableDensities:
        return TableDensities(self.log_table.double(), self.symbols)

    def chains(self, n: int) -> TableDensities:
        return TableDensities(self.log_table.T.unflatten(0, (n, -1)).mT, self.symbols)

    def chain(self, i: int) -> TableDensities:
        return TableDensities(self.log_table[i], self.symbols)


def _largest(densities: Tensor, scratch: Scratch) -> Tensor:
    """Return the largest log-density of each frame, ``(..., N)``, or the least finite number where all are -inf.

    ``densities`` is ``(..., K, N)``; ``scratch`` has the buffers.
    """
    largest = scratch.buffer("largest", (*densities.shape[:-2], densities.shape[-1]), densities.dtype, densities.device)
    return _clamp_infinite(torch.amax(densities, -2, out=largest))


def _double(peak: Tensor, scratch: Scratch) -> Tensor:
    return scratch.buffer("peak", tuple(peak.shape), torch.float64, peak.device).copy_(peak)


def clamped(densities: Densities, states: Tensor) -> LogDensities:
    """Return densities that are zero in all states but known or allowed ones, for inference given these states.

    ``states`` is the known state of each of N frames, ``(N,)``, negative if it is unknown; or the allowed states,
    ``(N, K)`` bool.
    """
    log_b = densities.log()
    return LogDensities(log_b.masked_fill(~possible_states(states, log_b.shape[-1]), -torch.inf))


def possible_states(states: Tensor, n_states: int) -> Tensor:
    """Return the allowed states of each of N frames, ``(N, K)`` bool, for K = ``n_states``.

    ``states`` is the known state of each frame, ``(N,)``, negative if any is possible; or ``(N, K)`` bool, which is
    returned as it is.
    """
    if states.dim() == 2:
        return states
    return (torch.arange(n_states, device=states.device) == states[:, None]) | (states < 0)[:, None]


def _clamp_infinite(peak: Tensor) -> Tensor:
    return peak.clamp_(min=torch.finfo(peak.dtype).min)  # then -inf less its own peak is -inf still
