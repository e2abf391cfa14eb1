"""Steps drawn from an HMM: the path of states first, then what they emit, many steps at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Draw
from seqmodels.inference.chains.compiled_draws import draw_states
from seqmodels.observations import Observation

FIRST_STEPS, MOST_STEPS = 32, 256  # drawn at once: twice as many each time, since sequences may end early
NUMBERS_AT_ONCE = 1 << 22  # of output parameters that are held at once


def drawn_steps(
    log_first: Tensor,
    transition: Tensor,
    final: Tensor | None,
    observation: Observation,
    table: Tensor,
    n_steps: int,
    generator: torch.Generator,
) -> Iterator[Draw]:
    """Draw the next ``n_steps`` steps of n sequences, on the CPU.

    Args:
        log_first: (n, K + 1) log-weights of the states of the next step, and of the end in its place.
        transition: (K, K).
        final: (K,) probability of the end after each state; None: sequences do not end.
        observation: one that does not look at the past.
        table: (K, P) its output parameters.
    """
    if bool(torch.isnan(log_first).any()):
        raise ValueError("a probability of the next state is not a number, so that no state can be drawn; fit again")
    n, peak = len(log_first), log_first.amax(-1, keepdim=True)
    is_impossible = torch.isneginf(peak[:, 0])
    first = torch.nan_to_num((log_first - peak).exp()).numpy()
    chain = transition.contiguous().numpy(), (transition.new_zeros(len(transition)) if final is None else final).numpy()
    states, size, most = np.full(n, -1), FIRST_STEPS, max(1, NUMBERS_AT_ONCE // max(1, n * table.shape[1]))
    while n_steps > 0:
        shape = min(size, most, n_steps), n
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
        drawn, ended = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        draw_states(first, *chain, states, uniform, drawn, ended)
        x = observation.sample(table[torch.from_numpy(drawn).flatten()], None, generator).unflatten(0, shape)
        for x_t, ended_t in zip(x.unbind(0), torch.from_numpy(ended).unbind(0), strict=True):
            yield Draw(x_t, None if final is None else ended_t, is_impossible)
        n_steps, size = n_steps - shape[0], min(2 * size, MOST_STEPS)
