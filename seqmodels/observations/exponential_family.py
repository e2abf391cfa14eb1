"""Features independent given the state, one number each: ``log p(x) = Σ_d x_d η_d - A(η_d) + h(x_d)``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.measure import Values
from seqmodels.observations.base import Observation


class ExponentialFamily(Observation, ABC):
    """The output parameters of a state are the natural ones, ``η (D,)``; infinite ones give a value probability one.

    NaN in x is summed out.

    ``pseudocount`` and ``mean`` are the conjugate prior of an M-step, ``pseudocount · (mean · η - A(η))`` a feature
    (Diaconis and Ylvisaker 1979): as if a state had emitted ``pseudocount`` more frames, of mean ``mean``.

    To add one, define ``kind``, ``parameter_name`` and the methods below; EM needs nothing else.
    """

    pseudocount: float
    mean: float | list[float]
    emits = "vectors"
    kind: ClassVar[Values]
    parameter_name: ClassVar[str]  # of the expected values, as users read them
    largest_mean: ClassVar[float]

    # -- what a family defines -----------------------------------------------------------------------------

    @abstractmethod
    def each(self, natural: Tensor, x: Tensor) -> Tensor:
        """``log p(x_d | η_d)`` of observed values, elementwise; exact where η is infinite."""

    @abstractmethod
    def normaliser(self, natural: Tensor) -> Tensor:
        """The log-normaliser ``A(η)``, elementwise."""

    @abstractmethod
    def base(self, x: Tensor) -> Tensor:
        """The base measure's logarithm ``h(x)``, elementwise."""

    @abstractmethod
    def expected(self, natural: Tensor) -> Tensor:
        """``A'(η)``: the mean, elementwise."""

    @abstractmethod
    def natural(self, mean: Tensor) -> Tensor:
        """The inverse of ``expected``."""

    # -- Observation ---------------------------------------------------------------------------------------

    @property
    def sums_out_missing(self) -> bool:
        return True

    def values(self, size: int) -> tuple[Values, ...]:
        return (self.kind,) * size

    def check(self, size: int) -> None:
        if not 0 <= self.pseudocount < np.inf:
            raise ValueError(f"pseudocount is {self.pseudocount}; pass a number, 0 or more")
        means = np.asarray(self.mean, dtype=np.float64)
        if means.shape not in ((), (size,)):
            raise ValueError(
                f"mean has shape {means.shape} but there are {size} features; pass one number, or one for each"
            )
        if not ((means > 0) & (means < self.largest_mean)).all():
            raise ValueError(f"mean is {self.mean}; pass numbers above 0 and below {self.largest_mean}")

    def n_output_parameters(self, size: int) -> int:
        return size

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        return self.expected(table).isfinite()

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        observed = ~torch.isnan(x)
        return torch.where(observed, self.each(output_parameters, torch.where(observed, x, 0.0)), 0.0).sum(-1)

    def prior_mean(self, size: int) -> Tensor:
        """``mean`` of every feature, ``(D,)`` float64."""
        return torch.as_tensor(self.mean, dtype=torch.float64).expand(size)

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        return self.natural(self.prior_mean(size)).float()

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """With one more frame, of the mean that the user gave: features that are never on stay possible."""
        return self.natural((total + self.prior_mean(len(total))) / (n + 1)).to(start)
