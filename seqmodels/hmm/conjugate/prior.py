"""``ConjugatePrior``: a prior of the parameters of a hidden chain and its emissions, in numbers of observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import Configurable

SMALLEST = 2e-3  # smallest concentration, because exp(E log p) of a smaller one underflows in float64


@dataclass(eq=False, repr=False)
class ConjugatePrior(Configurable):
    """Priors of the parameters of a hidden Markov model: Dirichlet distributions of its transitions, and emission
    priors.

    The prior of an emission is as if each state had emitted ``count`` observations with a mean (and covariance) before:

    - ``Categorical``: Dirichlet with concentrations ``count * mean``, where ``mean (V,)`` are probabilities, by default
      uniform.
    - ``Bernoulli``: Beta(``count * mean``, ``count * (1 - mean)``) for each feature.
    - ``Poisson``: Gamma with shape ``count * mean`` and rate ``count`` for each feature.
    - ``GaussianMixture``: the mean of a component given its covariance is normal around ``mean``, with that covariance
      divided by ``mean_count``. Under ``"diag"`` each precision is Gamma with shape ``count / 2`` and rate
      ``count * covariance / 2``; under ``"full"`` precisions are Wishart with ``count + D - 1`` degrees of freedom. In
      both, the mean of the precision is the inverse of ``covariance``. Weights are Dirichlet.
    - ``AutoregressiveGaussian``: innovations have the precisions of a ``GaussianMixture(1)``. Given their covariance Σ
      the intercept is normal around ``mean`` with covariance ``Σ / mean_count``. The observation says how weak the
      prior of the coefficients is: they are normal around 0 with covariance ``Σ / ridge``, so that its default of 0.001
      is worth a thousandth of a frame of unit variance; ``unit_root`` adds frames in which all steps are equal. A
      ``"tied"`` Σ has the prior of the first state. The Gaussian of the first steps, which all states share, has the
      default prior of a ``GaussianMixture(1)`` with one state.
    - Given inputs, the slopes of ``GaussianMixture(1)`` and ``AutoregressiveGaussian`` on standardised inputs are
      normal around 0 with covariance ``slopes² Σ / mean_count``, which is that of the intercept, or mean, if ``slopes``
      is 1. So they are worth ``mean_count / slopes²`` frames whose input is one deviation above its mean.

    Priors of parameters that an ``HMM`` itself does not have:

    - Rates of a ``ContinuousTimeHMM``: Gamma with shape ``jumps`` and rate ``time``, as if so many jumps had been seen
      in that time in the state.
    - Durations of an ``HSMM``: categorical ones are Dirichlet with concentrations ``durations``. Before truncation the
      mean number of steps beyond the first of Poisson and negative binomial ones is log-normal, with the median
      ``mean_duration - 1`` and a deviation of 1.5 of its logarithm; so is the size of negative binomial ones, with the
      median 1; log-odds of logarithmic ones are normal with mean 0 and deviation 1.5. These priors are proper and
      hardly informative, and only ``hmm.PosteriorHMM`` takes them, because they are not conjugate.
    - ``MarkovSwitchingAR``, for ``hmm.PosteriorHMM`` alone: means of states are normal around ``mean`` with the
      variance ``covariance / mean_count``, coefficients normal around 0 with the deviation ``coefficients``, and
      precisions of innovations Gamma with shape ``count / 2`` and rate ``count * covariance / 2``.

    For ``hmm.PosteriorHMM``, slopes of all regressions on inputs are normal around 0 with the deviation ``slopes``.

    Args:
        initial: concentration of each first state, a number or ``(K,)`` for K states; ``"auto"`` means 1/K, so that all
            states together count as one observation, and states that the data do not need empty out.
        transition: concentration of each transition, a number or ``(K, K)``; ``"auto"`` means 1/K. Transitions that the
            topology rules out have none.
        final: concentration of the end after each state, a number or ``(K,)``; ``"auto"`` means 1/K.
        count: number of observations that the prior of an emission is worth, a number or ``(K,)``.
        mean: mean of those observations, a number, ``(D,)`` for D features (``(V,)`` for V symbols) or ``(K, D)``, for
            vectors in units of the standardised data; ``"auto"`` means 0 for vectors, uniform for symbols, else the
            observation's own prior mean.
        mean_count: number of observations that the prior mean of a Gaussian, or the prior intercept of an
            autoregression, is worth, a number or ``(K,)``.
        covariance: variances of vectors, a number, ``(D,)`` or ``(K, D)``, in units of the standardised data;
            ``"auto"`` means ``(K M)^(-2/D)`` for M mixture components in each state, which divides the volume of the
            data equally among the components (Fraley and Raftery 2007). M is 1 for an autoregression, whose innovations
            may be far smaller: pass a smaller number where frames are few and predictable.
        weights: concentration of each weight of a mixture, a number; ``"auto"`` means 1/M.
        jumps: shape of the Gamma distribution of each rate, a number or ``(K, K)``; ``"auto"`` means 1/K.
        time: rate of that distribution, in units of the times of the data, a number or ``(K,)``; ``"auto"`` means the
            mean time between two steps of the data.
        durations: concentration of each duration, a number, ``(D,)`` or ``(K, D)``, with D the largest duration here;
            ``"auto"`` means 1/D.
        mean_duration: median of mean durations, above 1, a number or ``(K,)``; ``"auto"`` means ``1 + max_duration /
            4``.
        coefficients: standard deviation of the coefficients of a ``MarkovSwitchingAR``, a number.
        slopes: standard deviation of slopes on standardised inputs, a number: for ``hmm.PosteriorHMM`` in units of the
            standardised data, under variational Bayes in units of the deviation of the intercept given Σ.

    Raises:
        ValueError: at the first use, if a concentration is not above 0.002, a count or variance is not positive, or a
            shape does not fit.
    """

    initial: Any = "auto"
    transition: Any = "auto"
    final: Any = "auto"
    count: Any = 1.0
    mean: Any = "auto"
    mean_count: Any = 0.1
    covariance: Any = "auto"
    weights: Any = "auto"
    jumps: Any = "auto"
    time: Any = "auto"
    durations: Any = "auto"
    mean_duration: Any = "auto"
    coefficients: Any = 1.0
    slopes: Any = 1.0

    def numbers(self, name: str, default: Any, shape: tuple[int, ...], least: float = 0.0) -> Tensor:
        """Return an argument of this prior as a float64 tensor of ``shape``, broadcast along missing leading axes.

        Args:
            name: name of the argument.
            default: value that replaces ``"auto"``.
            shape: shape of the result.
            least: every number must be above this one.

        Raises:
            ValueError: if the shape of the argument does not fit, or a number is not above ``least`` or not finite.
        """
        value = getattr(self, name)
        if isinstance(value, str):
            if value != "auto":
                raise ValueError(f"{name} of the prior is {value!r}; pass numbers, or 'auto'")
            value = default
        array = numbers_of(f"{name} of the prior", value)
        if array.shape not in [shape[i:] for i in range(len(shape) + 1)]:
            if not (len(shape) > 1 and shape[1] == 1 and array.shape == shape[:1]):
                raise ValueError(f"{name} of the prior has shape {array.shape}; pass a number, or shape {shape}")
            array = array[:, None]
        if not (np.isfinite(array) & (array > least)).all():
            raise ValueError(
                f"{name} of the prior goes from {array.min():g} to {array.max():g}; pass finite numbers above {least}"
            )
        return torch.as_tensor(array, dtype=torch.float64).expand(shape).clone()

    def concentrations(self, name: str, shape: tuple[int, ...], default: float) -> Tensor:
        """Return an argument of this prior as concentrations of Dirichlet distributions, a float64 tensor of ``shape``.

        Args:
            name: name of the argument.
            shape: shape of the result.
            default: value that replaces ``"auto"``.

        Raises:
            ValueError: if a concentration is not above 0.002, or the shape of the argument does not fit.
        """
        return self.numbers(name, default, shape, SMALLEST)
