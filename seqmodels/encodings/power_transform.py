"""Power transformations of each feature, ``h(x) = (sign(x) |x|^λ - 1) / λ``, or ``log x`` if λ is 0.

Reference: Box and Cox (1964), *An analysis of transformations*. A Gaussian density of h(x) also covers values that no
positive x has. For λ > 0 these are the h of negative x (Bickel and Doksum 1981), so that the density of x integrates to
one over all reals. For λ = 0 there are no such values. λ < 0 is not allowed, because the density could not integrate to
one.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between
from seqmodels.common.parameters import NotNegativeFloat
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import ConstantEncoder, StepMap, as_frames, log_slope, power
from seqmodels.sequences import Item, Sequences

LARGEST_POWER = 2.0  # upper end of the search for λ
LARGEST_EXPONENT = 300.0  # float64 can square the exponential of this number


class PowerTransform(SeriesEncoding, ABC):
    """The base class of encodings that transform each feature by a power, as the Box-Cox transformation does.

    To add one, define ``fit``, which calls ``restore`` with a state that has ``powers (D,)``, the power λ of each of D
    features (0 for the logarithm).
    """

    @property
    def has_constant_map(self) -> bool:
        return True

    def _fit_to(self, sequences: Sequences) -> np.ndarray:
        """Return the frames of all training sequences, ``(N, D)``.

        Raises:
            ValueError: if a value is not positive.
        """
        for i, item in enumerate(sequences):
            self._refuse(i, as_frames(item), as_frames(item) <= 0)
        return np.concatenate([as_frames(item) for item in sequences])

    def check_values(self, i: int, frames: np.ndarray) -> None:
        self._refuse(i, frames, np.where(self.powers == 0, frames <= 0, frames == 0))

    def _refuse(self, i: int, frames: np.ndarray, is_wrong: np.ndarray) -> None:
        if is_wrong.any():
            frame, feature = np.argwhere(is_wrong)[0]
            raise ValueError(
                f"sequence {i} has {frames[frame, feature]:g} at frame {frame}, feature {feature}, but {self!r} needs "
                "positive values; leave it out of the encoding, or mark the value missing with NaN"
            )

    def encode(self, item: Item) -> np.ndarray:
        return power(as_frames(item), self.powers)

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(frames), 0.0, log_slope(frames, self.powers))

    def step_encoder(self, past: np.ndarray) -> ConstantEncoder:
        return ConstantEncoder(StepMap(np.zeros((1, self.size)), np.ones((1, self.size)), self.powers))

    def state(self) -> State:
        return {"powers": self.powers, **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        self.powers = check_between("powers", array_of(state, "powers", np.float64, (None,)), 0)
        self.size = len(self.powers)
        self.names = names_of_state(state, self.size)
        return self


@dataclass(eq=False, repr=False)
class Log(PowerTransform):
    """An encoding of positive values by their logarithm, ``z = log x``, with ``log p(x) = log p(z) - log x``.

    Raises:
        ValueError: if a value is not positive.

    >>> from seqmodels import Sequences
    >>> from seqmodels.encodings import Log
    >>> Log().fit(Sequences([np.array([[1.0], [10.0]])])).encode(np.array([[100.0]])).round(2).tolist()
    [[4.61]]
    """

    def fit(self, sequences: Sequences) -> Self:
        return self.restore({"powers": np.zeros(self._fit_to(sequences).shape[1])})


@dataclass(eq=False, repr=False)
class BoxCox(PowerTransform):
    """An encoding of positive values by the Box-Cox transformation ``z = (x^λ - 1) / λ``; log x if λ is 0.

    Args:
        lmbda: λ of every feature. None estimates it for each feature, from 0 to 2, as the most likely value if the
            transformed values are independent and Gaussian (Box and Cox 1964).

    Raises:
        ValueError: if a training value is not positive. Later, if λ > 0, negative values are accepted too, so that a
            model can score whatever it draws; 0 is refused, because the slope there is infinite or zero.
    """

    lmbda: NotNegativeFloat | None = None

    def fit(self, sequences: Sequences) -> Self:
        frames = self._fit_to(sequences)
        if self.lmbda is None:
            powers = np.array([most_probable_power(column[~np.isnan(column)]) for column in frames.T])
        else:
            powers = np.full(frames.shape[1], float(self.lmbda))
        return self.restore({"powers": powers})


def most_probable_power(values: np.ndarray) -> float:
    """Return the power λ of the Box-Cox transformation that makes values most likely as Gaussian ones.

    It is from 0 to ``LARGEST_POWER``. λ = 0 and λ = 1 are preferred if they are as good.

    Args:
        values: positive values, ``(N,)``.
    """
    from scipy import optimize

    if len(values) < 2 or values.min() == values.max():
        return 1.0
    logs = np.log(values)
    logs = logs - logs.mean()  # in units of the geometric mean, so that λ does not depend on the unit

    def log_prob(lmbda: float) -> float:
        most = max(0.0, lmbda * float(logs.max()) - LARGEST_EXPONENT)  # taken out of what would be squared
        each = np.expm1(lmbda * logs) if most == 0 else np.exp(lmbda * logs - most)
        log_variance = np.log(logs.var()) if lmbda == 0 else np.log(each.var()) + 2 * (most - np.log(lmbda))
        return float(-0.5 * len(logs) * log_variance)  # the sum of (λ - 1) log x is 0 in these units

    bounded = optimize.minimize_scalar(lambda lmbda: -log_prob(lmbda), bounds=(0, LARGEST_POWER), method="bounded")
    return max((0.0, 1.0, float(bounded.x)), key=log_prob)
