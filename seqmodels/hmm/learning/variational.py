"""Variational Bayes for hidden chains.

The posterior ``p(θ, z | x)`` is approximated by ``q(θ) q(z)`` (MacKay 1997, *Ensemble learning for hidden Markov
models*; Beal 2003, *Variational algorithms for approximate Bayesian inference*, chapter 3). With conjugate priors
``q(θ)`` is in the prior's family. The E-step is forward-backward with ``exp(E log θ)`` in the place of probabilities,
which sum to less than one; its "log-probability" is log Z. The M-step adds expected counts to the prior's. Every step
increases the evidence lower bound ``log Z - KL(q(θ) || p(θ)) <= log p(x)``.

A distribution ``q(θ)`` is held in a ``Parameters`` whose numbers are hyperparameters: those of a ``RowsFamily`` for the
chain, and the table of a ``ConjugateFamily`` for the emissions. So the EM driver, its history and its checkpoints in
``em`` serve variational Bayes unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import array_of
from seqmodels.hmm.conjugate import ConjugateFamily, ConjugatePrior, DirichletRows, EmissionPrior, RowsFamily
from seqmodels.hmm.conjugate.distributions import dirichlet_divergence, draw_dirichlet, expected_log
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.constraints import Constraints
from seqmodels.hmm.learning.em import Expectations, sum_over_processes
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology
from seqmodels.training import Row

ExpectationsOf = Callable[[Parameters, Emission, Sequence[PackedBatch], torch.dtype], Expectations]


def prior_hyperparameters(
    prior: ConjugatePrior,
    family: EmissionPrior,
    topology: Topology,
    n_states: int,
    *,
    has_final: bool,
    rows: RowsFamily | None = None,
    n_rows: int | None = None,
    constraints: Constraints | None = None,
) -> Parameters:
    """Return the hyperparameters of the prior of a hidden Markov model with K states, in the place of its parameters.

    The concentrations of Dirichlet distributions are zero for transitions that the topology forbids and for frozen
    ones.

    Args:
        prior: the prior that the user passed.
        family: the form of the prior of the output parameters.
        topology: which starts, transitions and ends are possible.
        n_states: number of states, K.
        has_final: True if the end of a sequence is an event.
        rows: the form of the prior of transitions; None means Dirichlet distributions of the rows.
        n_rows: number of rows of transitions; None means K.
        constraints: parameters that are frozen; None means that none are.

    Raises:
        ValueError: if a hyperparameter is out of range, or its shape does not fit K states.
    """
    k = n_states
    initial = prior.concentrations("initial", (k,), 1 / k) * topology.initial_mask(k)
    empty = Parameters(initial, initial.new_zeros(n_rows or k, k), None, family.prior(prior, k))
    hyper = (rows or DirichletRows()).prior(prior, empty, topology, has_final=has_final)
    return (constraints or Constraints.none(k)).without_rows(hyper)


@dataclass(frozen=True)
class VariationalObjective:
    """The evidence lower bound of variational Bayes, and the units in which the history reports it.

    Attributes:
        family: conjugate family of the output parameters.
        emission: the emission distribution whose parameters have lower bounds, such as ``min_covariance``.
        prior: hyperparameters of the prior.
        n_units: number of raw units of the training data, each counted with the weight of its sequence.
        log_det: log-determinant of the encoding over the weighted data, in nats, which is added to ``log p`` of encoded
            data.
        rows: conjugate family of the transition probabilities (rows) or rates.
        expectations_of: the E-step of the hidden Markov model.
        start: ``"free"`` to learn the first state's distribution, or ``"uniform"`` if it is known to be uniform.
        constraints: parameters that are frozen, which have no prior or posterior but fixed values.
        fixed: a set of parameters in which the frozen ones have their fixed values; slopes are columns of its table.
        inputs: columns of the inputs that emissions are regressed on.
    """

    family: ConjugateFamily
    emission: Emission
    prior: Parameters
    n_units: float
    log_det: float
    rows: RowsFamily
    expectations_of: ExpectationsOf
    start: Start
    constraints: Constraints
    fixed: Parameters
    inputs: InputOptions

    def with_fixed(self, parameters: Parameters) -> VariationalObjective:
        """Return the objective whose frozen parameters have their values in ``parameters``."""
        return replace(self, fixed=self.inputs.joined(parameters, self.emission).to(torch.device("cpu")))

    def batches(self, corpus: Corpus) -> list[PackedBatch]:
        """Return this process's batches of ``corpus``, with inputs in the place where ``family`` reads them."""
        return [self.inputs.as_regressors(batch) for batch in corpus.own_batches()]

    def log_prior(self, parameters: Parameters) -> float:
        """Return ``-KL(q || prior)`` in nats, for a posterior q whose hyperparameters are in ``parameters``."""
        divergence = self.family.divergence(parameters.table, self.prior.table.to(parameters.table.device)).sum()
        prior = self.prior.to(parameters.initial.device)
        divergence = divergence + self.rows.divergence(parameters, prior)
        if self.start == "free":
            divergence = divergence + dirichlet_divergence(parameters.initial, prior.initial)
        return -float(divergence)

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """Return a row of the fit's ``history_``, whose ``objective`` is the evidence lower bound per unit of the data.

        It is in nats per frame, byte or symbol. The column ``log_prob`` is NaN, because log Z is no log-probability.

        Args:
            step: number of the EM step.
            seconds: time since the start of the run.
            log_prob: log Z in nats, the normalising sum over state paths of the E-step.
            log_prior: ``-KL(q || prior)`` in nats.
            table: hyperparameters of the posterior of the emissions, one row for each state.
        """
        bound = (log_prob + self.log_det + log_prior) / self.n_units
        mean = self.inputs.parted(replace(self.fixed, table=self.family.mean(table)), self.emission)
        return {
            "step": step,
            "seconds": seconds,
            "log_prob": torch.nan,
            "objective": bound,
            "floor_hits": int(self.emission.floor_hits(mean.table).sum()),
        }

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the hyperparameters of the posterior, those of the prior plus expected counts: the M-step.

        Args:
            parameters: current hyperparameters, which only determine the device.
            expectations: expected counts, the result of the E-step.
        """
        prior = self.prior.to(parameters.initial.device)
        initial = prior.initial + expectations.initial * (prior.initial > 0)
        updated = self.rows.updated(prior, expectations.xi, expectations.final)
        return replace(updated, initial=initial, table=self.family.updated(prior.table, expectations.emission))

    def expectations(self, parameters: Parameters, batches: Sequence[PackedBatch], dtype: torch.dtype) -> Expectations:
        """Return the result of the E-step of variational Bayes: expected counts under ``exp(E log θ)``, with log Z in
        nats.

        Args:
            parameters: hyperparameters of the current posterior of θ.
            batches: the sequences of this process, as the method ``batches`` returns them.
            dtype: precision of the densities.
        """
        fixed = self.fixed.to(parameters.initial.device)
        emission, table = self.family.expected_emission(parameters.table, fixed.table)
        is_free = self.start == "free"
        initial = expected_log(parameters.initial).exp() if is_free else _uniform(parameters.initial)
        expected = replace(self.rows.expected(parameters), initial=initial, table=table)
        expected = self.constraints.keep_rows(fixed, expected)
        return self.expectations_of(expected, emission, batches, dtype)

    def score(self, hyper: Parameters, corpus: Corpus) -> float:
        """Return the log-probability of ``corpus`` at the mean of the posterior with the hyperparameters ``hyper``.

        It is in nats per frame, byte or symbol, summed over all processes.
        """
        mean = self.mean(hyper)
        counted = self.expectations_of(mean, self.emission, corpus.own_batches(), corpus.dtype)
        (expectations,), _ = sum_over_processes([counted], [])
        return (expectations.log_prob + self.log_det) / self.n_units

    def mean(self, hyper: Parameters) -> Parameters:
        """Return the mean of the posterior with hyperparameters ``hyper``, with frozen parameters as they are."""
        mean = mean_parameters(hyper, self.family, self.start, self.rows)
        kept = self.constraints.keep(self.fixed.to(hyper.initial.device), mean, self.family.emission)
        tied = replace(kept, table=self.family.emission.tie(kept.table))
        return self.inputs.parted(tied, self.emission)

    def continues(self, hyper: Parameters) -> bool:
        """Return True if a fit with this prior can continue from a posterior with the hyperparameters ``hyper``.

        Concentrations must be positive for the same parameters, those that are possible and not frozen.
        """
        pairs = zip(hyper.arrays().items(), self.prior.arrays().items(), strict=True)
        return all(((a > 0) == (b > 0)).all() for (name, a), (_, b) in pairs if name != "table")

    def started(self, start: Parameters, corpus: Corpus) -> Parameters:
        """Return the hyperparameters of a first posterior: the prior's plus the expected counts under guessed
        parameters.

        Args:
            start: guessed parameters.
            corpus: the training sequences.
        """
        joined = self.inputs.joined(start, self.emission)
        counted = self.expectations_of(joined, self.family.emission, self.batches(corpus), corpus.dtype)
        (expectations,), _ = sum_over_processes([counted], [])
        return self.maximised(self.prior.to(start.initial.device), expectations)


@dataclass(frozen=True)
class VariationalPosterior:
    """The posterior distribution ``q(θ)`` of the parameters after a fit by variational Bayes.

    Attributes:
        hyper: hyperparameters of ``q(θ)`` on the CPU, in the place of the parameters θ.
        lower_bound: evidence lower bound of the training data, in nats, for data in raw units.
    """

    hyper: Parameters
    lower_bound: float

    def arrays(self) -> dict[str, Any]:
        """Return the hyperparameters and the lower bound by name, in the form in which a file stores them."""
        return {**self.hyper.arrays(), "lower_bound": self.lower_bound}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Any], parameters: Parameters, family: ConjugateFamily
    ) -> VariationalPosterior:
        """Return the posterior that a file stores as ``arrays``.

        Args:
            arrays: what the method ``arrays`` returned.
            parameters: the fitted parameters, whose shapes the hyperparameters must have.
            family: conjugate family of the output parameters.

        Raises:
            ValueError: if names, shapes or values cannot be those of such a posterior.
        """
        bound, tables = arrays["lower_bound"], {name: t for name, t in arrays.items() if name != "lower_bound"}
        prior = family.prior(ConjugatePrior(), len(parameters.initial))
        shapes = {n: tuple(table.shape) for n, table in parameters.arrays().items() if n != "table_slopes"}
        shapes["table"] = tuple(prior.shape)
        if tables.keys() != shapes.keys() or not isinstance(bound, float):
            raise ValueError(f"a posterior has {', '.join(shapes)} and lower_bound; the file has {', '.join(arrays)}")
        for name, shape in shapes.items():
            table = array_of(tables, name, np.float64, shape)
            if not np.isfinite(table).all() or (name != "table" and (table < 0).any()):
                raise ValueError(f"{name} of the posterior should be finite, and concentrations not negative")
        return cls(Parameters.from_arrays(tables), bound)


def mean_parameters(hyper: Parameters, family: ConjugateFamily, start: Start, rows: RowsFamily) -> Parameters:
    """Return the mean of the posterior: parameters with mean probabilities, rates, means and precisions.

    Args:
        hyper: hyperparameters of the posterior, in the place of parameters.
        family: conjugate family of the output parameters.
        start: how the first state's distribution is determined; it is uniform unless this is ``"free"``.
        rows: conjugate family of the transitions.
    """
    return replace(rows.mean(hyper), initial=mean_initial(hyper.initial, start), table=family.mean(hyper.table))


def mean_initial(concentrations: Tensor, start: Start) -> Tensor:
    """Return the mean probabilities of the first state under a Dirichlet distribution with these ``concentrations
    (K,)``.

    They are uniform over the possible states unless ``start`` is ``"free"``.
    """
    return concentrations / concentrations.sum() if start == "free" else _uniform(concentrations)


def drawn_parameters(
    hyper: Parameters, family: ConjugateFamily, start: Start, rows: RowsFamily, generator: torch.Generator
) -> Parameters:
    """Return one random draw of the parameters of a hidden Markov model from the posterior.

    Args:
        hyper: hyperparameters of the posterior, in the place of parameters.
        family: conjugate family of the output parameters.
        start: how the first state's distribution is determined; only a ``"free"`` one is drawn.
        rows: conjugate family of the transitions.
        generator: random generator.
    """
    drawn = rows.draw(hyper, generator)
    initial = draw_dirichlet(hyper.initial, generator) if start == "free" else _uniform(hyper.initial)
    return replace(drawn, initial=initial, table=family.draw(hyper.table, generator))


def _uniform(concentrations: Tensor) -> Tensor:
    allowed = (concentrations > 0).double()
    return allowed / allowed.sum()
