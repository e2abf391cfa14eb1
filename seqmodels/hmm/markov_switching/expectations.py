"""The inference problem of packed sequences under a switching autoregression, and the E-step of EM.

The first p steps of a sequence are steps of its chain with densities that are the same in all states. So transitions
count from the second step on, and the first step's state has the distribution that the model gives.

Where means depend on inputs, all of this works on the parameters of ``sloped_objective.joined``, whose table has the
slopes of the means as well.
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
from seqmodels.inference.chains.densities import possible_states
from seqmodels.inference.chains.given_inputs import log_initial, log_transitions
from seqmodels.inference.chains.lagged_states import LaggedStatesTrellis, forward_backward_pass
from seqmodels.inference.chains.log_weights import safe_log
from seqmodels.inference.chains.packing import Packing


def inputs_of_last_steps(inputs: Tensor, order: int, packing: Packing) -> Tensor:
    """Return the inputs of each step and of the p steps before it, the newest first, ``(N, p + 1, U)``.

    They are zero before the first step of a sequence.

    Args:
        inputs: inputs of each of N packed steps, ``(N, U)``.
        order: number of steps before it, p.
        packing: which step of which sequence each of the N rows is.
    """
    running, n = torch.tensor(packing.batch_sizes), packing.n_sequences
    before = torch.arange(n, len(inputs)) - torch.repeat_interleave(running[:-1], running[1:])
    steps = [inputs]
    for _ in range(order):
        steps.append(torch.cat([torch.zeros_like(inputs[:n]), steps[-1][before.to(inputs.device)]]))
    return torch.stack(steps, 1)


def trellis_of_batch(
    parameters: Parameters,
    emission: DeviationEmission,
    batch: PackedBatch,
    dtype: torch.dtype,
    start: Start,
    inputs: Tensor | None = None,
) -> LaggedStatesTrellis:
    """Return the parameters and densities of a batch, from which forward, backward and Viterbi passes run.

    Where the state of a step is known, all others have density zero.

    Args:
        parameters: parameters of the model; with ``inputs``, the table has slopes of the means.
        emission: the emission, whose densities depend on the last p + 1 states.
        batch: some sequences.
        dtype: precision of the densities.
        start: how the distribution of the first state is determined.
        inputs: inputs of the last p + 1 steps on which means depend, ``(N, p + 1, U)``; None if they depend on none.
    """
    k = len(parameters.initial)
    log_b = emission.log_prob(parameters.table, batch.x, batch.past, dtype, inputs).double()
    log_b = log_b.unflatten(1, (k, -1))  # (N, K, M)
    if batch.states is not None:
        log_b = torch.where(possible_states(batch.states, k).unsqueeze(2), log_b, -torch.inf)
    packing = batch.segments.packing
    log_a = safe_log(parameters.transition)
    if parameters.transition_slopes is not None:
        assert batch.inputs is not None
        log_a = log_transitions(parameters.transition, parameters.transition_slopes, batch.inputs)
    n = packing.n_sequences
    log_first = safe_log(parameters.initial).expand(n, -1)
    if parameters.transition_slopes is not None and start == "stationary":
        log_first = log_stationary(log_a[:n])
    if parameters.initial_slopes is not None:
        assert batch.inputs is not None
        log_first = log_initial(parameters.initial, parameters.initial_slopes, batch.inputs[:n])
    log_final = None if parameters.final is None else safe_log(parameters.final)
    return LaggedStatesTrellis(log_first, log_a, log_final, log_b, packing)


def expected_counts(
    parameters: Parameters,
    emission: DeviationEmission,
    batch: PackedBatch,
    dtype: torch.dtype,
    start: Start,
    inputs: Tensor | None,
    refuse: Callable[[Sequence[int]], None],
) -> Expectations:
    """Return log p(x) and the expected counts of one batch (the E-step), times the batch's weight.

    Args:
        parameters: parameters of the model.
        emission: the emission, whose densities depend on the last p + 1 states.
        batch: some sequences.
        dtype: precision of the densities.
        start: how the distribution of the first state is determined.
        refuse: function that is called with the numbers of sequences of probability zero, and raises ``ValueError`` if
            there are any.
        inputs: inputs of the last p + 1 steps on which means depend, ``(N, p + 1, U)``; None if they depend on none.
    """
    posterior = forward_backward_pass(trellis_of_batch(parameters, emission, batch, dtype, start, inputs))
    refuse(batch.impossible(posterior.log_prob))
    gamma = posterior.gamma.flatten(1)
    statistics = emission.statistics(parameters.table, batch.x, batch.past, gamma, inputs=inputs)
    of_inputs = None
    has_slopes = parameters.transition_slopes is not None or parameters.initial_slopes is not None
    if has_slopes and batch.inputs is not None:
        of_inputs = InputStatistics(
            batch.inputs,
            posterior.transitions,
            first_inputs=batch.first_inputs,
            first=posterior.gamma[batch.segments.first].sum(2),
        )
    log_prob, xi = float(posterior.log_prob.sum()), posterior.transitions.sum(0)
    counted = Expectations(log_prob, posterior.initial, xi, posterior.final, statistics, of_inputs)
    return counted.scaled(batch.weight)
