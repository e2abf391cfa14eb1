"""Transitions, first states and durations that depend on the inputs u_t of a step, by exponential tilts.

The transitions into a step are ``a_t(i, j) ∝ a(i, j) exp(w_ij · u_t)``, the distribution of a first state is
``π_1(j) ∝ π(j) exp(w_j · u_1)``, and that of the duration of a segment that begins at a step is
``p_t(d) ∝ p(d) exp((w_j · u_t) (d - 1))``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.inference.chains.log_weights import safe_log


def log_transitions(transition: Tensor, slopes: Tensor, inputs: Tensor) -> Tensor:
    """Return log-probabilities of transitions that depend on inputs, into each of N steps, ``(N, K, K)``.

    They are a multinomial logistic regression. Gradients are zero where a transition is impossible.

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
    """Return log-probabilities of the first state that depend on inputs, for n sequences, ``(n, K)``.

    They are a multinomial logistic regression. Gradients are zero where a state is impossible.

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


def distinct_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each of R distinct rows of ``values (N, F)`` is found, ``(R,)``, and its number for each, ``(N,)``.

    The distinct rows are in lexicographic order.

    >>> distinct_rows(torch.tensor([[2.0], [1.0], [2.0]]))
    (tensor([1, 0]), tensor([1, 0, 1]))
    """
    order = torch.arange(len(values), device=values.device)
    for column in reversed(values.unbind(1)):
        order = order[column[order].argsort(stable=True)]
    in_order = values[order]
    is_new = torch.ones_like(order, dtype=torch.bool)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(1)
    number = torch.empty_like(order)
    number[order] = is_new.cumsum(0) - 1
    return order[is_new], number


def log_durations(log_pmf: Tensor, slopes: Tensor, inputs: Tensor) -> Tensor:
    """Return log-probabilities of the durations of segments that begin at each of N steps, ``(N, K, D)``.

    Gradients are zero where a duration is impossible.

    Args:
        log_pmf: log-probabilities of durations of 1 to D steps for inputs of zero, ``(K, D)``.
        slopes: change of ``log p(d) / (d - 1)`` with each input, before probabilities are normalised, ``(K, U)``.
        inputs: inputs of each step, ``(N, U)``.

    >>> log_durations(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[9.0]]).log(), torch.tensor([[0.0], [1.0]])).exp()
    tensor([[[0.5000, 0.5000]],
    <BLANKLINE>
            [[0.1000, 0.9000]]])
    """
    tilts = inputs.to(slopes) @ slopes.T  # (N, K)
    later = torch.arange(log_pmf.shape[1], dtype=slopes.dtype, device=slopes.device)
    return torch.log_softmax((tilts.unsqueeze(-1) * later).add_(log_pmf), -1)
