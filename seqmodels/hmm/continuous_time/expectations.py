"""The E-step in continuous time: expected jumps between states, and expected times spent in them, over whole paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.learning.given_inputs import InputStatistics
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import distinct_gaps, expected_path
from seqmodels.inference.chains.forward_backward import forward_backward_pass


def expected_counts(
    parameters: Parameters,
    emission: Emission,
    batch: PackedBatch,
    dtype: torch.dtype,
    refuse: Callable[[Sequence[int]], None],
    columns: Sequence[int] = (),
) -> Expectations:
    """Return log p(x) and the expected counts of one batch of a jump process (the E-step), times the batch's weight.

    ``xi (K, K)`` of the result holds the expected number of jumps from each state to each other state and, on its
    diagonal, the expected time in each state. ``final`` is not used.

    Args:
        parameters: parameters with a generator.
        emission: the emission of the states.
        batch: some sequences.
        dtype: precision of the densities.
        refuse: function that is called with the numbers of sequences of probability zero, and raises ``ValueError`` if
            there are any.
        columns: columns of the inputs that rates depend on.
    """
    memo, statistics = None, tuple[Tensor, ...]()
    if parameters.table_slopes is None:
        densities, memo = emission.evaluate(parameters.table, batch.x, batch.past, dtype, batch.scratch)
    else:
        densities = batch.densities(emission, parameters, dtype)
    posterior = forward_backward_pass(batch.trellis(parameters, densities))
    refuse(batch.impossible(posterior.log_prob))
    if parameters.table_slopes is None:
        statistics = tuple(emission.statistics(parameters.table, batch.x, batch.past, posterior.gamma, memo))
    assert parameters.generator is not None
    assert posterior.transitions is not None
    assert batch.gaps is not None
    first = posterior.gamma[batch.segments.first]
    of_inputs = InputStatistics.of_batch(parameters, batch, posterior.gamma, first, None)
    slopes, k = parameters.transition_slopes, len(parameters.initial)
    distinct = distinct_gaps(parameters.generator, batch.gaps, slopes, batch.inputs, columns)
    transitions = posterior.transitions.new_zeros(len(distinct.lengths), k, k)
    transitions.index_add_(0, distinct.which, posterior.transitions)
    path = paths = expected_path(distinct.generator, distinct.lengths, transitions)
    if of_inputs is not None and distinct.inputs is not None:
        of_inputs, path = replace(of_inputs, path_inputs=distinct.inputs, paths=paths), paths.sum(0)
    log_prob = float(posterior.log_prob.sum())
    counted = Expectations(log_prob, posterior.initial, path, posterior.final, statistics, of_inputs)
    return counted.scaled(batch.weight)
