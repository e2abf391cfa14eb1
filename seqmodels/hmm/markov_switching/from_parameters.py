"""The parameters that users pass to ``MarkovSwitchingAR.from_parameters``, checked and converted to a table."""

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
    """The parameters of a switching autoregression in raw units, as users pass them to ``from_parameters``.

    K states, D features, p past steps.

    Attributes:
        mean: means of the states, ``(K, D)``.
        coefficients: autoregressive coefficients, one step back first, ``(p, D)`` or ``(K, p, D)``.
        variance: variances of the innovations, ``(D,)`` or ``(K, D)``.
    """

    mean: np.ndarray
    coefficients: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, means: Any, autoregression: Any, variances: Any) -> Self:
        """Return the user's arguments of ``MarkovSwitchingAR.from_parameters`` as checked arrays.

        Args:
            means: means of the states, ``(K, D)``.
            autoregression: coefficients, one step back first, ``(p, D)`` or ``(K, p, D)``.
            variances: variances of the innovations, ``(D,)`` or ``(K, D)``.

        Raises:
            ValueError: shapes do not fit, or values are not finite.
        """
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
        """Number of past steps that a density depends on, p."""
        return int(self.coefficients.shape[-2])

    def moments(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and variance of an observation over all states, ``(D,)`` each.

        They follow from the means and the variances of the innovations, without the autoregression. ``shares (K,)`` are
        the weights of the states, which sum to one.
        """
        overall = shares @ self.mean
        return overall, shares @ ((self.mean - overall) ** 2 + self.variance)

    def encoded(
        self, emission: DeviationEmission, encoding: Standardize, first_mean: np.ndarray, first_variance: np.ndarray
    ) -> Tensor:
        """Return the table of these parameters in encoded units, ``(K, P)``: a row of P numbers for each state.

        Args:
            emission: the emission, which packs the table.
            encoding: the encoding of the data.
            first_mean: mean of the first p steps in raw units, ``(D,)``.
            first_variance: variance of the first p steps in raw units, ``(D,)``.

        Raises:
            ValueError: the shape of ``first_mean`` or ``first_variance`` does not fit, or a variance is below the
                floor.
        """
        (k, d), (shift, scale) = self.mean.shape, encoding.affine()
        for name, each in (("first_means", first_mean), ("first_variances", first_variance)):
            if each.shape != (d,):
                raise ValueError(f"{name} has shape {each.shape}; pass ({d},)")
        floor = emission.observation.min_covariance
        variances = [np.broadcast_to(each, (k, d)) / scale**2 for each in (self.variance, first_variance)]
        if not min(each.min() for each in variances) >= floor:
            raise ValueError(
                f"a variance is below the floor, min_covariance={floor} times {scale**2}; pass a smaller min_covariance"
            )
        numbers = (
            (self.mean - shift) / scale,
            np.broadcast_to(self.coefficients, (k, self.order, d)),
            np.log(variances[0]),
            np.broadcast_to((first_mean - shift) / scale, (k, d)),
            np.log(variances[1]),
        )
        return emission.pack(*(torch.tensor(np.ascontiguousarray(each)) for each in numbers))
