"""The base class of observations fitted by moments: the best parameters give ``s(x)`` its observed averages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from seqmodels.observations.base import Observation


class MomentMatching(Observation, ABC):
    """The base class of exponential-family densities, ``log p(x) = η · s(x) - A(η) + h(x)``, in any output parameters.

    The likelihood is largest if the expected sufficient statistics ``s(x)`` equal their averages. So EM needs two
    functions besides the density: ``moments``, which computes ``s``, and ``from_averages``, which computes output
    parameters. If each feature has one parameter and ``s(x) = x``, ``ExponentialFamily`` is faster and also has missing
    values and a prior.

    To add one, define ``emits``, ``n_output_parameters``, ``log_prob``, ``sample`` and the methods below in one file.
    Networks and HMMs can then use it.
    """

    @abstractmethod
    def moments(self, x: Tensor) -> Tensor:
        """Return the S sufficient statistics s(x) of each of N frames ``x (N, D)``, ``(N, S)``."""

    @abstractmethod
    def from_averages(self, averages: Tensor) -> Tensor:
        """Return the output parameters ``(K, P)`` under which the expected ``moments`` are ``averages (K, S)``."""

    @abstractmethod
    def raw_parameters(
        self, output_parameters: np.ndarray, shift: np.ndarray, scale: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Return the fitted parameters of K states in raw units, by the attribute name under which users read them.

        ``output_parameters`` is ``(K, P)``; raw values are ``scale · x + shift``, with ``shift`` and ``scale``
        ``(D,)``.
        """
