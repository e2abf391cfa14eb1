"""The inference problem of packed sequences under a switching autoregression, and the E-step of EM.

The first p steps of a sequence are steps of its chain with densities that are the same in all states. So transitions
count from the second step on, and the first step's state has the distribution that the model gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.learning.first_state import Start, log_stationary
from seqmodels.hmm.learning.given_inputs import InputStatistics
from seqmodels.hmm.markov_switching.deviations import DeviationEmission
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.densities import possible_states
from seqmodels.inference.chains.last_states import LastStatesTrellis, forward_backward_pass
from seqmodels.inference.chains.time_varying import log_transitions


def trellis_of_batch(
    parameters: Parameters, emission: DeviationEmission, batch: PackedBatch, dtype: torch.dtype, start: Start
) -> LastStatesTrellis:
    """Return the inference problem of a batch; where the state of a step is known, all others have density zero."""
    k = len(parameters.initial)
    log_b = emission.log_prob(parameters.table, batch.x, batch.past, dtype).double()
    log_b = log_b.unflatten(1, (k, -1))  # (N, K, M)
    if batch.states is not None:
        log_b = torch.where(possible_states(batch.states, k).unsqueeze(2), log_b, -torch.inf)
    packing = batch.segments.packing
    log_a = parameters.transition.log()
    if parameters.transition_slopes is not None:
        assert batch.inputs is not None
        log_a = log_transitions(parameters.transition, parameters.transition_slopes, batch.inputs)
    log_initial = parameters.initial.log().expand(packing.n_sequences, -1)
    if parameters.transition_slopes is not None and start == "stationary":
        log_initial = log_stationary(log_a[: packing.n_sequences])
    log_final = None if parameters.final is None else parameters.final.log()
    return LastStatesTrellis(log_initial, log_a, log_final, log_b, packing)


def expected_counts(
    parameters: Parameters,
    emission: DeviationEmission,
    batch: PackedBatch,
    dtype: torch.dtype,
    start: Start,
    refuse: Callable[[Sequence[int]], None],
) -> Expectations:
    """Return the log-probability and the expected counts of one batch, times its weight.

    Args:
        parameters: parameters of the model.
        emission: the emission, whose densities depend on the last p + 1 states.
        batch: some sequences.
        dtype: precision of the densities.
        start: how the distribution of the first state is determined.
        refuse: is called with the positions of sequences of probability zero, and raises ``ValueError`` if there are
            any.
    """
    posterior = forward_backward_pass(trellis_of_batch(parameters, emission, batch, dtype, start))
    refuse(batch.impossible(posterior.log_prob))
    statistics = emission.statistics(parameters.table, batch.x, batch.past, posterior.gamma.flatten(1))
    of_inputs = None
    if parameters.transition_slopes is not None and batch.inputs is not None:
        of_inputs = InputStatistics(
            batch.inputs,
            posterior.transitions,
            first_inputs=batch.first_inputs,
            first=posterior.gamma[batch.segments.first].sum(2),
        )
    log_prob, xi = float(posterior.log_prob.sum()), posterior.transitions.sum(0)
    counted = Expectations(log_prob, posterior.initial, xi, posterior.final, statistics, of_inputs)
    return counted.scaled(batch.weight)
