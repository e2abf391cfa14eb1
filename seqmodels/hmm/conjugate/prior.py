"""``ConjugatePrior``: a conjugate prior of an HMM's parameters, in numbers of observations."""

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
    """Conjugate priors of an HMM: Dirichlet distributions on the rows of the chain, and a prior of the emissions.

    The prior of an emission is as if each state had emitted ``count`` observations with a mean (and covariance) before:

    - ``Categorical``: Dirichlet with concentrations ``count * mean``, where ``mean (V,)`` are probabilities, by default
      uniform.
    - ``Bernoulli``: Beta(``count * mean``, ``count * (1 - mean)``) for each feature.
    - ``Poisson``: Gamma with shape ``count * mean`` and rate ``count`` for each feature.
    - ``GaussianMixture``: the mean of a component given its covariance is normal around ``mean``, with that covariance
      divided by ``mean_count``. Under ``"diag"`` each precision is Gamma with shape ``count / 2`` and rate
      ``count * covariance / 2``; under ``"full"`` precisions are Wishart with ``count + D - 1`` degrees of freedom. In
      both, the mean of the precision is the inverse of ``covariance``. Weights are Dirichlet.

    Args:
        initial: concentration of each first state, a number or ``(K,)``; ``"auto"`` means 1/K, so that all states
            together count as one observation, and states that the data do not need empty out.
        transition: concentration of each transition, a number or ``(K, K)``; ``"auto"`` means 1/K. Transitions that the
            topology rules out have none.
        final: concentration of the end after each state, a number or ``(K,)``; ``"auto"`` means 1/K.
        count: number of observations that the prior of an emission is worth, a number or ``(K,)``.
        mean: mean of those observations, a number, ``(D,)`` (``(V,)`` for symbols) or ``(K, D)``, for vectors in units
            of the standardised data; ``"auto"`` means 0 for vectors, uniform for symbols, else the observation's own
            prior mean.
        mean_count: number of observations that the prior mean of a Gaussian is worth, a number or ``(K,)``.
        covariance: variances of vectors, a number, ``(D,)`` or ``(K, D)``, in units of the standardised data;
            ``"auto"`` means ``(K M)^(-2/D)``, which divides the volume of the data equally among the components (Fraley
            and Raftery 2007).
        weights: concentration of each weight of a mixture, a number; ``"auto"`` means 1/M.

    Raises:
        ValueError: at the first use, if a concentration is below 0.002, a count or variance is not positive, or a shape
            does not fit.
    """

    initial: Any = "auto"
    transition: Any = "auto"
    final: Any = "auto"
    count: Any = 1.0
    mean: Any = "auto"
    mean_count: Any = 0.1
    covariance: Any = "auto"
    weights: Any = "auto"

    def numbers(self, name: str, default: Any, shape: tuple[int, ...], least: float = 0.0) -> Tensor:
        """Return the argument ``name`` as a float64 tensor of ``shape``, with leading axes broadcast.

        ``default`` replaces ``"auto"``.

        Raises:
            ValueError: the shape does not fit, or a number is not above ``least`` or not finite.
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
        """Return the argument ``name`` as concentrations of Dirichlet distributions, float64 of ``shape``.

        ``default`` replaces ``"auto"``. ``ValueError`` is raised for concentrations that are not above 0.002, and for
        shapes that do not fit.
        """
        return self.numbers(name, default, shape, SMALLEST)
