"""The E-step of EM: expected jumps between states and times spent in them, of whole paths in continuous time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import expected_path
from seqmodels.inference.chains.forward_backward import forward_backward_pass


@torch.no_grad()
def e_step(
    parameters: Parameters,
    emission: Emission,
    batches: Sequence[PackedBatch],
    dtype: torch.dtype,
    refuse: Callable[[Sequence[int]], None],
) -> Expectations:
    """Return log-probability and expectations, summed over all batches; ``refuse`` is told what is impossible.

    ``xi`` has the expected number of jumps from each state to each other one, and on its diagonal the time that is
    spent in each; ``final`` is not read.

    Raises:
        ValueError: a sequence of probability zero, named by its place among all of them.
    """
    total: Expectations | None = None
    for batch in batches:
        densities, memo = emission.evaluate(parameters.table, batch.x, batch.past, dtype, batch.scratch)
        posterior = forward_backward_pass(batch.trellis(parameters, densities))
        refuse(batch.impossible(posterior.log_prob))
        statistics = emission.statistics(parameters.table, batch.x, batch.past, posterior.gamma, memo)
        assert parameters.generator is not None
        assert posterior.transitions is not None
        assert batch.inputs is not None
        gaps, which = torch.unique(batch.inputs[:, 0], return_inverse=True)
        k = len(parameters.initial)
        transitions = posterior.transitions.new_zeros(len(gaps), k, k).index_add_(0, which, posterior.transitions)
        path = expected_path(parameters.generator, gaps, transitions)
        counted = Expectations(
            float(posterior.log_prob.sum()), posterior.initial, path, posterior.final, tuple(statistics)
        ).scaled(batch.weight)
        total = counted if total is None else total + counted
    assert total is not None, "there are sequences"
    return total
