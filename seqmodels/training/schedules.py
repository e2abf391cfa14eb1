"""Schedules of the learning rate: its fraction of the peak as a function of the progress of training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from seqmodels.common.parameters import Configurable, check_range


class Schedule(Configurable, ABC):
    """A schedule of the learning rate over training, as a fraction of its peak. To add one, define ``at``."""

    def check(self) -> None:
        """Raise ``ValueError`` if an argument of the schedule is out of range; called before training."""

    @abstractmethod
    def at(self, progress: float) -> float:
        """Return the learning rate as a fraction of its peak, for a ``progress`` of training from 0 to 1."""


@dataclass(eq=False, repr=False)
class Trapezoid(Schedule):
    """A schedule with a linear warm-up, a constant part and a linear decay (Zhai et al., 2022; Hägele et al., 2024).

    Args:
        warm_up: fraction of training over which the learning rate rises from almost zero to its peak.
        until: fraction of training after which the rate falls linearly.
        final: fraction of the peak rate that is reached at the end of training.

    >>> [round(Trapezoid().at(p), 2) for p in (0.03, 0.4, 0.7, 1.0)]
    [1.0, 1.0, 0.5, 0.0]
    """

    warm_up: float = 0.03
    until: float = 0.4
    final: float = 0.0

    def check(self) -> None:
        for name in ("warm_up", "until", "final"):
            check_range(self, name, 0, 1)

    def at(self, progress: float) -> float:
        remaining = max(0.0, 1 - progress) / max(1e-12, 1 - self.until)
        decay = min(1.0, self.final + (1 - self.final) * remaining)
        return linear_warm_up(progress, self.warm_up) * decay


@dataclass(eq=False, repr=False)
class Cosine(Schedule):
    """A schedule with a linear warm-up and a decay along half a cosine (Loshchilov and Hutter, 2017).

    Args:
        warm_up: fraction of training over which the learning rate rises from almost zero to its peak.
        final: fraction of the peak rate that is reached at the end of training.

    >>> [round(Cosine(warm_up=0.1).at(p), 2) for p in (0.1, 0.55, 1.0)]
    [1.0, 0.55, 0.1]
    """

    warm_up: float = 0.03
    final: float = 0.1

    def check(self) -> None:
        for name in ("warm_up", "final"):
            check_range(self, name, 0, 1)

    def at(self, progress: float) -> float:
        done = min(1.0, max(0.0, progress - self.warm_up) / max(1e-12, 1 - self.warm_up))
        decay = self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2
        return linear_warm_up(progress, self.warm_up) * decay


def linear_warm_up(progress: float, warm_up: float) -> float:
    """Return a factor of the learning rate that rises linearly to 1 over the first part of training.

    It is above zero at the first step, so that the weights move.

    Args:
        progress: progress of training, from 0 to 1.
        warm_up: progress at which the factor reaches 1.
    """
    return min(1.0, (progress + 1e-3) / max(1e-3, warm_up))
