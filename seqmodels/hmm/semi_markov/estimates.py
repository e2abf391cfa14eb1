"""The parameters of emissions and durations that an HSMM estimates, and its differentiable log-likelihood.

The gradient of the log-likelihood is that of the expected log-likelihood of complete data, ``Σ counts log
probability``, with the counts of an E-step (Fisher's identity). Standard errors and profile likelihoods are computed
from it as for an HMM (``seqmodels.hmm.standard_errors``, ``seqmodels.hmm.profile_likelihood``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.estimates import Emitted, Estimate
from seqmodels.hmm.learning.constraints import Tying
from seqmodels.hmm.learning.gradient import log_densities
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.semi_markov.expectations import (
    SegmentConstraints,
    SegmentEmission,
    trellis_of_batch,
)
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.given_inputs import distinct_rows, log_durations, log_transitions
from seqmodels.inference.chains.log_weights import safe_log
from seqmodels.inference.chains.semi_markov import SemiMarkovPosterior, forward_backward_pass


class SegmentEmitted(Emitted):
    """Description of the emission and duration parameters of an HSMM, which says which of them have standard errors.

    They are held in tables ``(K, P + Q)``: a row has the P output parameters that the observation takes for a state,
    and Q parameters of its durations. States that share an emission, or durations, have one set of free numbers, that
    of the first such state.

    Args:
        inner: description of the parameters of the emission alone.
        emission: the emission with durations.
        constraints: states that share or keep their emission or durations.
    """

    def __init__(self, inner: Emitted, emission: SegmentEmission, constraints: SegmentConstraints) -> None:
        super().__init__(inner.observation, inner.size, inner.names, inner.least)
        self.inner = inner
        self.emission = emission
        self.constraints = constraints

    def is_free(self, table: Tensor) -> Tensor:
        emission, durations = self.emission.split(table)
        c = self.constraints
        of_emission = self.inner.is_free(emission) & _moves(c.emission, c.keeps_emission)[:, None]
        of_durations = self.emission.family.is_free(durations, self.least)
        return torch.cat([of_emission, of_durations & _moves(c.durations, c.keeps_durations)[:, None]], 1)

    def has_slope(self, table: Tensor) -> Tensor:
        (emission, durations), c = self.emission.split(table), self.constraints
        of_emission = self.inner.has_slope(emission) & _moves(c.emission, c.keeps_emission)[:, None]
        return torch.cat([of_emission, torch.zeros_like(durations, dtype=torch.bool)], 1)

    def expected(self, tables: Tensor) -> Tensor:
        n = tables.shape[-1] - self.emission.family.n_columns
        return torch.cat([self.inner.expected(tables[..., :n]), tables[..., n:]], -1)

    def table_of_expected(self, mean: Tensor) -> Tensor:
        emission, durations = self.emission.split(mean)
        return torch.cat([self.inner.table_of_expected(emission), durations], 1)

    def lengths(self, table: Tensor) -> Tensor:
        emission, durations = self.emission.split(table)
        return torch.cat([self.inner.lengths(emission), self.emission.family.lengths(durations)], 1)

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        emission, durations = self.emission.split(table)
        return {**self.inner.raw(emission, shift, scale), **self.emission.family.estimated(durations)}

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        emission, durations = self.emission.split(table)
        c, of_durations = self.constraints, self.emission.family.estimates(durations, self.least)
        for each in self.inner.estimates(emission):
            if not (c.keeps_emission.all() if each.state is None else c.keeps_emission[each.state]):
                yield each
        for each in of_durations:
            if not c.keeps_durations[each.state]:
                yield each


def _moves(tying: Tying, is_kept: Tensor) -> Tensor:
    """Return a mask ``(K,)`` that is True for states with free parameters of their own.

    These are the first states of each group of tied states, except those that EM leaves unchanged.

    Args:
        tying: the groups of states that share parameters.
        is_kept: True for states whose parameters EM leaves unchanged, ``(K,)``.
    """
    return tying.is_first & ~is_kept


def expected_log_prob(parameters: Parameters, emission: SegmentEmission, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """Return log p(x) of each sequence in nats, ``(n,)``, and the expected log-probability of complete data.

    Complete data are the steps with their states and segments; the expectation is over states and segments at these
    parameters. It is a differentiable scalar, and its gradient is that of the sum of log p(x) (Fisher's identity).

    Args:
        parameters: parameters of the HSMM.
        emission: the emission with durations.
        batch: n sequences.
    """
    of_emission, of_durations = emission.split(parameters.table)
    if parameters.table_slopes is None:
        log_b = log_densities(emission.inner, of_emission, batch.x, batch.past)
    else:
        log_b = batch.log_densities_given_inputs(emission, parameters)
    fixed = parameters.detached()
    trellis = trellis_of_batch(fixed, emission, batch, LogDensities(log_b.detach()))
    posterior = forward_backward_pass(trellis)
    gamma = batch.segments.packing.pack(trellis.packing.unpack(posterior.gamma))
    terms = [(gamma * torch.where(gamma > 0, log_b, 0.0)).sum()]
    first, transition = posterior.gamma[trellis.packing.rank], parameters.transition
    if parameters.initial_slopes is None:
        terms.append(expected_log(posterior.initial, parameters.initial))
    else:
        terms.append(expected_log(first, batch.initial(parameters)))
    if parameters.transition_slopes is not None:
        assert batch.inputs is not None
        transition = log_transitions(transition, parameters.transition_slopes, batch.inputs).exp()
    terms.append(expected_log(posterior.xi, transition))
    if parameters.final is not None:
        terms.append(expected_log(posterior.final, parameters.final))
    terms.append(_expected_durations(posterior, emission, of_durations, parameters.duration_slopes, batch.inputs))
    return posterior.log_prob, torch.stack(terms).sum()


def _expected_durations(
    posterior: SemiMarkovPosterior,
    emission: SegmentEmission,
    table: Tensor,
    slopes: Tensor | None,
    inputs: Tensor | None,
) -> Tensor:
    """Return the expected log-probability of the durations of all segments in nats, a differentiable scalar.

    Args:
        posterior: expected numbers of the segments.
        emission: the emission with durations.
        table: parameters of durations, ``(K, Q)``.
        slopes: their slopes, ``(K, U)``; None if they do not depend on inputs.
        inputs: inputs of the N packed steps, ``(N, U)``; None if nothing depends on inputs.
    """
    pmf = emission.family.pmf(table)
    if slopes is not None:
        assert inputs is not None
        log_pmf = safe_log(pmf)
        total = (posterior.durations * torch.where(posterior.durations > 0, log_pmf, 0.0)).sum()
        at, number = distinct_rows(inputs)
        n, steps = (
            each.new_zeros(len(at), each.shape[1]).index_add_(0, number, each)
            for each in (posterior.segments, posterior.steps)
        )
        tilts = inputs[at].to(slopes) @ slopes.T  # (R, K)
        later = torch.arange(pmf.shape[1], dtype=pmf.dtype, device=pmf.device)
        log_z = torch.logsumexp(log_pmf + tilts.unsqueeze(-1) * later, -1)
        total = total + (steps * tilts - n * log_z).sum()
        if emission.left_censored:
            first = log_durations(log_pmf, slopes, inputs[: len(posterior.first_durations)]).exp()
            total = total + expected_log(posterior.first_durations, _of_steps_left(first))
        return total
    total = expected_log(posterior.durations, pmf)
    if emission.left_censored:
        total = total + expected_log(posterior.first_durations, _of_steps_left(pmf))
    return total


def _of_steps_left(pmf: Tensor) -> Tensor:
    """Return the probabilities ``P(d >= r) / E[d]`` that r steps of a first segment are left, in the shape of ``pmf``.

    ``pmf`` has the probabilities of durations of 1 to D steps, ``(..., D)``.
    """
    at_least = pmf.flip(-1).cumsum(-1).flip(-1)
    return at_least / at_least.sum(-1, keepdim=True)


def expected_log(counts: Tensor, probabilities: Tensor) -> Tensor:
    """Return ``Σ counts log probabilities`` in nats as a scalar, for two arrays of one shape or that broadcast.

    Terms whose count or probability is zero add nothing.
    """
    is_met = (counts > 0) & (probabilities.detach() > 0)
    return (counts * torch.where(is_met, probabilities, 1.0).log()).sum()
