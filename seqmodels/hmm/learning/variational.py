"""Variational Bayes for hidden Markov models.

The posterior ``p(θ, z | x)`` is approximated by ``q(θ) q(z)`` (MacKay 1997, *Ensemble learning for hidden Markov
models*; Beal 2003, *Variational algorithms for approximate Bayesian inference*, chapter 3). With conjugate priors
``q(θ)`` is in the prior's family. The E-step is forward-backward with ``exp(E log θ)`` in the place of probabilities,
which sum to less than one; its "log-probability" is log Z. The M-step adds expected counts to the prior's. Every step
increases the evidence lower bound ``log Z - KL(q(θ) || p(θ)) <= log p(x)``.

A distribution ``q(θ)`` is held in a ``Parameters`` whose numbers are hyperparameters: Dirichlet concentrations of the
chain, and the table of a ``ConjugateFamily`` for the emissions. So the EM driver, its history and its checkpoints in
``em`` serve variational Bayes unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import array_of
from seqmodels.hmm.conjugate import ConjugateFamily, ConjugatePrior, ExpectedEmission
from seqmodels.hmm.conjugate.distributions import dirichlet_divergence, draw_dirichlet, expected_log
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import Expectations, e_step, sum_over_processes
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology
from seqmodels.training import Row


def prior_hyperparameters(
    prior: ConjugatePrior, family: ConjugateFamily, topology: Topology, n_states: int, *, has_final: bool
) -> Parameters:
    """Return the hyperparameters of the prior of a chain with K states; concentrations are zero where the topology
    forbids.

    Args:
        prior: the prior that the user passed.
        family: the conjugate family of the emissions.
        topology: which starts, transitions and ends are possible.
        n_states: number of states, K.
        has_final: True if the end of a sequence is an event.

    Raises:
        ValueError: a hyperparameter is out of range, or its shape does not fit K states.
    """
    k = n_states
    initial = prior.concentrations("initial", (k,), 1 / k) * topology.initial_mask(k)
    transition = prior.concentrations("transition", (k, k), 1 / k) * topology.transition_mask(k)
    final = prior.concentrations("final", (k,), 1 / k) * topology.final_mask(k) if has_final else None
    return Parameters(initial, transition, final, family.prior(prior, k))


@dataclass(frozen=True)
class VariationalObjective:
    """The evidence lower bound of variational Bayes, and the units in which the history reports it.

    Attributes:
        family: conjugate family of the emissions' output parameters.
        emission: the emission whose floor bounds densities at the posterior mean.
        prior: hyperparameters of the prior.
        n_units: number of raw units of the training data, each counted with the weight of its sequence.
        log_det: log-determinant of the encoding over the weighted data, in nats, which is added to ``log p`` of encoded
            data.
        start: ``"free"`` to learn the first state's distribution, or ``"uniform"`` if it is known to be uniform.
    """

    family: ConjugateFamily
    emission: Emission
    prior: Parameters
    n_units: float
    log_det: float
    start: Start = "free"

    def log_prior(self, parameters: Parameters) -> float:
        """Return ``-KL(q || prior)`` in nats for a posterior with these hyperparameters."""
        divergence = self.family.divergence(parameters.table, self.prior.table.to(parameters.table.device)).sum()
        prior = self.prior.to(parameters.initial.device)
        divergence = divergence + dirichlet_divergence(_rows(parameters), _rows(prior)).sum()
        if self.start == "free":
            divergence = divergence + dirichlet_divergence(parameters.initial, prior.initial)
        return -float(divergence)

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """Return a row of the history, whose ``objective`` is the evidence lower bound in nats per raw unit.

        ``log_prob`` is log Z here, which is no log-probability, so the column ``log_prob`` of the row is NaN.
        """
        bound = (log_prob + self.log_det + log_prior) / self.n_units
        return {
            "step": step,
            "seconds": seconds,
            "log_prob": torch.nan,
            "objective": bound,
            "floor_hits": int(self.emission.floor_hits(self.family.mean(table)).sum()),
        }

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the hyperparameters of the posterior: the prior's plus the expected counts."""
        prior = self.prior.to(parameters.initial.device)
        final = None if prior.final is None else prior.final + expectations.final * (prior.final > 0)
        return Parameters(
            prior.initial + expectations.initial * (prior.initial > 0),
            prior.transition + expectations.xi * (prior.transition > 0),
            final,
            self.family.updated(prior.table, expectations.emission),
        )

    def expectations(self, parameters: Parameters, batches: Sequence[PackedBatch], dtype: torch.dtype) -> Expectations:
        """Return the expected counts of this process's batches under ``exp(E log θ)``; their ``log_prob`` is log Z in
        nats.
        """
        expected, n_offsets = self._expected(parameters)
        emission = ExpectedEmission(self.family.emission, n_offsets)
        results = e_step([expected], emission, batches, dtype)
        assert results is not None, "nothing interrupts it"
        return results[0]

    def score(self, hyper: Parameters, corpus: Corpus) -> float:
        """Return the log-probability of the corpus at the posterior mean, in nats per raw unit, over all processes."""
        mean = mean_parameters(hyper, self.family, self.start)
        results = e_step([mean], self.emission, corpus.own_batches(), corpus.dtype)
        assert results is not None, "nothing interrupts it"
        (expectations,), _ = sum_over_processes(results, [])
        return (expectations.log_prob + self.log_det) / self.n_units

    def _expected(self, parameters: Parameters) -> tuple[Parameters, int]:
        rows = expected_log(_rows(parameters)).exp()
        k = len(parameters.initial)
        is_free = self.start == "free"
        initial = expected_log(parameters.initial).exp() if is_free else _uniform(parameters.initial)
        table, offsets = self.family.expected(parameters.table)
        final = None if parameters.final is None else rows[:, k].contiguous()
        joined = torch.cat([table, offsets], 1)
        return Parameters(initial, rows[:, :k].contiguous(), final, joined), offsets.shape[1]

    def started(self, start: Parameters, corpus: Corpus) -> Parameters:
        """Return the hyperparameters of a first posterior: the prior's plus the expected counts under guessed
        parameters.
        """
        results = e_step([start], self.family.emission, corpus.own_batches(), corpus.dtype)
        assert results is not None, "nothing interrupts it"
        (expectations,), _ = sum_over_processes(results, [])
        return self.maximised(self.prior.to(start.initial.device), expectations)


@dataclass(frozen=True)
class VariationalPosterior:
    """The variational posterior ``q(θ)`` after a fit.

    Attributes:
        hyper: hyperparameters of ``q(θ)``, on the CPU.
        lower_bound: evidence lower bound of the training data, in nats in raw units.
    """

    hyper: Parameters
    lower_bound: float

    def take(self, order: Tensor) -> VariationalPosterior:
        """Return the posterior with its states reordered: state i is the one that was at ``order[i]``."""
        return VariationalPosterior(self.hyper.take(order), self.lower_bound)

    def arrays(self) -> dict[str, Any]:
        """Return the hyperparameters and the lower bound by name, in the form in which a file stores them."""
        return {**self.hyper.arrays(), "lower_bound": self.lower_bound}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Any], parameters: Parameters, family: ConjugateFamily
    ) -> VariationalPosterior:
        """Return the posterior that ``arrays`` stored, for a model with these ``parameters``.

        Raises ``ValueError`` if names, shapes or values cannot be those of such a posterior.
        """
        bound, tables = arrays["lower_bound"], {name: t for name, t in arrays.items() if name != "lower_bound"}
        prior = family.prior(ConjugatePrior(), len(parameters.initial))
        shapes = {name: tuple(table.shape) for name, table in parameters.arrays().items()}
        shapes["table"] = tuple(prior.shape)
        if tables.keys() != shapes.keys() or not isinstance(bound, float):
            raise ValueError(f"a posterior has {', '.join(shapes)} and lower_bound; the file has {', '.join(arrays)}")
        for name, shape in shapes.items():
            table = array_of(tables, name, np.float64, shape)
            if not np.isfinite(table).all() or (name != "table" and (table < 0).any()):
                raise ValueError(f"{name} of the posterior should be finite, and concentrations not negative")
        return cls(Parameters.from_arrays(tables), bound)


def _rows(parameters: Parameters) -> Tensor:
    """Return the concentrations of transitions, ``(K, K)``, with one more column for ends where these are events."""
    if parameters.final is None:
        return parameters.transition
    return torch.cat([parameters.transition, parameters.final.unsqueeze(1)], 1)


def mean_parameters(hyper: Parameters, family: ConjugateFamily, start: Start) -> Parameters:
    """Return the mean of the posterior: mean probabilities, rates, means and precisions."""
    k, rows = len(hyper.initial), _rows(hyper)
    rows = rows / rows.sum(1, keepdim=True)
    initial = hyper.initial / hyper.initial.sum() if start == "free" else _uniform(hyper.initial)
    final = None if hyper.final is None else rows[:, k].contiguous()
    return Parameters(initial, rows[:, :k].contiguous(), final, family.mean(hyper.table))


def drawn_parameters(
    hyper: Parameters, family: ConjugateFamily, start: Start, generator: torch.Generator
) -> Parameters:
    """Return one draw of the parameters from the posterior."""
    k, rows = len(hyper.initial), draw_dirichlet(_rows(hyper), generator)
    initial = draw_dirichlet(hyper.initial, generator) if start == "free" else _uniform(hyper.initial)
    final = None if hyper.final is None else rows[:, k].contiguous()
    return Parameters(initial, rows[:, :k].contiguous(), final, family.draw(hyper.table, generator))


def _uniform(concentrations: Tensor) -> Tensor:
    allowed = (concentrations > 0).double()
    return allowed / allowed.sum()
