"""The conjugate family of symbols: a Dirichlet distribution on each state's probabilities (MacKay 1997)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.conjugate.distributions import (
    dirichlet_divergence,
    dirichlet_log_density,
    draw_dirichlet,
    expected_log,
)
from seqmodels.hmm.conjugate.family import ConjugateFamily, conjugate_of, refuse_other_prior
from seqmodels.hmm.conjugate.prior import SMALLEST, ConjugatePrior
from seqmodels.hmm.emissions import Statistics, emission_of
from seqmodels.observations import Categorical


@conjugate_of.register(Categorical)
def _(observation: Categorical, size: int) -> ConjugateFamily:
    refuse_other_prior("pseudocount", observation.pseudocount, 0.0)
    return CategoricalFamily(emission_of(observation, size))


class CategoricalFamily(ConjugateFamily):
    """The conjugate family of ``Categorical``: a Dirichlet distribution of the symbol probabilities of each state.

    The hyperparameters are the concentrations of V symbols in each of K states, ``(K, V)``.
    """

    @property
    def offset_features(self) -> list[int]:
        return [-1]

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        shape = (n_states, self.size)
        mean, count = prior.numbers("mean", 1 / self.size, shape), prior.numbers("count", 1.0, (n_states, 1))
        concentrations = count * mean
        if float(concentrations.min()) < SMALLEST:
            raise ValueError(
                f"the prior concentration of a symbol, count times mean, is {float(concentrations.min()):.2g}; pass a "
                f"count of at least {SMALLEST / float(mean.min()):.2g} for {self.size} symbols"
            )
        return concentrations

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        return prior + statistics[0]

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        logs = expected_log(hyper)
        return logs, logs.logsumexp(-1, keepdim=True)

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        return dirichlet_divergence(hyper, prior)

    def mean(self, hyper: Tensor) -> Tensor:
        return (hyper / hyper.sum(-1, keepdim=True)).log()

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        return draw_dirichlet(hyper, generator).log()

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        return dirichlet_log_density(table, hyper)

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"emission": hyper.numpy()}
