"""Learning rate against progress, as a fraction of its peak."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from seqmodels.parameters import Configurable


class Schedule(Configurable, ABC):
    """To add one, define ``at``."""

    @abstractmethod
    def at(self, progress: float) -> float:
        """The rate over its peak when this part of training, from 0 to 1, is done."""


@dataclass(eq=False, repr=False)
class Trapezoid(Schedule):
    """Up, constant, and linearly down (Zhai et al., 2022; Hägele et al., 2024).

    Args:
        warm_up: part of training over which it rises from almost zero.
        until: part after which it falls.
        final: where it ends.

    >>> [round(Trapezoid().at(p), 2) for p in (0.03, 0.4, 0.7, 1.0)]
    [1.0, 1.0, 0.5, 0.0]
    """

    warm_up: float = 0.03
    until: float = 0.4
    final: float = 0.0

    def at(self, progress: float) -> float:
        left = max(0.0, 1 - progress) / max(1e-12, 1 - self.until)
        return rise(progress, self.warm_up) * min(1.0, self.final + (1 - self.final) * left)


@dataclass(eq=False, repr=False)
class Cosine(Schedule):
    """Up, and down along half a cosine (Loshchilov and Hutter, 2017).

    Args:
        warm_up: part of training over which it rises from almost zero.
        final: where it ends.

    >>> [round(Cosine(warm_up=0.1).at(p), 2) for p in (0.1, 0.55, 1.0)]
    [1.0, 0.55, 0.1]
    """

    warm_up: float = 0.03
    final: float = 0.1

    def at(self, progress: float) -> float:
        done = min(1.0, max(0.0, progress - self.warm_up) / max(1e-12, 1 - self.warm_up))
        return rise(progress, self.warm_up) * (self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2)


def rise(progress: float, warm_up: float) -> float:
    """Linear up to one; above zero from the first step, so that it moves."""
    return min(1.0, (progress + 1e-3) / max(1e-3, warm_up))
