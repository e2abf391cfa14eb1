"""What is to come, seen from each state: ``m_t(j) ∝ p(x_t .. x_T | z_t = j)``, by the forward pass over time turned around.

``m_t(j) = b_j(x_t) Σ_k a_jk m_{t+1}(k)`` is the forward recursion of the chain whose transitions are ``a`` transposed. Given x the
states are again a chain, ``p(z_t = j | z_{t-1} = i, x) ∝ a_ij m_t(j)``: what came before ``z_{t-1}`` tells nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqmodels.hmm import log_semiring
from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import LogDensities
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.trellis import Trellis


@torch.no_grad()
def log_messages(parameters: Parameters, log_b: Sequence[Tensor]) -> list[Tensor]:
    """The messages of each sequence, ``(T, K)`` float64 nats up to a constant a step, from its log-densities ``(T, K)``.

    In logarithms, so that a state that is all but impossible keeps its figure; -inf everywhere where x is impossible from here on.
    """
    lengths = [len(each) for each in log_b]
    cutting = Cutting.whole(lengths, log_b[0].device)
    backwards = cutting.packing.pack(torch.cat([each.flip(0) for each in log_b]))
    last = torch.ones_like(parameters.initial) if parameters.final is None else parameters.final
    trellis = Trellis.of(last, parameters.transition.T.contiguous(), LogDensities(backwards), cutting)
    return [each.flip(0) for each in cutting.split(log_semiring.log_beliefs(trellis))]


def log_next(parameters: Parameters, messages: Tensor, before: Tensor | None) -> Tensor:
    """``(n, K)`` log p(z_t = j | z_{t-1}, x) of messages ``(n, K)``; -inf everywhere where nothing is possible.

    ``before (n,)`` are the states at t - 1; None: t is the first step.
    """
    reached = parameters.initial.log() if before is None else parameters.transition.log()[before]
    joint = reached + messages
    total = torch.logsumexp(joint, -1, keepdim=True)
    return joint - torch.where(total == -torch.inf, 0.0, total)


def log_path(parameters: Parameters, messages: Tensor, path: Tensor) -> Tensor:
    """``(T,)`` log p(z_t | z_{t-1}, x) of states ``path (T,)``, whose sum is log p(z | x); -inf from the first that cannot be."""
    first = log_next(parameters, messages[:1], None)
    each = torch.cat([first, log_next(parameters, messages[1:], path[:-1])])
    steps = each.gather(1, path[:, None])[:, 0]
    return torch.where(torch.isneginf(steps).cumsum(0) > 0, -torch.inf, steps)
