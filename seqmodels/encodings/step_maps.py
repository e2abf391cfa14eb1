"""Maps of a single step of vectors given the steps before it (``StepMap``), and encodings that use one for each
step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from seqmodels.encodings.base import Encoding
from seqmodels.encodings.cells import ProductCells
from seqmodels.sequences.measure import Values, is_atom


@dataclass(frozen=True)
class StepMap:
    """The map between the next raw step x and the next encoded step z of n sequences, ``h(x) = shift + scale * z``.

    Args:
        shift, scale: numbers that may depend on earlier steps, for each of D features, each ``(n, D)``.
        powers: power λ of each feature in the power transformation h, ``(D,)``; None means h(x) = x.
        is_modeled: True if z is a step of the model; False if it belongs to one of the first frames, which have no
            difference, and is then standard normal.
        cells: partition of the values z into numbered cells, whose numbers the model reads as symbols; None if it reads
            z.
        values: kind of the values of each feature, ``(D,)``; an amount of 0 has a probability, which no unit changes.
            None means that all features have densities.
    """

    shift: np.ndarray
    scale: np.ndarray
    powers: np.ndarray | None = None
    is_modelled: bool = True
    cells: ProductCells | None = None
    values: Sequence[Values] | None = None

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Return the encoded next step of n sequences: vectors ``(n, D)``, or symbols ``(n,)`` if quantised.

        Args:
            x: the raw step of each sequence, ``(n, D)``.
        """
        z = self.scaled(x)
        return z if self.cells is None else self.cells.symbols(z)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Return the encoded vectors of raw steps before any quantisation into cells, ``(n, D)``.

        Args:
            x: the raw step of each of n sequences, ``(n, D)``.
        """
        return np.asarray((self.transformed(x) - self.shift) / self.scale)

    def decode(self, z: np.ndarray, within: np.ndarray | None = None) -> np.ndarray:
        """Return the raw steps of n encoded steps, ``(n, D)``.

        Args:
            z: encoded vectors ``(n, D)`` or, if values are quantised into cells, symbols ``(n,)``.
            within: for symbols, the quantile at which each value lies in its cell, from 0 to 1, ``(n, D)``; None means
                the median.
        """
        if self.cells is not None:
            half = np.full((len(z), len(self.cells.sizes)), 0.5)
            z = self.cells.values(z, half if within is None else within)
        values = self.shift + self.scale * np.asarray(z, dtype=np.float64)
        return values if self.powers is None else inverse_power(values, self.powers)

    def transformed(self, x: np.ndarray) -> np.ndarray:
        """Return raw steps after the power transformation and before shift and scale, ``(n, D)``.

        Args:
            x: the raw step of each of n sequences, ``(n, D)``.
        """
        return x if self.powers is None else power(x, self.powers)

    def log_det(self, x: np.ndarray) -> np.ndarray:
        """Return ``log |dz/dx|``, the nats that convert the log-density of an encoded z to one of the raw x, ``(n,)``.

        It is summed over the observed features. If z is quantised into cells, the log-density of z within its cell is
        added.

        Args:
            x: the raw step of each of n sequences, ``(n, D)``.
        """
        each = -np.log(self.scale) if self.powers is None else log_slope(x, self.powers) - np.log(self.scale)
        if self.cells is not None:
            each = each + self.cells.log_density(self.scaled(x))
        is_left_out = np.isnan(x) if self.values is None else np.isnan(x) | is_atom(x, self.values)
        return np.asarray(np.where(is_left_out, 0.0, each).sum(-1))

    def jumps(self) -> np.ndarray:
        """Return the raw values at which the density of quantised values jumps, ``(k - 1,)``.

        There may be only one feature and one sequence. They are the edges between the k cells. The result is empty if
        values are not quantised.
        """
        if self.cells is None:
            return np.zeros(0)
        return replace(self, cells=None).decode(self.cells.features[0].edges[:, None])[:, 0]

    def after(self, earlier: StepMap) -> StepMap:
        """Return the composition of this map with one that is applied before it.

        Args:
            earlier: map from raw values to the inputs of this map.
        """
        assert self.powers is None, "a power transformation is the first map"
        assert earlier.cells is None, "cells are of the last map"
        shift, scale = earlier.shift + earlier.scale * self.shift, earlier.scale * self.scale
        return replace(earlier, shift=shift, scale=scale, is_modelled=self.is_modelled, cells=self.cells)


# -- h(x) = (sign(x) |x|^λ - 1) / λ; log x where λ is 0 -----------------------------------------------------------


def power(x: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the power transformation ``(sign(x) |x|^λ - 1) / λ`` of features, ``(..., D)``; ``log x`` if λ is 0.

    Args:
        x: the values of D features, ``(..., D)``.
        powers: power λ of each feature, ``(D,)``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        safe = np.where(powers == 0, 1.0, powers)
        return np.asarray(np.where(powers == 0, np.log(x), (np.sign(x) * np.abs(x) ** safe - 1) / safe))


def inverse_power(values: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the values whose power transformation has given results, ``(..., D)``; the inverse of ``power``.

    Args:
        values: transformed values of D features, ``(..., D)``.
        powers: power λ of each feature, ``(D,)``; 0 for the logarithm.
    """
    with np.errstate(over="ignore"):
        safe = np.where(powers == 0, 1.0, powers)
        base = 1 + safe * values
        return np.asarray(np.where(powers == 0, np.exp(values), np.sign(base) * np.abs(base) ** (1 / safe)))


def log_slope(x: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the logarithm of the derivative of the power transformation, ``(λ - 1) log |x|``, ``(..., D)``.

    Args:
        x: the values of D features, ``(..., D)``.
        powers: power λ of each feature, ``(D,)``.
    """
    with np.errstate(divide="ignore"):
        return np.asarray((powers - 1) * np.log(np.abs(x)))


# -- one map after the other -------------------------------------------------------------------------------------


class StepEncoder(Protocol):
    """The protocol of the state of an encoding after some frames of n sequences, which can encode their next step.

    It is a value: ``after`` returns another state and changes nothing.
    """

    @property
    def map(self) -> StepMap:
        """The map between the next raw step and its encoded step, given the frames so far."""

    def after(self, x: np.ndarray) -> StepEncoder:
        """Return the state of the encoding after one more frame of each of n sequences.

        Args:
            x: the raw frame of each sequence, ``(n, D)``.
        """

    def select(self, rows: np.ndarray) -> StepEncoder:
        """Return the state of the encoding for some of the sequences, in a given order.

        Args:
            rows: numbers of these sequences, ``(m,)``; one may occur more than once.
        """


@dataclass(frozen=True)
class ConstantEncoder:
    """The state of an encoding that maps all steps in the same way, so that no frame changes it."""

    map: StepMap

    def after(self, x: np.ndarray) -> ConstantEncoder:
        return self

    def select(self, rows: np.ndarray) -> ConstantEncoder:
        return ConstantEncoder(replace(self.map, shift=self.map.shift[rows], scale=self.map.scale[rows]))


class VectorEncoding(Encoding, ABC):
    """The base class of encodings of vectors, which map each step by itself or given the raw steps before it.

    A missing value makes the same value of its own encoded step missing, and no other. To add one, define the methods
    that ``Encoding`` asks for, except ``log_det``, and the abstract methods here.
    """

    is_series: ClassVar[bool] = False  # True: the first frames may be no encoded steps, or maps depend on the past

    @property
    def n_initial(self) -> int:
        """The number of first frames that have no encoded step and have a density that the encoding itself defines."""
        return 0

    @property
    def has_constant_map(self) -> bool:
        """True if the map from raw to encoded steps is the same for all steps."""
        return True

    @property
    def n_past(self) -> int | None:
        """The number of earlier frames that the map of a frame depends on if none is missing; None for all of them."""
        return 0 if self.has_constant_map else None

    @abstractmethod
    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        """Return the nats to add to the log-density of each value to express it in raw units, ``(T, D)``.

        They are 0 for a missing value. For first frames that have no encoded step, they are their log-density, in which
        features are independent.

        Args:
            frames: raw frames of a sequence from its beginning, ``(T, D)``.
        """

    def of_each_frame(self, frames: np.ndarray) -> np.ndarray:
        """Return the nats to add to the log-density of each frame to express it in raw units, ``(T,)``.

        Args:
            frames: raw frames of a sequence from its beginning, ``(T, D)``.
        """
        return np.asarray(self.of_each_value(frames).sum(1))

    @abstractmethod
    def step_encoder(self, past: np.ndarray) -> StepEncoder:
        """Return the state of the encoding after the first frames of one sequence, which can encode the next step.

        Args:
            past: the raw frames, ``(T, D)``, which may be none.
        """


def decoded_after(
    start: StepEncoder, z: np.ndarray, symbols: np.ndarray | None = None, within: np.ndarray | None = None
) -> np.ndarray:
    """Return the raw steps of encoded steps that follow earlier frames of n sequences, ``(n, k + m, D)``.

    Args:
        start: state of the encoding after the earlier frames.
        z: k encoded vectors of each sequence, ``(n, k, D)``; for first frames that are not steps of the model, standard
            normal numbers.
        symbols: m symbols of a quantising encoding that follow them, ``(n, m)``; None if there are none, so that m is
            0.
        within: quantile of each value within the cell that its symbol stands for, from 0 to 1, ``(n, m, D)``; None
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
    """Return the state of the encoding of n sequences that are all equal to the single sequence of another state.

    Args:
        encoder: state of one sequence.
        n: number of sequences.
    """
    return encoder.select(np.zeros(n, dtype=np.int64))


def as_frames(item: Any) -> np.ndarray:
    """Return a sequence of vectors as a float64 array ``(T, D)``."""
    return np.asarray(item, dtype=np.float64)
