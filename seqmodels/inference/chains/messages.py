"""The posterior of the states as a Markov chain of its own, by backward messages in logarithms.

The messages ``m_t(j) ∝ p(x_t .. x_T | z_t = j)``, ``m_t(j) = b_j(x_t) Σ_k a_jk m_{t+1}(k)``, are the forward recursion,
over reversed time, of the chain whose transitions are ``a`` transposed. Given x the states are again a chain,
``p(z_t = j | z_{t-1} = i, x) ∝ a_ij m_t(j)``. If only sets that contain ``z_1 .. z_{t-1}`` are known, the filtered
probabilities of ``z_{t-1}`` take the place of the state i.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.log_space import LogProduct, log_alpha_and_steps
from seqmodels.inference.chains.log_weights import finite, relative_to_largest
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis


@torch.no_grad()
def log_messages(transition: Tensor, log_b: Sequence[Tensor], final: Tensor | None = None) -> list[Tensor]:
    """Return backward messages, the log-probabilities of the rest of a sequence given each state, ``(T, K)`` float64.

    There is one array for each sequence, in nats up to a constant at each step. A message at step t is log p(x_t .. x_T
    | z_t = j). States that are nearly impossible keep their digits. A step from which on x is impossible has -inf in
    all states.

    Args:
        transition: transition probabilities, ``(K, K)``.
        log_b: log-densities of each sequence, ``(T, K)``.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
    """
    last = transition.new_ones(len(transition)) if final is None else final
    reversed_messages = _forward(last, transition.T.contiguous(), [each.flip(0) for each in log_b])
    return [each.flip(0) for each in reversed_messages]


@torch.no_grad()
def log_steps(
    initial: Tensor, transition: Tensor, log_b: Sequence[Tensor], messages: Sequence[Tensor], allowed: Sequence[Tensor]
) -> list[Tensor]:
    """Return the log-probability that each state of a sequence is an allowed one, ``(T,)`` for each sequence.

    It is log p(z_t is allowed | z_1 .. z_{t-1} were allowed, x). The sum over t is log p(all states are allowed | x).
    Steps are -inf from the first at which no state is allowed.

    Args:
        initial: distribution of the first state, ``(K,)``.
        transition: transition probabilities, ``(K, K)``.
        log_b: log-densities of each sequence, ``(T, K)``.
        messages: results of ``log_messages`` for ``log_b``.
        allowed: allowed states at each step of each sequence, ``(T, K)`` bool.
    """
    restricted = [each.masked_fill(~mask, -torch.inf) for each, mask in zip(log_b, allowed, strict=True)]
    steps = []
    for log_alpha, message, mask in zip(_forward(initial, transition, restricted), messages, allowed, strict=True):
        first = log_next(initial, transition, message[:1], None)
        rest = log_next(initial, transition, message[1:], log_alpha[:-1])
        steps.append(torch.cat([first, rest]).masked_fill(~mask, -torch.inf).logsumexp(-1))
    return steps


def log_next(initial: Tensor, transition: Tensor, messages: Tensor, log_alpha: Tensor | None) -> Tensor:
    """Return the log-probabilities of the next state z_t given all of x, for n sequences, ``(n, K)``.

    Args:
        initial: distribution of the first state, ``(K,)``. Rows of the result are -inf where no state is possible.
        transition: transition probabilities, ``(K, K)``.
        messages: results of ``log_messages`` at step t, ``(n, K)``.
        log_alpha: log-probabilities of the states at t - 1 given x up to there and what is known of them, ``(n, K)``;
            None if t is the first step.
    """
    return _normalised(_log_predicted(initial, transition, log_alpha) + messages)


def log_update(initial: Tensor, transition: Tensor, log_b: Tensor, log_alpha: Tensor | None) -> Tensor:
    """Return the log-probabilities of the states given one more step, ``(n, K)``, for n sequences.

    Args:
        initial: distribution of the first state, ``(K,)``.
        transition: transition probabilities, ``(K, K)``.
        log_b: log-densities of the step, ``(n, K)``.
        log_alpha: log-probabilities of the states given the steps before, ``(n, K)``; None at the first step.
    """
    return _normalised(_log_predicted(initial, transition, log_alpha) + relative_to_largest(log_b)[0])


def _log_predicted(initial: Tensor, transition: Tensor, log_alpha: Tensor | None) -> Tensor:
    """Return the predicted log-probabilities of the next state, ``(n, K)``, or of the first state, ``(K,)``.

    ``log_alpha (n, K)`` are those of the states before; None at the first step.
    """
    return initial.log() if log_alpha is None else LogProduct(transition)(log_alpha)


def _normalised(log_weights: Tensor) -> Tensor:
    return log_weights - finite(torch.logsumexp(log_weights, -1, keepdim=True))


def _forward(initial: Tensor, transition: Tensor, log_b: Sequence[Tensor]) -> list[Tensor]:
    """Return the log-probabilities of the states given the steps so far, ``(T, K)`` for each sequence."""
    segments = Segments.whole([len(each) for each in log_b], log_b[0].device)
    packed = LogDensities(segments.packing.pack(torch.cat(list(log_b))))
    return segments.split(log_alpha_and_steps(Trellis.of(initial, transition, packed, segments))[0])
