"""``ConjugatePrior``: what is believed of an HMM's parameters before any data, as numbers of observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import Configurable

SMALLEST = 2e-3  # concentration: exp(E log p) of a smaller one underflows in float64


@dataclass(eq=False, repr=False)
class ConjugatePrior(Configurable):
    """Dirichlet distributions on the rows of the chain, and the conjugate prior of what states emit.

    Emissions are believed as if each state had emitted ``count`` observations of a mean (and covariance) before:

    - ``Categorical``: Dirichlet with concentrations ``count * mean``, ``mean (V,)`` probabilities, by default even;
    - ``Bernoulli``: Beta(``count * mean``, ``count * (1 - mean)``) for each feature;
    - ``Poisson``: Gamma with shape ``count * mean`` and rate ``count`` for each feature;
    - ``GaussianMixture``: of each component, the mean given the covariance is normal around ``mean``, with that
      covariance divided by ``mean_count``. Under ``"diag"`` each precision is Gamma with shape ``count / 2`` and rate
      ``count * covariance / 2``; under ``"full"`` precisions are Wishart with ``count + D - 1`` degrees of freedom. In
      both the mean of the precision is the inverse of ``covariance``. Weights are Dirichlet.

    Args:
        initial: concentration of the first state, a number or ``(K,)``; ``"auto"``: 1/K, so that all states together
            count as one observation, and states that data do not need empty out.
        transition: concentrations of a state's next, a number or ``(K, K)``; ``"auto"``: 1/K. Transitions that the
            topology rules out have none.
        final: concentration of the end after a state, a number or ``(K,)``; ``"auto"``: 1/K.
        count: observations that an emission is worth, a number or ``(K,)``.
        mean: their mean, a number, ``(D,)`` (or ``(V,)``) or ``(K, D)``, of vectors in units of the standardised data;
            ``"auto"``: 0 for vectors, even for symbols, else the observation's own ``mean``.
        mean_count: observations that the mean of a Gaussian is worth, a number or ``(K,)``.
        covariance: variances of vectors, a number, ``(D,)`` or ``(K, D)``, in units of the standardised data;
            ``"auto"``: ``(K M)^(-2/D)``, the data's divided into so many equal volumes (Fraley and Raftery 2007).
        weights: concentration of a mixture's weights, a number; ``"auto"``: 1/M.

    Raises:
        ValueError: when used: concentrations below 0.002, counts and variances that are not positive, shapes that do
            not fit.
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
        """The argument of this name as float64 of ``shape``, leading axes added; ``default`` where it is ``"auto"``.

        Raises:
            ValueError: a shape that does not fit, or a number that is not above ``least`` or not finite.
        """
        value = getattr(self, name)
        if isinstance(value, str):
            if value != "auto":
                raise ValueError(f"{name} of the prior is {value!r}; pass numbers, or 'auto'")
            value = default
        array = numbers_of(f"{name} of the prior", value)
        if array.shape not in [shape[i:] for i in range(len(shape) + 1)]:
            if not (len(shape) > 1 and shape[1] == 1 and array.shape == shape[:1]):
                raise ValueError(f"{name} of the prior has shape {array.shape}; pass a number, or {shape}")
            array = array[:, None]
        if not (np.isfinite(array) & (array > least)).all():
            raise ValueError(
                f"{name} of the prior goes from {array.min():g} to {array.max():g}; pass more than {least}"
            )
        return torch.as_tensor(array, dtype=torch.float64).expand(shape).clone()

    def concentrations(self, name: str, shape: tuple[int, ...], default: float) -> Tensor:
        """Concentrations of Dirichlet distributions, as ``numbers``."""
        return self.numbers(name, default, shape, SMALLEST)
