"""Schedules: the learning rate, as a fraction of its peak, as a function of progress."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from seqmodels.common.parameters import Configurable, check_range


class Schedule(Configurable, ABC):
    """A learning rate as a function of progress. To add one, define ``at``."""

    def check(self) -> None:
        """Raise ``ValueError`` for arguments that cannot be, before any work."""

    @abstractmethod
    def at(self, progress: float) -> float:
        """Return the learning rate, as a fraction of its peak, at a ``progress`` of training from 0 to 1."""


@dataclass(eq=False, repr=False)
class Trapezoid(Schedule):
    """A rate that rises linearly, stays constant, and falls linearly (Zhai et al., 2022; Hägele et al., 2024).

    Args:
        warm_up: fraction of training over which the rate rises from almost zero.
        until: fraction of training after which it falls.
        final: fraction of the peak at which it ends.

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
    """A rate that rises linearly and falls along half a cosine (Loshchilov and Hutter, 2017).

    Args:
        warm_up: fraction of training over which the rate rises from almost zero.
        final: fraction of the peak at which it ends.

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
    """Return the factor of the rate in warm-up, from just above zero, so that the first step moves weights, to 1."""
    return min(1.0, (progress + 1e-3) / max(1e-3, warm_up))
