"""``log p(x)`` of a chain as one differentiable operation, whose backward pass is the E-step (Fisher's identity).

``∂ log p / ∂ log b_t(k) = gamma_t(k)``, ``∂ log p / ∂ a_ij = Σ_t xi_t(i, j) / a_ij``, ``∂ log p / ∂ π_k = gamma_1(k) / π_k``, and the same
for ends. Where a probability is zero the derivative is taken to be zero: structural zeros stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import LogDensities
from seqmodels.hmm.forward_backward import forward_of, posterior_of
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.trellis import Trellis


def chain_log_prob(
    initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None = None
) -> Tensor:
    """(n,) float64 log p(x) of each sequence in nats, the end included where there is a ``final``; once differentiable.

    A sequence of probability zero has -inf and gradients of zero. Forward and backward together cost one E-step, and a second
    one if the gradients that come in differ from sequence to sequence.

    Args:
        initial: (K,) p(z_1), or (n, K), one row a sequence in the caller's order.
        transition: (K, K) p(z_t+1 | z_t), the same at all times; with ``final``, ``transition.sum(1) + final == 1``.
        log_b: (N, K) packed log p(x_t | z_t) in nats, float32 or float64; sets precision and device.
        packing: which rows belong to which sequence.
        final: (K,) p(end | z_T), where the end is an event.

    Raises:
        ValueError: shapes or precision that do not fit.

    >>> log_b = torch.tensor([[0.5, 0.25], [0.5, 0.25]], dtype=torch.float64).log().requires_grad_()
    >>> step = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    >>> log_p = chain_log_prob(torch.tensor([1.0, 0.0]), step, log_b, Packing.of([2]))
    >>> log_p.sum().backward()
    >>> log_b.grad  # the posterior
    tensor([[1.0000, 0.0000],
            [0.6667, 0.3333]], dtype=torch.float64)
    """
    whole = Cutting.whole(packing.lengths, log_b.device)
    cutting = Cutting.of(packing.lengths, log_b.shape[1], log_b.dtype, log_b.device)
    if not cutting.is_whole:
        log_b = log_b.index_select(0, whole.rows(cutting.sequence, cutting.time))
    return cut_log_prob(initial, transition, log_b, cutting, final)


def cut_log_prob(
    initial: Tensor, transition: Tensor, log_b: Tensor, cutting: Cutting, final: Tensor | None = None
) -> Tensor:
    """``chain_log_prob`` of sequences that are cut already: ``log_b`` by the rows of ``cutting.packing``."""
    result: Tensor = _ChainLogProb.apply(initial, transition, log_b, final, cutting)
    return result


class _ChainLogProb(Function):
    @staticmethod
    def forward(
        ctx: Any, initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None, cutting: Cutting
    ) -> Tensor:
        trellis = Trellis.of(initial, transition, LogDensities(log_b.detach()), cutting, final)
        if not any(ctx.needs_input_grad):
            found = forward_of(trellis)
            assert found.ends is not None
            return cutting.totals(found.steps) + found.ends
        posterior = posterior_of(trellis)
        ctx.save_for_backward(initial, transition, log_b, final, posterior.gamma, posterior.xi)
        ctx.cutting = cutting
        return posterior.log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        initial, transition, log_b, final, gamma, xi = ctx.saved_tensors
        cutting, by_initial, by_final = ctx.cutting, None, None
        if (gradient == gradient[0]).all():
            xi = gradient[0] * xi
        else:
            trellis = Trellis.of(initial, transition, LogDensities(log_b), cutting, final)
            xi = posterior_of(replace(trellis, weights=gradient)).xi
        starts, ends = (gamma[rows].double() * gradient[:, None] for rows in (cutting.first, cutting.last))
        if ctx.needs_input_grad[0]:
            by_initial = _over(starts.sum(0) if initial.ndim == 1 else starts, initial)
        if ctx.needs_input_grad[3]:
            by_final = _over(ends.sum(0), final)
        by_log_b = gamma * gradient.to(gamma.dtype)[cutting.sequence, None]
        return by_initial, _over(xi, transition), by_log_b, by_final, None


def _over(counts: Tensor, probabilities: Tensor) -> Tensor:
    """Expected counts over the probabilities they belong to; zero where those are zero."""
    p = probabilities.to(counts.device, counts.dtype)
    return torch.where(p > 0, counts / torch.where(p > 0, p, 1.0), 0.0).to(probabilities)
