"""Transitions that differ from step to step: ``alpha_t(j) = Σ_i alpha_t-1(i) a_t(i, j) b_t(j)``, in logarithms.

Given inputs u_t of step t, the transitions into it are a multinomial logistic regression,
``a_t(i, j) ∝ a(i, j) exp(w_ij · u_t)``. Rows are in the order of a ``Packing``, and everything is float64. For few
sequences of many steps the passes are compiled loops, if numba is installed (``compiled_time_varying``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.chains.packing import Packing

MOST_TERMS_COMPILED = 1 << 14  # number of sums at one time above which tensor operations are as fast


def log_transitions(transition: Tensor, slopes: Tensor, inputs: Tensor) -> Tensor:
    """Return the log-probabilities of the transitions into each of N steps, ``(N, K, K)``.

    Their gradients are zero at structural zeros.

    Args:
        transition: transition probabilities for inputs of zero, ``(K, K)``; a zero here is a zero at every step.
        slopes: change of the log-probabilities with each input, before each row is normalised, ``(K, K, U)``.
        inputs: inputs of each step, ``(N, U)``.

    >>> slopes = torch.zeros(2, 2, 1, dtype=torch.float64)
    >>> slopes[0, 1] = torch.tensor(9.0).log()
    >>> even = torch.full((2, 2), 0.5, dtype=torch.float64)
    >>> log_transitions(even, slopes, torch.tensor([[0.0], [1.0]])).exp()[:, 0]
    tensor([[0.5000, 0.5000],
            [0.1000, 0.9000]], dtype=torch.float64)
    """
    k = len(transition)
    logits = (inputs.to(slopes) @ slopes.flatten(0, 1).T).view(-1, k, k)
    return torch.log_softmax(safe_log(transition.to(slopes)) + logits, -1)


def log_initial(initial: Tensor, slopes: Tensor, inputs: Tensor) -> Tensor:
    """Return the log-probabilities of the first state of each of n sequences, ``(n, K)``.

    Their gradients are zero at structural zeros.

    Args:
        initial: distribution of the first state for inputs of zero, ``(K,)``.
        slopes: change of the log-probabilities with each input, before they are normalised, ``(K, U)``.
        inputs: inputs of the first step of each sequence, ``(n, U)``.

    >>> slopes = torch.tensor([[1.0], [10.0]]).log()
    >>> log_initial(torch.tensor([0.5, 0.5]), slopes, torch.tensor([[0.0], [1.0]])).exp()
    tensor([[0.5000, 0.5000],
            [0.0909, 0.9091]])
    """
    return torch.log_softmax(safe_log(initial.to(slopes)) + inputs.to(slopes) @ slopes.T, -1)


def forward(packing: Packing, log_a: Tensor, log_b: Tensor, log_start: Tensor) -> tuple[Tensor, Tensor]:
    """Run the forward pass with transitions that differ from step to step.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``; first frames are not read.
        log_b: log-densities in nats, ``(N, K)``.
        log_start: log p(first state), ``(n, K)`` by rank (longest first).

    Returns:
        log p(z_t | x_<=t), ``(N, K)``, and log p(x_t | x_<t), ``(N,)``; both -inf from the first impossible frame on.
    """
    if runs_compiled(packing, log_a):
        from seqmodels.inference.chains import compiled_time_varying

        return compiled_time_varying.forward(packing, log_a, log_b, log_start)
    log_alpha, log_scale = log_b.new_empty(log_b.shape), log_b.new_empty(len(log_b))
    previous = log_start
    for t, (low, high) in enumerate(packing.blocks):
        n = high - low
        if t:
            previous = torch.logsumexp(previous[:n, :, None] + log_a[low:high], 1)
        joint = previous[:n] + log_b[low:high]
        log_scale[low:high] = torch.logsumexp(joint, 1)
        log_alpha[low:high] = previous = joint - zero_if_infinite(log_scale[low:high, None])
    return log_alpha, log_scale


def backward(
    packing: Packing, log_a: Tensor, log_b: Tensor, log_alpha: Tensor, log_scale: Tensor, log_end: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the backward pass on the results of ``forward``, ``log_alpha`` and ``log_scale``.

    Args:
        packing, log_a, log_b: arguments of ``forward``.
        log_alpha, log_scale: results of ``forward``.
        log_end: log p(end | last state), ``(n, K)`` by rank (longest first); zeros if the end is no event.

    Returns:
        gamma = p(z_t | x), ``(N, K)``, and p(z_t-1 = i, z_t = j | x), ``(N, K, K)``, zeros in first frames. Both are
        zero for a sequence of probability zero.
    """
    if runs_compiled(packing, log_a):
        from seqmodels.inference.chains import compiled_time_varying

        return compiled_time_varying.backward(packing, log_a, log_b, log_alpha, log_scale, log_end)
    gamma, xi = log_alpha.new_zeros(log_alpha.shape), log_a.new_zeros(log_a.shape)
    ahead = log_b[:0]  # log of b_t+1 beta_t+1 / c_t+1, for the sequences that go on
    after = 0  # the first row of the step after
    for low, high in reversed(packing.blocks):
        n, log_alpha_t = len(ahead), log_alpha[low:high]
        step = log_a[after : after + n] + ahead[:, None, :]  # (n, K, K)
        log_beta = torch.cat([torch.logsumexp(step, 2), log_end[n : high - low]])
        norm = zero_if_infinite(torch.logsumexp(log_alpha_t + log_beta, 1, keepdim=True))
        gamma[low:high] = (log_alpha_t + log_beta - norm).exp()
        xi[after : after + n] = (log_alpha_t[:n, :, None] + step - norm[:n, :, None]).exp()
        ahead = log_b[low:high] + log_beta - norm - zero_if_infinite(log_scale[low:high, None])
        after = low
    return gamma, xi


def runs_compiled(packing: Packing, log_a: Tensor) -> bool:
    """Return True if the arithmetic at each time is so little that compiled loops are faster than tensors."""
    n_times = len(packing.batch_sizes)
    few_terms = log_a.numel() <= n_times * MOST_TERMS_COMPILED
    return few_terms and not log_a.is_cuda and is_compiling()


def safe_log(probabilities: Tensor) -> Tensor:
    """Return logarithms whose gradient is zero, instead of infinite, where a probability is zero."""
    if not probabilities.requires_grad:
        return probabilities.log()
    is_possible = probabilities > 0
    return torch.where(is_possible, torch.where(is_possible, probabilities, 1.0).log(), -torch.inf)


def zero_if_infinite(values: Tensor) -> Tensor:
    """Return the values with -inf replaced by zero, so that subtracting them from -inf does not give NaN."""
    return torch.where(values == -torch.inf, 0.0, values)
