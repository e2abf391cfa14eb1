"""The algorithms of Rabiner (1989) as he writes them: one sequence, plain loops over time, in logarithms.

They are here to be read, and as references for tests of the fast ones. ``initial`` is the distribution of the first
state, ``(K,)``; ``transition`` the transition probabilities, ``(K, K)``; ``log_b`` the log-densities, ``(T, K)``;
``final`` the probability of the end after each state, ``(K,)``, or None.

>>> initial, transition = torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.0, 1.0]])
>>> log_b = torch.tensor([[0.5, 0.25], [0.5, 0.25]]).log()
>>> log_prob, gamma, xi = forward_backward(initial, transition, log_b)
>>> log_prob.exp(), gamma
(tensor(0.1875), tensor([[1.0000, 0.0000],
                         [0.6667, 0.3333]]))
>>> viterbi(initial, transition, log_b)
[0, 0]
"""

from __future__ import annotations

import torch
from torch import Tensor


def forward(initial: Tensor, transition: Tensor, log_b: Tensor) -> Tensor:
    """Return the forward log-probabilities log alpha_t(j) = log p(x_1 .. x_t, z_t = j), ``(T, K)``.

    They follow equations 19 and 20 of Rabiner (1989).

    Args:
        initial: distribution of the first state over K states, ``(K,)``.
        transition: transition probabilities from i to j, ``(K, K)``.
        log_b: log-densities of T steps in each state, ``(T, K)``.
    """
    log_alpha = torch.empty_like(log_b)
    log_alpha[0] = initial.log() + log_b[0]
    for t in range(1, len(log_b)):
        log_alpha[t] = torch.logsumexp(log_alpha[t - 1, :, None] + transition.log(), 0) + log_b[t]
    return log_alpha


def backward(transition: Tensor, log_b: Tensor, final: Tensor | None = None) -> Tensor:
    """Return the backward log-probabilities log beta_t(i) = log p(x_t+1 .. x_T | z_t = i), ``(T, K)``.

    They follow equations 24 and 25 of Rabiner (1989). With ``final`` they include the probability that the sequence
    ends after x_T.

    Args:
        transition: transition probabilities from i to j, ``(K, K)``.
        log_b: log-densities of T steps in each of K states, ``(T, K)``.
        final: probability of the end after each state, ``(K,)``; None leaves the end out.
    """
    log_beta = torch.empty_like(log_b)
    log_beta[-1] = 0.0 if final is None else final.log()
    for t in reversed(range(len(log_b) - 1)):
        log_beta[t] = torch.logsumexp(transition.log() + log_b[t + 1] + log_beta[t + 1], 1)
    return log_beta


def forward_backward(
    initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p(x), the posterior of states and the posterior of transitions of one possible sequence.

    They follow equations 21, 27 and 37 of Rabiner (1989).

    Args:
        initial: distribution of the first state over K states, ``(K,)``.
        transition: transition probabilities from i to j, ``(K, K)``.
        log_b: log-densities of T steps in each state, ``(T, K)``.
        final: probability of the end after each state, ``(K,)``; None leaves the end out.

    Returns:
        log p(x); gamma, p(z_t = j | x), ``(T, K)``; and xi, p(z_t = i, z_t+1 = j | x), ``(T - 1, K, K)``.
    """
    log_alpha, log_beta = forward(initial, transition, log_b), backward(transition, log_b, final)
    log_prob = torch.logsumexp(log_alpha[-1] + log_beta[-1], 0)
    gamma = (log_alpha + log_beta - log_prob).exp()
    ahead = log_b[1:] + log_beta[1:]  # (T - 1, K)
    xi = (log_alpha[:-1, :, None] + transition.log() + ahead[:, None, :] - log_prob).exp()
    return log_prob, gamma, xi


def viterbi(initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None) -> list[int]:
    """Return the most probable path of states, a list of T integers.

    It follows equations 32 to 35 of Rabiner (1989).

    Args:
        initial: distribution of the first state over K states, ``(K,)``.
        transition: transition probabilities from i to j, ``(K, K)``.
        log_b: log-densities of T steps in each state, ``(T, K)``.
        final: probability of the end after each state, ``(K,)``; None leaves the end out.
    """
    delta = initial.log() + log_b[0]
    psi = []
    for t in range(1, len(log_b)):
        best = (delta[:, None] + transition.log()).max(0)
        psi.append(best.indices)
        delta = best.values + log_b[t]
    path = [int((delta if final is None else delta + final.log()).argmax())]
    for previous in reversed(psi):
        path.append(int(previous[path[-1]]))
    return path[::-1]
