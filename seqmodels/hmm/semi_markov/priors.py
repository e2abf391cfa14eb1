"""Priors of an HSMM's emissions together with the durations of its states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.conjugate import ConjugateFamily, ConjugatePrior, EmissionPrior
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.learning.tied_family import TiedFamily
from seqmodels.hmm.semi_markov.durations import DurationFamily
from seqmodels.hmm.semi_markov.expectations import SegmentConstraints, SegmentEmission


class SegmentFamily(ConjugateFamily):
    """The family of priors of the emissions and durations of an HSMM's states.

    A row of hyperparameters, ``(K, H + Q)``, has H of the emission of a state, then Q of its durations. The family is
    conjugate where ``DurationFamily.is_conjugate`` is true and the prior of the emission is a ``ConjugateFamily``.

    Args:
        inner: prior of the emission.
        emission: the emission with durations.
        constraints: states that share or keep their emission or durations.
    """

    def __init__(self, inner: EmissionPrior, emission: SegmentEmission, constraints: SegmentConstraints) -> None:
        of_inner, options = inner.emission, {"left_censored": emission.left_censored}
        self.with_durations = SegmentEmission(of_inner, emission.family, **options, constraints=emission.constraints)
        super().__init__(self.with_durations)
        self.inner = TiedFamily(inner, constraints.emission, constraints.keeps_emission)
        self.tying, self.is_kept = constraints.durations, constraints.keeps_durations

    @property
    def durations(self) -> DurationFamily:
        """The family of the distributions of durations."""
        return self.with_durations.family

    @property
    def takes_missing(self) -> bool:
        return self.inner.takes_missing

    def _split(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        n_columns = hyper.shape[1] - self.durations.n_columns
        return hyper[:, :n_columns], hyper[:, n_columns:]

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        return torch.cat(
            [self.inner.prior(prior, n_states), self.tying.shared(self.durations.prior(prior, n_states))], 1
        )

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        (of_emission, durations), (hyper_of_emission, hyper_of_durations) = (
            self.with_durations.split(table),
            self._split(hyper),
        )
        of_durations = self.durations.log_density(durations, hyper_of_durations)
        return self.inner.log_density(of_emission, hyper_of_emission) + self.tying.once(of_durations, self.is_kept)

    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        of_emission, durations = self.with_durations.split(table)
        of_prior, of_durations = self._split(prior)
        near = self.inner.near(of_emission, of_prior, statistics[:-2])
        of_each = self.tying.one_each(durations), self.tying.one_each(of_durations)
        of_groups = self.durations.near(*of_each, self._pooled(statistics))
        return torch.cat([near, torch.where(self.is_kept[:, None], durations, self.tying.spread(of_groups))], 1)

    def _pooled(self, statistics: Statistics) -> Tensor:
        """Return the expected counts of full durations of each group of states that share them, ``(G, D)``."""
        return self.tying.pool(statistics[-2:-1])[0]

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        of_emission, of_durations = self._split(prior)
        counted = self.tying.spread(self.durations.updated(self.tying.one_each(of_durations), self._pooled(statistics)))
        counted = torch.where(self.is_kept[:, None].to(prior.device), of_durations, counted)
        return torch.cat([self.inner.updated(of_emission, statistics[:-2]), counted], 1)

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        of_emission, of_durations = self._split(hyper)
        table, offsets = self.inner.expected(of_emission)
        return torch.cat([table, self.durations.expected(of_durations)], 1), offsets

    def expected_emission(self, hyper: Tensor, fixed: Tensor) -> tuple[Emission, Tensor]:
        (of_emission, of_durations), (kept, kept_durations) = self._split(hyper), self.with_durations.split(fixed)
        inner, table = self.inner.expected_emission(of_emission, kept)
        emission = SegmentEmission(inner, self.durations, left_censored=self.with_durations.left_censored)
        is_kept = self.is_kept[:, None].to(table.device)
        return emission, torch.cat(
            [table, torch.where(is_kept, kept_durations, self.durations.expected(of_durations))], 1
        )

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        (of_emission, of_durations), (emission0, durations0) = self._split(hyper), self._split(prior)
        of_both = self.tying.once(self.durations.divergence(of_durations, durations0), self.is_kept)
        return self.inner.divergence(of_emission, emission0) + of_both

    def mean(self, hyper: Tensor) -> Tensor:
        of_emission, of_durations = self._split(hyper)
        return torch.cat([self.inner.mean(of_emission), self.durations.mean(of_durations)], 1)

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        of_emission, of_durations = self._split(hyper)
        drawn = self.inner.draw(of_emission, generator)
        of_groups = self.durations.draw(self.tying.one_each(of_durations), generator)
        return torch.cat([drawn, self.tying.spread(of_groups)], 1)

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        of_emission, of_durations = self._split(hyper)
        named = {"durations": of_durations.numpy()} if of_durations.shape[1] else {}
        return {**self.inner.raw(of_emission, shift, scale), **named}
