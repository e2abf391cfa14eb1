"""Observations fitted by moments: the maximum-likelihood estimate is that whose expected ``s(x)`` are the averages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from seqmodels.observations.base import Observation


class MomentMatching(Observation, ABC):
    """A density of an exponential family, ``log p(x) = η · s(x) - A(η) + h(x)``, in whatever output parameters.

    Its likelihood is largest where the expectation of the sufficient statistics ``s(x)`` is their average, so that EM
    needs two functions beside the density: ``s``, and from averages to output parameters. Where each feature has one
    parameter and ``s(x) = x``, ``ExponentialFamily`` is faster, and knows missing values and a prior.

    To add one, define ``emits``, ``n_output_parameters``, ``log_prob``, ``sample`` and the methods below in one file.
    Networks and HMMs take it.
    """

    @abstractmethod
    def moments(self, x: Tensor) -> Tensor:
        """The sufficient statistics of frames: ``(N, D)`` -> ``(N, S)``."""

    @abstractmethod
    def from_averages(self, averages: Tensor) -> Tensor:
        """The output parameters ``(K, P)`` under which ``moments`` have these expectations, ``(K, S)`` float64."""

    @abstractmethod
    def raw_parameters(
        self, output_parameters: np.ndarray, shift: np.ndarray, scale: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Rows of output parameters as users know them, of raw ``scale · x + shift``, by the name of an attribute."""
