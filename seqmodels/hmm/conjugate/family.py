"""Conjugate families: for each observation, a prior of a state's parameters and its posterior under variational Bayes.

The observation's density is of an exponential family. With the sufficient statistics of EM (``Emission``), the
posterior of a state's parameters has the same form as its prior, with other hyperparameters. The E-step takes the
expected log-density of each frame, which is again a density of the observation, at *expected* output parameters, times
a factor that does not exceed one.
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


class EmissionPrior(ABC):
    """Abstract base of priors of the output parameters of K states, with a density that a sampler can evaluate.

    A prior is given by the H hyperparameters of each state, a tensor ``(K, H)`` in float64.

    Args:
        emission: the emission distribution, whose sufficient statistics are read.
    """

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.size = emission.size

    @abstractmethod
    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        """Return the H hyperparameters of the prior of each of K states' output parameters, ``(K, H)``.

        Args:
            prior: the prior as the user passed it, in numbers of observations.
            n_states: number of states, K.

        Raises:
            ValueError: if the numbers of ``prior`` do not fit the emission distribution.
        """

    @abstractmethod
    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        """Return the log-density of the output parameters of each of K states under the prior in nats, ``(K,)``,
        differentiable.

        Args:
            table: P output parameters of each state, ``(K, P)``.
            hyper: H hyperparameters of the prior of each state, ``(K, H)``.

        The density is that of free, unconstrained parameters as in ``hmm.estimates``, with one logit less than there
        are probabilities. The density of probabilities, rates, means and precisions is therefore multiplied by their
        derivative.
        """

    @abstractmethod
    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        """Return output parameters ``(K, P)`` near the mode of the posterior, from which a sampler starts.

        Args:
            table: P fitted output parameters of each of K states, ``(K, P)``.
            prior: H hyperparameters of the prior of each state, ``(K, H)``.
            statistics: expected sufficient statistics under the fitted parameters.
        """


class ConjugateFamily(EmissionPrior):
    """Abstract base of conjugate priors: a family of distributions of the output parameters of K states.

    The posterior given the prior and expected sufficient statistics belongs to the same family.

    To add a family, define the abstract methods in a file of its own and register a function that makes it with
    ``@conjugate_of.register(MyObservation)``.
    """

    @property
    def takes_missing(self) -> bool:
        """True if frames may have missing values (NaN); by default they may."""
        return True

    @property
    def offset_features(self) -> list[int]:
        """The number of the feature that each offset belongs to; -1 for an offset that counts once for each frame.

        Offsets are numbers that the E-step of variational Bayes adds to log-densities. That of a feature counts in the
        frames in which the feature is observed.
        """
        return list(range(self.size))

    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        return self.mean(self.updated(prior, statistics))

    def expected_emission(self, hyper: Tensor, fixed: Tensor) -> tuple[Emission, Tensor]:
        """Return an emission and its parameters whose densities are ``exp(E log p(x))``, for the E-step of variational
        Bayes.

        The expectation is over the posterior of the output parameters. The parameters that are returned, ``(K, P +
        O)``, are P output parameters of each of K states, then O offsets that are added to log-densities.

        Args:
            hyper: H hyperparameters of the posterior of each state, ``(K, H)``.
            fixed: output parameters ``(K, P)`` in which states with a frozen emission have its values.
        """
        return ExpectedEmission(self.emission, self.offset_features), torch.cat(self.expected(hyper), 1)

    @abstractmethod
    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        """Return the hyperparameters of the posterior, ``(K, H)``: those of the prior, updated by expected statistics.

        Args:
            prior: H hyperparameters of the prior of each of K states, ``(K, H)``.
            statistics: expected sufficient statistics of the emissions, as ``Emission.statistics`` returns them.
        """

    @abstractmethod
    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        """Return output parameters and offsets whose density is ``exp(E log p(x))`` under the distribution ``hyper``.

        Args:
            hyper: H hyperparameters of each of K states, ``(K, H)``.

        Returns:
            P output parameters of each state, ``(K, P)``, and O numbers to add to its log-densities, ``(K, O)``,
            which belong to the features that ``offset_features`` names.
        """

    @abstractmethod
    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        """Return ``KL(posterior || prior)`` of the output parameters of each of K states in nats, ``(K,)``.

        Args:
            hyper: H hyperparameters of the posterior of each state, ``(K, H)``.
            prior: those of the prior, ``(K, H)``.
        """

    @abstractmethod
    def mean(self, hyper: Tensor) -> Tensor:
        """Return output parameters ``(K, P)`` at the mean of probabilities, rates, means and precisions.

        The mean is that of the distribution with hyperparameters ``hyper (K, H)``, such as the posterior.
        """

    @abstractmethod
    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        """Return output parameters ``(K, P)`` drawn at random from the distribution with hyperparameters ``hyper (K,
        H)``.
        """

    @abstractmethod
    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return the hyperparameters of the output parameters in raw units of the data, arrays by name.

        Args:
            hyper: H hyperparameters of each of K states, ``(K, H)``, for encoded data.
            shift: number to add to each of D encoded features times ``scale``, which gives its raw value, ``(D,)``.
            scale: factor of each encoded feature, ``(D,)``.
        """


@singledispatch
def conjugate_of(observation: Observation, size: int) -> ConjugateFamily:
    """Return the conjugate family of priors of an emission distribution over ``size`` features or symbols.

    Raises:
        ValueError: if the observation has no conjugate prior, or has a prior of its own.
    """
    raise ValueError(
        f"{observation!r} has no conjugate prior here; use Categorical, Bernoulli, Poisson, a diagonal or full "
        "GaussianMixture, AutoregressiveGaussian, or Columns of all but the first, or fit it by algorithm='em'"
    )


def refuse_other_prior(name: str, value: Any, without: Any) -> None:
    """Raise ``ValueError`` if an emission distribution has a prior of its own or a background, which variational Bayes
    ignores.

    Args:
        name: name of the argument that sets the prior or background.
        value: its value.
        without: the value that means that there is none.
    """
    if value != without:
        raise ValueError(
            f"{name}={value!r} of the observation has no part in a conjugate prior; pass {name}={without!r}, and "
            "state prior beliefs as prior=hmm.ConjugatePrior(...)"
        )


class ExpectedEmission(Emission):
    """An emission whose densities are ``exp(E log p(x))`` under a posterior, for the E-step of variational Bayes.

    Its parameters are ``(K, P + O)`` for K states: P output parameters of ``inner``, then O offsets that are added to
    log-densities.

    Args:
        inner: the emission distribution.
        features: number of the feature that each offset belongs to, or -1 for one that counts once for each frame.
    """

    def __init__(self, inner: Emission, features: Sequence[int]) -> None:
        super().__init__(inner.observation, inner.size)
        self.inner = inner
        self.features = list(features)
        self.n_offsets = len(self.features)

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

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        return self.inner.log_prob(table[:, : -self.n_offsets], x, past, dtype) + self._offsets(table, x, dtype)

    def _offsets(self, table: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what is added to the log-densities: ``(1, K)``, or ``(N, K)`` if offsets depend on missing values."""
        offsets = table[:, -self.n_offsets :].T
        if max(self.features) < 0 or not bool(torch.isnan(x).any()):
            return offsets.sum(0, keepdim=True).to(dtype)
        seen = torch.nn.functional.pad((~torch.isnan(x)).to(offsets.dtype), (0, 1), value=1.0)  # last, the whole frame
        return (seen[:, self.features] @ offsets).to(dtype)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        return self.inner.statistics(table[:, : -self.n_offsets], x, past, gamma, memo)

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        raise NotImplementedError("the hyperparameters are updated by their conjugate family and have no M-step")

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return self.inner.raw_parameters(table[:, : -self.n_offsets], shift, scale)

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        return self.inner.by_state(table[:, : -self.n_offsets], shift, scale, names)
