"""Effects of inputs on the observations of a linear-Gaussian system, with standard errors, by generalised least
squares.

The log-likelihood is quadratic in the slopes D and the intercept d, ``l(θ + h) = l(θ) + g'h - ½ h'I h``, so its values
at ``θ``, ``θ + e_i`` and ``θ + e_i + e_j`` give the gradient g and the information I but for rounding. The variances of
a Gaussian are orthogonal to what its mean depends on, so I alone gives the errors of the slopes (Harvey 1989, section
7.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.learning.structural import diffuse_log_prob
from seqmodels.linear_gaussian.parameters import Form, SystemParameters

if TYPE_CHECKING:
    import pandas as pd

FAR = 0.25  # standard errors between the slopes and the maximum that are warned of


@dataclass(frozen=True)
class SlopesOfInputs:
    """Estimated effects of V inputs on D features with their standard errors, in standardised units.

    Attributes:
        estimates: effect of each input on each feature, ``(D, V)``.
        errors: their standard errors, ``(D, V)``.
        distance: largest distance of an estimate from the maximum of the likelihood, in standard errors.
    """

    estimates: np.ndarray
    errors: np.ndarray
    distance: float

    @classmethod
    def of(cls, parameters: SystemParameters, form: Form, corpus: SystemData) -> SlopesOfInputs:
        """Return the effects of inputs under fitted parameters, with standard errors from the data.

        Args:
            parameters: parameters that were fitted to the sequences in ``corpus``.
            form: which inputs are read and which parameters are free.
            corpus: encoded sequences with their inputs.
        """
        slopes = parameters.observation_slopes
        n_slopes, n = slopes.size, slopes.size + len(slopes) * form.intercept

        def log_prob(added: np.ndarray) -> float:
            intercept = parameters.intercept + (added[n_slopes:] if form.intercept else 0.0)
            moved = replace(
                parameters, observation_slopes=slopes + added[:n_slopes].reshape(slopes.shape), intercept=intercept
            )
            if form.start == "diffuse":
                return diffuse_log_prob(moved, form, corpus)
            return float(e_step(moved, form, corpus).summed_over_processes().log_prob)

        gradient, information = _quadratic(log_prob, n)
        covariance = np.linalg.pinv(information, hermitian=True)
        errors = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))[:n_slopes]
        steps = np.abs(covariance @ gradient)[:n_slopes]
        distance = float(np.divide(steps, errors, out=np.zeros_like(steps), where=errors > 0).max(initial=0.0))
        return cls(slopes, errors.reshape(slopes.shape), distance)

    def frame(self, inputs: Sequence[str], features: Sequence[Any], to_raw: np.ndarray, level: float) -> pd.DataFrame:
        """Return a table of the effects in raw units, with a row for each input and feature.

        Columns are ``input``, ``feature``, ``estimate``, ``standard_error``, ``ci_low`` and ``ci_high``. A warning is
        given if the estimates are far from the maximum of the likelihood.

        Args:
            inputs: names of the V inputs.
            features: names or numbers of the D features.
            to_raw: size of a unit of each standardised effect in raw units, ``(D, V)``.
            level: probability of the confidence intervals.
        """
        import pandas as pd

        if self.distance > FAR:
            warn_caller(
                f"the slopes are not at the maximum of their likelihood on these data, but about {self.distance:.1f} "
                "standard errors away; pass the training data, and fit with a smaller tol and a larger max_iter",
            )
        estimates, errors = (self.estimates * to_raw).T.ravel(), (self.errors * np.abs(to_raw)).T.ravel()
        width = NormalDist().inv_cdf(0.5 + level / 2) * errors
        return pd.DataFrame(
            {
                "input": np.repeat(np.array(inputs, dtype=object), len(features)),
                "feature": pd.Series(list(features) * len(inputs), dtype=object),
                "estimate": estimates,
                "standard_error": errors,
                "ci_low": estimates - width,
                "ci_high": estimates + width,
            }
        )


def _quadratic(function: Callable[[np.ndarray], float], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient g ``(n,)`` and the information I ``(n, n)`` of a quadratic function ``c + g'h - ½ h'I h``.

    ``function`` returns the value at h ``(n,)``; it is called at unit vectors and at sums of two.
    """
    unit, at_zero = np.eye(n), function(np.zeros(n))
    once = np.array([function(each) for each in unit]) - at_zero
    information = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            both = function(unit[i] + unit[j]) - at_zero
            information[i, j] = information[j, i] = once[i] + once[j] - both
    return once + 0.5 * np.diagonal(information), information
