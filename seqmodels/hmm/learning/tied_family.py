"""Priors of emissions that tied states share, or that are frozen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.conjugate import ConjugateFamily, ConjugatePrior, EmissionPrior
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.learning.constraints import Constraints, Tying


class TiedFamily(ConjugateFamily):
    """A prior of the output parameters of K states in G groups, whose states share one emission (are tied).

    A group has the prior of its first state. Expected statistics of its states are added, and its density counts once.
    Frozen emissions have no density. The family is conjugate if ``inner`` is.

    Args:
        inner: prior of the emission of one state.
        tying: states that share an emission.
        is_kept: True for states whose emission is frozen, ``(K,)``; equal for all states of a group.
    """

    def __init__(self, inner: EmissionPrior, tying: Tying, is_kept: Tensor) -> None:
        super().__init__(inner.emission)
        self.inner, self.tying, self.is_kept = inner, tying, is_kept

    @property
    def _conjugate(self) -> ConjugateFamily:
        assert isinstance(self.inner, ConjugateFamily), "variational Bayes refuses the others"
        return self.inner

    @property
    def takes_missing(self) -> bool:
        return self._conjugate.takes_missing

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        return self.tying.shared(self.inner.prior(prior, n_states))

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        return self.tying.once(self.inner.log_density(table, hyper), self.is_kept)

    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        of_groups, of_prior = self.tying.one_each(table), self.tying.one_each(prior)
        near = self.inner.near(of_groups, of_prior, self._pooled(statistics))
        return torch.where(self.is_kept[:, None], table, self.tying.spread(near))

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        updated = self._conjugate.updated(self.tying.one_each(prior), self._pooled(statistics))
        return torch.where(self.is_kept[:, None].to(prior.device), prior, self.tying.spread(updated))

    def _pooled(self, statistics: Statistics) -> Statistics:
        return self.tying.pool(statistics, self.emission.n_earlier_states)

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        return self._conjugate.expected(hyper)

    def expected_emission(self, hyper: Tensor, fixed: Tensor) -> tuple[Emission, Tensor]:
        emission, table = self._conjugate.expected_emission(hyper, fixed)
        kept = torch.nn.functional.pad(fixed, (0, table.shape[1] - fixed.shape[1]))  # without offsets
        return emission, torch.where(self.is_kept[:, None].to(table.device), kept, table)

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        return self.tying.once(self._conjugate.divergence(hyper, prior), self.is_kept)

    def mean(self, hyper: Tensor) -> Tensor:
        return self._conjugate.mean(hyper)

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        return self.tying.spread(self._conjugate.draw(self.tying.one_each(hyper), generator))

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return self._conjugate.raw(hyper, shift, scale)


def tied_family(family: EmissionPrior, constraints: Constraints) -> EmissionPrior:
    """Return the prior ``family`` of output parameters, adapted to states that share an emission or are frozen.

    It is ``family`` itself if ``constraints`` say that no states share one and no emission is frozen.
    """
    is_frozen = constraints.frozen_groups
    if constraints.tying.is_free and not bool(is_frozen.any()):
        return family
    return TiedFamily(family, constraints.tying, constraints.tying.spread(is_frozen))
