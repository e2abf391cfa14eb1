"""Steps at times that are whole numbers of a system's steps apart; the steps between them are missing and summed out.

Over a gap of n steps the state moves by ``A^n`` with the noise ``Σ_i A^i Q A^iᵀ`` for i below n (``moved``), which
equals n - 1 steps without observations and one with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.linear_gaussian.cursor import SystemCursor, SystemState
from seqmodels.linear_gaussian.timed_cursor import TimedSystemCursor

ROUNDING = 1e-6  # of a step, by which a time may be off
MOST_STEPS = 1 << 22  # of a grid


def places_of(example: Example, number: int) -> np.ndarray:
    """Return the index of each of T steps of an example among the equally spaced steps of the system, from 0, ``(T,)``.

    Args:
        example: an example whose one input is the times of its steps, in steps of the system; without inputs its steps
            follow one another.
        number: number of the sequence, for error messages.

    Raises:
        ValueError: times that are not whole numbers of steps apart, two steps at one time, or too many steps between
            them.
    """
    if example.inputs is None:
        return np.arange(len(example.values))
    times = example.inputs[:, 0]
    exact = times - times[0]
    places = np.rint(exact)
    rounding = ROUNDING + 4 * np.finfo(np.float64).eps * np.abs(times).max()
    off = np.abs(exact - places) > rounding
    if off.any():
        t = int(np.argmax(off))
        raise ValueError(
            f"step {t} of sequence {number} is {exact[t]:.6g} times time_step after its first one; pass "
            "a time_step of which all gaps are whole numbers, or what takes any gaps: hmm.ContinuousTimeHMM, or a "
            "LinearGaussian of local_level, smooth_trend, ornstein_uhlenbeck and cycle alone"
        )
    if (np.diff(places) < 1).any():
        t = int(np.argmax(np.diff(places) < 1)) + 1
        raise ValueError(
            f"steps {t - 1} and {t} of sequence {number} are at one time; put them together, or pass a smaller "
            "time_step"
        )
    if places[-1] >= MOST_STEPS:
        raise ValueError(f"sequence {number} goes over {places[-1]:,.0f} times time_step; pass a larger time_step")
    whole: np.ndarray = places.astype(np.int64)
    return whole


def on_grid(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return an array with ``values (T, D)`` at the rows ``places (T,)`` and NaN elsewhere, ``(places[-1] + 1, D)``.

    >>> on_grid(np.array([[1.0], [2.0]]), np.array([0, 2])).ravel()
    array([ 1., nan,  2.])
    """
    whole = np.full((int(places[-1]) + 1 if len(places) else 0, values.shape[1]), np.nan)
    whole[places] = values
    return whole


def values_on_grid(examples: Sequence[Example], places: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the encoded values of each example on the grid of the system's steps, NaN at steps that it does not have.

    ``places`` has for each example the index of each of its steps on the grid, ``(T,)``.
    """
    return [on_grid(np.asarray(e.values, dtype=np.float64), each) for e, each in zip(examples, places, strict=True)]


def _n_steps(last: Tensor, time: Tensor) -> Tensor:
    """Return the number of steps of the system from the last time of each of n sequences to the next, ``(n,)``.

    Raises:
        ValueError: times that are not a whole number of steps apart, or that do not rise.
    """
    exact = time - last
    steps = exact.round()
    rounding = ROUNDING + 4 * torch.finfo(torch.float64).eps * torch.maximum(last.abs(), time.abs())
    wrong = ((exact - steps).abs() > rounding) | (steps < 1)
    if bool(wrong.any()):
        gap = float(exact[int(wrong.nonzero()[0])])
        raise ValueError(
            f"a step is {gap:.6g} times time_step after the one before; pass times that are whole multiples of it later"
        )
    return steps.long()


# -- one step at a time ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SystemCursorOnGrid(TimedSystemCursor):
    """The step-by-step Kalman filter of a system whose observed steps are whole numbers of the system's steps apart."""

    def at_time(self, after_last: SystemState, last: Tensor, time: Tensor) -> SystemState:
        # The cursor has moved the state by one step already.
        return moved(self.cursor, after_last, _n_steps(last, time) - 1)

    def one_later(self, after_last: SystemState) -> SystemState:
        return after_last


def moved(cursor: SystemCursor, state: SystemState, n_steps: Tensor) -> SystemState:
    """Return the state after steps without observations, ``n_steps (n,)`` of them for each of n sequences, 0 or more.

    ``cursor`` is the cursor of the system, with its matrices.
    """
    distinct, which = torch.unique(n_steps, return_inverse=True)
    mean, size = state.mean.clone(), len(state.mean)
    factor = state.factor if len(distinct) == 1 else state.factor.expand(size, -1, -1).clone()
    for i, n in enumerate(distinct.tolist()):
        if not n:
            continue
        rows = which == i
        transition, noise = _power(cursor.matrices["transition"], cursor.matrices["state_factor"], n)
        mean[rows] = mean[rows] @ transition.mT
        if len(distinct) == 1:
            factor = _noisy(factor @ transition.mT, noise)
        else:
            factor[rows] = _noisy(factor[rows] @ transition.mT, noise)
    return replace(state, mean=mean, factor=factor)


def _power(transition: Tensor, noise: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the transition matrix of n steps, ``A^n``, and the factor of the covariance of their noise, by doubling.

    ``transition`` and ``noise`` are those of one step. A factor u stands for the covariance ``uᵀu``.
    """
    total: tuple[Tensor, Tensor] | None = None
    power = transition, noise
    while True:
        if n & 1:
            total = power if total is None else _both(total, power)
        n >>= 1
        if not n:
            assert total is not None, "n is 1 or more"
            return total
        power = _both(power, power)


def _both(first: tuple[Tensor, Tensor], then: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the transition matrix and the noise factor of two consecutive moves, given those of each move.

    A noise factor u stands for the covariance ``uᵀu`` of the noise.
    """
    return then[0] @ first[0], _noisy((first[1] @ then[0].mT)[None], then[1])[0]


def _noisy(factor: Tensor, noise: Tensor) -> Tensor:
    """Return factors of covariances ``uᵀu + vᵀv`` for u in ``factor (n, K, K)`` and v = ``noise``, ``(n, K, K)``."""
    upper: Tensor = torch.linalg.qr(torch.cat([factor, noise.expand(len(factor), -1, -1)], 1)).R
    return upper
