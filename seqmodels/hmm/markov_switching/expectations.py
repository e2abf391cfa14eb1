"""The inference problem of packed sequences under a switching autoregression, and the E-step of EM.

The first p steps of a sequence are steps of its chain with densities that are the same in all states. So transitions
count from the second step on, and the first step's state has the distribution that the model gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.learning.first_state import Start, log_stationary
from seqmodels.hmm.learning.given_inputs import InputStatistics
from seqmodels.hmm.markov_switching.deviations import DeviationEmission
from seqmodels.hmm.parameters import Parameters
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
        log_b = torch.where(_possible(batch.states, k).unsqueeze(2), log_b, -torch.inf)
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


def _possible(states: Tensor, n_states: int) -> Tensor:
    """Return a mask of the possible states of each step, ``(N, K)``.

    ``states`` is such a mask already, or the known states ``(N,)``, -1 where unknown.
    """
    if states.dim() == 2:
        return states
    return (states[:, None] == torch.arange(n_states, device=states.device)) | (states[:, None] < 0)


@torch.no_grad()
def e_step(
    parameters: Parameters,
    emission: DeviationEmission,
    batches: Sequence[PackedBatch],
    dtype: torch.dtype,
    start: Start,
    refuse: Callable[[Sequence[int]], None],
) -> Expectations:
    """Return the log-probability and the expected counts, summed over all batches.

    Args:
        parameters: parameters of the model.
        emission: the emission, whose densities depend on the last p + 1 states.
        batches: the sequences of this process.
        dtype: precision of the densities.
        start: how the distribution of the first state is determined.
        refuse: is called with the positions of sequences of probability zero, and raises ``ValueError`` if there are
            any.
    """
    total: Expectations | None = None
    for batch in batches:
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
        counted = Expectations(
            float(posterior.log_prob.sum()),
            posterior.initial,
            posterior.transitions.sum(0),
            posterior.final,
            statistics,
            of_inputs,
        ).scaled(batch.weight)
        total = counted if total is None else total + counted
    assert total is not None, "there are sequences"
    return total
