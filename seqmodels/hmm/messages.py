"""What is to come, seen from each state: ``m_t(j) ∝ p(x_t .. x_T | z_t = j)``, by the forward pass over time turned around.

``m_t(j) = b_j(x_t) Σ_k a_jk m_{t+1}(k)`` is the forward recursion of the chain whose transitions are ``a`` transposed. Given x the
states are again a chain, ``p(z_t = j | z_{t-1} = i, x) ∝ a_ij m_t(j)``; where of ``z_1 .. z_{t-1}`` only sets are known, that they are
in, the belief about ``z_{t-1}`` takes the place of i.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqmodels.hmm import log_semiring
from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import LogDensities
from seqmodels.hmm.log_product import LogProduct
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.trellis import Trellis


@torch.no_grad()
def log_messages(parameters: Parameters, log_b: Sequence[Tensor]) -> list[Tensor]:
    """The messages of each sequence, ``(T, K)`` float64 nats up to a constant a step, from its log-densities ``(T, K)``.

    In logarithms, so that a state that is all but impossible keeps its figure; -inf everywhere where x is impossible from here on.
    """
    last = torch.ones_like(parameters.initial) if parameters.final is None else parameters.final
    found = _forward(last, parameters.transition.T.contiguous(), [each.flip(0) for each in log_b])
    return [each.flip(0) for each in found]


@torch.no_grad()
def log_steps(
    parameters: Parameters, log_b: Sequence[Tensor], messages: Sequence[Tensor], possible: Sequence[Tensor]
) -> list[Tensor]:
    """``(T,)`` log p(z_t is possible | z_1 .. z_{t-1} were, x), whose sum is log p(all were | x); -inf from the first that cannot be.

    Args:
        log_b: of each sequence the log-densities ``(T, K)``.
        messages: what ``log_messages`` made of them.
        possible: ``(T, K)`` bool, which states are.
    """
    seen = [each.masked_fill(~mask, -torch.inf) for each, mask in zip(log_b, possible, strict=True)]
    beliefs = _forward(parameters.initial, parameters.transition, seen)
    steps = []
    for belief, ahead, mask in zip(beliefs, messages, possible, strict=True):
        first = log_next(parameters, ahead[:1], None)
        each = torch.cat([first, log_next(parameters, ahead[1:], belief[:-1])])
        steps.append(each.masked_fill(~mask, -torch.inf).logsumexp(-1))
    return steps


def log_next(parameters: Parameters, messages: Tensor, belief: Tensor | None) -> Tensor:
    """``(n, K)`` log p(z_t = j | what is known of z_{t-1}, x) of messages ``(n, K)``; -inf everywhere where nothing is possible.

    ``belief (n, K)``: log-probabilities of the states at t - 1, given x up to there; None: t is the first step.
    """
    return _normalised(log_reached(parameters, belief) + messages)


def log_belief(parameters: Parameters, log_b: Tensor, belief: Tensor | None) -> Tensor:
    """``(n, K)`` the belief after a step of log-densities ``(n, K)``, from the one before it."""
    return _normalised(log_reached(parameters, belief) + log_b)


def log_reached(parameters: Parameters, belief: Tensor | None) -> Tensor:
    """``(n, K)``, or ``(K,)`` at the first step: where a belief leads."""
    if belief is None:
        return parameters.initial.log()
    return LogProduct(parameters.transition)(belief)


def _normalised(joint: Tensor) -> Tensor:
    total = torch.logsumexp(joint, -1, keepdim=True)
    return joint - torch.where(total == -torch.inf, 0.0, total)


def _forward(initial: Tensor, transition: Tensor, log_b: Sequence[Tensor]) -> list[Tensor]:
    """``(T, K)`` of each sequence: log of the forward pass, up to a constant a step."""
    cutting = Cutting.whole([len(each) for each in log_b], log_b[0].device)
    packed = LogDensities(cutting.packing.pack(torch.cat(list(log_b))))
    return cutting.split(log_semiring.log_beliefs(Trellis.of(initial, transition, packed, cutting)))
