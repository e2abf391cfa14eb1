"""Parameters in raw units, checked -> the units that a model computes in, and its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.encodings import Standardize
from seqmodels.hmm.markov_switching.deviations import DeviationEmission


@dataclass(frozen=True)
class RawRegressions:
    """``mean (K, D)``, ``coefficients (p, D)`` or ``(K, p, D)``, ``variance (D,)`` or ``(K, D)``."""

    mean: np.ndarray
    coefficients: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, means: Any, autoregression: Any, variances: Any) -> Self:
        """From the arguments of ``from_parameters``; raises ``ValueError`` for what cannot be."""
        mean, coefficients = numbers_of("means", means, "(K, D)"), numbers_of("autoregression", autoregression)
        variance, (k, d) = numbers_of("variances", variances), mean.shape
        order = coefficients.shape[-2] if coefficients.ndim in (2, 3) else 0
        if not order or coefficients.shape not in ((order, d), (k, order, d)):
            raise ValueError(
                f"autoregression has shape {coefficients.shape}; pass (p, {d}), one step back first, or ({k}, p, {d})"
            )
        if variance.shape not in ((d,), (k, d)):
            raise ValueError(f"variances has shape {variance.shape}; pass ({d},) or ({k}, {d})")
        if not all(np.isfinite(each).all() for each in (mean, coefficients, variance)):
            raise ValueError("means, autoregression and variances should be finite")
        return cls(mean, coefficients, variance)

    @property
    def order(self) -> int:
        """p, the past steps that enter a density."""
        return int(self.coefficients.shape[-2])

    def moments(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(D,)`` mean and variance of means and innovations, by the shares ``(K,)`` of the states."""
        overall = shares @ self.mean
        return overall, shares @ ((self.mean - overall) ** 2 + self.variance)

    def encoded(
        self, emission: DeviationEmission, encoding: Standardize, first_mean: np.ndarray, first_variance: np.ndarray
    ) -> Tensor:
        """The table ``(K, P)``, in the units of the encoding.

        Raises:
            ValueError: shapes of the first steps that do not fit; a variance below the floor.
        """
        (k, d), (shift, scale) = self.mean.shape, encoding.affine()
        for name, each in (("first_means", first_mean), ("first_variances", first_variance)):
            if each.shape != (d,):
                raise ValueError(f"{name} has shape {each.shape}; pass ({d},)")
        floor = emission.observation.min_covariance
        variances = [np.broadcast_to(each, (k, d)) / scale**2 for each in (self.variance, first_variance)]
        if not min(each.min() for each in variances) >= floor:
            raise ValueError(
                f"a variance is below the floor, min_covariance={floor} of {scale**2}; pass a smaller min_covariance"
            )
        numbers = (
            (self.mean - shift) / scale,
            np.broadcast_to(self.coefficients, (k, self.order, d)),
            np.log(variances[0]),
            np.broadcast_to((first_mean - shift) / scale, (k, d)),
            np.log(variances[1]),
        )
        return emission.pack(*(torch.tensor(np.ascontiguousarray(each)) for each in numbers))
