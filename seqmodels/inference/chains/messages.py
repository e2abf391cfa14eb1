"""The states given x as a chain of their own, by backward messages in logarithms.

The messages ``m_t(j) ∝ p(x_t .. x_T | z_t = j)``, ``m_t(j) = b_j(x_t) Σ_k a_jk m_{t+1}(k)``, are the forward recursion,
over reversed time, of the chain whose transitions are ``a`` transposed. Given x the states are again a chain,
``p(z_t = j | z_{t-1} = i, x) ∝ a_ij m_t(j)``; where of ``z_1 .. z_{t-1}`` only sets are known, that they are in, alpha
of ``z_{t-1}`` takes the place of i.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.log_space import LogProduct, log_alpha_and_steps, relative_to_largest
from seqmodels.inference.chains.segments import Segments
from seqmodels.inference.chains.trellis import Trellis


@torch.no_grad()
def log_messages(transition: Tensor, log_b: Sequence[Tensor], final: Tensor | None = None) -> list[Tensor]:
    """Messages ``(T, K)`` of each sequence, float64 nats up to a constant a step, from its log-densities ``(T, K)``.

    A state that is all but impossible keeps its figure; -inf in all states where x is impossible from here on.
    """
    last = transition.new_ones(len(transition)) if final is None else final
    reversed_messages = _forward(last, transition.T.contiguous(), [each.flip(0) for each in log_b])
    return [each.flip(0) for each in reversed_messages]


@torch.no_grad()
def log_steps(
    initial: Tensor, transition: Tensor, log_b: Sequence[Tensor], messages: Sequence[Tensor], allowed: Sequence[Tensor]
) -> list[Tensor]:
    """``(T,)`` log p(z_t is allowed | z_1 .. z_{t-1} were, x), summing to log p(all were | x); -inf once none is.

    Args:
        log_b: of each sequence the log-densities ``(T, K)``.
        messages: what ``log_messages`` made of them.
        allowed: ``(T, K)`` bool, which states are.
    """
    restricted = [each.masked_fill(~mask, -torch.inf) for each, mask in zip(log_b, allowed, strict=True)]
    steps = []
    for log_alpha, message, mask in zip(_forward(initial, transition, restricted), messages, allowed, strict=True):
        first = log_next(initial, transition, message[:1], None)
        rest = log_next(initial, transition, message[1:], log_alpha[:-1])
        steps.append(torch.cat([first, rest]).masked_fill(~mask, -torch.inf).logsumexp(-1))
    return steps


def log_next(initial: Tensor, transition: Tensor, messages: Tensor, log_alpha: Tensor | None) -> Tensor:
    """``(n, K)`` log p(z_t = j | what is known of z_{t-1}, x) of messages ``(n, K)``; rows of -inf: impossible.

    ``log_alpha (n, K)``: log-probabilities of the states at t - 1, given x up to there; None: t is the first step.
    """
    return _normalised(_log_predicted(initial, transition, log_alpha) + messages)


def log_update(initial: Tensor, transition: Tensor, log_b: Tensor, log_alpha: Tensor | None) -> Tensor:
    """``(n, K)`` log alpha after a step of log-densities ``(n, K)``, from that of the step before, None at first."""
    return _normalised(_log_predicted(initial, transition, log_alpha) + relative_to_largest(log_b)[0])


def _log_predicted(initial: Tensor, transition: Tensor, log_alpha: Tensor | None) -> Tensor:
    """``(n, K)``, or ``(K,)`` at the first step: log p(z_t | what is known of z_{t-1})."""
    return initial.log() if log_alpha is None else LogProduct(transition)(log_alpha)


def _normalised(log_weights: Tensor) -> Tensor:
    total = torch.logsumexp(log_weights, -1, keepdim=True)
    return log_weights - torch.where(total == -torch.inf, 0.0, total)


def _forward(initial: Tensor, transition: Tensor, log_b: Sequence[Tensor]) -> list[Tensor]:
    """``(T, K)`` of each sequence: log alpha."""
    segments = Segments.whole([len(each) for each in log_b], log_b[0].device)
    packed = LogDensities(segments.packing.pack(torch.cat(list(log_b))))
    return segments.split(log_alpha_and_steps(Trellis.of(initial, transition, packed, segments))[0])
