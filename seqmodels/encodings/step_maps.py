"""``StepMap``: how one step of vectors is encoded, given those before it; ``VectorEncoding``: one such map a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from seqmodels.encodings.base import Encoding
from seqmodels.encodings.cells import ProductCells


@dataclass(frozen=True)
class StepMap:
    """The map of the next step of n sequences: ``h(x) = shift + scale * z``.

    Args:
        shift, scale: ``(n, D)``, of what came before.
        powers: ``(D,)`` λ of the power transformation h (``power_transform.py``); None: h(x) = x.
        is_modelled: whether z is a step of the model's. Else it is standard normal: one of the first frames, which a
            difference cannot be taken of.
        cells: of z, whose numbers are the steps of the model's in its place (``quantize.py``); None: there are none.
    """

    shift: np.ndarray
    scale: np.ndarray
    powers: np.ndarray | None = None
    is_modelled: bool = True
    cells: ProductCells | None = None

    def encode(self, x: np.ndarray) -> np.ndarray:
        """``(n, D)`` z of raw ``x (n, D)``, or the ``(n,)`` symbols of their cells."""
        z = self.scaled(x)
        return z if self.cells is None else self.cells.symbols(z)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """``(n, D)`` z of raw ``x (n, D)``."""
        return np.asarray((self.transformed(x) - self.shift) / self.scale)

    def decode(self, z: np.ndarray, within: np.ndarray | None = None) -> np.ndarray:
        """``(n, D)`` x of ``z (n, D)``.

        Of cells z are symbols ``(n,)``, and ``within (n, D)``, above 0 and below 1, says what share of the probability
        of its cell is below x; None: half of it.
        """
        if self.cells is not None:
            half = np.full((len(z), len(self.cells.sizes)), 0.5)
            z = self.cells.values(z, half if within is None else within)
        values = self.shift + self.scale * np.asarray(z, dtype=np.float64)
        return values if self.powers is None else inverse_power(values, self.powers)

    def transformed(self, x: np.ndarray) -> np.ndarray:
        """``(n, D)`` h(x), the power transformation, before it is shifted and scaled."""
        return x if self.powers is None else power(x, self.powers)

    def log_det(self, x: np.ndarray) -> np.ndarray:
        """``(n,)`` nats: ``log |dz/dx|``, summed over the features that are not missing.

        Of cells that and the log-density of z in its cell.
        """
        each = -np.log(self.scale) if self.powers is None else log_slope(x, self.powers) - np.log(self.scale)
        if self.cells is not None:
            each = each + self.cells.log_density(self.scaled(x))
        return np.asarray(np.where(np.isnan(x), 0.0, each).sum(-1))

    def jumps(self) -> np.ndarray:
        """``(k - 1,)`` raw values of one feature, of one frame, at which its density jumps: the edges of cells."""
        if self.cells is None:
            return np.zeros(0)
        return replace(self, cells=None).decode(self.cells.features[0].edges[:, None])[:, 0]

    def after(self, earlier: StepMap) -> StepMap:
        """Of both, where what this one maps is what ``earlier`` maps raw values to."""
        assert self.powers is None, "a power transformation is the first map"
        assert earlier.cells is None, "cells are of the last map"
        shift, scale = earlier.shift + earlier.scale * self.shift, earlier.scale * self.scale
        return replace(earlier, shift=shift, scale=scale, is_modelled=self.is_modelled, cells=self.cells)


# -- h(x) = (sign(x) |x|^λ - 1) / λ; log x where λ is 0 -----------------------------------------------------------


def power(x: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """``(..., D)`` h of ``x (..., D)``, for each feature by its λ of ``powers (D,)``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        safe = np.where(powers == 0, 1.0, powers)
        return np.asarray(np.where(powers == 0, np.log(x), (np.sign(x) * np.abs(x) ** safe - 1) / safe))


def inverse_power(values: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """``(..., D)`` the x whose h these are."""
    with np.errstate(over="ignore"):
        safe = np.where(powers == 0, 1.0, powers)
        base = 1 + safe * values
        return np.asarray(np.where(powers == 0, np.exp(values), np.sign(base) * np.abs(base) ** (1 / safe)))


def log_slope(x: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """``(..., D)`` log h'(x) = (λ - 1) log |x|."""
    with np.errstate(divide="ignore"):
        return np.asarray((powers - 1) * np.log(np.abs(x)))


# -- one map after the other -------------------------------------------------------------------------------------


class StepEncoder(Protocol):
    """Where an encoding stands in n sequences of vectors: the map of their next step. A value: ``after`` is another."""

    @property
    def map(self) -> StepMap:
        """The map of the next step, given the frames so far."""

    def after(self, x: np.ndarray) -> StepEncoder:
        """After each sequence's next raw step, ``x (n, D)``."""

    def select(self, rows: np.ndarray) -> StepEncoder:
        """Of the sequences ``rows (m,)``, in this order, some perhaps more than once."""


@dataclass(frozen=True)
class ConstantEncoder:
    """One map for all steps."""

    map: StepMap

    def after(self, x: np.ndarray) -> ConstantEncoder:
        """Itself: no frame changes the map."""
        return self

    def select(self, rows: np.ndarray) -> ConstantEncoder:
        """The same for as many sequences."""
        return ConstantEncoder(replace(self.map, shift=self.map.shift[rows], scale=self.map.scale[rows]))


class VectorEncoding(Encoding, ABC):
    """An encoding of vectors by one map a step, each of which may depend on the raw steps before it.

    A missing value is a missing one of its own encoded step, and of no other.

    To add one, define what ``Encoding`` asks for but ``log_det``, and the abstract methods here.
    """

    is_series: ClassVar[bool] = False  # True: the first frames may be no encoded steps, or maps depend on the past

    @property
    def n_initial(self) -> int:
        """How many first frames have a density of the encoding's own, and are no encoded steps."""
        return 0

    @property
    def has_constant_map(self) -> bool:
        """Whether all steps have one map."""
        return True

    @property
    def n_past(self) -> int | None:
        """How many frames before one its map looks at, where none of them is missing; None: all there are."""
        return 0 if self.has_constant_map else None

    @abstractmethod
    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        """``(T, D)`` nats to add to what a model says of each value of ``frames``, 0 of a missing one.

        Of first frames that are no encoded steps it is their log-density, in which features are independent.
        """

    def of_each_frame(self, frames: np.ndarray) -> np.ndarray:
        """``(T,)`` the sums of ``of_each_value``."""
        return np.asarray(self.of_each_value(frames).sum(1))

    @abstractmethod
    def step_encoder(self, past: np.ndarray) -> StepEncoder:
        """That of one sequence of which the frames ``past (T, D)``, perhaps none, have been read."""


def decoded_after(
    start: StepEncoder, z: np.ndarray, symbols: np.ndarray | None = None, within: np.ndarray | None = None
) -> np.ndarray:
    """``(n, k, D)`` the raw steps of encoded ``z (n, k, D)`` of the n sequences of ``start``.

    Of frames that are no steps of a model's they are standard normal numbers. ``symbols (n, m)`` of cells may follow
    them, with ``within (n, m, D)`` as of ``StepMap.decode``; then m raw steps follow too.
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
    """That of n sequences that all are as the only one of ``encoder``."""
    return encoder.select(np.zeros(n, dtype=np.int64))


def as_frames(item: Any) -> np.ndarray:
    """The frames of a sequence, ``(T, D)`` float64."""
    return np.asarray(item, dtype=np.float64)
