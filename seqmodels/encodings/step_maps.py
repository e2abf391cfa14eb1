"""Maps of a single step of vectors given the steps before it (``StepMap``), and encodings that use one for each
step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from seqmodels.encodings.base import Encoding
from seqmodels.encodings.cells import ProductCells


@dataclass(frozen=True)
class StepMap:
    """The map between the next raw step x and the next encoded step z of n sequences, ``h(x) = shift + scale * z``.

    Args:
        shift, scale: numbers that may depend on earlier steps, each ``(n, D)``.
        powers: power λ of each feature in the power transformation h, ``(D,)``; None means h(x) = x.
        is_modelled: True if z is a step of the model; False if it belongs to one of the first frames, which have no
            difference, and is standard normal.
        cells: partition of the values z into numbered cells, whose numbers the model reads as symbols; None if it reads
            z.
    """

    shift: np.ndarray
    scale: np.ndarray
    powers: np.ndarray | None = None
    is_modelled: bool = True
    cells: ProductCells | None = None

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Return the encoded step of raw ``x (n, D)``: z ``(n, D)``, or the numbers ``(n,)`` of the cells, if any."""
        z = self.scaled(x)
        return z if self.cells is None else self.cells.symbols(z)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Return the vectors z ``(n, D)`` of raw ``x (n, D)``, before any quantisation into cells."""
        return np.asarray((self.transformed(x) - self.shift) / self.scale)

    def decode(self, z: np.ndarray, within: np.ndarray | None = None) -> np.ndarray:
        """Return the raw steps x ``(n, D)`` of encoded steps ``z (n, D)``.

        If the map has ``cells``, ``z`` are the numbers of cells, the symbols ``(n,)``, and ``within (n, D)`` says at
        which quantile of its cell each value lies, from 0 to 1; None means the median. Without cells ``within`` is
        ignored.
        """
        if self.cells is not None:
            half = np.full((len(z), len(self.cells.sizes)), 0.5)
            z = self.cells.values(z, half if within is None else within)
        values = self.shift + self.scale * np.asarray(z, dtype=np.float64)
        return values if self.powers is None else inverse_power(values, self.powers)

    def transformed(self, x: np.ndarray) -> np.ndarray:
        """Return the power transformation h(x) of ``x (n, D)`` before shift and scale, ``(n, D)``."""
        return x if self.powers is None else power(x, self.powers)

    def log_det(self, x: np.ndarray) -> np.ndarray:
        """Return ``log |dz/dx|`` in nats, summed over the observed features, ``(n,)``.

        If the map has ``cells``, the log-density of z within its cell is added.
        """
        each = -np.log(self.scale) if self.powers is None else log_slope(x, self.powers) - np.log(self.scale)
        if self.cells is not None:
            each = each + self.cells.log_density(self.scaled(x))
        return np.asarray(np.where(np.isnan(x), 0.0, each).sum(-1))

    def jumps(self) -> np.ndarray:
        """Return the raw values at which the density of one feature of one sequence jumps, ``(k - 1,)``.

        They are the edges between its k cells. The result is empty if the map has no ``cells``.
        """
        if self.cells is None:
            return np.zeros(0)
        return replace(self, cells=None).decode(self.cells.features[0].edges[:, None])[:, 0]

    def after(self, earlier: StepMap) -> StepMap:
        """Return the composition of this map with ``earlier``, which maps raw values to the inputs of this map."""
        assert self.powers is None, "a power transformation is the first map"
        assert earlier.cells is None, "cells are of the last map"
        shift, scale = earlier.shift + earlier.scale * self.shift, earlier.scale * self.scale
        return replace(earlier, shift=shift, scale=scale, is_modelled=self.is_modelled, cells=self.cells)


# -- h(x) = (sign(x) |x|^λ - 1) / λ; log x where λ is 0 -----------------------------------------------------------


def power(x: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the power transformation ``h(x) = (sign(x) |x|^λ - 1) / λ`` of ``x (..., D)``, or ``log x`` if λ is 0.

    ``powers (D,)`` are the λ of each feature.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        safe = np.where(powers == 0, 1.0, powers)
        return np.asarray(np.where(powers == 0, np.log(x), (np.sign(x) * np.abs(x) ** safe - 1) / safe))


def inverse_power(values: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the x with ``power(x, powers) = values``, ``(..., D)``."""
    with np.errstate(over="ignore"):
        safe = np.where(powers == 0, 1.0, powers)
        base = 1 + safe * values
        return np.asarray(np.where(powers == 0, np.exp(values), np.sign(base) * np.abs(base) ** (1 / safe)))


def log_slope(x: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the logarithm of the derivative of the power transformation at x, ``(λ - 1) log |x|``, ``(..., D)``."""
    with np.errstate(divide="ignore"):
        return np.asarray((powers - 1) * np.log(np.abs(x)))


# -- one map after the other -------------------------------------------------------------------------------------


class StepEncoder(Protocol):
    """The state of an encoding after some frames of n sequences, which gives the map of their next step.

    It is a value: ``after`` returns another state and changes nothing.
    """

    @property
    def map(self) -> StepMap:
        """The map of the next step, given the frames so far."""

    def after(self, x: np.ndarray) -> StepEncoder:
        """Return the state after the next raw frame of each sequence, ``x (n, D)``."""

    def select(self, rows: np.ndarray) -> StepEncoder:
        """Return the state of the sequences ``rows (m,)``, in this order; a row may occur more than once."""


@dataclass(frozen=True)
class ConstantEncoder:
    """The state of an encoding whose map is the same for all steps."""

    map: StepMap

    def after(self, x: np.ndarray) -> ConstantEncoder:
        return self

    def select(self, rows: np.ndarray) -> ConstantEncoder:
        return ConstantEncoder(replace(self.map, shift=self.map.shift[rows], scale=self.map.scale[rows]))


class VectorEncoding(Encoding, ABC):
    """The base class of encodings of vectors, which have one map for each step that may depend on the raw steps before
    it.

    A missing value makes the same value of its own encoded step missing, and no other. To add one, define the methods
    that ``Encoding`` asks for, except ``log_det``, and the abstract methods here.
    """

    is_series: ClassVar[bool] = False  # True: the first frames may be no encoded steps, or maps depend on the past

    @property
    def n_initial(self) -> int:
        """The number of first frames that are not encoded steps and have a density of the encoding's own."""
        return 0

    @property
    def has_constant_map(self) -> bool:
        """True if all steps have the same map."""
        return True

    @property
    def n_past(self) -> int | None:
        """The number of earlier frames that the map of a frame depends on if none is missing; None means all of
        them.
        """
        return 0 if self.has_constant_map else None

    @abstractmethod
    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        """Return the nats to add to the model's log-density of each value of ``frames``, ``(T, D)``; 0 for a missing
        value.

        For first frames that are not encoded steps, it is their log-density, in which features are independent.
        """

    def of_each_frame(self, frames: np.ndarray) -> np.ndarray:
        """Return the nats to add to the model's log-density of each of ``frames (T, D)``, summed over features,
        ``(T,)``.
        """
        return np.asarray(self.of_each_value(frames).sum(1))

    @abstractmethod
    def step_encoder(self, past: np.ndarray) -> StepEncoder:
        """Return the state of the encoding after the frames ``past (T, D)`` of one sequence, which may be empty."""


def decoded_after(
    start: StepEncoder, z: np.ndarray, symbols: np.ndarray | None = None, within: np.ndarray | None = None
) -> np.ndarray:
    """Return the raw steps ``(n, k + m, D)`` of encoded steps that follow the state ``start`` of n sequences.

    Args:
        start: state of the encoding.
        z: k encoded vectors of each sequence, ``(n, k, D)``; for first frames that are not steps of the model, standard
            normal numbers.
        symbols: m symbols of a quantising encoding that follow them, ``(n, m)``; None if there are none, so that m is
            0.
        within: quantile of each value within the cell of its symbol, ``(n, m, D)``, as in ``StepMap.decode``; None
            means the median.
    """
    n, k, n_features = z.shape
    raw = np.empty((n, k + (0 if symbols is None else symbols.shape[1]), n_features))
    for t in range(raw.shape[1]):
        if symbols is None or t < k:
            raw[:, t] = start.map.decode(z[:, t])
        else:
            raw[:, t] = start.map.decode(symbols[:, t - k], None if within is None else within[:, t - k])
        start = start.after(raw[:, t])
    return raw


def repeated(encoder: StepEncoder, n: int) -> StepEncoder:
    """Return the state of n sequences that are all equal to the single sequence of ``encoder``."""
    return encoder.select(np.zeros(n, dtype=np.int64))


def as_frames(item: Any) -> np.ndarray:
    """Return the frames of a sequence as a float64 array ``(T, D)``."""
    return np.asarray(item, dtype=np.float64)
