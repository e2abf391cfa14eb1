"""The log-likelihood of a chain as one differentiable operation, whose backward pass is the E-step (Fisher's identity).

``∂ log p / ∂ log b_t(k) = gamma_t(k)``, ``∂ log p / ∂ a_ij = Σ_t xi_t(i, j) / a_ij``,
``∂ log p / ∂ π_k = gamma_1(k) / π_k``, and likewise for the probabilities of the end. Where a probability is zero its
derivative is defined as zero, so that structural zeros stay zero. If transitions differ from step to step,
``∂ log p / ∂ log a_t(i, j) = xi_t(i, j)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Lengths, Trellis, segments_of_concatenated


def log_prob(
    initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None, *, lengths: Lengths | None = None
) -> Tensor:
    """Return log p(x) of each of n sequences in nats, ``(n,)`` float64, as a tensor that is differentiable once.

    The probability of the end of a sequence is included if ``final`` is given. A sequence of probability zero has -inf
    and gradients of zero. The forward and backward pass together cost one E-step, and a second one if the incoming
    gradients differ from sequence to sequence.

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or ``(n, K)`` with one row for each
            sequence.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``, the same at all times; with ``final``,
            ``transition.sum(1) + final == 1``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``: the frames of all sequences, one sequence after the
            other. float32 or float64, which sets the precision; its device is the device of the computation.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        lengths: number of frames of each sequence, ``(n,)``; None if all N frames belong to one sequence.

    Raises:
        ValueError: If a shape does not fit, or ``log_b`` is neither float32 nor float64.

    >>> log_b = torch.tensor([[0.5, 0.25], [0.5, 0.25]], dtype=torch.float64).log().requires_grad_()
    >>> transition = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    >>> log_p = log_prob(torch.tensor([1.0, 0.0]), transition, log_b)
    >>> log_p.sum().backward()
    >>> log_b.grad  # gamma
    tensor([[1.0000, 0.0000],
            [0.6667, 0.3333]], dtype=torch.float64)
    """
    segments = segments_of_concatenated(transition, log_b, lengths)
    return log_prob_of_segments(initial, transition, segments.packing.pack(log_b), segments, final)


def log_prob_of_segments(
    initial: Tensor,
    transition: Tensor,
    log_b: Tensor,
    segments: Segments,
    final: Tensor | None = None,
    log_transitions: Tensor | None = None,
) -> Tensor:
    """Return log p(x) of each sequence in nats, ``(n,)``, differentiable once, from densities packed in segments.

    Args:
        initial: distribution of the first state over K states, ``(K,)``, or ``(n, K)`` with one row for each sequence.
        transition: transition probabilities, ``(K, K)``.
        log_b: log-densities in nats, ``(N, K)``, in the order of the rows of ``segments.packing``.
        segments: how the N rows make up the n sequences, which may be cut into segments.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        log_transitions: logarithms of the transitions into each row, ``(N, K, K)``, which replace ``transition``; only
            for sequences that are not cut. None if ``transition`` holds at all steps.
    """
    operation: Callable[..., Tensor] = _LogProb.apply
    return operation(initial, transition, log_b, final, log_transitions, segments)


class _LogProb(Function):
    @staticmethod
    def forward(
        ctx: Any,
        initial: Tensor,
        transition: Tensor,
        log_b: Tensor,
        final: Tensor | None,
        log_transitions: Tensor | None,
        segments: Segments,
    ) -> Tensor:
        trellis = Trellis.of(initial, transition, LogDensities(log_b.detach()), segments, final)
        if log_transitions is not None:
            trellis = replace(trellis, log_transitions=log_transitions.detach())
        if not any(ctx.needs_input_grad):
            filtered = forward_pass(trellis)
            assert filtered.ends is not None
            return segments.totals(filtered.steps) + filtered.ends
        posterior = forward_backward_pass(trellis)
        expected = (posterior.gamma, posterior.xi, posterior.transitions)
        ctx.save_for_backward(initial, transition, log_b, final, *expected)
        ctx.segments = segments
        return posterior.log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        initial, transition, log_b, final, gamma, xi, transitions = ctx.saved_tensors
        segments = ctx.segments
        by_initial = by_final = by_transition = by_log_transitions = None
        if transitions is not None:
            by_log_transitions = transitions * gradient.to(transitions)[segments.sequence, None, None]
        elif (gradient == gradient[0]).all():
            by_transition = _over(gradient[0] * xi, transition)
        else:
            trellis = Trellis.of(initial, transition, LogDensities(log_b), segments, final)
            by_transition = _over(forward_backward_pass(replace(trellis, weights=gradient)).xi, transition)
        first, last = (gamma[rows].double() * gradient[:, None] for rows in (segments.first, segments.last))
        if ctx.needs_input_grad[0]:
            by_initial = _over(first.sum(0) if initial.ndim == 1 else first, initial)
        if ctx.needs_input_grad[3]:
            by_final = _over(last.sum(0), final)
        by_log_b = gamma * gradient.to(gamma.dtype)[segments.sequence, None]
        return by_initial, by_transition, by_log_b, by_final, by_log_transitions, None


def _over(counts: Tensor, probabilities: Tensor) -> Tensor:
    """Return expected counts divided by probabilities, elementwise, with 0 where a probability is 0."""
    p = probabilities.to(counts.device, counts.dtype)
    return torch.where(p > 0, counts / torch.where(p > 0, p, 1.0), 0.0).to(probabilities)
