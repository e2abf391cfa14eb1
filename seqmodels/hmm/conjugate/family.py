"""What variational Bayes needs of an observation: a conjugate prior of each state's parameters, and its posterior.

The observation's density is of an exponential family. With sufficient statistics as of EM (``Emission``), the posterior
of a state's parameters is of its prior's family, with other numbers: its hyperparameters. The E-step takes the expected
log-density of each frame, which is again a density of the observation, at *expected* output parameters, times a factor
that does not exceed one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import Observation


class ConjugateFamily(ABC):
    """Distributions over the output parameters of K states: ``hyper (K, H)``, one row a state, float64.

    To add one, define the abstract methods in a file of its own and put ``@conjugate_of.register(MyObservation)``
    before what makes it. It is made with the EM side of the observation, whose statistics it reads.
    """

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.size = emission.size

    @property
    def takes_missing(self) -> bool:
        """Whether frames may have missing values."""
        return True

    @abstractmethod
    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        """``(K, H)``; raises ``ValueError`` for numbers that cannot be."""

    @abstractmethod
    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        """``(K, H)`` of the posterior, given expected sufficient statistics as the emission has them."""

    @abstractmethod
    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        """``exp(E log p(x))`` is the density at a table ``(K, P)`` times ``exp`` of offsets.

        Offsets ``(K, D)`` are of the features that a frame has, ``(K, 1)`` of each frame.
        """

    @abstractmethod
    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        """``(K,)`` nats, ``KL(posterior || prior)`` of each state."""

    @abstractmethod
    def mean(self, hyper: Tensor) -> Tensor:
        """``(K, P)`` output parameters: the posterior mean of probabilities, rates, means and precisions."""

    @abstractmethod
    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        """``(K, P)`` output parameters drawn from the posterior."""

    @abstractmethod
    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        """``(K,)`` nats, differentiable: the log-density of the free numbers of a table ``(K, P)``.

        Numbers are as ``hmm.estimates`` counts them: of logits all but one, whichever that is; so the density of
        probabilities, rates, means and precisions is multiplied by their derivative.
        """

    @abstractmethod
    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        """The hyperparameters by name, of parameters in raw units."""


@singledispatch
def conjugate_of(observation: Observation, size: int) -> ConjugateFamily:
    """The family of distributions over the output parameters of an observation of D features or V symbols.

    Raises:
        ValueError: an observation without a conjugate prior, or with a prior of its own.
    """
    raise ValueError(
        f"{observation!r} has no conjugate prior here; use Categorical, Bernoulli, Poisson or a GaussianMixture with "
        "covariance_type='diag' or 'full', or fit it by algorithm='em'"
    )


def refuse_other_prior(name: str, value: Any, without: Any) -> None:
    """Raise ``ValueError`` where an observation has a prior or a background that takes no part here."""
    if value != without:
        raise ValueError(
            f"{name}={value!r} of the observation has no part in a conjugate prior; pass {name}={without!r}, and "
            "prior=hmm.ConjugatePrior(...) for what is believed before the data"
        )


class ExpectedEmission(Emission):
    """Frames under ``exp(E log p(x))``; tables ``(K, P + O)`` are those of the emission, then O columns of offsets."""

    def __init__(self, inner: Emission, n_offsets: int) -> None:
        super().__init__(inner.observation, inner.size)
        self.inner = inner
        self.n_offsets = n_offsets

    @property
    def n_statistics(self) -> int:
        return self.inner.n_statistics

    def n_densities(self, n_states: int) -> int:
        return self.inner.n_densities(n_states)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        densities, memo = self.inner.evaluate(table[:, : -self.n_offsets], x, past, dtype, scratch)
        return LogDensities(densities.log() + self._offsets(table, x, dtype)), memo

    def _offsets(self, table: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
        """``(1, K)``, or ``(N, K)`` where values are missing."""
        offsets = table[:, -self.n_offsets :].T
        if self.n_offsets == 1 or not bool(torch.isnan(x).any()):
            return offsets.sum(0, keepdim=True).to(dtype)
        return ((~torch.isnan(x)).to(offsets.dtype) @ offsets).to(dtype)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        return self.inner.statistics(table[:, : -self.n_offsets], x, past, gamma, memo)

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        raise NotImplementedError("hyperparameters are updated by their family, not maximised")

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return self.inner.raw_parameters(table[:, : -self.n_offsets], shift, scale)

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        return self.inner.by_state(table[:, : -self.n_offsets], shift, scale, names)
