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
        """Return the S sufficient statistics s(x) of each of N vectors of D features, ``(N, S)``.

        Args:
            x: encoded vectors, ``(N, D)``.
        """

    @abstractmethod
    def from_averages(self, averages: Tensor) -> Tensor:
        """Return the parameters ``(K, P)`` of K densities whose expected sufficient statistics have given values.

        Args:
            averages: averages of the S statistics that ``moments`` returns, over the frames of each of K states,
                ``(K, S)``.
        """

    @abstractmethod
    def raw_parameters(
        self, output_parameters: np.ndarray, shift: np.ndarray, scale: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Return the parameters of K states in raw units, by the attribute name under which users read them.

        Args:
            output_parameters: the P parameters of each state's density of encoded values, ``(K, P)``.
            shift, scale: map from encoded x to raw values ``scale · x + shift``, each ``(D,)``.
        """
